"""Elementwise functions: the Array API's, and NumPy's where the standard is silent.

All are compositions of cards and operators; the formulas behind them are in elementary.py.
"""

import math
import operator
from functools import partial

import numpy as np

from glasshouse.base.dtype import KIND_ORDER, bool_, inexact_dtype, int16, int32, int64
from glasshouse.base.errors import DTypeError
from glasshouse.dispatch.value import SCALARS, Value, as_value, broadcast_values, cast, full, match
from glasshouse.ops import cast as parts_of
from glasshouse.ops import compare
from glasshouse.ops import elementwise as cards
from glasshouse.ops import reduce as reductions
from glasshouse.tensor import elementary
from glasshouse.tensor.elementary import by_parts, choose, is_nan, sign_is_set, split


def operands(where: str, *xs) -> list[Value]:
    """The arguments as values of one dtype and shape; Python scalars are weakly typed."""
    if all(isinstance(x, Value) for x in xs) and all(x.spec == xs[0].spec for x in xs):
        return list(xs)
    if all(type(x) in SCALARS for x in xs):
        xs = (as_value(xs[0]), *xs[1:])
    return match(where, *xs)


def inexact(where: str, *xs) -> list[Value]:
    """`operands` as floating or complex values; integers and booleans become float32."""
    return [cast(x, inexact_dtype(x.dtype)) for x in operands(where, *xs)]


def check_real(where: str, *xs: Value) -> None:
    """Raise DTypeError if a value is complex."""
    for x in xs:
        if x.dtype.is_complex:
            raise DTypeError(
                f"{where}: expected real values; got {x.dtype.name}. "
                "Take gh.real, gh.imag or gh.abs first."
            )


def check_bits(where: str, *xs: Value, bools: bool = True) -> None:
    """Raise DTypeError unless all values are integers (or booleans)."""
    for x in xs:
        if x.dtype.is_inexact or (x.dtype.is_bool and not bools):
            raise DTypeError(
                f"{where}: expected {'booleans or ' if bools else ''}integers; got {x.dtype.name}. "
                "Compare or cast first."
            )


DOC = """{returns}

{formula}

Shapes:  {shapes}
Dtypes:  {dtypes}
Raises:  DTypeError for {errors}{more}
Source:  {source}
Example: >>> {example}
"""
FLOATING = "floating or complex, kept; integers and booleans become float32"
REAL = "real; integers and booleans become float32"
NUMERIC = "what is not numeric"


