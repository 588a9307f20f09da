"""Activation functions, and dropout, whose masks come from gh.random's global generator.

`inplace` is accepted as in PyTorch; values are functional, so it changes nothing."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from glasshouse.base import OptionError, ShapeError, check_axis
from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import Value, as_value, cast, reshape
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.nn.checks import check_floating, check_ndim, check_probability
from glasshouse.nn.functional.axes import by_axes
from glasshouse.ops.checks import check_option, check_type
from glasshouse.ops.elementwise import erf
from glasshouse.tensor import Tensor, abs, arange, exp, expm1, log1p, random, tanh, where
from glasshouse.tensor.standard import reduce
from glasshouse.tensor.standard.softmax import log_softmax, softmax
from glasshouse.tensor.writing import in_place

__all__ = ["alpha_dropout", "celu", "celu_", "drop_path", "dropout", "dropout1d", "dropout2d",
           "dropout3d", "elu", "elu_", "feature_alpha_dropout", "gelu", "gumbel_softmax",
           "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "leaky_relu",
           "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_",
           "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus",
           "softshrink", "softsign", "tanhshrink", "threshold", "threshold_"]  # fmt: skip

# Klambauer et al. 2017, arXiv:1706.02515, eq. 14: the fixed point of mean 0 and variance 1
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def activation(fn: Callable[..., Any]) -> Any:
    """A composed function of a floating input, whose result is rounded once."""
    compute = rounded_once(fn)

    @composed
    @functools.wraps(fn)
    def call(input, *args, **named):
        return compute(check_floating(fn.__name__, input), *args, **named)

    return call


@composed
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0); its derivative at 0 is 0.

    Shapes: any -> the same.
    Source: Nair & Hinton 2010.
    Example:
        >>> relu([-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    return threshold(input, 0, 0)


@composed
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value; NaN stays.

    Source: standard
    """
    x = as_value(input, where="threshold")
    return where(x <= threshold, value, x)


@composed
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6).

    Source: Howard et al. 2017, arXiv:1704.04861
    """
    return hardtanh(input, 0.0, 6.0)


@composed
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x clipped to [min_val, max_val]; the derivative is 0 at both ends.

    Source: standard
    Raises: OptionError if min_val > max_val.
    """
    if min_val > max_val:
        raise OptionError("hardtanh", "min_val <= max_val", f"{min_val} and {max_val}", "Swap.")
    x = as_value(input, where="hardtanh")
    return where(x <= min_val, min_val, where(x >= max_val, max_val, x))


@composed
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope · x.

    Source: Maas et al. 2013
    """
    x = check_floating("leaky_relu", input)
    return where(x > 0, x, x * negative_slope)


@composed
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight · x, with one weight for all or one for each channel (axis 1).

    Raises: ShapeError for another size.
    Source: He et al. 2015, arXiv:1502.01852, eq. 1.
    """
    x, weight = check_floating("prelu", input), check_floating("prelu", weight, "weight")
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.size != 1 and weight.size != channels:
        expected = f"a weight of 1 or {channels} elements for input {x.shape}"
        fix = "Set num_parameters to the number of channels (axis 1)."
        raise ShapeError("prelu", expected, weight.shape, fix)
    weight = reshape(weight, (weight.size,) + (1,) * max(x.ndim - 2, 0) if x.ndim else ())
    return where(x > 0, x, x * weight)


def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky ReLU whose slope is drawn from [lower, upper] for each element while training, and is
    (lower + upper) / 2 otherwise.

    Source: Xu et al. 2015, arXiv:1505.00853
    """
    x = check_floating("rrelu", input)
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    return where(x > 0, x, x * random.uniform(x.shape, lower, upper, dtype=x.dtype))


@activation
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where x > 0, else alpha · (exp(x) - 1).

    Source: Clevert et al. 2015, arXiv:1511.07289
    """
    return scaled_elu(input, alpha, 1.0, 1.0)


@activation
def selu(input: Tensor, inplace: bool = False) -> Any:
    """scale · elu(x, alpha), which keeps mean 0 and variance 1.

    Source: arXiv:1706.02515, eq. 2
    """
    return scaled_elu(input, SELU_ALPHA, SELU_SCALE, 1.0)


@activation
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where x > 0, else alpha · (exp(x / alpha) - 1).

    Source: Barron 2017, arXiv:1704.07483
    """
    return scaled_elu(input, alpha, 1.0, 1 / alpha)


def scaled_elu(x: Tensor, alpha: float, scale: float, inner: float) -> Tensor:
    """scale · (x where x > 0, else alpha · (exp(inner · x) - 1))."""
    # The exponential never sees a positive x: inf · 0 would reach the gradient as NaN.
    negative = expm1(where(x > 0, 0, x) * inner) * (alpha * scale)
    return where(x > 0, x if scale == 1 else x * scale, negative)


@activation
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), accurate in both tails.

    Shapes: any -> the same.
    Source: standard.
    Example:
        >>> sigmoid([0.0]).item()
        0.5
    """
    negative = input < 0
    z = exp(where(negative, input, -input))  # of -|x|, with a derivative at 0 that is not 0
    return where(negative, z, 1) / (1 + z)


