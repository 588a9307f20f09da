"""Operators on numbers of 8 bits, and between them and real ones."""

import math
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.base.errors import ShapeError
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.operators.windows import CONVOLUTIONS, ImageWindows, bordered, spatial
from glasshouse.onnx.table import operator, place
from glasshouse.ops.contract import conv


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


def aligned(zero: Any, ndim: int, axis: int) -> Any:
    """A zero point in int32 beside numbers of `ndim` axes: one number, or one for each along an
    axis."""
    if zero is None or zero.size == 1:
        return None if zero is None else zero.astype("int32").reshape(())
    if zero.ndim > 1:
        return zero.astype("int32")
    shape = [1] * ndim
    shape[axis] = -1
    return zero.astype("int32").reshape(tuple(shape))


def signed(x: Any, zero: Any) -> tuple[Any, Any]:
    """Codes in int8, and their zero point: the difference stays."""
    if x.dtype == "int8":
        return x, zero
    shifted = (x.astype("int32") - 128).astype("int8")
    return shifted, gh.asarray(-128, dtype="int32") if zero is None else zero - 128


def total(x: Any, axis: Any) -> Any:
    return gh.sum(x.astype("int32"), axis=axis, keepdims=True, dtype="int32")


def product_and_sums(a: Any, b: Any, wants_sums: bool) -> tuple[Any, Any]:
    """(a @ b, the sums of b's columns): with a row of ones below those of a, b is read once."""
    if b.ndim > 2:
        return gh.matmul(a.astype("int32"), b.astype("int32")), total(b, -2) if wants_sums else None
    rows = a.reshape((-1, a.shape[-1]))
    count = rows.shape[0]
    if wants_sums:
        rows = gh.concat([rows, gh.ones((1, rows.shape[1]), dtype=rows.dtype)])
    y = gh.matmul(rows.astype("int32"), b.astype("int32"))
    return y[:count].reshape((*a.shape[:-1], b.shape[-1])), y[count:] if wants_sums else None


@operator("MatMulInteger")
def integer_product(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """(a - a_zero) @ (b - b_zero), by a product of the codes and sums of their rows and columns."""
    if min(a.ndim, b.ndim) < 2:
        parts = ((a, a_zero), (b, b_zero))
        a, b = (x.astype("int32") - (0 if z is None else z.astype("int32")) for x, z in parts)
        return gh.matmul(a, b)
    a_zero, (b, b_zero) = aligned(a_zero, a.ndim, -2), signed(b, aligned(b_zero, b.ndim, -1))
    y, sums = product_and_sums(a, b, a_zero is not None)
    y = y if a_zero is None else y - a_zero * sums
    y = y if b_zero is None else y - b_zero * total(a, -1)
    return y if a_zero is None or b_zero is None else y + a.shape[-1] * a_zero * b_zero


@operator("ConvInteger", static=(3,))
def integer_convolution(
    x: Any,
    weight: Any,
    x_zero: Any = None,
    w_zero: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Any:
    """The convolution of (x - x_zero) with (w - w_zero), by one of the codes, and sums of them."""
    n = spatial(x, CONVOLUTIONS)
    windows = ImageWindows(x.shape[2:], weight.shape[2:], strides, pads, dilations, auto_pad)
    if isinstance(w_zero, np.ndarray):
        w_zero = gh.asarray(w_zero) if w_zero.any() else None
    weight, w_zero = signed(weight, aligned(w_zero, weight.ndim, 0))
    if x_zero is not None:
        x_zero = x_zero.astype("int32").reshape(())
        if any(map(any, windows.ends())):  # what is added around x stands for zeros
            zero = x_zero.astype(x.dtype)
            x = bordered(x - zero, windows.ends()) + zero  # of 8 bits, where sums wrap around
    else:
        x = bordered(x, windows.ends())
    check_conv_sizes(x, weight, group)
    attrs = {"stride": windows.strides, "dilation": windows.dilations, "groups": group,
             "padding": ((0, 0),) * n}  # fmt: skip
    y = conv(x.astype("int32"), weight.astype("int32"), **attrs)
    each = (-1, *(1,) * n)
    axes = tuple(range(1, n + 2))
    y = y if x_zero is None else y - x_zero * total(weight, axes).reshape(each)
    if w_zero is None:
        return y
    ones = gh.ones((group, *weight.shape[1:]), dtype="int8")
    near = conv(x.astype("int32"), ones.astype("int32"), **attrs)  # (N, group, *windows)
    near = gh.repeat(near, weight.shape[0] // group, axis=1)
    w_zero = w_zero.reshape(each) if w_zero.ndim else w_zero
    y = y - w_zero * near
    return y if x_zero is None else y + math.prod(weight.shape[1:]) * x_zero * w_zero


def check_conv_sizes(x: Any, weight: Any, group: int) -> None:
    """Whether weights fit an image, in ONNX's words."""
    if group < 1 or x.shape[1] != weight.shape[1] * group or weight.shape[0] % group:
        got = f"{x.shape} and {weight.shape} in {group} groups"
        raise ShapeError("onnx", "an image with the channels of the weight", got, "Mend the node.")


def requantized(whole: Any, scale: Any, zero: Any) -> Any:
    return rounded(whole.astype("float32") * scale, zero, zero.dtype)


@operator("QLinearMatMul")
def quantized_product(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any
) -> Any:
    a_scale, b_scale, scale = (x.astype("float32") for x in (a_scale, b_scale, scale))
    rows = a_scale.reshape((*a_scale.shape, 1)) if a_scale.ndim == 1 else a_scale
    return requantized(integer_product(a, b, a_zero, b_zero), rows * b_scale / scale, zero)


@operator("QLinearConv", static=(5,))
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