def named(function, name: str, **doc):
    """`function` under its public name, with the docstring that DOC makes of `doc`."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = DOC.format(**{"source": "standard", **doc})
    return function


def unary(name, real, of_complex, returns, formula, example):
    """A function of one floating argument; `of_complex` computes it for complex values, if any."""

    def function(x, /):
        if isinstance(x, Value) and x.dtype.is_floating:
            return real(x)
        (x,) = inexact(name, x)
        if not x.dtype.is_complex:
            return real(x)
        if of_complex is None:
            check_real(name, x)
        return of_complex(x)

    return named(
        function, name, returns=returns, formula=formula, shapes="x (...) -> (...)",
        dtypes=REAL if of_complex is None else FLOATING,
        errors="complex values and what is not numeric" if of_complex is None else NUMERIC, more="",
        example=f"{name}([{example[0]}]).tolist()\n         [{example[1]}]",
    )  # fmt: skip


def direct(card):
    """The arguments `real, of_complex` of a function that a card computes for both."""
    return card, card


# fmt: off
sqrt = unary("sqrt", *direct(cards.sqrt), "The square root of x.",
             "For complex x the root with a real part of 0 or more; NaN for negative real x.",
             ("4.0", "2.0"))
exp = unary("exp", *direct(cards.exp), "e to the power x.", "exp(x) = e^x", ("0.0", "1.0"))
expm1 = unary("expm1", cards.expm1, elementary.complex_expm1, "exp(x) - 1, accurate near 0.",
              "expm1(x) = e^x - 1", ("0.0", "0.0"))
exp2 = unary("exp2", lambda x: full(x.shape, 2, x.dtype) ** x,
             elementary.complex_exp2, "2 to the power x.", "exp2(x) = 2^x", ("3.0", "8.0"))
log = unary("log", *direct(cards.log), "The natural logarithm of x.",
            "For complex x, log|x| + i·arg(x) with -π ≤ arg(x) ≤ π; NaN for negative real x.",
            ("1.0", "0.0"))
log1p = unary("log1p", cards.log1p, elementary.complex_log1p, "log(1 + x), accurate near 0.",
              "NaN for real x below -1.", ("0.0", "0.0"))
log2 = unary("log2", elementary.log_base(2), elementary.complex_log(2),
             "The logarithm of x to base 2.", "log2(x) = log(x) / log(2)", ("8.0", "3.0"))
log10 = unary("log10", elementary.log_base(10), elementary.complex_log(10),
              "The logarithm of x to base 10.", "log10(x) = log(x) / log(10)", ("1000.0", "3.0"))
sin = unary("sin", *direct(cards.sin), "The sine of x, in radians.",
            "sin(x) = (e^ix - e^-ix) / 2i", ("0.0", "0.0"))
cos = unary("cos", *direct(cards.cos), "The cosine of x, in radians.",
            "cos(x) = (e^ix + e^-ix) / 2", ("0.0", "1.0"))
tan = unary("tan", elementary.tan, elementary.complex_tan, "The tangent of x, in radians.",
            "tan(x) = sin(x) / cos(x)", ("0.0", "0.0"))
asin = unary("asin", elementary.asin, elementary.complex_asin, "The inverse sine, in radians.",
             "The y in [-π/2, π/2] with sin(y) = x; NaN for real |x| > 1.", ("0.0", "0.0"))
acos = unary("acos", elementary.acos, elementary.complex_acos, "The inverse cosine, in radians.",
             "The y in [0, π] with cos(y) = x; NaN for real |x| > 1.", ("1.0", "0.0"))
atan = unary("atan", elementary.atan, elementary.complex_atan, "The inverse tangent, in radians.",
             "The y in [-π/2, π/2] with tan(y) = x.", ("0.0", "0.0"))
sinh = unary("sinh", elementary.sinh, elementary.complex_sinh, "The hyperbolic sine of x.",
             "sinh(x) = (e^x - e^-x) / 2", ("0.0", "0.0"))
cosh = unary("cosh", elementary.cosh, elementary.complex_cosh, "The hyperbolic cosine of x.",
             "cosh(x) = (e^x + e^-x) / 2", ("0.0", "1.0"))
tanh = unary("tanh", *direct(cards.tanh), "The hyperbolic tangent of x.",
             "tanh(x) = sinh(x) / cosh(x)", ("0.0", "0.0"))
asinh = unary("asinh", elementary.asinh, elementary.complex_asinh, "The inverse hyperbolic sine.",
              "asinh(x) = log(x + sqrt(x² + 1))", ("0.0", "0.0"))
acosh = unary("acosh", elementary.acosh, elementary.complex_acosh,
              "The inverse hyperbolic cosine.",
              "acosh(x) = log(x + sqrt(x² - 1)); NaN for real x < 1.", ("1.0", "0.0"))
atanh = unary("atanh", elementary.atanh, elementary.complex_atanh,
              "The inverse hyperbolic tangent.",
              "atanh(x) = log((1 + x) / (1 - x)) / 2; NaN for real |x| > 1.", ("0.0", "0.0"))
erf = unary("erf", cards.erf, None, "The error function of x.",
            "erf(x) = 2/sqrt(π) · integral of exp(-t²) from 0 to x", ("0.0", "0.0"))
reciprocal = unary("reciprocal", *direct(lambda x: 1 / x), "One over x.", "reciprocal(x) = 1 / x",
                   ("4.0", "0.25"))
rsqrt = unary("rsqrt", *direct(lambda x: 1 / cards.sqrt(x)), "One over the square root of x.",
              "rsqrt(x) = 1 / sqrt(x)", ("4.0", "0.5"))
# fmt: on


def rounding(name, real, of_complex, returns, formula, example):
    """A function that makes floats whole, and leaves integers and booleans alone."""

    def function(x, /):
        x = as_value(x, where=name)
        if not x.dtype.is_inexact:
            return x
        if not x.dtype.is_complex:
            return real(x)
        if of_complex is None:
            check_real(name, x)
        return of_complex(x)

    return named(
        function, name, returns=returns, formula=formula, shapes="x (...) -> (...)",
        dtypes="numeric, kept" if of_complex else "real, kept",
        errors="what is not numeric" if of_complex else "complex values and what is not numeric",
        more="", example=f"{name}([{example[0]}]).tolist()\n         [{example[1]}]",
    )  # fmt: skip


def ceil_real(x):
    return -cards.floor(-x)


def trunc_real(x):
    return compare.where(x < 0, ceil_real(x), cards.floor(x))


# fmt: off
floor = rounding("floor", cards.floor, None, "The largest integer not above x.",
                 "Its derivative is 0.", ("-1.5", "-2.0"))
ceil = rounding("ceil", ceil_real, None, "The smallest integer not below x.",
                "ceil(x) = -floor(-x)", ("-1.5", "-1.0"))
trunc = rounding("trunc", trunc_real, None, "x rounded toward 0.",
                 "trunc(x) = ceil(x) for x < 0, else floor(x)", ("-1.5", "-1.0"))
rint = rounding("rint", cards.round_, by_parts(cards.round_), "The integer nearest to x.",
                "Halves go to the even one; complex numbers are rounded by parts.", ("2.5", "2.0"))
# fmt: on


def round(x, /, decimals: int = 0):
    """x rounded to a number of decimals, halves to even; complex numbers by parts.
    round(x, d) = rint(x · 10^d) / 10^d
    Shapes: x (...) -> (...). Dtypes: numeric, kept. Raises: DTypeError for what is not numeric.
    Source: standard, and NumPy for `decimals`.
    Example: >>> round([0.5, 1.5, 2.25], 1).tolist()
             [0.5, 1.5, 2.200000047683716]
    """
    if decimals == 0:
        return rint(x)
    x = as_value(x, where="round")
    scale = 10.0 ** operator.index(decimals)
    return cast(rint(x * scale) / scale, x.dtype)


def binary(name, compute, returns, formula, dtypes, errors, example):
    """A function of two arguments that are promoted and broadcast to each other."""

    def function(x1, x2, /):
        return compute(*operands(name, x1, x2))

    return named(
        function, name, returns=returns, formula=formula,
        shapes="x1 (...), x2 (...) -> their common broadcast shape", dtypes=dtypes, errors=errors,
        more="; ShapeError if the shapes do not broadcast",
        example=f"{name}({example[0]}).tolist()\n         {example[1]}",
    )  # fmt: skip


def of_floats(name, compute, allow_complex: bool = False):
    """`compute` on floating values; integers and booleans become float32."""

    def function(x1, x2):
        if not allow_complex:
            check_real(name, x1, x2)
        dtype = inexact_dtype(x1.dtype)
        return compute(cast(x1, dtype), cast(x2, dtype))

    return function


def of_bits(name, compute, bools: bool = True):
    def function(x1, x2):
        check_bits(name, x1, x2, bools=bools)
        return compute(x1, x2)

    return function


def of_order(name, compute):
    def function(x1, x2):
        check_real(name, x1, x2)
        return compute(x1, x2)

    return function


def of_truth(compute):
    return lambda x1, x2: compute(truth(x1), truth(x2))


def truth(x: Value) -> Value:
    """True where x is not 0."""
    return x if x.dtype is bool_ else x != 0


def larger(x1, x2):
    return x1 | x2 if x1.dtype is bool_ else cards.maximum(x1, x2)


def smaller(x1, x2):
    return x1 & x2 if x1.dtype is bool_ else cards.minimum(x1, x2)


def copysign_real(x1, x2):
    return elementary.flip_if(sign_is_set(x1) ^ sign_is_set(x2), x1)


def logaddexp_real(x1, x2):
    """max + log1p(exp(-|x1 - x2|)), where equal infinities have a difference of 0"""
    difference = choose(x1 == x2, 0.0, x1 - x2)
    return cards.maximum(x1, x2) + cards.log1p(cards.exp(-cards.abs_(difference)))


def nextafter_real(x1, x2):
    """A float's neighbours are the floats whose bits, read as an integer, are one more or less."""
    integer = {2: int16, 4: int32, 8: int64}[x1.dtype.itemsize]
    bits = parts_of.bitcast(x1, dtype=integer)
    step = choose((x1 < x2) == (x1 > 0), full(bits.shape, 1, integer), -1)
    moved = parts_of.bitcast(bits + step, dtype=x1.dtype)
    least = parts_of.bitcast(full(bits.shape, 1, integer), dtype=x1.dtype)
    moved = compare.where(x1 == 0, copysign_real(least, x2), moved)
    moved = compare.where(x1 == x2, x2, moved)
    return choose(is_nan(x1) | is_nan(x2), math.nan, moved)


