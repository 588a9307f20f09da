"""Calls of captured functions that no entry answers: captured, or run as plain Python."""

import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from types import CodeType
from typing import Any, NamedTuple

from glasshouse.base.errors import AnomalyError, raised_at
from glasshouse.base.interrupts import hold, release
from glasshouse.capture.bytecode.instructions import GENERATORS, original_of
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.emit.break_continuation import identity
from glasshouse.capture.emit.resume_calls import resume_function
from glasshouse.capture.frames.frame import CaptureFrame
from glasshouse.capture.fronts.glasshouse_front import GlasshouseFront
from glasshouse.capture.fronts.registry import front_for
from glasshouse.capture.guards.class_reads import UnchangedCheck
from glasshouse.capture.guards.program import (
    Guard,
    OutcomeCheck,
    WeakLink,
    brief,
    read_source,
    referent,
)
from glasshouse.capture.guards.reasons import change_of, reason_of
from glasshouse.capture.rules.opcodes import unknown_operation
from glasshouse.capture.sessions.config import config, counters
from glasshouse.capture.sessions.entries import EntryInfo, counts_for, entries_of, link_to, owner_of
from glasshouse.capture.sessions.session import CaptureSession
from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.values.plain import compares_itself, looks_up_itself
from glasshouse.capture.values.var import NULL, Var, varying_name
from glasshouse.compile.programs.new_sizes import NewSizes
from glasshouse.dispatch.watch import TRACING, tell
from glasshouse.profile.captured import captures

EVERYBODY = "every object"  # in place of the object whose entries are full
RESULTS = "the results that Python computes", "of the captured graph"  # see on_internal_error
# Entries that differ in sizes of tensors, or in lengths, that are captured when they are first met.
SIZES_AT_ONCE, LENGTHS_AT_ONCE = 3, 2
ENTRIES_WITHOUT_OPERATIONS = 4  # after so many, a function without operations is left to Python
MOST_OBJECTS = 16  # the limit for all objects, as a multiple of the limit for one


class Capture:
    """One use of `optimize`: the compiler, the entries of all functions, breaks and recompiles."""

    instances: "list[Capture] | None" = None  # gets every Capture, if it is a list
    name: str = "captured"
    place: tuple[str, int] = "", 0  # file and first line of the function

    def __init__(
        self, compiler: Any, front: "GlasshouseFront", nopython: bool = False, dynamic: bool = False
    ) -> None:
        if Capture.instances is not None:
            Capture.instances.append(self)
        self.compiler = compiler
        self.front = front
        self.nopython = nopython
        self.dynamic = dynamic
        self.exporting = False
        self.resumes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.noted: list[weakref.ref[EntryInfo]] = []
        self.breaks: list[tuple[str, str, str]] = []  # (where, reason, hint)
        self.recompiles: list[tuple[str, str, str, str]] = []
        self.varying: set[str] = set()
        self.doubts: Counter[tuple[Any, ...]] = Counter()  # see Assumptions
        self.reproductions: set[str] = set()  # names of functions with a script
        captures.add(self)
        self.warned: bool = False
        self.faults: set[str] = set()  # places in our source with a reported error
        self.memory_plans: list[Any] = getattr(compiler, "plans", [])  # for a memory budget

    @property
    def entries(self) -> list[EntryInfo]:
        """Descriptions of the entries that are alive, in the order in which they were captured."""
        return [info for ref in self.noted if (info := ref()) is not None]

    def dispatcher(self, fn: Any) -> Any:
        """A callable that answers calls of `fn` from entries, and captures other calls."""
        dispatcher = native().Dispatcher(fn, miss)
        dispatcher.__dict__.update(fn.__dict__)
        dispatcher.capture, dispatcher.memory_plans = self, self.memory_plans
        if not self.resumes and self.name == "captured":
            self.name = fn.__qualname__
            self.place = fn.__code__.co_filename, fn.__code__.co_firstlineno
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            dispatcher.__dict__[name] = getattr(fn, name)
        dispatcher.__wrapped__ = fn
        return dispatcher

    def on_compiler_error(self, error: Exception, stacklevel: int = 4) -> None:
        """Warn, once, that graphs run uncompiled because the compiler raised; raise the error if
        the configuration says so."""
        if config.raise_compiler_errors:
            raise error
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"capture: the compiler raised {error!r}; graphs run as they are. Set "
                "gh.capture.config.raise_compiler_errors to see where.",
                stacklevel=stacklevel,
            )

    def on_internal_error(
        self,
        error: Exception,
        file: str,
        line: int,
        where: tuple[str, ...] = ("a trace", "inside the capture"),
    ) -> None:
        """Warn, once for each place in our source, that the capture itself or one of its graphs
        failed, and Python runs the call; raise the error if the configuration says so."""
        if config.raise_internal_errors:
            raise error
        place = raised_at(error)
        if place in self.faults:
            return
        self.faults.add(place)
        warnings.warn_explicit(
            f"capture: {file}:{line}: expected {where[0]}; got an error {where[1]}, {error!r} at "
            f"{place}, so Python runs the code. Report it with the traceback that "
            "gh.capture.config.raise_internal_errors shows, or use gh.disable on the function.",
            UserWarning,
            file,
            line,
        )

    @staticmethod
    def run_again(
        capture: Callable[[], Any],
        fn: Callable[[], Any],
        slots: tuple[Any, ...],
        error: Exception | None,
    ) -> Any:
        """Call a function whose graph raised, in plain Python. If that raises nothing, the error is
        our fault. The error is None if one of the graph's checks failed; anomalies are raised."""
        if isinstance(error, AnomalyError):
            raise error
        callback = native().set_hook(None)
        try:
            result = plainly(fn(), slots)()
            if error is not None:
                code = fn().__code__
                place = code.co_filename, code.co_firstlineno
                capture().on_internal_error(error, *place, RESULTS)
            return result
        finally:
            error = None  # its traceback has frames that hold what the graph read
            native().set_hook(callback)


