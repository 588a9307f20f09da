"""Elementwise functions: the Array API's, and NumPy's where the standard is silent.

All are compositions of cards and operators; their formulas are in elementary.py."""

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import KIND_ORDER, DTypeError, bool_, inexact_dtype, int16, int32, int64
from glasshouse.dispatch import Primitive
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import (
    SCALARS,
    ArrayLike,
    Value,
    as_value,
    broadcast_values,
    cast,
    full,
    match,
)
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.ops import cast as parts_of
from glasshouse.ops import compare
from glasshouse.ops import elementwise as cards
from glasshouse.ops import reduce as reductions
from glasshouse.tensor.standard import elementary
from glasshouse.tensor.standard.elementary import by_parts, choose, is_nan, sign_is_set, split

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["abs", "acos", "acosh", "add", "allclose", "angle", "array_equal", "asin", "asinh",
           "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
           "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign",
           "cos", "cosh", "divide", "equal", "erf", "exp", "exp2", "expm1", "floor", "floor_divide",
           "greater", "greater_equal", "hypot", "imag", "isclose", "isfinite", "isinf", "isnan",
           "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
           "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply",
           "nan_to_num", "negative", "nextafter", "not_equal", "positive", "pow", "real",
           "reciprocal", "remainder", "round", "rsqrt", "sign", "signbit", "sin", "sinh", "sqrt",
           "square", "subtract", "tan", "tanh", "trunc", "where"]  # fmt: skip


Unary = Callable[[ArrayLike], "Tensor"]
Binary = Callable[[ArrayLike, ArrayLike], "Tensor"]


def operands(where: str, *xs: Any) -> "list[Tensor]":
    """The arguments as values of one dtype and shape; Python scalars are weakly typed."""
    if all(isinstance(x, Value) for x in xs) and all(x.spec == xs[0].spec for x in xs):
        return list(xs)
    if all(type(x) in SCALARS for x in xs):
        xs = (as_value(xs[0]), *xs[1:])
    return match(where, *xs)


def inexact(where: str, *xs: Any) -> "list[Tensor]":
    return [cast(x, inexact_dtype(x.dtype)) for x in operands(where, *xs)]


def check_real(where: str, *xs: Value) -> None:
    for x in xs:
        if x.dtype.is_complex:
            fix = "Take gh.real, gh.imag or gh.abs first."
            raise DTypeError(where, "real values", x.dtype.name, fix)


def check_bits(where: str, *xs: "Tensor", bools: bool = True) -> None:
    for x in xs:
        if x.dtype.is_inexact or (x.dtype.is_bool and not bools):
            fix = "Compare or cast first."
            raise DTypeError(where, f"{'booleans or ' if bools else ''}integers", x.dtype.name, fix)


DOC = """{about}

Shapes: {shapes}. Dtypes: {dtypes}.
Raises: {errors}. Source: standard.
Example:
    >>> {example}
         {result}
"""
FLOATING = "floating or complex, kept; integers and booleans become float32"
REAL = "real; integers and booleans become float32"
TRUTH = "any -> bool; what is not 0 counts as true"
NUMERIC, NO_COMPLEX = "what is not numeric", "complex values"
NO_FLOATS = "floating and complex values"


def named(
    function: Callable[..., Any],
    name: Any,
    about: Any,
    shapes: Any,
    dtypes: Any,
    errors: Any,
    example: Any,
    result: Any,
) -> Any:
    function.__name__ = function.__qualname__ = name
    parts = {"about": about, "shapes": shapes, "dtypes": dtypes, "errors": errors}
    function.__doc__ = DOC.format(**parts, example=example, result=result)
    return composed(function)


def documented(
    function: Callable[..., Any],
    name: str,
    about: str,
    dtypes: str,
    errors: str,
    value: str,
    result: str,
) -> Any:
    example, result = f"{name}([{value}]).tolist()", f"[{result}]"
    errors = f"DTypeError for {errors}"
    return named(function, name, about, "x (...) -> (...)", dtypes, errors, example, result)


def by_kind(name: str, real: Any, of_complex: Any, x: "Tensor") -> "Tensor":
    """real(x) or of_complex(x); without the latter complex x is refused."""
    if not x.dtype.is_complex:
        return real(x)
    if of_complex is None:
        check_real(name, x)
    return of_complex(x)


