"""Operators that move elements: views, joins, cuts, padding."""

from typing import Any

import glasshouse as gh
from glasshouse.base.dtype import int64
from glasshouse.dispatch import Value, cast, full, primitives
from glasshouse.ops.movement import flip, pad, permute, section
from glasshouse.ops.window import fold, windows
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import axis_of, reshape, typed
from glasshouse.torch.aten.table import aten


@aten("view", "_unsafe_view", "reshape", "_reshape_alias")
def view(x: Tensor, shape: Any, strides: Any = None) -> Any:
    return reshape(x, shape)


@aten("expand")
def expand(x: Tensor, shape: Any, implicit: bool = False) -> Tensor:
    lead = len(shape) - x.ndim
    sizes = (*shape[:lead], *(m if n == -1 else n for n, m in zip(shape[lead:], x.shape)))
    return gh.broadcast_to(x, sizes)


@aten("permute")
def permuted(x: Any, axes: Any) -> Any:
    return permute(x, axes=tuple(axis % x.ndim for axis in axes)) if x.ndim else x


@aten("t", "numpy_T")
def matrix_transposed(x: Tensor) -> Tensor:
    return x if x.ndim < 2 else permute(x, axes=(1, 0))


@aten("transpose.int")
def transpose(x: Tensor, first: int, second: int) -> Tensor:
    return x if x.ndim == 0 else gh.swapaxes(x, first, second)


@aten("unsqueeze")
def unsqueeze(x: Tensor, axis: int) -> Any:
    at = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


@aten("squeeze.default")
def squeeze_all(x: Any) -> Any:
    return reshape(x, tuple(n for n in x.shape if n != 1))


@aten("squeeze.dim", "squeeze.dims")
def squeeze(x: Tensor, axes: int) -> Any:
    axes = [axes] if isinstance(axes, int) else axes
    gone = {axis_of(axis, x.ndim) for axis in axes}
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone or n != 1))


@aten("slice.Tensor")
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    start, stop = bounds(x.shape[axis_of(dim, x.ndim)], start, end)
    return section(x, axis_of(dim, x.ndim), start, stop, step)


def bounds(size: int, start: Any, end: Any) -> tuple[int, int]:
    """The begin and end of a slice within an axis of `size`."""
    start, stop, _ = slice(start, end).indices(size)
    return start, max(start, stop)


@aten("select.int")
def select(x: Any, axis: Any, index: Any) -> Any:
    axis, index = axis % x.ndim, index % x.shape[axis % x.ndim]
    row = section(x, axis, index, index + 1)
    return reshape(row, (*x.shape[:axis], *x.shape[axis + 1 :]))


