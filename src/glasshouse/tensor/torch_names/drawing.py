"""Random tensors under PyTorch's names; gh.random has the draws themselves. The numbers are not
those that PyTorch draws from the same seed."""

import math
import os
from typing import TYPE_CHECKING, Any

from glasshouse.base import OptionError, ShapeError, as_dtype, check_shape, float32, float64, int64
from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.backend import check_device
from glasshouse.dispatch.value import ArrayLike, Value, as_value, broadcast_to, cast, reshape
from glasshouse.ops import elementwise as cards
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota
from glasshouse.tensor import random
from glasshouse.tensor.special.gamma import lgamma_of
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.contract import matrix_transpose
from glasshouse.tensor.standard.creation import as_leaf
from glasshouse.tensor.standard.search import argsort

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor
    from glasshouse.tensor.random import Generator


__all__ = ["bernoulli", "binomial", "get_rng_state", "initial_seed", "manual_seed", "multinomial",
           "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
           "randn_like", "randperm", "seed", "set_rng_state"]  # fmt: skip


def sizes_of(where_: str, size: Any) -> tuple[int, ...]:
    lone = len(size) == 1 and isinstance(size[0], (tuple, list))
    return check_shape(where_, tuple(size[0]) if lone else tuple(size))


def drawing(name: str, draw: Any, about: str) -> Any:
    """A function of sizes, and one of a tensor whose shape and dtype it takes."""

    def of_size(*size, dtype=None, device=None, generator=None, requires_grad=False):
        check_device(name, device)
        dtype = as_dtype(dtype or float32)
        return as_leaf(draw(sizes_of(name, size), dtype=dtype, generator=generator), requires_grad)

    def like(x, /, *, dtype=None, device=None, generator=None, requires_grad=False):
        x = as_value(x, where=f"{name}_like")
        dtype = x.dtype if dtype is None else dtype
        return of_size(x.shape, dtype=dtype, generator=generator, requires_grad=requires_grad)

    for function, suffix in ((of_size, ""), (like, "_like")):
        function.__name__ = function.__qualname__ = name + suffix
        function.__doc__ = f"""{about}{", with shape and dtype of x" if suffix else ""}.

    Shapes: {"x (...) -> (...)" if suffix else "-> the sizes, one by one or as a tuple"}.
    Dtypes: floating; {"that of x" if suffix else "float32"} unless given.
    Raises: DTypeError for another dtype{"" if suffix else ", ShapeError for negative sizes"}.
    Source: PyTorch.
    """
    return of_size, like


rand_like: Any
rand: Any
rand, rand_like = drawing("rand", random.uniform, "Numbers uniform in [0, 1)")
randn_like: Any
randn: Any
randn, randn_like = drawing("randn", random.normal, "Standard normal numbers")


def randint(
    low: Any,
    high: Any = None,
    size: Any = None,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    generator: "Generator | None" = None,
    **options: Any,
) -> Any:
    """Integers uniform in [low, high), or in [0, low): randint(high, size), randint(low, high,
    size). With `requires_grad` a floating dtype is needed.

    Shapes: -> size.
    Dtypes: any numeric; int64 unless given.
    Raises: OptionError unless low < high, DTypeError.
    Source: PyTorch.
    Example:
        >>> randint(3, 4, (2,)).tolist()
        [3, 3]
    """
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    check_device("randint", device)
    numbers = random.randint(low, high, check_shape("randint", size), int64, generator)
    return as_leaf(cast(numbers, as_dtype(dtype or int64)), **options)


def randint_like(
    x: Any,
    low: Any,
    high: Any = None,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    generator: "Generator | None" = None,
    **options: Any,
) -> Any:
    """Integers uniform in [low, high), or in [0, low), with shape and dtype of x.

    Shapes: x (...) -> (...).
    Raises: OptionError unless low < high.
    Source: PyTorch.
    """
    low, high = (0, low) if high is None else (low, high)
    dtype = x.dtype if dtype is None else dtype
    return randint(low, high, x.shape, dtype=dtype, generator=generator, **options)


