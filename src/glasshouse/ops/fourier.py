"""Discrete Fourier transforms, without a scale: y_k = Σ_n x_n exp(∓2πi·kn/N).

A transform is linear and its matrix symmetric, so its vjp is the transform the other way round.
That of a real signal keeps half of the frequencies; its rules count those that stand for two twice.

Source: Van Loan 1992, "Computational Frameworks for the Fast Fourier Transform"."""

import math
from typing import Any

import numpy as np

from glasshouse.base import DType, DTypeError, OptionError, ShapeError, Spec
from glasshouse.base.dtype import complex_dtype, int64, real_dtype
from glasshouse.dispatch.primitive import DTYPE_GROUPS, LINEAR, card, refusal, sample
from glasshouse.dispatch.value import broadcast_to, cast, full, reshape
from glasshouse.ops.checks import check_integer
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota

COMPLEX = tuple(d for d in DTYPE_GROUPS["linalg"] if d.is_complex)
REAL = tuple(d for d in DTYPE_GROUPS["linalg"] if d.is_floating)


def check_transform(where_: str, x: Spec, dtypes: tuple[DType, ...], axes: tuple[int, ...]) -> None:
    if x.dtype not in dtypes:
        names = " or ".join(d.name for d in dtypes)
        raise DTypeError(where_, f"a dtype of {names}", x.dtype.name, "Cast it.")
    if any(not 0 <= axis < x.ndim for axis in axes) or len(set(axes)) != len(axes):
        raise ShapeError(where_, f"axes of shape {x.shape}, each once", axes, "Count from 0.")
    if any(x.shape[axis] == 0 for axis in axes):
        raise ShapeError(where_, "one element or more an axis", x.shape, "Give n.")


