"""Layers of 8 bits in ONNX's own words: QuantizeLinear and DequantizeLinear around a product where
the scale of inputs is known, DynamicQuantizeLinear before a product of integers where a call has
one. Where each row or sample has its own, the parts of these functions are written."""

from math import prod
from typing import Any

import numpy as np

from glasshouse.base.dtype import float32, int32, uint8
from glasshouse.onnx.writing.layers import operands_of, transposed
from glasshouse.onnx.writing.wholes import whole
from glasshouse.onnx.writing.writer import GraphWriter, WrittenValue

__all__: list[str] = []

LAYER = ("input", "codes", "factor", "sums", "bias", "scale", "zero")


def linear_fits(*, input: Any, scale: Any, axes: Any, **_: Any) -> Any:
    """Inputs that have one scale and zero."""
    rows = prod(input.shape[:-1])
    is_one = scale is not None or axes == (0, 1) or rows == 1
    return {} if is_one and input.ndim > 1 else None


def convolution_fits(*, input: Any, scale: Any, widths: Any, options: Any, **_: Any) -> Any:
    """Images that have one scale and zero."""
    if scale is None and input.shape[0] != 1:
        return None
    stride, dilation, groups = options
    pads = [*(low for low, _ in widths), *(high for _, high in widths)]
    return {"strides": stride, "dilations": dilation, "group": groups, "pads": tuple(pads)}


def around(w: GraphWriter, x: WrittenValue, scale: WrittenValue, zero: WrittenValue) -> str:
    """Inputs as the numbers that their codes stand for. The codes are uint8, ours and 128: an
    optimizer of onnxruntime changes int8 to uint8, and breaks the nodes that another one added."""
    array = w.array_of(zero.name)
    if array is None:
        at = w.cast(w.node("Add", [w.cast(zero.name, int32), w.constant(np.int32(128))]), uint8)
    else:
        at = w.constant((array.astype(np.int32) + 128).astype(np.uint8))
    codes = w.node("QuantizeLinear", [w.whole(x), scale.name, at])
    return w.node("DequantizeLinear", [codes, scale.name, at])


def by_channel(w: GraphWriter, x: WrittenValue, axes: int) -> str:
    """Numbers of channels, before `axes` spatial axes."""
    return w.node("Reshape", [x.name, w.integers(-1, *[1] * axes)]) if axes else x.name


@whole("integer_linear", *LAYER, fits=linear_fits)
def integer_linear(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """x Wᵀ + b of codes."""
    x, codes, factor, _, bias, scale, zero = operands_of(call, xs)
    like, biases = call.results[0], [] if bias is None else [bias.name]
    if scale is not None and len(x.shape) == 2:
        weight = w.node("DequantizeLinear", [codes.name, factor.name], axis=0)
        inputs = [around(w, x, scale, zero), weight, *biases]
        return w.value(w.node("Gemm", inputs, transB=1), like)
    if scale is not None:
        weight = w.node("DequantizeLinear", [transposed(w, codes), factor.name], axis=1)
        name = w.node("MatMul", [around(w, x, scale, zero), weight])
    else:
        read, own, at = w.node("DynamicQuantizeLinear", [w.whole(x)], 3)
        name = w.cast(w.node("MatMulInteger", [read, transposed(w, codes), at]), float32)
        name = w.node("Mul", [name, w.node("Mul", [own, factor.name])])
    return w.value(w.node("Add", [name, *biases]) if biases else name, like)


@whole("integer_convolution", *LAYER, fits=convolution_fits)
def integer_convolution(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """A convolution of codes; their padding is the code of 0."""
    x, codes, factor, _, bias, scale, zero = operands_of(call, xs)
    like, axes = call.results[0], len(x.shape) - 2
    options = {key: n for key, n in call.attrs.items() if key != "given"}
    options["kernel_shape"] = codes.shape[2:]
    if scale is not None:
        weight = w.node("DequantizeLinear", [codes.name, factor.name], axis=0)
        inputs = [around(w, x, scale, zero), weight, *([] if bias is None else [bias.name])]
        return w.value(w.node("Conv", inputs, **options), like)
    read, own, at = w.node("DynamicQuantizeLinear", [w.whole(x)], 3)
    name = w.cast(w.node("ConvInteger", [read, codes.name, at], **options), float32)
    name = w.node("Mul", [name, w.node("Mul", [own, by_channel(w, factor, axes)])])
    if bias is not None:
        name = w.node("Add", [name, by_channel(w, bias, axes)])
    return w.value(name, like)
