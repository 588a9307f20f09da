"""DataLoader: sampling, batching and workers in one object, in PyTorch's habit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from time import perf_counter_ns
from typing import Any

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, type_name
from glasshouse.data.fetch import (
    END,
    MapFetch,
    StreamFetch,
    check_function,
    check_source,
    is_iterable_only,
)
from glasshouse.data.order import read_ahead
from glasshouse.data.parallel import read_in_turn, read_ordered, starts_of
from glasshouse.data.pool import WorkerPool, context_of
from glasshouse.data.sampler import BatchSampler, RandomSampler, SequentialSampler, set_epoch_of
from glasshouse.data.worker import Job
from glasshouse.dispatch.bind import watchers
from glasshouse.dispatch.watch import WAITING, tell
from glasshouse.ops.checks import check_integer, check_option

NO_BATCH = object()
WHERE = "DataLoader"


def told_waiting(batches: Any) -> Iterator[Any]:
    """The same batches; watchers receive the time that each was waited for."""
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

    Which samples come, in which order, depends on the seed and the epoch, not on the workers:
    `num_workers` processes (with `threads`, threads) read ahead, `prefetch_factor` batches each.
    Batches come from processes in shared memory, which is used again when a batch is forgotten.
    `state_dict` holds how far the loop has come; the first loop after `load_state_dict` continues
    from there. A data set that can only be iterated over is read by each worker, which chooses its
    part by `get_worker_info()`. `pin_memory` changes nothing.

    Raises: OptionError for values out of range or options that exclude each other, DTypeError for
        an object that is not a data set; in a loop WorkerError if a process dies or a batch takes
        longer than `timeout` seconds, and any error of a worker.
    Source: PyTorch.
    Example:
        >>> loader = DataLoader(range(5), batch_size=2)
        >>> [batch.tolist() for batch in loader]
        [[0, 1], [2, 3], [4]]
    """

    reads: list[int]
    states: list[None]

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: int | None = None,
        multiprocessing_context: Any = None,
        generator: int | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        seed: int = 0,
        threads: bool = False,
    ) -> None:
        if isinstance(dataset, str):
            fix = "Pass a data set that reads it, e.g. ImageFolder(…)."
            raise DTypeError(WHERE, "a data set", f"the text {dataset!r}", fix)
        self.iterable: bool = is_iterable_only(dataset)
        self.dataset: Any = dataset if self.iterable else check_source(WHERE, dataset)
        self.num_workers: int = check_integer(WHERE, "num_workers", num_workers, 0)
        self.seed: int = check_integer(WHERE, "seed", seed)
        self.shuffle: bool = bool(shuffle)
        self.drop_last: bool = bool(drop_last)
        self.collate_fn: Any = check_function(WHERE, "collate_fn", collate_fn)
        self.worker_init_fn: Any = check_function(WHERE, "worker_init_fn", worker_init_fn)
        self.pin_memory: bool = bool(pin_memory)
        self.in_order: bool = bool(in_order)
        self.threads: bool = bool(threads)
        self.persistent_workers: bool = bool(persistent_workers)
        self.prefetch_factor = prefetch_factor
        self.timeout_s: float | None = check_timeout(timeout)
        self.generator = generator
        self.set_order(batch_size, sampler, batch_sampler)
        self.set_workers(multiprocessing_context)
        self.fetch: MapFetch = self.make_fetch()
        self.pool: WorkerPool | None = None
        self.continues: bool = True  # the next loop starts at (epoch, position), not at a new epoch
        self.restart(0)

    # -- options ---------------------------------------------------------------------------------

    def set_order(self, batch_size: Any, sampler: Any, batch_sampler: Any) -> None:
        options = {
            "shuffle": self.shuffle,
            "sampler": sampler is not None,
            "batch_sampler": batch_sampler is not None,
        }
        names = [name for name, is_given in options.items() if is_given]
        if self.iterable and names:
            exclude(names[0], "a data set without indices", "Shuffle the data set itself.")
        if len(names) > 1:
            exclude(names[0], names[1], "Pass one of them.")
        if batch_sampler is not None and (batch_size != 1 or self.drop_last):
            exclude("batch_sampler", "batch_size or drop_last", "The batch sampler decides these.")
        if batch_size is None and self.drop_last:
            exclude("drop_last", "batch_size=None", "There are no batches to drop.")
        self.batched: bool = batch_size is not None
        if self.batched:
            batch_size = check_integer(WHERE, "batch_size", batch_size, 1)
        self.batch_size = None if batch_sampler is not None else batch_size
        for name, x in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if x is not None and not hasattr(x, "__iter__"):
                fix = "Pass e.g. a list."
                raise DTypeError(WHERE, f"a {name} to iterate over", type_name(x), fix)
        self.sampler: Any = sampler
        self.batch_sampler: BatchSampler = batch_sampler
        if self.iterable:
            return
        if sampler is None and batch_sampler is None:
            self.sampler = SequentialSampler(self.dataset)
            if self.shuffle:
                self.sampler = RandomSampler(self.dataset, generator=self.generator, seed=self.seed)
        if batch_sampler is None and self.batched:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, self.drop_last)

    def set_workers(self, context: Any) -> None:
        if self.num_workers == 0 and self.prefetch_factor is not None:
            exclude("prefetch_factor", "num_workers=0", "Only workers read ahead.")
        if self.num_workers == 0 and self.persistent_workers:
            exclude("persistent_workers", "num_workers=0", "There are none to keep.")
        factor = 2 if self.prefetch_factor is None else self.prefetch_factor
        self.ahead: int = check_integer(WHERE, "prefetch_factor", factor, 1)
        if isinstance(context, str):
            check_option(WHERE, "multiprocessing_context", context, ("fork", "forkserver", "spawn"))
        self.context: Any = context_of(context)
        if self.threads and self.iterable and self.num_workers:
            exclude("threads", "a data set without indices", "Use processes.")

    def make_fetch(self) -> MapFetch:
        collate = self.collate_fn
        if self.iterable:
            return StreamFetch(self.dataset, collate, self.batched, self.drop_last)
        return MapFetch(self.dataset, collate, self.batched)

    # -- one epoch -------------------------------------------------------------------------------

    def plan(self, start: int) -> Iterator[Any]:
        """The index groups of this epoch from batch `start` on (indices, without batches)."""
        order = self.batch_sampler if self.batched else self.sampler
        set_epoch_of(order, self.epoch)
        if self.sampler_state:
            order.load_state_dict(self.sampler_state)
        if hasattr(order, "read_from"):
            plan = order.read_from(start)
        else:
            plan = islice(iter(order), start, None)
        self.sampler_state: Any = order.state_dict() if hasattr(order, "state_dict") else {}
        return plan

    def __len__(self) -> Any:
        if self.iterable:
            if not hasattr(type(self.dataset), "__len__"):
                fix = "Count the batches that come."
                raise DTypeError(WHERE, "a data set with a length", type_name(self.dataset), fix)
            count, size = len(self.dataset), self.batch_size or 1
            return count // size if self.drop_last else -(-count // size)
        return len(self.batch_sampler if self.batched else self.sampler)

    def __iter__(self) -> Iterator[Any]:
        if not self.continues:
            self.restart(self.epoch + 1)
        self.continues = False
        set_epoch_of(self.dataset, self.epoch)
        if self.iterable:
            return self.count_in_turn(self.epoch, list(self.reads), list(self.states), self.turn)
        batches = told_waiting(self.read(self.plan(self.position), self.position, self.epoch))
        return self.count(batches, self.epoch, self.position)

    def restart(self, epoch: int) -> None:
        """Go to the beginning of `epoch`."""
        streams = max(1, self.num_workers)
        self.epoch: int = epoch
        self.position: int = 0
        self.turn: int = 0
        self.reads, self.states = [0] * streams, [None] * streams
        self.sampler_state = {}

    def count(self, batches: Iterable[Any], epoch: int, start: int) -> Iterator[Any]:
        for position, batch in enumerate(batches, start + 1):
            self.epoch, self.position = epoch, position
            yield batch
        self.restart(epoch + 1)
        self.continues = True

    def count_in_turn(
        self, epoch: int, counts: list[int], states: list[Any], turn: int
    ) -> Iterator[Any]:
        streams = len(counts)
        start = sum(counts) + 1
        batches = self.read_stream(epoch, counts, states, turn)
        for position, (worker, batch, state) in enumerate(told_waiting(batches), start):
            counts[worker] += 1
            states[worker] = state
            self.epoch, self.position, self.turn = epoch, position, (worker + 1) % streams
            self.reads, self.states = list(counts), list(states)
            yield batch
        self.restart(epoch + 1)
        self.continues = True

    def read(self, plan: Any, start: int, epoch: int) -> Iterator[Any]:
        """Yield the batches of `plan`."""
        if self.num_workers == 0 or self.threads:
            depth = max(1, self.ahead * self.num_workers)
            yield from read_ahead(self.read_here, plan, self.num_workers, depth)
            return
        with self.workers() as pool:
            pool.begin(self.seed, epoch, [(0, None)] * pool.count)
            yield from read_ordered(pool, plan, start, self.timeout_s, self.in_order)

    def read_here(self, indices: Any) -> Any:
        return self.fetch.tensors(indices)

    def read_stream(
        self, epoch: int, counts: list[int], states: list[Any], turn: int
    ) -> Iterator[tuple[int, Any, None]]:
        """Yield (worker, batch, state) of a data set that is only iterated over."""
        starts = starts_of(counts, states, self.batch_size or 1)
        if self.num_workers == 0:
            fetch: Any = self.make_fetch()  # a StreamFetch
            fetch.begin(epoch, *starts[0])
            while (batch := fetch.tensors(self.batch_size)) is not END:
                yield 0, batch, fetch.state()
            return
        with self.workers() as pool:
            pool.begin(self.seed, epoch, starts)
            yield from read_in_turn(pool, self.batch_size, list(counts), turn, self.timeout_s)

    @contextmanager
    def workers(self) -> Iterator[WorkerPool]:
        """Processes for one loop: those kept, unless another loop has them."""
        pool = self.pool
        if pool is None or pool.in_use:
            job = Job(self.fetch, self.num_workers, self.seed, self.worker_init_fn)
            pool = WorkerPool(job, self.ahead, self.context)
            if self.persistent_workers and self.pool is None:
                self.pool = pool
        pool.in_use = True
        try:
            yield pool
        except GeneratorExit:  # the loop was left
            raise
        except BaseException:
            self.forget(pool)
            raise
        finally:
            pool.in_use = False
            if pool is not self.pool:
                pool.close()

    def forget(self, pool: WorkerPool) -> None:
        if self.pool is pool:
            self.pool = None

    def close(self) -> None:
        """End the workers that `persistent_workers` keeps; the next loop starts new ones."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close()

    # -- resuming --------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Start the next loop at the beginning of `epoch`."""
        self.restart(check_integer("set_epoch", "epoch", epoch, 0))
        self.continues = True

    def state_dict(self) -> dict[Any, Any]:
        """The seed, the epoch, and the number of its batches already yielded; also a generator's
        state, or each worker's progress in a data set that is only iterated over.

        Raises: CheckpointError in the middle of an epoch whose batches are not in order.
        """
        if not self.in_order and self.num_workers and self.position:
            fix = "Save between epochs, or in order."
            raise CheckpointError(WHERE, "batches in order", "in_order=False", fix)
        state: dict[Any, Any] = {"seed": self.seed, "epoch": self.epoch, "position": self.position}
        if self.sampler_state:
            state["sampler"] = self.sampler_state
        if self.iterable:
            state |= {"given": list(self.reads), "states": list(self.states), "turn": self.turn}
        return state

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Continue where `state` was taken.

        Raises: CheckpointError if it is not a loader's state, lies beyond the epoch's end, or was
            taken with another number of workers of a data set that is only iterated over.
        """
        names = {"seed", "epoch", "position"}
        names |= {"given", "states", "turn"} if self.iterable else set()
        if not isinstance(state, dict) or set(state) - {"sampler"} != names:
            fix = "Pass what state_dict() returned."
            raise CheckpointError(WHERE, f"a state with {sorted(names)}", repr(state), fix)
        seed = check_integer(WHERE, "seed", state["seed"])
        epoch = check_integer(WHERE, "epoch", state["epoch"], 0)
        position = check_integer(WHERE, "position", state["position"], 0)
        if self.iterable and len(state["given"]) != len(self.reads):
            expected = f"a state of {len(self.reads)} readers"
            fix = "Use the num_workers that the state was taken with."
            raise CheckpointError(WHERE, expected, f"one of {len(state['given'])}", fix)
        if not self.iterable and position > len(self):
            expected = f"a position of at most {len(self)} batches"
            fix = "Use the data set and batch size that the state was taken with."
            raise CheckpointError(WHERE, expected, position, fix)
        self.restart(epoch)
        self.seed, self.position, self.continues = seed, position, True
        if isinstance(self.sampler, RandomSampler) and self.shuffle:
            self.sampler.seed = seed
        self.sampler_state = state.get("sampler", {})
        if self.iterable:
            self.reads, self.states, self.turn = (state[x] for x in ("given", "states", "turn"))

    def __repr__(self) -> str:
        shown = ("batch_size", "shuffle", "drop_last", "num_workers", "seed")
        options = (f"{name}={getattr(self, name)}" for name in shown)
        return f"DataLoader({', '.join([repr(self.dataset), *options])})"


def exclude(first: str, second: str, fix: str) -> Any:
    raise OptionError(WHERE, f"{first} or {second}", "both", fix)


def check_timeout(timeout: Any) -> float | None:
    """Seconds to wait at most; 0 is no limit."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise OptionError(WHERE, "timeout to be 0 or more seconds", repr(timeout), "0 is no limit.")
    return timeout or None