def resized(x: Spec, axis: int, size: int, dtype: DType) -> Spec:
    return Spec((*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype)


def transform_flops(shape: Any, axes: Any, each: float) -> int:
    """`each`·N·log2(N) for each transform of N elements, one axis after the other."""
    size = math.prod(shape)
    return round(sum(each * size * math.log2(shape[axis]) for axis in axes))


def infer_fft(x: Spec, *, axes: tuple[int, ...], inverse: bool) -> Spec:
    check_transform("fft", x, COMPLEX, axes)
    return x


@card(
    "fourier",
    infer=infer_fft,
    vjp=(lambda g, _y, _x, *, axes, inverse: fft(g, axes=axes, inverse=not inverse),),
    jvp=LINEAR,
    batch=lambda batched, x, *, axes, inverse: fft(
        x, axes=tuple(axis + 1 for axis in axes), inverse=inverse
    ),
    flops=lambda x, *, axes, inverse: transform_flops(x.shape, axes, 5),
    complex_flops=1,
    samples=[
        sample((4,), axes=(0,), inverse=False),
        sample((2, 3, 5), axes=(1, 2), inverse=True),
        sample((2, 1), axes=(1,), inverse=False),
        sample((0, 2), axes=(1,), inverse=False),
    ],
    error_samples=[
        refusal(DTypeError, "complex64 or complex128", (2,), axes=(0,), inverse=False),
        refusal(ShapeError, "axes of shape", (2,), on="complex64", axes=(1,), inverse=False),
        refusal(ShapeError, "one element", (0,), on="complex64", axes=(0,), inverse=False),
    ],
    dtypes=COMPLEX,
    traits=("linear",),
    source="Van Loan 1992",
)
def fft(x: np.ndarray, *, axes: tuple[int, ...], inverse: bool) -> np.ndarray:
    """The discrete Fourier transform of complex x along the axes, without a scale; `inverse`: with
    exp(+2πi·kn/N).

    Why: as a product with a matrix it would take N² in place of N log N operations."""
    if inverse:
        return np.fft.ifftn(x, axes=axes, norm="forward")
    return np.fft.fftn(x, axes=axes)


def frequencies(size: int) -> int:
    """How many frequencies a real signal of `size` elements has."""
    return size // 2 + 1


def weighted(x: Any, axis: int, size: int, inner: float) -> Any:
    """x with the frequencies that stand for two times `inner`: all but 0 and, of even sizes, the
    last."""
    number = iota(size=x.shape[axis], dtype=int64)
    last = size // 2 if size % 2 == 0 else 0
    lone = (number == 0) | (number == last)
    dtype = real_dtype(x.dtype)
    weight = where(lone, full(lone.shape, 1, dtype), full(lone.shape, inner, dtype))
    weight = reshape(weight, (weight.size, *(1,) * (x.ndim - 1 - axis)))
    return x * broadcast_to(cast(weight, x.dtype), x.shape)


def infer_rfft(x: Spec, *, axis: Any) -> Spec:
    check_transform("rfft", x, REAL, (axis,))
    return resized(x, axis, frequencies(x.shape[axis]), complex_dtype(x.dtype))


def rfft_vjp(g: Any, _y: Any, _x: Any, *, axis: Any) -> Any:
    size = _x.shape[axis]
    return irfft(weighted(g, axis, size, 0.5), axis=axis, size=size)


@card(
    "fourier",
    infer=infer_rfft,
    vjp=(rfft_vjp,),
    jvp=LINEAR,
    batch=lambda batched, x, *, axis: rfft(x, axis=axis + 1),
    flops=lambda x, *, axis: transform_flops(x.shape, (axis,), 2.5),
    samples=[
        sample((6,), axis=0),
        sample((2, 5, 3), axis=1),
        sample((2, 1), axis=1),
        sample((0, 2), axis=1),
    ],
    error_samples=[
        refusal(DTypeError, "float32 or float64", (2,), on="complex64", axis=0),
        refusal(ShapeError, "axes of shape", (2,), axis=1),
        refusal(ShapeError, "one element", (0,), axis=0),
    ],
    dtypes=REAL,
    traits=("linear",),
    source="Van Loan 1992",
)
def rfft(x: Any, *, axis: Any) -> Any:
    """The frequencies 0 to N // 2 of the discrete Fourier transform of real x along an axis; the
    others are their conjugates.

    Why: half of the work and of the memory of the complex transform."""
    return np.fft.rfft(x, axis=axis)


def infer_irfft(x: Spec, *, axis: Any, size: Any) -> Spec:
    check_transform("irfft", x, COMPLEX, (axis,))
    check_integer("irfft", "size", size, least=1)
    if x.shape[axis] != frequencies(size):
        expected = f"{frequencies(size)} frequencies for size {size}"
        fix = "Cut or pad x first, as gh.fft.irfft does."
        raise OptionError("irfft", expected, f"shape {x.shape}, axis {axis}", fix)
    return resized(x, axis, size, real_dtype(x.dtype))


def irfft_vjp(g: Any, _y: Any, _x: Any, *, axis: Any, size: Any) -> Any:
    return weighted(rfft(g, axis=axis), axis, size, 2)


@card(
    "fourier",
    infer=infer_irfft,
    vjp=(irfft_vjp,),
    jvp=LINEAR,
    batch=lambda batched, x, *, axis, size: irfft(x, axis=axis + 1, size=size),
    flops=lambda x, *, axis, size: transform_flops(
        resized(x, axis, size, x.dtype).shape, (axis,), 2.5
    ),
    complex_flops=1,
    samples=[
        sample((4,), axis=0, size=6),
        sample((2, 3, 3), axis=1, size=5),
        sample((2, 1), axis=1, size=1),
    ],
    error_samples=[
        refusal(DTypeError, "complex64 or complex128", (2,), axis=0, size=2),
        refusal(ShapeError, "axes of shape", (2,), on="complex64", axis=1, size=2),
        refusal(OptionError, "3 frequencies", (2,), on="complex64", axis=0, size=4),
    ],
    dtypes=COMPLEX,
    traits=("linear",),
    source="Van Loan 1992",
)
def irfft(x: Any, *, axis: Any, size: Any) -> Any:
    """The real signal of `size` elements with the frequencies x along an axis, without a scale;
    the imaginary part of frequency 0 and, of even sizes, of the last is not read.

    Why: half of the work and of the memory of the complex transform."""
    return np.fft.irfft(x, n=size, axis=axis, norm="forward")