def unary(
    name: str, real: Any, of_complex: Any, about: str, argument: str = "0.0", result: str = "0.0"
) -> Unary:
    """A function of one floating argument; `of_complex` computes it for complex values, if any.
    A result of several cards is rounded once."""
    if not isinstance(real, Primitive):
        real = rounded_once(real)

    def function(x: ArrayLike, /) -> "Tensor":
        if isinstance(x, Value) and x.dtype.is_floating:
            return real(x)
        return by_kind(name, real, of_complex, *inexact(name, x))

    dtypes, errors = (FLOATING, NUMERIC) if of_complex else (REAL, f"{NO_COMPLEX} and {NUMERIC}")
    return documented(function, name, about, dtypes, errors, argument, result)


def same(name: str, card: Any, about: str, argument: str = "0.0", result: str = "0.0") -> Unary:
    return unary(name, card, card, about, argument, result)


def rounding(
    name: str, real: Any, of_complex: Any, about: str, argument: str, result: str
) -> Unary:
    """A function that makes floats whole, and leaves integers and booleans alone."""

    def function(x: ArrayLike, /) -> "Tensor":
        x = as_value(x, where=name)
        return by_kind(name, real, of_complex, x) if x.dtype.is_inexact else x

    dtypes = "numeric, kept" if of_complex else "real, kept"
    errors = NUMERIC if of_complex else f"{NO_COMPLEX} and {NUMERIC}"
    return documented(function, name, about, dtypes, errors, argument, result)


def ceil_real(x: "Tensor") -> "Tensor":
    return -cards.floor(-x)


# fmt: off
sqrt: Unary = same(
    "sqrt", cards.sqrt, "The square root of x, for complex x that with a real part of 0 or "
    "more; NaN for negative real x.", "4.0", "2.0")
exp: Unary = same("exp", cards.exp, "e to the power x.", "0.0", "1.0")
log: Unary = same("log", cards.log, "The natural logarithm of x; NaN for negative real x.\n"
                  "For complex x, log|x| + i·arg(x) with -π ≤ arg(x) ≤ π.", "1.0", "0.0")
sin: Unary = same("sin", cards.sin, "The sine of x, in radians: (e^ix - e^-ix) / 2i.")
cos: Unary = same(
    "cos", cards.cos, "The cosine of x, in radians: (e^ix + e^-ix) / 2.", "0.0", "1.0")
tanh: Unary = same("tanh", cards.tanh, "The hyperbolic tangent of x: sinh(x) / cosh(x).")
reciprocal: Unary = same("reciprocal", lambda x: 1 / x, "One over x.", "4.0", "0.25")
rsqrt: Unary = same(
    "rsqrt", lambda x: 1 / cards.sqrt(x), "One over the square root of x.", "4.0", "0.5")
expm1: Unary = unary("expm1", cards.expm1, elementary.complex_expm1, "exp(x) - 1, accurate near 0.")
exp2: Unary = unary("exp2", lambda x: full(x.shape, 2, x.dtype) ** x,
                    lambda z: cards.exp(elementary.multiplier(math.log(2))(z)), "2 to the power x.",
                    "3.0", "8.0")
log1p: Unary = unary("log1p", cards.log1p, elementary.complex_log1p,
                     "log(1 + x), accurate near 0; NaN for real x below -1.")
log2: Unary = unary("log2", elementary.log_base(2), elementary.complex_log(2),
                    "The logarithm of x to base 2: log(x) / log(2).", "8.0", "3.0")
log10: Unary = unary("log10", elementary.log_base(10), elementary.complex_log(10),
                     "The logarithm of x to base 10: log(x) / log(10).", "1000.0", "3.0")
tan: Unary = unary("tan", lambda x: cards.sin(x) / cards.cos(x), elementary.complex_tan,
                   "The tangent of x, in radians: sin(x) / cos(x).")
asin: Unary = unary(
    "asin", lambda x: cards.atan2(x, elementary.other_leg(x)), elementary.complex_asin,
    "The y in [-π/2, π/2], in radians, with sin(y) = x; NaN for real |x| > 1.")
