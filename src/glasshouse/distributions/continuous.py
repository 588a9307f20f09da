"""Distributions of real numbers."""

import math
from typing import Any

from glasshouse.base import ShapeError
from glasshouse.dispatch import as_value
from glasshouse.dispatch.value import ArrayLike
from glasshouse.distributions.distribution import Distribution, as_parameters
from glasshouse.tensor import abs as abs_
from glasshouse.tensor import (
    erf,
    exp,
    expm1,
    log,
    log1p,
    logical_and,
    random,
    sign,
    special,
    square,
    where,
    zeros_like,
)
from glasshouse.tensor import sum as sum_
from glasshouse.tensor.handle import Tensor
from glasshouse.tensor.special import erfinv, xlogy

__all__ = ["Beta", "Dirichlet", "Exponential", "Gamma", "Laplace", "LogNormal", "Normal", "Uniform"]

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
digamma: Any = special.digamma
lgamma: Any = special.gammaln


class LocationScale(Distribution):
    """A distribution that a standard one becomes by loc + scale * x."""

    loc: "Tensor"
    scale: "Tensor"

    PARAMETERS = {"loc": 0, "scale": 0}
    has_rsample: bool = True

    def __init__(self, loc: ArrayLike, scale: ArrayLike, validate_args: bool | None = None) -> None:
        self.loc, self.scale = as_parameters(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)


class Normal(LocationScale):
    """The normal distribution of mean `loc` and standard deviation `scale`.

    Shapes: loc and scale broadcast to the batch.
    Source: standard.
    Example:
        >>> round(Normal(0.0, 1.0).log_prob(0.0).item(), 4)
        -0.9189
    """

    def draw(self, shape: tuple[int, ...]) -> Any:
        """loc + scale * noise."""
        return self.loc + self.scale * random.normal(shape, dtype=self.loc.dtype)

    def log_prob(self, value: ArrayLike) -> Any:
        """-(value - loc)² / (2 scale²) - log scale - log √(2 pi)."""
        return -0.5 * square((value - self.loc) / self.scale) - log(self.scale) - HALF_LOG_TAU

    def cdf(self, value: ArrayLike) -> Any:
        """The probability of at most `value`."""
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: ArrayLike) -> Any:
        """Where `cdf` is `value`."""
        return self.loc + self.scale * math.sqrt(2) * erfinv(2 * as_value(value) - 1)

    def entropy(self) -> Any:
        """1/2 + log √(2 pi) + log scale."""
        return 0.5 + HALF_LOG_TAU + log(self.scale)

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        """scale²."""
        return square(self.scale)


class LogNormal(Normal):
    """The exponential of a number with the normal distribution of `loc` and `scale`.

    Source: standard.
    Example:
        >>> LogNormal(0.0, 1.0).mode.item() == gh.exp(gh.asarray(-1.0)).item()
        True
    """

    def draw(self, shape: tuple[int, ...]) -> Any:
        """exp of the draws of a normal distribution."""
        return exp(super().draw(shape))

    def log_prob(self, value: ArrayLike) -> Any:
        """The density of log(value), over value."""
        logarithm = log(as_value(value))
        return super().log_prob(logarithm) - logarithm

    def cdf(self, value: ArrayLike) -> Any:
        """The probability of at most `value`."""
        return super().cdf(log(as_value(value)))

    def icdf(self, value: ArrayLike) -> Any:
        """Where `cdf` is `value`."""
        return exp(super().icdf(value))

    def entropy(self) -> Any:
        """That of the normal distribution, and loc."""
        return super().entropy() + self.loc

    @property
    def mean(self) -> Any:
        """exp(loc + scale² / 2)."""
        return exp(self.loc + square(self.scale) / 2)

    @property
    def mode(self) -> Any:
        """exp(loc - scale²)."""
        return exp(self.loc - square(self.scale))

    @property
    def variance(self) -> Any:
        """(exp(scale²) - 1) exp(2 loc + scale²)."""
        return expm1(square(self.scale)) * exp(2 * self.loc + square(self.scale))


