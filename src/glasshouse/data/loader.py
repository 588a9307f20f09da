"""DataLoader: shuffling, batching and prefetching in one object, in PyTorch's habit."""

from time import perf_counter_ns

from glasshouse.base.errors import CheckpointError
from glasshouse.data import dataset as datasets
from glasshouse.data.dataset import BatchDataset, PrefetchDataset, ShuffleDataset
from glasshouse.dispatch.bind import watchers
from glasshouse.dispatch.watch import WAITING, tell
from glasshouse.ops.checks import check_integer

NO_BATCH = object()


def told_waiting(batches):
    """The same batches; watchers are told how long each was waited for."""
    while True:
        begin_ns = perf_counter_ns()
        batch = next(batches, NO_BATCH)
        if watchers:
            tell("region", WAITING, begin_ns)
        if batch is NO_BATCH:
            return
        yield batch


class DataLoader:
    """Batches of tensors, epoch after epoch; each `for` loop over it is one epoch.
    It is BatchDataset over ShuffleDataset, read by PrefetchDataset. The batches depend on the seed
    and the epoch, not on `num_workers` (threads). `state_dict` holds how far the loop has come; the
    first loop after `load_state_dict` goes on from there.

    Raises: OptionError for a batch size, worker count or seed out of range.
    Example:
        >>> loader = DataLoader(range(5), batch_size=2)
        >>> [batch.tolist() for batch in loader]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        num_workers: int = 0,
        seed: int = 0,
        collate_fn=None,
    ):
        self.dataset = datasets.check_source("DataLoader", dataset)
        self.batch_size = check_integer("DataLoader", "batch_size", batch_size, 1)
        self.num_workers = check_integer("DataLoader", "num_workers", num_workers, 0)
        self.seed = check_integer("DataLoader", "seed", seed)
        self.shuffle, self.drop_last, self.collate_fn = bool(shuffle), bool(drop_last), collate_fn
        self.epoch, self.position = 0, 0
        self.continues = True  # the next loop starts at (epoch, position), not at a new epoch

    def batches(self, epoch: int) -> BatchDataset:
        """The batches of one epoch, as a data set."""
        source = self.dataset
        if isinstance(source, datasets.Dataset):
            source.set_epoch(epoch)
        if self.shuffle:
            # A new one per loop, so that two loops at once keep their own orders.
            source = ShuffleDataset(source, self.seed, epoch)
        return BatchDataset(source, self.batch_size, self.drop_last, self.collate_fn)

    def __len__(self):
        return len(BatchDataset(self.dataset, self.batch_size, self.drop_last, self.collate_fn))

    def __iter__(self):
        if not self.continues:
            self.epoch, self.position = self.epoch + 1, 0
        self.continues = False
        epoch, start = self.epoch, self.position
        ahead = PrefetchDataset(self.batches(epoch), self.num_workers).read_from(start)
        return self.count(ahead, epoch, start)

    def count(self, batches, epoch: int, start: int):
        for position, batch in enumerate(told_waiting(iter(batches)), start + 1):
            self.epoch, self.position = epoch, position
            yield batch
        self.epoch, self.position, self.continues = epoch + 1, 0, True

    def set_epoch(self, epoch: int) -> None:
        """Start the next loop at the beginning of `epoch`."""
        self.epoch = check_integer("set_epoch", "epoch", epoch, 0)
        self.position, self.continues = 0, True

    def state_dict(self) -> dict:
        """The seed, the epoch, and the number of its batches already given out."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state` was taken.

        Raises: CheckpointError if it is not a loader's state, or lies beyond the epoch's end.
        """
        names = {"seed", "epoch", "position"}
        if not isinstance(state, dict) or set(state) != names:
            raise CheckpointError(
                "DataLoader",
                f"a state with {sorted(names)}",
                repr(state),
                "Pass what state_dict() returned.",
            )
        seed = check_integer("DataLoader", "seed", state["seed"])
        epoch = check_integer("DataLoader", "epoch", state["epoch"], 0)
        position = check_integer("DataLoader", "position", state["position"], 0)
        if position > len(self):
            raise CheckpointError(
                "DataLoader",
                f"a position of at most {len(self)} batches",
                position,
                "Use the data set and batch size that the state was taken with.",
            )
        self.seed, self.epoch, self.position, self.continues = seed, epoch, position, True

    def __repr__(self):
        shown = ("batch_size", "shuffle", "drop_last", "num_workers", "seed")
        options = (f"{name}={getattr(self, name)}" for name in shown)
        return f"DataLoader({', '.join([repr(self.dataset), *options])})"
