"""Batch norms in evaluation mode as part of the layer before them."""

import copy
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import ArrayLike, as_value, reshape
from glasshouse.nn.module import Module, Parameter
from glasshouse.tensor import rsqrt

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
           "fuse_linear_bn_weights"]  # fmt: skip


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A copy of a convolution that computes bn(conv(x)), both in evaluation mode; `transpose` for
    transposed convolutions.

    Raises: OptionError while one of them trains, or if bn has no running statistics.
    Source: standard; Ioffe & Szegedy 2015, arXiv:1502.03167, sec. 3.1.
    Example:
        >>> conv, bn = gh.nn.Conv2d(3, 4, 1).eval(), gh.nn.BatchNorm2d(4).eval()
        >>> fuse_conv_bn_eval(conv, bn)
        Conv2d(3, 4, kernel_size=(1, 1), stride=(1, 1))
    """
    check_eval("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    weights = (conv.weight, conv.bias), bn_tensors(bn)
    fused.weight, fused.bias = fused_weights(*weights, 1 if transpose else 0)
    return fused


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """A copy of a Linear that computes bn(linear(x)), both in evaluation mode.

    Raises: OptionError while one of them trains, if bn has no running statistics, or another number
        of features than the Linear's and 1.
    Source: as fuse_conv_bn_eval's.
    """
    where = "fuse_linear_bn_eval"
    check_eval(where, linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        expected = f"a batch norm of {linear.out_features} features, or 1"
        raise OptionError(where, expected, bn.num_features, "Fuse layers that follow each other.")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fused_weights((linear.weight, linear.bias), bn_tensors(bn), 0)
    return fused


def check_eval(where: str, layer: Module, bn: Module) -> None:
    if layer.training or bn.training:
        raise OptionError(where, "modules in evaluation mode", "one that trains", "Call eval().")
    if bn.running_mean is None or bn.running_var is None:
        fix = "Pass track_running_stats=True."
        raise OptionError(where, "running statistics", "a batch norm without", fix)


def bn_tensors(bn: Module) -> tuple[Any, ...]:
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def fuse_conv_bn_weights(
    conv_w: ArrayLike,
    conv_b: ArrayLike | None,
    bn_rm: ArrayLike,
    bn_rv: ArrayLike,
    bn_eps: float,
    bn_w: ArrayLike | None,
    bn_b: ArrayLike | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a convolution that computes its batch norm too.

        scale = bn_w / √(bn_rv + bn_eps);  (conv_w · scale, (conv_b - bn_rm) · scale + bn_b)

    Source: as fuse_conv_bn_eval's.
    """
    normed = (bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return fused_weights((conv_w, conv_b), normed, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: Any, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a Linear that computes its batch norm too; see fuse_conv_bn_weights.

    Source: as fuse_conv_bn_eval's.
    """
    return fused_weights((linear_w, linear_b), (bn_rm, bn_rv, bn_eps, bn_w, bn_b), 0)


def fused_weights(
    layer: tuple[Any, ...], norm: tuple[Any, ...], axis: int
) -> tuple[Parameter, Parameter]:
    """`axis`: the one of the weight's that is the batch norm's features."""
    weight, bias = layer
    mean, var, eps, scale, shift = norm
    weight = as_value(weight)
    factor = rsqrt(var + eps)
    factor = factor if scale is None else factor * scale
    shape = [1] * weight.ndim
    shape[axis] = factor.size
    moved = -mean if bias is None else bias - mean
    new_bias = moved * factor if shift is None else moved * factor + shift
    new_weight = weight * reshape(factor, tuple(shape))
    return Parameter(new_weight.detach()), Parameter(new_bias.detach())
