"""The interface of memory managers, the accounting they share, and which one is in use.

A manager subclass gives `take` (memory for a size) and `give_back`; counting, events, the limit and
the safety of several threads are here."""

import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import BackendError, OptionError, OutOfMemoryError, ShapeError, check_known
from glasshouse.base.flags import flags, having
from glasshouse.base.interrupts import held
from glasshouse.base.units import parse_bytes

__all__ = ["Buffer", "MemoryEvent", "MemoryManager", "MemoryStats", "Tag", "current", "limit",
           "reset_peak", "stats"]  # fmt: skip

BACKLOG = 1000  # events that may wait for a slow listener before a thread that allocates does too


class Tag(NamedTuple):
    """Purpose of an allocation: the primitive, the module's path, and the pass."""

    primitive: str = ""
    module: str = ""
    phase: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in self if part) or "untagged"


ARENA_TAG = Tag("arena")  # of a Program: memory for a run, given back at its end


class MemoryEvent(NamedTuple):
    """One thing that happened: kind is alloc, free, map, unmap or oom; sizes in bytes."""

    kind: str
    address: int
    nbytes: int
    allocated_bytes: int
    reserved_bytes: int
    time_ns: int
    tag: Tag
    manager: str


class Memory:
    """The array interface of a buffer, for NumPy; keeps the buffer alive."""

    __slots__ = ("buffer", "__array_interface__")

    def __init__(self, buffer: "Buffer", shape: tuple[int, ...], typestr: str) -> None:
        self.buffer: Buffer = buffer
        self.__array_interface__: dict[str, Any] = {
            "data": (buffer.address, False),
            "shape": shape,
            "typestr": typestr,
            "version": 3,
        }


class Lease(weakref.ref[Any]):
    """A manager's weak reference to a buffer: when the buffer dies, its memory is free."""

    __slots__ = ("address", "nbytes", "size", "block", "tag")
    address: int
    nbytes: int  # that were asked for
    size: int  # bytes that were taken
    block: Any
    tag: Tag


