"""Random numbers: `gh.random`. Counter-based, so a seed gives the same numbers on every backend.

A `Generator` is a seed and a count of draws. Each draw makes a key of both, and the `random_bits`
card turns the key into bits; nothing else is stateful."""

import functools
import math
import operator
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import DTypeError, OptionError, ShapeError, check_axis, check_shape
from glasshouse.base.dtype import (
    DType,
    DTypeLike,
    as_dtype,
    default_int,
    float32,
    float64,
    int32,
    uint32,
    uint64,
)
from glasshouse.dispatch.value import (
    ArrayLike,
    Value,
    adopt,
    as_value,
    broadcast_to,
    cast,
    full,
    reshape,
)
from glasshouse.ops import elementwise as cards
from glasshouse.ops.cast import bitcast
from glasshouse.ops.checks import check_like
from glasshouse.ops.compare import where
from glasshouse.ops.index import gather
from glasshouse.ops.movement import concatenate
from glasshouse.ops.random import random_bits
from glasshouse.ops.reduce import argmax, cumsum
from glasshouse.ops.sort import sort
from glasshouse.tensor.standard.index import getitem, searchsorted

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["Generator", "bernoulli", "beta", "bits", "categorical", "choice",
           "default_generator", "exponential", "fold_in", "gamma", "gumbel", "key",
           "normal", "permutation", "randint", "seed", "shuffle", "split",
           "truncated_normal", "uniform"]  # fmt: skip

MASK = 0xFFFFFFFF
observers: list[list[Any]] = []  # lists that get (generator, key) of each draw


def mixed(n: int) -> int:
    """A 64-bit integer that depends on every bit of the 64-bit integer `n`.

    Source: Steele, Lea & Flood 2014, Fast splittable pseudorandom number generators (SplitMix64).
    """
    n = (n + 0x9E3779B97F4A7C15) & 2**64 - 1
    n = ((n ^ n >> 30) * 0xBF58476D1CE4E5B9) & 2**64 - 1
    n = ((n ^ n >> 27) * 0x94D049BB133111EB) & 2**64 - 1
    return n ^ n >> 31


def key_of(seed: int) -> tuple[int, int]:
    state = mixed(int(seed < 0))
    rest = abs(seed)
    while True:
        state = mixed(state ^ rest & 2**64 - 1)
        rest >>= 64
        if not rest:
            return state >> 32, state & MASK