class Uniform(Distribution):
    """The uniform distribution in [low, high).

    Shapes: low and high broadcast to the batch.
    Source: standard.
    Example:
        >>> Uniform(0.0, 2.0).entropy().item() == gh.log(gh.asarray(2.0)).item()
        True
    """

    low: "Tensor"
    high: "Tensor"

    PARAMETERS = {"low": 0, "high": 0}
    has_rsample: bool = True

    def __init__(self, low: ArrayLike, high: ArrayLike, validate_args: bool | None = None) -> None:
        self.low, self.high = as_parameters(low, high)
        super().__init__(self.low.shape, (), validate_args)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """low + (high - low) * noise."""
        return self.low + (self.high - self.low) * random.uniform(shape, dtype=self.low.dtype)

    def log_prob(self, value: ArrayLike) -> Any:
        """-log(high - low) inside, -inf outside."""
        inside = logical_and(self.low <= value, value < self.high)
        return where(inside, -log(self.high - self.low), -math.inf)

    def cdf(self, value: ArrayLike) -> Any:
        """The probability of at most `value`."""
        return ((value - self.low) / (self.high - self.low)).clip(0, 1)

    def icdf(self, value: ArrayLike) -> Any:
        """Where `cdf` is `value`."""
        return self.low + (self.high - self.low) * value

    def entropy(self) -> Any:
        """log(high - low)."""
        return log(self.high - self.low)

    @property
    def mean(self) -> Any:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Any:
        """(high - low)² / 12."""
        return square(self.high - self.low) / 12


class Laplace(LocationScale):
    """The Laplace distribution around `loc`.

    Shapes: loc and scale broadcast to the batch.
    Source: standard.
    Example:
        >>> round(Laplace(0.0, 1.0).log_prob(1.0).item(), 4)
        -1.6931
    """

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Where `cdf` is a uniform number."""
        return self.icdf(random.uniform(shape, dtype=self.loc.dtype))

    def log_prob(self, value: ArrayLike) -> Any:
        """-|value - loc| / scale - log(2 scale)."""
        return -abs_(value - self.loc) / self.scale - log(2 * self.scale)

    def cdf(self, value: ArrayLike) -> Any:
        """The probability of at most `value`."""
        away = value - self.loc
        return 0.5 - 0.5 * sign(away) * expm1(-abs_(away) / self.scale)

    def icdf(self, value: ArrayLike) -> Any:
        """Where `cdf` is `value`."""
        away = as_value(value) - 0.5
        return self.loc - self.scale * sign(away) * log1p(-2 * abs_(away))

    def entropy(self) -> Any:
        """1 + log(2 scale)."""
        return 1 + log(2 * self.scale)

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        """2 scale²."""
        return 2 * square(self.scale)


class Exponential(Distribution):
    """The exponential distribution, of mean 1 / rate.

    Shapes: rate is the batch.
    Source: standard.
    Example:
        >>> Exponential(2.0).mean.item(), Exponential(1.0).log_prob(3.0).item()
        (0.5, -3.0)
    """

    rate: "Tensor"

    PARAMETERS = {"rate": 0}
    has_rsample: bool = True

    def __init__(self, rate: ArrayLike, validate_args: bool | None = None) -> None:
        (self.rate,) = as_parameters(rate)
        super().__init__(self.rate.shape, (), validate_args)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Where `cdf` is a uniform number."""
        return self.icdf(random.uniform(shape, dtype=self.rate.dtype))

    def log_prob(self, value: ArrayLike) -> Any:
        """log rate - rate value."""
        return log(self.rate) - self.rate * value

    def cdf(self, value: ArrayLike) -> Any:
        """The probability of at most `value`."""
        return -expm1(-self.rate * value)

    def icdf(self, value: ArrayLike) -> Any:
        """Where `cdf` is `value`."""
        return -log1p(-as_value(value)) / self.rate

    def entropy(self) -> Any:
        """1 - log rate."""
        return 1 - log(self.rate)

    @property
    def mean(self) -> Any:
        """1 / rate."""
        return 1 / self.rate

    @property
    def mode(self) -> Any:
        """Zero."""
        return zeros_like(self.rate)

    @property
    def variance(self) -> Any:
        """1 / rate²."""
        return 1 / square(self.rate)