def randperm(
    n: int,
    *,
    generator: "Generator | None" = None,
    dtype: DTypeLike = int64,
    device: str | None = None,
    **options: Any,
) -> Any:
    """The integers below n in random order.

    Shapes: -> (n,).
    Dtypes: any numeric; int64 unless given.
    Source: PyTorch.
    Example:
        >>> sorted(randperm(3).tolist())
        [0, 1, 2]
    """
    check_device("randperm", device)
    return as_leaf(cast(random.permutation(n, generator=generator), as_dtype(dtype)), **options)


def normal(
    mean: Any,
    std: float = 1.0,
    size: Any = None,
    *,
    generator: "Generator | None" = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    **options: Any,
) -> Any:
    """Normal numbers of these means and standard deviations, tensors or numbers.

    Shapes: mean (...), std (...) -> their common broadcast shape; of numbers -> size.
    Raises: ShapeError for numbers without a size, DTypeError.
    Source: PyTorch.
    """
    check_device("normal", device)
    if size is None:
        tensors = [x for x in (mean, std) if isinstance(x, Value)]
        if not tensors:
            raise ShapeError("normal", "a size, or tensors", "numbers alone", "Pass size=.")
        shape = (tensors[0] if len(tensors) == 1 else tensors[0] + tensors[1]).shape
        dtype = tensors[0].dtype if dtype is None else dtype
    else:
        shape = check_shape("normal", size)
    samples = random.normal(shape, mean, std, dtype or float32, generator)
    return as_leaf(samples, **options)


def bernoulli(x: ArrayLike, p: Any = None, *, generator: "Generator | None" = None) -> Any:
    """0 or 1, 1 with the probabilities x, or all with p.

    Shapes: x (...) -> (...).
    Dtypes: that of x.
    Raises: OptionError for p outside of 0 to 1.
    Source: PyTorch.
    """
    x = as_value(x, where="bernoulli")
    odds = x.detach() if p is None else p
    return cast(random.bernoulli(odds, x.shape, generator), x.dtype)


def multinomial(
    x: ArrayLike,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: "Generator | None" = None,
) -> Any:
    """Positions along the last axis drawn with probabilities in proportion to x; without
    replacement, by Gumbel-perturbed log-weights, whose largest are taken.

    Shapes: (n,) or (m, n) -> (num_samples,) or (m, num_samples) int64.
    Raises: ShapeError for another number of axes, OptionError for more samples than positions.
    Source: PyTorch; Vieira 2014, Gumbel-max trick and weighted reservoir sampling.
    Example:
        >>> multinomial(as_value([0.0, 1.0]), 1).tolist()
        [1]
    """
    x = as_value(x, where="multinomial").detach()
    if x.ndim not in (1, 2):
        raise ShapeError("multinomial", "a vector or a matrix", x.shape, "Reshape it.")
    n = x.shape[-1]
    if not num_samples > 0 or (not replacement and num_samples > n):
        expected = f"from 1 to {n} samples without replacement"
        raise OptionError("multinomial", expected, num_samples, "Draw fewer, or replacement=True.")
    logits = cards.log(cast(x, float64))
    if replacement:
        samples = random.categorical(logits, -1, (num_samples,), generator)
        return samples if x.ndim == 1 else matrix_transpose(samples)
    noise = random.gumbel(x.shape, float64, generator)
    return argsort(logits + noise, descending=True)[..., :num_samples]


# -- counts ----------------------------------------------------------------------------------------

SMALL_RATE = 12.0  # up to which the distribution function is summed


def poisson_by_sum(rate: "Tensor", generator: Any) -> "Tensor":
    """The number of terms of the distribution function that a uniform number exceeds."""
    count = 64  # beyond, less than 2^-64 is left for a rate of 12
    k = cast(iota(size=count, dtype=int64), float64)
    wide = reshape(rate, (*rate.shape, 1))
    terms = cards.exp(k * cards.log(wide) - wide - lgamma_of(k + 1))
    below = reduce.cumulative_sum(broadcast_to(terms, (*rate.shape, count)), axis=-1)
    u = random.uniform((*rate.shape, 1), dtype=float64, generator=generator)
    return cast(reduce.count_nonzero(u > below, axis=-1), float64)


