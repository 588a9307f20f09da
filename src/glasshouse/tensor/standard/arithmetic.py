"""Elementwise functions that PyTorch has beside the standard's, and its names for the same."""

import builtins
import math
import operator
from typing import TYPE_CHECKING, Any

from glasshouse.base import DTypeError, as_dtype, bool_, float64, inexact_dtype, int32, promote
from glasshouse.base.dtype import DTypeLike, uint8, uint16, uint32, uint64
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import SCALARS, ArrayLike, Value, as_value, cast, full
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.ops import elementwise as cards
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.ops.compare import where
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.elementary import choose, flip_if, is_nan, join, sign_is_set, split
from glasshouse.tensor.standard.elementwise import NUMERIC, binary, inexact, operands, plain, unary
from glasshouse.tensor.standard.manipulate import concat, expand_dims

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor
    from glasshouse.tensor.standard.elementwise import Binary, Unary


__all__ = ["add", "addcdiv", "addcmul", "bitwise_not", "clamp_max", "clamp_min", "complex",
           "deg2rad", "div", "float_power", "fmax", "fmin", "fmod", "frac", "frexp", "gcd",
           "heaviside", "is_complex", "is_floating_point", "is_nonzero", "is_same_size",
           "is_signed", "is_tensor", "isin", "isneginf", "isposinf", "isreal", "lcm", "ldexp",
           "lerp", "logaddexp2", "mul", "numel", "polar", "rad2deg", "rsub", "scalar_tensor", "sgn",
           "sub", "subtract", "view_as_complex", "view_as_real", "xlogy"]  # fmt: skip


def multiply_by(other: Any, alpha: Any) -> Any:
    if type(alpha) is int and alpha == 1:
        return other
    if isinstance(other, Value) and other.dtype.is_bool and type(alpha) is not float:
        return other & builtins.bool(alpha)
    return other * alpha


@composed
def add(x: ArrayLike, other: ArrayLike, *, alpha: Any = 1) -> "Tensor":
    """The sum x + alpha · other; for booleans, or.

    Shapes: x (...), other (...) -> their common broadcast shape.
    Dtypes: numeric or bool, promoted to each other.
    Raises: DTypeError for non-numeric operands, ShapeError if the shapes do not broadcast.
    Source: standard, PyTorch.
    Example:
        >>> add(as_value([1, 2]), 3).tolist()
        [4, 5]
    """
    return elementwise.add(x, multiply_by(other, alpha))


@composed
def sub(x: ArrayLike, other: ArrayLike, *, alpha: Any = 1) -> Any:
    """x - alpha · other.

    Raises: DTypeError for booleans, ShapeError if the shapes do not broadcast.
    Source: PyTorch.
    Example:
        >>> sub(as_value([3, 4]), 1, alpha=2).tolist()
        [1, 2]
    """
    return elementwise.subtract(x, multiply_by(other, alpha))


subtract = sub


def rsub(x: Any, other: Any, *, alpha: int = 1) -> Any:
    """other - alpha · x.

    Raises: DTypeError for booleans, ShapeError if the shapes do not broadcast.
    Source: PyTorch.
    """
    return elementwise.subtract(other, multiply_by(x, alpha))


@composed
def mul(x: "Tensor", other: ArrayLike) -> "Tensor":
    """x · other; for booleans, and.

    Raises: DTypeError for non-numeric operands, ShapeError if the shapes do not broadcast.
    Source: PyTorch.
    """
    return elementwise.multiply(x, other)


@composed
def div(x: ArrayLike, other: ArrayLike, *, rounding_mode: Any = None) -> Any:
    """x / other; with rounding_mode "floor" rounded down, with "trunc" toward 0.

    Dtypes: floating or complex; with a rounding mode those of x and other promoted.
    Raises: OptionError for another rounding mode, ShapeError if the shapes do not broadcast.
    Source: PyTorch.
    Example:
        >>> div(as_value([-7.0]), 2.0, rounding_mode="trunc").tolist()
        [-3.0]
    """
    check_option("div", "rounding_mode", rounding_mode, (None, "floor", "trunc"))
    if rounding_mode is None:
        return elementwise.divide(x, other)
    if rounding_mode == "floor":
        return elementwise.floor_divide(x, other)
    x, other = operands("div", x, other)
    if x.dtype.is_inexact:
        return elementwise.trunc(x / other)
    return (x - truncated_remainder(x, other)) // other


