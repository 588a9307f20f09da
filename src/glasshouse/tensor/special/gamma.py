"""Formulas of the gamma function's kin, in float64."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.dtype import float64
from glasshouse.dispatch.value import as_value, full, reshape
from glasshouse.ops import elementwise as cards
from glasshouse.ops.compare import where
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.elementary import choose
from glasshouse.tensor.standard.reduce import sum as sum_of

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
             43867 / 798, -174611 / 330)  # fmt: skip
SHIFT = 8  # from where the asymptotic series are exact in float64


def stirling(x: Any) -> Any:
    """log Γ(x) for x of 8 or more.

    Source: Abramowitz, Stegun 1964, 6.1.41.
    """
    out = (x - 0.5) * cards.log(x) - x + 0.5 * math.log(2 * math.pi)
    inverse = 1 / (x * x)
    tail = 0.0
    for k, b in reversed(list(enumerate(BERNOULLI, 1))):
        tail = tail * inverse + b / (2 * k * (2 * k - 1))
    return out + tail / x


def positive_lgamma(x: Any) -> Any:
    """log Γ(x) for x of 1/2 or more."""
    small = x < SHIFT
    product = near = choose(small, x, 1.0)
    for k in range(1, SHIFT):
        product = product * (near + k)
    return stirling(choose(small, x + SHIFT, x)) - where(small, cards.log(product), x * 0)


def lgamma_of(x: Any) -> Any:
    infinite = cards.abs_(x) == math.inf
    x = choose(infinite, 1.0, x)
    low = x < 0.5
    above = positive_lgamma(where(low, 1 - x, x))
    turn = choose(low, x - elementwise.round(x), 0.5)
    sine = cards.abs_(cards.sin(turn * math.pi))
    zero = sine == 0
    mirrored = math.log(math.pi) - cards.log(choose(zero, 1.0, sine)) - above
    above = choose((x == 1) | (x == 2), above - above.detach(), above)  # 0, with its slope
    out = where(low, choose(zero, math.inf, mirrored), above)
    return choose(infinite, math.inf, out)


def positive_digamma(x: "Tensor") -> "Tensor":
    """ψ(x) for x of 1/2 or more.

    Source: Abramowitz, Stegun 1964, 6.3.18.
    """
    small = x < SHIFT
    near = choose(small, x, 1.0)
    steps = 1 / near
    for k in range(1, SHIFT):
        steps = steps + 1 / (near + k)
    far = choose(small, x + SHIFT, x)
    inverse = 1 / (far * far)
    tail = 0.0
    for k, b in reversed(list(enumerate(BERNOULLI, 1))):
        tail = (tail + b / (2 * k)) * inverse
    return cards.log(far) - 0.5 / far - tail - where(small, steps, x * 0)


def digamma_of(x: "Tensor") -> "Tensor":
    infinite = x == math.inf
    x = choose(infinite, 1.0, x)
    low = x < 0.5
    above = positive_digamma(where(low, 1 - x, x))
    turn = choose(low, x - elementwise.round(x), 0.25)
    pole = turn == 0
    turn = choose(pole, 0.25, turn) * math.pi
    mirrored = above - math.pi * cards.cos(turn) / cards.sin(turn)
    out = where(low, choose(pole, math.nan, mirrored), above)
    ends = choose(elementwise.signbit(x), math.inf, full(x.shape, -math.inf, x.dtype))
    return choose(infinite, math.inf, where(x == 0, ends, out))


STEPS = 12


def zeta_of(s: Any, q: Any) -> Any:
    """Σ (q + k)^-s from k = 0, for q above 0 and s above 1, by Euler's and Maclaurin's formula.

    Source: Abramowitz, Stegun 1964, 23.1.30.
    """
    total = q**-s
    for k in range(1, STEPS):
        total = total + (q + k) ** -s
    a = q + STEPS
    power = a**-s
    total = total + power * a / (s - 1) + power * 0.5
    term = power * s / a
    for k, b in enumerate(BERNOULLI, 1):
        total = total + term * (b / math.factorial(2 * k))
        term = term * (s + (2 * k - 1)) * (s + 2 * k) / (a * a)
    return total


def cotangent_slopes(n: int) -> list[int]:
    """The polynomial in c = cot(y) that is the n-th derivative of cot, by dc/dy = -(1 + c²)."""
    polynomial = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(polynomial)][1:]
        polynomial = [0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            polynomial[k] -= c
            polynomial[k + 2] -= c
    return polynomial


def polygamma_of(n: int, x: Any) -> Any:
    if n == 0:
        return digamma_of(x)
    low = x < 0.5
    order = full(x.shape, float(n + 1), float64)
    above = zeta_of(order, where(low, 1 - x, x)) * float((-1) ** (n + 1) * math.factorial(n))
    turn = choose(low, x - elementwise.round(x), 0.25)
    pole = turn == 0
    turn = choose(pole, 0.25, turn) * math.pi
    cotangent = cards.cos(turn) / cards.sin(turn)
    slope = 0.0
    for c in reversed(cotangent_slopes(n)):
        slope = slope * cotangent + float(c)
    mirrored = above * float((-1) ** n) - slope * math.pi ** (n + 1)
    infinite = math.inf if n % 2 else -math.inf
    return where(low, choose(pole, infinite, mirrored), above)


# -- incomplete gamma ------------------------------------------------------------------------------

TERMS = 160  # of series and continued fraction, enough for a up to LARGE
LARGE = 100.0
NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


def scale_of(a: Any, x: Any) -> Any:
    """x^a e^-x / Γ(a)"""
    return cards.exp(a * cards.log(x) - x - lgamma_of(a))


def gamma_series(a: Any, x: Any) -> Any:
    """P(a, x) by Σ x^k / (a (a + 1) … (a + k)), for x below a + 1."""
    term = total = 1 / a
    for k in range(1, TERMS):
        term = term * x / (a + k)
        total = total + term
    return total * scale_of(a, x)


def gamma_fraction(a: Any, x: Any) -> Any:
    """Q(a, x) by a continued fraction, from its end, for x of a + 1 or more."""
    out = x * 0
    for k in range(TERMS, 0, -1):
        out = k * (k - a) / (x + (2 * k + 1) - a - out)
    return scale_of(a, x) / (x + 1 - a - out)


def gamma_integral(a: Any, x: Any) -> Any:
    """(whether the integral is Q, the integral of the density from x to its flat end).

    Source: Press et al. 2007, Numerical Recipes, 6.2, for the ends.
    """
    peak, width = a - 1, cards.sqrt(a - 1)
    upper = x > peak
    above = cards.maximum(peak + width * 11.5, x + width * 6)
    below = cards.maximum(cards.minimum(peak - width * 7.5, x - width * 5), x * 0)
    end = where(upper, above, below)
    shape = (*x.shape, 1)
    start, stop = (reshape(v, shape) for v in (x, end))
    t = start + (stop - start) * as_value((NODES + 1) / 2)
    tall, log_peak = reshape(peak, shape), reshape(cards.log(peak), shape)
    inside = cards.exp((cards.log(t) - log_peak) * tall - (t - tall))
    area = sum_of(inside * as_value(WEIGHTS / 2), axis=-1) * cards.abs_(end - x)
    return upper, area * cards.exp(peak * (cards.log(peak) - 1) - lgamma_of(a))


def halves_of_gamma(a: Any, x: Any) -> Any:
    """(P, Q), the lower and the upper part, for positive a and x."""
    large = a > LARGE
    a1, x1 = choose(large, 1.0, a), choose(large, 1.0, x)
    lower = x1 < a1 + 1
    p = gamma_series(a1, choose(lower, x1, 1e-3))
    q = gamma_fraction(choose(lower, 1.0, a1), choose(lower, 2.0, x1))
    a2, x2 = choose(large, a, 200.0), choose(large, x, 200.0)
    upper, area = gamma_integral(a2, x2)
    part = where(large, area, where(lower, p, q))
    is_upper = where(large, upper, ~lower)
    return where(is_upper, 1 - part, part), where(is_upper, part, 1 - part)
