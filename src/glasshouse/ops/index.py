"""Indexing primitives: read and write rows that an integer operand names.

In all three, `indices` (any shape, in [-n, n)) name places along one axis of x (*pre, n, *post);
results and updates have the shape (*pre, *indices.shape, *post)."""

import math
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, IndexOutOfRangeError, ShapeError, int64
from glasshouse.base.shape import Shape, Spec, check_axis
from glasshouse.dispatch import (
    LINEAR,
    Arr,
    Primitive,
    Value,
    broadcast_to,
    card,
    cast,
    full,
    refusal,
    sample,
    zeros,
)
from glasshouse.ops.checks import check_integers
from glasshouse.ops.compare import where
from glasshouse.ops.contract import wide
from glasshouse.ops.create import iota
from glasshouse.ops.elementwise import batch_together, infer_same
from glasshouse.ops.movement import permute, reshape


def indexed_shape(where_: str, x: Spec, indices: Spec, axis: int) -> Shape:
    check_integers(where_, indices, "Cast them to int64, or use gh.where for a mask.")
    axis = check_axis(where_, axis, x.ndim)
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def infer_scatter(name: str) -> Any:
    def infer(x: Spec, indices: Spec, updates: Spec, *, axis) -> Spec:
        shape = indexed_shape(name, x, indices, axis)
        if name == "scatter_add":
            infer_same(name, "numeric")(Spec((), x.dtype))
        if updates.dtype is not x.dtype:
            expected = f"updates of dtype {x.dtype.name}, as x has"
            raise DTypeError(name, expected, updates.dtype.name, "Cast one of them.")
        if updates.shape != shape:
            raise ShapeError(
                name,
                f"updates of shape {shape} for x {x.shape}, indices "
                f"{indices.shape} and axis {axis}",
                updates.shape,
                "Broadcast them first.",
            )
        return x

    return infer


def checked(where_: str, indices: np.ndarray, size: int, axis: int | None = None) -> np.ndarray:
    """`indices` as int64, counted from the front; an error names the axis, where it is known."""
    indices = indices.astype(np.int64, copy=False)
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        along = "" if axis is None else f" for axis {axis} of size {size}"
        expected = (f"indices from {-size} to {size - 1}" if size else "no index") + along
        fix = f"The axis has {size} elements."
        raise IndexOutOfRangeError(where_, expected, indices[wrong][0], fix)
    return np.where(indices < 0, indices + size, indices)


