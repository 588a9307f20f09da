"""Convolutions and their gradients."""

import glasshouse as gh
from glasshouse import nn
from glasshouse.dispatch.value import Value
from glasshouse.nn.functional.conv import on_batch
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.torch.aten.shape import reshape, spread
from glasshouse.torch.table import aten


def options_of(w: Value, stride, padding, dilation, groups: int) -> dict:
    count = w.ndim - 2
    return {
        "stride": spread(stride, count),
        "padding": tuple((p, p) for p in spread(padding, count)),
        "dilation": spread(dilation, count),
        "groups": groups,
    }


@aten("convolution")
def convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
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


@aten("convolution_backward")
def convolution_backward(
    g, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
):
    """The gradients that `mask` asks for, of data, weights and bias."""
    options = options_of(w, stride, padding, dilation, groups)
    grad_x = grad_w = grad_bias = None
    if transposed:  # the convolution of g: data and result change places
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
        grad_bias = gh.sum(g, axis=(0, *range(2, g.ndim)))
    return grad_x, grad_w, grad_bias