@aten("slice_scatter")
def slice_scatter(
    x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = axis_of(dim, x.ndim)
    start, stop = bounds(x.shape[axis], start, end)
    return with_slice(x, cast(source, x.dtype), axis, start, stop, step)


def with_slice(x: Value, source: Value, axis: int, start: int, stop: int, step: int) -> Value:
    """x with `source` in a slice of one axis: a slice with step 1 is concatenated with the parts
    around it, another one is selected by position."""
    count = len(range(start, stop, step))
    if count == 0:
        return x
    if step == 1:
        parts = [section(x, axis, 0, start), source, section(x, axis, stop, x.shape[axis])]
        return gh.concat([part for part in parts if part.size] or [x], axis=axis)
    last = start + (count - 1) * step + 1
    spread = amid_zeros(source, x.shape[axis], axis, start, step)
    place = gh.arange(x.shape[axis], dtype=int64)
    hit = (place >= start) & (place < last) & ((place - start) % step == 0)
    hit = reshape(hit, tuple(-1 if i == axis else 1 for i in range(x.ndim)))
    return gh.where(hit, spread, x)


@aten("select_scatter")
def select_scatter(x: Any, source: Any, axis: Any, index: Any) -> Any:
    axis, index = axis % x.ndim, index % x.shape[axis % x.ndim]
    row = reshape(cast(source, x.dtype), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return with_slice(x, row, axis, index, index + 1, 1)


def amid_zeros(g: Value, size: int, axis: int, start: int, step: int) -> Value:
    """g in every `step`-th place of an axis of `size`, and 0 elsewhere."""
    end = size - start - ((g.shape[axis] - 1) * step + 1)
    widths = tuple((start, end, step - 1) if i == axis else (0, 0, 0) for i in range(g.ndim))
    return pad(g, widths=widths, value=0)


@aten("slice_backward")
def slice_backward(g: Any, sizes: Any, axis: Any, start: Any, end: Any, step: Any) -> Any:
    axis = axis_of(axis, len(sizes))
    if g.shape[axis] == 0:
        return full(tuple(sizes), 0, g.dtype)
    return amid_zeros(g, sizes[axis], axis, bounds(sizes[axis], start, end)[0], step)


@aten("select_backward")
def select_backward(g: Tensor, sizes: list[int], axis: int, index: int) -> Any:
    axis = axis_of(axis, len(sizes))
    row = reshape(g, (*sizes[:axis], 1, *sizes[axis + 1 :]))
    return amid_zeros(row, sizes[axis], axis, index % sizes[axis], 1)


@aten("cat")
def cat(parts: list[Tensor], axis: int = 0) -> Tensor:
    parts = [x for x in parts if x.shape != (0,)] or [parts[0]]
    return gh.concat(parts, axis=axis)


@aten("stack")
def stack(parts: list[Tensor], axis: int = 0) -> Tensor:
    return gh.stack(parts, axis=axis)


@aten("unbind.int")
def unbind(x: Any, axis: int = 0) -> Any:
    return [select(x, axis, i) for i in range(x.shape[axis])]


@aten("split.Tensor")
def split(x: Any, size: Any, axis: int = 0) -> Any:
    total = x.shape[axis]
    sizes = [min(size, total - at) for at in range(0, total, size)] if total else [0]
    return split_with_sizes(x, sizes, axis)


@aten("split_with_sizes")
def split_with_sizes(x: Any, sizes: Any, axis: int = 0) -> Any:
    axis, at, parts = axis % x.ndim, 0, []
    for size in sizes:
        parts.append(section(x, axis, at, at + size))
        at += size
    return parts


@aten("repeat")
def repeat(x: Any, counts: Any) -> Any:
    return gh.tile(x, tuple(counts))


@aten("flip")
def flipped(x: Any, axes: Any) -> Any:
    return flip(x, axes=tuple(sorted(axis_of(axis, x.ndim) for axis in axes))) if x.ndim else x


@aten("roll")
def roll(x: Any, shifts: Any, axes: tuple[Any, ...] = ()) -> Any:
    if not axes:
        return reshape(gh.roll(reshape(x, (x.size,)), shifts[0]), x.shape)
    return gh.roll(x, tuple(shifts), axis=tuple(axes))


@aten("constant_pad_nd")
def constant_pad(x: Any, widths: Any, value: int = 0) -> Any:
    """x padded by widths that start with the last axis; negative ones cut."""
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2)
    pairs += list(zip(widths[0::2], widths[1::2]))[::-1]
    for axis, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            x = section(x, axis, max(0, -low), x.shape[axis] - max(0, -high))
    grown = tuple((max(0, low), max(0, high), 0) for low, high in pairs)
    if not any(low or high for low, high, _ in grown):
        return x
    return pad(x, widths=grown, value=typed(value, x.dtype))


@aten("tril")
def tril(x: Any, diagonal: int = 0) -> Any:
    return triangle(x, lambda row, column: column - row <= diagonal)


@aten("triu")
def triu(x: Any, diagonal: int = 0) -> Any:
    return triangle(x, lambda row, column: column - row >= diagonal)


def triangle(x: Value, inside: Any) -> Value:
    rows, columns = x.shape[-2:]
    row = reshape(gh.arange(rows, dtype=int64), (rows, 1))
    mask = inside(row, gh.arange(columns, dtype=int64))
    return gh.where(mask, x, full((), 0, x.dtype))


@aten("diagonal")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    first, second = dim1 % x.ndim, dim2 % x.ndim
    rest = [i for i in range(x.ndim) if i not in (first, second)]
    return gh.linalg.diagonal(permute(x, axes=(*rest, first, second)), offset=offset)


@aten("as_strided")
def as_strided(x: Any, sizes: Any, strides: Any, offset: Any = None) -> Any:
    """Elements by their places in memory, of a value whose memory is row-major."""
    places = strided_places(sizes, strides, offset or 0)
    return primitives["gather"](reshape(x, (x.size,)), places, axis=0)


def strided_places(sizes: Any, strides: Any, offset: int) -> Value:
    """The places of the elements of a strided view, of shape `sizes`."""
    places = full((), offset, int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides)):
        along = gh.arange(size, dtype=int64) * stride
        places = places + reshape(along, tuple(-1 if i == axis else 1 for i in range(len(sizes))))
    return gh.broadcast_to(places, tuple(sizes))


@aten("as_strided_scatter")
def as_strided_scatter(x: Any, source: Any, sizes: Any, strides: Any, offset: Any = None) -> Any:
    places = strided_places(sizes, strides, offset or 0)
    flat = reshape(x, (x.size,))
    new = reshape(cast(source, x.dtype), (places.size,))
    out = primitives["scatter_set"](flat, reshape(places, (places.size,)), new, axis=0)
    return reshape(out, x.shape)


@aten("unfold")
def unfold(x: Any, axis: Any, size: Any, step: Any) -> Any:
    """All slices of `size` along an axis, `step` apart, on a new last axis."""
    if x.ndim == 0:
        return reshape(unfold(reshape(x, (1,)), 0, size, step), (size,))
    axis %= x.ndim
    count = (x.shape[axis] - size) // step + 1
    if size == 0:
        return full((*x.shape[:axis], count, *x.shape[axis + 1 :], 0), 0, x.dtype)
    cut = windows(gh.moveaxis(x, axis, -1), size=(size,), stride=(step,), dilation=(1,))
    return gh.moveaxis(cut, -2, axis)


@aten("unfold_backward")
def unfold_backward(g: Any, sizes: Any, axis: Any, size: Any, step: Any) -> Any:
    """The sum of all slices at their places; equal slices may be broadcast."""
    if g.size == 0:
        return full(tuple(sizes), 0, g.dtype)
    if not sizes:
        return reshape(g, ())
    axis %= len(sizes)
    count = (sizes[axis] - size) // step + 1
    g = gh.broadcast_to(g, (*sizes[:axis], count, *sizes[axis + 1 :], size))
    cut = gh.moveaxis(g, axis, -2)
    added = fold(cut, shape=(sizes[axis],), stride=(step,), dilation=(1,))
    return gh.moveaxis(added, -1, axis)
