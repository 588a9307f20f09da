"""Data sets of known length, read by index, and the pieces that compose them.

A sample is a NumPy array, a number, a string, or a tuple or dict of them; a batch has the same
structure with tensors at its leaves. Every piece is again a data set:

    TensorDataset(images, labels).shuffle(seed=0).map(augment, seed=0).batch(64).prefetch(workers=2)
"""

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np

from glasshouse.base.errors import (
    DTypeError,
    IndexOutOfRangeError,
    OptionError,
    ShapeError,
    check_known,
    type_name,
)
from glasshouse.data.composed import Composed
from glasshouse.data.fetch import MapFetch, check_function, check_source
from glasshouse.data.index import check_index, check_indices
from glasshouse.data.order import random_order, read_ahead, sample_generator
from glasshouse.dispatch.value import Value
from glasshouse.dispatch.watch import TRANSFORMING, tell
from glasshouse.ops.checks import check_integer

__all__ = ["BatchDataset", "ConcatDataset", "Dataset", "ListDataset", "MapDataset", "MergeDataset",
           "PrefetchDataset", "ResampleDataset", "ShuffleDataset", "SpanDataset", "StackDataset",
           "TensorDataset", "TransformDataset"]  # fmt: skip


class Dataset(Composed):
    """A sequence of samples: subclasses define `__len__` and `__getitem__(index)`.

    Example:
        >>> class Squares(Dataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, index):
        ...         return index ** 2
        >>> list(Squares().skip(1).map(lambda x: x + 1))
        [2, 5]
    """

    def __len__(self) -> int:
        if not self.sources:
            raise NotImplementedError(f"{type(self).__name__}: expected __len__; got none.")
        return len(self.sources[0])

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: expected __getitem__; got none.")

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def map(self, fn: Any, seed: int | None = None) -> "MapDataset":
        """fn(sample) of every sample; with a seed, fn(sample, rng)."""
        return MapDataset(self, fn, seed)

    def transform(self, *fns: Any, seed: int | None = None, **named: Any) -> "TransformDataset":
        """Each field of a sample through its own function; None keeps it."""
        return TransformDataset(self, *fns, seed=seed, **named)

    def shuffle(self, seed: int = 0) -> "ShuffleDataset":
        """The samples in random order, another one for each epoch."""
        return ShuffleDataset(self, seed)

    def batch(
        self, batch_size: Any, drop_last: bool = False, collate: Any = None
    ) -> "BatchDataset":
        """Groups of consecutive samples, as tensors."""
        return BatchDataset(self, batch_size, drop_last, collate)

    def prefetch(self, workers: int = 1, depth: int | None = None) -> "PrefetchDataset":
        """The same samples, read ahead by threads while iterating."""
        return PrefetchDataset(self, workers, depth)

    def take(self, count: int) -> "SpanDataset":
        """The first `count` samples (all, if there are fewer)."""
        return self.span(0, min(check_integer("take", "count", count, 0), len(self)))

    def skip(self, count: int) -> "SpanDataset":
        """All but the first `count` samples."""
        return self.span(min(check_integer("skip", "count", count, 0), len(self)), len(self))

    def span(self, start: int, stop: int) -> "SpanDataset":
        """The samples start … stop-1."""
        return SpanDataset(self, start, stop)

    def concat(self, *others: Any) -> "ConcatDataset":
        """These samples, then those of the others."""
        return ConcatDataset(self, *others)

    def merge(self, *others: Any) -> "MergeDataset":
        """Tuples with the fields of this sample and of the others' at the same index."""
        return MergeDataset(self, *others)

    def resample(self, indices: Any, length: int | None = None) -> "ResampleDataset":
        """The samples at `indices`, in that order; an index may come more than once. A function
        gives the index for each of 0 … length-1."""
        return ResampleDataset(self, indices, length)

    def __add__(self, other: int) -> "ConcatDataset":
        return ConcatDataset(self, other)