class Generator:
    """A stream of random numbers fixed by its seed.

    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
    Example:
        >>> Generator(7).state() == Generator(7).state()
        True
    """

    def __init__(self, seed: int = 0) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Go back to the first draw of `seed`.

        Raises: DTypeError unless seed is an integer.
        """
        try:
            seed = operator.index(seed)
        except TypeError:
            raise DTypeError("seed", "an integer", repr(seed), "Use e.g. 0.") from None
        with self.lock:
            self.seed: int = seed
            self.draws: int = 0
            self.key_words: tuple[int, int] = key_of(seed)

    def key(self) -> "Tensor":
        """A key for one draw, never given before: uint32 (4,)."""
        with self.lock:
            draw = self.draws
            self.draws += 1
        counter = (draw & MASK, draw >> 32 & MASK)
        key = adopt(np.array([*self.key_words, *counter], np.uint32))
        for draws in observers:
            draws.append((self, key))
        return key

    def manual_seed(self, seed: int) -> "Generator":
        """This generator, back at the first draw of `seed`.

        Raises: DTypeError unless seed is an integer.
        """
        self.restart(seed)
        return self

    def initial_seed(self) -> int:
        """The seed that it was last restarted at."""
        return self.seed

    def get_state(self) -> dict[Any, Any]:
        """As `state`."""
        return self.state()

    def split(self, n: int) -> list["Generator"]:
        """`n` generators whose streams are independent of this one's and each other's."""
        with self.lock:
            start, words, seed = self.draws, self.key_words, self.seed
            self.draws += n
        children = [Generator(seed) for _ in range(n)]
        for i, child in enumerate(children):
            child.key_words = key_of((words[0] << 32 | words[1]) ^ (mixed(start + i) << 64))
        return children

    def state(self) -> dict[Any, Any]:
        """Seed, key and number of draws, for `set_state` and JSON."""
        with self.lock:
            return {"seed": self.seed, "key": list(self.key_words), "draws": self.draws}

    def set_state(self, state: dict[Any, Any]) -> None:
        """Continue from a saved `state()`.

        Raises: OptionError, changing nothing, for an invalid state.
        """
        try:
            seed, draws = operator.index(state["seed"]), operator.index(state["draws"])
            first, second = map(operator.index, state["key"])
        except (KeyError, TypeError, ValueError):
            fix = "Save it with generator.state()."
            raise OptionError("set_state", "what state() returned", repr(state), fix) from None
        with self.lock:
            self.seed = seed
            self.draws = draws
            self.key_words = (first, second)

    def __repr__(self) -> str:
        return f"Generator(seed={self.seed}, draws={self.draws})"


class KeyDraws:
    """The draws from one key, in place of a Generator: the first takes the key itself, each other
    one folds its number in."""

    def __init__(self, key: Any) -> None:
        self.start: Tensor = check_key("key", key)
        self.draws: int = 0

    def key(self) -> "Tensor":
        """A key for one draw, never given before: uint32 (4,)."""
        self.draws += 1
        return self.start if self.draws == 1 else fold_in(self.start, self.draws)


def check_key(where_: str, key: Any) -> "Tensor":
    """A key, as `key` and `split` make it.

    Raises: ShapeError unless it is uint32 (4,).
    """
    key = as_value(key, where=where_)
    if key.dtype is not uint32 or key.shape != (4,):
        raise ShapeError(where_, "a key, uint32 (4,)", key.spec, "Take one from gh.random.key.")
    return key


def key(seed: Any = 0) -> "Tensor":
    """A key of a seed. A draw with `key=` in place of `generator=` is a function of the key alone:
    the same key gives the same numbers, so make another one by `split` or `fold_in` for each draw.

    Shapes: (4,), uint32.
    Source: Bradbury et al., JAX, 2018 (random.key).
    Example:
        >>> first, second = split(key(0))
        >>> normal((2,), key=first).shape
        (2,)
    """
    if isinstance(seed, Value):
        return fold_in(key(0), seed)
    try:
        seed = operator.index(seed)
    except TypeError:
        raise DTypeError("key", "an integer", repr(seed), "Use e.g. 0.") from None
    return adopt(np.array([*key_of(seed), 0, 0], np.uint32))


def tagged(key: "Tensor", number: Any) -> "Tensor":
    """A key that draws of `key` itself never use: its counter is another one."""
    number = cast(as_value(number, where="fold_in"), uint32)
    places = adopt(np.arange(4))
    counter = where(places == 3, full((4,), 0x9E3779B9, uint32), full((4,), 0, uint32))
    return key ^ where(places == 2, broadcast_to(number, (4,)), counter)


def split(key: Any, num: int | Sequence[int] = 2) -> "Tensor":
    """So many new keys, independent of each other and of the draws of `key`.

    Shapes: key (4,) -> (*num, 4).
    Raises: ShapeError for an invalid key.
    Source: Bradbury et al., JAX, 2018 (random.split).
    Example:
        >>> split(key(0), 3).shape
        (3, 4)
    """
    shape = check_shape("split", num)
    return random_bits(tagged(check_key("split", key), 0xFFFFFFFF), shape=(*shape, 4))


def fold_in(key: Any, data: Any) -> "Tensor":
    """A new key from `key` and a number.

    Shapes: key (4,), data () -> (4,).
    Raises: ShapeError for an invalid key.
    Source: Bradbury et al., JAX, 2018 (random.fold_in).
    """
    return random_bits(tagged(check_key("fold_in", key), data), shape=(4,))


def takes_key(draw: Any) -> Any:
    """The draw, which takes `key=` in place of `generator=`."""

    @functools.wraps(draw)
    def with_key(*args: Any, key: Any = None, **named: Any) -> Any:
        return (
            draw(*args, **named) if key is None else draw(*args, generator=KeyDraws(key), **named)
        )

    return with_key


global_generator: Generator = Generator(0)


def default_generator() -> Generator:
    """The generator of draws that name none."""
    return global_generator


def seed(n: int) -> None:
    """Restart the default generator at `n`: the draws that follow are fixed by it.

    Raises: DTypeError unless n is an integer.
    """
    global_generator.restart(n)


@takes_key
def bits(shape: int | Sequence[int], generator: Generator | None = None) -> "Tensor":
    """Uniform random bits as uint32."""
    return random_bits((generator or global_generator).key(), shape=check_shape("random", shape))


def check_floating(where_: str, dtype: DTypeLike) -> DType:
    dtype = as_dtype(dtype)
    if not dtype.is_floating:
        raise DTypeError(where_, "a floating dtype", dtype.name, "Cast later.")
    return dtype


def words(shape: Any, generator: Any) -> "tuple[Tensor, Tensor]":
    pair = cast(bits((2, *shape), generator), default_int)
    return getitem(pair, 0), getitem(pair, 1)


def long_bits(shape: int | Sequence[int], generator: Generator | None) -> "Tensor":
    high, low = words(shape, generator)
    return (high >> 1) * 2**32 + low


def longer_bits(shape: Any, generator: Generator) -> "Tensor":
    high, low = (cast(word, uint64) for word in words(shape, generator))
    return high * 2**32 + low


def unit(shape: int | Sequence[int], dtype: DType, generator: Generator | None) -> "Tensor":
    """Uniform numbers in [0, 1): multiples of 2**-24, or of 2**-53 for float64."""
    if dtype is float64:
        return cast(long_bits(shape, generator) >> 10, float64) * 2.0**-53
    signed = bitcast(bits(shape, generator), dtype=int32) >> 8  # 24 bits, from -2**23
    return cast(signed, float32) * 2.0**-24 + 0.5


@takes_key
def uniform(
    shape: int | Sequence[int] = (),
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = float32,
    generator: Generator | None = None,
) -> "Tensor":
    """Numbers uniform in [low, high).
    Where low and high are tensors, rounding may give `high` itself.

    Shapes: low and high broadcast to `shape`.
    Raises: OptionError unless low <= high, DTypeError unless dtype is floating.
    Example:
        >>> seed(0); 0 <= uniform(()).item() < 1
        True
    """
    dtype, shape = check_floating("uniform", dtype), check_shape("uniform", shape)
    samples = unit(shape, dtype, generator)
    if not (isinstance(low, (int, float)) and isinstance(high, (int, float))):
        return cast(samples * (high - low) + low, dtype)
    if not low <= high:
        raise OptionError("uniform", "low <= high", f"{low} and {high}", "Swap them.")
    if (low, high) != (0, 1):
        samples = samples * (high - low) + low
    elif samples.dtype is dtype:
        return samples
    largest = np.nextafter(np.asarray(high).astype(dtype.np), np.asarray(low).astype(dtype.np))
    return cards.minimum(cast(samples, dtype), full(shape, largest.item(), dtype))


@takes_key
def normal(
    shape: int | Sequence[int] = (),
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = float32,
    generator: Generator | None = None,
) -> "Tensor":
    """Numbers with the normal distribution of this mean and standard deviation.

    Shapes: mean and std broadcast to `shape`.
    Raises: DTypeError unless dtype is floating.
    Source: Box & Muller 1958.
    """
    dtype, shape = check_floating("normal", dtype), check_shape("normal", shape)
    size = math.prod(shape)
    pair = unit((2, (size + 1) // 2), dtype, generator)
    radius = cards.sqrt(cards.log(1.0 - getitem(pair, 0)) * -2.0)  # 1 - u lies in (0, 1]
    angle = getitem(pair, 1) * (2 * math.pi)
    samples = concatenate(radius * cards.cos(angle), radius * cards.sin(angle), axis=0)
    samples = reshape(getitem(samples, slice(0, size)), shape)
    samples = samples if type(std) is float and std == 1.0 else samples * std
    return cast(samples if type(mean) is float and mean == 0.0 else samples + mean, dtype)


@takes_key
def truncated_normal(
    shape: int | Sequence[int] = (),
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: DTypeLike = float32,
    generator: Generator | None = None,
) -> "Tensor":
    """Normal numbers conditioned on lying in [low, high], by the inverse distribution function.

    Raises: OptionError unless low < high, DTypeError unless dtype is floating.
    """
    dtype, shape = check_floating("truncated_normal", dtype), check_shape("normal", shape)
    if not low < high:
        raise OptionError("truncated_normal", "low < high", f"{low} and {high}", "Swap.")
    a, b = (math.erf((limit - mean) / (std * math.sqrt(2))) for limit in (low, high))
    samples = erfinv(unit(shape, float64, generator) * (b - a) + a) * (std * math.sqrt(2)) + mean
    samples = cards.minimum(cards.maximum(samples, samples * 0 + low), samples * 0 + high)
    return cast(samples, dtype)


def erfinv(y: "Tensor") -> "Tensor":
    """The inverse of erf, by a closed first guess and three Newton steps.

    Source: Winitzki 2008, A handy approximation for the error function and its inverse.
    """
    a, edge = 0.147, 1.0 - 2.0**-53
    y = cards.minimum(cards.maximum(y, y * 0 - edge), y * 0 + edge)
    log = cards.log1p(-y * y)
    first = 2 / (math.pi * a) + log / 2
    x = cards.sqrt(cards.sqrt(first * first - log / a) - first)
    x = where(y < 0, -x, x)
    for _ in range(3):
        x = x - (cards.erf(x) - y) / (cards.exp(-x * x) * (2 / math.sqrt(math.pi)) + 1e-300)
    return x


@takes_key
def randint(
    low: Any,
    high: Any = None,
    shape: tuple[Any, ...] = (),
    dtype: DTypeLike = default_int,
    generator: Generator | None = None,
) -> "Tensor":
    """Integers uniform in [low, high), or in [0, low) if `high` is left out.
    No integer is likelier than another by more than 2**-23 of its probability.

    Raises: OptionError unless low < high, DTypeError unless dtype is an integer type.
    """
    low, high = (0, low) if high is None else (low, high)
    dtype, shape = as_dtype(dtype), check_shape("randint", shape)
    if not dtype.is_integer:
        raise DTypeError("randint", "an integer dtype", dtype.name, "Use uniform.")
    low, high = operator.index(low), operator.index(high)
    info = np.iinfo(dtype.np)
    if not info.min <= low < high <= info.max + 1:
        fix = "Widen the range or the dtype."
        raise OptionError("randint", f"low < high within {dtype.name}", f"{low} and {high}", fix)
    offsets = below(high - low, shape, generator)
    if dtype is uint64:
        return cast(offsets, dtype) + low
    if offsets.dtype is default_int:
        return cast(offsets + low, dtype)
    return bitcast(offsets ^ 2**63, dtype=default_int) + (low + 2**63)  # offsets - 2**63 fits int64


def below(span: int, shape: Any, generator: Any) -> "Tensor":
    """Integers uniform in [0, span): int64, or uint64 for a span above 2**63. Above 2**40 numbers
    too large are drawn again, up to 40 times; each draw succeeds for more than one half."""
    if span <= 2**40:  # a remainder of 63 bits is uniform up to span / 2**63
        return long_bits(shape, generator) % span
    draw = longer_bits if span > 2**63 else long_bits
    mask = 2 ** (span - 1).bit_length() - 1
    bits = draw(shape, generator) & mask
    if span == mask + 1:
        return bits
    for _ in range(40):
        bits = where(bits < span, bits, draw(shape, generator) & mask)
    return bits % span


@takes_key
def bernoulli(
    p: float = 0.5, shape: int | Sequence[int] | None = None, generator: Generator | None = None
) -> "Tensor":
    """True with probability `p`, which gives the shape if none is.

    Raises: OptionError for p.
    """
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise OptionError("bernoulli", "p from 0 to 1", p, "Check the scale.")
    shape = (p.shape if isinstance(p, Value) else np.shape(p)) if shape is None else shape
    return uniform(shape, generator=generator) < p


@takes_key
def exponential(
    shape: tuple[Any, ...] = (),
    scale: float = 1.0,
    dtype: DTypeLike = float32,
    generator: Generator | None = None,
) -> "Tensor":
    """Exponential numbers of mean `scale`.

    Raises: DTypeError unless dtype is floating.
    """
    dtype, shape = check_floating("exponential", dtype), check_shape("exponential", shape)
    return cast(-cards.log1p(-unit(shape, dtype, generator)) * scale, dtype)


@takes_key
def gumbel(
    shape: int | Sequence[int] = (), dtype: DTypeLike = float32, generator: Generator | None = None
) -> "Tensor":
    """Standard Gumbel numbers.

    Raises: DTypeError unless dtype is floating.
    """
    dtype, shape = check_floating("gumbel", dtype), check_shape("gumbel", shape)
    tiny = 2.0**-54 if dtype is float64 else 2.0**-25  # the middle of the lowest step, for log(0)
    return cast(-cards.log(-cards.log(unit(shape, dtype, generator) + tiny)), dtype)


@takes_key
def categorical(
    logits: ArrayLike, axis: int = -1, shape: Any = None, generator: Generator | None = None
) -> "Tensor":
    """Positions along `axis` drawn with probabilities softmax(logits), by the Gumbel maximum.

    Shapes: logits (*a, n, *b) -> (*a, *b); with `shape`, (*shape, *a, *b).
    Raises: ShapeError for an axis out of range.
    Source: Maddison et al. 2014, arXiv:1411.0030.
    """
    logits = as_value(logits, where="categorical")
    axis = check_axis("categorical", axis, logits.ndim)
    lead = () if shape is None else check_shape("categorical", shape)
    noise = gumbel((*lead, *logits.shape), generator=generator)
    return argmax(noise + logits, axis=len(lead) + axis)


@takes_key
def permutation(n: int, axis: int = 0, generator: Generator | None = None) -> "Tensor":
    """The integers below `n` in random order; for a tensor, its slices along `axis`.

    Example:
        >>> sorted(permutation(4).tolist())
        [0, 1, 2, 3]
    """
    if isinstance(n, (Value, np.ndarray)):
        x = as_value(n)
        axis = check_axis("permutation", axis, x.ndim)
        return gather(x, permutation(x.shape[axis], generator=generator), axis=axis)
    (n,) = check_shape("permutation", n)
    return sort(long_bits((n,), generator), axis=0, descending=False)[1]


@takes_key
def choice(
    options: Any,
    shape: tuple[Any, ...] = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    generator: Generator | None = None,
) -> "Tensor":
    """Elements drawn from `options`, a tensor along `axis`, or the integers below a number.
    Without replacement and with weights `p`, the largest of Gumbel-perturbed log-weights are taken.

    Shapes: `shape` in place of the axis.
    Raises: ShapeError for more draws than options without replacement, or p of another length.
    """
    shape = check_shape("choice", shape)
    options = int(options) if isinstance(options, np.integer) else options
    x = None if isinstance(options, int) else as_value(options, where="choice")
    axis = 0 if x is None else check_axis("choice", axis, x.ndim)
    n, count = options if x is None else x.shape[axis], math.prod(shape)
    if n < 1 or (not replace and count > n):
        expected = f"at most {n} draws from {n} options without replacement"
        raise ShapeError("choice", expected, count, "Draw fewer, or pass replace=True.")
    weights = None
    if p is not None:
        weights = cast(check_like("choice", "p", as_value(p, where="choice"), (n,)), float64)
    places = choose(n, count, replace, weights, generator)
    if x is None:
        return reshape(places, shape)
    picked = gather(x, places, axis=axis)
    return reshape(picked, x.shape[:axis] + shape + x.shape[axis + 1 :])


def choose(n: int, count: int, replace: bool, weights: Any, generator: Any) -> "Tensor":
    if replace and weights is None:
        return randint(n, shape=(count,), generator=generator)
    if replace:
        total = cumsum(weights, axis=0, reverse=False)
        last = gather(total, as_value(np.int64(-1)), axis=0)
        places = searchsorted(
            total, uniform((count,), dtype=float64, generator=generator) * last, side="right"
        )
        return where(places < n, places, full((count,), n - 1, default_int))
    scores = gumbel((n,), dtype=float64, generator=generator)
    if weights is not None:
        scores = scores + cards.log(weights)
    return gather(sort(scores, axis=0, descending=True)[1], adopt(np.arange(count)), axis=0)


@takes_key
def shuffle(x: ArrayLike, axis: int = 0, generator: Generator | None = None) -> "Tensor":
    """The slices of x along `axis` in random order, as a new tensor."""
    return permutation(as_value(x), axis=axis, generator=generator)


@takes_key
def gamma(
    shape: tuple[Any, ...] = (),
    alpha: float = 1.0,
    scale: float = 1.0,
    dtype: DTypeLike = float32,
    generator: Generator | None = None,
) -> "Tensor":
    """Numbers with the gamma distribution, by 16 rounds of rejection; alpha gets no gradient.
    A round accepts with probability above 0.95, so that all fail once in 10**20.

    Raises: OptionError unless alpha is positive, DTypeError unless dtype is floating.
    Source: Marsaglia & Tsang 2000, A simple method for generating gamma variables.
    """
    dtype, shape = check_floating("gamma", dtype), check_shape("gamma", shape)
    if isinstance(alpha, (int, float)) and not alpha > 0:
        raise OptionError("gamma", "alpha above 0", alpha, "Pass a positive shape.")
    alpha = broadcast_to(cast(as_value(alpha), float64), shape).detach()
    d = where(alpha < 1, alpha + 1, alpha) - 1 / 3
    c = 1 / cards.sqrt(d * 9)
    accepted, samples = full(shape, 0.0, float64) > 1, d
    for _ in range(16):
        x = normal(shape, dtype=float64, generator=generator)
        v = (x * c + 1) ** 3
        u = 1 - unit(shape, float64, generator)
        log_v = cards.log(cards.maximum(v, full(shape, 1e-300, float64)))
        good = (v > 0) & (cards.log(u) < 0.5 * x * x + d - d * v + d * log_v)
        samples = where(good & ~accepted, d * v, samples)
        accepted = accepted | good
    boost = cards.log(1 - unit(shape, float64, generator)) / alpha
    return cast(where(alpha < 1, samples * cards.exp(boost), samples) * scale, dtype)


@takes_key
def beta(
    shape: tuple[Any, ...] = (),
    a: float = 1.0,
    b: float = 1.0,
    dtype: DTypeLike = float32,
    generator: Generator | None = None,
) -> "Tensor":
    """Numbers with the beta distribution: x / (x + y) of two gammas.

    Raises: OptionError unless a and b are positive, DTypeError unless dtype is floating.
    """
    x, y = (gamma(shape, k, dtype=float64, generator=generator) for k in (a, b))
    return cast(x / (x + y), check_floating("beta", dtype))