def truncated_remainder(x: "Tensor", y: "Tensor") -> "Tensor":
    """The remainder of x / y with the sign of x: for floats that of |x| / |y|, which is exact."""
    if x.dtype.is_floating:
        negative = sign_is_set(x)
        return flip_if(negative, flip_if(negative, x) % flip_if(sign_is_set(y), y))
    rest = x % y
    if x.dtype.kind == "uint":
        return rest
    zero = full(x.shape, 0, x.dtype)
    return where((rest != zero) & ((rest < zero) != (x < zero)), rest - y, rest)


def unlike(x: "Tensor", y: "Tensor") -> "Tensor":
    return where(is_nan(x), y, x)


# fmt: off
fmod: "Binary" = binary("fmod", "whole", truncated_remainder,
              "The remainder of division rounded toward 0, "
              "with the sign of x1: x1 - trunc(x1 / x2) · x2.", "[7, -7], 4", "[3, -3]")
fmax: "Binary" = binary("fmax", "ordered",
              lambda x, y: elementwise.larger(unlike(x, y), unlike(y, x)),
              "The larger of x1 and x2; where one is NaN, the other.", "[1, 5], 3", "[3, 5]")
fmin: "Binary" = binary("fmin", "ordered",
              lambda x, y: elementwise.smaller(unlike(x, y), unlike(y, x)),
              "The smaller of x1 and x2; where one is NaN, the other.", "[1, 5], 3", "[1, 3]")
logaddexp2: "Binary" = binary("logaddexp2", "float",
                    rounded_once(lambda x, y: elementwise.logaddexp(x * LN2, y * LN2) / LN2),
                    "The logarithm to base 2 of a sum of powers: log2(2^x1 + 2^x2).",
                    "[1.0], 1.0", "[2.0]")
heaviside: "Binary" = binary("heaviside", "whole",
                   lambda x, y: where(x == 0, y, cast(x > 0, x.dtype)),
                   "0 where x1 is negative, x2 where it is 0, 1 where it is positive.",
                   "[-1.0, 0.0, 2.0], 0.5", "[0.0, 0.5, 1.0]")
frac: "Unary" = unary("frac", lambda x: x - elementwise.trunc(x), None,
             "The fractional part of x: x - trunc(x).", "-1.5", "-0.5")
deg2rad: "Unary" = unary("deg2rad", lambda x: x * (math.pi / 180), None,
                "Degrees as radians: x · π / 180.", "0.0", "0.0")
rad2deg: "Unary" = unary("rad2deg", lambda x: x * (180 / math.pi), None,
                "Radians as degrees: x · 180 / π.", "0.0", "0.0")
sgn: "Unary" = plain("sgn", elementwise.sign_of,
            "-1, 0 or 1 by the sign of x; for complex x, x / |x|.",
            "numeric, kept", "booleans", "-2.5, 0.0", "-1.0, 0.0")
isposinf: "Unary" = plain("isposinf", lambda x: x == math.inf if x.dtype.is_inexact
                 else full(x.shape, False, bool_), "True where x is positive infinity.",
                 "real -> bool", NUMERIC, "1.0, math.inf", "False, True")
isneginf: "Unary" = plain("isneginf", lambda x: x == -math.inf if x.dtype.is_inexact
                 else full(x.shape, False, bool_), "True where x is negative infinity.",
                 "real -> bool", NUMERIC, "1.0, -math.inf", "False, True")
isreal: "Unary" = plain("isreal", lambda x: split(x)[1] == 0 if x.dtype.is_complex
               else full(x.shape, True, bool_), "True where the imaginary part is 0.",
               "any -> bool", NUMERIC, "1.0, 2.0", "True, True")
# fmt: on
LN2 = math.log(2)
bitwise_not: "Unary" = elementwise.bitwise_invert


@composed
def clamp_min(x: "Tensor", min: "Tensor") -> "Tensor":
    """x, no smaller than `min`.

    Raises: DTypeError for complex values.
    Source: PyTorch.
    """
    return elementwise.clip(x, min)


@composed
def clamp_max(x: "Tensor", max: "Tensor") -> "Tensor":
    """x, no larger than `max`.

    Raises: DTypeError for complex values.
    Source: PyTorch.
    """
    return elementwise.clip(x, None, max)


@composed
@rounded_once
def lerp(x: ArrayLike, end: ArrayLike, weight: Any) -> "Tensor":
    """The point between x and `end`: x + weight · (end - x), by the nearer end.

    Shapes: x (...), end (...), weight (...) or a number -> their common broadcast shape.
    Source: PyTorch.
    Example:
        >>> lerp(as_value([0.0]), as_value([4.0]), 0.25).tolist()
        [1.0]
    """
    x, end = operands("lerp", x, end)
    return where_near(weight, x + (end - x) * weight, end - (end - x) * (1 - weight))


