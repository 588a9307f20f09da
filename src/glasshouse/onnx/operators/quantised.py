"""Operators on numbers of 8 bits, and between them and real ones."""

import math
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.operators.windows import convolve
from glasshouse.onnx.table import operator, place


def spread(values: Any, x: Any, axis: int, block: int) -> Any:
    """Scales or zero points of one tensor, an axis, or blocks along it, beside x's elements."""
    if values is None or values.ndim == 0 or (values.size == 1 and values.ndim < x.ndim):
        return values if values is None else values.reshape(())
    axis = place(axis, x.ndim)
    if values.ndim == 1 and not block:
        shape = [1] * x.ndim
        shape[axis] = -1
        return values.reshape(tuple(shape))
    repeats = block or -(-x.shape[axis] // values.shape[axis])
    whole = gh.repeat(values, repeats, axis=axis)
    return whole[(slice(None),) * axis + (slice(0, x.shape[axis]),)]


def rounded(x: Any, zero: Any, dtype: Any) -> Any:
    """The nearest whole numbers from a zero point on, within a dtype."""
    limits = np.iinfo(dtype.np)
    whole = gh.round(x)
    whole = whole if zero is None else whole + zero.astype(whole.dtype)
    return gh.clip(whole, limits.min, limits.max).astype(dtype)


@operator("QuantizeLinear")
def quantize(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    precision: int = 0,
) -> Any:
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype or 2)
    wide = x.astype("float32") / spread(scale, x, axis, block_size).astype("float32")
    return rounded(wide, spread(zero, x, axis, block_size), dtype)


@operator("DequantizeLinear")
def dequantize(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    whole = x.astype("float32")
    if zero is not None:
        whole = whole - spread(zero, x, axis, block_size).astype("float32")
    return (whole * spread(scale, x, axis, block_size).astype("float32")).astype(dtype)


@operator("DynamicQuantizeLinear")
def quantize_by_range(x: Any) -> Any:
    """x in 8 bits from its smallest to its largest value, with the scale and the zero point."""
    low = gh.minimum(gh.amin(x), gh.zeros((), dtype=x.dtype))
    high = gh.maximum(gh.amax(x), gh.zeros((), dtype=x.dtype))
    scale = (high - low) / 255
    scale = gh.where(scale == 0, gh.ones((), dtype=x.dtype), scale)
    zero = gh.clip(gh.round(-low / scale), 0, 255)
    return gh.clip(gh.round(x / scale) + zero, 0, 255).astype("uint8"), scale, zero.astype("uint8")


def centred(x: Any, zero: Any, axis: int | None = None) -> Any:
    """Whole numbers of 32 bits, counted from their zero point."""
    x = x.astype("int32")
    if zero is None:
        return x
    zero = zero.astype("int32")
    if zero.ndim == 1 and zero.size > 1 and axis is not None:
        shape = [1] * x.ndim
        shape[axis] = -1
        zero = zero.reshape(tuple(shape))
    elif zero.size == 1:
        zero = zero.reshape(())
    return x - zero


@operator("MatMulInteger")
def integer_product(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    a, b = centred(a, a_zero, -2), centred(b, b_zero, -1)
    return exact(gh.matmul, a, b, a.shape[-1])


def exact(function: Any, a: Any, b: Any, length: int) -> Any:
    """A product of whole numbers of at most 9 bits, by real ones where these hold its sums."""
    dtype = "float32" if length < 1 << 6 else "float64"  # sums below 2^24, or 2^53
    return function(a.astype(dtype), b.astype(dtype)).astype("int32")


@operator("ConvInteger")
def integer_convolution(
    x: Any, weight: Any, x_zero: Any = None, w_zero: Any = None, **attributes: Any
) -> Any:
    x, weight = centred(x, x_zero), centred(weight, w_zero, 0)
    length = math.prod(weight.shape[1:])
    return exact(lambda a, b: convolve(a, b, **attributes), x, weight, length)


def requantized(whole: Any, scale: Any, zero: Any) -> Any:
    return rounded(whole.astype("float32") * scale, zero, zero.dtype)


@operator("QLinearMatMul")
def quantized_product(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any
) -> Any:
    a_scale, b_scale, scale = (x.astype("float32") for x in (a_scale, b_scale, scale))
    rows = a_scale.reshape((*a_scale.shape, 1)) if a_scale.ndim == 1 else a_scale
    return requantized(integer_product(a, b, a_zero, b_zero), rows * b_scale / scale, zero)


@operator("QLinearConv")
def quantized_convolution(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    weight: Any,
    w_scale: Any,
    w_zero: Any,
    scale: Any,
    zero: Any,
    bias: Any = None,
    **attributes: Any,
) -> Any:
    whole = integer_convolution(x, weight, x_zero, w_zero, **attributes)
    shape = (-1, *(1,) * (x.ndim - 2))
    whole = whole if bias is None else whole + bias.reshape(shape)
    factor = x_scale * (w_scale.reshape(shape) if w_scale.size > 1 else w_scale) / scale
    return requantized(whole, factor, zero)
