"""Formulas of the error function's kin, and of the normal distribution, in float64."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.base.dtype import float64
from glasshouse.dispatch.value import full
from glasshouse.ops import elementwise as cards
from glasshouse.ops.compare import where
from glasshouse.tensor.random import erfinv as erfinv_in_double
from glasshouse.tensor.special import series
from glasshouse.tensor.special.series import chebyshev
from glasshouse.tensor.standard.elementary import choose, is_nan

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


def either(condition: "Tensor", x: float, y: float) -> "Tensor":
    """x where the condition holds, else y, both numbers."""
    return choose(condition, x, full(condition.shape, y, float64))


def piecewise(
    x: "Tensor",
    condition: "Tensor",
    first: Callable[..., Any],
    second: Callable[..., Any],
    safe: float,
    other_safe: float,
) -> "Tensor":
    """first(x) where the condition holds, else second(x); each sees a safe number elsewhere, so
    that derivatives are free of NaN."""
    one = first(choose(condition, x, safe))
    return where(condition, one, second(choose(condition, other_safe, x)))


def positive_erfcx(x: "Tensor") -> "Tensor":
    t = (x - 3.75) / (x + 3.75)
    return chebyshev(series.ERFCX, t) / (1 + 2 * x)


def erfcx_of(x: Any) -> Any:
    size = cards.abs_(x)
    above = positive_erfcx(choose(size == math.inf, 1e300, size))
    below = choose(x < 0, x, 0.0)
    return where(x < 0, 2 * cards.exp(below * below) - above, above)


def erfc_of(x: "Tensor") -> "Tensor":
    def far(x):
        x = choose(x > 30, 30.0, x)  # where it is 0
        return cards.exp(-x * x) * positive_erfcx(x)

    inside = piecewise(
        cards.abs_(x), cards.abs_(x) < 0.5, lambda x: 1 - cards.erf(x), far, 0.0, 1.0
    )
    return where(x < 0, 2 - inside, inside)


def erfinv_of(y: "Tensor") -> "Tensor":
    inverse = erfinv_in_double(choose(cards.abs_(y) < 1, y, 0.0))
    inverse = choose(cards.abs_(y) < 1, inverse, either(y == 1, math.inf, -math.inf))
    return choose((cards.abs_(y) > 1) | is_nan(y), math.nan, inverse)


def ndtr_of(x: Any) -> Any:
    return erfc_of(x * -math.sqrt(0.5)) * 0.5


def log_ndtr_of(x: Any) -> Any:
    def low(x):
        x = choose(x < -1e150, -1e150, x)
        return cards.log(positive_erfcx(x * -math.sqrt(0.5)) * 0.5) - x * x * 0.5

    def high(x):
        return cards.log1p(erfc_of(x * math.sqrt(0.5)) * -0.5)

    out = piecewise(x, x < -1, low, high, -2.0, 0.0)
    return choose(x < -1e150, -math.inf, out)


def lower_ndtri(p: Any) -> Any:
    """The x with ndtr(x) = p for p up to 1/2, by Newton's method on log(ndtr).

    Source: Abramowitz, Stegun 1964, 26.2.23, for the first guess.
    """
    t = cards.sqrt(cards.log(p) * -2)
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    x = above / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    for _ in range(4):
        log_cdf = log_ndtr_of(x)
        slope = cards.exp(x * x * -0.5 - log_cdf) * (1 / math.sqrt(2 * math.pi))
        x = x - (log_cdf - cards.log(p)) / slope
    return x


def ndtri_of(p: Any) -> Any:
    inside = (p > 0) & (p < 1)
    lower = cards.minimum(p, 1 - p)
    x = lower_ndtri(choose(inside, lower, 0.5))
    x = where(p > 0.5, -x, x)
    return choose(inside, x, choose(p == 0, -math.inf, either(p == 1, math.inf, math.nan)))
