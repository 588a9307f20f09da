"""Elementwise operators: arithmetic, comparisons, functions, activations and their gradients."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

import glasshouse as gh
from glasshouse import nn
from glasshouse.base import DType, as_dtype
from glasshouse.dispatch import Value, cast, full, primitives
from glasshouse.nn.functional.activation import scaled_elu
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import typed
from glasshouse.torch.aten.table import DEFAULT, KEEP, TO_BOOL, TO_FLOAT, aten
from glasshouse.torch.tensors.dtypes import FROM_TORCH

functional = nn.functional


def values_of(*operands: Any) -> list[Any]:
    """The operands as values: a number takes the dtype of the other operand, and shape ()."""
    like = next(x for x in operands if isinstance(x, Value))
    return [x if isinstance(x, Value) else full((), x, like.dtype) for x in operands]


def as_ours(name: str, compute: Callable[..., Any], promotion: Any = TO_FLOAT) -> None:
    """Enter a function of ours with the arguments of an operator."""
    aten(name, promotion=promotion)(lambda *operands, **named: compute(*operands, **named))


def of_two(name: str, symbol: Callable[..., Any], promotion: Any = TO_BOOL) -> None:
    """Enter a symbol of Python between tensors, or a tensor and a number."""

    @aten(f"{name}.Tensor", f"{name}.Scalar", promotion=promotion)
    def entry(x, y):
        return symbol(*values_of(x, y))


def divided_by(x: Any, y: Any) -> Any:
    """Both operands as values, for a division. Dividing whole numbers by 0 is an error in PyTorch:
    we then index a table out of range, so that PyTorch runs the call and raises its error."""
    divisor = y
    x, y = values_of(x, y)
    if y.dtype.is_inexact or (isinstance(divisor, int) and divisor != 0):
        return x, y
    ones = primitives["gather"](full((1,), 1, y.dtype), cast(y == 0, as_dtype("int64")), axis=0)
    return x, y * ones


# -- arithmetic -------------------------------------------------------------------------------


@aten("add.Tensor", "add.Scalar", promotion=DEFAULT)
def add(x: Any, y: Tensor | float, alpha: float = 1) -> Tensor:
    x, y = values_of(x, y)
    return x + y if alpha == 1 else x + y * alpha


@aten("sub.Tensor", "sub.Scalar", promotion=DEFAULT)
def subtract(x: Tensor, y: Tensor, alpha: int = 1) -> Tensor:
    x, y = values_of(x, y)
    return x - y if alpha == 1 else x - y * alpha


@aten("rsub.Tensor", "rsub.Scalar", promotion=DEFAULT)
def subtract_from(x: Any, y: Any, alpha: int = 1) -> Any:
    return subtract(y, x, alpha)


of_two("mul", operator.mul, DEFAULT)
of_two("div", operator.truediv, TO_FLOAT)


def promotion_of_division(named: dict[Any, Any]) -> Any:
    """A rounded quotient of integers is an integer."""
    return TO_FLOAT if named.get("rounding_mode") is None else DEFAULT


@aten("div.Tensor_mode", "div.Scalar_mode", promotion=promotion_of_division)
def divide_rounded(x: Any, y: Any, rounding_mode: Any = None) -> Any:
    if rounding_mode is None:
        x, y = values_of(x, y)
        return x / y
    x, y = divided_by(x, y)
    if rounding_mode == "floor":
        return floor_quotient(x, y)
    return gh.div(x, y, rounding_mode=rounding_mode)


def floor_quotient(x: Any, y: Any) -> Any:
    """The largest whole number not above x / y, as in Python: NaN for an infinite x, and -1 for any
    small negative x / y. Our `x // y` follows the array API standard, which differs there."""
    if not x.dtype.is_floating:
        return x // y
    exact = gh.round((x - x % y) / y)
    below_one = 0 - cast((x < 0) ^ (y < 0), exact.dtype)  # where |x / y| < 1: 0 or -1
    floor = gh.where(gh.abs(x) < gh.abs(y), below_one, exact)
    return gh.where((x == 0) | (y == 0), x / y, floor)


@aten("floor_divide.default", "floor_divide.Scalar", promotion=DEFAULT)
def floor_divide(x: Any, y: Any) -> Any:
    return floor_quotient(*divided_by(x, y))


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", promotion=DEFAULT)
def modulo(x: Any, y: Any) -> Any:
    return gh.remainder(*divided_by(x, y))


@aten("fmod.Tensor", "fmod.Scalar", promotion=DEFAULT)
def fmod(x: Any, y: Any) -> Any:
    return gh.fmod(*divided_by(x, y))


as_ours("neg", operator.neg, KEEP)
as_ours("reciprocal", lambda x: 1 / x)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar", promotion=DEFAULT)
def power(x: Tensor, y: int) -> Tensor:
    if isinstance(y, (int, float)) and not isinstance(y, bool):
        return power_of_number(x, y)
    x, y = values_of(x, y)
    return gh.pow(x, y)


def power_of_number(x: Value, y: int) -> Tensor:
    """x to a constant power; small whole ones multiply, a half is a square root, as in ATen."""
    if y == 2:
        return x * x
    if y == 3:
        return x * x * x
    if x.dtype.is_inexact and y == 0.5:
        return gh.sqrt(x)
    if x.dtype.is_inexact and y == -0.5:
        return 1 / gh.sqrt(x)
    if x.dtype.is_inexact and y == -1:
        return 1 / x
    if x.dtype.is_inexact and y == -2:
        return 1 / (x * x)
    return gh.pow(x, full((), y, x.dtype))


@aten("addcmul", promotion=DEFAULT)
def add_product(x: Tensor, y: Tensor, z: Tensor, value: float = 1) -> Tensor:
    return x + value * y * z


@aten("addcdiv", promotion=TO_FLOAT)
def add_quotient(x: Tensor, y: Tensor, z: Tensor, value: float = 1) -> Tensor:
    return x + value * y / z


@aten("prims.fma", promotion=DEFAULT)
def fused_product(x: Any, y: Any, z: Any) -> Any:
    return x * y + z


as_ours("lerp.Scalar", gh.lerp, DEFAULT)
as_ours("lerp.Tensor", gh.lerp, DEFAULT)
as_ours("maximum", gh.maximum, KEEP)
as_ours("minimum", gh.minimum, KEEP)


@aten("clamp.default", "clamp.Tensor", promotion=DEFAULT)
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    bounds = [bound for bound in (min, max) if bound is not None]
    x, *bounds = values_of(x, *bounds)
    if min is not None:
        x = gh.maximum(x, bounds.pop(0))
    return gh.minimum(x, bounds.pop(0)) if max is not None else x


@aten("clamp_min.default", "clamp_min.Tensor", promotion=DEFAULT)
def clamp_min(x: Any, min: Any) -> Any:
    return clamp(x, min)


@aten("clamp_max.default", "clamp_max.Tensor", promotion=DEFAULT)
def clamp_max(x: Any, max: Any) -> Any:
    return clamp(x, None, max)


# -- comparisons and logic --------------------------------------------------------------------


for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    of_two(name, getattr(operator, name))
of_two("bitwise_and", operator.and_, KEEP)
of_two("bitwise_or", operator.or_, KEEP)
of_two("bitwise_xor", operator.xor, KEEP)
as_ours("bitwise_not", operator.invert, KEEP)
for name in ("logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf"):
    as_ours(name, getattr(gh, name), TO_BOOL)
as_ours("where.self", gh.where, None)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    if not isinstance(value, Value):
        value = full((), typed(value, x.dtype), x.dtype)
    return gh.where(mask, cast(value, x.dtype), x)


# -- functions of one operand -----------------------------------------------------------------


for name in (
    "acos acosh asin asinh atan atanh cos cosh erf exp exp2 expm1 log log10 log1p log2 rsqrt sin "
    "sinh sqrt tan tanh"
).split():
    as_ours(name, getattr(gh, name))
as_ours("sigmoid", functional.sigmoid)
as_ours("erfc", gh.special.erfc)
as_ours("abs", gh.abs, KEEP)
for name in ("ceil", "floor", "round", "trunc", "square"):
    as_ours(name, getattr(gh, name), KEEP)
as_ours("signbit", gh.signbit, TO_BOOL)


@aten("sign", "sgn", promotion=KEEP)
def sign(x: Any) -> Any:
    """PyTorch's sign of NaN is 0."""
    signs = gh.sign(x)
    return gh.where(gh.isnan(x), full((), 0, x.dtype), signs) if x.dtype.is_floating else signs


