"""Watchers: receivers of each primitive call, each module, pass and Program run.

A watcher changes nothing. Without one nothing is sent and no clock is read. `watch` adds a watcher
for all threads. Each thread calls those in `state.watchers`: the list for all threads, or for a
while its own list (`also_told`, `unwatched`), which leaves other threads as they are."""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter_ns
from typing import Any, NamedTuple

from glasshouse.base.errors import OptionError, check_least, type_name
from glasshouse.base.interrupts import Living
from glasshouse.dispatch.bind import Watchers, state, timers, watchers
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.value import Value

WAITING = "data"  # region in which a loop waits for its next batch
READING = "read samples"  # region in which a loader reads a batch in this process
TRANSFORMING = "transform"  # region in which the fields of a sample are transformed
COLLATING = "collate"  # region in which samples become a batch
HANDING = "hand over"  # region in which a worker process writes a batch for its loader
CONVERTING = "copy to tensors"  # region in which the arrays of a batch become tensors
COMPILING = "compile"  # region in which a Program is made
CAPTURING = "TorchDynamo"  # region in which TorchDynamo traces Python and has its graph compiled
TRACING = "capture"  # region in which `gh.optimize` follows Python and has its graph compiled
CAPTURED = "captured graph"  # region in which such a graph runs, which makes some calls as they are
COMPILED = "compiled graph"  # region in which the forward pass of a compiled region runs
RECEIVING = "receive"  # region in which a stage of a pipeline waits for what another one gives it
LOOKING = "profiler"  # region in which watchers work, and the program waits


class DeviceTimes(NamedTuple):
    """Where and when the steps of a run were done by a device that works beside the host: on which
    stream, when the host handed each over (from, to), and when it began."""

    device: int
    streams: Any
    launches_ns: Any
    launched_ns: Any
    begins_ns: Any


class ProgramRun(NamedTuple):
    """One run of a Program: `ends_ns` has the end of each step, which begins where the one before
    ends, and the first at `first_ns`, unless a `device` has the times; `events` has the watchers'
    notes on the recorded nodes, by position (-1: none); `transfers` has the collectives that ran
    beside the steps: (the step that waited for it, begin, end)."""

    program: Any  # with `step_infos()`
    begin_ns: int
    ends_ns: Any
    end_ns: int
    events: list[int]
    first_ns: int = 0  # 0: at `begin_ns`
    device: DeviceTimes | None = None
    transfers: Any = ()


class MessageTimes(NamedTuple):
    """A message that a rank sent to another one of a group, or received, through one of its
    channels, with the times when the transport worked on it."""

    name: str
    channel: str
    group: tuple[int, ...]
    nbytes: int
    begin_ns: int
    end_ns: int


class Watcher:
    """Receiver of events; times are `time.perf_counter_ns`, a call's end is now.

    `replayed` is the action of native/replay.c in place of `op` for calls that it replays: an
    object of `hooks.events` writes an event, (thread, counts) counts them in the thread of that
    number, with `counts` having [number] by (call, origin). None: `op` receives them too."""

    wants_begin = True  # False: `op` gets no time, and no pulls and Program runs
    replayed: Any = None
    # Libraries call `library_memory(kind, address, nbytes, tag, spec)` for memory that they
    # allocate ("alloc") and free ("free"), or had before ("existed"), with its shape.
    wants_allocations = False
    # Whether a library records the calls of its operators; how to read them at the end.
    wants_inner_operators: bool = False
    read_inner_operators: Any = None
    unwatched_threads: Any = ()  # names of threads whose calls of a library no watcher sees

    def watch(self) -> None:
        watchers.append(self)
        if self.wants_begin:
            timers.append(self)

    def unwatch(self) -> None:
        for list_of_them in (watchers, timers):
            if self in list_of_them:
                list_of_them.remove(self)

    def op(self, call: "Call", result: "Value", begin_ns: int) -> None:
        """A call of a primitive was computed, or recorded."""

    def module(self, scope: Any, begin_ns: int) -> None:
        """A module's forward ended."""

    def region(self, name: str, begin_ns: int, seq: int = -1) -> None:
        """A backward, recompute or optimizer pass ended, a compilation, or waiting for data; or a
        compiled graph, whose node of autograd has the number `seq`."""

    def annotation(self, name: str, begin_ns: int) -> None:
        """A region that the user named ended."""

    def elsewhere(self, process: str, regions: list[tuple[str, int, int]]) -> None:
        """Regions (name, begin, end) ended in another process of this program."""

    def pull(self, entry: Any, begin_ns: int) -> None:
        """The cotangents of one call on the tape were pulled back."""

    def sent(self, group: Any, nbytes: int) -> None:
        """This rank sends bytes to another one of a group, outside of primitives."""

    def message(self, message: "MessageTimes") -> None:
        """Receive a message to or from another rank, outside of Programs."""

    def program(self, run: ProgramRun) -> None:
        """A Program ran."""


