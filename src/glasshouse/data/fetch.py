"""Reading batches: of data sets with an index, and of data sets that are only iterated over."""

from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.errors import DTypeError, type_name
from glasshouse.data.collate import BatchArrays, Collate, stack_samples
from glasshouse.data.sampler import is_defined_with, set_epoch_of
from glasshouse.dispatch.watch import COLLATING, CONVERTING, READING, tell

if TYPE_CHECKING:
    from glasshouse.data.stream import IterableDataset


END = object()  # in place of a batch: there are no more


def is_iterable_only(source: Any) -> bool:
    """Whether `source` is to be iterated over: ours and PyTorch's IterableDataset, or anything
    without an index that can be iterated over more than once."""
    if any(cls.__name__ == "IterableDataset" for cls in type(source).__mro__):
        return True
    has_index = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return not has_index and hasattr(source, "__iter__") and not hasattr(source, "__next__")


def reads_batches(source: Any) -> bool:
    """Whether `source.read_batch(indices, empty)` returns the same as collating its samples."""
    if not is_defined_with(type(source), "read_batch", "__getitem__"):
        return False
    can_read = getattr(source, "can_read_batches", True)
    return can_read and all(map(reads_batches, getattr(source, "sources", ())))


def read_samples(source: Any, indices: Any) -> list[Any]:
    """The samples at `indices`; at once where the data set has `__getitems__`, as in PyTorch."""
    indices = indices.tolist() if isinstance(indices, np.ndarray) else indices
    if hasattr(source, "__getitems__"):
        return source.__getitems__(list(indices))
    return [source[index] for index in indices]


class MapFetch:
    """Batches of a data set with an index: `fetch(indices)`. `collate` None stacks samples into
    arrays that `empty` makes, as does a `Collate`; `tensors(indices)` makes tensors of these."""

    def __init__(self, source: Any, collate: Any = None, batched: bool = True) -> None:
        self.source = source
        self.collate = collate
        self.batched = batched
        self.stack: Callable[..., Any] | None = stack_samples if collate is None else None
        if isinstance(collate, Collate) and is_defined_with(type(collate), "stack", "__call__"):
            self.stack = collate.stack
        self.as_tensors: bool = self.stack is not None
        self.whole: bool = collate is None and batched and reads_batches(source)

    def __call__(self, indices: Any, empty: Callable[..., Any] = np.empty) -> Any:
        if not self.batched:
            sample = self.source[indices]
            return sample if self.collate is None else self.collate(sample)
        if self.whole:
            return self.source.read_batch(np.asarray(indices), empty)
        return self.joined(read_samples(self.source, indices), empty)

    def joined(self, samples: list[Any], empty: Callable[..., Any]) -> Any:
        begin_ns = perf_counter_ns()
        batch = self.collate(samples) if self.stack is None else self.stack(samples, empty)
        tell("region", COLLATING, begin_ns)
        return batch

    def tensors(self, argument: Any) -> Any:
        """The batch with tensors for arrays, unless the user's `collate` made it."""
        arrays, begin_ns = BatchArrays(), perf_counter_ns()
        batch = self(argument, arrays.empty)
        tell("region", READING, begin_ns)
        if self.as_tensors:
            begin_ns = perf_counter_ns()
            batch = arrays.tensors(batch)
            tell("region", CONVERTING, begin_ns)
        return batch


class StreamFetch(MapFetch):
    """Batches of a data set that is only iterated over: `begin`, then `fetch(batch_size)` until
    END. A data set with `state_dict` and `load_state_dict` is asked for its state; others are read
    from the beginning again."""

    def __init__(
        self,
        source: "IterableDataset",
        collate: Callable[..., Any] | None = None,
        batched: bool = True,
        drop_last: bool = False,
    ) -> None:
        super().__init__(source, collate, batched)
        self.whole: bool = False
        self.drop_last = drop_last
        self.has_state: bool = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self.samples: Iterator[Any] = iter(())

    def begin(self, epoch: int, skip: int, state: dict[str, int] | None = None) -> None:
        """Go to the sample `skip` of `epoch`, by the data set's own state where there is one."""
        set_epoch_of(self.source, epoch)
        if self.has_state and state is not None:
            self.source.load_state_dict(state)
            skip = 0
        if hasattr(self.source, "read_from"):
            self.samples = self.source.read_from(skip)
        else:
            self.samples = islice(iter(self.source), skip, None)

    def __call__(self, size: int, empty: Callable[..., Any] = np.empty) -> Any:
        if not self.batched:
            sample = next(self.samples, END)
            return sample if self.collate is None or sample is END else self.collate(sample)
        samples = list(islice(self.samples, size))
        if not samples or (self.drop_last and len(samples) < size):
            return END
        return self.joined(samples, empty)

    def state(self) -> Any:
        """The data set's own state after the last batch."""
        return self.source.state_dict() if self.has_state else None


def check_function(where: str, name: str, fn: Any) -> Any:
    if fn is not None and not callable(fn):
        raise DTypeError(where, f"{name} to be a function", repr(fn), "Pass a callable.")
    return fn


def check_source(where: str, source: Any) -> Any:
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        fix = "Make a list of it first."
        raise DTypeError(where, "a data set with a length and an index", type_name(source), fix)
    return source
