"""Operators that read or write at indices: gather, scatter, advanced indexing, embedding."""

from math import prod
from typing import Any

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.base.shape import Shape
from glasshouse.dispatch import Value, cast, full, primitives
from glasshouse.dispatch.wide import widen as wide
from glasshouse.ops.index import gather_along
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import axis_of, reshape, typed
from glasshouse.torch.aten.table import aten

INT64 = as_dtype("int64")


def from_front(indices: Value, size: int) -> Value:
    """Indices counted from the front, where negative ones count from the end."""
    if indices.dtype.kind == "uint":
        return cast(indices, INT64)
    indices = cast(indices, INT64)
    return gh.where(indices < 0, indices + size, indices)


def refusable(indices: Value, size: int, count: int) -> Value:
    """Indices of an axis of `size`, where those out of range, negative ones too, become `count`:
    the number of all elements, which cards refuse."""
    indices = cast(indices, INT64)
    is_inside = (indices >= 0) & (indices < size)
    return gh.where(is_inside, indices, full((), count, INT64))


def rows_of(indices: Value, size: int) -> Value:
    """Indices of rows, where negative ones become `size`: cards refuse indices from there on."""
    indices = cast(indices, INT64)
    return gh.where(indices < 0, full((), size, INT64), indices)


@aten("index_select")
def index_select(x: Any, axis: Any, indices: Any) -> Any:
    rows = reshape(indices, (indices.size,))
    if x.ndim == 0:
        return reshape(primitives["gather"](reshape(x, (1,)), rows_of(rows, 1), axis=0), ())
    axis = axis % x.ndim
    return primitives["gather"](x, rows_of(rows, x.shape[axis]), axis=axis)


@aten("gather")
def gather(x: Tensor, axis: int, indices: Tensor, sparse_grad: bool = False) -> Value:
    """Elements along one axis; indices may be shorter than x along the others."""
    if x.ndim == 0:
        rows = refusable(indices, 1, 1)
        return reshape(primitives["gather"](reshape(x, (1,)), rows, axis=0), indices.shape)
    axis = axis % x.ndim
    lines = cut_to(x, indices.shape, axis)
    return gather_along(lines, refusable(indices, x.shape[axis], lines.size), axis)


def cut_to(x: Value, shape: tuple[int, ...], axis: int) -> Value:
    """x as long as `shape` along all axes but one."""
    stops = tuple(n if i == axis else m for i, (n, m) in enumerate(zip(x.shape, shape)))
    if stops == x.shape:
        return x
    return primitives["slice"](x, starts=(0,) * x.ndim, stops=stops, steps=(1,) * x.ndim)


@aten("embedding")
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    return primitives["gather"](weight, rows_of(indices, weight.shape[0]), axis=0)


