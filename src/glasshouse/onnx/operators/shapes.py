"""Operators that move, choose, join and make elements; those of sizes stay known arrays."""

import math
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.table import (
    MOST_KNOWN,
    as_array,
    integers,
    lifted,
    namespace,
    operator,
    place,
    places,
)


@operator("Shape", raw=True)
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(tuple(x.shape)[start:end], np.int64)


@operator("Size", raw=True)
def size(x: Any) -> Any:
    return np.asarray(math.prod(x.shape), np.int64)


@operator("Reshape", plain=True, static=(1,))
def reshape(x: Any, sizes: Any, *, allowzero: int = 0) -> Any:
    wanted = integers(sizes)
    if not allowzero:
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    if wanted.count(-1) == 1 and not x.size:
        rest = math.prod(n for n in wanted if n != -1)
        wanted = [0 if n == -1 and rest else n for n in wanted]
    return namespace(x).reshape(x, tuple(wanted))


@operator("Flatten")
def flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose", plain=True)
def transpose(x: Any, *, perm: Any = None) -> Any:
    return namespace(x).permute_dims(x, tuple(perm or range(x.ndim)[::-1]))


def squeeze(x: Any, axes: Any = None) -> Any:
    chosen = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else places(axes, x.ndim)
    return namespace(x).squeeze(x, axis=tuple(chosen))


def unsqueeze(x: Any, axes: Any) -> Any:
    chosen = places(axes, x.ndim + len(integers(axes)))
    sizes = iter(x.shape)
    whole = range(x.ndim + len(chosen))
    return x.reshape(tuple(1 if i in chosen else next(sizes) for i in whole))


@operator("Squeeze", plain=True)
def squeeze_by_attribute(x: Any, *, axes: Any = None) -> Any:
    return squeeze(x, axes)


@operator("Squeeze", since=13, plain=True, static=(1,))
def squeeze_by_input(x: Any, axes: Any = None) -> Any:
    return squeeze(x, axes)


@operator("Unsqueeze", plain=True)
def unsqueeze_by_attribute(x: Any, *, axes: Any) -> Any:
    return unsqueeze(x, axes)


@operator("Unsqueeze", since=13, plain=True, static=(1,))
def unsqueeze_by_input(x: Any, axes: Any) -> Any:
    return unsqueeze(x, axes)


@operator("Concat", plain=True)
def concat(*values: Any, axis: int) -> Any:
    return namespace(*values).concat(list(values), axis=axis)


