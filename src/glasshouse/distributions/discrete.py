"""Distributions of integers and classes."""

from functools import cached_property
from typing import Any

from glasshouse.base import ShapeError, int64
from glasshouse.dispatch import as_value, broadcast_to, cast
from glasshouse.dispatch.value import ArrayLike
from glasshouse.distributions.distribution import Distribution, as_parameters, one_of
from glasshouse.tensor import (
    arange,
    argmax,
    broadcast_shapes,
    exp,
    finfo,
    log,
    log1p,
    logaddexp,
    logsumexp,
    one_hot,
    random,
    reshape,
    special,
    take_along_axis,
)
from glasshouse.tensor import sum as sum_
from glasshouse.tensor.handle import Tensor
from glasshouse.tensor.special import softmax, xlogy
from glasshouse.tensor.torch_names.drawing import poisson

__all__ = ["Bernoulli", "Categorical", "Geometric", "OneHotCategorical", "Poisson"]


def inside(probs: Any) -> Any:
    """Probabilities kept a rounding's width away from 0 and 1."""
    width = finfo(probs.dtype).eps
    return probs.clip(width, 1 - width)


class ByProbability(Distribution):
    """A distribution whose one parameter is a probability, or the logarithm of its odds."""

    parameter: Any

    def __init__(
        self,
        probs: ArrayLike | None = None,
        logits: ArrayLike | None = None,
        validate_args: bool | None = None,
    ) -> None:
        parameter = self.parameter = one_of(type(self).__name__, probs, logits)
        if probs is None:
            self.logits = parameter
        else:
            self.probs = parameter
        self.PARAMETERS = {"logits" if probs is None else "probs": 0}
        super().__init__(parameter.shape, (), validate_args)

    @cached_property
    def probs(self) -> Any:
        """The probability."""
        return 1 / (1 + exp(-self.logits))

    @cached_property
    def logits(self) -> Any:
        """The logarithm of its odds."""
        near = inside(self.probs)
        return log(near) - log1p(-near)

    def expand(self, batch_shape: tuple[int, ...]) -> Any:
        """This distribution with its parameter broadcast to a larger batch."""
        (name,) = self.PARAMETERS
        return type(self)(**{name: broadcast_to(self.parameter, tuple(batch_shape))})


class Bernoulli(ByProbability):
    """1 with probability `probs`, else 0.

    Shapes: probs or logits is the batch.
    Raises: OptionError unless one of probs and logits is there.
    Source: standard.
    Example:
        >>> Bernoulli(probs=0.25).variance.item(), Bernoulli(logits=0.0).mean.item()
        (0.1875, 0.5)
    """

    def draw(self, shape: tuple[int, ...]) -> Any:
        """1 where a uniform number is below the probability."""
        noise = random.uniform(shape, dtype=self.probs.dtype)
        return cast(noise < self.probs, self.probs.dtype)

    def log_prob(self, value: ArrayLike) -> Any:
        """value logits - log(1 + exp(logits))."""
        return value * self.logits - logaddexp(self.logits, 0.0)

    def entropy(self) -> Any:
        """log(1 + exp(logits)) - probs logits."""
        return logaddexp(self.logits, 0.0) - self.probs * self.logits

    @property
    def mean(self) -> Any:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Any:
        """1 where that is more probable, else 0."""
        return cast(self.probs >= 0.5, self.probs.dtype)

    @property
    def variance(self) -> Any:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)


class Geometric(ByProbability):
    """The number of failures before the first success, which has the probability `probs`.

    Shapes: probs or logits is the batch.
    Raises: OptionError unless one of probs and logits is there.
    Source: standard.
    Example:
        >>> Geometric(probs=0.25).mean.item()
        3.0
    """

    def draw(self, shape: tuple[int, ...]) -> Any:
        """floor(log u / log(1 - probs)) of a uniform number u."""
        noise = 1 - random.uniform(shape, dtype=self.probs.dtype)
        return (log(noise) / log1p(-self.probs)).floor()

    def log_prob(self, value: ArrayLike) -> Any:
        """value log(1 - probs) + log(probs)."""
        value = as_value(value)
        return xlogy(value, 1 - self.probs) + log(self.probs)

    def entropy(self) -> Any:
        """That of Bernoulli's, over probs."""
        return (logaddexp(self.logits, 0.0) - self.probs * self.logits) / self.probs

    @property
    def mean(self) -> Any:
        """1 / probs - 1."""
        return 1 / self.probs - 1

    @property
    def variance(self) -> Any:
        """(1 / probs - 1) / probs."""
        return (1 / self.probs - 1) / self.probs


