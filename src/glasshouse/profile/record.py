"""Recording of events: a fixed record of 40 bytes for each event, written as it ends.

All of an event but its times is interned: the kind of call (shapes, dtypes, FLOPs), the module, the
Python stack, the thread. Kernels are not written one by one: a Program run leaves one array with
the times at which its steps ended."""

import itertools
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple, Protocol

import numpy as np

from glasshouse import memory
from glasshouse.compile.building import toolchain
from glasshouse.dispatch import Value, hooks, state
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.backend import TensorBackend
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.fallback import FallbackCounter
from glasshouse.dispatch.scope import Origin, Scope, origin_of, path_of
from glasshouse.dispatch.watch import (
    LOOKING,
    DeviceTimes,
    MessageTimes,
    ProgramRun,
    Watcher,
    ignore_call,
)
from glasshouse.graph.node import Node
from glasshouse.memory import Tag
from glasshouse.profile.function_watch import TIMED_CALL, FunctionWatch, TimedFunctions
from glasshouse.profile.holders import HeldTensor, Holders
from glasshouse.profile.libraries import Observation
from glasshouse.profile.stacks import Stacks, fast_stack_key

KINDS = ("recorded", "computed", "module", "region", "annotation", "pull", "step")
RECORDED, COMPUTED, MODULE, REGION, ANNOTATION, PULL, STEP = range(len(KINDS))
EVENT = np.dtype(
    [
        ("begin", "i8"),
        ("end", "i8"),
        ("what", "i4"),
        ("scope", "i4"),
        ("seq", "i8"),
        ("stack", "i4"),
        ("thread", "u2"),
        ("kind", "u1"),
        ("phase", "u1"),
    ]
)
PACK = struct.Struct("<qqiiqiHBB").pack_into
PACK_CALL = struct.Struct("<qqqqQ").pack_into  # the same with neighbouring fields packed into one
IS_COMPUTED = COMPUTED << 48
SIZE = EVENT.itemsize
MEMORY = np.dtype(
    [
        ("time", "i8"),
        ("address", "i8"),
        ("nbytes", "i8"),
        ("allocated", "i8"),
        ("reserved", "i8"),
        ("tag", "i4"),
        ("kind", "u1"),
    ]
)
PACK_MEMORY = struct.Struct("<qqqqqiB").pack
MEMORY_KINDS = ("alloc", "free", "map", "unmap", "oom")
PHASES = ("forward", "backward", "recompute", "optimizer", "other")


class Numbers(dict[Any, Any]):
    """A number for each key, in the order in which they come."""

    def __missing__(self, key: Any) -> int:
        return self.setdefault(key, len(self))


# The same in all recordings: native/events.h keeps the objects passed to it.
scopes: Numbers = Numbers({"": 0})
phases: Numbers = Numbers({name: i for i, name in enumerate(PHASES)})
calls: dict[int, Call] = {}  # calls that events name, by number


