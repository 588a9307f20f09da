"""Indexing: NumPy's rules, lowered to slice and flip, or to one gather along merged axes.

`index_plan.py` defines the meaning of keys; writing runs the same plan in reverse."""

import math
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import DTypeError, IndexOutOfRangeError, ShapeError, int32, int64
from glasshouse.base.shape import Shape, broadcast_shapes, check_axis
from glasshouse.dispatch import Primitive
from glasshouse.dispatch import value as values
from glasshouse.dispatch.spelling import has_two_meanings, takes_names_of_pytorch
from glasshouse.dispatch.value import (
    SCALARS,
    ArrayLike,
    Value,
    adopt,
    as_value,
    broadcast_to,
    cast,
    full,
    reshape,
)
from glasshouse.ops import index as cards
from glasshouse.ops import movement
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.ops.compare import where
from glasshouse.ops.movement import flip, inverse_permutation, pad, permute, section, slice_
from glasshouse.tensor.standard.index_plan import IndexPlan, is_mask, plan_key

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["add_at", "nonzero", "put_along_axis", "searchsorted", "take", "take_along_axis"]


def places_in(indices: "Tensor", size: int, beyond: int) -> "Tensor":
    """`indices` counted from the front; `beyond`, which no gather accepts, where out of range."""
    places = indices % max(size, 1)
    inside = (places == indices) | (places == indices + size)
    return where(inside, places, full(places.shape, beyond, int64))


def explained(
    where_: str, run: Callable[..., Any], indexed: "list[tuple[Tensor, int, int]]"
) -> "Tensor":
    """`run()`; an index out of range is named; `indexed`: (index tensor, its axis, its size)."""
    try:
        return run()
    except IndexOutOfRangeError:
        for indices, axis, size in indexed:
            cards.checked(where_, values.ordinary(indices).numpy(), size, axis)
        raise


def take_basic(x: "Tensor", plan: IndexPlan) -> "Tensor":
    """The elements within the bounds, with new axes, before index arrays are applied."""
    whole = tuple(plan.stops) == x.shape and not any(plan.starts) and set(plan.steps) <= {1}
    if not whole:
        x = slice_(x, starts=tuple(plan.starts), stops=tuple(plan.stops), steps=tuple(plan.steps))
    if plan.flips:
        x = flip(x, axes=tuple(plan.flips))
    return reshape(x, kept_shape(plan))


def kept_shape(plan: IndexPlan) -> Shape:
    return tuple(s for i, s in enumerate(plan.shape) if i not in plan.dropped)


class Merged:
    """The axes with index arrays brought side by side and merged into one, with flat indices."""

    shape: tuple[int, ...]
    axes: list[int]
    indices: "Tensor"
    axis: int

    def __init__(self, plan: IndexPlan) -> None:
        self.shape, self.axes = tuple(plan.shape), sorted(plan.arrays)
        rest = [i for i in range(len(self.shape)) if i not in self.axes]
        before = [i for i in rest if i < self.axes[0]] if plan.adjacent else []
        after = [i for i in rest if i not in before]
        self.order: tuple[int, ...] = (*before, *self.axes, *after)
        self.before: tuple[int, ...] = tuple(self.shape[i] for i in before)
        self.after: tuple[int, ...] = tuple(self.shape[i] for i in after)
        self.count: int = math.prod(self.shape[i] for i in self.axes)
        self.indices, self.axis = self.flat_indices(plan), len(before)

    def flat_indices(self, plan: IndexPlan) -> "Tensor":
        """One index into the merged axis for every result, broadcast over the index arrays."""
        arrays = [plan.arrays[i] for i in self.axes]
        shape = broadcast_shapes("index", *(a.shape for a in arrays))
        strides = [
            math.prod(self.shape[j] for j in self.axes[k + 1 :]) for k in range(len(self.axes))
        ]
        host_arrays = [a for a in arrays if isinstance(a, np.ndarray)]
        if len(host_arrays) == len(arrays):
            total = sum(a * s for a, s in zip(arrays, strides, strict=True))
            return adopt(np.broadcast_to(np.asarray(total, np.int64), shape))
        if len(arrays) == 1:
            return arrays[0]
        parts = []
        for axis, a, s in zip(self.axes, arrays, strides, strict=True):
            is_checked = isinstance(a, np.ndarray)  # and counted from the front
            part = as_value(a) if is_checked else places_in(a, self.shape[axis], self.count)
            parts.append(broadcast_to(part * s if s > 1 else part, shape))
        return reduce(operator.add, parts)

    def indexed(self, plan: IndexPlan) -> "list[tuple[Tensor, int, int]]":
        tensors = [i for i in self.axes if isinstance(plan.arrays[i], Value)]
        return [(plan.arrays[i], plan.origins[i], self.shape[i]) for i in tensors]

    def merge(self, x: "Tensor") -> "Tensor":
        if self.order != tuple(range(len(self.shape))):
            x = permute(x, axes=self.order)
        return reshape(x, (*self.before, self.count, *self.after))

    def split(self, x: Any) -> "Tensor":
        x = reshape(x, tuple(self.shape[i] for i in self.order))
        if self.order == tuple(range(len(self.shape))):
            return x
        return permute(x, axes=inverse_permutation(self.order))


