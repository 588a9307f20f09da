"""Histograms, counts and distinct elements, under PyTorch's names."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.base import OptionError, ShapeError, check_axes, check_axis, int64
from glasshouse.base.dtype import float64, int32, uint64
from glasshouse.dispatch import adopt, as_value, bind, cast, full, primitives, reshape
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike
from glasshouse.ops import index as cards
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.ops.compare import where
from glasshouse.ops.movement import section
from glasshouse.tensor.standard import elementwise, index, reduce
from glasshouse.tensor.standard.manipulate import concat, permute_dims, unstack
from glasshouse.tensor.standard.search import distinct

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["bincount", "bucketize", "hash_tensor", "histc", "histogram", "histogramdd", "unique",
           "unique_consecutive"]  # fmt: skip


class Histogram(NamedTuple):
    """Counts, and the edges between bins."""

    hist: "Tensor"
    bin_edges: Any  # of histogramdd a tuple


# -- counts --------------------------------------------------------------------------------------


def bincount(x: ArrayLike, weights: Any = None, minlength: int = 0) -> "Tensor":
    """How often each integer from 0 occurs, or the sum of its weights. The tensor is read at once.

    Shapes: (n,), weights (n,) -> (max(largest + 1, minlength),).
    Raises: DTypeError unless x holds integers, OptionError for negative ones, ShapeError.
    Source: NumPy, PyTorch.
    Example:
        >>> bincount(as_value([1, 1, 3])).tolist()
        [0, 2, 0, 1]
    """
    x = check_integers("bincount", as_value(x, where="bincount"))
    if x.ndim != 1:
        raise ShapeError("bincount", "a vector", x.shape, "Flatten it.")
    low, high = (int(x.min()), int(x.max())) if x.size else (0, -1)
    if low < 0:
        raise OptionError("bincount", "integers from 0", low, "Subtract the smallest.")
    updates = full(x.shape, 1, int64) if weights is None else as_value(weights)
    if not (updates.dtype is int64 and weights is None or updates.dtype.is_floating):
        updates = cast(updates, float64)
    empty = full((max(high + 1, minlength),), 0, updates.dtype)
    return cards.scatter_add(empty, cast(x, int64), updates, axis=0)


def bounds(where_: str, x: "Tensor", low: Any, high: Any, margin: float = 1.0) -> Any:
    """The range of a histogram: that of the data where both are equal, widened from a point."""
    if low == high and x.size:
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - margin, high + margin
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise OptionError(where_, "a finite range from low to high", f"{low} to {high}", "Check.")
    return low, high


def counts_in(edges: "Tensor", x: "Tensor", weights: Any) -> "Tensor":
    """How many elements, or which weight, lies between neighbours, the last edge included."""
    count = edges.shape[0] - 1
    places = index.searchsorted(edges, x, side="right") - 1
    places = where(
        x == section(edges, 0, count, count + 1), full(x.shape, count - 1, int64), places
    )
    inside = (places >= 0) & (places < count)
    updates = full(x.shape, 1, edges.dtype) if weights is None else cast(weights, edges.dtype)
    updates = where(inside, updates, full(x.shape, 0, edges.dtype))
    places = where(inside, places, full(x.shape, 0, int64))
    return cards.scatter_add(full((count,), 0, edges.dtype), places, updates, axis=0)


def histc(x: ArrayLike, bins: int = 100, min: int = 0, max: int = 0) -> Any:
    """How many elements lie in each of equally wide bins from min to max, or over the range of the
    data where both are equal; the last bin holds its upper edge too.

    Shapes: (...) -> (bins,).
    Raises: OptionError for a range that is none.
    Source: PyTorch.
    Example:
        >>> histc(as_value([0.0, 1.0, 1.0]), 2).tolist()
        [1.0, 2.0]
    """
    x = as_value(x, where="histc")
    low, high = bounds("histc", x, min, max)
    places = elementwise.floor((cast(x, float64) - low) * (bins / (high - low)))
    places = elementwise.clip(cast(places, int64), 0, bins - 1)
    dtype = x.dtype
    inside = cast((x >= low) & (x <= high), dtype)
    flat = reshape(places, (x.size,)), reshape(inside, (x.size,))
    return cards.scatter_add(full((bins,), 0, dtype), *flat, axis=0)


def edges_of(x: "Tensor", bins: ArrayLike, range_: Any) -> "Tensor":
    if not isinstance(bins, int):
        return cast(as_value(bins), x.dtype)
    low, high = range_ or (0, 0)
    low, high = bounds("histogram", x, low, high, 0.5)
    return adopt(np.linspace(low, high, bins + 1).astype(x.dtype.np))


def histogram(
    x: ArrayLike, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """(hist, bin_edges): how many elements, or which weight, lies between neighbouring edges;
    `bins` is their number over a range, or the edges. With `density` the area is 1.

    Shapes: (...) -> (bins,), (bins + 1,).
    Raises: OptionError for a range that is none.
    Source: NumPy, PyTorch.
    Example:
        >>> histogram(as_value([0.0, 1.0, 1.0]), 2).hist.tolist()
        [1.0, 2.0]
    """
    x = as_value(x, where="histogram")
    edges = edges_of(x, bins, range)
    weight = None if weight is None else reshape(as_value(weight), (x.size,))
    counted = counts_in(edges, reshape(x, (x.size,)), weight)
    if density:
        counted = counted / (reduce.sum(counted) * reduce.diff(edges))
    return Histogram(counted, edges)


def histogramdd(
    x: ArrayLike, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """(hist, bin_edges): how many points, or which weight, lies in each cell of a grid.

    Shapes: (..., axes) -> bins, and a tuple of the edges of each axis; bins are their numbers or
        the edges.
    Raises: OptionError for a range that is none.
    Source: NumPy, PyTorch.
    """
    x = as_value(x, where="histogramdd")
    points = reshape(x, (x.size // x.shape[-1], x.shape[-1]))
    bins = [bins] * x.shape[-1] if isinstance(bins, int) else bins
    limits = (
        [None] * len(bins) if range is None else list(zip(range[::2], range[1::2], strict=True))
    )
    columns = unstack(points, axis=1)
    edges = tuple(edges_of(*each) for each in zip(columns, bins, limits, strict=True))
    total = full((points.shape[0],), 1, x.dtype)
    total = total if weight is None else reshape(as_value(weight), total.shape)
    cells, cell = [e.size - 1 for e in edges], full(total.shape, 0, int64)
    for column, edge, count in zip(columns, edges, cells, strict=True):
        place = index.searchsorted(edge, column, side="right") - 1
        place = where(column == section(edge, 0, count, count + 1), place * 0 + count - 1, place)
        inside = (place >= 0) & (place < count)
        total = where(inside, total, total * 0)
        cell = cell * count + where(inside, place, place * 0)
    counted = cards.scatter_add(full((math.prod(cells),), 0, x.dtype), cell, total, axis=0)
    counted = reshape(counted, tuple(cells))
    if density:
        for axis, edge in enumerate(edges):
            steps = reshape(reduce.diff(edge), (edge.size - 1, *(1,) * (len(cells) - axis - 1)))
            counted = counted / steps
        counted = counted / reduce.sum(total)
    return Histogram(counted, edges)


def bucketize(
    x: "Tensor", boundaries: "Tensor", *, out_int32: bool = False, right: bool = False
) -> "Tensor":
    """In which bin between sorted boundaries each element lies: from 0, below the first one.
    With `right`, an element that equals a boundary belongs after it.

    Shapes: x (...), boundaries (n,) -> (...) int64.
    Raises: ShapeError unless boundaries are a vector.
    Source: PyTorch.
    Example:
        >>> bucketize(as_value([0.5, 2.0]), as_value([1.0, 2.0])).tolist()
        [0, 1]
    """
    places = index.searchsorted(boundaries, x, side="right" if right else "left")
    return cast(places, int32) if out_int32 else places


# -- distinct elements -----------------------------------------------------------------------------


@takes_names_of_pytorch
def unique(
    x: ArrayLike,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The distinct elements of x, or its distinct slices along an axis, in order; on demand also
    which each element is, and how often each occurs. The tensor is read at once.

    Shapes: (...) -> (k,), and (...), (k,) on demand.
    Source: PyTorch.
    Example:
        >>> unique(as_value([2, 1, 2])).tolist()
        [1, 2]
    """
    x = as_value(x, where="unique")
    if axis is None:
        counted = distinct("unique", x)
        rest = ((counted.inverse_indices, return_inverse), (counted.counts, return_counts))
        return chosen(counted.values, rest)
    axis = check_axis("unique", axis, x.ndim)
    rows = np.moveaxis(x.numpy(), axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    return slices_once(x, rows, order, axis, return_inverse, return_counts)


@takes_names_of_pytorch
def unique_consecutive(
    x: ArrayLike, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> Any:
    """x without elements (or slices along an axis) that equal the one before; on demand also which
    each element has become, and how long each run is. The tensor is read at once.

    Shapes: (...) -> (k,), and (...), (k,) on demand.
    Source: PyTorch.
    Example:
        >>> unique_consecutive(as_value([1, 1, 2, 1])).tolist()
        [1, 2, 1]
    """
    x = as_value(x, where="unique_consecutive")
    shape = x.shape
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    else:
        shape = None
    axis = check_axis("unique_consecutive", axis, x.ndim)
    rows = np.moveaxis(x.numpy(), axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    counted = slices_once(x, rows, np.arange(len(rows)), axis, return_inverse, return_counts)
    if return_inverse and shape is not None:
        return (counted[0], reshape(counted[1], shape), *counted[2:])
    return counted


def slices_once(
    x: "Tensor", rows: Any, order: Any, axis: int, return_inverse: bool, return_counts: bool
) -> Any:
    """The slices of x, in this order, without those that equal the one before."""
    ordered_rows = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (ordered_rows[1:] != ordered_rows[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = np.cumsum(new) - 1
    counts = np.diff(np.append(starts, len(rows)))
    slices = cards.gather(x, adopt(order[starts].astype(np.int64)), axis=axis)
    return chosen(slices, ((adopt(inverse), return_inverse), (adopt(counts), return_counts)))


def chosen(first: "Tensor", rest: Any) -> Any:
    extras = [y for y, is_wanted in rest if is_wanted]
    return (first, *extras) if extras else first


@takes_names_of_pytorch
def hash_tensor(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, mode: int = 0
) -> Any:
    """The bits of all elements, as 64-bit numbers, joined by exclusive or; or along axes.

    Shapes: as a reduction over `axis`, by default of all elements.
    Dtypes: real -> uint64.
    Raises: DTypeError for complex x, OptionError for a mode other than 0.
    Source: PyTorch.
    Example:
        >>> hash_tensor(as_value([1, 2, 4])).item()
        7
    """
    x = as_value(x, where="hash_tensor")
    check_option("hash_tensor", "mode", mode, (0,))
    elementwise.check_real("hash_tensor", x)
    wide = float64 if x.dtype.is_floating else uint64 if x.dtype.kind == "uint" else int64
    bits = bind(primitives["bitcast"], (cast(x, wide),), {"dtype": uint64})
    axes = check_axes("hash_tensor", axis, x.ndim)
    lead = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    bits = reshape(permute_dims(bits, order), (*lead, math.prod(x.shape[i] for i in axes)))
    while bits.shape[-1] > 1:  # halves joined
        half = -(-bits.shape[-1] // 2)
        first, second = bits[..., :half], bits[..., half:]
        missing = full((*lead, half - second.shape[-1]), 0, uint64)
        bits = elementwise.bitwise_xor(first, concat([second, missing], axis=-1))
    out_shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else lead
    return reshape(bits, out_shape) if bits.size else full(out_shape, 0, uint64)
