"""Replay: C records calls that were made before, without the Python that made them.

The calls that a primitive, a composed function or a derivative records depend on specs, attrs and
the modes in force, not on contents. The first time all of it runs in Python (dispatch/bind.py, the
cards' rules), and a `CallCollector` records the calls. From then on native/replay.c appends the
same calls to the recording and to the tape. A rule has to make the same calls for the same specs
and attrs, as cards do; a function that reads a value, or makes a constant, runs each time.

A backend keeps, in `replays`, a `ReplayedFunction` for each composed function or primitive with
such arguments; a `Call` keeps, in `pulls`, a `ReplayedPull` for each pattern of tracked operands.
None, or an empty one, means that it has to run each time. C finds the slots of the classes that it
fills, and the fields of the tuples that it reads, by declarations generated from the classes
(`declarations`).
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, NamedTuple

from glasshouse.base import DType
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.dispatch import Value
from glasshouse.dispatch.backend import Default
from glasshouse.dispatch.bind import Watchers, run, state
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.hooks import PythonReplay, hooks
from glasshouse.dispatch.scope import origin_of, outside
from glasshouse.dispatch.watch import Watcher, also_told
from glasshouse.graph import record
from glasshouse.graph.node import Node
from glasshouse.graph.record import INDEXED

MOST_REPLAYS = 1 << 14  # that a backend keeps; then it starts over
MOST_ENTRIES = 1 << 10  # that are kept for reuse
MOST_CALLS = 400  # of a composed function


class ReplayedEntry(NamedTuple):
    """Tape entry of a replayed call: places of the operands' entries, or None; places of the
    payloads that its rules read, or None; whether they read the result."""

    parents: tuple[int | None, ...]
    saved: tuple[int | None, ...]
    keeps_result: bool


@functools.lru_cache(MOST_ENTRIES)
def shared_entry(
    parents: tuple[int | None, ...], saved: tuple[int | None, ...], keeps_result: bool
) -> ReplayedEntry:
    """One object for equal entries: those of a function are the same for all sizes."""
    return ReplayedEntry(parents, saved, keeps_result)


class ReplayedCall(NamedTuple):
    """A call to make with operands from `places`: i is the result of the i-th call, -1 - i the i-th
    given payload. `scalar` is the value of a `full` from outside: packed, or ... for the one that
    varies; `entry` is None where nothing is on the tape."""

    call: Call
    places: tuple[int, ...]
    scalar: Any
    entry: ReplayedEntry | None


class ReplayedPull(NamedTuple):
    """Calls of the rules of one call, on the cotangent, the result and the operands, and the
    `places` of their cotangents; `parents` has the numbers of their operands. A cotangent that is
    the same object as an earlier one has its number in `same_as`, the incoming cotangent itself has
    -1, any other its own number."""

    calls: tuple[ReplayedCall, ...]
    places: tuple[int, ...]
    parents: tuple[int, ...]
    specs: tuple[Any, ...]
    same_as: tuple[int, ...]


class ReplayedFunction(NamedTuple):
    """Calls of a composed function on the tensors among its arguments, and its results: (place,
    whether it is tracked)."""

    calls: tuple[ReplayedCall, ...]
    results: tuple[tuple[int, bool], ...]
    is_single: bool  # one result, not a tuple
    has_several: bool  # a call with several results, which only Python reports to watchers


class Native:
    """native/replay.c, once it is loaded."""

    module: Any = None


def declarations() -> str:
    """C declarations of the slots and fields that native/replay.c reads: a struct for each class of
    its slots' offsets, to be filled in, and their names; the numbers of each tuple's fields."""
    lines = ["#define PY_SSIZE_T_CLEAN", "#include <Python.h>"]
    for cls in (Call, Node, hooks.tape.entry):
        slots = [
            s for base in cls.__mro__ for s in base.__dict__.get("__slots__", ()) if s[0] != "_"
        ]
        lines.append(f"static struct {{ Py_ssize_t {', '.join(slots)}; }} {cls.__name__}_at;")
        names = ", ".join(f'"{slot}"' for slot in slots)
        lines.append(f"static const char *const {cls.__name__}_slots[] = {{{names}}};")
    for fields in (Watchers, ReplayedEntry, ReplayedCall, ReplayedPull, ReplayedFunction):
        numbers = ", ".join(f"{fields.__name__}_{field}" for field in fields._fields)
        lines.append(f"enum {{ {numbers} }};")
    return "\n".join([*lines, ""])


def load_replay() -> None:
    """Let C replay calls that were made before from now on, where it compiles: it needs Python's
    headers too."""
    if Native.module is not None or flags.replay == "python":
        return
    try:
        native = toolchain.extension(toolchain.NATIVE / "replay.c", declarations())
    except toolchain.CompileError as error:
        if flags.debug:
            print(f"[gh] calls are recorded by Python: {error}")
        return
    native.setup(
        state=state,
        flags=flags,
        defaults=Default,
        clock_ns=perf_counter_ns,
        run_in_python=run,
        collect_function=collect_function,
        collect_pull=collect_pull,
        origin_of=origin_of,
        outside=outside,
        numbers=hooks.tape.numbers,
        dtype=DType,
        tensor=hooks.tensor_class,
        call=Call,
        node=Node,
        entry=hooks.tape.entry,
    )
    Native.module = native
    set_limits(record.MAX_PENDING, record.MAX_HELD_BYTES)
    hooks.replay_by(native)


def set_limits(pending: int, held_bytes: int) -> None:
    """Cut recordings at so many nodes, and bytes of arrays from outside."""
    record.MAX_PENDING, record.MAX_HELD_BYTES = pending, held_bytes
    if Native.module is not None:
        Native.module.set_limits(pending, held_bytes)


@contextmanager
def in_python() -> Iterator[None]:
    """Inside, only Python records calls: the slow twin."""
    is_inner = Native.module is not None and hooks.run is run
    hooks.replay_by(PythonReplay)
    try:
        yield
    finally:
        if Native.module is not None and not is_inner:
            hooks.replay_by(Native.module)


class CallCollector(Watcher):
    """Collects the calls that this thread makes while a function runs, for replay. `payloads` are
    those of its operands."""

    wants_begin = False

    def __init__(self, backend: Any, payloads: Any) -> None:
        self.backend = backend
        self.collected: list[Any] = []  # [(payload, entry on the tape)]
        self.places: dict[int, int]
        self.places = {id(x): -1 - i for i, x in enumerate(payloads) if x is not None}
        self.entries: dict[tuple[int, int], int] = {}  # places of entries on the tape, by slot
        self.pending: Any = backend.recorder.pending
        self.begin: int = len(backend.recorder.pending)
        self.can_be_replayed: bool = True
        self.has_several: bool = False

    def op(self, call: Call, result: Any, begin_ns: int) -> None:
        card = call.primitive
        several = result if card.num_outputs != 1 else ()
        is_tracked = any(x.tape_entry is not None for x in several)
        if call.is_collective or card.kind == "random" or card.name in INDEXED or is_tracked:
            self.can_be_replayed = False
        elif several:
            self.has_several = True
            (node,) = several[0].payload.inputs
            self.collected += [(node, None), *((x.payload, None) for x in several)]
        else:
            self.collected.append((result.payload, result.tape_entry))

    def is_whole(self) -> bool:
        """Whether all recorded calls are here, and nothing was computed meanwhile."""
        nodes = self.pending[self.begin :]
        return (
            self.can_be_replayed
            and self.backend.recorder.pending is self.pending
            and len(nodes) == len(self.collected)
            and all(x is y and x.value is None for x, (y, _) in zip(nodes, self.collected))
        )

    def calls(self, scalar: bytes | None = None) -> tuple[ReplayedCall, ...]:
        """Calls to replay; `scalar` is the one that varies.

        Raises: KeyError for an operand that is not given, such as a constant.
        """
        calls = []
        for number, (node, entry) in enumerate(self.collected):
            places = tuple(self.places[id(x)] for x in node.inputs)
            packed = ... if scalar is not None and node.scalar == scalar else node.scalar
            replayed = None if entry is None else self.replayed_entry(entry)
            calls.append(ReplayedCall(node.call, places, packed, replayed))
            self.places.setdefault(id(node), number)
            if entry is not None:
                self.entries[id(entry), 0] = number
        if not self.is_whole():  # a finalizer evaluated meanwhile: nodes dropped their operands
            raise KeyError
        return tuple(calls)

    def replayed_entry(self, entry: Any) -> ReplayedEntry:
        """Places of an entry's parts.

        Raises: KeyError
        """
        parents = tuple(x and self.entries[id(x[0]), x[1]] for x in entry.parents)
        saved = tuple(None if x is None else self.places[id(x)] for x in entry.saved)
        return shared_entry(parents, saved, entry.saved_out[0] is not None)

    def place_of(self, x: Any, tensors: tuple[Value, ...]) -> tuple[int, bool]:
        """Place of a result, and whether it is on the tape.

        Raises: KeyError, AttributeError
        """
        for i, tensor in enumerate(tensors):
            if x is tensor:
                return -1 - i, False
        place = self.places[id(x.payload)]
        is_tracked = x.tape_entry is not None
        is_another = is_tracked and x.tape_entry is not self.collected[place][1]
        if place < 0 or x.mode is not None or is_another:
            raise KeyError
        return place, is_tracked


def collect_pull(
    entry: Any, cotangent: Any, payloads: tuple[Node | None, ...], key: int
) -> list[Any]:
    """[(parent, cotangent)] by the card's rules, whose calls are replayed from now on; where they
    cannot be (a rule makes a constant, or has a value computed), an empty entry says so."""
    collector = CallCollector(entry.backend, payloads)
    with also_told(collector):
        pulled = entry.pull([cotangent], False)
    entry.call.pulls[key] = replayed_pull(entry, cotangent, pulled, collector) or ()
    return pulled


def replayed_pull(
    entry: Any,
    cotangent: Any,
    pulled: list[tuple[tuple[Any, ...], Value]],
    collector: CallCollector,
) -> ReplayedPull | None:
    """Record the rules of a call to replay them; None if that is not possible."""
    by_parent = {id(parent): cotangent for parent, cotangent in pulled}
    cotangents = [
        (i, by_parent[id(x)]) for i, x in enumerate(entry.parents) if x and id(x) in by_parent
    ]
    if not collector.is_whole() or collector.has_several:
        return None
    try:
        calls = collector.calls()
        places = tuple(collector.places[id(x.payload)] for _, x in cotangents)
    except KeyError:
        return None
    numbers = {id(x): i for i, (_, x) in reversed([*enumerate(cotangents)])} | {id(cotangent): -1}
    same_as = tuple(numbers[id(x)] for _, x in cotangents)
    specs = tuple(x.spec for _, x in cotangents)
    return ReplayedPull(calls, places, tuple(i for i, _ in cotangents), specs, same_as)


def collect_function(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    backend: Any,
    key: Any,
    tensors: tuple[Value, ...],
    scalar: bytes | None,
) -> Any:
    """fn(*args, **named), for the first time with such arguments."""
    payloads = [x.payload for x in tensors]
    collector = CallCollector(backend, payloads)
    with also_told(collector):
        result = fn(*args, **named)
    is_pure = all(x.payload is data for x, data in zip(tensors, payloads))
    replayed = replayed_function(collector, tensors, scalar, result) if is_pure else None
    keep_replay(backend.replays, key, replayed)
    return result


def keep_replay(
    replays: dict[Any, Any], key: tuple[Any, ...], replayed: ReplayedFunction | None
) -> None:
    """Keep a replay for the key. Where there are too many, all are dropped: as a rule they are of
    sizes that never come again."""
    if len(replays) >= MOST_REPLAYS:
        replays.clear()
    replays[key] = replayed


def replayed_function(
    collector: CallCollector, tensors: Any, scalar: Any, result: Any
) -> ReplayedFunction | None:
    """Record a composed function to replay it; None if that is not possible."""
    if not collector.is_whole() or len(collector.collected) > MOST_CALLS:
        return None
    is_single = not isinstance(result, tuple)
    for i, x in enumerate(tensors):
        if x.tape_entry is not None:
            collector.entries[id(x.tape_entry), x.slot] = -1 - i
    try:
        calls = collector.calls(scalar)
        outputs = (result,) if is_single else result
        results = tuple(collector.place_of(x, tensors) for x in outputs)
    except (KeyError, AttributeError):
        return None
    if scalar is not None and sum(call.scalar is ... for call in calls) != 1:
        return None
    return ReplayedFunction(calls, results, is_single, collector.has_several)
