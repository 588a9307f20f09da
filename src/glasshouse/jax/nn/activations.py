"""Activations and normalisations of jax.nn."""

import math
from typing import Any

from glasshouse.base import check_axis
from glasshouse.dispatch import as_value
from glasshouse.jax import functions as g
from glasshouse.jax.numpy import numbers
from glasshouse.jax.numpy.arrays import cast
from glasshouse.jax.numpy.numbers import as_float
from glasshouse.nn import functional as F
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard.elementwise import tanh

__all__ = ["celu", "dot_product_attention", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu",
           "hard_swish", "hard_tanh", "identity", "leaky_relu", "log1mexp", "log_sigmoid",
           "log_softmax", "logmeanexp", "logsumexp", "mish", "one_hot", "relu", "relu6", "selu",
           "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid",
           "squareplus", "standardize", "swish", "tanh"]  # fmt: skip


def relu(x: Any) -> Tensor:
    """max(x, 0)."""
    return F.relu(as_value(x))


def relu6(x: Any) -> Tensor:
    """x held within 0 and 6."""
    return g.minimum(relu(as_float(x)), 6)


def identity(x: Any) -> Tensor:
    """x itself."""
    return as_value(x)


def sigmoid(x: Any) -> Tensor:
    """1 / (1 + exp(-x))."""
    return F.sigmoid(as_float(x))


def softplus(x: Any) -> Tensor:
    """log(1 + exp(x))."""
    return g.logaddexp(as_float(x), 0.0)


def soft_sign(x: Any) -> Tensor:
    """x / (1 + |x|)."""
    return as_float(x) / (1 + g.abs(as_float(x)))


def silu(x: Any) -> Tensor:
    """x sigmoid(x)."""
    return F.silu(as_float(x))


swish = silu


def log_sigmoid(x: Any) -> Tensor:
    """log(sigmoid(x))."""
    return -softplus(-as_float(x))


def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Tensor:
    """x, times a slope below zero."""
    x = as_float(x)
    return g.where(x >= 0, x, x * negative_slope)


def hard_sigmoid(x: Any) -> Tensor:
    """relu6(x + 3) / 6."""
    return relu6(as_float(x) + 3.0) / 6.0


def hard_silu(x: Any) -> Tensor:
    """x hard_sigmoid(x)."""
    return as_float(x) * hard_sigmoid(x)


hard_swish = hard_silu


def hard_tanh(x: Any) -> Tensor:
    """x held within -1 and 1."""
    x = as_value(x)
    return g.where(x > 1, as_value(1, x.dtype), g.where(x < -1, as_value(-1, x.dtype), x))


def elu(x: Any, alpha: Any = 1.0) -> Tensor:
    """x, or alpha (exp(x) - 1) below zero."""
    x = as_float(x)
    return g.where(x > 0, x, alpha * g.expm1(g.where(x > 0, 0.0, x)))


def celu(x: Any, alpha: Any = 1.0) -> Tensor:
    """x, or alpha (exp(x / alpha) - 1) below zero."""
    x = as_float(x)
    return g.maximum(x, 0.0) + alpha * g.expm1(g.minimum(x, 0.0) / alpha)