class Gamma(Distribution):
    """The gamma distribution with the shape `concentration`; draws have no gradient.

    Shapes: concentration and rate broadcast to the batch.
    Source: standard.
    Example:
        >>> Gamma(3.0, 2.0).mean.item(), Gamma(3.0, 2.0).mode.item()
        (1.5, 1.0)
    """

    concentration: "Tensor"
    rate: "Tensor"

    PARAMETERS = {"concentration": 0, "rate": 0}

    def __init__(
        self, concentration: ArrayLike, rate: ArrayLike, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = as_parameters(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Draws of rate 1, over the rate."""
        draws = random.gamma(shape, self.concentration, dtype=self.rate.dtype)
        return draws / self.rate

    def log_prob(self, value: ArrayLike) -> Any:
        """a log b + (a - 1) log value - b value - log Gamma(a), of the shape a and the rate b."""
        a, b = self.concentration, self.rate
        return xlogy(a, b) + xlogy(a - 1, value) - b * value - lgamma(a)

    def entropy(self) -> Any:
        """a - log b + log Gamma(a) + (1 - a) digamma(a)."""
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)

    @property
    def mean(self) -> Any:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        """(concentration - 1) / rate, at least 0."""
        return ((self.concentration - 1) / self.rate).clip(0)

    @property
    def variance(self) -> Any:
        """concentration / rate²."""
        return self.concentration / square(self.rate)


class Dirichlet(Distribution):
    """The Dirichlet distribution of probabilities that add up to 1; draws have no gradient.

    Shapes: concentration (..., n) -> events (n,).
    Raises: ShapeError without an axis.
    Source: standard.
    Example:
        >>> Dirichlet(gh.asarray([1.0, 3.0])).mean.tolist()
        [0.25, 0.75]
    """

    concentration: "Tensor"

    PARAMETERS = {"concentration": 1}

    def __init__(self, concentration: ArrayLike, validate_args: bool | None = None) -> None:
        (self.concentration,) = as_parameters(concentration)
        if not self.concentration.ndim:
            raise ShapeError("Dirichlet", "at least one axis", "a number", "Pass a vector.")
        shape = self.concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Draws of gamma distributions, over their sum."""
        draws = random.gamma(shape, self.concentration, dtype=self.concentration.dtype)
        return draws / sum_(draws, axis=-1, keepdims=True)

    @property
    def total(self) -> Any:
        """The sum of the concentration."""
        return sum_(self.concentration, axis=-1)

    def log_normalizer(self) -> Any:
        """The logarithm of the integral of the density before it is normalized."""
        return sum_(lgamma(self.concentration), axis=-1) - lgamma(self.total)

    def log_prob(self, value: ArrayLike) -> Any:
        """sum (a - 1) log value - the normalizer."""
        terms = sum_(xlogy(self.concentration - 1, value), axis=-1)
        return terms - self.log_normalizer()

    def entropy(self) -> Any:
        """The normalizer + (total - n) digamma(total) - sum (a - 1) digamma(a)."""
        a, n = self.concentration, self.concentration.shape[-1]
        terms = sum_((a - 1) * digamma(a), axis=-1)
        return self.log_normalizer() + (self.total - n) * digamma(self.total) - terms

    @property
    def mean(self) -> Any:
        """The concentration over its sum."""
        return self.concentration / self.total[..., None]

    @property
    def variance(self) -> Any:
        """a (total - a) / (total² (total + 1))."""
        total = self.total[..., None]
        return self.concentration * (total - self.concentration) / (square(total) * (total + 1))


class Beta(Distribution):
    """The beta distribution in (0, 1); draws have no gradient.

    Shapes: concentration1 and concentration0 broadcast to the batch.
    Source: standard.
    Example:
        >>> Beta(1.0, 3.0).mean.item()
        0.25
    """

    concentration1: "Tensor"
    concentration0: "Tensor"

    PARAMETERS = {"concentration1": 0, "concentration0": 0}

    def __init__(
        self,
        concentration1: ArrayLike,
        concentration0: ArrayLike,
        validate_args: bool | None = None,
    ) -> None:
        self.concentration1, self.concentration0 = as_parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    @property
    def total(self) -> Any:
        """The sum of both concentrations."""
        return self.concentration1 + self.concentration0

    def log_normalizer(self) -> Any:
        """The logarithm of the beta function."""
        both = lgamma(self.concentration1) + lgamma(self.concentration0)
        return both - lgamma(self.total)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """The share of one gamma draw in two."""
        dtype = self.concentration1.dtype
        one = random.gamma(shape, self.concentration1, dtype=dtype)
        return one / (one + random.gamma(shape, self.concentration0, dtype=dtype))

    def log_prob(self, value: ArrayLike) -> Any:
        """(a - 1) log value + (b - 1) log(1 - value) - the normalizer."""
        value = as_value(value)
        ones = xlogy(self.concentration1 - 1, value)
        return ones + xlogy(self.concentration0 - 1, 1 - value) - self.log_normalizer()

    def entropy(self) -> Any:
        """The normalizer - (a - 1) digamma(a) - (b - 1) digamma(b) + (a + b - 2) digamma(a + b)."""
        terms = sum((x - 1) * digamma(x) for x in (self.concentration1, self.concentration0))
        return self.log_normalizer() - terms + (self.total - 2) * digamma(self.total)

    @property
    def mean(self) -> Any:
        """a / (a + b)."""
        return self.concentration1 / self.total

    @property
    def variance(self) -> Any:
        """a b / ((a + b)² (a + b + 1))."""
        product = self.concentration1 * self.concentration0
        return product / (square(self.total) * (self.total + 1))
