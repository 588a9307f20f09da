"""The base of all distributions, and events made of independent ones."""

from typing import Any, Self

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, ShapeError, float32
from glasshouse.dispatch import as_value, broadcast_to, cast
from glasshouse.dispatch.value import ArrayLike
from glasshouse.tensor import Tensor, broadcast_arrays, exp, sqrt
from glasshouse.tensor import sum as sum_

__all__ = ["Distribution", "Independent"]


def as_parameters(*parameters: ArrayLike) -> list[Tensor]:
    """Parameters as floating tensors of one shape; numbers take the dtype of the tensors."""
    tensors = [as_value(x) for x in parameters if isinstance(x, Tensor)]
    dtype = next((x.dtype for x in tensors if x.dtype.is_floating), float32)
    return broadcast_arrays(*(cast(as_value(x), dtype) for x in parameters))


def one_of(where: str, probs: ArrayLike | None, logits: ArrayLike | None) -> Any:
    """The one of both that is there, as a floating tensor."""
    parameters = [x for x in (probs, logits) if x is not None]
    if len(parameters) != 1:
        got = "both" if parameters else "neither"
        raise OptionError(where, "probs or logits", got, "Pass one of them.")
    return as_parameters(*parameters)[0]


def summed(x: Any, count: int) -> Any:
    """x summed over its last `count` axes."""
    return sum_(x, axis=tuple(range(-count, 0))) if count else x


class Distribution:
    """The base of all distributions. `PARAMETERS` says which tensors a class has, and how many axes
    of each belong to one event; its methods are `draw(shape)`, `log_prob`, `mean` and so on.

    Example:
        >>> d = gh.distributions.Normal(gh.zeros(3), 1.0)
        >>> d.batch_shape, d.event_shape, d.sample((2,)).shape, d.stddev.tolist()
        ((3,), (), (2, 3), [1.0, 1.0, 1.0])
    """

    PARAMETERS: dict[str, int] = {}
    has_rsample = False

    def __init__(
        self,
        batch_shape: tuple[int, ...] = (),
        event_shape: tuple[int, ...] = (),
        validate_args: bool | None = None,
    ) -> None:
        if validate_args:
            fix = "Check them where they are made."
            raise OptionError(type(self).__name__, "validate_args=None or False", "True", fix)
        self.batch_shape: tuple[int, ...] = tuple(batch_shape)
        self.event_shape: tuple[int, ...] = tuple(event_shape)

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """This distribution with its parameters broadcast to a larger batch."""
        new = object.__new__(type(self))
        Distribution.__init__(new, tuple(batch_shape), self.event_shape)
        for name, axes in self.PARAMETERS.items():
            value = getattr(self, name)
            own = value.shape[value.ndim - axes :]
            setattr(new, name, broadcast_to(value, (*batch_shape, *own)))
        return new

    # -- draws -----------------------------------------------------------------------------
    def draw(self, shape: tuple[int, ...]) -> Any:
        """Draws of this shape, which the batch's and the event's axes end."""
        raise NotImplementedError(f"{type(self).__name__} has no draws")

    def shape_of(self, sample_shape: Any) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws without a gradient.

        Shapes: -> sample_shape, the batch's axes, the event's axes.
        """
        with no_grad():
            return self.draw(self.shape_of(sample_shape)).detach()

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws that are a function of the parameters, whose gradients pass through them.

        Shapes: -> sample_shape, the batch's axes, the event's axes.
        Raises: NotImplementedError where draws are no differentiable function.
        """
        if not self.has_rsample:
            got = "a distribution that has none. Use sample(), and log_prob for the score function."
            where = f"{type(self).__name__}.rsample"
            raise NotImplementedError(f"{where}: expected draws with a gradient; got {got}")
        return self.draw(self.shape_of(sample_shape))

    def sample_n(self, n: int) -> Any:
        """`sample((n,))`."""
        return self.sample((n,))

    # -- densities -------------------------------------------------------------------------
    def log_prob(self, value: ArrayLike) -> Any:
        """The logarithm of the density, or of the probability, at `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no density")

    def cdf(self, value: ArrayLike) -> Any:
        """The probability of at most `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no cumulative probability")

    def icdf(self, value: ArrayLike) -> Any:
        """Where `cdf` is `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no quantiles")

    def entropy(self) -> Any:
        """The expectation of -log_prob."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy in closed form")

    def perplexity(self) -> Any:
        """The exponential of the entropy."""
        return exp(self.entropy())

    # -- moments ---------------------------------------------------------------------------
    @property
    def mean(self) -> Any:
        """The expectation."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Any:
        """Where the density is largest."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Any:
        """The expectation of the squared distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return sqrt(self.variance)

    def __repr__(self) -> str:
        parts = (f"{name}: {tuple(getattr(self, name).shape)}" for name in self.PARAMETERS)
        shapes = ", ".join(parts)
        return f"{type(self).__name__}({shapes})"


class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` axes of the batch are of one event: its
    log_prob is the sum over them.

    Raises: ShapeError for more axes than the batch has.
    Example:
        >>> d = Independent(gh.distributions.Normal(gh.zeros((2, 3)), 1.0), 1)
        >>> d.batch_shape, d.event_shape, d.log_prob(gh.zeros((2, 3))).shape
        ((2,), (3,), (2,))
    """

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        axes = len(base_distribution.batch_shape)
        if not 0 <= reinterpreted_batch_ndims <= axes:
            expected = f"0 to {axes} axes, those of the batch"
            raise ShapeError("Independent", expected, reinterpreted_batch_ndims, "Name fewer.")
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = axes - reinterpreted_batch_ndims
        shape = base_distribution.batch_shape
        event = (*shape[cut:], *base_distribution.event_shape)
        self.has_rsample: bool = base_distribution.has_rsample
        super().__init__(shape[:cut], event, validate_args)

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """This distribution with a larger batch."""
        own = self.event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*batch_shape, *own))
        return type(self)(base, self.reinterpreted_batch_ndims)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """Draws of the base."""
        return self.base_dist.draw(shape)

    def log_prob(self, value: ArrayLike) -> Any:
        """The sum of those of the base over the event's axes."""
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        """The sum of those of the base over the event's axes."""
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Any:
        """That of the base."""
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        """That of the base."""
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        """That of the base."""
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
