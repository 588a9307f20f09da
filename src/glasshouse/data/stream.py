"""Data sets that are only iterated over, and the pieces that compose them.

    TarShards(paths).shuffle(1000, seed=0).map(decode).batch(64)

`read_from(start)` begins at the sample `start`: a loop continues there after a stop. Pieces skip as
far down as they can, so a map does not run on skipped samples."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat, takewhile
from typing import Any

from glasshouse.base.errors import DTypeError, OptionError, type_name
from glasshouse.data.collate import collate as collate_samples
from glasshouse.data.composed import Composed
from glasshouse.data.fetch import END, check_function, is_iterable_only
from glasshouse.data.order import read_ahead, sample_generator
from glasshouse.data.worker import get_worker_info
from glasshouse.ops.checks import check_integer
from glasshouse.tensor import Tensor

__all__ = ["BatchStream", "ChainDataset", "FilterStream", "IterableDataset", "IterableSource",
           "MapStream", "PartStream", "PrefetchStream", "ShuffleStream", "SpanStream"]  # fmt: skip


class IterableDataset(Composed):
    """Samples that come one after the other: subclasses define `__iter__`, or `read_from(start)`.

    Source: PyTorch.
    Example:
        >>> class Countdown(IterableDataset):
        ...     def __iter__(self):
        ...         return iter([3, 2, 1])
        >>> list(Countdown().map(lambda x: x * 2).skip(1))
        [4, 2]
    """

    def __iter__(self) -> Iterator[Any]:
        return self.read_from(0)

    def read_from(self, start: int) -> Iterator[Any]:
        """Iterate over the samples start, start+1, …"""
        if type(self).__iter__ is IterableDataset.__iter__:
            raise NotImplementedError(f"{type(self).__name__}: expected __iter__; got none.")
        return islice(iter(self), start, None)

    def map(self, fn: Any, seed: int | None = None) -> "MapStream":
        """fn(sample) of every sample; with a seed, fn(sample, rng)."""
        return MapStream(self, fn, seed)

    def filter(self, keep: Any) -> "FilterStream":
        """The samples for which keep(sample) is true."""
        return FilterStream(self, keep)

    def shuffle(self, buffer_size: int, seed: int = 0) -> "ShuffleStream":
        """The samples in random order, drawn from a buffer of the next `buffer_size`."""
        return ShuffleStream(self, buffer_size, seed)

    def batch(
        self, batch_size: int, drop_last: bool = False, collate: Callable[..., Any] | None = None
    ) -> "BatchStream":
        """Groups of consecutive samples, as tensors."""
        return BatchStream(self, batch_size, drop_last, collate)

    def prefetch(self, depth: int = 2) -> "PrefetchStream":
        """The same samples, read ahead by a thread."""
        return PrefetchStream(self, depth)

    def take(self, count: int) -> "SpanStream":
        """The first `count` samples."""
        return SpanStream(self, 0, check_integer("take", "count", count, 0))

    def skip(self, count: int) -> "SpanStream":
        """All but the first `count` samples."""
        return SpanStream(self, check_integer("skip", "count", count, 0), None)

    def shard(self, num_shards: int | None = None, index: int | None = None) -> "PartStream":
        """Every `num_shards`-th sample from `index` on; in a worker, by default, its part."""
        return PartStream(self, num_shards, index)

    def chain(self, *others: int) -> "ChainDataset":
        """These samples, then those of the others."""
        return ChainDataset([self, *others])

    def __add__(self, other: Any) -> "ChainDataset":
        return self.chain(other)


def check_stream(where: str, source: Any) -> Any:
    if not is_iterable_only(source) and not hasattr(source, "__len__"):
        expected = "a data set that can be iterated over again"
        fix = "Pass a list, or IterableSource(function) with a function that makes the iterator."
        raise DTypeError(where, expected, type_name(source), fix)
    return source


def read_source(source: IterableDataset, start: int) -> Iterator[Any]:
    """Iterate over `source` from its sample `start` on."""
    if hasattr(source, "read_from"):
        return source.read_from(start)
    return islice(iter(source), start, None)


def random_path(seed: int, epoch: int) -> tuple[int, ...]:
    """Seed path of a stream's random numbers: with the worker, since each reads other samples."""
    info = get_worker_info()
    return seed, epoch, 0 if info is None else info.id


class IterableSource(IterableDataset):
    """The samples of an iterable, or of one that a function returns for each pass.

    Raises: DTypeError for an iterator, which can be read only once.
    Example:
        >>> list(IterableSource(lambda: iter([1, 2])))
        [1, 2]
    """

    def __init__(self, entries: Any) -> None:
        self.entries: Any = (
            entries if callable(entries) else check_stream("IterableSource", entries)
        )

    def read_from(self, start: int) -> Iterator[Any]:
        entries = self.entries() if callable(self.entries) else self.entries
        return islice(iter(entries), start, None)


class MapStream(IterableDataset):
    """fn(sample) of each sample of the source; with a seed, fn(sample, rng), a NumPy generator of
    (seed, epoch, worker, position)."""

    shown: tuple[str, ...] = ("fn", "seed")

    def __init__(self, source: Any, fn: Any, seed: int | None = None) -> None:
        self.sources: tuple[Any, ...] = (check_stream("map", source),)
        if not callable(fn):
            raise DTypeError("map", "a function", repr(fn), "Pass a callable.")
        self.fn = fn
        self.seed: int | None = None if seed is None else check_integer("map", "seed", seed)
        self.epoch = 0

    def read_from(self, start: int) -> Iterator[Any]:
        samples = read_source(self.sources[0], start)
        if self.seed is None:
            return map(self.fn, samples)
        path = random_path(self.seed, self.epoch)
        return (
            self.fn(sample, sample_generator(*path, position))
            for position, sample in enumerate(samples, start)
        )


