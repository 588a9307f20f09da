"""Functions that rearrange, join, split and repeat: compositions of the movement cards."""

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError, check_known, type_name
from glasshouse.base.shape import broadcast_shapes as common_shape
from glasshouse.base.shape import check_axes, check_axis, check_shape
from glasshouse.dispatch import value as values
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.spelling import has_two_meanings, takes_names_of_pytorch
from glasshouse.dispatch.value import (
    ArrayLike,
    Value,
    adopt,
    as_value,
    cast,
    common_dtype,
    unshared,
)
from glasshouse.ops import index as indexing
from glasshouse.ops import movement
from glasshouse.ops.movement import section as part

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["broadcast_arrays", "broadcast_shapes", "broadcast_to", "chunk", "concat", "expand_dims",
           "flatten", "flip", "moveaxis", "pad", "permute_dims", "repeat", "reshape", "roll",
           "split", "squeeze", "stack", "swapaxes", "tile", "transpose", "unstack"]  # fmt: skip


def copied(x: Value) -> Any:
    """A new value with the contents of x, on the tape as x is, and not in memory of the user's."""
    x = unshared(x)
    return movement.reshape(x, shape=x.shape)


@composed
def reshape(x: ArrayLike, /, shape: tuple[Any, ...], *, copy: Any = None) -> "Tensor":
    """The elements of x, in row-major order, in a new shape; one size of -1 is worked out.

    Dtypes: any, kept.
    Raises: ShapeError if the number of elements does not fit.
    Source: standard.
    Example:
        >>> reshape([1, 2, 3, 4], (2, -1)).shape
        (2, 2)
    """
    x = as_value(x, where="reshape")
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    sizes = [size if size == -1 else check_shape("reshape", size)[0] for size in shape]
    if sizes.count(-1) > 1:
        raise ShapeError("reshape", "at most one size of -1", tuple(shape), "Name the other sizes.")
    if -1 in sizes:
        others = math.prod(size for size in sizes if size != -1)
        if others == 0 or x.size % others:
            expected = f"sizes whose product divides {x.size}"
            fix = "Name all sizes."
            raise ShapeError("reshape", expected, f"{tuple(shape)} for shape {x.shape}", fix)
        sizes[sizes.index(-1)] = x.size // others
    return movement.reshape(x, shape=tuple(sizes)) if copy else values.reshape(x, tuple(sizes))


