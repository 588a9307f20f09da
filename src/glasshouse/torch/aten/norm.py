"""Normalisations and their gradients. Statistics of narrow floats are float32."""

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.dispatch.value import Value, cast, full
from glasshouse.nn.functional.norm import moments
from glasshouse.torch.aten.reduce import wide
from glasshouse.torch.aten.shape import reshape
from glasshouse.torch.aten.table import aten

FLOAT64 = as_dtype("float64")  # for statistics of a channel, as in eager


def along(vector: Value | None, x: Value) -> Value | None:
    """One value a channel, over (N, C, ...)."""
    return None if vector is None else reshape(wide(vector), (-1, *(1,) * (x.ndim - 2)))


def affine(y: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


# -- over a batch -----------------------------------------------------------------------------


def over_batch(x: Value) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def scale_of(var: Value, eps: float) -> Value:
    """1 / standard deviation, in float64: its error affects all elements of a channel."""
    return gh.rsqrt(cast(var, FLOAT64) + eps)


def scaled(x, centred, var, weight, bias, eps):
    """(centred / standard deviation · weight + bias in the dtype of x, 1 / standard deviation)."""
    scale = scale_of(var, eps)
    factor = scale if weight is None else scale * cast(weight, FLOAT64)
    y = affine(centred * along(cast(factor, var.dtype), x), None, along(bias, x))
    return cast(y, x.dtype), cast(scale, var.dtype)


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(x, weight, bias, mean, var, training, momentum, eps):
    """(y, mean, 1 / standard deviation, new running mean, new running variance)."""
    if not training:
        return *batch_norm_of_inference(x, weight, bias, mean, var, momentum, eps), mean, var
    y, batch_mean, scale, batch_var = batch_statistics(x, weight, bias, eps)
    count = x.size // x.shape[1]
    unbiased = batch_var * (count / max(1, count - 1))
    new_mean = batch_mean * momentum + wide(mean) * (1 - momentum)
    new_var = unbiased * momentum + wide(var) * (1 - momentum)
    return y, batch_mean, scale, cast(new_mean, mean.dtype), cast(new_var, var.dtype)


def batch_statistics(x, weight, bias, eps):
    """(y, mean, 1 / standard deviation, biased variance) by the statistics of this batch."""
    wide_x, axes = wide(x), over_batch(x)
    mean = gh.mean(wide_x, axis=axes)
    centred = wide_x - along(mean, x)
    var = gh.mean(centred * centred, axis=axes)
    y, scale = scaled(x, centred, var, weight, bias, eps)
    return y, mean, scale, var


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(x, weight, bias, training, momentum, eps):
    y, mean, scale, _ = batch_statistics(x, weight, bias, eps)
    return y, mean, scale


@aten("_native_batch_norm_legit_no_training")
def batch_norm_of_inference(x, weight, bias, mean, var, momentum, eps):
    centred = wide(x) - along(mean, x)
    y, _ = scaled(x, centred, wide(var), weight, bias, eps)
    empty = full((0,), 0, wide(x).dtype)
    return y, empty, empty


@aten("native_batch_norm_backward")
def batch_norm_backward(g, x, weight, running_mean, running_var, mean, scale, training, eps, mask):
    """The gradients of x, weight and bias.

    Source: Ioffe & Szegedy 2015, arXiv:1502.03167, section 3
    """
    axes, wide_g = over_batch(x), wide(g)
    if not training:
        mean, var = wide(running_mean), wide(running_var)
        scale = cast(scale_of(var, eps), var.dtype)
    centred = wide(x) - along(mean, x)
    grad_bias = gh.sum(wide_g, axis=axes)
    products = gh.sum(wide_g * centred, axis=axes)
    factor = scale if weight is None else scale * wide(weight)
    grad_x = wide_g
    if training:
        count = x.size // x.shape[1]
        exact = cast(scale, FLOAT64)
        slope = cast(cast(products, FLOAT64) * exact * exact / count, scale.dtype)
        grad_x = wide_g - along(grad_bias / count, x) - centred * along(slope, x)
    grads = grad_x * along(factor, x), products * scale, grad_bias
    dtypes = x.dtype, *(wide(x).dtype if weight is None else weight.dtype,) * 2
    return [cast(v, d) if is_needed else None for v, d, is_needed in zip(grads, dtypes, mask)]


# -- over the last axes -----------------------------------------------------------------------


def over_last(x: Value, shape) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(shape), x.ndim))


