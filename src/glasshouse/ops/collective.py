"""Collectives: cards whose result depends on the operands of several ranks.

Each rank runs the same program; all ranks of a group make the same calls in the same order. What
moves the data is a transport, which `glasshouse.distributed` puts into `process.transports`; a
group of one needs none, and there every card gives its operand.

**Derivatives** are those of the sum of all ranks' losses: the gradient of `all_reduce` is an
`all_reduce`, that of `all_gather` a `reduce_scatter`. Where all ranks compute the same loss from
the result, as tensor-parallel layers do, the result is `replicated`: its cotangent is the same on
each rank already, and is not summed again. `copy_to_ranks` and `shard` are the other direction.

**Recorded**, a collective is computed once, in the order of the calls, though nobody reads its
result: ranks may read values, and so cut their recordings, at different places. So equal ones stay
apart, replay in C leaves them to Python, and no budget has them done again for a backward pass; a
checkpoint does, on all ranks alike. The step of a loop is traced whole, on all ranks alike: there
equal ones are one, and those that no result needs are left out."""

from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import DTypeError, OptionError, ShapeError, Spec, check_axis, check_known
from glasshouse.base.errors import CollectiveError
from glasshouse.dispatch import LINEAR, card, cast, refusal, sample
from glasshouse.ops.asked import asked_of, asking
from glasshouse.ops.movement import section

REDUCTIONS = ("sum", "mean", "max", "min")
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "collective_permute",
)


class ProcessGroup(NamedTuple):
    """Ranks that take part in a collective, by their numbers in the world; `name` is for people.
    `label` says what calls by it are about, where ranks could call alike about different things."""

    ranks: tuple[int, ...]
    name: str = "world"
    label: str = ""

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def rank(self) -> int:
        """The number of this process within the group.

        Raises: CollectiveError where it is none of the group
        """
        if process.rank in self.ranks:
            return self.ranks.index(process.rank)
        expected = f"one of the ranks {list(self.ranks)}"
        fix = "Call a collective on the ranks of its group alone."
        raise CollectiveError(f"group {self.name}", expected, f"rank {process.rank}", fix)

    def __repr__(self):
        return f"ProcessGroup({self.name}: {', '.join(map(str, self.ranks))})"


class Process:
    """The rank of this process, and the transports of the groups that it is in."""

    def __init__(self):
        self.rank, self.size = 0, 1
        self.met_at_ns = 0  # when all ranks were there, by this process's clock (time.time_ns)
        self.transports: dict[tuple[int, ...], Any] = {}  # by the ranks of a group

    @property
    def world(self) -> ProcessGroup:
        """All ranks."""
        return ProcessGroup(tuple(range(self.size)))

    def transport(self, group: ProcessGroup):
        """The transport that moves data among the ranks of a group.

        Raises: CollectiveError where there is none
        """
        transport = self.transports.get(group.ranks)
        if transport is None:
            raise CollectiveError(
                f"group {group.name}",
                f"a group that this process made ({[list(r) for r in self.transports]})",
                f"ranks {list(group.ranks)}",
                "Call gh.distributed.init(), and make groups by gh.distributed.group(ranks) on "
                "every rank.",
            )
        return transport


process = Process()
ALONE = ProcessGroup((0,))
PAIR = ProcessGroup((0, 1))


def packed(x) -> np.ndarray:
    """The array row by row."""
    return np.ascontiguousarray(x).reshape(np.shape(x))


def requesting(name: str, x, group: ProcessGroup, **attrs) -> asking:
    """Context: a transport's calls inside are for this call of a card."""
    return asking(asked_of(name, x.dtype, x.shape, {"group": group, **attrs}))