def where_near(weight: Any, near: "Tensor", far: "Tensor") -> "Tensor":
    if type(weight) in SCALARS:
        return near if abs(weight) < 0.5 else far
    return elementwise.where(elementwise.abs(weight) < 0.5, near, far)


def with_quotient(name: str, combine: Any, about: str) -> Any:
    def function(x, tensor1, tensor2, *, value=1):
        x, a, b = (as_value(v, where=name) for v in (x, tensor1, tensor2))
        return x + multiply_by(combine(a, b), value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{about}\n\nShapes: all broadcast.\nSource: PyTorch."
    return composed(rounded_once(function))


addcmul: Any = with_quotient("addcmul", operator.mul, "x + value · tensor1 · tensor2.")
addcdiv: Any = with_quotient("addcdiv", operator.truediv, "x + value · tensor1 / tensor2.")


@composed
def float_power(x: ArrayLike, exponent: ArrayLike) -> Any:
    """x to a power, computed in float64 (complex128 for complex operands).

    Source: NumPy, PyTorch.
    """
    x, exponent = operands("float_power", x, exponent)
    dtype = promote(x.dtype, float64)
    return cast(x, dtype) ** cast(exponent, dtype)


@composed
@rounded_once
def xlogy(x: ArrayLike, other: ArrayLike) -> Any:
    """x · log(other), and 0 where x is 0, unless other is NaN.

    Source: SciPy, PyTorch.
    Example:
        >>> xlogy(as_value([0.0, 1.0]), as_value([0.0, 1.0])).tolist()
        [0.0, 0.0]
    """
    x, other = inexact("xlogy", x, other)
    return zero_where_zero(x, other, cards.log)


def zero_where_zero(x: "Tensor", other: "Tensor", log: Any) -> "Tensor":
    none = (x == 0) & ~is_nan(other)
    return choose(none, 0.0, x * log(choose(none, 1.0, other)))


@composed
def ldexp(x: ArrayLike, other: ArrayLike) -> Any:
    """x · 2^other.

    Source: NumPy, PyTorch.
    """
    x, other = as_value(x, where="ldexp"), as_value(other, where="ldexp")
    dtype = inexact_dtype(x.dtype)
    return x * elementwise.exp2(cast(other, promote(dtype, inexact_dtype(other.dtype))))


def frexp(x: ArrayLike) -> Any:
    """(mantissa, exponent): x = mantissa · 2^exponent with 0.5 ≤ |mantissa| < 1; exponents int32.

    Raises: DTypeError unless x is floating.
    Source: NumPy, PyTorch.
    Example:
        >>> [part.tolist() for part in frexp(as_value([6.0]))]
        [[0.75], [3]]
    """
    x = as_value(x, where="frexp")
    if not x.dtype.is_floating:
        raise DTypeError("frexp", "a floating dtype", x.dtype.name, "Cast it to float32.")
    wide = cast(x, float64)
    plain_ = elementwise.isfinite(wide) & (wide != 0)
    size = elementwise.abs(choose(plain_, wide, 1.0))
    exponent = elementwise.floor(elementwise.log2(size)) + 1
    mantissa = size * elementwise.exp2(-exponent)
    low, high = mantissa < 0.5, mantissa >= 1.0
    exponent = choose(high, exponent + 1, choose(low, exponent - 1, exponent))
    scale = choose(plain_, elementwise.exp2(-exponent), 1.0)
    return cast(wide * scale, x.dtype), cast(choose(plain_, exponent, 0.0), int32)


@composed
def gcd(x: ArrayLike, other: ArrayLike) -> Any:
    """The greatest common divisor, never negative, by Euclid's algorithm.

    Dtypes: integer, promoted.
    Raises: DTypeError unless both are integers.
    Source: Knuth 1997, The Art of Computer Programming 2, 4.5.2: as many steps as the golden ratio
        to that power exceeds the largest number.
    Example:
        >>> gcd(as_value([12, 0]), 18).tolist()
        [6, 18]
    """
    a, b = (check_integers("gcd", x) for x in operands("gcd", x, other))
    return cast(divisor_of(magnitude(a), magnitude(b)), a.dtype)


def magnitude(x: "Tensor") -> "Tensor":
    """|x| of integers as unsigned ones, which hold that of the least integer too."""
    unsigned = {1: uint8, 2: uint16, 4: uint32, 8: uint64}[x.dtype.itemsize]
    return cast(elementwise.abs(x), unsigned)


def divisor_of(a: "Tensor", b: "Tensor") -> "Tensor":
    """The greatest common divisor of unsigned integers."""
    one = full(a.shape, 1, a.dtype)
    for _ in range(math.ceil(a.dtype.itemsize * 8 / math.log2((1 + math.sqrt(5)) / 2)) + 1):
        is_done = b == 0
        a, b = where(is_done, a, b), where(is_done, b, a % where(is_done, one, b))
    return a


@composed
def lcm(x: ArrayLike, other: ArrayLike) -> Any:
    """The least common multiple, never negative; 0 where one is 0.

    Dtypes: integer, promoted.
    Raises: DTypeError unless both are integers.
    Source: NumPy, PyTorch.
    """
    x, other = (check_integers("lcm", v) for v in operands("lcm", x, other))
    a, b = magnitude(x), magnitude(other)
    divisor = divisor_of(a, b)
    divisor = where(divisor == 0, full(divisor.shape, 1, divisor.dtype), divisor)
    return cast(a // divisor * b, x.dtype)


@composed
def isin(
    elements: ArrayLike,
    test_elements: ArrayLike,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    """True where an element is among the test elements; with `invert`, where it is not.

    Shapes: (...), (*k) -> (...).
    Source: NumPy, PyTorch.
    Example:
        >>> isin(as_value([1, 2]), as_value([2, 3])).tolist()
        [False, True]
    """
    x, tests = as_value(elements, where="isin"), as_value(test_elements, where="isin")
    same = elementwise.equal(expand_dims(x, -1), tests.reshape(-1))
    among = same.any(-1)
    return ~among if invert else among


# -- complex numbers -------------------------------------------------------------------------------


def complex(real: Any, imag: Any) -> Any:
    """real + i · imag.

    Shapes: real (...), imag (...) -> their common broadcast shape.
    Raises: DTypeError unless both are real.
    Source: PyTorch.
    Example:
        >>> complex(as_value([1.0]), as_value([2.0])).tolist()
        [(1+2j)]
    """
    real, imag = map(widen, inexact("complex", real, imag))
    elementwise.check_real("complex", real, imag)
    return join(real, imag)


def polar(abs: ArrayLike, angle: ArrayLike) -> Any:
    """abs · (cos(angle) + i · sin(angle)).

    Raises: DTypeError unless both are real.
    Source: PyTorch.
    """
    length, angle = map(widen, inexact("polar", abs, angle))
    return complex(length * cards.cos(angle), length * cards.sin(angle))


def view_as_real(x: ArrayLike) -> Any:
    """The real and the imaginary parts of complex x, on a new last axis; a copy.

    Shapes: (...) -> (..., 2).
    Raises: DTypeError unless x is complex.
    Source: PyTorch.
    """
    x = as_value(x, where="view_as_real")
    if not x.dtype.is_complex:
        raise DTypeError("view_as_real", "a complex dtype", x.dtype.name, "Use it as it is.")
    return concat([expand_dims(part, -1) for part in split(x)], axis=-1)


def view_as_complex(x: ArrayLike) -> Any:
    """Complex numbers of real and imaginary parts on the last axis; a copy.

    Shapes: (..., 2) -> (...).
    Raises: DTypeError unless the last axis has size 2.
    Source: PyTorch.
    """
    x = as_value(x, where="view_as_complex")
    if not x.shape or x.shape[-1] != 2:
        raise DTypeError("view_as_complex", "a last axis of size 2", x.shape, "Stack the parts.")
    return complex(x[..., 0], x[..., 1])


# -- kinds of tensors ------------------------------------------------------------------------------


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor.

    Source: PyTorch.
    """
    return isinstance(x, Value)


def numel(x: Any) -> int:
    """The number of elements.

    Source: PyTorch.
    """
    return x.size


def is_complex(x: "Tensor") -> bool:
    """Whether the dtype is complex.

    Source: PyTorch.
    """
    return x.dtype.is_complex


def is_floating_point(x: "Tensor") -> bool:
    """Whether the dtype is floating.

    Source: PyTorch.
    """
    return x.dtype.is_floating


def is_signed(x: Any) -> bool:
    """Whether the dtype has negative numbers.

    Source: PyTorch.
    """
    return x.dtype.kind not in ("bool", "uint")


def is_same_size(x: Any, other: Any) -> bool:
    """Whether the shapes are equal.

    Source: PyTorch.
    """
    return x.shape == other.shape


def is_nonzero(x: Any) -> bool:
    """Whether the one element is not 0.

    Raises: ShapeError unless there is just one.
    Source: PyTorch.
    """
    return bool(x)


def scalar_tensor(
    value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Any:
    """A tensor without axes of one number.

    Source: PyTorch.
    """
    out = as_value(value, None if dtype is None else as_dtype(dtype))
    return out.requires_grad_() if requires_grad else out