def getitem(x: "Tensor", key: Any) -> "Tensor":
    """x[key], by NumPy's rules.

    Raises: IndexOutOfRangeError, DTypeError for an invalid index, ShapeError for masks that do not
        fit, TransformError for a mask that a transform hides.
    Example:
        >>> getitem(as_value([[1, 2], [3, 4]]), (..., [1, 0])).tolist()
        [[2, 1], [4, 3]]
    """
    shape = x.shape
    if type(key) is int and shape and -shape[0] <= key < shape[0] > 1:  # as a plan would, sooner
        start = key % shape[0]
        return reshape(section(x, 0, start, start + 1), shape[1:])
    plan = plan_key(key, x.shape)
    part = take_basic(x, plan)
    if not plan.arrays:
        return part
    merged = Merged(plan)
    run = partial(cards.gather, merged.merge(part), merged.indices, axis=merged.axis)
    return explained("index", run, merged.indexed(plan))


def setitem(x: "Tensor", key: Any, value: Any) -> "Tensor":
    """x with x[key] replaced by `value`, cast and broadcast to it; where indices repeat, the last.
    One number written through a mask of the shape of x needs no contents of the mask.

    Raises: as getitem; ShapeError if value does not broadcast.
    Example:
        >>> setitem(as_value([1, 2, 3]), slice(1), 0).tolist()
        [0, 2, 3]
    """
    if is_mask(key) and key.shape == x.shape and np.ndim(value) == 0:
        return where(as_value(key), contents("setitem", value, x, x.shape), x)
    return update(x, key, value, "setitem", cards.scatter_set)


def add_at(x: "Tensor", key: Any, value: Any) -> Any:
    """x with `value` added at x[key]; repeated indices add up.

    Raises: as setitem.
    Example:
        >>> add_at(as_value([0.0, 0.0]), [1, 1], 2.0).tolist()
        [0.0, 4.0]
    """
    return update(as_value(x), key, value, "add_at", cards.scatter_add)


def update(x: "Tensor", key: Any, value: ArrayLike, name: str, scatter: Primitive) -> "Tensor":
    """x with the places that `key` names written by `scatter`, or by slices where they suffice."""
    plan = plan_key(key, x.shape)
    if not plan.arrays:
        new = contents(name, value, x, kept_shape(plan))
        adds = scatter is cards.scatter_add
        return set_basic(x, plan, take_basic(x, plan) + new if adds else new)
    merged = Merged(plan)
    part = merged.merge(take_basic(x, plan))
    value = contents(name, value, x, (*merged.before, *merged.indices.shape, *merged.after))
    run = partial(scatter, part, merged.indices, value, axis=merged.axis)
    return set_basic(x, plan, merged.split(explained(name, run, merged.indexed(plan))))


def contents(name: str, value: ArrayLike, x: "Tensor", shape: Shape) -> "Tensor":
    """`value` in the dtype of x and in `shape`; its leading axes of size 1 are dropped."""
    if type(value) in SCALARS and (x.dtype.is_complex or type(value) is not complex):
        return full(shape, value, x.dtype, where=name)
    value = as_value(value, where=name)
    if value.dtype.is_complex and not x.dtype.is_complex:
        fix = "Take gh.real of them, or make the tensor complex."
        raise DTypeError(name, f"values that fit {x.dtype.name}", value.dtype.name, fix)
    extra = value.ndim - len(shape)
    if extra > 0 and value.shape[:extra] == (1,) * extra:
        value = reshape(value, value.shape[extra:])
    return broadcast_to(cast(value, x.dtype), shape, where=name)