@composed
def flatten(x: ArrayLike, /, start_axis: int = 0, end_axis: int = -1) -> "Tensor":
    """x with the axes from `start_axis` to `end_axis` merged into one.

    Shapes: x (..., a, ..., b, ...) -> (..., a · … · b, ...).
    Dtypes: any, kept.
    Raises: ShapeError for axes out of range or in the wrong order.
    Source: PyTorch.
    Example:
        >>> flatten([[1, 2], [3, 4]]).tolist()
        [1, 2, 3, 4]
    """
    x = as_value(x, where="flatten")
    x = x if x.ndim else values.reshape(x, (1,))
    first, last = (check_axis("flatten", axis, x.ndim) for axis in (start_axis, end_axis))
    if first > last:
        raise ShapeError("flatten", "start_axis <= end_axis", f"{start_axis}, {end_axis}", "Swap.")
    merged = math.prod(x.shape[first : last + 1])
    return values.reshape(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


@composed
def permute_dims(x: ArrayLike, /, axes: Any) -> "Tensor":
    """x with its axes in the order `axes`: y.shape[i] = x.shape[axes[i]].

    Dtypes: any, kept.
    Raises: ShapeError unless each axis is given once.
    Source: standard.
    Example:
        >>> permute_dims([[1, 2], [3, 4]], (1, 0)).tolist()
        [[1, 3], [2, 4]]
    """
    x = as_value(x, where="permute_dims")
    if len(check_axes("permute_dims", tuple(axes), x.ndim)) != x.ndim:
        expected = f"each of the {x.ndim} axes of shape {x.shape} once"
        raise ShapeError("permute_dims", expected, tuple(axes), "Name every axis.")
    order = tuple(check_axis("permute_dims", axis, x.ndim) for axis in axes)
    return x if order == tuple(range(x.ndim)) else movement.permute(x, axes=order)


@composed
def transpose(x: ArrayLike, /, *axes: int | Sequence[int]) -> Any:
    """x with all axes reversed, with two axes swapped, or with its axes in a given order.
    transpose(x); transpose(x, a, b) as in PyTorch; transpose(x, (b, a, …)) as in NumPy

    Shapes: x (...) -> its sizes reordered.
    Dtypes: any, kept.
    Raises: ShapeError for axes out of range, OptionError for another number of axes.
    Source: NumPy, PyTorch.
    Example:
        >>> transpose([[1, 2], [3, 4]], 0, 1).tolist()
        [[1, 3], [2, 4]]
    """
    x = as_value(x, where="transpose")
    if not axes or axes == (None,):
        return permute_dims(x, tuple(reversed(range(x.ndim))))
    if len(axes) == 1 and isinstance(axes[0], (tuple, list)):
        return permute_dims(x, axes[0])
    if len(axes) == 2:
        return swapaxes(x, *axes)
    fix = "Use gh.permute_dims for an order of axes."
    raise OptionError("transpose", "no axes, two axes, or one tuple of all", axes, fix)


@composed
def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> "Tensor":
    """x with two axes exchanged.

    Shapes: x (..., a, ..., b, ...) -> (..., b, ..., a, ...).
    Dtypes: any, kept.
    Raises: ShapeError for an axis out of range.
    Source: NumPy.
    """
    x = as_value(x, where="swapaxes")
    axis1, axis2 = (check_axis("swapaxes", axis, x.ndim) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[axis1], order[axis2] = axis2, axis1
    return permute_dims(x, order)


@composed
def moveaxis(
    x: ArrayLike, source: tuple[int, ...] | int, destination: tuple[int, ...] | int, /
) -> "Tensor":
    """x with the axes `source` moved to the positions `destination`, the others in order.

    Shapes: x (...) -> its sizes reordered.
    Dtypes: any, kept.
    Raises: ShapeError for axes out of range, repeated, or unequal in number.
    Source: standard.
    """
    x = as_value(x, where="moveaxis")
    source = source if isinstance(source, (tuple, list)) else (source,)
    destination = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(source) != len(destination):
        expected = "as many sources as destinations"
        fix = "Give one destination per source."
        raise ShapeError("moveaxis", expected, f"{tuple(source)} and {tuple(destination)}", fix)
    for axes in (source, destination):
        check_axes("moveaxis", tuple(axes), x.ndim)  # for repeated ones
    ends = (source, destination)
    return indexing.move_axes(x, *([check_axis("moveaxis", i, x.ndim) for i in g] for g in ends))


@composed
def expand_dims(x: ArrayLike, /, axis: int = 0) -> "Tensor":
    """x with a new axis of size 1 at the position(s) `axis` of the result.

    Shapes: x (...) -> (..., 1, ...).
    Dtypes: any, kept.
    Raises: AxisError (a ShapeError and IndexError) for an axis out of range.
    Source: standard.
    """
    x = as_value(x, where="expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    new = check_axes("expand_dims", axis, x.ndim + count)
    sizes = iter(x.shape)
    return values.reshape(x, tuple(1 if i in new else next(sizes) for i in range(x.ndim + count)))


@has_two_meanings(positions=2)
@composed
def squeeze(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> "Tensor":
    """x without the given axes of size 1, or without all of them.

    Shapes: x (..., 1, ...) -> (...).
    Dtypes: any, kept.
    Raises: ShapeError if a given axis has another size.
    Source: standard.
    """
    x = as_value(x, where="squeeze")
    if axis is None:
        return values.reshape(x, tuple(size for size in x.shape if size != 1))
    axes = check_axes("squeeze", axis, x.ndim)
    if any(x.shape[i] != 1 for i in axes):
        fix = "Index or reduce that axis instead."
        raise ShapeError("squeeze", "axes of size 1", f"axis {axis} of shape {x.shape}", fix)
    return values.reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes))


@composed
def broadcast_to(x: ArrayLike, /, shape: Any) -> "Tensor":
    """x repeated along new leading axes and axes of size 1 to fill `shape`.

    Shapes: x (...) -> shape.
    Dtypes: any, kept.
    Raises: ShapeError if x does not broadcast to shape.
    Source: standard.
    Example:
        >>> broadcast_to([1, 2], (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    x = as_value(x, where="broadcast_to")
    return values.broadcast_to(x, check_shape("broadcast_to", shape))


def broadcast_arrays(*arrays: "Tensor") -> "list[Tensor]":
    """The arrays, each repeated to the shape that they broadcast to together.

    Shapes: (...), (...), … -> their common broadcast shape, each.
    Dtypes: any, each kept.
    Raises: ShapeError if the shapes do not broadcast.
    Source: standard.
    """
    arrays = [as_value(x, where="broadcast_arrays") for x in arrays]
    return list(values.broadcast_values("broadcast_arrays", *arrays))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that `shapes` broadcast to.

    Raises: ShapeError if they do not.
    Source: NumPy.
    """
    where = "broadcast_shapes"
    return common_shape(where, *(check_shape(where, shape) for shape in shapes))


def sequence(where: str, arrays: "Sequence[Tensor]", axis: int = 0) -> "list[Tensor]":
    if isinstance(axis, Value):  # join(a, b)
        fix = "Put them in a list."
        raise DTypeError(where, "the tensors as one argument", "a tensor as axis too", fix)
    if isinstance(arrays, Value) and not arrays.ndim or not hasattr(arrays, "__iter__"):
        raise DTypeError(where, "a sequence of tensors", type_name(arrays), "Put them in a list.")
    arrays = [as_value(x, where=where) for x in arrays]
    if not arrays:
        raise ShapeError(where, "at least one tensor", "none", "Give one or more.")
    dtype = common_dtype(where, arrays)
    return [cast(x, dtype) for x in arrays]


@takes_names_of_pytorch
def concat(arrays: "list[Tensor]", /, axis: int = 0) -> "Tensor":
    """The arrays joined along an existing axis; with None, flattened first.

    Shapes: (..., n, ...), (..., m, ...), … -> (..., n + m + …, ...).
    Dtypes: any, promoted to each other.
    Raises: ShapeError if other axes differ or there is no array.
    Source: standard.
    Example:
        >>> concat([[1, 2], [3]]).tolist()
        [1, 2, 3]
    """
    arrays = sequence("concat", arrays, axis)
    if axis is None:
        arrays, axis = [values.reshape(x, (x.size,)) for x in arrays], 0
    axis = check_axis("concat", axis, arrays[0].ndim)
    check_equal("concat", [(*x.shape[:axis], *x.shape[axis + 1 :]) for x in arrays], arrays)
    return movement.concatenate(*arrays, axis=axis)


@takes_names_of_pytorch
def stack(arrays: Sequence[Any], /, axis: int = 0) -> "Tensor":
    """The arrays joined along a new axis.

    Shapes: (...), (...), … -> (..., number of arrays, ...).
    Dtypes: any, promoted to each other.
    Raises: ShapeError if the shapes differ or there is no array.
    Source: standard.
    Example:
        >>> stack([[1, 2], [3, 4]], axis=1).tolist()
        [[1, 3], [2, 4]]
    """
    arrays = sequence("stack", arrays, axis)
    check_equal("stack", [x.shape for x in arrays], arrays)
    shape = arrays[0].shape
    axis = check_axis("stack", axis, len(shape) + 1)
    if axis == len(shape):
        return movement.concatenate(*(expand_dims(x, axis) for x in arrays), axis=axis)
    side_by_side = movement.concatenate(*arrays, axis=axis)  # one reshape, instead of one of each
    return values.reshape(side_by_side, (*shape[:axis], len(arrays), *shape[axis:]))


def check_equal(where: str, shapes: list[tuple[int, ...]], arrays: "list[Tensor]") -> None:
    if len({*shapes, *(x.ndim for x in arrays)}) > 2:
        expected = f"equal shapes{' but for the axis' if where == 'concat' else ''}"
        fix = "Pad or reshape them first."
        raise ShapeError(where, expected, ", ".join(str(x.shape) for x in arrays), fix)


@composed
def unstack(x: ArrayLike, /, axis: int = 0) -> "tuple[Tensor, ...]":
    """The slices of x along an axis, which disappears.

    Shapes: x (..., n, ...) -> n times (..., ...).
    Dtypes: any, kept.
    Raises: ShapeError for an axis out of range.
    Source: standard.
    Example:
        >>> [a.tolist() for a in unstack([[1, 2], [3, 4]])]
        [[1, 2], [3, 4]]
    """
    x = as_value(x, where="unstack")
    axis = check_axis("unstack", axis, x.ndim)
    return tuple(squeeze(part(x, axis, i, i + 1), axis) for i in range(x.shape[axis]))


@has_two_meanings(refuses=True)
@composed
def split(
    x: ArrayLike, indices_or_sections: list[int] | tuple[int, ...] | int, /, *, axis: int = 0
) -> "tuple[Tensor, ...]":
    """x cut along an axis into equal sections, or before the given indices.
    An integer is a number of sections, as in NumPy. Where the axis is called `dim`, it is their
    size, and a list holds sizes, as in PyTorch; one of the two has to be named.

    Shapes: x (..., n, ...) -> (..., n_1, ...), (..., n_2, ...), …
    Dtypes: any, kept.
    Raises: ShapeError if n is no multiple of the number of sections.
    Source: NumPy.
    Example:
        >>> [a.tolist() for a in split([1, 2, 3, 4], [1], axis=0)]
        [[1], [2, 3, 4]]
    """
    x = as_value(x, where="split")
    axis = check_axis("split", axis, x.ndim)
    size = x.shape[axis]
    if isinstance(indices_or_sections, (tuple, list)):
        cuts = [operator.index(cut) for cut in indices_or_sections]
        cuts = [min(max(cut + size if cut < 0 else cut, 0), size) for cut in cuts]
    else:
        count = operator.index(indices_or_sections)
        if count < 1 or size % count:
            expected = f"a number of sections that divides {size}"
            fix = "Use gh.chunk for unequal parts."
            raise ShapeError("split", expected, f"{count} for shape {x.shape}, axis {axis}", fix)
        cuts = range(size // count, size, size // count) if size else [0] * (count - 1)
    bounds = [0, *cuts, size]
    pairs = zip(bounds[:-1], bounds[1:], strict=True)
    return tuple(part(x, axis, start, max(start, stop)) for start, stop in pairs)


@composed
def chunk(x: ArrayLike, chunks: int, /, axis: int = 0) -> "tuple[Tensor, ...]":
    """x cut along an axis into at most `chunks` parts of equal size, but for the last.

    Shapes: x (..., n, ...) -> (..., ceil(n / chunks), ...), …
    Dtypes: any, kept.
    Raises: OptionError for less than one chunk.
    Source: PyTorch.
    """
    x = as_value(x, where="chunk")
    axis = check_axis("chunk", axis, x.ndim)
    if chunks < 1:
        raise OptionError("chunk", "1 or more chunks", chunks, "Use 1 for one part.")
    size = max(1, -(-x.shape[axis] // chunks))
    return split(x, list(range(size, x.shape[axis], size)), axis=axis)


@composed
def flip(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> "Tensor":
    """x with the order of elements reversed along the given axes, or along all.

    Shapes: x (...) -> (...).
    Dtypes: any, kept.
    Raises: ShapeError for an axis out of range.
    Source: standard.
    Example:
        >>> flip([[1, 2], [3, 4]], axis=1).tolist()
        [[2, 1], [4, 3]]
    """
    x = as_value(x, where="flip")
    return movement.flip(x, axes=check_axes("flip", axis, x.ndim))


@composed
def roll(x: ArrayLike, /, shift: int, axis: int | Sequence[int] | None = None) -> "Tensor":
    """x with elements moved on by `shift` places along axes, those at the end to the front.
    y[(i + shift) mod n] = x[i]; without an axis, of x flattened

    Shapes: x (...) -> (...).
    Dtypes: any, kept.
    Raises: ShapeError if there are not as many shifts as axes.
    Source: standard.
    Example:
        >>> roll([1, 2, 3], 1).tolist()
        [3, 1, 2]
    """
    x = as_value(x, where="roll")
    if axis is None:
        flat = rolled(values.reshape(x, (x.size,)), operator.index(shift), 0)
        return values.reshape(flat, x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(axes) == 1 < len(shifts):
        axes = tuple(axes) * len(shifts)
    if len(shifts) != len(axes):
        got = f"shifts {tuple(shifts)} for axes {tuple(axes)}"
        raise ShapeError("roll", "a shift per axis", got, "Give as many of both.")
    for by, along in zip(shifts, axes, strict=True):
        x = rolled(x, operator.index(by), check_axis("roll", along, x.ndim))
    return x


def rolled(x: "Tensor", shift: int, axis: int) -> "Tensor":
    size = x.shape[axis]
    cut = -shift % max(size, 1)
    if cut == 0:
        return x
    return movement.concatenate(part(x, axis, cut, size), part(x, axis, 0, cut), axis=axis)


@composed
def tile(x: ArrayLike, repetitions: tuple[int, ...], /) -> "Tensor":
    """x repeated as a whole, `repetitions[i]` times along axis i.
    Missing repetitions count as 1 in front, missing axes of x as size 1 in front.

    Shapes: x (a, b, ...), (p, q, ...) -> (a·p, b·q, ...).
    Dtypes: any, kept.
    Raises: ShapeError for negative repetitions.
    Source: standard.
    Example:
        >>> tile([1, 2], (2, 2)).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    x, counts = as_value(x, where="tile"), check_shape("tile", repetitions)
    ndim = max(len(counts), x.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    apart = values.reshape(x, tuple(size for n in shape for size in (1, n)))
    pairs = list(zip(counts, shape, strict=True))
    spread = values.broadcast_to(apart, tuple(size for pair in pairs for size in pair))
    return values.reshape(spread, tuple(count * size for count, size in pairs))


@takes_names_of_pytorch
def repeat(x: ArrayLike, repeats: int, /, axis: int | None = None) -> "Tensor":
    """x with each element repeated, all as often or each its own number of times. A tensor of
    `repeats` is read at once, since the result's shape depends on it.

    Shapes: x (..., n, ...) -> (..., sum of repeats, ...); without an axis, of x flattened.
    Dtypes: any, kept.
    Raises: ShapeError for negative repeats, or if there is not one per element.
    Source: standard.
    Example:
        >>> repeat([1, 2], [1, 3]).tolist()
        [1, 2, 2, 2]
    """
    x = as_value(x, where="repeat")
    if axis is None:
        x, axis = values.reshape(x, (x.size,)), 0
    axis = check_axis("repeat", axis, x.ndim)
    size, counts = x.shape[axis], np.asarray(repeats)
    if counts.dtype.kind not in "iu" and counts.size:
        raise DTypeError("repeat", "integers as repeats", counts.dtype, "Cast.")
    if counts.ndim > 1 or counts.ndim and len(counts) not in (1, size) or (counts < 0).any():
        expected = f"one count of 0 or more for each of {size} elements"
        fix = f"Give {size} counts, or one for all."
        raise ShapeError("repeat", expected, counts.tolist(), fix)
    if counts.size == 1:
        count = int(counts.reshape(()))
        shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
        spread = values.broadcast_to(expand_dims(x, axis + 1), shape)
        return values.reshape(spread, (*x.shape[:axis], size * count, *x.shape[axis + 1 :]))
    positions = adopt(np.repeat(np.arange(size), counts.astype(np.int64)))
    return indexing.gather(x, positions, axis=axis)


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad(x: Any, pad_width: Any, mode: Any = "constant", constant_values: int = 0) -> "Tensor":
    """x with elements added before and after along each axis.
    `pad_width` is one number, a (before, after) for all axes, or one pair per axis. Modes:
    constant, edge (the last element), reflect (mirrored without it), symmetric (mirrored with it),
    wrap (from the other end).

    Shapes: x (n, ...) -> (before + n + after, ...).
    Dtypes: any, kept.
    Raises: OptionError for an unknown mode, ShapeError for other widths.
    Source: NumPy.
    Example:
        >>> pad([1, 2, 3], (2, 0), mode="reflect").tolist()
        [3, 2, 1, 2, 3]
    """
    x = as_value(x, where="pad")
    widths = pad_widths(pad_width, x)
    check_known("pad", "a mode", mode, PAD_MODES)
    if mode == "constant":
        return movement.pad(x, widths=tuple((*w, 0) for w in widths), value=constant_values)
    for axis, width in enumerate(widths):
        if width == (0, 0):
            continue
        if x.shape[axis] == 0:
            expected = f"elements to take for mode {mode!r}"
            fix = "Use mode 'constant'."
            raise ShapeError("pad", expected, f"shape {x.shape} with none along axis {axis}", fix)
        positions = adopt(np.pad(np.arange(x.shape[axis]), width, mode=mode))
        x = indexing.gather(x, positions, axis=axis)
    return x


def pad_widths(pad_width: tuple[tuple[int, ...] | int, ...], x: "Tensor") -> list[tuple[int, int]]:
    try:
        pairs = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    except ValueError:
        pairs = None
    if pairs is None or pairs.dtype.kind not in "iu" or (pairs < 0).any():
        expected = f"a width, a (before, after), or one per axis of shape {x.shape}, of 0 or more"
        raise ShapeError("pad", expected, pad_width, "Crop with slices.")
    return [(int(before), int(after)) for before, after in pairs]
