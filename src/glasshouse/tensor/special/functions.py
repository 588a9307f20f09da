"""`gh.special`: special functions, composed of cards. Most are computed in float64 and
rounded to the dtype of their arguments."""

import math
from collections.abc import Callable
from typing import Any

from glasshouse.base import float64, inexact_dtype, int64
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike, as_value, cast, full
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops import elementwise as cards
from glasshouse.ops.checks import check_integer, check_range
from glasshouse.ops.compare import where
from glasshouse.tensor.special import bessel, gamma
from glasshouse.tensor.special import error_functions as errors
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.arithmetic import xlogy, zero_where_zero
from glasshouse.tensor.standard.elementary import choose, is_nan
from glasshouse.tensor.standard.elementwise import (
    FLOATING,
    NO_COMPLEX,
    NUMERIC,
    REAL,
    Unary,
    documented,
    erf,
    exp2,
    expm1,
    inexact,
    log1p,
    named,
    round,
    unary,
)
from glasshouse.tensor.standard.reduce import logsumexp
from glasshouse.tensor.standard.softmax import log_softmax, softmax

__all__ = ["airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
           "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
           "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2",
           "expit", "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h",
           "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "laguerre_polynomial_l",
           "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
           "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
           "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round",
           "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
           "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
           "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc", "softmax",
           "spherical_bessel_j0", "xlog1py", "xlogy", "zeta"]  # fmt: skip


def in_double(
    name: str, compute: Callable[..., Any], about: str, argument: str = "1.0", result: str = "1.0"
) -> Any:
    """A function of one real argument that is computed in float64."""

    def function(x, /):
        x = as_value(x, where=name)
        elementwise.check_real(name, x)
        dtype = inexact_dtype(x.dtype)
        return cast(compute(cast(x, float64)), dtype)

    return documented(function, name, about, REAL, f"{NO_COMPLEX} and {NUMERIC}", argument, result)