def set_basic(x: "Tensor", plan: IndexPlan, value: "Tensor") -> "Tensor":
    """x with the elements within the bounds replaced by `value`, shaped as they are taken."""
    counts = [-(-(b - a) // s) for a, b, s in zip(plan.starts, plan.stops, plan.steps, strict=True)]
    value = reshape(value, tuple(counts))
    if plan.flips:
        value = flip(value, axes=tuple(plan.flips))
    cropped = [i for i, (n, size) in enumerate(zip(counts, x.shape, strict=True)) if n != size]
    if not cropped:
        return value
    first, last = cropped[0], cropped[-1]
    if counts[first:last] == [1] * (last - first) and (plan.steps[last] == 1 or counts[last] == 1):
        return set_run(x, value, first, last, plan.starts[first : last + 1])
    widths = movement.widths_around(x.shape, counts, plan.starts, plan.steps)
    inside = pad(full(value.shape, True, as_value(True).dtype), widths=widths, value=False)
    return where(inside, pad(value, widths=widths, value=0), x)


def set_run(x: "Tensor", value: "Tensor", first: int, last: int, starts: list[int]) -> "Tensor":
    """x with `value` written where the axes `first` to `last`, as one axis, have a single run."""
    before, after = x.shape[:first], x.shape[last + 1 :]
    place = 0
    for start, size in zip(starts, x.shape[first : last + 1], strict=True):
        place = place * size + start
    if not x.size:
        return x
    merged = reshape(x, (*before, math.prod(x.shape[first : last + 1]), *after))
    run = reshape(value, (*before, value.shape[last], *after))
    rest = section(merged, first, place + run.shape[first], merged.shape[first])
    pieces = [p for p in (section(merged, first, 0, place), run, rest) if p.shape[first]]
    return reshape(movement.concatenate(*pieces, axis=first), x.shape)


@has_two_meanings(positions=2)
@takes_names_of_pytorch
def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> "Tensor":
    """The slices of x along `axis` that `indices` name.

    Shapes: x (*a, n, *b), indices (*k) -> (*a, *k, *b).
    Raises: IndexOutOfRangeError, DTypeError unless indices are integers, ShapeError.
    Example:
        >>> take(as_value([1.0, 2.0, 3.0]), [2, 0]).tolist()
        [3.0, 1.0]
    """
    x = as_value(x, where="take")
    if axis is None:
        if x.ndim != 1:
            raise ShapeError("take", f"an axis for x of shape {x.shape}", "none", BY_AXIS)
        axis = 0
    axis = check_axis("take", axis, x.ndim)
    indices = check_integers("take", as_value(indices, where="take"))
    run = partial(cards.gather, x, indices, axis=axis)
    return explained("take", run, [(indices, axis, x.shape[axis])])


BY_AXIS = "Write axis=0, or x.take(indices), which takes from x flattened, as PyTorch."


def along(where_: str, x: "Tensor", indices: "Tensor", axis: int) -> "tuple[Tensor, Tensor, int]":
    """x and indices, broadcast against each other but for `axis`."""
    x, indices = (as_value(v, where=where_) for v in (x, indices))
    check_integers(where_, indices)
    axis = check_axis(where_, axis, x.ndim)
    if indices.ndim != x.ndim:
        expected = f"indices with as many axes as x, {x.ndim}"
        raise ShapeError(where_, expected, f"shape {indices.shape}", "Add axes with expand_dims.")
    rest = [tuple(1 if i == axis else s for i, s in enumerate(v.shape)) for v in (x, indices)]
    rest = broadcast_shapes(where_, *rest)
    size, count = x.shape[axis], indices.shape[axis]
    x = broadcast_to(x, (*rest[:axis], size, *rest[axis + 1 :]))
    indices = broadcast_to(cast(indices, int64), (*rest[:axis], count, *rest[axis + 1 :]))
    return x, indices, axis


@takes_names_of_pytorch
def take_along_axis(x: "Tensor", indices: "Tensor", /, *, axis: int = -1) -> "Tensor":
    """The elements of x that `indices` name along `axis`, line by line.

    Shapes: x (*a, n, *b), indices (*a, k, *b) -> (*a, k, *b).
    Raises: as take.
    Example:
        >>> take_along_axis(as_value([[1.0, 2.0]]), [[1]], axis=1).tolist()
        [[2.0]]
    """
    x, indices, axis = along("take_along_axis", x, indices, axis)
    size = x.shape[axis]
    run = partial(cards.gather_along, x, places_in(indices, size, x.size), axis)
    return explained("take_along_axis", run, [(indices, axis, size)])


@takes_names_of_pytorch
def put_along_axis(
    x: "Tensor", indices: "Tensor", values: "Tensor", /, *, axis: int = -1
) -> "Tensor":
    """x with `values` written where `indices` name along `axis`, line by line.

    Shapes: x (*a, n, *b), indices and values (*a, k, *b) -> (*a, n, *b).
    Raises: as take_along_axis.
    Example:
        >>> put_along_axis(as_value([[1.0, 2.0]]), [[1]], 5.0, axis=1).tolist()
        [[1.0, 5.0]]
    """
    x, indices, axis = along("put_along_axis", x, indices, axis)
    values = contents("put_along_axis", values, x, indices.shape)
    size = x.shape[axis]
    places = places_in(indices, size, x.size)
    run = partial(cards.scatter_lines, cards.scatter_set, x, places, values, axis)
    return explained("put_along_axis", run, [(indices, axis, size)])


def nonzero(x: ArrayLike, /, *, as_tuple: bool = True) -> Any:
    """The positions of the elements that are not 0, one int64 tensor per axis, or as rows of one
    matrix.

    Shapes: each (count,); count depends on the contents, so vmap refuses it.
    Raises: ShapeError for a 0-d x.
    """
    x = as_value(x, where="nonzero")
    if not as_tuple:
        return adopt(np.argwhere(x.numpy()))
    if not x.ndim:
        raise ShapeError("nonzero", "an axis or more", "a 0-d value", "Reshape it.")
    return tuple(adopt(positions) for positions in np.nonzero(x.numpy()))


def searchsorted(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    side: str = "left",
    sorter: Any = None,
    right: bool = False,
    out_int32: bool = False,
) -> "Tensor":
    """Where each element of x2 belongs in the sorted x1, by bisection; of more axes, in its line of
    the last axis. `right` is the side "right".

    Shapes: x1 (n,), x2 (*k) -> (*k) int64; or x1 (..., n), x2 (..., k) -> (..., k).
    Raises: ShapeError for lines that do not match, OptionError for an unknown side.
    Example:
        >>> searchsorted(as_value([1.0, 2.0, 3.0]), [2.0, 9.0]).tolist()
        [1, 3]
    """
    check_option("searchsorted", "side", side, ("left", "right"))
    x1, x2 = as_value(x1, where="searchsorted"), as_value(x2, where="searchsorted")
    side = "right" if right else side
    lines = x1.ndim > 1
    if not x1.ndim or lines and x1.shape[:-1] != x2.shape[:-1]:
        expected = "x1 of one axis, or of the lines of x2"
        raise ShapeError("searchsorted", expected, x1.shape, "Reshape it.")
    if sorter is not None:
        x1 = take_along_axis(x1, sorter, axis=-1)
    shape, n = x2.shape, x1.shape[-1]
    low, high = full(shape, 0, int64), full(shape, n, int64)
    for _ in range(n.bit_length()):
        middle = (low + high) >> 1
        inside = where(middle < n, middle, full(shape, max(n - 1, 0), int64))
        pivot = cards.gather_along(x1, inside, x1.ndim - 1) if lines else gather_line(x1, inside)
        after = goes_right(pivot, x2, side) & (low < high)
        low, high = where(after, middle + 1, low), where(after | (low >= high), high, middle)
    return cast(low, int32) if out_int32 else low


def gather_line(x: "Tensor", places: "Tensor") -> "Tensor":
    return cards.gather(x, places, axis=0)


def goes_right(pivot: Any, x: "Tensor", side: str) -> "Tensor":
    """Whether x belongs after `pivot`; NaN comes last, as in sort."""
    pivot, x = values.match("searchsorted", pivot, x)
    if pivot.dtype.is_bool:
        pivot, x = cast(pivot, int64), cast(x, int64)
    if side == "left":
        return (pivot < x) | ((x != x) & (pivot == pivot))
    return (pivot <= x) | (x != x)