PROMOTED = "those of x1 and x2 promoted to each other"
TRUTH = "any -> bool; what is not 0 counts as true"
NO_COMPLEX = "complex values"
NO_FLOATS = "floating and complex values"
# fmt: off
add = binary("add", operator.add, "The sum.", "x1 + x2; for booleans, or", PROMOTED, NUMERIC,
             ("[1, 2], 3", "[4, 5]"))
subtract = binary("subtract", operator.sub, "The difference.", "x1 - x2", PROMOTED, "booleans",
                  ("[1, 2], 3", "[-2, -1]"))
multiply = binary("multiply", operator.mul, "The product.", "x1 · x2; for booleans, and", PROMOTED,
                  NUMERIC, ("[1, 2], 3", "[3, 6]"))
divide = binary("divide", operator.truediv, "The quotient.", "x1 / x2", FLOATING, NUMERIC,
                ("[1, 2], 4", "[0.25, 0.5]"))
floor_divide = binary("floor_divide", operator.floordiv, "The quotient rounded down.",
                      "floor(x1 / x2)", PROMOTED, NO_COMPLEX, ("[7, -7], 2", "[3, -4]"))
remainder = binary("remainder", operator.mod, "The remainder of floor division.",
                   "x1 - floor(x1 / x2) · x2, with the sign of x2", PROMOTED, NO_COMPLEX,
                   ("[7, -7], 4", "[3, 1]"))
