"""Normalisations and their gradients. Statistics of narrow floats are float32.

The forward norms are written once, over operations on values of our graphs (`VALUES`), or on
PyTorch's tensors (`TENSORS`), with which the cut of a joint graph takes norms apart."""

from math import prod
from types import SimpleNamespace
from typing import Any

import torch

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.dispatch.value import Value, cast, full
from glasshouse.dispatch.wide import widen as wide
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import reshape
from glasshouse.torch.aten.table import aten
from glasshouse.torch.tensors.dtypes import widen_tensor

FLOAT64 = as_dtype("float64")  # for statistics of a channel, as in eager


def mean_of_tensor(x: torch.Tensor, axis: Any, keepdims: bool = False) -> torch.Tensor:
    return x.mean(axis, keepdim=keepdims)


VALUES = SimpleNamespace(
    cast=cast, mean=gh.mean, reshape=reshape, rsqrt=gh.rsqrt, wide=wide, float64=FLOAT64
)
TENSORS = SimpleNamespace(
    cast=torch.Tensor.to,
    mean=mean_of_tensor,
    reshape=torch.reshape,
    rsqrt=torch.rsqrt,
    wide=widen_tensor,
    float64=torch.float64,
)


def along(vector: Tensor, x: Tensor, by: Any = VALUES) -> Tensor:
    """One value a channel, over (N, C, ...)."""
    return None if vector is None else by.reshape(by.wide(vector), (-1, *(1,) * (x.ndim - 2)))


def affine(y: Tensor, weight: Tensor | None, bias: Tensor) -> Tensor:
    """y times weight, plus bias, as far as these are there."""
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def moments(x: Any, axes: Any, by: Any) -> Any:
    """(mean, x - mean, biased variance) over axes, which are kept with size 1."""
    mean = by.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return mean, centred, by.mean(centred * centred, axis=axes, keepdims=True)


# -- over a batch -----------------------------------------------------------------------------


def over_batch(x: Tensor) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def scale_of(var: Tensor, eps: float, by: Any = VALUES) -> Tensor:
    """1 / standard deviation, in float64: its error affects all elements of a channel."""
    return by.rsqrt(by.cast(var, by.float64) + eps)


def apply_scale(
    x: Tensor,
    centred: Tensor,
    scale: Tensor,
    weight: Tensor,
    bias: Tensor,
    by: Any = VALUES,
) -> Tensor:
    """centred · scale · weight + bias in the dtype of x; `scale` is 1 / standard deviation in
    float64."""
    factor = scale if weight is None else scale * by.cast(weight, by.float64)
    y = affine(centred * along(by.cast(factor, centred.dtype), x, by), None, along(bias, x, by))
    return by.cast(y, x.dtype)


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    by: Any = VALUES,
) -> tuple[Tensor, ...]:
    """(y, mean, 1 / standard deviation, new running mean, new running variance)."""
    if not training:
        return *batch_norm_of_inference(x, weight, bias, mean, var, momentum, eps), mean, var
    y, batch_mean, scale, batch_var = batch_statistics(x, weight, bias, eps, by)
    count = prod((x.shape[0], *x.shape[2:]))
    unbiased = batch_var * (count / max(1, count - 1))
    new_mean = batch_mean * momentum + by.wide(mean) * (1 - momentum)
    new_var = unbiased * momentum + by.wide(var) * (1 - momentum)
    return y, batch_mean, scale, by.cast(new_mean, mean.dtype), by.cast(new_var, var.dtype)


def batch_statistics(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, by: Any = VALUES
) -> tuple[Tensor, ...]:
    """(y, mean, 1 / standard deviation, biased variance) by the statistics of this batch."""
    wide_x, axes = by.wide(x), over_batch(x)
    mean = by.mean(wide_x, axis=axes)
    centred = wide_x - along(mean, x, by)
    var = by.mean(centred * centred, axis=axes)
    scale = scale_of(var, eps, by)
    y = apply_scale(x, centred, scale, weight, bias, by)
    return y, mean, by.cast(scale, var.dtype), var


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: Any, weight: Any, bias: Any, training: Any, momentum: Any, eps: Any, by: Any = VALUES
) -> Any:
    return batch_statistics(x, weight, bias, eps, by)[:3]