class FilterStream(IterableDataset):
    """The source's samples for which `keep` is true."""

    shown: tuple[str, ...] = ("keep",)

    def __init__(self, source: Any, keep: Any) -> None:
        self.sources: tuple[Any, ...] = (check_stream("filter", source),)
        if not callable(keep):
            raise DTypeError("filter", "a function", repr(keep), "Pass a callable.")
        self.keep = keep

    def __iter__(self) -> Iterator[Any]:
        return filter(self.keep, self.sources[0])


class ShuffleStream(IterableDataset):
    """The source's samples in random order: each is drawn from the next `buffer_size`. The order is
    one of (seed, epoch, worker). Decode after it: the buffer then holds little, and a loop that
    continues in the middle decodes nothing twice.

    Raises: OptionError if buffer_size is below 1.
    Example:
        >>> sorted(ShuffleStream([3, 1, 2], buffer_size=2))
        [1, 2, 3]
    """

    shown: tuple[str, ...] = ("buffer_size", "seed")

    def __init__(self, source: Any, buffer_size: int, seed: int = 0) -> None:
        self.sources: tuple[Any, ...] = (check_stream("shuffle", source),)
        self.buffer_size: int = check_integer("shuffle", "buffer_size", buffer_size, 1)
        self.seed: int = check_integer("shuffle", "seed", seed)
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        rng = sample_generator(*random_path(self.seed, self.epoch))
        samples = iter(self.sources[0])
        buffer = list(islice(samples, self.buffer_size))
        for sample in samples:
            place = int(rng.integers(len(buffer)))
            yield buffer[place]
            buffer[place] = sample
        for place in rng.permutation(len(buffer)).tolist():
            yield buffer[place]


class BatchStream(IterableDataset):
    """Groups of `batch_size` consecutive samples, joined by `collate` (default: `data.collate`).

    Shapes: leaves (*S) -> (batch_size, *S).
    Raises: OptionError if batch_size is below 1.
    """

    shown: tuple[str, ...] = ("batch_size", "drop_last")

    def __init__(
        self,
        source: Any,
        batch_size: int,
        drop_last: bool = False,
        collate: Callable[..., Any] | None = None,
    ) -> None:
        self.sources: tuple[Any, ...] = (check_stream("batch", source),)
        self.batch_size: int = check_integer("batch", "batch_size", batch_size, 1)
        self.drop_last: bool = bool(drop_last)
        self.collate: Any = check_function("batch", "collate", collate) or collate_samples

    def read_from(self, start: int) -> Iterator[Tensor]:
        samples = read_source(self.sources[0], start * self.batch_size)
        while group := list(islice(samples, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield self.collate(group)


class PrefetchStream(IterableDataset):
    """The source's samples, up to `depth` of them read ahead by a thread."""

    shown: tuple[str, ...] = ("depth",)

    def __init__(self, source: Any, depth: int = 2) -> None:
        self.sources: tuple[Any, ...] = (check_stream("prefetch", source),)
        self.depth: int = check_integer("prefetch", "depth", depth, 1)

    def read_from(self, start: int) -> Iterator[Any]:
        samples = read_source(self.sources[0], start)
        ahead = read_ahead(lambda _: next(samples, END), repeat(None), 1, self.depth)
        return takewhile(lambda sample: sample is not END, ahead)


class SpanStream(IterableDataset):
    """The source's samples start … stop-1 (to the end for None), as far as there are any."""

    shown: tuple[str, ...] = ("start", "stop")

    def __init__(self, source: Any, start: int, stop: int | None) -> None:
        self.sources: tuple[Any, ...] = (check_stream("span", source),)
        self.start = start
        self.stop = stop

    def read_from(self, start: int) -> Iterator[Any]:
        samples = read_source(self.sources[0], self.start + start)
        if self.stop is None:
            return samples
        return islice(samples, max(0, self.stop - self.start - start))


class PartStream(IterableDataset):
    """Every `num_shards`-th sample of the source, from `index` on. Without numbers it is the part
    of the worker that reads: all workers together give each sample once.

    Raises: OptionError unless 0 <= index < num_shards, or if only one of them is given.
    Example:
        >>> list(PartStream([1, 2, 3, 4, 5], num_shards=2, index=1))
        [2, 4]
    """

    shown: tuple[str, ...] = ("num_shards", "index")

    def __init__(
        self, source: Any, num_shards: int | None = None, index: int | None = None
    ) -> None:
        self.sources: tuple[Any, ...] = (check_stream("shard", source),)
        self.num_shards = num_shards
        self.index = index
        if num_shards is not None or index is not None:
            count = check_integer("shard", "num_shards", num_shards, 1)
            if check_integer("shard", "index", index, 0) >= count:
                fix = "Count from 0."
                raise OptionError("shard", f"an index from 0 to {count - 1}", index, fix)

    def read_from(self, start: Any) -> Iterator[Any]:
        count, index = self.num_shards, self.index
        if count is None:
            info = get_worker_info()
            count, index = (1, 0) if info is None else (info.num_workers, info.id)
        return islice(read_source(self.sources[0], index + start * count), 0, None, count)


class ChainDataset(IterableDataset):
    """The samples of each data set in turn.

    Source: PyTorch.
    Example:
        >>> list(ChainDataset([[1, 2], [3]]))
        [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.sources: tuple[Any, ...] = tuple(
            check_stream("ChainDataset", source) for source in datasets
        )

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.sources)

    def __len__(self) -> int:
        return sum(map(len, self.sources))