class TensorDataset(Dataset):
    """Samples along the first axis of one or more arrays or tensors, which are read once, here.
    A sample is a tuple with one entry per array (the entry itself if there is one array only).

    Raises: ShapeError if there is no array, one is 0-d, or their first axes differ.
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays: tuple[np.ndarray, ...] = tuple(map(as_host_array, arrays))
        shapes = [array.shape for array in self.arrays]
        if not shapes or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
            got = ", ".join(map(str, shapes)) or "none"
            expected = "arrays with first axes of one size"
            fix = "Give one entry per sample in each."
            raise ShapeError("TensorDataset", expected, f"shapes {got}", fix)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> Any:
        index = check_index("TensorDataset", index, len(self.arrays[0]))
        sample = tuple([array[index] for array in self.arrays])
        return sample if len(sample) > 1 else sample[0]

    def read_batch(self, indices: np.ndarray, empty: Callable[..., Any] = np.empty) -> Any:
        """The samples at `indices`, stacked into arrays that `empty(shape, dtype)` makes."""
        count = len(self.arrays[0])
        indices = check_indices("TensorDataset", indices, count)
        batch = []
        for array in self.arrays:
            out = empty((len(indices), *array.shape[1:]), array.dtype)
            # Indices are in range: "clip" spares the copy that "raise" makes of `out`.
            batch.append(np.take(array, indices, axis=0, out=out, mode="clip"))
        return tuple(batch) if len(batch) > 1 else batch[0]

    def __repr__(self) -> str:
        fields = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.arrays)
        return f"TensorDataset({fields})"


def as_host_array(x: Any) -> np.ndarray:
    array = x.numpy() if isinstance(x, Value) else np.asarray(x)
    if array.dtype.kind in "OUSMm":
        expected = "arrays of numbers"
        fix = "Keep other objects in a list: ListDataset(objects)."
        raise DTypeError("TensorDataset", expected, f"{type_name(x)} of {array.dtype}", fix)
    return array


class ListDataset(Dataset):
    """The entries of a list, or of anything else with a length and an index, as a data set."""

    def __init__(self, entries: Any) -> None:
        self.entries: Any = check_source("ListDataset", entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Any:
        return self.entries[check_index("ListDataset", index, len(self))]

    def __repr__(self) -> str:
        return f"ListDataset({len(self)} entries)"


class MapDataset(Dataset):
    """fn(sample) for each sample of the source. With a seed, fn(sample, rng): a NumPy generator of
    (seed, epoch, index), so random augmentation does not depend on who reads a sample, or when."""

    shown: tuple[str, ...] = ("fn", "seed")

    def __init__(self, source: Any, fn: Any, seed: int | None = None) -> None:
        if not callable(fn):
            raise DTypeError("map", "a function", repr(fn), "Pass a callable.")
        self.sources: tuple[Any, ...] = (check_source("map", source),)
        self.fn = fn
        self.seed: int | None = None if seed is None else check_integer("map", "seed", seed)
        self.epoch = 0

    def __getitem__(self, index: int) -> Any:
        index = check_index("map", index, len(self))
        rng = () if self.seed is None else (sample_generator(self.seed, self.epoch, index),)
        sample, begin_ns = self.sources[0][index], perf_counter_ns()
        result = self.fn(sample, *rng)
        tell("region", TRANSFORMING, begin_ns)
        return result


class TransformDataset(MapDataset):
    """Samples whose fields went through functions: by position for tuples, by name for dicts. A
    sample that is no container is a field. With a seed, fn(field, rng).

    Example:
        >>> TransformDataset([(1, 2), (3, 4)], None, str)[1]
        (3, '4')
    """

    def __init__(self, source: Any, *fns: Any, seed: int | None = None, **named: Any) -> None:
        for fn in (*fns, *named.values()):
            check_function("transform", "each transform", fn)
        self.fns: tuple[Any, ...] = fns
        self.named: dict[str, Any] = named
        super().__init__(source, self.apply, seed)

    def apply(self, sample: Any, *rng: Any) -> Any:
        if isinstance(sample, dict):
            for name in self.named:
                check_known("transform", "a field of the sample", name, sample)
            fns = {name: fn for name, fn in self.named.items() if fn is not None}
            return sample | {name: fn(sample[name], *rng) for name, fn in fns.items()}
        fields = sample if isinstance(sample, tuple) else (sample,)
        if len(self.fns) > len(fields) or self.named:
            expected = f"transforms of at most {len(fields)} fields"
            fix = "Names are for samples that are dicts."
            got = f"{len(self.fns)}" + f" and {sorted(self.named)}" * bool(self.named)
            raise ShapeError("transform", expected, got, fix)
        fns = (*self.fns, *[None] * (len(fields) - len(self.fns)))
        out = tuple(x if fn is None else fn(x, *rng) for x, fn in zip(fields, fns, strict=True))
        return out if isinstance(sample, tuple) else out[0]


class ResampleDataset(Dataset):
    """The source's samples at `indices`: a list, or a function of 0 … length-1.

    Raises: IndexOutOfRangeError if one lies outside the source, DTypeError if one is no integer.
    """

    def __init__(self, source: Any, indices: Any, length: int | None = None) -> None:
        self.sources: tuple[Any, ...] = (check_source("resample", source),)
        if callable(indices):
            count = len(source) if length is None else length
            indices = [indices(i) for i in range(check_integer("resample", "length", count, 0))]
        indices = np.asarray(indices)
        if indices.size == 0:
            indices = indices.astype(np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            expected = "a list of integers"
            fix = "Turn a mask into indices with nonzero."
            raise DTypeError("resample", expected, f"{indices.dtype} of shape {indices.shape}", fix)
        for extreme in (indices.min(), indices.max()) if indices.size else ():
            check_index("resample", extreme, len(source))
        self.indices: np.ndarray | range = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.sources[0][int(self.indices[check_index("resample", index, len(self))])]

    def read_batch(
        self, indices: np.ndarray, empty: Callable[..., Any] = np.empty
    ) -> dict[str, Any]:
        """The samples at `indices`, stacked."""
        chosen = np.asarray(self.indices)[check_indices("resample", indices, len(self))]
        return self.sources[0].read_batch(chosen, empty)


class ShuffleDataset(ResampleDataset):
    """The source's samples in an order drawn from (seed, epoch); `set_epoch` draws the next one."""

    shown: tuple[str, ...] = ("seed",)

    def __init__(self, source: Any, seed: int = 0, epoch: int = 0) -> None:
        self.sources: tuple[Any, ...] = (check_source("shuffle", source),)
        self.seed: int = check_integer("shuffle", "seed", seed)
        self.reorder(epoch)

    def reorder(self, epoch: int) -> None:
        """Draw the order of `epoch`, here only."""
        self.indices: Any = random_order(len(self.sources[0]), self.seed, epoch)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.reorder(check_integer("set_epoch", "epoch", epoch, 0))