class Resumer(NamedTuple):
    """Makes the resume functions for captures of one front end."""

    capture: Capture
    front: FrontEnd

    def __call__(
        self,
        frame: CaptureFrame,
        code: CodeType,
        offset: int,
        shape: list[Var],
        live: frozenset[int],
        captured: bool,
    ) -> Any:
        """The resume function at an offset of a frame's code: one for all paths to it."""
        cells = frame.closure if frame.code.keeps_closure else ()
        nulls, cell_ids = tuple(x is NULL for x in shape), tuple(id(x.value) for x in cells)
        key = (id(code), offset, nulls, live, captured, id(frame.globals), cell_ids, self.front)
        resume = self.capture.resumes.get(key)
        if resume is None:
            fn = resume_function(frame, code, offset, shape, live, captured)
            native().set_skip(fn.__code__, True)  # a hook leaves it alone
            if captured:
                fn = self.capture.dispatcher(fn)
                fn.front = self.front
            resume = self.capture.resumes[key] = code, fn
        return resume[1]


def miss(dispatcher: Any, *slots: Any) -> Any:
    """Run a call that no entry answers. Signals wait while it is captured. `go_on` releases them,
    and returns the last call to make, after all values of the capture are dropped."""
    hook, code = native(), dispatcher.fn.__code__
    if dispatcher.__dict__.get("hopeless"):
        hook.set_skip(code, True)
        return plain_call(dispatcher.fn, slots)()
    hold()
    callback = hook.set_hook(None)
    try:
        go_on: Any = capture_call(dispatcher, slots, callback)
        if go_on is None:
            hook.set_skip(code, True)  # the hook must not bring it here again
            hook.set_hook(callback)
            go_on = partial(plainly, dispatcher.fn, slots)
    except BaseException:
        hook.set_hook(callback)
        release()
        raise
    try:
        go_on = go_on()
        if is_last_call(go_on) and not (callback and go_on.func is dispatcher.fn):
            return native().tail_call(go_on.func, *go_on.args)
        return go_on()  # the hook skips the function while it runs
    finally:
        go_on = None  # it may hold the error, whose traceback has this frame
        if callback is not None:
            hook.set_skip(code, False)
        hook.set_hook(callback)