class Threads(Numbers):
    """Number of each thread, and its name at its first event; the thread that creates this is 0."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self[state.thread]

    def __missing__(self, number: int | str) -> int:
        name = number if isinstance(number, str) else threading.current_thread().name
        self.names.append(name)  # a process has its name as its number
        return super().__missing__(number)


class RecordedRun(NamedTuple):
    program: Any
    begin_ns: int
    ends_ns: np.ndarray
    end_ns: int
    events: np.ndarray
    thread: int
    first_ns: int
    device: DeviceTimes | None
    stack: int = 0  # of the code that needed its results
    transfers: Any = ()  # (step, begin, end)

    @property
    def begins_ns(self) -> np.ndarray:
        """Begin of each step: the end of the one before, if no device says otherwise."""
        if self.device is not None:
            return self.device.begins_ns
        return np.concatenate(([self.first_ns or self.begin_ns], self.ends_ns))[:-1]


class RecordingKind(NamedTuple):
    """Kinds of events that a recording holds beside calls."""

    stacks: bool
    modules: bool
    allocations: bool
    functions: bool
    inner_operators: bool


class HasName(Protocol):
    """A backend, as far as a recording knows it."""

    @property
    def name(self) -> str: ...


class RecordingColumns(Protocol):
    """A recording as a `Trace` reads it: of events that happened, or from a file."""

    room: int
    count: int
    begin_ns: int
    end_ns: int
    began_at_ns: int
    dropped_memory: int
    dropped_runs: int
    existing_bytes: int
    with_stack: bool
    with_functions: bool
    wants_allocations: bool
    unwatched_threads: Any
    runs: list[RecordedRun]
    messages: list[MessageTimes]
    live: dict[Any, Any]
    holders: Holders
    inner_operators: np.ndarray
    inner_names: list[Any]
    call_costs: dict[str, list[list[float]]]
    fallbacks: FallbackCounter
    script: str
    memory_limit: Any
    threads_of_kernels: int

    @property
    def bytes_before(self) -> tuple[int, ...]: ...

    @property
    def names(self) -> Iterable[str]: ...

    @property
    def tags(self) -> Iterable[Tag]: ...

    @property
    def threads(self) -> Threads: ...

    @property
    def stacks(self) -> Stacks: ...

    @property
    def functions(self) -> TimedFunctions: ...

    @property
    def backend(self) -> HasName: ...

    def events(self) -> np.ndarray: ...

    def memory(self) -> np.ndarray: ...


class EventRecorder(Watcher):
    """Writes events into a buffer of `room` records; events after that are only counted. A node may
    wait longer than a recording lasts: the number on it counts the events of all recordings."""

    room: int
    kind: RecordingKind
    with_stack: bool
    modules: bool
    wants_allocations: bool
    with_functions: bool
    wants_inner_operators: bool
    table: np.ndarray
    buffer: memoryview
    numbers: "itertools.count[int]"
    libraries: Observation
    bytes_before: tuple[int, int]
    end_ns: int
    count: int
    kernels: int
    dropped_runs: int
    own_bytes: tuple[int, int]
    existing_bytes: int
    library_bytes: int
    dropped_memory: int
    highest_bytes: int

    first: int = 0  # the number of the next recording's first event

    def __init__(self, room: int, kind: RecordingKind) -> None:
        self.room, self.kind, self.first = room, kind, EventRecorder.first
        EventRecorder.first += room
        self.with_stack, self.modules, self.wants_allocations = kind[:3]
        self.with_functions, self.wants_inner_operators = kind[3:]
        self.table = np.zeros(room * SIZE, np.uint8)  # the system gives pages as they are written
        self.buffer, self.numbers = self.table.data, itertools.count()
        self.threads: Threads = Threads()
        self.stacks: Stacks = Stacks()
        self.names: Numbers = Numbers()
        self.tags: Numbers = Numbers()
        self.runs: list[RecordedRun] = []  # with the numbers of all recordings' events: see runs_of
        self.messages: list[MessageTimes] = []
        self.memory_rows: bytearray = bytearray()
        self.dropped_memory = self.dropped_runs = self.kernels = 0
        self.subscription: Any = None
        self.live: dict[Any, Any] = {}
        self.own_bytes = self.bytes_before = 0, 0  # of our manager: allocated, reserved
        self.library_bytes = self.existing_bytes = self.highest_bytes = 0
        self.holders: Holders = Holders()
        self.op: Callable[..., None] = ignore_call
        self.call_costs: dict[str, list[list[float]]] = {}  # see recording_cost.py
        self.functions: FunctionWatch = FunctionWatch(room, self.threads)
        self.inner_operators: np.ndarray = np.zeros(0, TIMED_CALL)
        self.inner_names: list[Any] = []
        self.stack_key: Callable[..., Any] = fast_stack_key()

    def start(self) -> "EventRecorder":
        self.libraries = Observation(self)  # may import a module, which is not part of a step
        if self.wants_allocations:
            self.holders.look(0)
        self.begin_ns: int = perf_counter_ns()
        self.began_at_ns: int = time_ns()
        self.backend: TensorBackend = backends.current()
        self.fallbacks: FallbackCounter = self.backend.fallbacks.copy()
        self.script: str = " ".join(sys.argv)
        self.threads_of_kernels: int = toolchain.count_threads()
        self.memory_limit: Any = memory.manager.Limit.nbytes
        if self.wants_allocations:
            self.manager: memory.MemoryManager = memory.current()
            before, self.live = self.manager.stats(), dict(self.manager.live)
            self.own_bytes = self.bytes_before = before.allocated_bytes, before.reserved_bytes
            self.subscription = self.manager.subscribe(self.allocation)
        self.op = writer_of_calls(self)
        if hooks.events is not None and not self.with_stack:
            tables = (self.table, self.numbers, self.threads, self.first)
            self.replayed: Any = hooks.events(*tables, about)
        self.watch()
        if self.with_functions:
            self.functions.begin()
        return self

    def stop(self) -> None:
        self.functions.end()
        self.libraries.end()
        self.unwatch()
        self.op, self.replayed = ignore_call, None
        if self.subscription is not None:
            self.manager.tell()
            self.subscription.remove()
            self.subscription = None
        self.end_ns, self.count = perf_counter_ns(), next(self.numbers)
        if self.read_inner_operators is not None:
            self.note_inner_operators(*self.read_inner_operators())
        if self.wants_allocations:
            self.holders.find()
            self.holders.look(self.count_memory())
        self.holders.place_calls(self.runs)
        self.fallbacks = self.backend.fallbacks.since(self.fallbacks)

    def note_inner_operators(self, times: np.ndarray, names: list[str]) -> None:
        """Add the operators that a library recorded, in the thread that records."""
        numbers = Numbers()
        self.inner_operators = np.zeros(len(names), TIMED_CALL)
        self.inner_operators["begin"], self.inner_operators["end"] = times.T
        self.inner_operators["what"] = [numbers[name] for name in names]
        self.inner_names = list(numbers)

    # -- methods of a watcher ------------------------------------------------------------------

    def write(
        self, kind: int, what: int, begin_ns: int, scope: Scope | None = None, seq: int = -1
    ) -> None:
        i, now = next(self.numbers), state.__dict__
        if i < self.room:
            where = scopes[path_of(scope)]
            PACK(
                self.buffer,
                i * SIZE,
                begin_ns,
                perf_counter_ns(),
                what,
                where,
                seq,
                0,
                self.threads[now["thread"]],
                kind,
                phases[now["phase"]],
            )

    def module(self, scope: Scope, begin_ns: int) -> None:
        if self.modules:
            self.write(MODULE, 0, begin_ns, scope)
        if scope.parent is None:
            self.look_at_holders()

    def region(self, name: str, begin_ns: int, seq: int = -1) -> None:
        self.write(REGION, self.names[name], begin_ns, seq=seq)
        if name in PHASES:
            self.look_at_holders()

    def elsewhere(self, process: Any, regions: Any) -> None:
        thread, forward = self.threads[process], phases["forward"]
        for name, *times in regions:
            i = next(self.numbers)
            if i < self.room:
                what = self.names[name]
                PACK(self.buffer, i * SIZE, *times, what, 0, -1, 0, thread, REGION, forward)

    def annotation(self, name: str, begin_ns: int) -> None:
        self.write(ANNOTATION, self.names[name], begin_ns)

    def pull(self, entry: Any, begin_ns: int) -> None:
        call = getattr(entry, "call", None)
        name = call.name if call is not None else type(entry).__name__
        self.write(PULL, self.names[name], begin_ns, getattr(entry, "scope", None), entry.seq)

    def message(self, message: Any) -> None:
        self.messages.append(message)

    def program(self, run: ProgramRun) -> None:
        self.kernels += len(run.ends_ns)
        if self.kernels > 4 * self.room:
            self.dropped_runs += 1
            return
        ends, events = np.asarray(run.ends_ns, np.int64), np.asarray(run.events, np.int64)
        thread = self.threads[state.thread]
        self.runs.append(
            RecordedRun(
                run.program,
                run.begin_ns,
                ends,
                run.end_ns,
                events,
                thread,
                run.first_ns,
                run.device,
                self.stacks[self.stack_key(1)],
                run.transfers,
            )
        )
        self.look_at_holders()

    def look_at_holders(self) -> None:
        """Record the tensors of models and optimizers after a pass or a run, if memory grew."""
        holders = self.holders
        if self.wants_allocations and (holders.looks or self.highest_bytes > holders.highest):
            begin_ns = perf_counter_ns()
            memory.current().catch_up()
            holders.look_again(self.highest_bytes, self.count_memory())
            self.write(REGION, self.names[LOOKING], begin_ns)

    def count_memory(self) -> int:
        """Count the events of memory."""
        return len(self.memory_rows) // MEMORY.itemsize

    def allocation(self, event: memory.MemoryEvent) -> None:
        self.own_bytes = event.allocated_bytes, event.reserved_bytes
        self.write_memory(event.time_ns, event.kind, event.address, event.nbytes, event.tag)

    def library_memory(
        self, kind: str, address: int, nbytes: int, tag: Tag, spec: str = ""
    ) -> None:
        """Record memory that a library hands out or takes back, or had before all this."""
        if kind == "existed":
            self.holders.existing[address] = HeldTensor(tag, spec)
            self.live[address] = nbytes, tag
            self.existing_bytes += nbytes
            return
        self.library_bytes += nbytes if kind == "alloc" else -nbytes
        self.write_memory(perf_counter_ns(), kind, address, nbytes, tag)

    def write_memory(self, time_ns: int, kind: str, address: int, nbytes: int, tag: Tag) -> None:
        if len(self.memory_rows) >= self.room * MEMORY.itemsize:
            self.dropped_memory += 1
            return
        allocated, reserved = self.own_bytes
        self.highest_bytes = max(self.highest_bytes, allocated + self.library_bytes)
        self.memory_rows += PACK_MEMORY(
            time_ns,
            address,
            nbytes,
            allocated + self.library_bytes,
            reserved + self.library_bytes,
            self.tags[tag],
            MEMORY_KINDS.index(kind),
        )

    def memory(self) -> np.ndarray:
        """Allocations and frees as records, on top of the bytes that were there before."""
        rows = np.frombuffer(bytearray(self.memory_rows), MEMORY)
        for total in (rows["allocated"], rows["reserved"]):
            total += self.existing_bytes
        return rows

    def events(self) -> np.ndarray:
        """Events as records; an earlier begin is set to the begin of the recording."""
        events = self.table[: min(self.count, self.room) * SIZE].view(EVENT)
        for times in (events["begin"], events["end"]):
            np.maximum(times, self.begin_ns, out=times)
        return events


def runs_of(recorder: RecordingColumns) -> list[RecordedRun]:
    """The runs of a recording with the numbers of its own events, as files have them. A thread may
    note another run after the end, which is of no recording."""
    runs = list(recorder.runs)
    if not isinstance(recorder, EventRecorder):
        return runs
    first, room = recorder.first, recorder.room
    return [run._replace(events=local_numbers(run.events, first, room)) for run in runs]


def local_numbers(events: np.ndarray, first: int, room: int) -> np.ndarray:
    """Numbers of events in a recording that begins with event `first`; -1 for those of others."""
    inside = (events >= first) & (events < first + room)
    return np.where(inside, events - first, -1).astype(np.int32)


def about(call: Call, origin: Origin) -> tuple[int, int]:
    """Pack a call's `what` and `scope` into one number, `kind` and `phase` into another one."""
    calls[call.number] = call
    return call.number | scopes[origin.module] << 32, phases[origin.phase] << 56