acos: Unary = unary(
    "acos", lambda x: cards.atan2(elementary.other_leg(x), x), elementary.complex_acos,
    "The y in [0, π], in radians, with cos(y) = x; NaN for real |x| > 1.", "1.0", "0.0")
atan: Unary = unary(
    "atan", lambda x: cards.atan2(x, full(x.shape, 1, x.dtype)), elementary.complex_atan,
    "The y in [-π/2, π/2], in radians, with tan(y) = x.")
sinh: Unary = unary("sinh", elementary.sinh, elementary.complex_sinh,
                    "The hyperbolic sine of x: (e^x - e^-x) / 2.")
cosh: Unary = unary("cosh", elementary.cosh, lambda z: cards.cos(elementary.turned(z)),
                    "The hyperbolic cosine of x: (e^x + e^-x) / 2.", "0.0", "1.0")
asinh: Unary = unary("asinh", elementary.asinh, elementary.complex_asinh,
                     "The inverse hyperbolic sine: log(x + sqrt(x² + 1)).")
acosh: Unary = unary(
    "acosh", elementary.acosh, elementary.complex_acosh, "The inverse hyperbolic cosine: "
    "log(x + sqrt(x² - 1)); NaN for real x < 1.", "1.0", "0.0")
atanh: Unary = unary("atanh", lambda x: (cards.log1p(x) - cards.log1p(-x)) * 0.5,
                     elementary.complex_atanh, "The inverse hyperbolic tangent: "
                     "log((1 + x) / (1 - x)) / 2; NaN for real |x| > 1.")
erf: Unary = unary("erf", cards.erf, None,
                   "The error function of x: 2/sqrt(π) · integral of exp(-t²) from 0 to x.")
floor: Unary = rounding(
    "floor", cards.floor, None, "The largest integer not above x; its slope is 0.",
    "-1.5", "-2.0")
ceil: Unary = rounding("ceil", ceil_real, None, "The smallest integer not below x: -floor(-x).",
                       "-1.5", "-1.0")
trunc: Unary = rounding("trunc", lambda x: compare.where(x < 0, ceil_real(x), cards.floor(x)), None,
                        "x rounded toward 0: ceil(x) for x < 0, else floor(x).", "-1.5", "-1.0")
rint: Unary = rounding(
    "rint", cards.round_, by_parts(cards.round_), "The integer nearest to x, halves to "
    "the even one; complex numbers are rounded by parts.", "2.5", "2.0")
# fmt: on


def round(x: ArrayLike, /, decimals: int = 0) -> "Tensor":
    """x rounded to a number of decimals, halves to even; complex numbers by parts.
    round(x, d) = rint(x · 10^d) / 10^d

    Shapes: x (...) -> (...).
    Dtypes: numeric, kept.
    Raises: DTypeError for non-numeric operands.
    Source: standard, and NumPy for `decimals`.
    Example:
        >>> round([0.5, 1.5, 2.25], 1).tolist()
        [0.5, 1.5, 2.200000047683716]
    """
    if decimals == 0:
        return rint(x)
    x = as_value(x, where="round")
    scale = 10.0 ** operator.index(decimals)
    return cast(rint(widen(x) * scale) / scale, x.dtype)


def truth(x: "Tensor") -> "Tensor":
    return x if x.dtype is bool_ else x != 0


def floats(where: str, *xs: "Tensor") -> "list[Tensor]":
    check_real(where, *xs)
    return [cast(x, inexact_dtype(x.dtype)) for x in xs]


# Functions of two arguments by kind: the first conversion, the dtypes, the errors.
PROMOTED = "those of x1 and x2 promoted to each other"
KINDS: dict[str, Any] = {
    "numeric": (None, PROMOTED, NUMERIC),
    "no bools": (None, PROMOTED, "booleans"),
    "quotient": (None, FLOATING, NUMERIC),
    "whole": (None, PROMOTED, NO_COMPLEX),
    "float": (floats, REAL, NO_COMPLEX),
    "ordered": (check_real, PROMOTED, NO_COMPLEX),
    "equality": (None, "any -> bool", NUMERIC),
    "order": (check_real, "real -> bool", NO_COMPLEX),
    "bits": (check_bits, "integer or bool, promoted", NO_FLOATS),
    "shift": (partial(check_bits, bools=False), "integer, promoted", NO_FLOATS),
    "truth": (lambda _, *xs: map(truth, xs), TRUTH, NUMERIC),
}


