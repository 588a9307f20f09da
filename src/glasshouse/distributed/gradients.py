"""Gradients of ranks that hold the same parameters."""

from collections.abc import Iterable

from glasshouse.distributed.functions import all_reduce
from glasshouse.ops.collective import ProcessGroup, process
from glasshouse.tensor import Tensor, concat


def average_gradients(parameters: Iterable[Tensor], group: ProcessGroup | None = None) -> None:
    """Put the mean over the ranks of the group in place of each gradient: those of a dtype as one
    collective. All ranks have gradients for the same parameters."""
    group = process.world if group is None else group
    by_dtype: dict = {}
    for p in parameters:
        if p.grad is not None:
            by_dtype.setdefault(p.grad.dtype, []).append(p)
    for same in by_dtype.values() if group.size > 1 else ():
        joined = all_reduce(concat([p.grad.reshape(-1) for p in same]), "mean", group=group)
        at = 0
        for p in same:
            p.grad = joined[at : at + p.size].reshape(p.shape)
            at += p.size
