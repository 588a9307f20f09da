"""The door in C, and rules whose calls are known: what the first time does in Python, again.

The first call of a kind, and the first pull of a rule for it, go through dispatch/bind.py and the
card. What they recorded is remembered with the primitive, the specs and the attrs, and recorded
anew by native/replay.c when the same comes again. A rule has to make the same calls for the same
specs and attrs, as cards do; one that reads a value, or makes a constant, is run each time."""

from contextlib import contextmanager
from threading import get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple

from glasshouse.base import DType
from glasshouse.base.flags import flags
from glasshouse.compile import toolchain
from glasshouse.dispatch.backend import Default
from glasshouse.dispatch.bind import hooks, run, state, timers, watchers
from glasshouse.dispatch.call import Call, call_of
from glasshouse.dispatch.compose import run_composed
from glasshouse.dispatch.watch import Watcher
from glasshouse.graph import record
from glasshouse.graph.record import INDEXED, Lazy

MOST_KNOWN = 1 << 14  # calls that a backend remembers; then it begins anew
MOST_CALLS = 400  # of a composed function


class Door:
    """native/replay.c, once it is loaded."""

    native: Any = None


def load_replay() -> None:
    """From now on calls that were seen are recorded by C, where it compiles: it needs Python's
    headers too."""
    if Door.native is not None or flags.replay == "python":
        return
    try:
        native = toolchain.extension(toolchain.NATIVE / "replay.c")
    except toolchain.CompileError as error:
        if flags.debug:
            print(f"[gh] calls are recorded by Python: {error}")
        return
    node, numbers = hooks.tape
    native.setup(
        state=state,
        flags=flags,
        defaults=Default,
        watchers=watchers,
        timers=timers,
        clock_ns=perf_counter_ns,
        slow=run,
        learn=learn,
        run_rules=run_rules,
        numbers=numbers,
        dtype=DType,
        tensor=hooks.tensor_class,
        lazy=Lazy,
        node=node,
    )
    Door.native = native
    set_limits(record.MAX_PENDING, record.MAX_HELD_BYTES)
    use(native.run, native.pull, native.compose, native.needed, native.forget)


def set_limits(pending: int, held_bytes: int) -> None:
    """Cut recordings at so many nodes, and bytes of arrays from outside."""
    record.MAX_PENDING, record.MAX_HELD_BYTES = pending, held_bytes
    if Door.native is not None:
        Door.native.limits(pending, held_bytes)


def use(run, pull, compose, needed, forget) -> None:
    hooks.run, hooks.pull, hooks.compose = run, pull, compose
    record.InC.needed, record.InC.forget = needed, forget


@contextmanager
def in_python():
    """Inside, calls are recorded by Python alone: the slow twin."""
    nested = Door.native is not None and hooks.run is run
    use(run, None, run_composed, None, None)
    try:
        yield
    finally:
        if Door.native is not None and not nested:
            native = Door.native
            use(native.run, native.pull, native.compose, native.needed, native.forget)


def call_again(again: tuple) -> Call:
    """The call that one of `Seen.again` is, with its cost."""
    _, _, out, _, primitive, specs, attrs, _ = again
    return call_of(primitive, specs, attrs, out)


class Template(NamedTuple):
    """The calls that a rule makes, and where its cotangents are. Place i is the result of call i,
    place -1 - i the i-th payload that is given: the cotangent, the result, the operands."""

    calls: tuple  # as `Seen.again` gives them
    places: tuple[int, ...]  # of the cotangents
    parents: tuple[int, ...]  # whose they are, as numbers of operands
    specs: tuple


class Composition(NamedTuple):
    """The calls that a composed function makes, and where its results are: (place, whether it is
    tracked); place -1 - i is the i-th tensor among the arguments."""

    calls: tuple
    results: tuple[tuple[int, bool], ...]
    single: bool  # one result, not a tuple