pow = binary("pow", operator.pow, "x1 to the power x2.", "x1^x2", PROMOTED, "booleans",
             ("[2, 3], 2", "[4, 9]"))
atan2 = binary("atan2", of_floats("atan2", cards.atan2), "The angle of the point (x2, x1).",
               "The y in [-π, π] with tan(y) = x1 / x2, in the quadrant of the point.", REAL,
               NO_COMPLEX, ("0.0, 1.0", "0.0"))
hypot = binary("hypot", of_floats("hypot", elementary.hypot), "The length of the vector (x1, x2).",
               "sqrt(x1² + x2²), without overflow on the way", REAL, NO_COMPLEX, ("3, 4", "5.0"))
copysign = binary("copysign", of_floats("copysign", copysign_real), "x1 with the sign of x2.",
                  "|x1| if the sign bit of x2 is clear, else -|x1|", REAL, NO_COMPLEX,
                  ("[1.0, 2.0], -0.0", "[-1.0, -2.0]"))
nextafter = binary("nextafter", of_floats("nextafter", nextafter_real),
                   "The next number after x1 toward x2.", "x2 if both are equal", REAL, NO_COMPLEX,
                   ("0.0, 1.0", "1.401298464324817e-45"))
logaddexp = binary("logaddexp", of_floats("logaddexp", logaddexp_real),
                   "The logarithm of the sum of exponentials.", "log(e^x1 + e^x2)", REAL,
                   NO_COMPLEX, ("[-200.0], -300.0", "[-200.0]"))
maximum = binary("maximum", of_order("maximum", larger), "The larger of x1 and x2.",
                 "NaN if either is; the derivative is shared where both are equal", PROMOTED,
                 NO_COMPLEX, ("[1, 5], 3", "[3, 5]"))
minimum = binary("minimum", of_order("minimum", smaller), "The smaller of x1 and x2.",
                 "NaN if either is; the derivative is shared where both are equal", PROMOTED,
                 NO_COMPLEX, ("[1, 5], 3", "[1, 3]"))