def split(x: Any, sizes: Any, axis: int, count: int) -> Any:
    """Parts of an axis: of `sizes`, or `count` of them, of which the last may be smaller."""
    axis = place(axis, x.ndim)
    length = x.shape[axis]
    if sizes is None:
        each = -(-length // count)
        sizes = [max(min(each, length - i * each), 0) for i in range(count)]
    sizes = integers(sizes)
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise ShapeError("Split", f"sizes that sum to {length}", sizes, "Mend the node's sizes.")
    ends = np.cumsum([0, *sizes])
    before = (slice(None),) * axis
    return [x[(*before, slice(int(a), int(b)))] for a, b in zip(ends, ends[1:])]


@operator("Split", plain=True)
def split_by_attribute(x: Any, *, axis: int = 0, split: Any = None, outputs: int = 1) -> Any:
    return tuple(parts_of(x, split, axis, outputs))


parts_of = split


@operator("Split", since=13, plain=True, static=(1,))
def split_by_input(
    x: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> Any:
    return tuple(split(x, sizes, axis, num_outputs or outputs))


def slice_axes(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    starts, ends = integers(starts), integers(ends)
    axes = places(range(len(starts)) if axes is None else axes, x.ndim)
    steps = [1] * len(starts) if steps is None else integers(steps)
    chosen = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = x.shape[axis]
        begin, end, step = slice(start, end, step).indices(length)
        chosen[axis] = slice(begin, None if end < 0 else end, step)
        if step < 0 and begin <= max(end, -1):
            chosen[axis] = slice(0, 0)
    return x[tuple(chosen)]


@operator("Slice", plain=True)
def slice_by_attributes(x: Any, *, starts: Any, ends: Any, axes: Any = None) -> Any:
    return slice_axes(x, starts, ends, axes)


@operator("Slice", since=10, plain=True, static=(1, 2, 3, 4))
def slice_by_inputs(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    return slice_axes(x, starts, ends, axes, steps)


def from_front(indices: Any, length: int) -> Any:
    """Indices counted from the front; those that are known are checked."""
    if isinstance(indices, np.ndarray):
        low, high = (indices.min(), indices.max()) if indices.size else (0, -1)
        if low < -length or high >= length:
            raise ShapeError("onnx", f"indices of {length}", [int(low), int(high)], "Mend them.")
    return namespace(indices).where(indices < 0, indices + length, indices)


@operator("Gather", plain=True, static=())
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    axis = place(axis, x.ndim)
    flat = from_front(indices, x.shape[axis]).reshape((-1,))
    result = namespace(x, indices).take(x, flat, axis=axis)
    return result.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    axis = place(axis, x.ndim)
    return gh.gather(x, axis, from_front(indices, x.shape[axis]))


def coordinates(x: Any, indices: Any, batch_dims: int = 0) -> Any:
    """Indices of ND operators, as flat positions over the axes that they address; and how many."""
    depth = batch_dims + indices.shape[-1]
    if depth > x.ndim:
        expected = f"at most {x.ndim} coordinates"
        raise ShapeError("onnx", expected, depth, "Mend the node's indices.")
    flat: Any = 0
    for i in range(batch_dims):
        shape = [1] * (indices.ndim - 1)
        shape[i] = -1
        flat = flat * x.shape[i] + gh.arange(x.shape[i]).reshape(tuple(shape))
    for i in range(indices.shape[-1]):
        length = x.shape[batch_dims + i]
        flat = flat * length + from_front(indices[..., i], length)
    return flat, depth


@operator("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    flat, depth = coordinates(x, indices, batch_dims)
    rows = x.reshape((-1, *x.shape[depth:]))
    return gh.take(rows, flat.reshape((-1,)), axis=0).reshape((*flat.shape, *x.shape[depth:]))


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter(x: Any, axis: int, indices: Any, updates: Any, reduction: str) -> Any:
    if reduction == "none":
        return gh.scatter(x, axis, indices, updates)
    if reduction not in REDUCTIONS:
        raise OptionError("onnx", f"one of {[*REDUCTIONS]}", reduction, "Mend the node.")
    return gh.scatter_reduce(x, axis, indices, updates, REDUCTIONS[reduction])


@operator("Scatter", "ScatterElements")
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    axis = place(axis, x.ndim)
    return scatter(x, axis, from_front(indices, x.shape[axis]), updates, reduction)


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    flat, depth = coordinates(x, indices)
    inner = math.prod(x.shape[depth:])
    rows = x.reshape((-1, inner))
    index = gh.broadcast_to(flat.reshape((-1, 1)), (flat.size, inner))
    return scatter(rows, 0, index, updates.reshape((-1, inner)), reduction).reshape(x.shape)


@operator("TensorScatter")
def write_into_cache(
    cache: Any, update: Any, starts: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    axis = place(axis, cache.ndim)
    shape = [1] * cache.ndim
    shape[axis] = -1
    index = gh.arange(update.shape[axis]).reshape(tuple(shape))
    if starts is not None:
        index = index + starts.reshape((-1, *(1,) * (cache.ndim - 1)))
    if mode == "circular":
        index = index % cache.shape[axis]
    return gh.scatter(cache, axis, gh.broadcast_to(index, update.shape), update)


@operator("Expand", plain=True, static=(1,))
def expand(x: Any, sizes: Any) -> Any:
    wanted = np.broadcast_shapes(tuple(x.shape), tuple(integers(sizes)))
    x = lifted(x) if math.prod(wanted) > MOST_KNOWN else x
    return namespace(x).broadcast_to(x, wanted)


@operator("Tile", static=(1,))
def tile(x: Any, repeats: Any) -> Any:
    return gh.tile(x, tuple(integers(repeats)))


def shifted(x: Any, axis: int, before: int, after: int, mode: Any) -> Any:
    """x with an axis prolonged by its own elements."""
    index = np.pad(np.arange(x.shape[axis]), (before, after), mode)
    return gh.take(x, gh.asarray(index), axis=axis)


def pad(x: Any, pads: Any, value: Any, axes: Any, mode: str) -> Any:
    amounts = integers(pads)
    axes = places(axes, x.ndim)
    if len(amounts) != 2 * len(axes):
        raise ShapeError("Pad", f"{2 * len(axes)} pads", len(amounts), "Mend the node's pads.")
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = amounts[i], amounts[i + len(axes)]
    cuts = tuple(
        slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, x.shape, strict=True)
    )
    x = x[cuts] if min(amounts, default=0) < 0 else x
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        filling = 0 if value is None or not as_array(value).size else as_array(value).ravel()[0]
        return gh.pad(x, widths, constant_values=filling)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = shifted(x, axis, before, after, mode)
    return x


@operator("Pad")
def pad_by_attributes(x: Any, *, pads: Any, value: float = 0.0, mode: str = "constant") -> Any:
    return pad(x, pads, value, None, mode)


@operator("Pad", since=11, static=(1, 2, 3))
def pad_by_inputs(
    x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant"
) -> Any:
    return pad(x, pads, value, axes, mode)


@operator("ConstantOfShape", static=(0,))
def constant_of_shape(sizes: Any, *, value: Any = None) -> Any:
    value = np.zeros(1, np.float32) if value is None else value
    wanted = tuple(integers(sizes))
    if min(wanted, default=0) < 0:
        raise ShapeError("ConstantOfShape", "sizes of 0 or more", wanted, "Mend the sizes.")
    if math.prod(wanted) <= MOST_KNOWN:
        return np.full(wanted, value.ravel()[0])
    return gh.full(wanted, value.ravel()[0], value.dtype.name)


@operator("Range", static=(0, 1, 2))
def numbers(start: Any, limit: Any, step: Any) -> Any:
    start, limit, step = (as_array(x).reshape(()) for x in (start, limit, step))
    count = max(math.ceil((float(limit) - float(start)) / float(step)), 0)
    if count <= MOST_KNOWN:
        return (start + np.arange(count) * step).astype(start.dtype)
    return gh.arange(count).astype(start.dtype.name) * step.item() + start.item()


@operator("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return gh.eye(x.shape[0], x.shape[1], k=k, dtype=kind)


@operator("OneHot", static=(1,))
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    depth = integers(depth)[0]
    axis = place(axis, indices.ndim + 1)
    index = gh.expand_dims(indices.astype("int64"), axis=axis)
    index = gh.where(index < 0, index + depth, index)
    shape = [1] * index.ndim
    shape[axis] = -1
    return gh.where(index == gh.arange(depth).reshape(tuple(shape)), values[1], values[0])


@operator("Trilu", static=(1,))
def triangle(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    offset = 0 if k is None else integers(k)[0]
    offset = max(min(offset, x.shape[-1]), -x.shape[-2])
    return gh.triu(x, k=offset) if upper else gh.tril(x, k=offset)


@operator("NonZero", plain=True)
def nonzero(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.array(np.nonzero(np.atleast_1d(x)), np.int64)
    return gh.stack(list(gh.nonzero(x.reshape((-1,)) if not x.ndim else x)), axis=0)


@operator("Compress", static=(1,))
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    chosen = np.flatnonzero(as_array(condition))
    x = x.reshape((-1,)) if axis is None else x
    return gh.take(x, gh.asarray(chosen), axis=0 if axis is None else axis)


@operator("Unique", static=(0,))
def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    values, first, inverse, counts = np.unique(
        as_array(x), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    order = np.arange(len(first)) if sorted else np.argsort(first)
    place_of = np.argsort(order)
    chosen = np.take(values, order, axis=0 if axis is None else axis)
    rest = first[order], place_of[inverse.ravel()], counts[order]
    return (chosen, *(part.astype(np.int64) for part in rest))


@operator("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    return reversed_steps(x, lengths, batch_axis, time_axis)


def reversed_steps(x: Any, lengths: Any, batch_axis: int, time_axis: int) -> Any:
    """The first `lengths` steps of each sequence of a batch from the last to the first."""
    shape = [1] * x.ndim
    shape[batch_axis] = -1
    ends = lengths.astype("int64").reshape(tuple(shape))
    shape = [1] * x.ndim
    shape[time_axis] = -1
    steps = gh.arange(x.shape[time_axis]).reshape(tuple(shape))
    index = gh.where(steps < ends, ends - 1 - steps, steps)
    return gh.gather(x, time_axis, gh.broadcast_to(index, x.shape))


@operator("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        parts = x.reshape((n, b, b, c // (b * b), h, w))
        parts = gh.permute_dims(parts, (0, 3, 4, 1, 5, 2))
    else:
        parts = x.reshape((n, c // (b * b), b, b, h, w))
        parts = gh.permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return parts.reshape((n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape((n, c, h // b, b, w // b, b))
    axes = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return gh.permute_dims(parts, axes).reshape((n, c * b * b, h // b, w // b))
