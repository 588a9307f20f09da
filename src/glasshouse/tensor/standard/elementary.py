"""Formulas of elementary functions, of real and complex values, that neither cancel nor overflow.

Branch cuts, signed zeros, infinities and NaN of complex functions follow ISO C, annex G, which the
Array API quotes. Where a formula would give NaN in a branch that is not taken, its operands are
replaced there by harmless numbers beforehand, so that derivatives are free of NaN too.

Source: Kahan 1987, Branch cuts for complex elementary functions, or Much ado about nothing's sign
    bit
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ml_dtypes import finfo  # NumPy's, and bfloat16

from glasshouse.base.dtype import int16, int32, int64
from glasshouse.dispatch.value import ArrayLike, cast, full, match
from glasshouse.ops import cast as parts_of
from glasshouse.ops import compare
from glasshouse.ops import elementwise as cards

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


def choose(condition: Any, x: ArrayLike, y: ArrayLike) -> "Tensor":
    """x where the condition holds, else y; one of the two may be a Python scalar."""
    x, y = match("where", x, y)
    return compare.where(condition, x, y)


def sign_is_set(x: Any) -> "Tensor":
    """True where the sign bit of real x is set, also for -0 and NaN."""
    return parts_of.bitcast(x, dtype={2: int16, 4: int32, 8: int64}[x.dtype.itemsize]) < 0


def flip_if(condition: "Tensor", x: "Tensor") -> "Tensor":
    return compare.where(condition, -x, x)


def copy_sign(value: float, y: Any) -> Any:
    """The positive number `value` with the signs of y, whose sign bits count."""
    return flip_if(sign_is_set(y), full(y.shape, value, y.dtype))


def is_infinite(x: "Tensor") -> "Tensor":
    return cards.abs_(x) == math.inf


def is_nan(x: Any) -> "Tensor":
    return x != x


def machine_epsilon(dtype: Any) -> float:
    return float(finfo(dtype.np).eps)


def largest_number(dtype: Any) -> float:
    return float(finfo(dtype.np).max)


def sinh(x: Any) -> Any:
    """2 sinh(x/2) cosh(x/2), both from expm1(±x/2)"""
    up, down = cards.expm1(x * 0.5), cards.expm1(x * -0.5)
    return (up - down) * ((up + down) * 0.5 + 1)


def cosh(x: "Tensor") -> "Tensor":
    """(exp(x/2)² + exp(-x/2)²) / 2, which overflows no earlier than its result"""
    up, down = cards.exp(x * 0.5), cards.exp(x * -0.5)
    return up * 0.5 * up + down * 0.5 * down


def other_leg(x: "Tensor") -> "Tensor":
    """sqrt(1 - x²), of factors that do not cancel"""
    return cards.sqrt(1 - x) * cards.sqrt(1 + x)


def asinh(x: "Tensor") -> "Tensor":
    """log1p(x (1 + x / (1 + sqrt(1 + x²)))) for x ≥ 0, log(2x) for large x; odd"""
    negative = x < 0
    x = flip_if(negative, x)
    large = x > machine_epsilon(x.dtype) ** -0.5  # where 1 is lost beside x²
    near, far = choose(large, 1.0, x), choose(large, x, 1.0)
    near = cards.log1p(near * (1 + near / (1 + cards.sqrt(1 + near * near))))
    return flip_if(negative, compare.where(large, cards.log(far) + math.log(2), near))


def acosh(x: "Tensor") -> "Tensor":
    """log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1, log(2x) for large x"""
    large = x > machine_epsilon(x.dtype) ** -0.5
    above, far = choose(large, 2.0, x) - 1, choose(large, x, 1.0)
    near = cards.log1p(above + cards.sqrt(above) * cards.sqrt(above + 2))
    return compare.where(large, cards.log(far) + math.log(2), near)


def log_base(base: float) -> Any:
    """The function log(x) / log(base), exact at powers of `base`: those are split off first."""
    scale = 1 / math.log(base)

    def log(x):
        rough = cards.log(x) * scale
        within = cards.abs_(rough) < 0.9 * math.log(largest_number(x.dtype)) * scale
        power = cards.round_(choose(within, rough, 0.0))
        power = cast(cast(power, int32), x.dtype)  # a whole number, apart from x's derivative
        return power + cards.log(x / base**power) * scale

    return log


def split(z: "Tensor") -> Any:
    """(real part, imaginary part) of complex z."""
    return parts_of.real(z), parts_of.imag(z)


def join(re: Any, im: Any) -> Any:
    """re + i·im of real values; exact for infinities, NaN and signed zeros."""
    return parts_of.make_complex(re, im)


def by_parts(function: Callable[..., Any]) -> Any:
    """The function of z that applies `function` to its real and to its imaginary part."""
    return lambda z: join(*map(function, split(z)))


def hypot(x: Any, y: Any) -> "Tensor":
    """sqrt(x² + y²) of real values, scaled by the larger one so that no square overflows"""
    x, y = cards.abs_(x), cards.abs_(y)
    infinite = (x == math.inf) | (y == math.inf)
    large = choose(infinite, 1.0, cards.maximum(x, y))
    small = choose(infinite, 0.0, cards.minimum(x, y))
    ratio = small / choose(large == 0, 1.0, large)
    return choose(infinite, math.inf, large * cards.sqrt(1 + ratio * ratio))


def multiplier(factor: float) -> Any:
    """The function z · factor, by parts, so that infinities stay clean."""
    return by_parts(lambda part: part * factor)


def complex_log(base: float) -> Any:
    divide = multiplier(1 / math.log(base))
    return lambda z: divide(cards.log(z))


def complex_sign(z: Any) -> Any:
    """z / |z|, and 0 for 0"""
    re, im = split(z)
    scale = cards.maximum(cards.abs_(re), cards.abs_(im))
    zero = scale == 0
    scale = choose(zero, 1.0, scale)
    re, im = choose(zero, 1.0, re / scale), im / scale
    length = hypot(re, im)
    return join(choose(zero, 0.0, re / length), choose(zero, 0.0, im / length))


def turned(z: Any) -> Any:
    """i · z"""
    re, im = split(z)
    return join(-im, re)


def rotated(function: Callable[..., Any]) -> Any:
    """z ↦ -i · function(i · z): from sin to sinh, from tanh to tan, from asin to asinh."""

    def rotate(z):
        re, im = split(function(turned(z)))
        return join(im, -re)

    return rotate


complex_sinh: Any = rotated(cards.sin)
complex_tan: Any = rotated(cards.tanh)


def complex_expm1(z: Any) -> Any:
    """exp(z) - 1; where |re| < 1, its real part is expm1(re) cos(im) - 2 sin²(im / 2)"""
    re, im = split(z)
    far, height = split(cards.exp(z))
    close = cards.abs_(re) < 1
    re, im = choose(close, re, 0.0), choose(close, im, 0.0)
    half = cards.sin(im * 0.5)
    square = half * half
    # The last term is 0, which makes 0 of -0, as the standard says; a constant would be left out.
    near = cards.expm1(re) * cards.cos(im) - 2 * square + 0.0 * square
    return join(compare.where(close, near, far - 1), height)


def complex_log1p(z: Any) -> Any:
    """log(1 + z); for small z its real part is log1p(re (2 + re) + im²) / 2"""
    re, im = split(z)
    far, angle = split(cards.log(join(1 + re, im)))
    close = (cards.abs_(re) < 0.5) & (cards.abs_(im) < 0.5)
    re, im = choose(close, re, 0.0), choose(close, im, 0.0)
    near = cards.log1p(re * (2 + re) + im * im) * 0.5
    return join(compare.where(close, near, far), angle)


def finite_or_half(re: Any, im: Any) -> Any:
    """(infinite, re, im): where a part is infinite, and both parts with 0.5 put there."""
    infinite = is_infinite(re) | is_infinite(im)
    return infinite, choose(infinite, 0.5, re), choose(infinite, 0.5, im)


def roots_beside_one(re: Any, im: Any) -> Any:
    """The parts of sqrt(1 - z) and of sqrt(1 + z), with the sign of im kept also when it is 0."""
    return *split(cards.sqrt(join(1 - re, -im))), *split(cards.sqrt(join(1 + re, im)))


def complex_asin(z: Any) -> Any:
    """Kahan's CASIN, and annex G's values for infinities and NaN"""
    re, im = split(z)
    infinite, x, y = finite_or_half(re, im)
    minus_re, minus_im, plus_re, plus_im = roots_beside_one(x, y)
    angle = cards.atan2(x, minus_re * plus_re - minus_im * plus_im)
    angle = compare.where(infinite, cards.atan2(re, cards.abs_(im)), angle)
    angle = compare.where((re == 0) & is_nan(im), re, angle)
    height = asinh(minus_re * plus_im - minus_im * plus_re)
    return join(angle, compare.where(infinite, copy_sign(math.inf, im), height))


def complex_acos(z: Any) -> Any:
    """Kahan's CACOS, and annex G's values for infinities and NaN"""
    re, im = split(z)
    infinite, x, y = finite_or_half(re, im)
    minus_re, minus_im, plus_re, plus_im = roots_beside_one(x, y)
    angle = 2 * cards.atan2(minus_re, plus_re)
    angle = compare.where(infinite, cards.atan2(cards.abs_(im), re), angle)
    angle = choose((re == 0) & is_nan(im), math.pi / 2, angle)
    height = asinh(plus_re * minus_im - plus_im * minus_re)
    return join(angle, compare.where(infinite, -copy_sign(math.inf, im), height))


def complex_acosh(z: Any) -> Any:
    """±i · acos(z), the sign chosen to make the real part positive"""
    below = sign_is_set(parts_of.imag(z))
    re, im = split(complex_acos(z))
    return join(compare.where(below, im, -im), flip_if(below, re))


def complex_atanh(z: Any) -> Any:
    """log1p(4x / |1 - z|²) / 4 + i atan2(2y, 1 - |z|²) / 2 for x ≥ 0; the real part is odd in x"""
    re, im = split(z)
    infinite, x, y = finite_or_half(re, im)
    x = flip_if(sign_is_set(re), x)
    distance = hypot(1 - x, y)
    touches = distance < machine_epsilon(x.dtype) ** 4  # where its square would underflow
    apart, near = choose(touches, 1.0, distance), choose(touches, distance, 1.0)
    width = cards.log1p(x / apart * 4 / apart) * 0.25
    width = compare.where(touches, (math.log(2) - cards.log(near)) * 0.5, width)
    width = flip_if(sign_is_set(re), choose(infinite, 0.0, width))
    angle = cards.atan2(y, ((1 - x) * (1 + x) - y * y) * 0.5) * 0.5
    right_angle = choose(is_nan(im), math.nan, copy_sign(math.pi / 2, im))
    angle = compare.where(infinite, right_angle, angle)
    return join(compare.where((re == 0) & is_nan(im), re, width), angle)


complex_asinh: Any = rotated(complex_asin)
complex_atan: Any = rotated(complex_atanh)
