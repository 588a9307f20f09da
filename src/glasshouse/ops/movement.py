"""Movement: primitives that rearrange, repeat or drop elements and compute nothing."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, ShapeError, Spec, check_shape, from_numpy_dtype
from glasshouse.base.shape import check_axes, check_axis
from glasshouse.dispatch import Value
from glasshouse.dispatch.primitive import LINEAR, Arr, Primitive, card, refusal, sample
from glasshouse.dispatch.value import section
from glasshouse.ops.elementwise import batch_together
from glasshouse.ops.reduce import sum_

# Cards that move elements of any dtype: linear, and without FLOPs.
movement: "partial[Callable[..., Primitive]]" = partial(
    card, "movement", jvp=LINEAR, flops=lambda *_specs, **_: 0, traits=("movement", "linear")
)


def infer_reshape(x: Spec, *, shape: tuple[Any, ...]) -> Spec:
    shape = check_shape("reshape", shape)
    if math.prod(shape) != x.size:
        expected = f"a shape of {x.size} elements, as {x.shape} has"
        fix = f"Choose sizes whose product is {x.size}."
        raise ShapeError("reshape", expected, f"{shape} with {math.prod(shape)}", fix)
    return Spec(shape, x.dtype)


@movement(
    infer=infer_reshape,
    vjp=(lambda g, _y, _x, **_: reshape(g, shape=_x.shape),),
    batch=lambda batched, x, *, shape: reshape(x, shape=(x.shape[0], *shape)),
    samples=[
        sample((2, 3), shape=(3, 2)),
        sample((4,), shape=(2, 1, 2)),
        sample((1, 1), shape=()),
        sample((0, 2), shape=(3, 0)),
    ],
    error_samples=[
        refusal(ShapeError, "6 elements", (2, 3), shape=(4,)),
        refusal(ShapeError, "0 or more", (2,), shape=(-1,)),
    ],
)
def reshape(x: float | np.ndarray, *, shape: tuple[Any, ...]) -> np.ndarray:
    """The elements of x, in row-major order, in `shape`.

    Why: the only way to split and merge axes."""
    return np.reshape(x, shape)


def infer_permute(x: Spec, *, axes: tuple[int, ...]) -> Spec:
    if sorted(axes) != list(range(x.ndim)):
        fix = f"Give a permutation of 0 … {x.ndim - 1}."
        raise ShapeError("permute", f"each axis of shape {x.shape} once", tuple(axes), fix)
    return Spec(tuple(x.shape[axis] for axis in axes), x.dtype)


def inverse_permutation(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@movement(
    infer=infer_permute,
    vjp=(lambda g, _y, _x, *, axes: permute(g, axes=inverse_permutation(axes)),),
    batch=lambda batched, x, *, axes: permute(x, axes=(0, *(axis + 1 for axis in axes))),
    samples=[sample((2, 3, 4), axes=(2, 0, 1)), sample((2, 0), axes=(1, 0)), sample((), axes=())],
    error_samples=[
        refusal(ShapeError, "each axis", (2, 3), axes=(0, 0)),
        refusal(ShapeError, "each axis", (2, 3), axes=(0,)),
    ],
)
def permute(x: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
    """x with its axes in the order `axes`.

    Why: no other primitive changes the order of elements across axes."""
    return np.transpose(x, axes)


def infer_expand(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    if len(shape) != x.ndim or any(have not in (1, want) for have, want in zip(x.shape, shape)):
        expected = f"a shape that repeats only axes of size 1 of {x.shape}"
        raise ShapeError("expand", expected, tuple(shape), "Reshape first to add axes.")
    return Spec(tuple(shape), x.dtype)


def expand_vjp(g: Value, _y: Spec, _x: Spec, *, shape: tuple[int, ...]) -> Any:
    axes = tuple(i for i, size in enumerate(_x.shape) if size == 1 and shape[i] != 1)
    return reshape(sum_(g, axes=axes), shape=_x.shape)


@movement(
    infer=infer_expand,
    vjp=(expand_vjp,),
    batch=lambda batched, x, *, shape: expand(x, shape=(x.shape[0], *shape)),
    samples=[
        sample((2, 1, 3), shape=(2, 4, 3)),
        sample((1,), shape=(5,)),
        sample((1, 2), shape=(0, 2)),
        sample((), shape=()),
    ],
    error_samples=[
        refusal(ShapeError, "size 1", (2,), shape=(3,)),
        refusal(ShapeError, "size 1", (2,), shape=(2, 2)),
    ],
)
def expand(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """x repeated along its axes of size 1 to fill `shape`.

    Why: a product with ones would compute, and read memory that a stride of 0 saves."""
    return np.broadcast_to(x, shape)


def infer_pad(x: Spec, *, widths: tuple[tuple[int, ...], ...], value: float) -> Spec:
    if len(widths) != x.ndim or any(min(width) < 0 for width in widths):
        expected = f"(low, high, interior) of 0 or more for each axis of {x.shape}"
        raise ShapeError("pad", expected, tuple(widths), "Use slice to remove elements.")
    sizes = [sum(w[:2]) + size + max(size - 1, 0) * w[2] for size, w in zip(x.shape, widths)]
    return Spec(tuple(sizes), x.dtype)


def placed(x_shape: tuple[int, ...], widths: Any) -> tuple[slice, ...]:
    spread = [low + size + max(size - 1, 0) * gap for size, (low, _, gap) in zip(x_shape, widths)]
    return tuple(slice(w[0], stop, w[2] + 1) for stop, w in zip(spread, widths))


def pad_vjp(
    g: Value, _y: Spec, _x: Spec, *, widths: tuple[tuple[int, ...], ...], value: float
) -> Any:
    where = placed(_x.shape, widths)
    return slice_(
        g,
        starts=tuple(s.start for s in where),
        stops=tuple(s.stop for s in where),
        steps=tuple(s.step for s in where),
    )


@movement(
    infer=infer_pad,
    vjp=(pad_vjp,),
    jvp=(lambda t, y, x, *, widths, value: pad(t, widths=widths, value=0),),
    batch=lambda batched, x, *, widths, value: pad(x, widths=((0, 0, 0), *widths), value=value),
    samples=[
        sample((2, 3), widths=((1, 0, 0), (0, 2, 1)), value=0),
        sample((3,), widths=((1, 1, 2),), value=1),
        sample((0,), widths=((1, 1, 0),), value=0),
        sample((), widths=(), value=0),
    ],
    error_samples=[
        refusal(ShapeError, "0 or more", (2,), widths=((-1, 0, 0),), value=0),
        refusal(ShapeError, "each axis", (2,), widths=(), value=0),
    ],
)
def pad(x: Any, *, widths: tuple[tuple[int, ...], ...], value: float) -> np.ndarray:
    """x with `value` around it, and `interior` of them between neighbours, on each axis.

    Why: a scatter into a full value would need indices for every element."""
    shape = infer_pad(Spec(x.shape, from_numpy_dtype(x.dtype)), widths=widths, value=value).shape
    out = np.full(shape, value, x.dtype)
    out[placed(x.shape, widths)] = x
    return out


def infer_slice(
    x: Spec, *, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]
) -> Spec:
    if not len(starts) == len(stops) == len(steps) == x.ndim:
        expected = f"a start, stop and step for each axis of {x.shape}"
        fix = "Give one of each per axis."
        raise ShapeError("slice", expected, f"{starts}, {stops}, {steps}", fix)
    for size, start, stop, step in zip(x.shape, starts, stops, steps, strict=True):
        if not (0 <= start <= stop <= size and step >= 1):
            expected = f"0 <= start <= stop <= {size} and step >= 1"
            fix = "Clip the bounds; use flip for a negative step."
            raise ShapeError("slice", expected, f"{start}, {stop}, {step}", fix)
    sizes = (-(-(b - a) // s) for a, b, s in zip(starts, stops, steps, strict=True))
    return Spec(tuple(sizes), x.dtype)


def widths_around(
    shape: tuple[int, ...], sizes: Any, starts: Sequence[int], steps: Any
) -> tuple[Any, ...]:
    """The widths of the pad that puts a slice of sizes `sizes` back to its place in `shape`."""
    spans = [n + max(n - 1, 0) * (step - 1) for n, step in zip(sizes, steps, strict=True)]
    axes = zip(shape, spans, starts, steps, strict=True)
    return tuple((start, size - start - span, step - 1) for size, span, start, step in axes)


@movement(
    infer=infer_slice,
    vjp=(
        lambda g, _y, _x, *, starts, stops, steps: pad(
            g, widths=widths_around(_x.shape, g.shape, starts, steps), value=0
        ),
    ),
    batch=lambda batched, x, *, starts, stops, steps: slice_(
        x, starts=(0, *starts), stops=(x.shape[0], *stops), steps=(1, *steps)
    ),
    samples=[
        sample((5, 4), starts=(1, 0), stops=(5, 3), steps=(2, 1)),
        sample((4,), starts=(2,), stops=(2,), steps=(1,)),
        sample((6,), starts=(1,), stops=(6,), steps=(3,)),
        sample((), starts=(), stops=(), steps=()),
    ],
    error_samples=[
        refusal(ShapeError, "stop <= 2", (2,), starts=(0,), stops=(3,), steps=(1,)),
        refusal(ShapeError, "per axis", (), starts=(0,), stops=(), steps=()),
    ],
)
def slice_(
    x: np.ndarray, *, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]
) -> np.ndarray:
    """x[start:stop:step] on every axis, with steps of 1 or more.

    Why: a gather would need an index for every element."""
    return x[tuple(map(slice, starts, stops, steps))]


def infer_flip(x: Spec, *, axes: tuple[int, ...]) -> Spec:
    check_axes("flip", axes, x.ndim)
    return x


@movement(
    infer=infer_flip,
    vjp=(lambda g, _y, _x, *, axes: flip(g, axes=axes),),
    batch=lambda batched, x, *, axes: flip(x, axes=tuple(axis + 1 for axis in axes)),
    samples=[sample((2, 3), axes=(1,)), sample((2, 3), axes=(0, 1)), sample((0,), axes=(0,))],
    error_samples=[refusal(ShapeError, "axis", (2,), axes=(1,))],
)
def flip(x: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
    """x with the order along `axes` reversed.

    Why: slice keeps to positive steps, so that its gradient is one pad."""
    return np.flip(x, axes)


def infer_concatenate(*xs: Spec, axis: int) -> Spec:
    if not xs:
        raise ShapeError("concatenate", "at least one operand", "none", "Give one or more.")
    first = xs[0]
    axis = check_axis("concatenate", axis, first.ndim)
    for x in xs:
        if x.dtype is not first.dtype:
            got = f"{first.dtype.name} and {x.dtype.name}"
            raise DTypeError("concatenate", "operands of one dtype", got, "Cast one of them.")
        if x.shape[:axis] != first.shape[:axis] or x.shape[axis + 1 :] != first.shape[axis + 1 :]:
            expected = f"equal shapes but for axis {axis}"
            fix = "Make the other axes equal."
            raise ShapeError("concatenate", expected, f"{first.shape} and {x.shape}", fix)
    total = sum(x.shape[axis] for x in xs)
    return Spec((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)


def begin_of(i: int, xs: tuple[Spec | Value, ...], axis: int) -> int:
    return sum(x.shape[axis] for x in xs[:i])


def concatenate_vjp(i: int) -> Callable[..., Any]:
    return lambda g, _y, *_xs, axis: section(
        g, axis, begin_of(i, _xs, axis), begin_of(i + 1, _xs, axis)
    )


def concatenate_jvp(i: int) -> Callable[..., Any]:
    def jvp(t, y, *xs, axis):
        starts = [begin_of(i, xs, axis) if along == axis else 0 for along in range(t.ndim)]
        return pad(t, widths=widths_around(y.shape, t.shape, starts, (1,) * t.ndim), value=0)

    return jvp


@movement(
    infer=infer_concatenate,
    vjp=concatenate_vjp,
    jvp=concatenate_jvp,
    batch=lambda batched, *xs, axis: concatenate(*batch_together(batched, xs), axis=axis + 1),
    samples=[
        sample((2, 3), (1, 3), axis=0),
        sample((2,), (0,), (3,), axis=0),
        sample((2, 1), axis=1),
    ],
    error_samples=[
        refusal(ShapeError, "but for axis 0", (2, 3), (2, 4), axis=0),
        refusal(DTypeError, "one dtype", (2,), Arr((2,), dtype="int8"), axis=0),
        refusal(ShapeError, "at least one", axis=0),
    ],
)
def concatenate(*xs: Any, axis: int) -> np.ndarray:
    """The operands joined along an existing axis.

    Why: a sum of padded operands would read and add zeros."""
    return np.concatenate(xs, axis=axis)