def binary(
    name: str, kind: str, compute: Callable[..., Any], about: str, arguments: str, result: str
) -> Binary:
    prepare, dtypes, errors = KINDS[kind]

    def function(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
        xs = operands(name, x1, x2)
        xs = xs if prepare is None else prepare(name, *xs) or xs
        return compute(*xs)

    shapes = "x1 (...), x2 (...) -> their common broadcast shape"
    errors = f"DTypeError for {errors}; ShapeError if the shapes do not broadcast"
    example = f"{name}({arguments}).tolist()"
    return named(function, name, about, shapes, dtypes, errors, example, result)


def larger(x1: "Tensor", x2: "Tensor") -> "Tensor":
    return x1 | x2 if x1.dtype is bool_ else cards.maximum(x1, x2)


def smaller(x1: "Tensor", x2: "Tensor") -> "Tensor":
    return x1 & x2 if x1.dtype is bool_ else cards.minimum(x1, x2)


def copysign_real(x1: "Tensor", x2: "Tensor") -> "Tensor":
    return elementary.flip_if(sign_is_set(x1) ^ sign_is_set(x2), x1)


def logaddexp_real(x1: Any, x2: Any) -> Any:
    """max + log1p(exp(-|x1 - x2|)), where equal infinities have a difference of 0"""
    difference = choose(x1 == x2, 0.0, x1 - x2)
    return cards.maximum(x1, x2) + cards.log1p(cards.exp(-cards.abs_(difference)))


def nextafter_real(x1: Any, x2: Any) -> Any:
    """A float's neighbours are the floats whose bits, read as an integer, are one more or less."""
    integer = {2: int16, 4: int32, 8: int64}[x1.dtype.itemsize]
    bits = parts_of.bitcast(x1, dtype=integer)
    step = choose((x1 < x2) == (x1 > 0), full(bits.shape, 1, integer), -1)
    moved = parts_of.bitcast(bits + step, dtype=x1.dtype)
    least = parts_of.bitcast(full(bits.shape, 1, integer), dtype=x1.dtype)
    moved = compare.where(x1 == 0, copysign_real(least, x2), moved)
    moved = compare.where(x1 == x2, x2, moved)
    return choose(is_nan(x1) | is_nan(x2), math.nan, moved)


# fmt: off
add: Binary = binary(
    "add", "numeric", operator.add, "The sum; for booleans, or.", "[1, 2], 3", "[4, 5]")
subtract: Binary = binary(
    "subtract", "no bools", operator.sub, "The difference.", "[1, 2], 3", "[-2, -1]")
multiply: Binary = binary("multiply", "numeric", operator.mul, "The product; for booleans, and.",
                          "[1, 2], 3", "[3, 6]")
divide: Binary = binary(
    "divide", "quotient", operator.truediv, "The quotient.", "[1, 2], 4", "[0.25, 0.5]")
floor_divide: Binary = binary("floor_divide", "whole", operator.floordiv,
                              "The quotient rounded down: floor(x1 / x2).", "[7, -7], 2", "[3, -4]")
remainder: Binary = binary("remainder", "whole", operator.mod, "The remainder of floor division: "
                           "x1 - floor(x1 / x2) · x2, with the sign of x2.", "[7, -7], 4", "[3, 1]")
pow: Binary = binary("pow", "no bools", operator.pow, "x1 to the power x2.", "[2, 3], 2", "[4, 9]")
atan2: Binary = binary(
    "atan2", "float", cards.atan2, "The angle of the point (x2, x1): the y in [-π, π] "
    "with tan(y) = x1 / x2, in its quadrant.", "0.0, 1.0", "0.0")
hypot: Binary = binary(
    "hypot", "float", rounded_once(elementary.hypot), "The length of the vector (x1, "
    "x2): sqrt(x1² + x2²), without overflow on the way.", "3, 4", "5.0")
copysign: Binary = binary(
    "copysign", "float", copysign_real, "x1 with the sign of x2: |x1| if the sign "
    "bit of x2 is clear, else -|x1|.", "[1.0, 2.0], -0.0", "[-1.0, -2.0]")
nextafter: Binary = binary(
    "nextafter", "float", nextafter_real, "The next number after x1 toward x2; x2 "
    "if both are equal.", "0.0, 1.0", "1.401298464324817e-45")
logaddexp: Binary = binary(
    "logaddexp", "float", rounded_once(logaddexp_real), "The logarithm of a sum "
    "of exponentials: log(e^x1 + e^x2).", "[-200.0], -300.0", "[-200.0]")
maximum: Binary = binary(
    "maximum", "ordered", larger, "The larger of x1 and x2; NaN if either is.\n"
    "The derivative is shared where both are equal.", "[1, 5], 3", "[3, 5]")
minimum: Binary = binary(
    "minimum", "ordered", smaller, "The smaller of x1 and x2; NaN if either is.\n"
    "The derivative is shared where both are equal.", "[1, 5], 3", "[1, 3]")
equal: Binary = binary(
    "equal", "equality", operator.eq, "True where both are equal; NaN equals nothing.",
    "[1, 2], 2", "[False, True]")
not_equal: Binary = binary("not_equal", "equality", operator.ne, "True where both differ.",
                           "[1, 2], 2", "[True, False]")
less: Binary = binary("less", "order", operator.lt, "True where x1 is below x2: x1 < x2.",
                      "[1, 2], 2", "[True, False]")
less_equal: Binary = binary(
    "less_equal", "order", operator.le, "True where x1 ≤ x2; false for NaN.",
    "[1, 3], 2", "[True, False]")
greater: Binary = binary("greater", "order", operator.gt, "True where x1 is above x2: x1 > x2.",
                         "[1, 3], 2", "[False, True]")
greater_equal: Binary = binary(
    "greater_equal", "order", operator.ge, "True where x1 ≥ x2; false for NaN.",
    "[1, 2], 2", "[False, True]")
bitwise_and: Binary = binary(
    "bitwise_and", "bits", operator.and_, "The bits set in both.", "6, 3", "2")
bitwise_or: Binary = binary(
    "bitwise_or", "bits", operator.or_, "The bits set in either.", "6, 3", "7")
bitwise_xor: Binary = binary(
    "bitwise_xor", "bits", operator.xor, "The bits set in just one.", "6, 3", "5")
bitwise_left_shift: Binary = binary(
    "bitwise_left_shift", "shift", operator.lshift, "The bits of x1 moved "
    "up by x2 places: x1 · 2^x2, wrapping around.", "3, 2", "12")
bitwise_right_shift: Binary = binary(
    "bitwise_right_shift", "shift", operator.rshift, "The bits of x1 "
    "moved down by x2 places: floor(x1 / 2^x2).", "-5, 1", "-3")
logical_and: Binary = binary("logical_and", "truth", operator.and_, "True where both are.",
                             "[0, 2], 1", "[False, True]")
logical_or: Binary = binary("logical_or", "truth", operator.or_, "True where either is.",
                            "[0, 2], 0", "[False, True]")
logical_xor: Binary = binary("logical_xor", "truth", operator.xor, "True where just one is.",
                             "[0, 2], 1", "[True, False]")
# fmt: on


def plain(
    name: str,
    compute: Callable[..., Any],
    about: str,
    dtypes: str,
    errors: str,
    argument: str,
    result: str,
) -> Unary:
    def function(x: ArrayLike, /) -> "Tensor":
        return compute(as_value(x, where=name))

    return documented(function, name, about, dtypes, errors, argument, result)


def abs_of(x: "Tensor") -> "Tensor":
    if x.dtype.is_complex:
        return elementary.hypot(*split(x))
    return x if x.dtype.is_bool else cards.abs_(x)


def sign_of(x: "Tensor") -> "Tensor":
    if x.dtype.is_complex:
        return elementary.complex_sign(x)
    if x.dtype.is_bool:
        return x
    if x.dtype.is_integer:
        return cast(x > 0, x.dtype) - cast(x < 0, x.dtype)
    return choose(x > 0, 1.0, choose(x < 0, -1.0, choose(x == 0, 0.0, x)))


def squared(x: "Tensor") -> "Tensor":
    x = cast(x, int64) if x.dtype.is_bool else x
    return x * x


def angle_of(x: "Tensor") -> "Tensor":
    re, im = split(*inexact("angle", x))
    return cards.atan2(im, re)


def signbit_of(x: "Tensor") -> "Tensor":
    check_real("signbit", x)
    return sign_is_set(x) if x.dtype.is_floating else x < 0


def by_test(test: Any, otherwise: bool, combine: Any) -> Any:
    """The test of floats; of complex values, its results for both parts joined; else a constant."""

    def function(x: "Tensor"):
        if x.dtype.is_complex:
            return combine(*map(test, split(x)))
        return test(x) if x.dtype.is_floating else full(x.shape, otherwise, bool_)

    return function


# fmt: off
TO_REAL = "any; complex becomes real"
abs: Unary = plain(
    "abs", abs_of, "The absolute value, for complex x its length; its slope at 0 is 0.",
    TO_REAL, NUMERIC, "-2, 3", "2, 3")
sign: Unary = plain(
    "sign", sign_of, "-1, 0 or 1 by the sign of x; for complex x, x / |x|. NaN for NaN.",
    "numeric, kept", "booleans", "-2.5, 0.0", "-1.0, 0.0")
square: Unary = plain("square", squared, "x times x.", "numeric, kept; booleans become int64",
                      NUMERIC, "3, -2", "9, 4")
negative: Unary = plain("negative", operator.neg, "Minus x.", "numeric, kept", "booleans",
                        "3, -2", "-3, 2")
positive: Unary = plain(
    "positive", operator.pos, "x itself.", "any, kept", NUMERIC, "3, -2", "3, -2")
real: Unary = plain("real", parts_of.real, "The real part of x.", TO_REAL, NUMERIC, "1 + 2j", "1.0")
imag: Unary = plain("imag", parts_of.imag, "The imaginary part of x; 0 for real x.", TO_REAL,
                    NUMERIC, "1 + 2j", "2.0")
conj: Unary = plain("conj", parts_of.conj, "The complex conjugate of x.", "any, kept", NUMERIC,
                    "1 + 2j", "(1-2j)")
angle: Unary = plain("angle", angle_of, "The angle of complex x, in radians: atan2(im(x), re(x)).",
                     "complex becomes real; integers become float32", NUMERIC, "1 + 0j", "0.0")
signbit: Unary = plain(
    "signbit", signbit_of, "True where the sign bit is set: for negative x, -0 and "
    "some NaN.", "real -> bool", NO_COMPLEX, "-0.0, 1.0", "True, False")
isnan: Unary = plain(
    "isnan", by_test(is_nan, False, operator.or_), "True where x or a part of it is NaN.",
    "any -> bool", NUMERIC, "1.0, math.nan", "False, True")
isinf: Unary = plain(
    "isinf", by_test(elementary.is_infinite, False, operator.or_), "True where x is "
    "infinite, or a part of it.", "any -> bool", NUMERIC, "1.0, math.inf", "False, True")
isfinite: Unary = plain(
    "isfinite", by_test(lambda x: cards.abs_(x) < math.inf, True, operator.and_),
    "True where x is a number: neither infinite nor NaN.", "any -> bool", NUMERIC,
    "1.0, math.inf", "True, False")
logical_not: Unary = plain("logical_not", lambda x: ~truth(x), "True where x is 0.", TRUTH, NUMERIC,
                           "0, 2", "True, False")
bitwise_invert: Unary = plain(
    "bitwise_invert", operator.invert, "Every bit of x flipped, -x - 1; for "
    "booleans, not.", "integer or bool, kept", NO_FLOATS, "0, 2", "-1, -3")
# fmt: on


@composed
def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """x1 where the condition holds, else x2.

    Shapes: condition (...), x1 (...), x2 (...) -> their common broadcast shape.
    Dtypes: condition bool (nonzero counts as true); x1 and x2 promoted to each other.
    Raises: ShapeError if the shapes do not broadcast.
    Source: standard.
    Example:
        >>> where([True, False], 1.5, [0.0, 2.0]).tolist()
        [1.5, 2.0]
    """
    condition = truth(as_value(condition, where="where"))
    x1, x2 = operands("where", x1, x2)
    return compare.where(*broadcast_values("where", condition, x1, x2))


@composed
def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> "Tensor":
    """x, no smaller than `min` and no larger than `max`; None is no bound.
    min(max(x, min), max); the derivative is 1 inside and at the bounds

    Shapes: x (...), min (...), max (...) -> their common broadcast shape.
    Dtypes: real; that of x, or float32 for integers clipped by floats.
    Raises: DTypeError for complex values, ShapeError if the shapes do not broadcast.
    Source: standard.
    Example:
        >>> clip([-2, 0, 5], 0, 3).tolist()
        [0, 0, 3]
    """
    x = as_value(x, where="clip")
    check_real("clip", x)
    for bound, beyond in ((min, operator.lt), (max, operator.gt)):
        if bound is not None:
            x = bounded(x, bound, beyond)
    return x


def bounded(x: "Tensor", bound: ArrayLike, beyond: Callable[..., Any]) -> "Tensor":
    if type(bound) is int and x.dtype.is_integer:  # a bound that x cannot reach is its last number
        info = np.iinfo(x.dtype.np)
        bound = sorted((int(info.min), bound, int(info.max)))[1]
    value, bound = operands("clip", x, bound)
    check_real("clip", bound)
    replace = beyond(value, bound)
    if bound.dtype.is_floating:
        replace = replace | is_nan(bound)
    out = compare.where(replace, bound, value)
    return cast(out, x.dtype) if KIND_ORDER[out.dtype.kind] == KIND_ORDER[x.dtype.kind] else out


def nan_to_num(x: ArrayLike, /, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """x with NaN replaced, and infinities too: by the largest finite numbers unless given.

    Shapes: x (...) -> (...).
    Dtypes: any, kept; complex by parts.
    Raises: DTypeError for non-numeric operands.
    Source: NumPy.
    Example:
        >>> nan_to_num([math.nan, 1.0]).tolist()
        [0.0, 1.0]
    """
    x = as_value(x, where="nan_to_num")
    if x.dtype.is_complex:
        return by_parts(partial(nan_to_num, nan=nan, posinf=posinf, neginf=neginf))(x)
    if not x.dtype.is_floating:
        return x
    largest = elementary.largest_number(x.dtype)
    x = choose(is_nan(x), float(nan), x)
    x = choose(x == math.inf, largest if posinf is None else float(posinf), x)
    return choose(x == -math.inf, -largest if neginf is None else float(neginf), x)


def isclose(
    x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> "Tensor":
    """True where x1 and x2 are equal up to rounding: |x1 - x2| ≤ atol + rtol · |x2|.

    Shapes: x1 (...), x2 (...) -> their common broadcast shape.
    Dtypes: any -> bool.
    Raises: ShapeError if the shapes do not broadcast.
    Source: NumPy.
    Example:
        >>> isclose([1.0, 2.0], [1.0, 2.1]).tolist()
        [True, False]
    """
    x1, x2 = inexact("isclose", x1, x2)
    same = (x1 == x2) | (isfinite(x2) & (abs(x1 - x2) <= atol + rtol * abs(x2)))
    return same | (isnan(x1) & isnan(x2)) if equal_nan else same


def allclose(
    x1: "Tensor", x2: "Tensor", /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether x1 and x2 are equal up to rounding everywhere, as a Python bool.
    |x1 - x2| ≤ atol + rtol · |x2|

    Shapes: x1 (...), x2 (...), which broadcast.
    Dtypes: any.
    Raises: ShapeError if the shapes do not broadcast.
    Source: NumPy.
    Example:
        >>> allclose([1.0, 2.0], [1.0, 2.1])
        False
    """
    close = isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return bool(reductions.all_(close, axes=tuple(range(close.ndim))))


def array_equal(x1: ArrayLike, x2: ArrayLike, /, equal_nan: bool = False) -> bool:
    """Whether x1 and x2 have the same shape and equal elements, as a Python bool.

    Shapes: x1 (...), x2 (...).
    Dtypes: any.
    Raises: DTypeError for non-numeric operands.
    Source: NumPy.
    Example:
        >>> array_equal([1, 2], [1.0, 2.0])
        True
    """
    x1, x2 = (as_value(x, where="array_equal") for x in (x1, x2))
    if x1.shape != x2.shape:
        return False
    x1, x2 = operands("array_equal", x1, x2)
    same = x1 == x2
    if equal_nan:
        same = same | (isnan(x1) & isnan(x2))
    return bool(reductions.all_(same, axes=tuple(range(same.ndim))))
