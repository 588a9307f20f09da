"""Reductions of segments that follow each other along an axis."""

import math
from typing import TYPE_CHECKING, Any

from glasshouse.base import OptionError, ShapeError, int64
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, full, reshape
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.reduce import cumulative_sum, diff
from glasshouse.tensor.torch_names.scatter import scatter_add, scatter_reduce

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["segment_reduce"]

NEUTRAL: dict[str, Any] = {"sum": 0, "mean": 0, "prod": 1, "max": -math.inf, "min": math.inf}


def lengths_of(lengths: Any, offsets: ArrayLike) -> "Tensor":
    """The lengths of the segments, from `lengths` or from `offsets`, where segments begin and the
    last ends."""
    if (lengths is None) == (offsets is None):
        got = "both" if lengths is not None else "neither"
        raise OptionError("segment_reduce", "lengths or offsets", got, "Give one.")
    values = as_value(offsets if lengths is None else lengths, where="segment_reduce")
    values = cast(check_integers("segment_reduce", values), int64)
    return diff(values) if lengths is None else values


def segment_numbers(lengths: "Tensor", size: int) -> "Tensor":
    """Of each place of (..., size), in which segment it lies: how many ended at or before it."""
    ends = cumulative_sum(lengths, axis=-1)[..., :-1]
    zero = full((*lengths.shape[:-1], size + 1), 0, int64)
    return cumulative_sum(scatter_add(zero, -1, ends, full(ends.shape, 1, int64)), axis=-1)[
        ..., :size
    ]


@takes_names_of_pytorch
@rounded_once
def segment_reduce(
    data: ArrayLike,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """The segments along an axis, each reduced to one slice: by "sum", "mean", "max", "min" or
    "prod". `lengths` says how long they are, or `offsets` where they begin and the last one ends.
    `initial` counts as one more element, but not in the number that a mean divides by; an empty
    segment gives it, or the neutral value (NaN for "mean"). Unless `unsafe`, the lengths are read.

    Shapes: data (*b, n, ...), lengths (*b, s) or offsets (*b, s + 1), axis being len(b)
        -> (*b, s, ...).
    Raises: OptionError for another reduction, ShapeError for lengths that do not make up n.
    Source: PyTorch.
    Example:
        >>> segment_reduce(as_value([1.0, 2.0, 4.0]), "sum", lengths=as_value([2, 1])).tolist()
        [3.0, 4.0]
    """
    where = "segment_reduce"
    check_option(where, "reduce", reduce, tuple(NEUTRAL))
    data, lengths = as_value(data, where=where), lengths_of(lengths, offsets)
    lead, size = data.shape[: lengths.ndim - 1], data.shape[lengths.ndim - 1 : lengths.ndim]
    if axis not in (lengths.ndim - 1, lengths.ndim - 1 - data.ndim) or lengths.shape[:-1] != lead:
        expected = f"lengths of one more axis than lie before axis {axis} of {data.shape}"
        raise ShapeError(where, expected, lengths.shape, "Move the axis.")
    axis, (size,) = lengths.ndim - 1, size
    if not unsafe and not adds_up(lengths, size):
        raise ShapeError(where, f"lengths that add up to {size}", lengths.tolist(), "Check them.")
    later_axes = (1,) * (data.ndim - lengths.ndim)
    shape = (*lead, lengths.shape[-1], *data.shape[axis + 1 :])
    start = full(shape, NEUTRAL[reduce] if initial is None else initial, data.dtype)
    numbers = segment_numbers(lengths, size)
    numbers = broadcast_to(reshape(numbers, (*numbers.shape, *later_axes)), data.shape)
    how = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    total = scatter_reduce(start, axis, numbers, data, how)
    if reduce != "mean":
        return total
    counts = broadcast_to(reshape(lengths, (*lengths.shape, *later_axes)), shape)
    divisor = counts if initial is None else elementwise.maximum(counts, 1)
    return total / cast(divisor, data.dtype)


def adds_up(lengths: "Tensor", size: int) -> bool:
    counts = lengths.numpy()
    return bool((counts >= 0).all() and (counts.sum(axis=-1) == size).all())
