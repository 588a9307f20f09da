"""Samplers: which samples an epoch reads, in which order, and how they are grouped.

An order depends on (seed, epoch) alone, so a loader finds its place in it again. With a generator
it depends on the generator's state when the epoch begins."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError, type_name
from glasshouse.data.order import random_order, sample_generator
from glasshouse.ops.checks import check_integer
from glasshouse.tensor.random import Generator

__all__ = ["BatchSampler", "BucketBatchSampler", "DistributedSampler", "RandomSampler", "Sampler",
           "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"]  # fmt: skip


def is_defined_with(cls: type[Any], fast: str, slow: str) -> bool:
    """Whether `fast` is equivalent to `slow`: no subclass has overridden `slow` alone."""
    for base in cls.__mro__:
        if fast in vars(base):
            return True
        if slow in vars(base):
            return False
    return False


class Sampler:
    """The indices of an epoch. A subclass defines `__iter__` and `__len__`, or `order`.

    Example:
        >>> class Backwards(Sampler):
        ...     def __iter__(self):
        ...         return iter([2, 1, 0])
        >>> list(Backwards())
        [2, 1, 0]
    """

    epoch: int = 0

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def order(self) -> Any:
        """The epoch's indices as an array or range."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected __iter__ or order; got neither."
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self.order()).tolist())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, on which random orders depend."""
        self.epoch = check_integer("set_epoch", "epoch", epoch, 0)


class SequentialSampler(Sampler):
    """0, 1, 2, …

    Example:
        >>> list(SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source: Any = check_sized("SequentialSampler", data_source)

    def order(self) -> range:
        return range(len(self.data_source))

    def __len__(self) -> int:
        return len(self.data_source)


class SeededSampler(Sampler):
    """A random order of (seed, epoch), or of a generator's state at the beginning of the epoch."""

    def set_seed(self, seed: int, generator: Generator | None) -> None:
        where = type(self).__name__
        self.seed: int = check_integer(where, "seed", seed)
        if generator is not None and not isinstance(generator, Generator):
            fix = "Pass one, or a seed."
            raise DTypeError(where, "a gh.random.Generator", type_name(generator), fix)
        self.generator = generator
        self.began: dict[Any, Any] | None = None

    def path(self) -> tuple[int, ...]:
        """The integers that determine this epoch's order."""
        if self.generator is None:
            return self.seed, self.epoch
        self.began = self.generator.state()
        return tuple(self.generator.key().numpy().tolist())

    def rng(self) -> "np.random.Generator":
        return sample_generator(*self.path())

    def state_dict(self) -> dict[Any, Any]:
        """The generator's state when the epoch began; nothing where there is only a seed."""
        return {} if self.began is None else {"generator": self.began}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Draw the next order as the saved epoch's was drawn."""
        if self.generator is not None and state:
            self.generator.set_state(state["generator"])


class RandomSampler(SeededSampler):
    """A random order of all samples; with `replacement`, or with `num_samples` other than their
    number, so many draws.

    Raises: OptionError if num_samples is no positive integer, or a seed is negative.
    Source: PyTorch.
    Example:
        >>> sorted(RandomSampler("abc", seed=1))
        [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Any,
        replacement: int = False,
        num_samples: int | None = None,
        generator: Any = None,
        *,
        seed: int = 0,
    ) -> None:
        self.data_source: Any = check_sized("RandomSampler", data_source)
        if not isinstance(replacement, bool):
            fix = "Name num_samples."
            raise DTypeError("RandomSampler", "replacement True or False", repr(replacement), fix)
        self.replacement = replacement
        if num_samples is not None:
            check_integer("RandomSampler", "num_samples", num_samples, 1)
        self.sample_count = num_samples
        self.set_seed(seed, generator)

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return len(self.data_source) if self.sample_count is None else self.sample_count

    def order(self) -> np.ndarray:
        count = len(self.data_source)
        if self.replacement:
            return self.rng().integers(0, count, self.num_samples)
        path = self.path()
        rounds = -(-self.num_samples // max(count, 1))
        orders = [random_order(count, *path, *([turn] if turn else [])) for turn in range(rounds)]
        return np.concatenate([*orders, np.zeros(0, np.int64)])[: self.num_samples].astype(np.int64)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(SeededSampler):
    """The given indices in random order.

    Source: PyTorch.
    Example:
        >>> sorted(SubsetRandomSampler([4, 7]))
        [4, 7]
    """

    def __init__(
        self, indices: Sequence[int], generator: Generator | None = None, *, seed: int = 0
    ) -> None:
        self.indices: Any = check_sized("SubsetRandomSampler", indices)
        self.set_seed(seed, generator)

    def order(self) -> np.ndarray:
        return np.asarray(self.indices)[random_order(len(self.indices), *self.path())]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(SeededSampler):
    """`num_samples` draws of the indices of `weights`, each as likely as its weight says.

    Raises: ShapeError unless weights are one row, OptionError if one is negative or not finite, or
        there are too few for draws without replacement.
    Source: PyTorch; without replacement Efraimidis & Spirakis 2006, Weighted random sampling with a
        reservoir.
    Example:
        >>> list(WeightedRandomSampler([0.0, 1.0], 3))
        [1, 1, 1]
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
        *,
        seed: int = 0,
    ) -> None:
        where = "WeightedRandomSampler"
        try:
            self.weights: np.ndarray = np.asarray(weights, np.float64)
        except (TypeError, ValueError):
            fix = "Pass a list of numbers."
            raise DTypeError(where, "a row of weights", f"{weights!r:.60}", fix) from None
        if self.weights.ndim != 1:
            raise ShapeError(where, "one row of weights", self.weights.shape, "Flatten them.")
        if not (
            np.isfinite(self.weights).all() and (self.weights >= 0).all() and self.weights.any()
        ):
            expected = "finite weights of 0 or more, not all 0"
            fix = "Use numbers of samples or 1 / (samples of the class)."
            raise OptionError(where, expected, f"{weights!r:.60}", fix)
        self.num_samples: int = check_integer(where, "num_samples", num_samples, 1)
        self.replacement: bool = bool(replacement)
        possible = int(np.count_nonzero(self.weights))
        if not self.replacement and num_samples > possible:
            expected = f"num_samples of at most {possible} without replacement"
            raise OptionError(where, expected, num_samples, "Draw fewer, or with replacement=True.")
        self.set_seed(seed, generator)

    def order(self) -> np.ndarray:
        rng = self.rng()
        if self.replacement:
            ends = np.cumsum(self.weights)
            return np.searchsorted(ends, rng.random(self.num_samples) * ends[-1], side="right")
        with np.errstate(divide="ignore"):
            keys = rng.exponential(size=len(self.weights)) / self.weights
        return np.argsort(keys, kind="stable")[: self.num_samples]

    def __len__(self) -> int:
        return self.num_samples