@aten("_native_batch_norm_legit_no_training")
def batch_norm_of_inference(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: Any, eps: Any
) -> Any:
    centred = wide(x) - along(mean, x)
    y = apply_scale(x, centred, scale_of(wide(var), eps), weight, bias)
    empty = full((0,), 0, wide(x).dtype)
    return y, empty, empty


@aten("glasshouse.batch_norm_again")
def batch_norm_again(x: Any, mean: Any, scale: Any, weight: Any, bias: Any) -> Any:
    """y by the mean and 1 / standard deviation that a batch norm in training returned."""
    return apply_scale(x, wide(x) - along(mean, x), cast(scale, FLOAT64), weight, bias)


@aten("native_batch_norm_backward")
def batch_norm_backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    mean: Tensor,
    scale: Tensor,
    training: bool,
    eps: float,
    mask: Any,
) -> list[Any]:
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


def over_last(x: Value, shape: list[int]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(shape), x.ndim))


@aten("native_layer_norm")
def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor, bias: Tensor, eps: float, by: Any = VALUES
) -> tuple[Tensor, ...]:
    """(y, mean, 1 / standard deviation)."""
    mean, centred, var = moments(by.wide(x), over_last(x, shape), by)
    scale = by.rsqrt(var + eps)
    return by.cast(affine(centred * scale, weight, bias), x.dtype), mean, scale


@aten("glasshouse.layer_norm_again")
def layer_norm_again(x: Any, mean: Any, scale: Any, weight: Any, bias: Any) -> Any:
    """y by the mean and 1 / standard deviation that `native_layer_norm` returned."""
    return cast(affine((wide(x) - mean) * scale, weight, bias), x.dtype)


@aten("native_layer_norm_backward")
def layer_norm_backward(
    g: Tensor,
    x: Tensor,
    shape: list[int],
    mean: Tensor,
    scale: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: list[bool],
) -> tuple[Tensor, ...]:
    """The gradients of x, weight and bias.

    Source: Ba et al. 2016, arXiv:1607.06450
    """
    axes, lead = over_last(x, shape), tuple(range(x.ndim - len(shape)))
    wide_g, normal = wide(g), (wide(x) - mean) * scale
    inner = wide_g if weight is None else wide_g * wide(weight)
    grad_x: Any = None
    grad_weight = grad_bias = grad_x
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
def group_norm(
    x: Any,
    weight: Any,
    bias: Any,
    images: Any,
    channels: Any,
    size: Any,
    groups: Any,
    eps: Any,
    by: Any = VALUES,
) -> Any:
    """(y, mean, 1 / standard deviation), the statistics of shape (N, groups)."""
    parts = by.reshape(by.wide(x), (images, groups, channels // groups * size))
    mean, centred, var = moments(parts, 2, by)
    scale = by.rsqrt(var + eps)
    y = by.reshape(centred * scale, x.shape)
    y = affine(y, along(weight, x, by), along(bias, x, by))
    return by.cast(y, x.dtype), *(by.reshape(v, (images, groups)) for v in (mean, scale))


@aten("glasshouse.group_norm_again")
def group_norm_again(x: Any, mean: Any, scale: Any, weight: Any, bias: Any) -> Any:
    """y by the means and 1 / standard deviations that `native_group_norm` returned."""
    images, channels = x.shape[:2]

    def by_channel(statistic: Any) -> Any:
        parts = (*statistic.shape, channels // statistic.shape[1])
        every = gh.broadcast_to(reshape(statistic, (*statistic.shape, 1)), parts)
        return reshape(every, (images, channels, *(1,) * (x.ndim - 2)))

    y = (wide(x) - by_channel(mean)) * by_channel(scale)
    return cast(affine(y, along(weight, x), along(bias, x)), x.dtype)


@aten("native_group_norm_backward")
def group_norm_backward(
    g: Any,
    x: Any,
    mean: Any,
    scale: Any,
    weight: Any,
    images: Any,
    channels: Any,
    size: Any,
    groups: Any,
    mask: Any,
) -> Any:
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
def weight_norm_backward(g: Any, v: Any, length: Any, norms: Any, axis: Any) -> Any:
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
def dropout_backward(g: Any, mask: Any, scale: Any) -> Any:
    return g * cast(mask, g.dtype) * scale
