"""Batches that the ranks of data parallel share out, so that they train as one process would with
the whole batch: the rows of each rank, their weights, and their random numbers."""

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import CollectiveError, ShapeError
from glasshouse.data import BatchSampler, DataLoader, DistributedSampler
from glasshouse.dispatch.mode import KeyedMode
from glasshouse.dispatch.value import Value
from glasshouse.ops.movement import section
from glasshouse.ops.process import ProcessGroup, process
from glasshouse.tensor import eval

WHERE = "data of ranks"


class BatchShare(NamedTuple):
    """This rank's rows of a batch: their count, their begin, and the count in all."""

    rows: int
    begin: int
    total: int
    ranks: int = 1

    @property
    def weight(self) -> float:
        """Factor for a mean over the own rows, so that the mean over the ranks is the mean over all
        rows."""
        return self.rows * self.ranks / self.total

    def draws(self) -> "RowDraws":
        """Mode in which this rank draws its rows of the uniform random numbers, as Dropout does,
        that one process would draw for the whole batch."""
        return RowDraws(self.rows, self.begin, self.total)


def share_of(rows: int, group: ProcessGroup | None = None) -> BatchShare:
    """Share of this rank, which has so many rows; the ranks of the group call it together.

    Raises: ShapeError where there are none
    """
    group = process.world if group is None else group
    counts = np.array([rows])
    if group.size > 1:
        eval()  # recorded collectives come first on every rank
        counts = np.empty((group.size, 1), np.int64)
        process.transport(group).all_gather(np.array([rows], np.int64), counts)
    if not counts.all():
        got = f"{counts.ravel().tolist()} rows"
        raise ShapeError(WHERE, "rows for each rank", got, "Use larger batches, or drop_last=True.")
    begin = int(counts.ravel()[: group.rank if group.size > 1 else 0].sum())
    return BatchShare(rows, begin, int(counts.sum()), group.size)


class RowDraws(KeyedMode):
    """Random bits whose first axis has this rank's rows of the bits for all."""

    def __init__(self, rows: int, begin: int, total: int) -> None:
        self.rows = rows
        self.begin = begin
        self.total = total
        self.key: str = f"rows {begin} to {begin + rows} of {total}"

    def process(self, primitive: Any, args: Any, attrs: dict[str, Any], below: Any) -> Any:
        shape = attrs.get("shape", ())
        is_own = primitive.name == "random_bits" and shape[:1] == (self.rows,)
        if not is_own or self.rows == self.total:
            return below(primitive, args, attrs)
        bits = below(primitive, args, {"shape": (self.total, *shape[1:])})
        return section(bits, bits.ndim - len(shape), self.begin, self.begin + self.rows)


def rows_of(count: int, rank: int, size: int) -> slice:
    """Rows of a rank among so many; the ranks' parts differ by one at most."""
    return slice(rank * count // size, (rank + 1) * count // size)


class RankBatchSampler(BatchSampler):
    """This rank's part of each batch of another batch sampler: the same batches in the same order,
    whatever the number of ranks, so a position among them is the same too.

    Raises: CollectiveError for a rank that is none of `size`
    Example:
        >>> whole = gh.data.BatchSampler(range(5), 4, drop_last=False)
        >>> list(RankBatchSampler(whole, rank=1, size=2))
        [[2, 3], [4]]
    """

    def __init__(self, batches: Any, rank: int | None = None, size: int | None = None) -> None:
        self.batches = batches
        self.rank: int = process.rank if rank is None else rank
        self.size: int = process.size if size is None else size
        if not 0 <= self.rank < self.size:
            expected = f"a rank below {self.size}"
            raise CollectiveError("RankBatchSampler", expected, self.rank, "Ranks count from 0.")
        self.sampler: Any = getattr(batches, "sampler", batches)

    def read_from(self, start: int) -> Any:
        whole = self.batches
        batches = whole.read_from(start) if hasattr(whole, "read_from") else list(whole)[start:]
        return (batch[rows_of(len(batch), self.rank, self.size)] for batch in batches)

    def __len__(self) -> int:
        return len(self.batches)

    def set_epoch(self, epoch: Any) -> None:
        self.epoch = epoch
        if hasattr(self.batches, "set_epoch"):
            self.batches.set_epoch(epoch)

    def state_dict(self) -> Any:
        return self.batches.state_dict() if hasattr(self.batches, "state_dict") else {}

    def load_state_dict(self, state: Any) -> None:
        if state:
            self.batches.load_state_dict(state)


class RankRows:
    """This rank's rows of each batch of any iterable; each rank reads all of it. Other attributes
    of `batches`, such as its state, are passed through."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches: Any = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            parts = batch if isinstance(batch, tuple | list) else (batch,)
            rows = [
                x[rows_of(len(x), process.rank, process.size)]
                if isinstance(x, Value | np.ndarray) and x.ndim
                else x
                for x in parts
            ]
            yield rows[0] if parts is not batch else tuple(rows)

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)


def part_of_rank(data: Any) -> Any:
    """`data` with this rank's part of each batch: a DataLoader reads no other rows. One that has a
    DistributedSampler, and anything on a single rank, stays as it is.

    Example:
        >>> loader = gh.data.DataLoader(range(4), batch_size=2)
        >>> gh.distributed.part_of_rank(loader) is loader
        True
    """
    if process.size == 1 or has_own_part(data):
        return data
    if not isinstance(data, DataLoader) or data.iterable or not data.batched:
        return RankRows(data)
    part = copy(data)
    part.batch_sampler = RankBatchSampler(data.batch_sampler)
    return part


def has_own_part(data: Any) -> bool:
    """Whether it is this rank's part already."""
    sampler = getattr(data, "batch_sampler", None)
    while sampler is not None:
        if isinstance(sampler, DistributedSampler | RankBatchSampler):
            return True
        sampler = getattr(sampler, "sampler", None)
    return isinstance(data, RankRows)
