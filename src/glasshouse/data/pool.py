"""The worker processes of a loader, from the loader's side: tasks, replies, faults, the end."""

import multiprocessing
import os
import pickle
import selectors
import signal
import time
import weakref
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from glasshouse.base.errors import WorkerError
from glasshouse.data.shared import Block, BlockReader
from glasshouse.data.worker import (
    BATCH,
    ENDED,
    EPOCH,
    FAILED,
    FETCH,
    REPLY,
    TASK,
    Job,
    board_of,
    serve,
)
from glasshouse.dispatch.bind import watchers
from glasshouse.dispatch.watch import tell

KEPT = 3  # batches whose memory the caller may hold while as many as may be are read ahead
GRACE_S = 1.0  # how long a worker that is at work may take to notice that it is to end


class Reply(NamedTuple):
    """Reply of a worker to a task: a batch, an error, or neither at the end of the data."""

    worker: int
    task: int
    place: Any = None  # block, offset and size of the description
    error: Any = None


class WorkerPool:
    """Processes that read batches for a loader. A block of memory goes with each task; it is free
    again when the batch in it is forgotten. A caller who keeps more than a few batches gets copies.

    Raises: WorkerError if a process dies; a worker's own errors are raised here too.
    """

    def __init__(self, job: Job, prefetch_factor: int, context: Any) -> None:
        self.job = job
        self.count: int = job.num_workers
        self.room: int = prefetch_factor * self.count  # tasks given out and batches not yet taken
        self.generation: int = 0
        self.in_use = False
        self.outstanding: list[int] = [0] * self.count
        self.blocks: list[Block] = [Block() for _ in range(self.room + KEPT)]
        self.free: deque[int] = deque(range(len(self.blocks)))
        self.leases: dict[int, weakref.ref[Any]] = {}
        self.waiting: dict[int, Reply] = {}
        self.reader: BlockReader = BlockReader()
        self.board_block: Block = Block()
        self.board: Any = board_of(self.board_block)
        self.processes: list[Any] = []
        self.connections: list[Any] = []
        self.selector: Any = selectors.DefaultSelector()
        self.finalizer: Any = weakref.finalize(
            self,
            end_workers,
            os.getpid(),
            self.processes,
            self.connections,
            [*self.blocks, self.board_block],
            self.selector,
        )
        try:
            for number in range(self.count):
                self.start(number, context)
        except BaseException:
            self.close()
            raise

    def start(self, number: int, context: Any) -> None:
        ours, theirs = context.Pipe()
        self.connections.append(ours)
        forked = context.get_start_method() == "fork"
        blocks = [*self.blocks, self.board_block]
        arguments = (self.job, number, theirs, blocks, self.connections if forked else [])
        process = context.Process(
            target=serve, args=arguments, name=f"glasshouse-data-{number}", daemon=True
        )
        try:
            process.start()
        finally:
            theirs.close()
        self.processes.append(process)
        self.selector.register(ours, selectors.EVENT_READ, number)
        self.selector.register(process.sentinel, selectors.EVENT_READ, ~number)

    # -- tasks -----------------------------------------------------------------------------------

    def begin(self, seed: int, epoch: int, starts: list[tuple[int, Any]]) -> None:
        """Start an epoch; tasks of the one before are dropped. `starts` has for each worker how
        many samples it leaves out, and the data set's state there."""
        self.generation += 1
        self.board[0] = self.generation
        self.free.extend(reply.place[0] for reply in self.waiting.values() if reply.place)
        self.waiting.clear()
        for worker, (skip, state) in enumerate(starts):
            self.send(worker, EPOCH, 0, 0, (seed, epoch, skip, state))

    def submit(self, task: int, position: int, argument: Any, worker: int | None = None) -> None:
        """Have the batch at `position` read by a worker, the least busy one if none is named."""
        if worker is None:
            worker = min(range(self.count), key=self.outstanding.__getitem__)
        while not self.free:  # blocks of the epoch before are still being written
            self.receive(None)
        self.outstanding[worker] += 1
        self.board[1] = bool(watchers)
        self.send(worker, FETCH, task, self.free.popleft(), (position, argument))

    def send(
        self, worker: int, kind: int, task: int, block: int, argument: tuple[Any, ...]
    ) -> None:
        nbytes = self.blocks[block].nbytes
        message = TASK.pack(kind, self.generation, task, block, nbytes)
        try:
            self.connections[worker].send_bytes(message + pickle.dumps(argument, protocol=5))
        except OSError:
            raise self.death_of(worker) from None

    # -- replies ---------------------------------------------------------------------------------

    def wait_for(self, task: int, timeout_s: float | None) -> Reply:
        """The reply to `task`."""
        while task not in self.waiting:
            self.receive(timeout_s)
        return self.waiting.pop(task)

    def wait_for_any(self, timeout_s: float | None) -> Reply:
        """The reply that came first of those that wait."""
        while not self.waiting:
            self.receive(timeout_s)
        return self.waiting.pop(next(iter(self.waiting)))

    def receive(self, timeout_s: float | None) -> None:
        """Take the replies that have come; wait until one has."""
        events = self.selector.select(timeout_s)
        if not events:
            fix = "Raise timeout, or see what the data set waits for."
            raise WorkerError("DataLoader", f"a batch within timeout={timeout_s} s", "none", fix)
        numbers = {key.data for key, _ in events}
        for worker in sorted(number for number in numbers if number >= 0):
            self.take(worker)
        for worker in sorted(~number for number in numbers if number < 0):
            if worker not in numbers:  # it is gone, and all that it sent is read
                raise self.death_of(worker)

    def take(self, worker: int) -> None:
        """Read a worker's next reply."""
        try:
            message = self.connections[worker].recv_bytes()
        except (EOFError, OSError):
            raise self.death_of(worker) from None
        kind, generation, task, number, nbytes, offset, size = REPLY.unpack_from(message)
        if len(message) > REPLY.size:
            tell("elsewhere", f"loader's worker {worker}", pickle.loads(message[REPLY.size :]))
        self.outstanding[worker] -= 1
        block = self.blocks[number]
        block.follow(nbytes)
        if kind == BATCH and generation == self.generation:
            self.waiting[task] = Reply(worker, task, (number, offset, size))
            return
        self.free.append(number)
        if generation != self.generation:
            return
        if kind == FAILED:
            self.waiting[task] = Reply(worker, task, error=block.lease()[offset:][:size].tobytes())
        elif kind == ENDED:
            self.waiting[task] = Reply(worker, task)

    def batch_of(self, reply: Reply) -> tuple[Any, None]:
        """(batch, state) that a reply brought; raises the error that it brought."""
        if reply.error is not None:
            raise self.failure_of(reply)
        number, offset, size = reply.place
        lease = self.blocks[number].lease()
        if len(self.leases) >= KEPT:
            out = self.reader.read(lease, offset, size, copy=True)
            self.free.append(number)
            return out
        freed = partial(free_block, self.leases, self.free, number)
        self.leases[number] = weakref.ref(lease, freed)
        return self.reader.read(lease, offset, size, copy=False)

    # -- faults and the end ----------------------------------------------------------------------

    def death_of(self, worker: int) -> WorkerError:
        """The error for a worker that is gone."""
        process = self.processes[worker]
        process.join(GRACE_S)
        code = process.exitcode
        how = "closed its connection" if code is None else f"ended with exit status {code}"
        fix = "See what it printed; num_workers=0 shows the fault here."
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                fix = "It may have run out of memory: try fewer workers or smaller batches."
        expected = f"worker {worker} of {self.count} to stay alive"
        return WorkerError("DataLoader", expected, f"one that {how} (process {process.pid})", fix)

    def failure_of(self, reply: Reply) -> BaseException:
        """The error that a worker raised, with its traceback there as a note."""
        pickled, summary, text, pid = pickle.loads(reply.error)
        error = None if pickled is None else pickle.loads(pickled)
        if not isinstance(error, Exception):  # SystemExit would end this process in silence
            expected = f"worker {reply.worker} to return a batch"
            error = WorkerError("DataLoader", expected, summary, "See the traceback below.")
        error.add_note(f"\nIn worker {reply.worker} (process {pid}):\n{text}")
        return error

    def close(self) -> None:
        """End the workers and give back their memory."""
        self.finalizer()


def free_block(leases: dict[Any, Any], free: deque[Any], number: int, _reference: Any) -> None:
    del leases[number]
    free.append(number)


def end_workers(
    owner: int, processes: list[Any], connections: list[Any], blocks: list[Block], selector: Any
) -> None:
    """End all workers: those that wait see the closed connection, those at work get a while, then a
    signal. A forked copy of the loader leaves them alone."""
    if os.getpid() != owner:
        return
    selector.close()
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for end in ("terminate", "kill"):
        late = [process for process in processes if process.is_alive()]
        for process in late:
            getattr(process, end)()
        for process in late:
            process.join(GRACE_S)
    for process in processes:
        if not process.is_alive():  # do not wait for a process that hangs in the kernel
            process.close()
    processes.clear()
    for block in blocks:
        block.close()


def context_of(name: Any) -> Any:
    """The way of starting processes: by name, or as multiprocessing's context."""
    if hasattr(name, "Process"):
        return name
    methods = multiprocessing.get_all_start_methods()
    default = "fork" if "fork" in methods else "spawn"
    return multiprocessing.get_context(default if name is None else name)
