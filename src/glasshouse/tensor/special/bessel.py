"""Formulas of Bessel and Airy functions, in float64: Chebyshev series near 0 and far away."""

import math
from collections.abc import Callable
from typing import Any

from glasshouse.ops import elementwise as cards
from glasshouse.tensor.special import series
from glasshouse.tensor.special.error_functions import either, piecewise
from glasshouse.tensor.special.series import chebyshev
from glasshouse.tensor.standard.elementary import choose


def by_size(near: Any, far: Any, odd: bool = False) -> Any:
    """A function of |x|, by one series up to 8 and another beyond; times x where it is odd."""

    def compute(x):
        size = cards.abs_(x)
        out = piecewise(size, size <= 8, near, far, 1.0, 16.0)
        return out * x if odd else out

    return compute


def scaled_i(order: int) -> Any:
    near, far = (series.I0_NEAR, series.I0_FAR) if order == 0 else (series.I1_NEAR, series.I1_FAR)

    def small(x):
        return chebyshev(near, x * 0.25 - 1)

    def large(x):
        out = chebyshev(far, 16 / x - 1) / cards.sqrt(x)
        return out / x if order else out

    return by_size(small, large, odd=bool(order))


i0e_of: Any = scaled_i(0)
i1e_of: Any = scaled_i(1)


def unscaled(compute: Callable[..., Any]) -> Any:
    return lambda x: compute(x) * cards.exp(cards.abs_(x))


i0_of: Any = unscaled(i0e_of)
i1_of: Any = unscaled(i1e_of)


def scaled_k(order: int) -> Any:
    near, far = (series.K0_NEAR, series.K0_FAR) if order == 0 else (series.K1_NEAR, series.K1_FAR)

    def small(x):
        log = cards.log(x * 0.5)
        out = chebyshev(near, x * x * 0.5 - 1)
        out = out / x + log * i1_of(x) if order else out - log * i0_of(x)
        return out * cards.exp(x)

    def large(x):
        return chebyshev(far, 4 / x - 1) / cards.sqrt(x)

    def compute(x):
        inside = piecewise(cards.abs_(x), x <= 2, small, large, 1.0, 4.0)
        return choose(x > 0, inside, either(x == 0, math.inf, math.nan))

    return compute


def far_waves(order: int) -> Any:
    """The amplitudes P and Q, with the square root before them, and the phase."""
    p, q = (series.P0, series.Q0) if order == 0 else (series.P1, series.Q1)

    def parts(x):
        t = 128 / (x * x) - 1
        scale = cards.sqrt(2 / (math.pi * x))
        phase = x - (order / 2 + 0.25) * math.pi
        return chebyshev(p, t) * scale, chebyshev(q, t) / x * scale, phase

    return parts


def bessel_j(order: int) -> Any:
    near = series.J1_NEAR if order else series.J0_NEAR
    waves = far_waves(order)

    def small(x):
        return chebyshev(near, x * x * (1 / 32) - 1)

    def large(x):
        p, q, phase = waves(x)
        out = p * cards.cos(phase) - q * cards.sin(phase)
        return out / x if order else out

    return by_size(small, large, odd=bool(order))


def bessel_y(order: int) -> Any:
    near, waves, j = (series.Y0_NEAR, series.Y1_NEAR)[order], far_waves(order), bessel_j(order)

    def small(x):
        out = chebyshev(near, x * x * (1 / 32) - 1)
        return (out / x if order else out) + cards.log(x) * j(x) * (2 / math.pi)

    def large(x):
        p, q, phase = waves(x)
        return p * cards.sin(phase) + q * cards.cos(phase)

    def compute(x):
        inside = piecewise(cards.abs_(x), x <= 8, small, large, 1.0, 16.0)
        return choose(x > 0, inside, either(x == 0, -math.inf, math.nan))

    return compute


def times_exp(compute: Callable[..., Any]) -> Any:
    return lambda x: compute(x) * cards.exp(-x)


def airy_ai_of(x: Any) -> Any:
    """Waves below -5, a series up to 3, a decay as exp(-2/3 x^(3/2)) beyond."""

    def angle(size):
        return size * cards.sqrt(size) * (2 / 3)

    def waves(x):
        size = -x
        t = 250 / (size * size * size) - 1
        phase, scale = angle(size) + math.pi / 4, 1 / cards.sqrt(cards.sqrt(size) * math.pi)
        p, q = chebyshev(series.AIRY_P, t), chebyshev(series.AIRY_Q, t) / angle(size)
        return (p * cards.sin(phase) - q * cards.cos(phase)) * scale

    def falling(x):
        t = 2 * (3 / x) * cards.sqrt(3 / x) - 1
        scale = cards.exp(-angle(x)) / cards.sqrt(cards.sqrt(x))
        return chebyshev(series.AIRY_FAR, t) * scale

    def near(x):
        return chebyshev(series.AIRY_NEAR, (x + 1) * 0.25)

    x = choose(x > 150, 150.0, x)  # where it is 0
    below = piecewise(x, x < -5, waves, near_from(near), -8.0, 0.0)
    return piecewise(x, x > 3, falling, lambda _: below, 4.0, 0.0)


def near_from(near: Any) -> Any:
    """`near` of numbers up to 3: those beyond count as 3."""
    return lambda x: near(choose(x > 3, 3.0, x))