erfc: Any = in_double("erfc", errors.erfc_of, "1 - erf(x), accurate for large x.", "0.0", "1.0")
erfcx: Any = in_double(
    "erfcx", errors.erfcx_of, "e^(x²) · erfc(x), which does not underflow.", "0.0", "1.0"
)
erfinv: Any = in_double(
    "erfinv", errors.erfinv_of, "The y with erf(y) = x; NaN outside of -1 to 1.", "0.0", "0.0"
)
ndtr: Any = in_double(
    "ndtr", errors.ndtr_of, "The normal distribution function: erfc(-x / √2) / 2.", "0.0", "0.5"
)
log_ndtr: Any = in_double(
    "log_ndtr",
    errors.log_ndtr_of,
    "The logarithm of the normal distribution function, accurate for small x.",
    "0.0",
    "-0.6931471824645996",
)
ndtri: Any = in_double(
    "ndtri", errors.ndtri_of, "The y with ndtr(y) = x; NaN outside of 0 to 1.", "0.0", "-inf"
)
gammaln: Any = in_double("gammaln", gamma.lgamma_of, "log |Γ(x)|.", "1.0", "0.0")
digamma: Any = in_double(
    "digamma", gamma.digamma_of, "The slope of gammaln: Γ'(x) / Γ(x).", "0.0", "-inf"
)
i0: Any = in_double(
    "i0", bessel.i0_of, "Modified Bessel function, first kind of order 0.", "0.0", "1.0"
)
i0e: Any = in_double("i0e", bessel.i0e_of, "e^-|x| · i0(x).", "0.0", "1.0")
i1: Any = in_double(
    "i1", bessel.i1_of, "Modified Bessel function, first kind of order 1.", "0.0", "0.0"
)
i1e: Any = in_double("i1e", bessel.i1e_of, "e^-|x| · i1(x).", "0.0", "0.0")
bessel_j0: Any = in_double(
    "bessel_j0", bessel.bessel_j(0), "Bessel function, first kind of order 0.", "0.0", "1.0"
)
bessel_j1: Any = in_double(
    "bessel_j1", bessel.bessel_j(1), "Bessel function, first kind of order 1.", "0.0", "0.0"
)
bessel_y0: Any = in_double(
    "bessel_y0", bessel.bessel_y(0), "Bessel function, second kind of order 0.", "0.0", "-inf"
)
bessel_y1: Any = in_double(
    "bessel_y1", bessel.bessel_y(1), "Bessel function, second kind of order 1.", "0.0", "-inf"
)
airy_ai: Any = in_double(
    "airy_ai",
    bessel.airy_ai_of,
    "Airy's function Ai: y'' = x · y, falling for x > 0.",
    "1e3",
    "0.0",
)
scaled_modified_bessel_k0: Any = in_double(
    "scaled_modified_bessel_k0", bessel.scaled_k(0), "e^x · modified_bessel_k0(x).", "0.0", "inf"
)
scaled_modified_bessel_k1: Any = in_double(
    "scaled_modified_bessel_k1", bessel.scaled_k(1), "e^x · modified_bessel_k1(x).", "0.0", "inf"
)
modified_bessel_k0: Any = in_double(
    "modified_bessel_k0",
    bessel.times_exp(bessel.scaled_k(0)),
    "Modified Bessel function, second kind of order 0.",
    "0.0",
    "inf",
)
modified_bessel_k1: Any = in_double(
    "modified_bessel_k1",
    bessel.times_exp(bessel.scaled_k(1)),
    "Modified Bessel function, second kind of order 1.",
    "0.0",
    "inf",
)
spherical_bessel_j0: "Unary" = unary(
    "spherical_bessel_j0",
    lambda x: quotient_of_sine(x),
    None,
    "sin(x) / x, and 1 for 0.",
    "0.0",
    "1.0",
)
sinc: "Unary" = unary(
    "sinc",
    lambda x: quotient_of_sine(x * math.pi),
    None,
    "sin(πx) / (πx), and 1 for 0.",
    "0.0",
    "1.0",
)
expit: "Unary" = unary(
    "expit", lambda x: logistic(x), None, "The logistic function: 1 / (1 + e^-x).", "0.0", "0.5"
)
entr: "Unary" = unary(
    "entr", lambda x: entropy_of(x), None, "The entropy -x · log(x); 0 for 0.", "1.0", "-0.0"
)
psi = digamma
modified_bessel_i0: Any = i0
modified_bessel_i1: Any = i1


def quotient_of_sine(x: Any) -> Any:
    """sin(x) / x; near 0 by its series, whose derivatives are right too."""
    near = cards.abs_(x) < 1e-2
    small, large = choose(near, x * x, 0.0), choose(near, 1.0, x)
    series = 1 - small / 6 * (1 - small / 20 * (1 - small / 42))
    endless = cards.abs_(large) == math.inf
    large = choose(endless, 1.0, large)
    return where(near, series, choose(endless, 0.0, cards.sin(large) / large))


def logistic(x: Any) -> Any:
    """1 / (1 + e^-x) by e^-|x|, which does not overflow."""
    negative = x < 0
    z = cards.exp(where(negative, x, -x))
    return choose(negative, z, 1.0) / (z + 1)


def entropy_of(x: Any) -> Any:
    inside = choose(x > 0, x, 1.0)
    return choose(
        x < 0, -math.inf, choose(x == 0, 0.0, where(is_nan(x), x, -inside * cards.log(inside)))
    )


@composed
@rounded_once
def logit(x: ArrayLike, eps: Any = None) -> Any:
    """log(x / (1 - x)), of x cut to eps … 1 - eps where that is given.

    Shapes: x (...) -> (...).
    Dtypes: floating, kept; integers become float32.
    Raises: DTypeError for complex values.
    Source: SciPy, PyTorch.
    Example:
        >>> logit(as_value([0.5])).tolist()
        [0.0]
    """
    (x,) = elementwise.floats("logit", as_value(x, where="logit"))
    if eps is not None:
        eps = check_range("logit", "eps", eps, 0, 1)
        x = elementwise.clip(x, eps, 1 - eps)
    return cards.log(x / (1 - x))