equal = binary("equal", operator.eq, "True where both are equal.", "x1 = x2; NaN equals nothing",
               "any -> bool", NUMERIC, ("[1, 2], 2", "[False, True]"))
not_equal = binary("not_equal", operator.ne, "True where both differ.", "x1 ≠ x2", "any -> bool",
                   NUMERIC, ("[1, 2], 2", "[True, False]"))
less = binary("less", of_order("less", operator.lt), "True where x1 is below x2.", "x1 < x2",
              "real -> bool", NO_COMPLEX, ("[1, 2], 2", "[True, False]"))
less_equal = binary("less_equal", of_order("less_equal", operator.le),
                    "True where x1 is not above x2.", "x1 ≤ x2; false for NaN", "real -> bool",
                    NO_COMPLEX, ("[1, 3], 2", "[True, False]"))
greater = binary("greater", of_order("greater", operator.gt), "True where x1 is above x2.",
                 "x1 > x2", "real -> bool", NO_COMPLEX, ("[1, 3], 2", "[False, True]"))
greater_equal = binary("greater_equal", of_order("greater_equal", operator.ge),
                       "True where x1 is not below x2.", "x1 ≥ x2; false for NaN", "real -> bool",
                       NO_COMPLEX, ("[1, 2], 2", "[False, True]"))
bitwise_and = binary("bitwise_and", of_bits("bitwise_and", operator.and_),
                     "The bits set in both.", "x1 & x2", "integer or bool, promoted", NO_FLOATS,
                     ("6, 3", "2"))
bitwise_or = binary("bitwise_or", of_bits("bitwise_or", operator.or_), "The bits set in either.",
                    "x1 | x2", "integer or bool, promoted", NO_FLOATS, ("6, 3", "7"))
bitwise_xor = binary("bitwise_xor", of_bits("bitwise_xor", operator.xor),
                     "The bits set in just one.", "x1 ^ x2", "integer or bool, promoted",
                     NO_FLOATS, ("6, 3", "5"))
bitwise_left_shift = binary("bitwise_left_shift",
                            of_bits("bitwise_left_shift", operator.lshift, bools=False),
                            "The bits of x1 moved up by x2 places.", "x1 · 2^x2, wrapping around",
                            "integer, promoted", NO_FLOATS, ("3, 2", "12"))
bitwise_right_shift = binary("bitwise_right_shift",
                             of_bits("bitwise_right_shift", operator.rshift, bools=False),
                             "The bits of x1 moved down by x2 places.", "floor(x1 / 2^x2)",
                             "integer, promoted", NO_FLOATS, ("-5, 1", "-3"))
logical_and = binary("logical_and", of_truth(operator.and_), "True where both are.",
                     "x1 and x2", TRUTH, NUMERIC, ("[0, 2], 1", "[False, True]"))
logical_or = binary("logical_or", of_truth(operator.or_), "True where either is.", "x1 or x2",
                    TRUTH, NUMERIC, ("[0, 2], 0", "[False, True]"))
logical_xor = binary("logical_xor", of_truth(operator.xor), "True where just one is.",
                     "x1 ≠ x2 as truth values", TRUTH, NUMERIC, ("[0, 2], 1", "[True, False]"))
# fmt: on


def plain(returns, formula, dtypes, errors, example):
    """A decorator that documents a function of one argument."""

    def decorate(function):
        name = function.__name__
        return named(
            function, name, returns=returns, formula=formula, shapes="x (...) -> (...)",
            dtypes=dtypes, errors=errors, more="",
            example=f"{name}([{example[0]}]).tolist()\n         [{example[1]}]",
        )  # fmt: skip

    return decorate


@plain("The absolute value; for complex x its length.", "|x|; the derivative at 0 is 0",
       "any; complex becomes real", NUMERIC, ("-2, 3", "2, 3"))  # fmt: skip
def abs(x, /):
    x = as_value(x, where="abs")
    if x.dtype.is_complex:
        return elementary.complex_abs(x)
    return x if x.dtype.is_bool else cards.abs_(x)


@plain("-1, 0 or 1 by the sign of x; for complex x, x / |x|.", "NaN for NaN", "numeric, kept",
       "booleans", ("-2.5, 0.0", "-1.0, 0.0"))  # fmt: skip
