"""Operators that normalise."""

from typing import Any

import glasshouse as gh
from glasshouse.nn import functional
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.table import operator, place


def along_channels(values: Any, x: Any) -> Any:
    return values.reshape((-1, *(1,) * (x.ndim - 2)))


@operator("BatchNormalization")
def batch_norm(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    outputs: int = 1,
) -> Any:
    if not training_mode:
        return functional.batch_norm(x, mean, variance, scale, bias, False, 0.1, epsilon)
    axes = (0, *range(2, x.ndim))
    own = gh.mean(x, axis=axes), gh.var(x, axis=axes)
    normal = (x - along_channels(own[0], x)) / gh.sqrt(along_channels(own[1], x) + epsilon)
    y = normal * along_channels(scale, x) + along_channels(bias, x)
    old = mean, variance
    running = [a * momentum + b * (1 - momentum) for a, b in zip(old, own)]
    return (y, *running)[:outputs]


@operator("InstanceNormalization")
def instance_norm(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    return functional.group_norm(x, x.shape[1], scale, bias, epsilon)  # of one element too


@operator("GroupNormalization", since=21)
def group_norm(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@operator("GroupNormalization")
def group_norm_by_groups(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5
) -> Any:
    each = x.shape[1] // num_groups
    scale, bias = (gh.repeat(part, each, axis=0) for part in (scale, bias))
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@operator("LayerNormalization")
def layer_norm(
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    axis = place(axis, x.ndim)
    shape = x.shape[axis:]
    if scale.shape == shape and (bias is None or bias.shape == shape):
        y = functional.layer_norm(x, shape, scale, bias, epsilon)
    else:
        y = functional.layer_norm(x, shape, None, None, epsilon) * scale
        y = y if bias is None else y + bias
    if outputs == 1:
        return y
    axes = tuple(range(axis, x.ndim))
    wide = x.astype(dtype_of(stash_type))
    spread = gh.rsqrt(gh.var(wide, axis=axes, keepdims=True) + epsilon)
    return (y, gh.mean(wide, axis=axes, keepdims=True), spread)[:outputs]


@operator("RMSNormalization")
def rms_norm(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    shape = x.shape[place(axis, x.ndim) :]
    return functional.rms_norm(x, shape, None, epsilon) * scale


@operator("LpNormalization")
def lp_norm(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    norm = gh.sum(gh.abs(x) ** p, axis=axis, keepdims=True) ** (1 / p)
    return gh.where(norm == 0, gh.zeros_like(x), x / gh.where(norm == 0, 1, norm))


@operator("Dropout")
def dropout_of_inference(x: Any, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    return (x, gh.ones(x.shape, dtype="bool"))[:outputs]


@operator("Dropout", since=12, static=(1, 2))
def dropout(
    x: Any, ratio: Any = None, training: Any = None, *, seed: int = 0, outputs: int = 1
) -> Any:
    share = 0.5 if ratio is None else float(ratio)
    if training is None or not bool(training) or share == 0:
        return (x, gh.ones(x.shape, dtype="bool"))[:outputs]
    alive = gh.random.uniform(x.shape, dtype="float32") >= share
    scale = 1 / (1 - share) if share < 1 else 0.0
    return (gh.where(alive, x * scale, 0).astype(x.dtype), alive)[:outputs]
