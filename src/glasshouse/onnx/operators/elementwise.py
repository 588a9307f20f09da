"""Operators that compute element by element."""

import math
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.nn import functional
from glasshouse.onnx.dtypes import CODES, converted, dtype_of
from glasshouse.onnx.table import namespace, operator

# Operators that are one function of the array API, which NumPy has too.
UNARY = {"Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
         "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_invert", "Ceil": "ceil",
         "Cos": "cos", "Cosh": "cosh", "Exp": "exp", "Floor": "floor", "IsNaN": "isnan",
         "Log": "log", "Neg": "negative", "Not": "logical_not", "Round": "round", "Sign": "sign",
         "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
         "Reciprocal": "reciprocal"}  # fmt: skip
BINARY = {"Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and",
          "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "equal",
          "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
          "LessOrEqual": "less_equal", "Mul": "multiply", "Or": "logical_or", "Sub": "subtract",
          "Xor": "logical_xor"}  # fmt: skip
MANY = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def declare_unary(name: str, own: str) -> None:
    @operator(name, plain=True)
    def function(x: Any) -> Any:
        return getattr(namespace(x), own)(x)


def declare_binary(name: str, own: str) -> None:
    @operator(name, plain=True)
    def function(x: Any, y: Any) -> Any:
        return getattr(namespace(x, y), own)(x, y)


def declare_many(name: str, own: str) -> None:
    @operator(name, plain=True)
    def function(*values: Any) -> Any:
        total = values[0]
        for x in values[1:]:
            total = getattr(namespace(*values), own)(total, x)
        return total


for name, own in UNARY.items():
    declare_unary(name, own)
for name, own in BINARY.items():
    declare_binary(name, own)
for name, own in MANY.items():
    declare_many(name, own)


@operator("Identity", raw=True)
def identity(x: Any) -> Any:
    return x


@operator("Mean")
def mean(*values: Any) -> Any:
    return sum(values[1:], values[0]) / len(values)


@operator("Div", plain=True)
def divide(x: Any, y: Any) -> Any:
    """A quotient; of whole numbers it is cut towards zero."""
    xp = namespace(x, y)
    if isinstance(x, np.ndarray) or x.dtype.is_integer:
        if isinstance(x, np.ndarray) and x.dtype.kind not in "iu":
            return x / y
        remainder = xp.fmod(x, y)
        return (x - remainder) // y
    return x / y


@operator("Mod", plain=True)
def modulo(x: Any, y: Any, *, fmod: int = 0) -> Any:
    xp = namespace(x, y)
    return xp.fmod(x, y) if fmod else xp.remainder(x, y)


@operator("Pow", plain=True)
def power(x: Any, y: Any) -> Any:
    """x to the power of y, in x's dtype."""
    xp = namespace(x, y)
    if x.dtype == y.dtype:
        return xp.pow(x, y)
    dtype = dtype_of_value(x)
    if xp is gh and dtype.is_floating:
        return gh.pow(x, y.astype(dtype))
    wide = dtype_of(11)
    return converted(xp.pow(converted(x, wide), converted(y, wide)), dtype)


def dtype_of_value(x: Any) -> Any:
    name = getattr(x.dtype, "name", str(x.dtype))
    return dtype_of(next(code for code, own in CODES.items() if own == name))


@operator("Where", plain=True)
def where(condition: Any, x: Any, y: Any) -> Any:
    return namespace(condition, x, y).where(condition, x, y)


@operator("BitShift")
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    """A shift; one by all bits or more gives 0, or -1 to the right of a negative number."""
    last = gh.full((), x.dtype.itemsize * 8 - 1, y.dtype)
    if direction == "RIGHT":
        shifted = gh.bitwise_right_shift(x, gh.minimum(y, last))
        beyond = gh.where(x < 0, shifted, gh.zeros_like(x))
    else:
        shifted = gh.bitwise_left_shift(x, gh.minimum(y, last))
        beyond = gh.zeros_like(x)
    return gh.where(y > last, beyond, shifted)


@operator("Cast", plain=True)
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, dtype_of(to))


@operator("CastLike", plain=True)
def cast_like(x: Any, y: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, dtype_of_value(y))


@operator("BitCast")
def bit_cast(x: Any, *, to: int) -> Any:
    return gh.asarray(x.numpy().view(dtype_of(to).np))


@operator("IsInf")
def is_infinite(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    result = gh.isinf(x)
    if not detect_negative:
        result = result & (x > 0)
    return result if detect_positive else result & (x < 0)


@operator("Clip")
def clip_by_attributes(x: Any, *, min: float | None = None, max: float | None = None) -> Any:
    return gh.clip(x, min, max)


@operator("Clip", since=11)
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else gh.maximum(x, low)
    return x if high is None else gh.minimum(x, high)


# -- activations -----------------------------------------------------------------------------

for name, function in {
    "Erf": gh.erf, "HardSwish": functional.hardswish, "Mish": functional.mish, "Relu": gh.relu,
    "Sigmoid": functional.sigmoid, "Softsign": functional.softsign,
}.items():  # fmt: skip
    operator(name)(lambda x, /, function=function: function(x))


@operator("Elu")
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    return functional.elu(x, alpha)


@operator("Celu")
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return functional.celu(x, alpha)


@operator("Gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return functional.gelu(x, approximate)


@operator("HardSigmoid")
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return gh.clip(x * alpha + beta, 0, 1)


@operator("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return functional.leaky_relu(x, alpha)


@operator("PRelu")
def prelu(x: Any, slope: Any) -> Any:
    return gh.where(x < 0, slope * x, x)


@operator("Selu")
def selu(x: Any, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Any:
    return gamma * functional.elu(x, alpha)


@operator("Shrink")
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    zero = gh.zeros_like(x)
    kind = x.dtype
    up = gh.where(x > lambd, (x - bias).astype(kind), zero)
    return gh.where(x < -lambd, (x + bias).astype(kind), up)


@operator("Softplus")
def softplus(x: Any) -> Any:
    return gh.logaddexp(x, gh.zeros_like(x))


@operator("Swish")
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return x * functional.sigmoid(alpha * x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return gh.where(x > alpha, x, gh.zeros_like(x))


def flattened(x: Any, axis: int) -> Any:
    """x as a matrix, whose rows end before an axis."""
    return x.reshape((math.prod(x.shape[:axis]), -1)) if x.size else x


def declare_softmax(name: str, function: Any) -> None:
    @operator(name, since=13)
    def along_an_axis(x: Any, *, axis: int = -1) -> Any:
        return function(x, axis)

    @operator(name)
    def over_all_from_an_axis(x: Any, *, axis: int = 1) -> Any:
        return function(flattened(x, axis % max(x.ndim, 1)), -1).reshape(x.shape)


def hardmax(x: Any, axis: int) -> Any:
    """1 at the first largest element along an axis, 0 elsewhere."""
    indices = gh.argmax(x, axis=axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = -1
    return (gh.arange(x.shape[axis]).reshape(tuple(shape)) == indices).astype(x.dtype)


for name, function in {
    "Softmax": lambda x, axis: gh.softmax(x, axis=axis),
    "LogSoftmax": lambda x, axis: gh.log_softmax(x, axis=axis),
    "Hardmax": hardmax,
}.items():
    declare_softmax(name, function)