class Categorical(Distribution):
    """The class 0 … n - 1, with `probs` in proportion, or with `logits`, their logarithms.

    Shapes: probs or logits (..., n); the batch is the axes before n.
    Dtypes: draws are int64.
    Raises: OptionError unless one of probs and logits is there, ShapeError without an axis.
    Source: standard.
    Example:
        >>> d = Categorical(probs=gh.asarray([1.0, 3.0]))
        >>> d.probs.tolist(), d.mode.item(), round(d.log_prob(1).item(), 4)
        ([0.25, 0.75], 1, -0.2877)
    """

    parameter: Any

    def __init__(
        self,
        probs: ArrayLike | None = None,
        logits: ArrayLike | None = None,
        validate_args: bool | None = None,
    ) -> None:
        parameter = self.parameter = one_of(type(self).__name__, probs, logits)
        if not parameter.ndim:
            raise ShapeError(type(self).__name__, "an axis of classes", "a number", "Add it.")
        if probs is None:
            self.logits = parameter - logsumexp(parameter, axis=-1, keepdims=True)
        else:
            self.probs = parameter / sum_(parameter, axis=-1, keepdims=True)
        self.PARAMETERS = {"logits" if probs is None else "probs": 1}
        super().__init__(parameter.shape[:-1], self.shape_of_event(parameter), validate_args)

    def shape_of_event(self, parameter: Any) -> tuple[int, ...]:
        return ()

    @cached_property
    def probs(self) -> Any:
        """The probabilities."""
        return softmax(self.logits, axis=-1)

    @cached_property
    def logits(self) -> Any:
        """Their logarithms."""
        return log(inside(self.probs))

    def expand(self, batch_shape: tuple[int, ...]) -> Any:
        """This distribution with its parameter broadcast to a larger batch."""
        (name,) = self.PARAMETERS
        shape = (*batch_shape, self.param_shape[-1])
        return type(self)(**{name: broadcast_to(self.parameter, shape)})

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""
        return tuple(self.parameter.shape)

    def classes(self, shape: tuple[int, ...]) -> Any:
        """Classes of this shape: the largest logit, after noise of Gumbel's kind."""
        noise = random.gumbel((*shape, self.param_shape[-1]), dtype=self.logits.dtype)
        return cast(argmax(self.logits + noise, axis=-1), int64)

    draw = classes

    def log_prob(self, value: ArrayLike) -> Any:
        """The logit of the class."""
        value = cast(as_value(value), int64)
        shape = broadcast_shapes(value.shape, self.batch_shape)
        logits = broadcast_to(self.logits, (*shape, self.param_shape[-1]))
        places = reshape(broadcast_to(value, shape), (*shape, 1))
        return take_along_axis(logits, places, axis=-1)[..., 0]

    def entropy(self) -> Any:
        """-sum probs log(probs)."""
        return -sum_(self.probs * self.logits.clip(finfo(self.logits.dtype).min), axis=-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        """All classes, along a first axis."""
        count = self.param_shape[-1]
        values = reshape(arange(count, dtype=int64), (count, *(1,) * len(self.batch_shape)))
        return broadcast_to(values, (count, *self.batch_shape)) if expand else values

    @property
    def mode(self) -> Any:
        """The class with the largest probability."""
        return argmax(self.parameter, axis=-1)


class OneHotCategorical(Categorical):
    """A vector that is 1 at the class of `Categorical` and 0 elsewhere.

    Shapes: probs or logits (..., n) -> events (n,).
    Raises: as Categorical.
    Source: standard.
    Example:
        >>> OneHotCategorical(probs=gh.asarray([1.0, 3.0])).mean.tolist()
        [0.25, 0.75]
    """

    def shape_of_event(self, parameter: Any) -> tuple[int, ...]:
        return parameter.shape[-1:]

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Classes as vectors."""
        draws = one_hot(self.classes(shape[:-1]), self.param_shape[-1])
        return cast(draws, self.logits.dtype)

    def log_prob(self, value: ArrayLike) -> Any:
        """The logit of the class."""
        return super().log_prob(argmax(as_value(value), axis=-1))

    @property
    def mean(self) -> Any:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Any:
        """The vector of the class with the largest probability."""
        return cast(one_hot(super().mode, self.param_shape[-1]), self.logits.dtype)

    @property
    def variance(self) -> Any:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)


class Poisson(Distribution):
    """The number of events whose mean is `rate`.

    Shapes: rate is the batch.
    Source: standard.
    Example:
        >>> Poisson(2.0).variance.item(), round(Poisson(2.0).log_prob(0.0).item(), 4)
        (2.0, -2.0)
    """

    rate: "Tensor"

    PARAMETERS = {"rate": 0}

    def __init__(self, rate: ArrayLike, validate_args: bool | None = None) -> None:
        (self.rate,) = as_parameters(rate)
        super().__init__(self.rate.shape, (), validate_args)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Draws of each rate."""
        return poisson(broadcast_to(self.rate, shape))

    def log_prob(self, value: ArrayLike) -> Any:
        """value log(rate) - rate - log(value!)."""
        value = as_value(value)
        return xlogy(value, self.rate) - self.rate - special.gammaln(value + 1)

    @property
    def mean(self) -> Any:
        """rate."""
        return self.rate

    @property
    def mode(self) -> Any:
        """The largest integer below the rate, or at it."""
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        """rate."""
        return self.rate