class Seen(Watcher):
    """The calls that pass the door in this thread while something runs, so as to be made again."""

    wants_begin = False

    def __init__(self, backend, given):
        self.backend, self.calls = backend, []
        self.places = {id(x): -1 - i for i, x in enumerate(given) if x is not None}
        self.on_tape: dict[tuple[int, int], int] = {}
        self.pending, self.begin = backend.recorder.pending, len(backend.recorder.pending)
        self.thread, self.sound = get_ident(), True

    def op(self, primitive, specs, attrs, out, result, begin_ns):
        if get_ident() != self.thread:
            return
        if primitive.num_outputs != 1 or primitive.kind == "random" or primitive.name in INDEXED:
            self.sound = False
            return
        data, node = result.payload, result.node
        self.calls.append((primitive, tuple(specs), attrs, out, data, node))

    def is_whole(self) -> bool:
        """Whether all that was recorded is known, and nothing was computed meanwhile."""
        made = self.pending[self.begin :]
        return (
            self.sound
            and self.backend.recorder.pending is self.pending
            and len(made) == len(self.calls)
            and all(x is call[4] for x, call in zip(made, self.calls))
        )

    def again(self, scalar: bytes | None = None) -> tuple:
        """The calls as native/replay.c makes them: (signature, places, spec, scalar, primitive,
        specs, attrs, about the tape). `scalar` is the one that varies.

        Raises: KeyError for an operand that is not given, such as a constant.
        """
        made = []
        for number, (primitive, specs, attrs, spec, data, node) in enumerate(self.calls):
            places = tuple(self.places[id(x)] for x in data.inputs)
            packed = ... if scalar is not None and data.scalar == scalar else data.scalar
            known = remember(self.backend.known, (data.signature, specs), {})
            about = None if node is None else self.about(node, known)
            made.append((data.signature, places, spec, packed, primitive, specs, attrs, about))
            self.places.setdefault(id(data), number)
            if node is not None:
                self.on_tape[id(node), 0] = number
        if not self.is_whole():  # a finalizer evaluated meanwhile: operands are forgotten
            raise KeyError
        return tuple(made)

    def place_of(self, x, tensors) -> tuple[int, bool]:
        """Where a result is, and whether it is on the tape.

        Raises: KeyError, AttributeError
        """
        for i, given in enumerate(tensors):
            if x is given:
                return -1 - i, False
        place = self.places[id(x.payload)]
        tracked = x.node is not None
        if place < 0 or x.mode is not None or tracked and x.node is not self.calls[place][5]:
            raise KeyError
        return place, tracked

    def about(self, node, known: dict) -> tuple:
        """(parents, saved, whether the result is kept, templates of the rules, which operands are
        tracked) of a place on the tape."""
        parents = tuple(None if x is None else self.on_tape[id(x[0]), x[1]] for x in node.parents)
        saved = tuple(None if x is None else self.places[id(x)] for x in node.saved)
        mask = sum(1 << i for i, x in enumerate(parents) if x is not None)
        return parents, saved, node.saved_out[0] is not None, known, mask


def run_rules(node, g, given, key) -> list:
    """[(parent, cotangent)] by the card's rules, whose calls are known from now on; where they
    cannot be (a rule makes a constant, or has a value computed), an empty template says so."""
    with seeing(Seen(node.backend, given)) as seen:
        pulled = node.pull([g], False)
    node.known[key] = template_of(node, pulled, seen) or ()
    return pulled


def template_of(node, pulled, seen: Seen) -> Template | None:
    """What the rules of a call did, to be done again; None if it cannot be."""
    got = {id(parent): cotangent for parent, cotangent in pulled}
    found = [(i, got[id(x)]) for i, x in enumerate(node.parents) if x and id(x) in got]
    if not seen.is_whole():
        return None
    try:
        calls = seen.again()
        places = tuple(seen.places[id(c.payload)] for _, c in found)
    except KeyError:
        return None
    return Template(calls, places, tuple(i for i, _ in found), tuple(c.spec for _, c in found))


@contextmanager
def seeing(seen: Seen):
    """Inside, `seen` is told."""
    watchers.append(seen)
    try:
        yield seen
    finally:
        watchers.remove(seen)


def learn(fn, args, named, backend, key, tensors, scalar):
    """fn(*args, **named), for the first time with such arguments."""
    given = [x.payload for x in tensors]
    with seeing(Seen(backend, given)) as seen:
        result = fn(*args, **named)
    untouched = all(x.payload is data for x, data in zip(tensors, given))
    made = composition(seen, tensors, scalar, result) if untouched else None
    remember(backend.known, key, made)
    return result


def remember(known: dict, key, value):
    """What is known by the key from now on. Where there is too much, all is forgotten first: it is
    of sizes that never come again, as a rule."""
    if len(known) >= MOST_KNOWN:
        known.clear()
    return known.setdefault(key, value)


def composition(seen: Seen, tensors, scalar, result) -> Composition | None:
    """What a composed function did, to be done again; None if it cannot be."""
    if not seen.is_whole() or len(seen.calls) > MOST_CALLS:
        return None
    single = not isinstance(result, tuple)
    for i, x in enumerate(tensors):
        if x.node is not None:
            seen.on_tape[id(x.node), x.slot] = -1 - i
    try:
        calls = seen.again(scalar)
        results = tuple(seen.place_of(x, tensors) for x in ((result,) if single else result))
    except (KeyError, AttributeError):
        return None
    if scalar is not None and sum(call[3] is ... for call in calls) != 1:
        return None
    return Composition(calls, results, single)