def poisson_by_rejection(rate: "Tensor", generator: Any) -> "Tensor":
    """Source: Hörmann 1993, The transformed rejection method for generating Poisson random
    variables, algorithm PTRS; a round accepts with a probability above 0.85, 24 rounds are made."""
    log_rate = cards.log(rate)
    b = cards.sqrt(rate) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    accepted, is_done = elementwise.floor(rate), rate < 0
    for _ in range(24):
        u = random.uniform(rate.shape, dtype=float64, generator=generator) - 0.5
        v = 1 - random.uniform(rate.shape, dtype=float64, generator=generator)
        us = 0.5 - cards.abs_(u)
        k = elementwise.floor((a * 2 / us + b) * u + rate + 0.43)
        positive = cards.maximum(k, k * 0)
        bound = positive * log_rate - rate - lgamma_of(positive + 1)
        good = cards.log(v * inverse / (a / (us * us) + b)) <= bound
        good = good & (k >= 0) & (us > 0)
        accepted = where(good & ~is_done, k, accepted)
        is_done = is_done | good
    return accepted


def poisson(x: ArrayLike, generator: "Generator | None" = None) -> Any:
    """Numbers with the Poisson distribution of these rates.

    Shapes: x (...) -> (...).
    Dtypes: floating, kept.
    Raises: DTypeError unless x is floating.
    Source: PyTorch.
    """
    x = as_value(x, where="poisson").detach()
    random.check_floating("poisson", x.dtype)
    rate = cast(x, float64)
    small = rate < SMALL_RATE
    low = poisson_by_sum(elementwise.where(small & (rate > 0), rate, 1.0), generator)
    high = poisson_by_rejection(elementwise.where(small, SMALL_RATE, rate), generator)
    samples = where(small, low, high)
    samples = elementwise.where(rate == 0, 0.0, elementwise.where(rate >= 0, samples, math.nan))
    return cast(samples, x.dtype)


def binomial(count: ArrayLike, prob: ArrayLike, generator: Any = None) -> Any:
    """How many of `count` trials succeed, each with the probability `prob`. The largest count is
    read at once: that many uniform numbers are drawn for each element.

    Shapes: count (...), prob (...) -> their common broadcast shape.
    Dtypes: that of count.
    Raises: DTypeError unless count is floating, OptionError for negative counts.
    Source: PyTorch.
    """
    count, prob = elementwise.operands("binomial", count, prob)
    random.check_floating("binomial", count.dtype)
    if not count.size:
        return count
    if float(count.min()) < 0:
        raise OptionError("binomial", "counts of 0 or more", float(count.min()), "Check them.")
    trials = int(count.max())
    u = random.uniform((trials, *count.shape), dtype=float64, generator=generator)
    trial = reshape(iota(size=trials, dtype=int64), (trials, *(1,) * count.ndim))
    counted = elementwise.less(trial, count)
    return cast(reduce.count_nonzero((u < prob) & counted, axis=0), count.dtype)


# -- the default generator -------------------------------------------------------------------------


def manual_seed(seed: int) -> Any:
    """The default generator, restarted at this seed.

    Raises: DTypeError unless the seed is an integer.
    Source: PyTorch.
    """
    return random.default_generator().manual_seed(seed)


def seed() -> int:
    """A seed that the system draws, at which the default generator is restarted.

    Source: PyTorch.
    """
    number = int.from_bytes(os.urandom(8), "little") >> 1
    random.seed(number)
    return number


def initial_seed() -> int:
    """The seed of the default generator.

    Source: PyTorch.
    """
    return random.default_generator().initial_seed()


def get_rng_state() -> dict[Any, Any]:
    """The state of the default generator, as `Generator.state` gives it: a dict.

    Source: PyTorch.
    """
    return random.default_generator().state()


def set_rng_state(state: dict[Any, Any]) -> None:
    """Restore the result of get_rng_state.

    Raises: OptionError for an invalid state.
    Source: PyTorch.
    """
    random.default_generator().set_state(state)
