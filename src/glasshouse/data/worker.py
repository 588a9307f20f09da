"""Worker processes of a loader: they read the requested batches into shared memory."""

import os
import pickle
import random
import signal
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from glasshouse.data.fetch import END, MapFetch, StreamFetch
from glasshouse.data.order import bit_source
from glasshouse.data.sampler import set_epoch_of
from glasshouse.data.shared import Block, BlockWriter
from glasshouse.dispatch.backend import load, use_backend
from glasshouse.dispatch.watch import HANDING, READING, Watcher, tell, told, unwatched
from glasshouse.tensor import random as tensor_random

TASK = struct.Struct("<5q")  # kind, generation, task, block, bytes of the block; then its argument
# Kind, generation, task, block, bytes, description's offset and size; then regions, if watched.
REPLY = struct.Struct("<7q")
EPOCH, FETCH = 0, 1  # kinds of tasks
BATCH, ENDED, DROPPED, FAILED = 0, 1, 2, 3  # kinds of replies


@dataclass
class WorkerInfo:
    """Which worker this is: its number, how many there are, its seed and its copy of the data set.

    Example:
        >>> get_worker_info() is None
        True
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


@dataclass
class Job:
    """Settings that all workers of a loader share."""

    fetch: MapFetch
    num_workers: int
    seed: int
    worker_init_fn: Callable[..., Any] | None


current: list[WorkerInfo] = []  # at most one: this process's


def get_worker_info() -> WorkerInfo | None:
    """In a worker process, which one it is; None elsewhere.

    Example:
        >>> get_worker_info() is None
        True
    """
    return current[-1] if current else None


def seed_process(*path: int) -> None:
    """Seed NumPy's, Python's and our global generators, each from the integers in `path`."""
    first, second, third = bit_source(path).random_raw(3).tolist()
    random.seed(first)  # this and the next are not ours, but data sets draw from them
    np.random.seed(second & 0xFFFFFFFF)  # noqa: NPY002
    tensor_random.default_generator().restart(third)


def serve(
    job: Job, number: int, connection: Any, blocks: list[Block], inherited: list[Any]
) -> None:
    """A worker's whole life: until the loader closes the connection, or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the loader's: it ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # ends of the loader's: held here, nobody would see it end
        other.close()
    with unwatched(), use_backend(load("numpy")):  # threads of the engine do not survive a fork
        try:
            Reader(job, number, connection, blocks).run()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


class Reader:
    """The state of a worker process."""

    blocks: list[Block]
    board: np.ndarray
    fetch: MapFetch
    writer: BlockWriter
    seed: int
    epoch: int

    def __init__(self, job: Job, number: int, connection: Any, blocks: list[Block]) -> None:
        self.job = job
        self.number = number
        self.connection = connection
        self.blocks, self.board = blocks[:-1], board_of(blocks[-1])
        self.fetch, self.writer = job.fetch, BlockWriter()
        self.seed, self.epoch = job.seed, 0
        self.problem: BaseException | None = None
        current[:] = [WorkerInfo(number, job.num_workers, job.seed + number, self.fetch.source)]

    def run(self) -> None:
        seed_process(self.job.seed, self.number)
        if self.job.worker_init_fn is not None:
            self.attempt(self.job.worker_init_fn, self.number)
        while True:
            message = self.connection.recv_bytes()
            kind, generation, task, block, nbytes = TASK.unpack_from(message)
            argument = pickle.loads(message[TASK.size :])
            if kind == EPOCH:
                self.attempt(self.begin, *argument)
                continue
            regions = Regions()
            with told([regions] if self.board[1] else [], []):
                reply = self.fetch_into(self.blocks[block], nbytes, generation, argument)
            nbytes = self.blocks[block].nbytes
            kind, offset, size = reply
            message = REPLY.pack(kind, generation, task, block, nbytes, offset, size)
            self.connection.send_bytes(message + regions.pickled())

    def attempt(self, fn: Callable[..., Any], *args: Any) -> None:
        """Call `fn`; an error that it raises is the reply to the next task."""
        try:
            fn(*args)
        except BaseException as error:
            self.problem = error

    def begin(self, seed: int, epoch: int, skip: int, state: Any) -> None:
        self.seed, self.epoch = seed, epoch
        if isinstance(self.fetch, StreamFetch):
            self.fetch.begin(epoch, skip, state)
        else:
            set_epoch_of(self.fetch.source, epoch)

    def fetch_into(self, block: Block, nbytes: int, generation: int, argument: Any) -> Any:
        """(kind of reply, offset and size of its description)."""
        if generation != self.board[0]:  # the loop that asked was left
            return DROPPED, 0, 0
        block.follow(nbytes)
        self.writer.begin(block)
        try:
            if self.problem is not None:
                raise self.problem
            position, argument = argument
            # One sequence of numbers for each batch, whoever reads it.
            path = (self.number,) if isinstance(self.fetch, StreamFetch) else ()
            seed_process(self.seed, self.epoch, position, *path)
            begin_ns = perf_counter_ns()
            batch = self.fetch(argument, self.writer.empty)
            tell("region", READING, begin_ns)
            if batch is END:
                return ENDED, 0, 0
            begin_ns = perf_counter_ns()
            state = self.fetch.state() if isinstance(self.fetch, StreamFetch) else None
            place = self.writer.write(batch, self.fetch.as_tensors, state)
            tell("region", HANDING, begin_ns)
            return BATCH, *place
        except BaseException as error:
            self.writer.begin(block)
            return FAILED, *self.writer.write_bytes(described_error(error))


class Regions(Watcher):
    """Collects the regions of a batch that the loader's watchers will get: one clock goes for all
    processes of a machine."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, int, int]] = []

    def region(self, name: str, begin_ns: int, seq: int = -1) -> None:
        self.ended.append((name, begin_ns, perf_counter_ns()))

    def pickled(self) -> bytes:
        """All of them, or nothing."""
        return pickle.dumps(self.ended, protocol=5) if self.ended else b""


def described_error(error: BaseException) -> bytes:
    """An error and its traceback as text; the error itself only if it can be taken apart and made
    again in another process."""
    text = "".join(traceback.format_exception(error)).rstrip()
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = None
    return pickle.dumps((data, f"{type(error).__name__}: {error}", text, os.getpid()))


def board_of(block: Block) -> np.ndarray:
    """The counters that the loader and its workers share: [0] the generation that is wanted, [1]
    whether somebody watches."""
    block.reserve(16)
    return block.lease()[:16].view(np.int64)


def worker_part(items: list[Any]) -> list[Any]:
    """The part of `items` that this process reads: all outside of workers, else every n-th."""
    info = get_worker_info()
    return items if info is None else items[info.id :: info.num_workers]