@aten("embedding_dense_backward")
def embedding_backward(
    g: Tensor, indices: Tensor, count: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """The gradient of the table: for each row the sum over its reads, 0 for the padding row."""
    if scale_grad_by_freq:
        raise NotImplementedError
    rows = reshape(indices, (indices.size,))
    parts = reshape(g, (indices.size, g.shape[-1]))
    if padding_idx >= 0:
        is_kept = reshape(rows != padding_idx, (indices.size, 1))
        parts = gh.where(is_kept, parts, full((), 0, parts.dtype))
    zeros = full((count, g.shape[-1]), 0, g.dtype)
    return primitives["scatter_add"](zeros, cast(rows, INT64), parts, axis=0)


# -- advanced indexing ------------------------------------------------------------------------


class Places:
    """The elements of x at a list of index tensors (None: the whole axis): `rows` of x with the
    indexed axes in front and merged, and the layout of the result. With `is_checked`, indices out
    of range are refused."""

    def __init__(self, x: Value, indices: Any, is_checked: bool = True) -> None:
        self.x = x
        indices = [*indices, *[None] * (x.ndim - len(indices))]
        self.axes: list[int] = [i for i, index in enumerate(indices) if index is not None]
        self.others: list[int] = [i for i in range(x.ndim) if i not in self.axes]
        index_arrays = gh.broadcast_arrays(*[indices[i] for i in self.axes])
        self.shape: Shape = index_arrays[0].shape
        self.count: int = prod(x.shape[i] for i in self.axes)
        self.rest: tuple[int, ...] = tuple(x.shape[i] for i in self.others)
        flat = full((), 0, INT64)
        for axis, index in zip(self.axes, index_arrays):
            size = x.shape[axis]
            along = from_front(index, size)
            along = refusable(along, size, self.count) if is_checked else along
            flat = flat * size + along
        self.rows: Value = reshape(gh.broadcast_to(flat, self.shape), (prod(self.shape),))
        together = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.begin: int = self.axes[0] if together else 0

    @property
    def result_shape(self) -> tuple[int, ...]:
        return (*self.rest[: self.begin], *self.shape, *self.rest[self.begin :])

    def merged(self, x: Value) -> Value:
        """x with the indexed axes in front, as one: (count, *rest)."""
        return reshape(permute(x, axes=(*self.axes, *self.others)), (self.count, *self.rest))

    def unmerged(self, x: Value) -> Value:
        """The inverse of `merged`: a result with the axes of x."""
        sizes = (*(self.x.shape[i] for i in self.axes), *self.rest)
        order = (*self.axes, *self.others)
        return permute(reshape(x, sizes), axes=tuple(order.index(i) for i in range(len(order))))

    def take(self) -> Value:
        """The elements, in the shape that indexing gives."""
        elements = primitives["gather"](self.merged(self.x), self.rows, axis=0)
        elements = reshape(elements, (*self.shape, *self.rest))
        n, lead = len(self.shape), self.begin
        order = (*range(n, n + lead), *range(n), *range(n + lead, n + len(self.rest)))
        return permute(elements, axes=order) if order else elements

    def put(self, values: Value, accumulate: bool) -> Value:
        """x with these values at the places, or added there."""
        values = gh.broadcast_to(cast(values, self.x.dtype), self.result_shape)
        n, lead = len(self.shape), self.begin
        order = (*range(lead, lead + n), *range(lead), *range(lead + n, values.ndim))
        values = permute(values, axes=order) if order else values
        values = reshape(values, (self.rows.size, *self.rest))
        card = primitives["scatter_add" if accumulate else "scatter_set"]
        return self.unmerged(card(self.merged(self.x), self.rows, values, axis=0))


def with_masks_refused(indices: Any) -> None:
    """Leave masks to PyTorch: the shape of the result depends on contents."""
    if any(index is not None and index.dtype.is_bool for index in indices):
        raise NotImplementedError


@aten("index.Tensor")
def index(x: Any, indices: Any) -> Any:
    with_masks_refused(indices)
    return Places(x, indices).take()


@aten("_unsafe_index.Tensor")
def index_within(x: Any, indices: Any) -> Any:
    """Indexing with indices that are in range."""
    with_masks_refused(indices)
    return Places(x, indices, is_checked=False).take()


@aten("index_put", "_unsafe_index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    masks = [index for index in indices if index is not None]
    if len(masks) == 1 and masks[0].dtype.is_bool and values.size == 1 and not accumulate:
        return put_in_mask(x, indices, values)
    with_masks_refused(indices)
    return Places(x, indices).put(values, accumulate)


def put_in_mask(x: Value, indices: Any, value: Value) -> Value:
    """x with one value where a mask, which covers some neighbouring axes, is true."""
    lead = next(i for i, index in enumerate(indices) if index is not None)
    mask = indices[lead]
    mask = reshape(mask, (*mask.shape, *(1,) * (x.ndim - lead - mask.ndim)))
    return gh.where(mask, reshape(cast(value, x.dtype), ()), x)


# -- scatter ----------------------------------------------------------------------------------


def flat_places(x: Value, axis: int, indices: Value) -> Value:
    """The row-major place in x of each element written along one axis."""
    places, step = full((), 0, INT64), 1
    for i in reversed(range(x.ndim)):
        if i == axis:
            along = refusable(indices, x.shape[axis], x.size)
        else:
            along = gh.arange(indices.shape[i], dtype=INT64)
            along = reshape(along, tuple(-1 if j == i else 1 for j in range(x.ndim)))
        places, step = places + along * step, step * x.shape[i]
    return reshape(gh.broadcast_to(places, indices.shape), (indices.size,))


def scattered(card: str, x: Value, axis: int, indices: Value, source: Value) -> Value:
    if x.ndim == 0:
        x1, i1, s1 = (reshape(v, (v.size,)) for v in (x, indices, source))
        return reshape(scattered(card, x1, 0, i1, s1), ())
    flat = flat_places(x, axis_of(axis, x.ndim), indices)
    values = cast(reshape(cut_to(source, indices.shape, -1), (indices.size,)), x.dtype)
    return reshape(primitives[card](reshape(x, (x.size,)), flat, values, axis=0), x.shape)


@aten("scatter.src")
def scatter(x: Any, axis: Any, indices: Any, source: Any) -> Any:
    return scattered("scatter_set", x, axis, indices, source)


@aten("scatter.value")
def scatter_value(x: Any, axis: Any, indices: Any, value: Any) -> Any:
    source = full(indices.shape, typed(value, x.dtype), x.dtype)
    return scattered("scatter_set", x, axis, indices, source)


@aten("scatter_add")
def scatter_add(x: Any, axis: Any, indices: Any, source: Any) -> Any:
    return scattered("scatter_add", x, axis, indices, source)


def rows_scattered(card: str, x: Value, axis: int, indices: Value, source: Value) -> Value:
    """x with rows of source written or added along one axis; a scalar has one row."""
    if x.ndim == 0:
        row = rows_scattered(card, reshape(x, (1,)), 0, indices, reshape(source, (source.size,)))
        return reshape(row, ())
    axis = axis % x.ndim
    rows = cast(reshape(indices, (indices.size,)), INT64)
    return primitives[card](x, rows, cast(source, x.dtype), axis=axis)


@aten("index_add")
def index_add(x: Any, axis: Any, indices: Any, source: Any, alpha: int = 1) -> Any:
    source = source if alpha == 1 else source * alpha
    count = x.shape[axis % x.ndim] if x.ndim else 1
    return rows_scattered("scatter_add", x, axis, rows_of(indices, count), source)


@aten("index_copy")
def index_copy(x: Any, axis: Any, indices: Any, source: Any) -> Any:
    count = x.shape[axis % x.ndim] if x.ndim else 1
    return rows_scattered("scatter_set", x, axis, rows_of(indices, count), source)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(x: Any, axis: Any, indices: Any, value: Any) -> Any:
    """x with one value in all elements of these rows; negative indices count from the end."""
    axis = axis % x.ndim if x.ndim else 0
    rows = tuple(indices.size if i == axis else n for i, n in enumerate(x.shape or (1,)))
    if not isinstance(value, Value):
        value = full((), typed(value, x.dtype), x.dtype)
    source = gh.broadcast_to(cast(value, x.dtype), rows)
    return rows_scattered("scatter_set", x, axis, indices, source)


@aten("scatter_reduce.two")
def scatter_reduce(
    x: Any, axis: Any, indices: Any, source: Any, reduce: Any, include_self: bool = True
) -> Any:
    """x with elements of source reduced into it at indices along one axis."""
    if not include_self and reduce in ("sum", "mean"):
        x = scatter_value(x, axis, indices, 0)
    if reduce == "sum":
        return scattered("scatter_add", x, axis, indices, source)
    if reduce == "mean":
        return scattered_mean(x, axis, indices, source, include_self)
    if reduce in ("amax", "amin"):
        return scattered_extreme(x, axis, indices, source, reduce == "amax", include_self)
    raise NotImplementedError  # a product


def scattered_mean(x: Value, axis: int, indices: Value, source: Value, include_self: bool) -> Value:
    """The means of the sums of `scatter_add`; whole numbers are rounded down."""
    total = scattered("scatter_add", wide(x), axis, indices, wide(source))
    count = full(x.shape, int(include_self), INT64)
    count = scattered("scatter_add", count, axis, indices, full(indices.shape, 1, INT64))
    count = cast(gh.maximum(count, full((), 1, INT64)), total.dtype)
    mean = total / count if x.dtype.is_inexact else total // count
    return cast(mean, x.dtype)


def scattered_extreme(
    x: Any, axis: int, indices: Any, source: Any, largest: bool, include_self: bool
) -> Value:
    """The largest or smallest elements: written in order of size, so that the last one stays."""
    indices = reshape(indices, indices.shape or (1,))
    whole = reshape(x, x.shape or (1,))
    source = cut_to(reshape(source, source.shape or (1,)), indices.shape, -1)
    places = flat_places(whole, axis_of(axis, whole.ndim), indices)
    values = reshape(cast(source, x.dtype), (places.size,))
    backwards = not largest and not values.dtype.is_floating  # else by -x, where NaN stays last
    key = values if largest or backwards else -values
    _, order = primitives["sort"](key, axis=0, descending=backwards)
    values = primitives["gather"](values, order, axis=0)
    places = primitives["gather"](places, order, axis=0)
    flat = reshape(x, (x.size,))
    result = primitives["scatter_set"](flat, places, values, axis=0)
    if include_self:
        joined = (gh.maximum if largest else gh.minimum)(flat, result)
        hits = full((x.size,), False, as_dtype("bool"))
        ones = full(places.shape, True, as_dtype("bool"))
        result = gh.where(primitives["scatter_set"](hits, places, ones, axis=0), joined, flat)
    return reshape(result, x.shape)


@aten("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """x with the elements of source, one after another, where the mask is true."""
    x, mask = gh.broadcast_arrays(x, mask)
    if source.size == 0 or x.size == 0:
        return x
    flat_mask = reshape(mask, (x.size,))
    place = gh.cumulative_sum(cast(flat_mask, INT64), axis=0) - 1
    place = gh.minimum(gh.maximum(place, full((), 0, INT64)), full((), source.size - 1, INT64))
    values = primitives["gather"](reshape(source, (source.size,)), place, axis=0)
    return reshape(gh.where(flat_mask, values, reshape(x, (x.size,))), x.shape)
