"""Convolutions and their gradients."""

from typing import Any

import glasshouse as gh
from glasshouse import nn
from glasshouse.dispatch.value import Value
from glasshouse.nn.functional.conv import on_batch
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.movement import slice_
from glasshouse.torch.aten.shape import reshape, spread
from glasshouse.torch.aten.table import aten


def options_of(w: Value, stride: Any, padding: Any, dilation: Any, groups: int) -> dict[Any, Any]:
    count = w.ndim - 2
    return {
        "stride": spread(stride, count),
        "padding": tuple((p, p) for p in spread(padding, count)),
        "dilation": spread(dilation, count),
        "groups": groups,
    }


@aten("convolution")
def convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    count = w.ndim - 2

    def convolve_batch(x: Value) -> Value:
        if transposed:
            return getattr(nn.functional, f"conv_transpose{count}d")(
                x,
                w,
                bias,
                spread(stride, count),
                spread(padding, count),
                spread(output_padding, count),
                groups,
                spread(dilation, count),
            )
        y = conv(x, w, **options_of(w, stride, padding, dilation, groups))
        return y if bias is None else y + reshape(bias, (-1, *(1,) * count))

    return on_batch(x, count, convolve_batch)


def without_more_steps(
    g: Value, output_padding: Any, options: dict[Any, Any]
) -> tuple[Value, dict[Any, Any]]:
    """(g, options) whose convolution has the size of a transposed convolution's input: where its
    result was padded by a stride or more, there is room for extra steps."""
    paddings = []
    pads = spread(output_padding, g.ndim - 2)
    for axis, (pad, stride) in enumerate(zip(pads, options["stride"], strict=True), start=2):
        before, after = options["padding"][axis - 2]
        room = pad // stride * stride
        paddings.append((before, max(after - room, 0)))
        if room > after:
            g = slice_(g, axis, 0, g.shape[axis] - (room - after))
    return g, {**options, "padding": tuple(paddings)}


@aten("convolution_backward")
def convolution_backward(
    g: Tensor,
    x: Tensor,
    w: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> tuple[Tensor | None, ...]:
    """The gradients that `mask` asks for, of data, weights and bias."""
    options = options_of(w, stride, padding, dilation, groups)
    grad_x = grad_w = grad_bias = None
    g_whole = g
    if transposed:  # the convolution of g: data and result change places
        g, options = without_more_steps(g, output_padding, options)
        if mask[0]:
            grad_x = conv(g, w, **options)
        if mask[1]:
            grad_w = conv_weight_grad(g, x, shape=w.shape[2:], **options)
    else:
        if mask[0]:
            grad_x = conv_data_grad(g, w, shape=x.shape[2:], **options)
        if mask[1]:
            grad_w = conv_weight_grad(x, g, shape=w.shape[2:], **options)
    if mask[2]:
        grad_bias = gh.sum(g_whole, axis=(0, *range(2, g.ndim)))
    return grad_x, grad_w, grad_bias