def selu(x: Any) -> Tensor:
    """elu with constants that keep mean 0 and variance 1.

    Source: Klambauer et al. 2017, arXiv:1706.02515.
    """
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def gelu(x: Any, approximate: bool = True) -> Tensor:
    """x times the normal distribution function; by tanh unless `approximate` is false."""
    x = as_float(x)
    if not approximate:
        return x * (g.erfc(-x * math.sqrt(0.5)) * 0.5)
    return x * (0.5 * (1.0 + g.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def mish(x: Any) -> Tensor:
    """x tanh(softplus(x))."""
    return as_float(x) * g.tanh(softplus(x))


def glu(x: Any, axis: int = -1) -> Tensor:
    """One half of x along an axis times the sigmoid of the other."""
    x = as_value(x)
    axis = check_axis("glu", axis, x.ndim)
    half, before = x.shape[axis] // 2, (slice(None),) * axis
    return x[(*before, slice(0, half))] * sigmoid(x[(*before, slice(half, None))])


def squareplus(x: Any, b: Any = 4.0) -> Tensor:
    """(x + sqrt(x² + b)) / 2."""
    x = as_float(x)
    return (x + g.sqrt(x * x + b)) / 2


def sparse_plus(x: Any) -> Tensor:
    """0 up to -1, (x + 1)² / 4 up to 1, then x."""
    x = as_float(x)
    return g.where(x <= -1, 0.0, g.where(x >= 1, x, (x + 1) ** 2 / 4))


def sparse_sigmoid(x: Any) -> Tensor:
    """(x + 1) / 2 held within 0 and 1."""
    return 0.5 * g.clip(as_float(x) + 1.0, 0.0, 2.0)


def log1mexp(x: Any) -> Tensor:
    """log(1 - exp(-x)).

    Source: Mächler 2012, Accurately computing log(1 - exp(-|a|)).
    """
    x = as_float(x)
    is_small = x < math.log(2)
    small, large = g.where(is_small, x, 1.0), g.where(is_small, 1.0, x)
    return g.where(is_small, g.log(-g.expm1(-small)), g.log1p(-g.exp(-large)))


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Tensor:
    """exp(x), divided by its sum over axes; of those that `where` names."""
    x = as_float(x)
    x = x if where is None else g.where(as_value(where), x, -math.inf)
    y = g.exp(x - numbers.max(x, axis, keepdims=True).detach())
    y = y if where is None else g.where(as_value(where), y, 0.0)
    return y / numbers.sum(y, axis, keepdims=True)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Tensor:
    """log(softmax(x)) over axes."""
    x = as_float(x)
    x = x if where is None else g.where(as_value(where), x, -math.inf)
    moved = x - numbers.max(x, axis, keepdims=True).detach()
    return moved - g.log(numbers.sum(g.exp(moved), axis, keepdims=True))


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False,
    where: Any = None,
) -> Any:  # fmt: skip
    """log of the sum of b exp(a) over axes; with `return_sign` of its size, and its sign."""
    x = as_float(a)
    factors = as_value(1.0, x.dtype) if b is None else as_float(b)
    if where is not None:
        factors = g.where(as_value(where), factors, 0.0)
    x, factors = g.broadcast_arrays(x, factors)
    x = g.where(factors == 0, -math.inf, x)
    top = numbers.max(x, axis, keepdims=True).detach()
    top = g.where(g.isfinite(top), top, 0.0)
    total = numbers.sum(factors * g.exp(x - top), axis, keepdims=True)
    size = total if b is None or not return_sign else g.abs(total)
    result = g.log(size) + top
    if not keepdims:
        axes = tuple(range(x.ndim)) if axis is None else axis
        result, total = g.squeeze(result, axis=axes), g.squeeze(total, axis=axes)
    return (result, g.sign(total)) if return_sign else result


def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Tensor:
    """log of the mean of exp(x) over axes."""
    count = numbers.counted(as_float(x), axis, keepdims, where)
    return logsumexp(x, axis, keepdims=keepdims, where=where) - g.log(as_float(count))


def standardize(
    x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5,
    where: Any = None,
) -> Tensor:  # fmt: skip
    """x with mean 0 and variance 1 over axes."""
    x = as_float(x)
    mean = numbers.mean(x, axis, keepdims=True, where=where) if mean is None else mean
    if variance is None:
        squares = numbers.mean(x * x, axis, keepdims=True, where=where)
        variance = squares - mean * mean
    return (x - mean) * g.rsqrt(variance + epsilon)


def one_hot(x: Any, num_classes: int, *, dtype: Any = "float32", axis: int = -1) -> Tensor:
    """A one at the place that each number names, zeros elsewhere; none for numbers out of range."""
    x = as_value(x)
    place = check_axis("one_hot", axis, x.ndim + 1)
    classes = tuple(-1 if i == place else 1 for i in range(x.ndim + 1))
    numbers_ = g.reshape(g.arange(num_classes), classes)
    return cast(g.expand_dims(x, axis=place) == numbers_, dtype)


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """softmax(q k' scale + bias) v for each head; heads of keys may be fewer.

    Shapes: query (B, T, N, H), key and value (B, S, K, H) -> (B, T, N, H).
    """
    q, k, v = (g.moveaxis(as_value(x), -3, -2) for x in (query, key, value))  # (B, N, T, H)
    groups = q.shape[-3] // k.shape[-3]
    if groups > 1:
        k, v = (
            g.take(x, [i // groups for i in range(q.shape[-3])], axis=x.ndim - 3) for x in (k, v)
        )
    scores = (q @ k.mT) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores if bias is None else scores + as_value(bias)
    if is_causal:
        rows, columns = scores.shape[-2:]
        causal = g.expand_dims(g.arange(rows), axis=1) >= g.arange(columns)
        scores = g.where(causal, scores, -math.inf)
    scores = scores if mask is None else g.where(as_value(mask), scores, -math.inf)
    return g.moveaxis(softmax(scores) @ v, -3, -2)
