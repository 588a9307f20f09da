"""Collectives: cards whose result depends on the operands of several ranks.

Each rank runs the same program; all ranks of a group make the same calls in the same order. A
transport moves the data; `glasshouse.distributed` puts it into `process.transports`. A group of one
needs none: there every card returns its operand.

**Derivatives** are those of the sum of all ranks' losses: the gradient of `all_reduce` is an
`all_reduce`, that of `all_gather` a `reduce_scatter`. Where all ranks compute the same loss from
the result, as tensor-parallel layers do, the result is `replicated`: its cotangent is the same on
each rank already, and is not summed again. `copy_to_ranks` and `shard` are the other direction.

**Recorded**, a collective is computed once, in the order of the calls, though nobody reads its
result: ranks may read values, and so cut their recordings, at different places. So equal ones stay
apart, replay in C leaves them to Python, and no budget has them done again for a backward pass; a
checkpoint does, on all ranks alike. The step of a loop is traced whole, on all ranks alike: there
equal ones are one, and those that no result needs are left out."""

from typing import Any

import numpy as np

from glasshouse.base import DTypeError, OptionError, ShapeError, Spec, check_known
from glasshouse.dispatch import LINEAR, Value, card, cast, refusal, sample
from glasshouse.ops.collective_bytes import (
    send_along_pairs,
    send_from_root,
    send_parts,
    send_parts_and_sum,
    send_to_all,
)
from glasshouse.ops.collective_card import check_divides, check_group, collective, with_axis
from glasshouse.ops.exchange import REDUCTIONS, Exchange, reduced
from glasshouse.ops.movement import section
from glasshouse.ops.process import ALONE, PAIR


def infer_copy(x: Spec, *, group: Any) -> Spec:
    check_group("copy_to_ranks", group)
    return x