@aten("native_layer_norm")
def layer_norm(x, shape, weight, bias, eps):
    """(y, mean, 1 / standard deviation)."""
    axes, wide_x = over_last(x, shape), wide(x)
    mean, centred, var = moments(wide_x, axes)
    scale = gh.rsqrt(var + eps)
    return cast(affine(centred * scale, weight, bias), x.dtype), mean, scale


@aten("native_layer_norm_backward")
def layer_norm_backward(g, x, shape, mean, scale, weight, bias, mask):
    """The gradients of x, weight and bias.

    Source: Ba et al. 2016, arXiv:1607.06450
    """
    axes, lead = over_last(x, shape), tuple(range(x.ndim - len(shape)))
    wide_g, normal = wide(g), (wide(x) - mean) * scale
    inner = wide_g if weight is None else wide_g * wide(weight)
    grad_x = grad_weight = grad_bias = None
    if mask[0]:
        grad_x = inner - gh.mean(inner, axis=axes, keepdims=True)
        grad_x = grad_x - normal * gh.mean(inner * normal, axis=axes, keepdims=True)
        grad_x = cast(grad_x * scale, x.dtype)
    if mask[1] and weight is not None:
        grad_weight = cast(gh.sum(wide_g * normal, axis=lead), weight.dtype)
    if mask[2] and bias is not None:
        grad_bias = cast(gh.sum(wide_g, axis=lead), bias.dtype)
    return grad_x, grad_weight, grad_bias


# -- over groups of channels ------------------------------------------------------------------


@aten("native_group_norm")
def group_norm(x, weight, bias, images, channels, size, groups, eps):
    """(y, mean, 1 / standard deviation), the statistics of shape (N, groups)."""
    parts = reshape(wide(x), (images, groups, channels // groups * size))
    mean, centred, var = moments(parts, 2)
    scale = gh.rsqrt(var + eps)
    y = affine(reshape(centred * scale, x.shape), along(weight, x), along(bias, x))
    return cast(y, x.dtype), reshape(mean, (images, groups)), reshape(scale, (images, groups))


@aten("native_group_norm_backward")
def group_norm_backward(g, x, mean, scale, weight, images, channels, size, groups, mask):
    """The gradients of x, weight and bias.

    Source: Wu & He 2018, arXiv:1803.08494
    """
    shape = (images, groups, channels // groups, size)
    by_group = (images, groups, 1, 1)
    wide_g, parts = reshape(wide(g), shape), reshape(wide(x), shape)
    normal = (parts - reshape(mean, by_group)) * reshape(scale, by_group)
    inner = wide_g
    if weight is not None:
        inner = inner * reshape(wide(weight), (1, groups, channels // groups, 1))
    grad_x = inner - gh.mean(inner, axis=(2, 3), keepdims=True)
    grad_x = grad_x - normal * gh.mean(inner * normal, axis=(2, 3), keepdims=True)
    grad_x = reshape(grad_x * reshape(scale, by_group), x.shape)
    grad_weight = reshape(gh.sum(wide_g * normal, axis=(0, 3)), (channels,))
    grad_bias = reshape(gh.sum(wide_g, axis=(0, 3)), (channels,))
    dtypes = x.dtype, *(x.dtype if weight is None else weight.dtype,) * 2
    grads = zip((grad_x, grad_weight, grad_bias), dtypes, mask)
    return [cast(v, d) if is_needed else None for v, d, is_needed in grads]


# -- of weights -------------------------------------------------------------------------------


@aten("_weight_norm_interface_backward")
def weight_norm_backward(g, v, length, norms, axis):
    """The gradients of direction v and length; w = length v / |v|, over all axes but one.

    Source: Salimans & Kingma 2016, arXiv:1602.07868, equation 3
    """
    axes = tuple(i for i in range(v.ndim) if i != axis % v.ndim)
    wide_g, wide_v, norms = wide(g), wide(v), wide(norms)
    along_v = gh.sum(wide_g * wide_v, axis=axes, keepdims=True) / norms
    grad_v = wide(length) / norms * (wide_g - wide_v * along_v / norms)
    return cast(grad_v, v.dtype), cast(along_v, length.dtype)


# -- dropout ----------------------------------------------------------------------------------


@aten("native_dropout_backward")
def dropout_backward(g, mask, scale):
    return g * cast(mask, g.dtype) * scale
