"""Collectives on tensors: differentiable, recorded and compiled like any other call."""

from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.dispatch import backend as backends
from glasshouse.ops import collective
from glasshouse.ops.checks import check_option
from glasshouse.ops.exchange import REDUCTIONS
from glasshouse.ops.process import ProcessGroup, process
from glasshouse.tensor import Tensor, asarray

__all__ = ["all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "copy_to", "permute",
           "reduce_scatter", "shard"]  # fmt: skip


def all_reduce(
    x: Tensor, reduce: str = "sum", *, group: ProcessGroup | None = None, replicated: bool = False
) -> Tensor:
    """The sum of all ranks' x on every rank: y = Σᵣ xᵣ; or their "mean", "max", "min".

    With `replicated`, all ranks compute the same from it, so its gradient is not summed again.

    Shapes: x (...), the same on all ranks; y (...)
    Dtypes: numbers; for max and min real ones; the mean of integers is float32
    Raises: OptionError for another reduction
    """
    check_option("all_reduce", "reduce", reduce, REDUCTIONS)
    x, group = asarray(x), group or process.world
    if reduce == "mean" and not x.dtype.is_inexact:
        x = x / 1
    return collective.all_reduce(x, group=group, reduce=reduce, replicated=replicated)


def all_gather(
    x: Tensor, axis: int = 0, *, group: ProcessGroup | None = None, replicated: bool = False
) -> Tensor:
    """The x of all ranks joined along `axis`, on every rank.

    Shapes: x (..., k, ...), y (..., size · k, ...)
    """
    x = asarray(x)
    return collective.all_gather(
        x, group=group or process.world, axis=counted(x, axis), replicated=replicated
    )


def reduce_scatter(x: Any, axis: int = 0, *, group: ProcessGroup | None = None) -> Tensor:
    """This rank's part, along `axis`, of the sum of all ranks' x.

    Shapes: x (..., size · k, ...), y (..., k, ...)
    Raises: ShapeError where the ranks do not divide the axis
    """
    x = asarray(x)
    return collective.reduce_scatter(x, group=group or process.world, axis=counted(x, axis))


def all_to_all(
    x: Any, split: int = 0, concat: int = 0, *, group: ProcessGroup | None = None
) -> Tensor:
    """x cut along the axis `split`, the i-th part sent to rank i; the parts received are joined
    along `concat`.

    Shapes: x (..., size · k, ...), y (..., k, ...) with size times the length along `concat`
    Raises: ShapeError where the ranks do not divide the axis
    """
    x = asarray(x)
    return collective.all_to_all(
        x, group=group or process.world, split=counted(x, split), concat=counted(x, concat)
    )


def broadcast(x: Tensor, root: int = 0, *, group: ProcessGroup | None = None) -> Tensor:
    """The x of the rank `root` of the group, on every rank.

    Raises: OptionError for a rank that is none
    """
    return collective.broadcast(asarray(x), group=group or process.world, root=root)


def permute(x: Any, pairs: Any, *, group: ProcessGroup | None = None) -> Tensor:
    """The x of the rank that sends to this one by `pairs` of (from, to); zeros where none does.

    Raises: OptionError where a rank sends or receives twice
    """
    pairs = tuple(tuple(pair) for pair in pairs)
    return collective.collective_permute(asarray(x), group=group or process.world, pairs=pairs)


def copy_to(x: Any, *, group: ProcessGroup | None = None) -> Tensor:
    """x itself, where all ranks hold it alike and use it in different ways: its gradient is the sum
    of theirs."""
    return collective.copy_to_ranks(asarray(x), group=group or process.world)


def shard(x: Any, axis: int = 0, *, group: ProcessGroup | None = None) -> Tensor:
    """This rank's part, along `axis`, of an x that all ranks hold alike; its gradient is gathered.

    Shapes: x (..., size · k, ...), y (..., k, ...)
    Raises: ShapeError where the ranks do not divide the axis
    """
    x, group = asarray(x), group or process.world
    return collective.shard(x, group=group, axis=counted(x, axis), index=group.rank)


def barrier(group: ProcessGroup | None = None) -> None:
    """Return when all ranks are here, with all that they recorded computed."""
    group = group or process.world
    backends.current().evaluate()
    if group.size > 1:
        process.transport(group).barrier()


def read_result(result: Tensor, expected: list[Any]) -> list[Any]:
    """Return a collective's result as a list, to decide by; ahead of time, `expected`, its result
    where all ranks are like this one."""
    backend = backends.current()
    if backend.computes:
        return result.tolist()
    backend.evaluate()  # as reading it does
    return expected


def counted(x: Tensor, axis: int) -> int:
    if not isinstance(axis, int):
        raise OptionError("collective", "an axis", repr(axis), "Give the number of an axis.")
    return axis + x.ndim if axis < 0 else axis