@composed
def xlog1py(x: ArrayLike, other: ArrayLike, /) -> Any:
    """x · log(1 + other), and 0 where x is 0, unless other is NaN.

    Shapes: x (...), other (...) -> their common broadcast shape.
    Source: SciPy, PyTorch.
    """
    x, other = inexact("xlog1py", x, other)
    return zero_where_zero(x, other, cards.log1p)


@composed
def polygamma(n: int, x: ArrayLike) -> Any:
    """The n-th derivative of digamma.

    Shapes: x (...) -> (...).
    Dtypes: floating, kept; integers become float32.
    Raises: OptionError for negative n, DTypeError for complex values.
    Source: Abramowitz, Stegun 1964, 6.4.
    """
    n = check_integer("polygamma", "n", n)
    (x,) = elementwise.floats("polygamma", as_value(x, where="polygamma"))
    return cast(gamma.polygamma_of(n, cast(x, float64)), x.dtype)


@composed
def multigammaln(x: ArrayLike, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension p.
    p (p - 1) / 4 · log π + Σ log Γ(x - j / 2) over j from 0 to p - 1

    Shapes: x (...) -> (...).
    Raises: OptionError for p below 1.
    Source: SciPy, PyTorch.
    """
    p = check_integer("multigammaln", "p", p, 1)
    (x,) = elementwise.floats("multigammaln", as_value(x, where="multigammaln"))
    wide = cast(x, float64)
    total = gamma.lgamma_of(wide)
    for j in range(1, p):
        total = total + gamma.lgamma_of(wide - j / 2)
    return cast(total + p * (p - 1) / 4 * math.log(math.pi), x.dtype)


def incomplete(name: str, part: int, about: str) -> Any:
    def function(a, x, /):
        a, x = elementwise.floats(name, *inexact(name, a, x))
        dtype = a.dtype
        a, x = cast(a, float64), cast(x, float64)
        inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
        part_inside = gamma.halves_of_gamma(choose(inside, a, 1.0), choose(inside, x, 1.0))[part]
        none = part == 0  # P is 0 for x = 0, or an infinite a
        at_zero, at_end = (0.0, 1.0) if none else (1.0, 0.0)
        edge = choose((x == 0) | (a == math.inf), at_zero, full(x.shape, at_end, float64))
        edge = choose((a < 0) | (x < 0) | is_nan(a) | is_nan(x), math.nan, edge)
        edge = choose((a == 0) & (x > 0), at_end, edge)
        both = ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
        return cast(where(inside, part_inside, choose(both, math.nan, edge)), dtype)

    shapes = "a (...), x (...) -> their common broadcast shape"
    errors = "DTypeError for complex values; ShapeError if the shapes do not broadcast"
    example = f"round({name}(as_value([1.0]), as_value([0.0]))).tolist()"
    return named(function, name, about, shapes, FLOATING, errors, example, [float(part)])


gammainc: Any = incomplete(
    "gammainc", 0, "The integral of t^(a-1) e^-t from 0 to x, as a part of that to infinity, Γ(a)."
)
gammaincc: Any = incomplete(
    "gammaincc", 1, "The integral of t^(a-1) e^-t from x to infinity, as a part of Γ(a)."
)


@composed
def zeta(x: ArrayLike, q: ArrayLike, /) -> Any:
    """Hurwitz's zeta function, Σ (q + k)^-x from k = 0; NaN for x below 1 and for negative q.

    Shapes: x (...), q (...) -> their common broadcast shape.
    Source: Abramowitz, Stegun 1964, 23.2.
    """
    s, q = elementwise.floats("zeta", *inexact("zeta", x, q))
    dtype = s.dtype
    s, q = cast(s, float64), cast(q, float64)
    inside = (s > 1) & (q > 0)
    series = gamma.zeta_of(choose(inside, s, 2.0), choose(inside, q, 1.0))
    pole = (s == 1) | ((s > 1) & (q <= 0) & (q == elementwise.floor(q)))
    out = choose(inside, series, errors.either(pole, math.inf, math.nan))
    return cast(out, dtype)


# -- orthogonal polynomials ------------------------------------------------------------------------


def polynomial(name: str, first: Any, step: Any, about: str, shifted: bool = False) -> Any:
    """Orthogonal polynomials by their recurrence: p_0 = 1, p_1 = first(x), p_k+1 of k, x and both
    before."""

    @rounded_once
    def recurrence(x: Any, n: Any) -> Any:
        x = x * 2 - 1 if shifted else x
        many = getattr(n, "size", 1) != 1
        degrees: Any = cast(as_value(n), int64) if many else int(n)
        highest = int(degrees.max()) if many else degrees
        n = degrees
        before, now = full(x.shape, 0, x.dtype), full(x.shape, 1, x.dtype)
        out = elementwise.where(n == 0, now, before) if many else now if highest >= 0 else before
        for k in range(highest):
            before, now = now, step(k, x, now, before) if k else first(x)
            out = elementwise.where(n == k + 1, now, out) if many else now
        return out

    def function(x, n):
        (x,) = elementwise.floats(name, as_value(x, where=name))
        return recurrence(x, n)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{about} of degree n{", of 2x - 1" if shifted else ""}; a tensor of
    degrees is read at once.

    Shapes: x (...) -> (...).
    Dtypes: floating, kept; integers become float32.
    Source: Abramowitz, Stegun 1964, 22.7.
    """
    return function


def chebyshev_step(k: Any, x: Any, now: Any, before: Any) -> Any:
    return x * now * 2 - before


FIRST: dict[str, Any] = {
    "t": lambda x: x,
    "u": lambda x: x * 2,
    "v": lambda x: x * 2 - 1,
    "w": lambda x: x * 2 + 1,
}
KINDS = {"t": "first", "u": "second", "v": "third", "w": "fourth"}


def chebyshev_kind(letter: str, shifted: bool = False) -> Any:
    name = f"{'shifted_' * shifted}chebyshev_polynomial_{letter}"
    about = f"The Chebyshev polynomial of the {KINDS[letter]} kind"
    return polynomial(name, FIRST[letter], chebyshev_step, about, shifted)


chebyshev_polynomial_t: Any = chebyshev_kind("t")
chebyshev_polynomial_u: Any = chebyshev_kind("u")
chebyshev_polynomial_v: Any = chebyshev_kind("v")
chebyshev_polynomial_w: Any = chebyshev_kind("w")
shifted_chebyshev_polynomial_t: Any = chebyshev_kind("t", True)
shifted_chebyshev_polynomial_u: Any = chebyshev_kind("u", True)
shifted_chebyshev_polynomial_v: Any = chebyshev_kind("v", True)
shifted_chebyshev_polynomial_w: Any = chebyshev_kind("w", True)
hermite_polynomial_h: Any = polynomial(
    "hermite_polynomial_h",
    lambda x: x * 2,
    lambda k, x, now, before: (x * now - before * k) * 2,
    "The physicists' Hermite polynomial",
)
hermite_polynomial_he: Any = polynomial(
    "hermite_polynomial_he",
    lambda x: x,
    lambda k, x, now, before: x * now - before * k,
    "The probabilists' Hermite polynomial",
)
laguerre_polynomial_l: Any = polynomial(
    "laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda k, x, now, before: ((2 * k + 1 - x) * now - before * k) / (k + 1),
    "The Laguerre polynomial",
)
legendre_polynomial_p: Any = polynomial(
    "legendre_polynomial_p",
    lambda x: x,
    lambda k, x, now, before: (x * now * (2 * k + 1) - before * k) / (k + 1),
    "The Legendre polynomial",
)