def is_last_call(go_on: Any) -> bool:
    """Whether a continuation is a call that may replace the present one."""
    fn = getattr(go_on, "func", None)
    is_function = type(fn) is types.FunctionType and fn is not identity
    return (is_function or isinstance(fn, native().Dispatcher)) and not go_on.keywords


def capture_call(
    dispatcher: Any, slots: tuple[Any, ...], callback: Callable[..., Any] | None
) -> Callable[..., Any] | None:
    """Capture a call, and give its continuation; None if it is not captured."""
    capture = dispatcher.capture
    if native().get_mode() != 0:
        return None
    front: Any = dispatcher.__dict__.get("front") or front_for(dispatcher.fn, slots, capture.front)
    if front.can_trace() and may_capture(dispatcher, capture, slots):
        begin_ns = perf_counter_ns()
        try:
            return CaptureSession(dispatcher, slots, callback, Resumer(capture, front)).run()
        finally:
            tell("region", TRACING, begin_ns)
    return None


def plainly(fn: types.FunctionType, slots: tuple[Any, ...]) -> Callable[..., Any]:
    """A call of fn with the values of its slots; signals wait no longer."""
    release()
    return plain_call(fn, slots)


def plain_call(fn: types.FunctionType, slots: tuple[Any, ...]) -> Callable[..., Any]:
    """A call of fn with the values of its slots."""
    code = fn.__code__
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    has_star = bool(code.co_flags & 4)
    rest = slots[named] if has_star else ()
    words = dict(zip(code.co_varnames[count:named], slots[count:named], strict=True))
    if code.co_flags & 8:
        words |= slots[named + has_star]
    return partial(fn, *slots[:count], *rest, **words)


def may_capture(dispatcher: Any, capture: "Capture", slots: tuple[Any, ...]) -> bool:
    """Whether another entry may be made; notes why the present ones failed."""
    entries = entries_of(dispatcher)
    code = dispatcher.fn.__code__
    if code.co_flags & GENERATORS or unknown_operation(code):
        return False
    if any(looks_up_itself(type(x)) or compares_itself(x) for x in slots):
        return False
    if not entries:
        return True
    if len(entries) >= ENTRIES_WITHOUT_OPERATIONS and has_no_operations(capture, code):
        where = f"{code.co_filename}:{code.co_firstlineno}"
        capture.breaks.append(
            (where, f"{dispatcher.fn.__qualname__} has no operation on tensors: Python runs it", "")
        )
        dispatcher.hopeless = True
        return False
    owner = owner_of(slots)
    full = dispatcher.__dict__.setdefault("full", [])
    if EVERYBODY in full or owner is not None and any(referent(x) is owner for x in full):
        return False
    mine = [e for e in entries if counts_for(e, owner)]
    others = [e for e in entries if not e.info.is_bound or counts_for(e, owner)]
    if is_growing(dispatcher, others, slots):
        return False
    for entry in others:
        note_failure(capture, entry, slots)
        if original_of(code)[0] is not code:
            note_other_objects(capture, entry.info, slots)
    if len(mine) < config.cache_limit and len(entries) < config.cache_limit * MOST_OBJECTS:
        return True
    count = sum(referent(e.info.owner) is owner for e in mine)
    is_its_own = owner is not None and count and len(entries) < config.cache_limit * MOST_OBJECTS
    full[:] = [x for x in full if referent(x) is not None]
    full.append(link_to(owner) if is_its_own else EVERYBODY)
    counters.add("limits")
    is_dynamic = capture.dynamic or config.dynamic
    _, reason, old, new = capture.recompiles[-1] if capture.recompiles else ("", "?", "?", "?")
    warnings.warn(
        f"capture: {dispatcher.fn.__qualname__} has {len(mine)} entries, the limit; new kinds of "
        f"calls run uncaptured. The last guard that failed: {reason} (was {old}, is {new}). Raise "
        f"gh.capture.config.cache_limit{'' if is_dynamic else ', or pass dynamic=True'}.",
        stacklevel=4,
    )
    return False