class DistributedSampler(SeededSampler):
    """Every `num_replicas`-th index from `rank` on, of an order that all processes share. Where the
    length does not divide, the first indices come again, or with `drop_last` the last are left out.

    Raises: OptionError unless 0 <= rank < num_replicas.
    Source: PyTorch.
    Example:
        >>> list(DistributedSampler("abcde", num_replicas=2, rank=1, shuffle=False))
        [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset: Any = check_sized("DistributedSampler", dataset)
        self.num_replicas: int = check_integer(
            "DistributedSampler", "num_replicas", num_replicas, 1
        )
        self.rank: int = check_integer("DistributedSampler", "rank", rank, 0)
        if self.rank >= self.num_replicas:
            expected = f"a rank from 0 to {self.num_replicas - 1}"
            raise OptionError("DistributedSampler", expected, rank, "Ranks count from 0.")
        self.shuffle: bool = bool(shuffle)
        self.drop_last: bool = bool(drop_last)
        self.set_seed(seed, None)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.dataset), self.num_replicas)
        return whole + (rest > 0 and not self.drop_last)

    def order(self) -> np.ndarray:
        count, total = len(self.dataset), len(self) * self.num_replicas
        order = random_order(count, *self.path()) if self.shuffle else np.arange(count)
        return np.resize(order, total)[self.rank :: self.num_replicas]


class BatchSampler(Sampler):
    """Groups of `batch_size` indices of another sampler.

    Raises: OptionError if batch_size is below 1, DTypeError if the sampler is not iterable.
    Source: PyTorch.
    Example:
        >>> list(BatchSampler(range(5), 2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        if not hasattr(sampler, "__iter__"):
            fix = "Pass e.g. a range."
            raise DTypeError("BatchSampler", "a sampler to iterate over", type_name(sampler), fix)
        self.sampler = sampler
        self.batch_size: int = check_integer("BatchSampler", "batch_size", batch_size, 1)
        if not isinstance(drop_last, bool):
            raise DTypeError("BatchSampler", "drop_last True or False", repr(drop_last), "Name it.")
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.read_from(0):
            yield batch.tolist() if isinstance(batch, np.ndarray) else list(batch)

    def read_from(self, start: int) -> Iterator[Any]:
        """Iterate over the batches start, start+1, …: arrays where the order is one. The order is
        drawn here, not when the first batch is read."""
        size = self.batch_size
        if is_defined_with(type(self.sampler), "order", "__iter__"):
            order = np.asarray(self.sampler.order())
            end = len(order) - len(order) % size if self.drop_last else len(order)
            return (order[first : first + size] for first in range(start * size, end, size))
        return self.groups(islice(iter(self.sampler), start * size, None))

    def groups(self, indices: Iterable[Any]) -> Iterator[list[float] | None]:
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        set_epoch_of(self.sampler, epoch)

    def state_dict(self) -> dict[Any, Any]:
        """The sampler's state."""
        return self.sampler.state_dict() if hasattr(self.sampler, "state_dict") else {}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Give the sampler its state."""
        if state:
            self.sampler.load_state_dict(state)


class BucketBatchSampler(SeededSampler):
    """Batches of samples of like length: within windows of `window` batches of a random order they
    are sorted by length, and the batches come in random order. A batch has `batch_size` samples at
    most, and with `max_tokens`, at most so many entries after padding (samples x longest).

    Raises: OptionError for neither limit, or a sample longer than max_tokens.
    Source: standard.
    Example:
        >>> list(BucketBatchSampler([3, 1, 3, 1], batch_size=2, shuffle=False))
        [[1, 3], [0, 2]]
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        window: int = 50,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        where = type(self).__name__
        self.lengths: np.ndarray = np.asarray(lengths)
        if self.lengths.ndim != 1 or self.lengths.dtype.kind not in "iu":
            fix = "Use [len(x) for x in data]."
            raise DTypeError(where, "a row of integer lengths", f"{lengths!r:.60}", fix)
        if batch_size is None and max_tokens is None:
            raise OptionError(where, "batch_size or max_tokens", "neither", "Pass one of them.")
        most = int(self.lengths.max(initial=0))
        count = len(self.lengths)
        self.batch_size: int = (
            max(count, 1)
            if batch_size is None
            else check_integer(where, "batch_size", batch_size, 1)
        )
        self.max_tokens: int = (
            max(count * most, 1)
            if max_tokens is None
            else check_integer(where, "max_tokens", max_tokens, 1)
        )
        if most > self.max_tokens:
            fix = "The longest sample has to fit: leave it out, or raise the limit."
            raise OptionError(where, f"max_tokens of at least {most}", max_tokens, fix)
        self.window: int = check_integer(where, "window", window, 1)
        self.shuffle: bool = bool(shuffle)
        self.drop_last: bool = bool(drop_last)
        self.set_seed(seed, None)
        self.epoch_batches: tuple[int, list[Any]] = (-1, [])

    def batches(self) -> list[list[int]]:
        """All batches of this epoch."""
        if self.epoch_batches[0] != self.epoch:
            self.epoch_batches = self.epoch, self.make_batches()
        return self.epoch_batches[1]

    def make_batches(self) -> list[list[int]]:
        count = len(self.lengths)
        order = random_order(count, *self.path()) if self.shuffle else np.arange(count)
        room = self.window * self.batch_size if self.shuffle else max(count, 1)
        batches: list[list[int]] = []
        for start in range(0, count, room):
            part = order[start : start + room]
            batches += self.cut(part[np.argsort(self.lengths[part], kind="stable")].tolist())
        if not self.shuffle:
            return batches
        return [batches[i] for i in random_order(len(batches), self.seed, self.epoch, 1)]

    def cut(self, indices: list[int]) -> list[list[int]]:
        """Batches of indices that are sorted by length."""
        batches: list[list[int]] = []
        batch: list[int] = []
        for index in indices:
            tokens = (len(batch) + 1) * int(self.lengths[index])
            if batch and (len(batch) == self.batch_size or tokens > self.max_tokens):
                batches.append(batch)
                batch = []
            batch.append(index)
        if batch and not (self.drop_last and len(batch) < self.batch_size):
            batches.append(batch)
        return batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches())

    def __len__(self) -> int:
        return len(self.batches())


def check_sized(where: str, source: Any) -> Any:
    if not hasattr(source, "__len__"):
        fix = "Make a list of it first."
        raise DTypeError(where, "something with a length", type_name(source), fix)
    return source


def set_epoch_of(source: Any, epoch: int) -> None:
    """Pass the epoch to a data set or sampler that takes it."""
    if hasattr(source, "set_epoch"):
        source.set_epoch(epoch)