class Buffer:
    """Memory of `nbytes` at `address`, aligned to 64 bytes; freed when nobody refers to it."""

    __slots__ = ("address", "nbytes", "tag", "manager", "freed", "__weakref__")

    def __init__(self, address: int, nbytes: int, tag: Tag, manager: "MemoryManager") -> None:
        self.address: int = address
        self.nbytes: int = nbytes
        self.tag: Tag = tag
        self.manager: MemoryManager = manager
        self.freed: bool = False

    def numpy(self, dtype: Any = np.uint8, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """A writable array on this memory, which stays as long as the array does.

        Raises: ShapeError if it does not fit, BackendError if the buffer was freed.
        """
        dtype = np.dtype(dtype)
        shape = self.nbytes // dtype.itemsize if shape is None else shape
        shape = (shape,) if isinstance(shape, int) else shape
        nbytes = prod(shape) * dtype.itemsize
        if not 0 <= nbytes <= self.nbytes:
            got = f"{shape} of {dtype}, {nbytes} bytes"
            raise ShapeError("numpy", f"a shape within {self.nbytes} bytes", got, "Allocate more.")
        if self.freed:
            got = f"one of {self.nbytes} bytes that was freed"
            raise BackendError("numpy", "a buffer in use", got, "Free it last.")
        if dtype.isbuiltin == 1:
            return np.asarray(Memory(self, shape, dtype.str))
        return np.asarray(Memory(self, (nbytes,), "|u1")).view(dtype).reshape(shape)


@dataclass
class MemoryStats:
    """Bytes and counts of a manager; reserved bytes are those it holds from the system."""

    allocated_bytes: int = 0
    reserved_bytes: int = 0
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    wanted_bytes: int = 0
    allocations: int = 0
    native_allocations: int = 0
    cache_hits: int = 0
    splits: int = 0
    largest_free_bytes: int = 0

    @property
    def internal_fragmentation(self) -> float:
        """The part of allocated memory that nobody asked for: rounding, and blocks not split."""
        return 1 - self.wanted_bytes / self.allocated_bytes if self.allocated_bytes else 0.0

    @property
    def external_fragmentation(self) -> float:
        """The part of free memory that does not lie in the largest free block."""
        free = self.reserved_bytes - self.allocated_bytes
        return 1 - self.largest_free_bytes / free if free else 0.0

    def __str__(self) -> str:
        rows = [(f.name.replace("_", " "), f"{getattr(self, f.name):,}") for f in fields(self)]
        rows += [
            ("internal fragmentation", f"{self.internal_fragmentation:.1%}"),
            ("external fragmentation", f"{self.external_fragmentation:.1%}"),
        ]
        return "\n".join(f"{name:<24}{value:>20}" for name, value in rows)


class Subscription:
    """Ends a subscription with `remove()`."""

    def __init__(self, manager: "MemoryManager", fn: Callable[..., Any]) -> None:
        self.manager = manager
        self.fn = fn

    def remove(self) -> None:
        self.manager.catch_up()
        if self.fn in self.manager.listeners:
            self.manager.listeners.remove(self.fn)


class MemoryManager:
    """Hands out buffers. A subclass defines `take` and `give_back`, and perhaps `empty_cache`.
    `take(nbytes)` returns (address, bytes really taken, whatever `give_back` needs); it gets memory
    from the system with `self.map`, which minds the limit and counts."""

    name = "abstract"
    simulated = False  # True: nothing is taken from the system, and the limit does not hold

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()  # of all but the queues, which need none
        self.telling: threading.Lock = threading.Lock()
        self.counts: MemoryStats = MemoryStats()
        self.live: dict[int, tuple[int, Tag]] = {}
        self.leases: dict[int, Lease] = {}
        self.listeners: list[Callable[[MemoryEvent], None]] = []
        self.events: deque[MemoryEvent] = deque()  # events that listeners have not received yet
        self.teller: int = 0  # the thread that sends them
        # Of buffers that died. Only `append` runs when one does, perhaps while this very thread is
        # inside the manager; in Python code that runs then an interrupt would be lost.
        self.ended: deque[Lease] = deque()

    def take(self, nbytes: int) -> tuple[int, int, Any]:
        raise NotImplementedError

    def take_for_a_run(self, nbytes: int) -> tuple[int, int, Any]:
        """Take memory for one run, an arena, which is soon given back."""
        return self.take(nbytes)

    def counts_arena(self, nbytes: int) -> bool:
        """Count an arena that stays with its Program as taken for a run and given back; False where
        that would not be all that `alloc` does."""
        return False

    def give_back(self, block: Any) -> None:
        raise NotImplementedError

    def release_cached(self) -> None:
        """Return cached memory to the system."""

    def largest_free(self) -> int:
        return 0

    def simulate(self) -> "MemoryManager":
        """A new manager like this one that only simulates: it takes no memory from the system."""
        simulated = type(self)()
        simulated.simulated = True
        return simulated

    # -- what users call -----------------------------------------------------------------------

    def alloc(self, nbytes: int, tag: Tag | None = None) -> Buffer:
        """Memory for `nbytes`.

        Raises: OptionError for a negative number; OutOfMemoryError, with the largest uses of
            memory: everything stays usable then.
        """
        return self.alloc_all([(nbytes, tag or Tag())])[0]

    def alloc_all(self, wanted: Sequence[tuple[int, Tag]]) -> list[Buffer]:
        """Memory for each (bytes, tag), as by `alloc` one after the other, in less time.

        Raises: OptionError for a negative number; OutOfMemoryError, with the largest uses of
            memory: everything stays usable then.
        """
        for nbytes, _ in wanted:
            if nbytes < 0:
                raise OptionError("alloc", "0 bytes or more", nbytes, "Check the shape.")
        try:
            with held, self.lock:
                if self.ended:
                    self.give_back_ended()
                buffers = []
                for nbytes, tag in wanted:
                    take = self.take_for_a_run if tag == ARENA_TAG else self.take
                    address, size, block = take(max(1, nbytes))
                    counts = self.counts
                    counts.allocations += 1
                    counts.allocated_bytes += size
                    counts.wanted_bytes += nbytes
                    if counts.allocated_bytes > counts.peak_allocated_bytes:
                        counts.peak_allocated_bytes = counts.allocated_bytes
                    buffer = Buffer(address, nbytes, tag, self)
                    self.live[address] = (nbytes, tag)
                    lease = self.leases[address] = Lease(buffer, self.ended.append)
                    lease.address, lease.nbytes, lease.size = address, nbytes, size
                    lease.block, lease.tag = block, tag
                    buffers.append(buffer)
                    if self.listeners:
                        self.report("alloc", address, nbytes, tag)
                return buffers
        finally:
            if self.events:
                self.tell(patience=BACKLOG)

    def free(self, buffer: Buffer) -> None:
        """Take a buffer back before its last reference goes; its arrays must not be used then.

        Raises: BackendError if it was freed already, or is another manager's.
        """
        with held, self.lock:
            is_ours = buffer.manager is self and not buffer.freed
            if is_ours:
                buffer.freed = True
                self.ended.append(self.leases[buffer.address])
                self.give_back_ended()
        self.tell()
        if not is_ours:
            what = "was freed already" if buffer.manager is self else "another manager made"
            expected = "a buffer of this manager in use"
            fix = "Free each buffer once, where it comes from."
            raise BackendError("free", expected, f"one of {buffer.nbytes} bytes that {what}", fix)

    def give_back_ended(self) -> None:
        """Take the memory of buffers that died; the lock is held."""
        counts = self.counts
        while self.ended:
            lease = self.ended.popleft()
            del self.live[lease.address], self.leases[lease.address]
            counts.allocated_bytes -= lease.size
            counts.wanted_bytes -= lease.nbytes
            self.give_back(lease.block)
            if self.listeners:
                self.report("free", lease.address, lease.nbytes, lease.tag)

    def stats(self) -> MemoryStats:
        """A snapshot of the counts."""
        with held, self.lock:
            self.give_back_ended()
            self.counts.largest_free_bytes = self.largest_free()
            counts = replace(self.counts)
        self.tell()
        return counts

    def reset_peak(self) -> None:
        """Reset the peaks to the bytes in use now."""
        with held, self.lock:
            self.give_back_ended()
            counts = self.counts
            counts.peak_allocated_bytes = counts.allocated_bytes
            counts.peak_reserved_bytes = counts.reserved_bytes
        self.tell()

    def empty_cache(self) -> None:
        """Return all memory that is not in use to the system."""
        with held, self.lock:
            self.give_back_ended()
            self.release_cached()
        self.tell()

    def subscribe(self, fn: Callable[[MemoryEvent], None]) -> Subscription:
        """Call `fn(event)` at every event until the returned handle's `remove()`. Events come one
        at a time and in order, when the manager is done: `fn` may ask it anything. The event
        of a buffer that died comes with the manager's next call."""
        self.catch_up()
        self.listeners.append(fn)
        return Subscription(self, fn)

    def catch_up(self) -> None:
        with held, self.lock:
            self.give_back_ended()
        self.tell()

    # -- what subclasses call ------------------------------------------------------------------

    def map(self, nbytes: int, get: Callable[[int], Any]) -> Any:
        """Memory from `get(nbytes)`, within the limit; a failure empties the cache, and again."""
        if self.simulated:
            get = Pretended
        elif not self.fits(nbytes):
            self.release_cached()
            if not self.fits(nbytes):
                raise self.out_of_memory(nbytes, f"a limit of {Limit.nbytes:,} bytes")
        try:
            got = get(nbytes)
        except (OSError, MemoryError):
            self.release_cached()
            try:
                got = get(nbytes)
            except (OSError, MemoryError) as error:
                raise self.out_of_memory(nbytes, f"the system ({error})") from None
        counts = self.counts
        counts.native_allocations += 1
        counts.reserved_bytes += nbytes
        counts.peak_reserved_bytes = max(counts.peak_reserved_bytes, counts.reserved_bytes)
        self.report("map", 0, nbytes, Tag())
        return got

    def unmapped(self, nbytes: int) -> None:
        self.counts.reserved_bytes -= nbytes
        self.report("unmap", 0, nbytes, Tag())

    def fits(self, nbytes: int) -> bool:
        return Limit.nbytes is None or self.counts.reserved_bytes + nbytes <= Limit.nbytes

    def report(self, kind: str, address: int, nbytes: int, tag: Tag) -> None:
        if self.listeners:
            used, reserved = self.counts.allocated_bytes, self.counts.reserved_bytes
            now = time.perf_counter_ns()
            event = MemoryEvent(kind, address, nbytes, used, reserved, now, tag, self.name)
            self.events.append(event)

    def tell(self, patience: float = float("inf")) -> None:
        """Send events to listeners. Wait for another thread that does, beyond `patience` events."""
        me = threading.get_ident()
        while self.events and self.teller != me:
            if not self.telling.acquire(blocking=len(self.events) > patience):
                return
            self.teller = me
            try:
                while self.events:
                    event = self.events.popleft()
                    for fn in tuple(self.listeners):
                        fn(event)
            finally:
                self.teller = 0
                self.telling.release()

    def out_of_memory(self, nbytes: int, what: str) -> OutOfMemoryError:
        self.report("oom", 0, nbytes, Tag())
        totals: Counter[Tag] = Counter()
        for size, tag in self.live.values():
            totals[tag] += size
        largest = totals.most_common(5)
        listed = ", ".join(f"{tag}: {size:,} bytes" for tag, size in largest) or "nothing"
        expected = f"{nbytes:,} more bytes beside {self.counts.reserved_bytes:,} in use"
        fix = f"Largest: {listed}. Use a smaller batch, gh.checkpoint or gh.autocast."
        return OutOfMemoryError("memory", expected, f"a refusal by {what}", fix)


class Pretended:
    """A mapping of a simulated manager: an address that nothing else has."""

    following: "count[int]" = count(1 << 50, 1 << 44)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.used_bytes: int = nbytes
        self.is_segment = False
        self.address: int = next(self.following)

    def cut(self, nbytes: int) -> int:
        """Simulate the return of the memory past the first `nbytes`; return its size."""
        returned, self.used_bytes = max(0, self.used_bytes - nbytes), min(self.used_bytes, nbytes)
        return returned

    def close(self) -> None:
        """There is nothing to return."""


class Limit:
    """The most bytes that a manager may reserve; None for no limit."""

    nbytes: int | None = flags.memory_limit or None


class limit(having):
    """Let managers reserve at most `nbytes`: a whole number, or a text such as "8GiB"; None for no
    limit. As a context, until its end.

    Raises: OptionError unless nbytes is positive.
    Example:
        >>> with limit("1GiB"):
        ...     Limit.nbytes
        1073741824
    """

    def __init__(self, nbytes: int | str | None) -> None:
        parsed = None if nbytes is None else int(parse_bytes("limit", nbytes))
        super().__init__(Limit, nbytes=parsed)


class CurrentManager:
    """The manager in use; made when first asked for."""

    manager: MemoryManager | None = None
    lock: "threading.Lock" = threading.Lock()


managers: dict[str, type[MemoryManager]] = {}


def register(cls: type[MemoryManager]) -> type[MemoryManager]:
    managers[cls.name] = cls
    return cls


def make(name: str) -> MemoryManager:
    return managers[check_known("memory", "a known manager", name, managers)]()


def current() -> MemoryManager:
    """The manager in use.

    Example:
        >>> current().alloc(100).nbytes
        100
    """
    if CurrentManager.manager is None:
        with CurrentManager.lock:
            CurrentManager.manager = CurrentManager.manager or make(flags.memory)
    return CurrentManager.manager


class use_manager(having):
    """Have `manager` (an instance, or "direct", "caching") hand out memory from now on; as a
    context, until its end. Buffers of the former one stay valid.

    Raises: OptionError for an unknown name, BackendError for an object that is not a manager.
    Example:
        >>> with use_manager("direct") as manager:
        ...     manager.name
        'direct'
    """

    def __init__(self, manager: Any) -> None:
        if not isinstance(manager, (str, MemoryManager)):
            fix = "Subclass gh.memory.MemoryManager."
            raise BackendError("use", "a memory manager or its name", repr(manager), fix)
        self.manager: MemoryManager = make(manager) if isinstance(manager, str) else manager
        super().__init__(CurrentManager, manager=self.manager)

    def __enter__(self) -> MemoryManager:
        return self.manager


def stats() -> MemoryStats:
    """The counts of the manager in use."""
    return current().stats()


def reset_peak() -> None:
    """Reset the peaks of the current manager to its bytes in use now.

    Example:
        >>> reset_peak()
        >>> stats().peak_allocated_bytes == stats().allocated_bytes
        True
    """
    current().reset_peak()