def ignore_call(call: Any, result: Any, begin_ns: int) -> None:
    """Stand in for a watcher's own `op` while it does not listen: do nothing."""


class Tally:
    """How often each thread ran a captured Program, whose calls watchers do not get: always
    counted, at almost no cost. Its `counts` are the calls of one run, and may be pickled."""

    def __init__(self, counts: list[Any] | bytes) -> None:
        self.call_counts: Any = counts
        self.runs: defaultdict[Any, int] = defaultdict(int)
        tallies.add(self)
        for since in tuple(kept.values()):
            since.setdefault(self, 0)

    @property
    def counts(self) -> list[Any]:
        """Calls that a run counts: [(call, origin)]."""
        if isinstance(self.call_counts, bytes):
            self.call_counts = pickle.loads(self.call_counts)
        return self.call_counts


tallies: Living = Living()
kept: dict[int, dict[Tally, int]] = {}  # by id: those that a counter holds on to, and since when


def tell(what: str, *args: Any) -> None:
    """Call the method `what` of this thread's watchers."""
    for watcher in tuple(state.watchers.all):
        getattr(watcher, what)(*args)


@contextmanager
def told(watchers_inside: list[Any], timers_inside: list[Any]) -> Iterator[None]:
    """Inside, only these watchers see this thread; those in `timers_inside` want times."""
    before, state.watchers = state.watchers, Watchers(watchers_inside, timers_inside)
    try:
        yield
    finally:
        state.watchers = before


def unwatched() -> Any:
    """A context in which no watcher sees this thread."""
    return told([], [])


def also_told(watcher: Watcher) -> Any:
    """A context in which one more watcher sees this thread, without times."""
    return told([*state.watchers.all, watcher], state.watchers.timed)


class OpCall(NamedTuple):
    """A primitive call, as an op callback sees it."""

    call: Any
    begin_ns: int
    end_ns: int

    @property
    def primitive(self) -> Any:
        return self.call.primitive

    @property
    def specs(self) -> tuple[Any, ...]:
        """Specs of the operands."""
        return self.call.specs

    @property
    def attrs(self) -> dict[Any, Any]:
        return self.call.attrs

    @property
    def out(self) -> Any:
        """The spec of the result, or a tuple of them."""
        return self.call.out

    @property
    def cost(self) -> Any:
        """FLOPs and bytes of the call."""
        return self.call.cost


class OpCallback(Watcher, AbstractContextManager[Any]):
    """Calls `fn` with every `every`-th call; ends with `remove()`, or as a context."""

    def __init__(self, fn: Callable[..., Any], every: int) -> None:
        self.fn = fn
        self.every = every
        self.remaining: int = every
        self.watch()

    def op(self, call: Any, result: Any, begin_ns: Any) -> None:
        self.remaining -= 1
        if not self.remaining:
            self.remaining = self.every
            self.fn(OpCall(call, begin_ns, perf_counter_ns()))

    remove: Callable[..., None] = Watcher.unwatch

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


def add_op_callback(fn: Callable[..., Any], every: int = 1) -> OpCallback:
    """Have `fn(call)` called after every primitive call, or after one in `every`, in all threads.

    Raises: OptionError if fn cannot be called or every is below 1.
    Example:
        >>> import glasshouse as gh
        >>> x, names = gh.ones(3), []
        >>> with add_op_callback(lambda call: names.append(call.primitive.name)):
        ...     y = x + x
        >>> names
        ['add']
    """
    if not callable(fn):
        raise OptionError("add_op_callback", "a function", type_name(fn), "Pass fn(call).")
    check_least("add_op_callback", "every", every, 1, "1 sees all calls.")
    return OpCallback(fn, every)