def with_axis(x: Spec, axis: int, size: int) -> Spec:
    return Spec((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


def check_group(name: str, group) -> None:
    if not isinstance(group, ProcessGroup):
        fix = "Take gh.distributed.world(), or make one by gh.distributed.group(ranks)."
        raise OptionError(name, "a ProcessGroup of ranks", repr(group), fix)


def infer_copy(x: Spec, *, group) -> Spec:
    check_group("copy_to_ranks", group)
    return x


def check_divides(name: str, x: Spec, axis: int, group: ProcessGroup) -> None:
    check_group(name, group)
    check_axis(name, axis, x.ndim)
    if x.shape[axis] % group.size:
        expected = f"an axis {axis} that {group.size} ranks divide"
        raise ShapeError(name, expected, f"shape {x.shape}", "Pad the axis, or take another one.")


def infer_all_reduce(x: Spec, *, group, reduce, replicated) -> Spec:
    check_group("all_reduce", group)
    check_known("all_reduce", f"reduce to be one of {REDUCTIONS}", reduce, REDUCTIONS)
    if x.dtype.is_bool and reduce == "sum":
        raise DTypeError("all_reduce", "numbers to add", "bool", 'Use reduce="max", or cast.')
    if reduce == "mean" and not x.dtype.is_inexact:
        raise DTypeError("all_reduce", "real or complex numbers", x.dtype.name, "Cast them first.")
    if x.dtype.is_complex and reduce in ("max", "min"):
        raise DTypeError("all_reduce", "an order", x.dtype.name, "Reduce its real parts.")
    return x


def infer_all_gather(x: Spec, *, group, axis, replicated) -> Spec:
    check_group("all_gather", group)
    check_axis("all_gather", axis, x.ndim)
    return with_axis(x, axis, x.shape[axis] * group.size)


def infer_reduce_scatter(x: Spec, *, group, axis) -> Spec:
    check_divides("reduce_scatter", x, axis, group)
    return with_axis(x, axis, x.shape[axis] // group.size)


def infer_shard(x: Spec, *, group, axis, index) -> Spec:
    check_divides("shard", x, axis, group)
    if not 0 <= index < group.size:
        fix = "Pass group.rank."
        raise OptionError("shard", f"an index below {group.size}", index, fix)
    return with_axis(x, axis, x.shape[axis] // group.size)


def infer_all_to_all(x: Spec, *, group, split, concat) -> Spec:
    check_divides("all_to_all", x, split, group)
    check_axis("all_to_all", concat, x.ndim)
    cut = with_axis(x, split, x.shape[split] // group.size)
    return with_axis(cut, concat, cut.shape[concat] * group.size)


def infer_broadcast(x: Spec, *, group, root) -> Spec:
    check_group("broadcast", group)
    if not 0 <= root < group.size:
        fix = "Give the number of a rank within the group."
        raise OptionError("broadcast", f"a root from 0 to {group.size - 1}", root, fix)
    return x


def infer_permute(x: Spec, *, group, pairs) -> Spec:
    check_group("collective_permute", group)
    for ends in zip(*pairs, strict=True):
        if len({*ends}) != len(ends) or not all(0 <= rank < group.size for rank in ends):
            raise OptionError(
                "collective_permute",
                f"pairs (from, to) of ranks below {group.size}, each sending and receiving once",
                pairs,
                "Name each rank at most once on each side.",
            )
    return x


# -- derivatives -------------------------------------------------------------------------------


def total_of(x, group):
    return all_reduce(x, group=group, reduce="sum", replicated=False)


def holders(x, y, group):
    """1/n on each of the n ranks that hold the extreme, 0 elsewhere."""
    hits = cast(x == y, x.dtype)
    return hits / total_of(hits, group)


def pull_all_reduce(g, y, x, *, group, reduce, replicated):
    """Of a sum, the sum of the cotangents; of a mean, their mean; of an extreme, the sum shared out
    to those who hold it."""
    total = copied(g, group) if replicated else total_of(g, group)
    if reduce == "mean":
        return total / group.size
    return total if reduce == "sum" else total * holders(x, y, group)


def push_all_reduce(t, y, x, *, group, reduce, replicated):
    linear = reduce in ("sum", "mean")
    moved = t if linear else t * holders(x, y, group)
    how = reduce if linear else "sum"
    return all_reduce(moved, group=group, reduce=how, replicated=replicated)


def pull_broadcast(g, _y, _x, *, group, root):
    total = total_of(g, group)
    return total if group.rank == root else total * 0


def copied(x, group):
    return copy_to_ranks(x, group=group)


@card(
    "collective",
    infer=infer_all_reduce,
    vjp=(pull_all_reduce,),
    jvp=(push_all_reduce,),
    batch=lambda batched, x, **attrs: all_reduce(x, **attrs),
    flops=lambda x, *, group, **_: x.size * (group.size - 1),
    samples=[
        sample((2, 3), group=ALONE, reduce="sum", replicated=False),
        sample((), group=ALONE, reduce="sum", replicated=True),
        sample((4,), group=ALONE, reduce="mean", replicated=False),
        sample((4,), group=ALONE, reduce="max", replicated=False),
        sample((0, 2), group=ALONE, reduce="min", replicated=False),
    ],
    error_samples=[
        refusal(OptionError, "reduce", (2,), group=ALONE, reduce="prod", replicated=False),
        refusal(DTypeError, "Cast", (2,), on="int32", group=ALONE, reduce="mean", replicated=False),
        refusal(
            DTypeError, "numbers", (2,), on="bool", group=ALONE, reduce="sum", replicated=False
        ),
        refusal(
            DTypeError, "order", (2,), on="complex64", group=ALONE, reduce="max", replicated=False
        ),
    ],
    traits=("collective",),
)
def all_reduce(x, *, group, reduce, replicated):
    """The elementwise sum, mean, maximum or minimum of all ranks' x, on every rank.

    Why: no other card reads what another process has.

    `replicated`: all ranks continue alike with the result."""
    if group.size == 1:
        return np.array(x)
    out = np.empty_like(packed(x))
    with requesting("all_reduce", x, group, reduce=reduce):
        process.transport(group).all_reduce(packed(x), out, reduce)
    return out


@card(
    "collective",
    infer=infer_all_gather,
    vjp=(
        lambda g, _y, _x, *, group, axis, replicated: (
            shard(g, group=group, axis=axis, index=group.rank)
            if replicated
            else reduce_scatter(g, group=group, axis=axis)
        ),
    ),
    jvp=LINEAR,
    batch=lambda batched, x, *, axis, **attrs: all_gather(x, axis=axis + 1, **attrs),
    flops=lambda x, **_: 0,
    samples=[
        sample((2, 3), group=ALONE, axis=1, replicated=False),
        sample((2, 0), group=ALONE, axis=0, replicated=True),
    ],
    error_samples=[refusal(ShapeError, "axis", (2,), group=ALONE, axis=1, replicated=False)],
    traits=("collective",),
)
def all_gather(x, *, group, axis, replicated):
    """The x of all ranks, in their order, joined along `axis`, on every rank.

    Why: as a sum of padded parts it would move the whole from each rank to each.

    `replicated`: all ranks continue alike with the result."""
    if group.size == 1:
        return np.array(x)
    parts = np.empty((group.size, *x.shape), x.dtype)
    with requesting("all_gather", x, group, axis=axis):
        process.transport(group).all_gather(packed(x), parts)
    return np.concatenate(list(parts), axis) if axis else parts.reshape(-1, *x.shape[1:])


@card(
    "collective",
    infer=infer_reduce_scatter,
    vjp=(
        lambda g, _y, _x, *, group, axis: all_gather(g, group=group, axis=axis, replicated=False),
    ),
    jvp=LINEAR,
    batch=lambda batched, x, *, axis, group: reduce_scatter(x, axis=axis + 1, group=group),
    flops=lambda x, *, group, **_: x.size // max(group.size, 1) * (group.size - 1),
    samples=[sample((2, 3), group=ALONE, axis=1), sample((0, 3), group=ALONE, axis=0)],
    error_samples=[
        refusal(ShapeError, "axis", (2,), group=ALONE, axis=1),
        refusal(ShapeError, "2 ranks divide", (3,), group=PAIR, axis=0),
    ],
    dtypes="numeric",
    traits=("collective",),
)
def reduce_scatter(x, *, group, axis):
    """The own part, along `axis`, of the sum of all ranks' x.

    Why: a sum of which each rank takes its part moves twice the bytes."""
    if group.size == 1:
        return np.array(x)
    parts = packed(np.stack(np.split(x, group.size, axis)))
    out = np.empty(parts.shape[1:], x.dtype)
    with requesting("reduce_scatter", x, group, axis=axis):
        process.transport(group).reduce_scatter(parts, out, "sum")
    return out


@card(
    "collective",
    infer=infer_all_to_all,
    vjp=(
        lambda g, _y, _x, *, group, split, concat: all_to_all(
            g, group=group, split=concat, concat=split
        ),
    ),
    jvp=LINEAR,
    batch=lambda batched, x, *, group, split, concat: all_to_all(
        x, group=group, split=split + 1, concat=concat + 1
    ),
    flops=lambda x, **_: 0,
    samples=[
        sample((2, 3), group=ALONE, split=0, concat=1),
        sample((2, 3), group=ALONE, split=1, concat=1),
    ],
    error_samples=[
        refusal(ShapeError, "axis", (2,), group=ALONE, split=0, concat=1),
        refusal(ShapeError, "2 ranks divide", (3, 2), group=PAIR, split=0, concat=1),
    ],
    traits=("collective",),
)
def all_to_all(x, *, group, split, concat):
    """x cut along `split`, the i-th part to the i-th rank; what comes is joined along `concat`.

    Why: as an all_gather it would move every part to every rank."""
    if group.size == 1:
        return np.array(x)
    parts = packed(np.stack(np.split(x, group.size, split)))
    out = np.empty_like(parts)
    with requesting("all_to_all", x, group, split=split, concat=concat):
        process.transport(group).all_to_all(parts, out)
    return np.concatenate(list(out), concat)


@card(
    "collective",
    infer=infer_broadcast,
    vjp=(pull_broadcast,),
    jvp=LINEAR,
    batch=lambda batched, x, **attrs: broadcast(x, **attrs),
    flops=lambda x, **_: 0,
    samples=[sample((2, 3), group=ALONE, root=0), sample((), group=ALONE, root=0)],
    error_samples=[refusal(OptionError, "root", (2,), group=ALONE, root=1)],
    traits=("collective",),
)
def broadcast(x, *, group, root):
    """The x of the rank `root`, on every rank.

    Why: as a sum with zeros it would not keep infinities, NaN and negative zeros apart."""
    out = np.array(packed(x))
    if group.size > 1:
        with requesting("broadcast", x, group, root=root):
            process.transport(group).broadcast(out, root)
    return out


@card(
    "collective",
    infer=infer_permute,
    vjp=(
        lambda g, _y, _x, *, group, pairs: collective_permute(
            g, group=group, pairs=tuple((to, begin) for begin, to in pairs)
        ),
    ),
    jvp=LINEAR,
    batch=lambda batched, x, **attrs: collective_permute(x, **attrs),
    flops=lambda x, **_: 0,
    samples=[
        sample((2, 3), group=ALONE, pairs=((0, 0),)),
        sample((2,), group=ALONE, pairs=()),
    ],
    error_samples=[
        refusal(OptionError, "pairs", (2,), group=ALONE, pairs=((0, 1),)),
        refusal(OptionError, "pairs", (2,), group=PAIR, pairs=((0, 1), (1, 1))),
    ],
    traits=("collective",),
)
def collective_permute(x, *, group, pairs):
    """The x of the rank that sends to this one by the `pairs` (from, to); zeros where none does.

    Why: rings pass values on to a neighbour, which an all_gather would bring to all."""
    out = np.zeros_like(packed(x))
    if group.size == 1:
        return np.array(x) if pairs else out
    to, source = partners(pairs, group.rank)
    with requesting("collective_permute", x, group):
        process.transport(group).send_receive(packed(x), to, out, source)
    return out


@card(
    "collective",
    infer=infer_copy,
    vjp=(lambda g, _y, _x, *, group: all_reduce(g, group=group, reduce="sum", replicated=True),),
    jvp=LINEAR,
    batch=lambda batched, x, **attrs: copy_to_ranks(x, **attrs),
    flops=lambda x, **_: 0,
    samples=[sample((2, 3), group=ALONE), sample((), group=ALONE)],
    error_samples=[refusal(OptionError, "a ProcessGroup", (2,), group=(0,))],
    composition=lambda x, *, group: x,
)
def copy_to_ranks(x, *, group):
    """x itself, which all ranks hold alike and use in different ways: so its gradient is the sum
    of theirs.

    Why: an identity with another derivative is no composition of cards."""
    return np.array(x)


@card(
    "collective",
    infer=infer_shard,
    vjp=(
        lambda g, _y, _x, *, group, axis, index: all_gather(
            g, group=group, axis=axis, replicated=True
        ),
    ),
    jvp=LINEAR,
    batch=lambda batched, x, *, axis, **attrs: shard(x, axis=axis + 1, **attrs),
    flops=lambda x, **_: 0,
    samples=[
        sample((2, 3), group=ALONE, axis=1, index=0),
        sample((0, 3), group=ALONE, axis=0, index=0),
    ],
    error_samples=[
        refusal(ShapeError, "axis", (2,), group=ALONE, axis=1, index=0),
        refusal(OptionError, "index", (2,), group=ALONE, axis=0, index=1),
        refusal(ShapeError, "2 ranks divide", (3,), group=PAIR, axis=0, index=0),
    ],
    composition=lambda x, *, group, axis, index: part_of(x, axis, index, group.size),
)
def shard(x, *, group, axis, index):
    """The own part along `axis`, number `index`, of an x that all ranks hold alike.

    Why: its gradient is joined from all ranks' parts, that of a slice is padded."""
    return np.array(np.split(x, group.size, axis)[index])


def part_of(x, axis: int, index: int, count: int):
    size = x.shape[axis] // count
    return section(x, axis, index * size, (index + 1) * size)


def partners(pairs, rank: int) -> tuple[int | None, int | None]:
    """Whom a rank sends to and receives from."""
    to = next((b for a, b in pairs if a == rank), None)
    return to, next((a for a, b in pairs if b == rank), None)