def blocks(shape: Shape, axis: int) -> tuple[int, int, int]:
    """(elements before, along, after) the axis."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def kept_updates(g: Value, indices: Value, axis: int, size: int) -> Any:
    """The rows of g that `indices` name, with zeros for updates that were overwritten."""
    rows = gather(g, indices, axis=axis)
    order = reshape(iota(size=indices.size, dtype=int64), shape=indices.shape)
    last_update = scatter_set(full((size,), 0, int64), indices, order, axis=0)
    stays = gather(last_update, indices, axis=0) == order  # no later index names the place again
    stays = reshape(stays, shape=(*indices.shape, *(1,) * (rows.ndim - axis - indices.ndim)))
    return where(broadcast_to(stays, rows.shape), rows, zeros(rows))


def move_axes(x: Value, src: Any, dst: Any) -> Any:
    """`x` with the axes `src` moved to the places `dst`."""
    order = [i for i in range(x.ndim) if i not in src]
    for place, axis in sorted(zip(dst, src)):
        order.insert(place, axis)
    return x if order == list(range(x.ndim)) else permute(x, axes=tuple(order))


def merged_indices(indices: Value, size: int) -> Any:
    """indices (B, *I) into axes of `size` as those into B axes joined; wrong ones stay wrong."""
    b = indices.shape[0]
    indices = cast(indices, int64)
    forward = where(indices < 0, indices + size, indices)
    row = reshape(iota(size=b, dtype=int64), shape=(b, *(1,) * (indices.ndim - 1)))
    return where((forward >= 0) & (forward < size), forward + row * size, indices * b)


def merged_rows(x: Value, axis: int) -> tuple[Value, int, list[Any]]:
    """(x (B, ...) with B and `axis` joined in front, the size of `axis`, the other sizes)."""
    b, *shape = x.shape
    n = shape.pop(axis)
    return reshape(move_axes(x, (axis + 1,), (1,)), shape=(b * n, *shape)), n, shape


def batch_gather(batched: tuple[bool, ...], x: Value, indices: Value, *, axis: int) -> Any:
    if batched == (True, False):
        return gather(x, indices, axis=axis + 1)
    if batched == (False, True):
        return move_axes(gather(x, indices, axis=axis), (axis,), (0,))
    rows, n, _ = merged_rows(x, axis)
    out = gather(rows, merged_indices(indices, n), axis=0)  # (B, *I, *pre, *post)
    return move_axes(out, range(indices.ndim, indices.ndim + axis), range(1, axis + 1))


def batch_scatter(card: Any) -> Any:
    """The batching rule of a scatter: the batch joins the indexed axis where indices differ."""

    def batch(batched, x, indices, updates, *, axis):
        if not batched[1]:
            x, updates = batch_together((batched[0], batched[2]), (x, updates))
            return card()(x, indices, updates, axis=axis + 1)
        x, indices, updates = batch_together(batched, (x, indices, updates))
        rows, n, shape = merged_rows(x, axis)
        k = indices.ndim - 1
        moved = move_axes(updates, range(axis + 1, axis + 1 + k), range(1, k + 1))
        out = card()(rows, merged_indices(indices, n), moved, axis=0)
        return move_axes(reshape(out, shape=(x.shape[0], n, *shape)), (1,), (axis + 1,))

    return batch


def index(*shape: Any, low: int = -2, high: int = 2) -> Any:
    return Arr(shape, low, high, dtype="int64")


@card(
    "index",
    infer=lambda x, indices, *, axis: Spec(indexed_shape("gather", x, indices, axis), x.dtype),
    vjp=(lambda g, _y, _x, indices, *, axis: scatter_add(zeros(_x), indices, g, axis=axis), None),
    jvp=(LINEAR, None),
    batch=batch_gather,
    flops=lambda x, indices, **_: 0,
    samples=[
        sample((3, 2), index(4), axis=0),
        sample((2, 3, 2), index(2, 2), axis=1),
        sample((2, 4), index(), axis=1),
        sample((2, 0), index(0), axis=1),
    ],
    error_samples=[
        refusal(IndexOutOfRangeError, "got 3", (3,), index(2, low=3, high=4), axis=0),
        refusal(IndexOutOfRangeError, "-4", (3,), index(2, low=-4, high=-3), axis=0),
        refusal(DTypeError, "integer", (3,), Arr((2,), dtype="float32"), axis=0),
        refusal(ShapeError, "axis", (3,), index(2), axis=1),
    ],
)
def gather(x: np.ndarray, at: np.ndarray, *, axis: int) -> np.ndarray:
    """The rows of x that `indices` name along `axis`, as numpy.take gives them.

    Why: a product with one-hot rows costs n times the work; slices take only static places."""
    return np.take(x, checked("gather", at, x.shape[axis]), axis=axis)


def scatter_samples() -> Any:
    return [
        sample((3, 2), index(4), (4, 2), axis=0),
        sample((2, 3, 2), index(2, 2), (2, 2, 2, 2), axis=1),
        sample((2, 4), index(), (2,), axis=1),
        sample((2, 0), index(0), (2, 0), axis=1),
    ]


def scatter_errors() -> Any:
    cases = [
        (index(1, low=5, high=6), Arr((1,)), IndexOutOfRangeError, "got 5"),
        (index(2), Arr((3,)), ShapeError, "updates of shape (2,)"),
        (index(2), Arr((2,), dtype="int8"), DTypeError, "updates of dtype"),
        (Arr((2,), dtype="bool"), Arr((2,)), DTypeError, "integer indices"),
    ]
    return [
        refusal(error, text, (3,), indices, updates, axis=0)
        for indices, updates, error, text in cases
    ]


@card(
    "index",
    infer=infer_scatter("scatter_add"),
    vjp=(
        lambda g, _y, _x, _i, _u, **_: g,
        None,
        lambda g, _y, _x, indices, _u, *, axis: gather(g, indices, axis=axis),
    ),
    jvp=(
        lambda t, y, x, indices, updates, **_: t,
        None,
        lambda t, y, x, indices, updates, *, axis: scatter_add(zeros(x), indices, t, axis=axis),
    ),
    batch=batch_scatter(lambda: scatter_add),
    flops=lambda x, indices, updates, **_: updates.size,
    samples=scatter_samples(),
    error_samples=[
        *scatter_errors(),
        refusal(DTypeError, "numeric", (3,), index(2), (2,), on="bool", axis=0),
    ],
    dtypes="numeric",
)
def scatter_add(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int
) -> np.ndarray:
    """x with each update added to the row that its index names; repeated indices add up.

    Why: the transpose of gather; a product with one-hot rows costs n times the work.

    np.add.at on flat positions, its fast path; sums of 16-bit floats are carried in float32."""
    pre, n, post = blocks(x.shape, axis)
    rows = np.arange(pre)[:, None] * n + checked("scatter_add", indices, n).reshape(-1)
    places = rows[:, :, None] * post + np.arange(post)
    out = np.array(wide(x), order="C").reshape(-1)
    np.add.at(out, places.reshape(-1), wide(updates).reshape(-1))
    return out.astype(x.dtype, copy=False).reshape(x.shape)


@card(
    "index",
    infer=infer_scatter("scatter_set"),
    vjp=(
        lambda g, _y, _x, indices, _u, *, axis: scatter_set(g, indices, zeros(_u), axis=axis),
        None,
        lambda g, _y, _x, indices, _u, *, axis: kept_updates(g, indices, axis, _x.shape[axis]),
    ),
    jvp=(
        lambda t, y, x, indices, u, *, axis: scatter_set(t, indices, zeros(u), axis=axis),
        None,
        lambda t, y, x, indices, updates, *, axis: scatter_set(zeros(x), indices, t, axis=axis),
    ),
    batch=batch_scatter(lambda: scatter_set),
    flops=lambda x, indices, updates, **_: 0,
    samples=scatter_samples(),
    error_samples=scatter_errors(),
)
def scatter_set(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int
) -> np.ndarray:
    """x with each update in the row that its index names; of repeated indices, the last one's.

    Why: writing to places known only at run time; a mask and a sum would add repeated updates.

    Each place takes the update that names it last, whatever order NumPy assigns in."""
    pre, n, post = blocks(x.shape, axis)
    flat = checked("scatter_set", indices, n).reshape(-1)
    last = np.full(n, -1)
    np.maximum.at(last, flat, np.arange(flat.size))
    hit = np.flatnonzero(last >= 0)
    out = np.array(x, order="C").reshape(pre, n, post)
    out[:, hit] = updates.reshape(pre, flat.size, post)[:, last[hit]]
    return out.reshape(x.shape)


def gather_along(x: Value, indices: Value, axis: int) -> Any:
    """The elements of x (..., n, ...) at `indices` (..., k, ...) along `axis`, line by line."""
    last = x.ndim - 1
    lines, places = (move_axes(v, (axis,), (last,)) for v in (x, indices))
    n, shape = lines.shape[-1], places.shape
    flat = gather(reshape(lines, shape=(x.size,)), line_places(places, n), axis=0)
    return move_axes(reshape(flat, shape=shape), (last,), (axis,))


def scatter_along(updates: Value, indices: Value, axis: int, size: int) -> Any:
    """The transpose of `gather_along`: updates added into lines of `size` zeros."""
    shape = (*updates.shape[:axis], size, *updates.shape[axis + 1 :])
    return scatter_lines(scatter_add, full(shape, 0, updates.dtype), indices, updates, axis)


def scatter_lines(scatter: Primitive, x: Value, indices: Value, updates: Any, axis: int) -> Any:
    """x with `updates` (..., k, ...) scattered to `indices` (..., k, ...) of `axis`, by lines."""
    last = x.ndim - 1
    lines, places, rows = (move_axes(v, (axis,), (last,)) for v in (x, indices, updates))
    target, rows = reshape(lines, shape=(x.size,)), reshape(rows, shape=(rows.size,))
    flat = scatter(target, line_places(places, x.shape[axis]), rows, axis=0)
    return move_axes(reshape(flat, shape=lines.shape), (last,), (axis,))


def line_places(places: Value, size: int) -> Any:
    """Positions (..., k) in lines of `size` elements, as flat positions in all lines."""
    k, count = places.shape[-1], math.prod(places.shape[:-1])
    first = reshape(iota(size=count, dtype=int64) * size, shape=(count, 1))
    return reshape(reshape(places, shape=(count, k)) + first, shape=(count * k,))