def has_no_operations(capture: Capture, code: CodeType) -> bool:
    """Whether no part of a function that was captured has an operation: plain Python runs it."""
    root = original_of(code)[0]
    return not any(info.operations for info in capture.entries if info.root is root)


def is_growing(dispatcher: Any, entries: list[Any], slots: tuple[Any, ...]) -> bool:
    """Whether plain Python runs a call because several entries differ from it in sizes of tensors
    or lengths alone, as in a loop whose tensors grow: such sizes are captured where they come again
    and again."""
    failures = [x for entry in entries if (x := failed_size(entry, slots)) is not None]
    if not failures:
        return False
    at_once = LENGTHS_AT_ONCE if type(failures[0][1]) is int else SIZES_AT_ONCE
    sizes = dispatcher.__dict__.setdefault("sizes", NewSizes(at_once))
    sizes.compiled = len(failures)
    return len(failures) >= at_once and not sizes.is_due(failures[0])


def failed_size(entry: Any, slots: tuple[Any, ...]) -> tuple[str, int | tuple[Any, ...]] | None:
    """The place and the new size where the first guard that fails for a call is one on the sizes of
    a tensor or the length of a container; None for other guards."""
    failed = entry.check(slots)
    guard = entry.info.about[failed] if failed >= 0 else None
    if guard is None or guard.kind not in ("call", "spec", "len"):
        return None
    old, new = guard.value, value_at(guard, slots)
    if guard.kind == "len":
        return (guard.source.text, len(new)) if hasattr(new, "__len__") else None
    if guard.kind == "spec":
        is_same_kind = getattr(new, "dtype", None) == old.dtype
        return (guard.source.text, new.shape) if is_same_kind else None
    differs = getattr(old, "differs_in_sizes", None)
    return (guard.source.text, tuple(new.shape)) if differs and differs(new) else None


def note_failure(capture: "Capture", entry: Any, slots: tuple[Any, ...]) -> None:
    """Log which guard of an entry failed, and let the numbers that changed vary from now on."""
    info, failed = entry.info, entry.check(slots)
    if failed < 0:
        return
    guard = info.about[failed]
    new = value_at(guard, slots)
    old = referent(guard.value)
    if guard.kind == "kind":
        old, new = ("None", "a tensor", "other")[old[2]], new.get(old[0])
    if isinstance(old, OutcomeCheck):
        new, old = False, True
    if isinstance(old, UnchangedCheck):
        new, old = old.changes(), "unchanged"
    change = change_of(brief(old), brief(type(new) if guard.kind == "type" else new))
    line = (info.name, reason_of(guard), *change)
    if line not in capture.recompiles:
        capture.recompiles.append(line)
        counters.add("recompiles")
        if config.print_recompiles:
            changed = f"{line[1]} failed; was {line[2]}, is {line[3]}"
            print(f"[capture] {info.name} is captured again: {changed}")
    for other in info.guards:
        if other.kind == "eq" and type(other.value) in (int, float):
            now = value_at(other, slots)
            if type(now) is type(other.value) and now != other.value:
                capture.varying.add(other.source.text)
        elif other.kind == "spec":
            now = value_at(other, slots)
            sizes, shape = other.value.shape, getattr(now, "shape", ())
            if len(sizes) == len(shape):
                name = other.source.text.removesuffix(".spec")
                pairs = enumerate(zip(sizes, shape, strict=True))
                capture.varying |= {f"{name}.shape[{i}]" for i, (a, b) in pairs if a != b}


def note_other_objects(capture: "Capture", info: EntryInfo, slots: tuple[Any, ...]) -> None:
    """Note modules and weights of a resume function that are others now: each call makes new ones,
    so from now on the graph takes their tensors as inputs."""
    for guard in info.guards:
        is_identity = guard.kind == "is" and type(guard.value) is WeakLink
        if is_identity and value_at(guard, slots) is not guard.value():
            capture.varying.add(varying_name(guard.source))


def value_at(guard: Guard, slots: tuple[Any, ...]) -> Any:
    """The value where a guard looks, or the error that looking raises."""
    try:
        return read_source(guard.source, slots)
    except Exception as error:
        return error.with_traceback(None)  # the traceback holds our frames and their values