class SpanDataset(ResampleDataset):
    """The source's samples start … stop-1, or IndexOutOfRangeError where they are not all there."""

    shown: tuple[str, ...] = ("start", "stop")

    def __init__(self, source: Any, start: int, stop: int) -> None:
        self.sources: tuple[Any, ...] = (check_source("span", source),)
        self.start: int = check_integer("span", "start", start, 0)
        self.stop: int = check_integer("span", "stop", stop, 0)
        if not self.start <= self.stop <= len(source):
            expected = f"0 <= start <= stop <= {len(source)}"
            fix = f"The data set has {len(source)} samples."
            raise IndexOutOfRangeError("span", expected, f"start={start}, stop={stop}", fix)
        self.indices: Any = range(self.start, self.stop)


class BatchDataset(Dataset):
    """Groups of `batch_size` consecutive samples, joined by `collate` (default: `data.collate`).
    The last batch is smaller where the length does not divide, and left out with `drop_last`. A
    list of sizes gives each batch its own.

    Shapes: leaves (*S) -> (batch_size, *S).
    Raises: OptionError if batch_size is below 1, ShapeError if a list of sizes does not sum to the
        length.
    """

    shown: tuple[str, ...] = ("batch_size", "drop_last")

    def __init__(
        self, source: Any, batch_size: Any, drop_last: bool = False, collate: Any = None
    ) -> None:
        self.sources: tuple[Any, ...] = (check_source("batch", source),)
        self.drop_last: bool = bool(drop_last)
        if isinstance(batch_size, list):
            sizes = [check_integer("batch", "batch_size", size, 1) for size in batch_size]
            if sum(sizes) != len(source):
                expected = f"sizes that sum to {len(source)}"
                fix = "Every sample belongs to a batch."
                raise ShapeError("batch", expected, f"{sizes}, which sum to {sum(sizes)}", fix)
            self.batch_size: Any = sizes
            self.ends: Any = np.cumsum([0, *sizes]).tolist()
        else:
            self.batch_size, self.ends = check_integer("batch", "batch_size", batch_size, 1), None
        self.fetch: MapFetch = MapFetch(source, check_function("batch", "collate", collate))

    def __len__(self) -> int:
        if self.ends is not None:
            return len(self.batch_size)
        whole, rest = divmod(len(self.sources[0]), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __getitem__(self, index: int) -> Any:
        index = check_index("batch", index, len(self))
        if self.ends is not None:
            start, end = self.ends[index], self.ends[index + 1]
        else:
            start = index * self.batch_size
            end = min(start + self.batch_size, len(self.sources[0]))
        return self.fetch.tensors(range(start, end))


class PrefetchDataset(Dataset):
    """The source's samples; iterating reads up to `depth` of them ahead with `workers` threads.
    The order does not depend on the number of workers; 0 reads in the calling thread. Put it last:
    only iterating over the prefetching set itself reads ahead."""

    shown: tuple[str, ...] = ("workers", "depth")

    def __init__(self, source: Any, workers: int = 1, depth: int | None = None) -> None:
        self.sources: tuple[Any, ...] = (check_source("prefetch", source),)
        self.workers: int = check_integer("prefetch", "workers", workers, 0)
        depth = max(1, 2 * self.workers) if depth is None else depth
        self.depth: int = check_integer("prefetch", "depth", depth, 1)

    def __getitem__(self, index: Any) -> Any:
        return self.sources[0][check_index("prefetch", index, len(self))]

    def __iter__(self) -> Iterator[Any]:
        return self.read_from(0)

    def read_from(self, start: int) -> Iterator[Any]:
        """Iterate over the samples start, start+1, …"""
        indices = range(start, len(self))
        return read_ahead(self.sources[0].__getitem__, indices, self.workers, self.depth)


class ConcatDataset(Dataset):
    """The samples of each source in turn: ConcatDataset(a, b), or ConcatDataset([a, b])."""

    def __init__(self, *sources: Any) -> None:
        if len(sources) == 1 and isinstance(sources[0], (list, tuple)):
            sources = tuple(sources[0])
        self.sources: tuple[Any, ...] = tuple(check_source("concat", source) for source in sources)
        self.ends: np.ndarray = np.cumsum([len(source) for source in self.sources], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, index: int) -> Any:
        index = check_index("concat", index, len(self))
        which = int(np.searchsorted(self.ends, index, side="right"))
        return self.sources[which][index - (int(self.ends[which - 1]) if which else 0)]


class MergeDataset(Dataset):
    """Tuples with the fields of all sources' samples at one index.

    Raises: ShapeError if there is no source, or their lengths differ.
    Example:
        >>> MergeDataset([1, 2], [(3, "a"), (4, "b")])[1]
        (2, 4, 'b')
    """

    def __init__(self, *sources: Any) -> None:
        self.sources: tuple[Any, ...] = tuple(check_source("merge", source) for source in sources)
        lengths = [len(source) for source in sources]
        if len(set(lengths)) != 1:
            fix = "Shorten them with take, or concatenate them with concat."
            raise ShapeError("merge", "data sets of one length", f"lengths {lengths}", fix)

    def __getitem__(self, index: int) -> tuple[str | int, ...]:
        index = check_index("merge", index, len(self))
        return joined_fields([source[index] for source in self.sources])

    def read_batch(self, indices: np.ndarray, empty: Any = np.empty) -> Any:
        """The samples at `indices`, stacked."""
        return joined_fields([source.read_batch(indices, empty) for source in self.sources])


def joined_fields(samples: list[Any]) -> tuple[Any, ...]:
    return tuple(x for s in samples for x in (s if isinstance(s, tuple) else (s,)))


class StackDataset(Dataset):
    """Tuples of the sources' samples at one index; dicts, where the sources have names.

    Raises: ShapeError if there is no source, or their lengths differ.
    Source: PyTorch.
    Example:
        >>> StackDataset(x=[1, 2], y=[3, 4])[1]
        {'x': 2, 'y': 4}
    """

    def __init__(self, *sources: Any, **named: Any) -> None:
        self.sources: tuple[Any, ...] = MergeDataset(*sources, *named.values()).sources
        if sources and named:
            fix = "Name all or none."
            raise OptionError("StackDataset", "data sets by position or by name", "both", fix)
        self.names: tuple[str, ...] = tuple(named)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = check_index("StackDataset", index, len(self))
        return self.stacked([source[index] for source in self.sources])

    def read_batch(
        self, indices: np.ndarray, empty: Callable[..., Any] = np.empty
    ) -> dict[str, Any]:
        """The samples at `indices`, stacked."""
        return self.stacked([source.read_batch(indices, empty) for source in self.sources])

    def stacked(self, samples: list[Any]) -> Any:
        return dict(zip(self.names, samples, strict=True)) if self.names else tuple(samples)
