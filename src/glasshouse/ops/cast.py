"""Primitives that change the dtype, and the composites over complex parts that rules need."""

from typing import Any

import numpy as np

from glasshouse.base import DType, DTypeError, ShapeError, Spec
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import bool_, complex128, float16, float32, int64, real_dtype
from glasshouse.dispatch import (
    LINEAR,
    Arr,
    KernelText,
    Value,
    card,
    find,
    refusal,
    reshape,
    sample,
    zeros,
)


def infer_cast(x: Spec, *, dtype: DType) -> Spec:
    if x.dtype.is_complex and not (dtype.is_complex or dtype.is_bool):
        fix = "Take gh.real, gh.imag or gh.abs first."
        raise DTypeError("cast", f"a complex or boolean target for {x.dtype.name}", dtype.name, fix)
    return Spec(x.shape, dtype)


def cast_vjp(g: Value, _y: Spec, _x: Spec, **_: Any) -> Any:
    if g.dtype.is_complex and not _x.dtype.is_complex:
        g = real(g)
    return cast(g, dtype=_x.dtype)


def cast_text(operands: tuple[DType, ...], result: DType) -> str:
    if result.is_bool:
        return "(uint8_t)({x} != 0)"
    if operands[0].is_bool and result.is_floating:
        # A loop that stores a comparison and converts it too stays scalar with gcc.
        return "{x} ? ({type})1 : ({type})0"
    return "({type}){x}"


@card(
    "elementwise",
    infer=infer_cast,
    vjp=(cast_vjp,),
    jvp=LINEAR,
    batch=lambda batched, x, *, dtype: cast(x, dtype=dtype),
    flops=lambda x, **_: x.size,
    samples=[
        sample(Arr((2, 3), 0, 9), dtype=complex128),
        sample(Arr((3,), dtype="float64"), dtype=float32),
        sample(Arr((2,), 0, 9, dtype="float32"), dtype=int64),
        sample(Arr((0, 2), dtype="int32"), dtype=float16),
        sample(Arr((), dtype="complex64"), dtype=bool_),
    ],
    error_samples=[refusal(DTypeError, "gh.real", (2,), on="complex64", dtype=float32)],
    traits=("elementwise", "linear"),
    kernel=KernelText(cast_text, cost=1, of_complex=cast_text),
)
def cast(x: Any, *, dtype: DType) -> Any:
    """x converted to `dtype`; floats to integers round toward 0.

    Why: every dtype is reached through it."""
    return x.astype(dtype.np)


def infer_bitcast(x: Spec, *, dtype: DType) -> Spec:
    if x.dtype.is_complex and dtype is real_dtype(x.dtype):
        return Spec((*x.shape, 2), dtype)
    if dtype.is_complex and x.dtype is real_dtype(dtype):
        if x.shape[-1:] != (2,):
            expected = "a last axis of 2 (real, imaginary)"
            fix = "Stack the parts along a new last axis."
            raise ShapeError("bitcast", expected, f"shape {x.shape}", fix)
        return Spec(x.shape[:-1], dtype)
    if x.dtype.itemsize != dtype.itemsize:
        fix = "Use cast to convert values."
        raise DTypeError("bitcast", "dtypes of equal size", f"{x.dtype.name} and {dtype.name}", fix)
    return Spec(x.shape, dtype)


def bitcast_vjp(g: Value, _y: Spec, _x: Spec, *, dtype: DType) -> Any:
    """The inverse view between complex and real; other reinterpretations have no derivative."""
    return bitcast(g, dtype=_x.dtype) if _x.dtype.is_complex != dtype.is_complex else None


def bitcast_jvp(t: Value, y: Value, x: Value, *, dtype: DType) -> Any:
    return bitcast(t, dtype=dtype) if x.dtype.is_complex != dtype.is_complex else None


@card(
    "movement",
    infer=infer_bitcast,
    vjp=(bitcast_vjp,),
    jvp=(bitcast_jvp,),
    batch=lambda batched, x, *, dtype: bitcast(x, dtype=dtype),
    flops=lambda x, **_: 0,
    samples=[
        sample(Arr((2, 3), dtype="complex64"), dtype=float32),
        sample(Arr((2, 2), dtype="float64"), dtype=complex128),
        sample(Arr((3,), dtype="float32"), dtype=dtypes.uint32),
        sample(Arr((), 0, 9, dtype="uint32"), dtype=float32),
    ],
    error_samples=[
        refusal(DTypeError, "equal size", (2,), dtype=int64),
        refusal(ShapeError, "last axis", Arr((3,), dtype="float64"), dtype=complex128),
    ],
)
def bitcast(x: np.ndarray, *, dtype: DType) -> np.ndarray:
    """The same bits read as `dtype`; complex to real adds a last axis (real, imaginary), and back.

    Why: the only way to a float's bits, and to the parts of a complex number."""
    if x.dtype.kind == "c" and dtype.kind == "float":
        return np.stack([x.real, x.imag], axis=-1)
    if dtype.kind == "complex" and x.dtype.kind == "f":
        out = np.empty(x.shape[:-1], dtype.np)
        out.real, out.imag = x[..., 0], x[..., 1]
        return out
    return x.view(dtype.np)


def parts(x: Value) -> Any:
    """The real and imaginary part of complex x along a new last axis."""
    return bitcast(x, dtype=real_dtype(x.dtype))


def part(x: Value, index: int) -> Any:
    bounds = {"starts": (*(0,) * x.ndim, index), "stops": (*x.shape, index + 1)}
    return reshape(find("slice")(parts(x), **bounds, steps=(1,) * (x.ndim + 1)), x.shape)


def real(x: Value) -> Any:
    """The real part of x, in its real dtype; x itself if it is real."""
    return part(x, 0) if x.dtype.is_complex else x


def imag(x: Value) -> Any:
    """The imaginary part of x, in its real dtype; zeros if it is real."""
    return part(x, 1) if x.dtype.is_complex else zeros(x)


def conj(x: Value) -> Any:
    """The complex conjugate of x; x itself if it is real."""
    if not x.dtype.is_complex:
        return x
    return bitcast(parts(x) * np.array([1, -1], real_dtype(x.dtype).np), dtype=x.dtype)


def make_complex(re: Value, im: Value) -> Any:
    """re + i·im, of real values of one spec."""
    pair = [reshape(p, (*p.shape, 1)) for p in (re, im)]
    return bitcast(find("concatenate")(*pair, axis=re.ndim), dtype=dtypes.complex_dtype(re.dtype))