def writer_of_calls(recorder: EventRecorder) -> Callable[..., Any]:
    """Return the recorder's `op`: a function with its variables bound, as it runs at each call."""
    following, room, buffer = recorder.numbers.__next__, recorder.room, recorder.buffer
    first_event = recorder.first
    stacks, stack_of = recorder.stacks, fast_stack_key() if recorder.with_stack else None
    fields: dict[
        tuple[Any, ...], tuple[int, int]
    ] = {}  # packed numbers of a call, by all that determines them

    def op(call, result, begin_ns):
        end_ns = perf_counter_ns()  # of the call: all below is the recorder's own
        i = following()
        if i >= room:
            return
        now = state.__dict__
        first = result[0] if type(result) is tuple else result
        seq, entry, payload, kind = now["seq"], first.tape_entry, first.payload, IS_COMPUTED
        if seq < 0 and entry is not None:
            seq = entry.seq
        if type(payload) is Node:
            kind = 0
            payload.event = event = first_event + i
            if first is not result:
                mark_parts(result, event)
        key = call, now["scope"], now["phase"], now["thread"]
        field = fields.get(key)
        if field is None:
            what, rest = about(call, origin_of(now["scope"], now["phase"]))
            field = fields[key] = what, rest | recorder.threads[now["thread"]] << 32
        what, rest = field
        stack = stacks[stack_of(1)] if stack_of is not None else 0
        PACK_CALL(buffer, i * SIZE, begin_ns, end_ns, what, seq, rest | kind | stack)

    return op


def mark_parts(results: tuple[Value, ...], event: int) -> None:
    for part in results:
        part.payload.event = event
        for node in part.payload.inputs:
            if node.value is None:
                node.event = event