def sign(x, /):
    x = as_value(x, where="sign")
    if x.dtype.is_complex:
        return elementary.complex_sign(x)
    if x.dtype.is_integer:
        return cast(x > 0, x.dtype) - cast(x < 0, x.dtype)
    return choose(x > 0, 1.0, choose(x < 0, -1.0, choose(x == 0, 0.0, x)))


@plain("x times x.", "x²", "numeric, kept", "booleans", ("3, -2", "9, 4"))
def square(x, /):
    x = as_value(x, where="square")
    return x * x


@plain("Minus x.", "-x", "numeric, kept", "booleans", ("3, -2", "-3, 2"))
def negative(x, /):
    return -as_value(x, where="negative")


@plain("x itself.", "+x", "any, kept", NUMERIC, ("3, -2", "3, -2"))
def positive(x, /):
    return +as_value(x, where="positive")


@plain("The real part of x.", "re(a + ib) = a", "any; complex becomes real", NUMERIC,
       ("1 + 2j", "1.0"))  # fmt: skip
def real(x, /):
    return parts_of.real(as_value(x, where="real"))


@plain("The imaginary part of x; 0 for real x.", "im(a + ib) = b", "any; complex becomes real",
       NUMERIC, ("1 + 2j", "2.0"))  # fmt: skip
def imag(x, /):
    return parts_of.imag(as_value(x, where="imag"))


@plain("The complex conjugate of x.", "conj(a + ib) = a - ib", "any, kept", NUMERIC,
       ("1 + 2j", "(1-2j)"))  # fmt: skip
def conj(x, /):
    return parts_of.conj(as_value(x, where="conj"))


@plain("The angle of complex x, in radians.", "atan2(im(x), re(x))",
       "complex becomes real; integers become float32", NUMERIC, ("1 + 0j", "0.0"))  # fmt: skip
def angle(x, /):
    re, im = split(*inexact("angle", x))
    return cards.atan2(im, re)


@plain("True where the sign bit is set: for negative x, -0 and some NaN.", "x < 0 or x = -0",
       "real -> bool", NO_COMPLEX, ("-0.0, 1.0", "True, False"))  # fmt: skip
def signbit(x, /):
    x = as_value(x, where="signbit")
    check_real("signbit", x)
    return sign_is_set(x) if x.dtype.is_floating else x < 0


def everywhere(value: bool, x: Value) -> Value:
    """The boolean `value` in the shape of x."""
    return full(x.shape, value, bool_)


@plain("True where x is NaN, or a part of it is.", "x ≠ x", "any -> bool", NUMERIC,
       ("1.0, math.nan", "False, True"))  # fmt: skip
def isnan(x, /):
    x = as_value(x, where="isnan")
    return is_nan(x) if x.dtype.is_inexact else everywhere(False, x)


@plain("True where x is infinite, or a part of it is.", "|x| = ∞", "any -> bool", NUMERIC,
       ("1.0, math.inf", "False, True"))  # fmt: skip
def isinf(x, /):
    x = as_value(x, where="isinf")
    if x.dtype.is_complex:
        re, im = split(x)
        return elementary.is_infinite(re) | elementary.is_infinite(im)
    return elementary.is_infinite(x) if x.dtype.is_floating else everywhere(False, x)


@plain("True where x is a number: neither infinite nor NaN.", "|x| < ∞", "any -> bool", NUMERIC,
       ("1.0, math.inf", "True, False"))  # fmt: skip
def isfinite(x, /):
    x = as_value(x, where="isfinite")
    if x.dtype.is_complex:
        re, im = split(x)
        return (cards.abs_(re) < math.inf) & (cards.abs_(im) < math.inf)
    return cards.abs_(x) < math.inf if x.dtype.is_floating else everywhere(True, x)


@plain("True where x is 0.", "not x", TRUTH, NUMERIC, ("0, 2", "True, False"))
def logical_not(x, /):
    return ~truth(as_value(x, where="logical_not"))


@plain("Every bit of x flipped; for booleans, not.", "~x = -x - 1", "integer or bool, kept",
       NO_FLOATS, ("0, 2", "-1, -3"))  # fmt: skip