def infer_shard(x: Spec, *, group: Any, axis: int, index: int) -> Spec:
    check_divides("shard", x, axis, group)
    if not 0 <= index < group.size:
        fix = "Pass group.rank."
        raise OptionError("shard", f"an index below {group.size}", index, fix)
    return with_axis(x, axis, x.shape[axis] // group.size)


def check_reduction(x: Spec, *, reduce: Any, **_: Any) -> None:
    check_known("all_reduce", f"reduce to be one of {REDUCTIONS}", reduce, REDUCTIONS)
    if x.dtype.is_bool and reduce == "sum":
        raise DTypeError("all_reduce", "numbers to add", "bool", 'Use reduce="max", or cast.')
    if reduce == "mean" and not x.dtype.is_inexact:
        raise DTypeError("all_reduce", "real or complex numbers", x.dtype.name, "Cast them first.")
    if x.dtype.is_complex and reduce in ("max", "min"):
        raise DTypeError("all_reduce", "an order", x.dtype.name, "Reduce its real parts.")


def check_root(x: Spec, *, group: Any, root: int) -> None:
    if not 0 <= root < group.size:
        fix = "Give the number of a rank within the group."
        raise OptionError("broadcast", f"a root from 0 to {group.size - 1}", root, fix)


def check_pairs(x: Spec, *, group: Any, pairs: Any) -> None:
    for ends in zip(*pairs, strict=True):
        if len({*ends}) != len(ends) or not all(0 <= rank < group.size for rank in ends):
            raise OptionError(
                "collective_permute",
                f"pairs (from, to) of ranks below {group.size}, each sending and receiving once",
                pairs,
                "Name each rank at most once on each side.",
            )


# -- derivatives -------------------------------------------------------------------------------


def total_of(x: Any, group: Any) -> Any:
    """The sum over ranks, each of which uses it in another way."""
    return all_reduce(x, group=group, reduce="sum", replicated=False)


def holders(x: Any, y: Any, group: Any) -> Any:
    """1/n on each of the n ranks that hold the extreme, 0 elsewhere."""
    hits = cast(x == y, x.dtype)
    return hits / total_of(hits, group)


def pull_all_reduce(g: Any, y: Any, x: Any, *, group: Any, reduce: Any, replicated: Any) -> Any:
    """Of a sum, the sum of the cotangents; of a mean, their mean; of an extreme, the sum shared out
    to those who hold it."""
    total = copied(g, group) if replicated else total_of(g, group)
    if reduce == "mean":
        return total / group.size
    return total if reduce == "sum" else total * holders(x, y, group)


def push_all_reduce(t: Any, y: Any, x: Any, *, group: Any, reduce: Any, replicated: Any) -> Any:
    linear = reduce in ("sum", "mean")
    moved = t if linear else t * holders(x, y, group)
    how = reduce if linear else "sum"
    return all_reduce(moved, group=group, reduce=how, replicated=replicated)


def pull_broadcast(g: Any, _y: Any, _x: Any, *, group: Any, root: int) -> Any:
    total = total_of(g, group)
    return total if group.rank == root else total * 0


def copied(x: Any, group: Any) -> Any:
    return copy_to_ranks(x, group=group)


@collective(
    Exchange(
        '`out` becomes the sum (or "mean", "max", "min") of all ranks\' `source`; they may be the '
        "same.",
        sent=send_parts_and_sum,
        sent_clear=send_to_all,
        option="reduce",
        default="sum",
        may_replace=True,
    ),
    "reduce replicated",
    check=check_reduction,
    vjp=(pull_all_reduce,),
    jvp=(push_all_reduce,),
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
)
def all_reduce(parts: Any, _rank: Any, reduce: str) -> Any:
    """The elementwise sum, mean, maximum or minimum of all ranks' x, on every rank.

    Why: no other card reads what another process has.

    `replicated`: all ranks continue alike with the result."""
    return reduced(parts, reduce)


@collective(
    Exchange("`out[i]` becomes the `source` of rank i.", sent=send_to_all, join="axis"),
    "axis replicated",
    vjp=(
        lambda g, _y, _x, *, group, axis, replicated: (
            shard(g, group=group, axis=axis, index=group.rank)
            if replicated
            else reduce_scatter(g, group=group, axis=axis)
        ),
    ),
    samples=[
        sample((2, 3), group=ALONE, axis=1, replicated=False),
        sample((2, 0), group=ALONE, axis=0, replicated=True),
    ],
    error_samples=[refusal(ShapeError, "axis", (2,), group=ALONE, axis=1, replicated=False)],
)
def all_gather(parts: Any, _rank: Any, _option: Any) -> Any:
    """The x of all ranks, in their order, joined along `axis`, on every rank.

    Why: as a sum of padded parts it would move the whole from each rank to each.

    `replicated`: all ranks continue alike with the result."""
    return parts


@collective(
    Exchange(
        "`out` becomes the sum of all ranks' `source[rank]`.",
        sent=send_parts,
        sent_clear=send_to_all,
        option="reduce",
        default="sum",
        cut="axis",
    ),
    "axis",
    vjp=(
        lambda g, _y, _x, *, group, axis: all_gather(g, group=group, axis=axis, replicated=False),
    ),
    flops=lambda x, *, group, **_: x.size // max(group.size, 1) * (group.size - 1),
    samples=[sample((2, 3), group=ALONE, axis=1), sample((0, 3), group=ALONE, axis=0)],
    error_samples=[
        refusal(ShapeError, "axis", (2,), group=ALONE, axis=1),
        refusal(ShapeError, "2 ranks divide", (3,), group=PAIR, axis=0),
    ],
    dtypes="numeric",
)
def reduce_scatter(parts: Any, rank: Any, reduce: Any) -> Any:
    """The own part, along `axis`, of the sum of all ranks' x.

    Why: a sum of which each rank takes its part moves twice the bytes."""
    return reduced(parts[:, rank], reduce)


@collective(
    Exchange(
        "`out[i]` becomes the `source[rank]` of rank i.",
        sent=send_parts,
        sent_clear=send_to_all,
        cut="split",
        join="concat",
    ),
    "split concat",
    vjp=(
        lambda g, _y, _x, *, group, split, concat: all_to_all(
            g, group=group, split=concat, concat=split
        ),
    ),
    samples=[
        sample((2, 3), group=ALONE, split=0, concat=1),
        sample((2, 3), group=ALONE, split=1, concat=1),
    ],
    error_samples=[
        refusal(ShapeError, "axis", (2,), group=ALONE, split=0, concat=1),
        refusal(ShapeError, "2 ranks divide", (3, 2), group=PAIR, split=0, concat=1),
    ],
)
def all_to_all(parts: Any, rank: Any, _option: Any) -> Any:
    """x cut along `split`, the i-th part to the i-th rank; what comes is joined along `concat`.

    Why: as an all_gather it would move every part to every rank."""
    return parts[:, rank]


@collective(
    Exchange(
        "`buffer` becomes the buffer of the rank `root`.",
        sent=send_from_root,
        option="root",
        default=0,
        arrays=("buffer",),
        may_replace=True,
    ),
    "root",
    check=check_root,
    vjp=(pull_broadcast,),
    samples=[sample((2, 3), group=ALONE, root=0), sample((), group=ALONE, root=0)],
    error_samples=[refusal(OptionError, "root", (2,), group=ALONE, root=1)],
)
def broadcast(parts: Any, _rank: Any, root: int) -> Any:
    """The x of the rank `root`, on every rank.

    Why: as a sum with zeros it would not keep infinities, NaN and negative zeros apart."""
    return parts[root]


class Ring(Exchange):
    """An exchange by messages, in which ranks meet two by two."""

    @property
    def method(self) -> Any:
        return "send_receive"

    def arguments(self, attrs: dict[str, Any], source: Any, out: Any) -> Any:
        to, origin = partners(attrs["pairs"], attrs["group"].rank)
        if origin is None:
            out[...] = 0
        return source, to, out, origin


def partners(pairs: Any, rank: int) -> tuple[int | None, int | None]:
    """Whom a rank sends to and receives from."""
    to = next((b for a, b in pairs if a == rank), None)
    return to, next((a for a, b in pairs if b == rank), None)


@collective(
    Ring("Messages, by the pairs of the call.", sent=send_along_pairs, may_start=False),
    "pairs",
    check=check_pairs,
    vjp=(
        lambda g, _y, _x, *, group, pairs: collective_permute(
            g, group=group, pairs=tuple((to, begin) for begin, to in pairs)
        ),
    ),
    samples=[
        sample((2, 3), group=ALONE, pairs=((0, 0),)),
        sample((2,), group=ALONE, pairs=()),
    ],
    error_samples=[
        refusal(OptionError, "pairs", (2,), group=ALONE, pairs=((0, 1),)),
        refusal(OptionError, "pairs", (2,), group=PAIR, pairs=((0, 1), (1, 1))),
    ],
)
def collective_permute(parts: Any, rank: Any, pairs: Any) -> Any:
    """The x of the rank that sends to this one by the `pairs` (from, to); zeros where none does.

    Why: rings pass values on to a neighbour, which an all_gather would bring to all."""
    _, origin = partners(pairs, rank)
    return np.zeros_like(parts[rank]) if origin is None else parts[origin]


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
def copy_to_ranks(x: Any, *, group: Any) -> Any:
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
def shard(x: Any, *, group: Any, axis: Any, index: Any) -> Any:
    """The own part along `axis`, number `index`, of an x that all ranks hold alike.

    Why: its gradient is joined from all ranks' parts, that of a slice is padded."""
    return np.array(np.split(x, group.size, axis)[index])


def part_of(x: Value, axis: int, index: int, count: int) -> Value:
    size = x.shape[axis] // count
    return section(x, axis, index * size, (index + 1) * size)