@activation
def logsigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))) = -softplus(-x), without overflow.

    Source: standard
    """
    return -exact_softplus(-input)


@activation
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta · x)) / beta; x where beta · x > threshold.

    Source: Dugas et al. 2001
    """
    z = input if beta == 1 else input * beta
    linear = z > threshold
    y = log1p(exp(where(linear, 0, z)))
    return where(linear, input, y if beta == 1 else y / beta)


def exact_softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) to full precision: beyond 40, exp(-x) is below float64's rounding."""
    return softplus(x, threshold=40)


@activation
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x · sigmoid(x), also called swish.

    Source: Elfwing et al. 2017, arXiv:1702.03118, eq. 3
    """
    return input * sigmoid(input)


@activation
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x · tanh(softplus(x)).

    Source: Misra 2019, arXiv:1908.08681, eq. 1
    """
    return input * tanh(exact_softplus(input))


@activation
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x), Φ the normal distribution function; or its approximation through tanh.
    Φ(x) = (1 + erf(x / √2)) / 2  ≈  (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2

    Raises: OptionError for another.
    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, sec. 2.
    """
    check_option("gelu", "approximate", approximate, ("none", "tanh"))
    if approximate == "none":
        return input * (0.5 + 0.5 * erf(input * math.sqrt(0.5)))
    inner = math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))
    return input * (0.5 + 0.5 * tanh(inner))


@activation
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6.

    Source: Courbariaux et al. 2015, arXiv:1511.00363
    """
    return relu6(input + 3) / 6


@activation
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x · relu6(x + 3) / 6.

    Source: Howard et al. 2019, arXiv:1905.02244, sec. 5.2
    """
    return input * relu6(input + 3) / 6


@activation
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    Source: Glorot & Bengio 2010
    """
    return input / (1 + abs(input))


@activation
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    Source: standard
    """
    return input - tanh(input)


@composed
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """sign(x) · max(|x| - lambd, 0).

    Source: Donoho 1995
    """
    if lambd < 0:
        raise OptionError("softshrink", "lambd of 0 or more", lambd, "Change lambd.")
    x = check_floating("softshrink", input)
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0))


@composed
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0.

    Source: standard
    """
    x = check_floating("hardshrink", input)
    return where(abs(x) <= lambd, 0, x)


@composed
def softmin(
    input: Tensor,
    dim: int | None = None,
    dtype: DTypeLike | None = None,
    *,
    axis: int | None = None,
) -> Tensor:
    """softmax(-x).

    Source: standard
    """
    return softmax(-as_value(input), dim, dtype, axis=axis)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Each element 0 with probability p, else x / (1 - p); x itself when not training.

    Shapes: any -> the same.
    Raises: OptionError for p outside [0, 1].
    Source: Srivastava et al. 2014.
    """
    x = check_floating("dropout", input)
    return drop("dropout", x, p, training, x.shape)


def drop_channels(
    where_: str, n: int, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout` of whole channels.

    Source: arXiv:1411.4280.

    Shapes: (N, C, {s}) or (C, {s}) -> the same.
    """
    x = check_floating(where_, input)
    check_ndim(where_, x, (n + 1, n + 2), f"channels and {n} spatial axes, with or without batch")
    return drop(where_, x, p, training, x.shape[:-n] + (1,) * n)


dropout3d: Any
dropout2d: Any
dropout1d: Any
dropout1d, dropout2d, dropout3d = by_axes(drop_channels, "dropout")


def drop(where_: str, x: Tensor, p: float, training: bool, mask_shape: tuple[int, ...]) -> Tensor:
    """x where a mask of `mask_shape` is drawn to keep it, scaled to keep the expectation."""
    p = check_probability(where_, p)
    if not training or p in (0, 1):
        return x * 0 if training and p else x
    return where(random.bernoulli(1 - p, mask_shape), x * (1 / (1 - p)), 0)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """Dropout for SELU networks: dropped elements take SELU's lower limit, and all are scaled and
    shifted so that mean 0 and variance 1 stay.

    Shapes: any -> the same.
    Raises: OptionError for p outside [0, 1].
    Source: Klambauer et al. 2017, arXiv:1706.02515, sec. 3.
    """
    x = check_floating("alpha_dropout", input)
    return alpha_drop("alpha_dropout", x, p, training, x.shape)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """`alpha_dropout` of whole channels.

    Shapes: (N, C, ...) -> the same.
    Raises: OptionError for p outside [0, 1]; ShapeError for fewer than two axes.
    Source: Klambauer et al. 2017, arXiv:1706.02515, sec. 3; Tompson et al. 2014, arXiv:1411.4280.
    """
    where_ = "feature_alpha_dropout"
    x = check_floating(where_, input)
    if x.ndim < 2:
        raise ShapeError(where_, "an input (N, C, ...)", x.shape, "Use alpha_dropout.")
    return alpha_drop(where_, x, p, training, x.shape[:2] + (1,) * (x.ndim - 2))


def alpha_drop(
    where_: str, x: Tensor, p: float, training: bool, mask_shape: tuple[int, ...]
) -> Tensor:
    p = check_probability(where_, p)
    if not training or p in (0, 1):
        return x * 0 if training and p else x
    limit = -SELU_ALPHA * SELU_SCALE
    scale = 1 / math.sqrt((1 - p) * (1 + p * limit * limit))
    mask = random.bernoulli(1 - p, mask_shape)
    return where(mask, x, limit) * scale - scale * p * limit


def drop_path(input: Tensor, p: float = 0.5, training: bool = True, mode: str = "row") -> Any:
    """Stochastic depth: each sample (or, by mode "batch", all of them) 0 with probability p, else
    x / (1 - p); x itself when not training. It goes before the sum of a residual block.

    Shapes: (N, ...) -> the same.
    Raises: OptionError for p outside [0, 1] or another mode; ShapeError for a scalar.
    Source: Huang et al. 2016, arXiv:1603.09382, eq. 2.
    """
    x = check_floating("drop_path", input)
    check_option("drop_path", "mode", mode, ("row", "batch"))
    if x.ndim == 0:
        raise ShapeError("drop_path", "an input (N, ...)", x.shape, "Add an axis.")
    samples = x.shape[0] if mode == "row" else 1
    return drop("drop_path", x, p, training, (samples,) + (1,) * (x.ndim - 1))


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """softmax((logits + g) / tau) along dim, g standard Gumbel numbers.

    `hard` gives one-hot vectors that have the gradient of the soft ones. eps is accepted as in
    PyTorch, and unused.

    Shapes: any -> the same.
    Raises: OptionError for a tau that is not positive.
    Source: Jang et al. 2016, arXiv:1611.01144, eq. 2; Maddison et al. 2016, arXiv:1611.00712.
    """
    x = check_floating("gumbel_softmax", logits, "logits")
    if not tau > 0:
        raise OptionError("gumbel_softmax", "a tau above 0", tau, "Raise tau.")
    noise = random.gumbel(x.shape, dtype=widen(x).dtype)
    soft = cast(softmax((widen(x) + noise) / tau, dim), x.dtype)
    if not hard:
        return soft
    axis = check_axis("gumbel_softmax", dim, x.ndim)
    best = reduce.argmax(soft.detach(), axis=axis, keepdims=True)
    places = reshape(arange(x.shape[axis]), (x.shape[axis],) + (1,) * (x.ndim - axis - 1))
    one_hot = cast(places == best, soft.dtype)
    return one_hot - soft.detach() + soft


def in_place_form(fn: Any) -> Any:
    """The function of the same name with an underscore: it writes its result into its input."""
    name = f"{fn.__name__}_"

    def call(input, *args, **named):
        check_type(name, input, Value, "a tensor to write into", "Pass gh.asarray(input).")
        return input.in_place(name, fn(input, *args, **named))

    call.__name__ = call.__qualname__ = name
    call.__module__ = fn.__module__
    call.__signature__ = without_inplace(fn)  # type: ignore[attr-defined]  # functions take attributes
    call.__doc__ = f"""The input, now with the values of `{fn.__name__}` of it.

    Shapes: any -> the same.
    Raises: GradError for a leaf that requires a gradient.
    Source: standard.
    """
    return call


def without_inplace(fn: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(fn)
    parameters = [p for p in signature.parameters.values() if p.name != "inplace"]
    return signature.replace(parameters=parameters)


leaky_relu_: Any
hardtanh_: Any
elu_: Any
celu_: Any
celu_, elu_, hardtanh_, leaky_relu_ = map(in_place_form, (celu, elu, hardtanh, leaky_relu))
threshold_: Any
selu_: Any
rrelu_: Any
relu_: Any
relu_, rrelu_, selu_, threshold_ = map(in_place_form, (relu, rrelu, selu, threshold))

for _method in (hardshrink, log_softmax, prelu, relu, softmax):
    setattr(Tensor, _method.__name__, _method)
Tensor.relu_ = in_place("relu", relu)  # type: ignore[method-assign]  # the stub has it too