def bitwise_invert(x, /):
    return ~as_value(x, where="bitwise_invert")


def where(condition, x1, x2, /):
    """x1 where the condition holds, else x2.
    Shapes: condition (...), x1 (...), x2 (...) -> their common broadcast shape.
    Dtypes: condition bool (what is not 0 counts as true); x1 and x2 promoted to each other.
    Raises: ShapeError if the shapes do not broadcast. Source: standard.
    Example: >>> where([True, False], 1.5, [0.0, 2.0]).tolist()
             [1.5, 2.0]
    """
    condition = truth(as_value(condition, where="where"))
    x1, x2 = operands("where", x1, x2)
    return compare.where(*broadcast_values("where", condition, x1, x2))


def clip(x, /, min=None, max=None):
    """x, no smaller than `min` and no larger than `max`; None is no bound.
    min(max(x, min), max); the derivative is 1 inside and at the bounds
    Shapes: x (...), min (...), max (...) -> their common broadcast shape. Dtypes: real; that of x,
    or float32 for integers clipped by floats. Raises: DTypeError for complex values, ShapeError if
    the shapes do not broadcast. Source: standard.
    Example: >>> clip([-2, 0, 5], 0, 3).tolist()
             [0, 0, 3]
    """
    x = as_value(x, where="clip")
    check_real("clip", x)
    for bound, beyond in ((min, operator.lt), (max, operator.gt)):
        if bound is not None:
            x = bounded(x, bound, beyond)
    return x


def bounded(x: Value, bound, beyond) -> Value:
    """x, with `bound` where x is beyond it or the bound is NaN."""
    if type(bound) is int and x.dtype.is_integer:  # a bound that x cannot reach is its last number
        info = np.iinfo(x.dtype.np)
        bound = sorted((int(info.min), bound, int(info.max)))[1]
    value, bound = operands("clip", x, bound)
    check_real("clip", bound)
    replace = beyond(value, bound)
    if bound.dtype.is_floating:
        replace = replace | is_nan(bound)
    out = compare.where(replace, bound, value)
    same_kind = KIND_ORDER[out.dtype.kind] == KIND_ORDER[x.dtype.kind]
    return cast(out, x.dtype) if same_kind else out


def nan_to_num(x, /, nan: float = 0.0, posinf=None, neginf=None):
    """x with NaN replaced, and infinities too: by the largest finite numbers unless given.
    Shapes: x (...) -> (...). Dtypes: any, kept; complex by parts.
    Raises: DTypeError for what is not numeric. Source: NumPy.
    Example: >>> nan_to_num([math.nan, 1.0]).tolist()
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


def isclose(x1, x2, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False):
    """True where x1 and x2 are equal up to rounding.
    |x1 - x2| ≤ atol + rtol · |x2|
    Shapes: x1 (...), x2 (...) -> their common broadcast shape. Dtypes: any -> bool.
    Raises: ShapeError if the shapes do not broadcast. Source: NumPy.
    Example: >>> isclose([1.0, 2.0], [1.0, 2.1]).tolist()
             [True, False]
    """
    x1, x2 = inexact("isclose", x1, x2)
    same = (x1 == x2) | (isfinite(x2) & (abs(x1 - x2) <= atol + rtol * abs(x2)))
    return same | (isnan(x1) & isnan(x2)) if equal_nan else same


def allclose(x1, x2, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether x1 and x2 are equal up to rounding everywhere, as a Python bool.
    |x1 - x2| ≤ atol + rtol · |x2|
    Shapes: x1 (...), x2 (...), which broadcast. Dtypes: any.
    Raises: ShapeError if the shapes do not broadcast. Source: NumPy.
    Example: >>> allclose([1.0, 2.0], [1.0, 2.1])
             False
    """
    close = isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return bool(reductions.all_(close, axes=tuple(range(close.ndim))))


def array_equal(x1, x2, /, equal_nan: bool = False) -> bool:
    """Whether x1 and x2 have the same shape and equal elements, as a Python bool.
    Shapes: x1 (...), x2 (...). Dtypes: any. Raises: DTypeError for what is not numeric.
    Source: NumPy.
    Example: >>> array_equal([1, 2], [1.0, 2.0])
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