as_ours("atan2", gh.atan2)
as_ours("logaddexp", gh.logaddexp)


# -- activations ------------------------------------------------------------------------------


as_ours("relu", functional.relu, KEEP)
for name in ("gelu", "silu", "leaky_relu", "hardsigmoid", "hardswish", "softplus", "mish"):
    as_ours(name, getattr(functional, name), DEFAULT)


@aten("threshold_backward", promotion=DEFAULT)
def threshold_backward(g: Tensor, x: Tensor, threshold: int) -> Tensor:
    return gh.where(x <= threshold, full((), 0, g.dtype), g)


@aten("gelu_backward", promotion=DEFAULT)
def gelu_backward(g: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    """Hendrycks & Gimpel 2016: Φ(x) + x · φ(x), or the derivative of its tanh form."""
    if approximate == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        t = gh.tanh(scale * (x + cubic * x * x * x))
        inner = scale * (1 + 3 * cubic * x * x)
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    distribution = 0.5 * (1 + gh.erf(x * math.sqrt(0.5)))
    density = gh.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return g * (distribution + x * density)


@aten("silu_backward", promotion=DEFAULT)
def silu_backward(g: Tensor, x: Tensor) -> Tensor:
    s = functional.sigmoid(x)
    return g * s * (1 + x * (1 - s))


@aten("sigmoid_backward", promotion=DEFAULT)
def sigmoid_backward(g: Tensor, y: Tensor) -> Tensor:
    return g * gh.conj(y * (1 - y))


@aten("tanh_backward", promotion=DEFAULT)
def tanh_backward(g: Tensor, y: Tensor) -> Tensor:
    return g * gh.conj(1 - y * y)


@aten("leaky_relu_backward", promotion=DEFAULT)
def leaky_relu_backward(g: Any, x: Any, negative_slope: Any, self_is_result: Any) -> Any:
    return gh.where(x > 0, g, g * negative_slope)


@aten("elu", promotion=DEFAULT)
def elu(x: Any, alpha: int = 1, scale: int = 1, input_scale: int = 1) -> Any:
    return scaled_elu(x, alpha, scale, input_scale)


@aten("elu_backward", promotion=DEFAULT)
def elu_backward(g: Any, alpha: Any, scale: Any, input_scale: Any, is_result: Any, x: Any) -> Any:
    zero = full((), 0, g.dtype)
    if is_result:
        slope = (x + alpha * scale) * input_scale
    else:
        slope = gh.exp(gh.minimum(x * input_scale, zero)) * (input_scale * alpha * scale)
    return gh.where(x > 0, g * scale, g * slope)


@aten("hardtanh", promotion=DEFAULT)
def hardtanh(x: Any, min_val: int = -1, max_val: int = 1) -> Any:
    return clamp(x, min_val, max_val)


@aten("hardtanh_backward", promotion=DEFAULT)
def hardtanh_backward(g: Any, x: Any, min_val: Any, max_val: Any) -> Any:
    return gh.where((x > min_val) & (x < max_val), g, full((), 0, g.dtype))


@aten("hardsigmoid_backward", promotion=DEFAULT)
def hardsigmoid_backward(g: Any, x: Any) -> Any:
    return gh.where((x > -3) & (x < 3), g / 6, full((), 0, g.dtype))


@aten("hardswish_backward", promotion=DEFAULT)
def hardswish_backward(g: Any, x: Any) -> Any:
    inside = g * (x / 3 + 0.5)
    return gh.where(x <= -3, full((), 0, g.dtype), gh.where(x < 3, inside, g))


@aten("softplus_backward", promotion=DEFAULT)
def softplus_backward(g: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = x * beta
    return gh.where(scaled > threshold, g, g * functional.sigmoid(scaled))


@aten("log_sigmoid_forward")
def log_sigmoid(x: Any) -> Any:
    wide = cast(x, as_dtype("float32")) if x.dtype.itemsize < 4 else x
    decay = gh.exp(-gh.abs(wide))
    y = gh.minimum(wide, full((), 0, wide.dtype)) - gh.log1p(decay)
    return cast(y, x.dtype), cast(decay, x.dtype)  # PyTorch's backward on a CPU reads the second


# -- dtypes and copies ------------------------------------------------------------------------


@aten("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous")
def same(x: Tensor, memory_format: torch.memory_format | None = None) -> Tensor:
    return x


@aten("_to_copy", "to.dtype", "prims.convert_element_type")
def to_copy(x: Tensor, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return x if dtype is None else converted(x, FROM_TORCH[dtype])


def converted(x: Value, dtype: DType) -> Value:
    """x in another dtype; numbers become true where they are not 0."""
    return x != 0 if dtype.is_bool and not x.dtype.is_bool else cast(x, dtype)


@aten("copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return gh.broadcast_to(converted(source, x.dtype), x.shape)
