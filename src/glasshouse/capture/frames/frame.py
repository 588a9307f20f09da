"""Frames of the interpreter, and iterators that it steps itself."""

import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import GENERATORS, ExceptionHandler, decoded
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import cut_traceback, set_error_part
from glasshouse.capture.bytecode.versions import bytecode
from glasshouse.capture.frames.generator_remainder import error_thrown, going_on
from glasshouse.capture.frames.iterator_places import (
    choices_from,
    iterator_at,
    iterator_of,
    length_of,
    reversed_at,
)
from glasshouse.capture.frames.polyfill_natives import PASSES_ON, ended_native, native_of
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.plain import is_trusted
from glasshouse.capture.values.var import NULL, CannotRebuild, Recipe, Var, computed

if TYPE_CHECKING:
    from glasshouse.capture.bytecode.instructions import DecodedCode
    from glasshouse.capture.trace.tracer import CaptureTracer


END = Var("end")  # what a finished iterator gives
SIZED: tuple[Any, ...] = (dict, set, frozenset, *map(type, ({}.keys(), {}.values(), {}.items())))


class LastInstruction(Var):
    """The number of the instruction that raised, for a handler that raises again."""

    __slots__ = ()


class CaptureFrame:
    """One function being interpreted.

    `then(tracer, result)` gets the result if that is not pushed onto the caller's stack. `init` is
    the object whose __init__ this is. `scope` has the caller's scope and pass, and the context
    (function, argument) that the frame runs in. `at` is the running instruction,
    `saved` the stack before it."""

    __slots__ = ("root", "code", "locals", "stack", "ip", "at", "saved", "globals", "kw_names",
                 "then", "init", "generator", "scope", "trusted", "handled")  # fmt: skip

    def __init__(self, code: types.CodeType, names: dict[Any, Any], count: int) -> None:
        self.root: types.CodeType = code
        self.code: DecodedCode = decoded(code)
        self.locals: list[Var | None] = [None] * count
        self.stack: list[Var] = []
        self.saved: list[Var] = []
        self.ip: int = 0
        self.at: int = 0
        self.globals: dict[Any, Any] = names
        self.kw_names: tuple[Any, ...] = ()
        self.then: Any = None
        self.init: Any = None
        self.generator: Any = None
        self.scope: Any = None
        self.trusted: bool = is_trusted(names.get("__name__", ""))
        self.handled: list[Any] = []  # exceptions that are being handled, innermost last

    @property
    def closure(self) -> list[Any]:
        """The free variables' cells."""
        return self.locals[len(self.locals) - len(self.root.co_freevars) :]

    @property
    def line(self) -> int:
        """The user's line."""
        return self.code.instructions[self.at].line

    @property
    def where(self) -> str:
        return f"{self.root.co_filename}:{self.line}"

    def let_go(self) -> None:
        """Clear the frame of a generator that ended with an error: its handlers would keep alive
        the frames of the error's traceback."""
        for items in (self.stack, self.saved, self.handled):
            items.clear()

    def pop_many(self, count: int) -> list[Var]:
        """Take the last values from the stack, the deepest first."""
        depth = len(self.stack) - count
        if depth < 0:
            raise IndexError(f"{self.where}: expected {count} stacked; got {count + depth}")
        popped = self.stack[depth:]
        del self.stack[depth:]
        return popped

    def check_stack(self) -> None:
        """Check the number of items on the stack, which a resume function relies on.

        Raises: CannotRebuild
        """
        if self.root.co_flags & GENERATORS:  # dis does not count the instruction that begins one
            return
        if len(self.saved) != self.code.depth_at(self.at):
            raise CannotRebuild(f"a stack that does not fit ({self.where})")

    def stack_for(self, handler: ExceptionHandler) -> list[Var]:
        """The stack below the exception when a handler takes over."""
        below = self.saved[: handler.depth]
        raised_at = self.code.instructions[self.at].offset // 2
        return [*below, LastInstruction(raised_at)] if handler.lasti else below


class CapturedIterator:
    """An iterator over Vars that are known."""

    def step(self, tracer: "CaptureTracer") -> Var:
        """The next Var, or END."""
        raise NotImplementedError

    def place(self) -> list[tuple[Any, ...]]:
        """(iterator, attribute, present value) of all that a step changes."""
        raise NotImplementedError

    def recipe(self) -> tuple[Any, ...]:
        """(function, Vars) whose call gives Python's own iterator at the same place."""
        raise NotImplementedError

    def native(self) -> Any:
        """Python's own iterator at the same place."""
        fn, *parts = self.recipe()
        return fn(*map(plain_value, parts))


class SequenceIterator(CapturedIterator):
    """Over a list, tuple, range or string as it changes, or over a snapshot of a dict or set."""

    def __init__(self, base: Var, snapshot: list[Var] | None = None) -> None:
        self.base = base
        self.snapshot = snapshot
        self.index: int = 0
        self.mapping, self.which = mapping_of(base)
        self.real: Any = None if self.mapping is None else iter(self.mapping.value)
        self.size: int = len(base.value) if isinstance(base.value, SIZED) else -1

    def step(self, tracer: "CaptureTracer") -> Any:
        if self.size >= 0 and len(self.base.value) != self.size:
            kind = "Set" if isinstance(self.base.value, set) else "dictionary"
            tracer.fail_here(RuntimeError(f"{kind} changed size during iteration"))
        if self.real is not None and self.mapping is not None:
            return self.step_mapping(tracer, self.mapping)
        if self.snapshot is None and type(self.base.value) in (range, str, bytes):
            return self.step_concrete(tracer.concretize(self.base))
        items = tracer.sequence(self.base) if self.snapshot is None else self.snapshot
        if self.index >= len(items):
            self.index = max(self.index, 1 << 40)  # stays finished if the list grows
            return END
        self.index += 1
        return items[self.index - 1]

    def step_mapping(self, tracer: "CaptureTracer", mapping: Var) -> Any:
        """The next item of a dict or of a view of one, by Python's own iterator."""
        if self.index > self.base_end:
            return END
        key = problem = None
        try:
            key = next(self.real, END)
        except RuntimeError as error:
            problem = error
        if problem is not None:
            tracer.fail_here(problem)
        if key is END:
            self.index = self.base_end + 1
            return END
        self.index += 1
        items = mapping.items or {}
        pair = items.get(key) or (Var(key), Var(dict.__getitem__(mapping.value, key)))
        if self.which == "items":
            return tracer.heap.new_tuple([pair[0], pair[1]])
        return pair[self.which == "values"]

    def step_concrete(self, values: Any) -> Var:
        """The next item of a range or text, which may be of any length."""
        if self.index > self.base_end or not values[self.index : self.index + 1]:
            self.index = self.base_end + 1
            return END
        self.index += 1
        return computed(values[self.index - 1], ())  # a range makes its numbers

    base_end: int = sys.maxsize - 1  # an index beyond it: the iterator has ended

    def place(self) -> list[Any]:
        return [(self, "index", self.index)]

    def recipe(self) -> tuple[Any, ...]:
        if self.size >= 0:
            return iterator_of, self.base, Var(self.index), Var(self.size)
        base = self.base
        if self.snapshot is not None:
            base = Var([plain_value(x) for x in self.snapshot], Recipe("list"), self.snapshot)
        size = length_of(base.value)
        return iterator_at, base, Var(size + 1 if self.index > size + 1 else self.index)


def mapping_of(base: Var) -> tuple[Var | None, str]:
    """The dict that a Var is, or is a view of, and which part: keys, values or items."""
    which = "keys"
    if base.is_made("view"):
        base, which = base.origin.parts
    kind = type(base.value)
    plain = isinstance(base.value, dict) and kind.__iter__ in (dict.__iter__, OrderedDict.__iter__)
    return (base if plain else None), which


class ReversedIterator(SequenceIterator):
    """Like reversed, which fixes the place of the last item when it is made."""

    def __init__(self, base: Var, snapshot: list[Var]) -> None:
        super().__init__(base, snapshot)
        self.real: Any = None
        self.count: int = len(base.value)

    def step(self, tracer: "CaptureTracer") -> Var:
        if type(self.base.value) is not list:
            return super().step(tracer)
        place, items = self.count - 1 - self.index, tracer.sequence(self.base)
        if not 0 <= place < len(items):
            self.index: int = max(self.index, 1 << 40)  # stays finished if the list grows
            return END
        self.index += 1
        return items[place]

    def recipe(self) -> tuple[Any, ...]:
        if type(self.base.value) is list:
            changed = self.index or len(self.base.value) != self.count
            place = max(self.count - 1 - self.index, -1)
            return (reversed_at, self.base, Var(place)) if changed else (reversed, self.base)
        return super().recipe() if self.index else (reversed, self.base)


class ChoicesIterator(SequenceIterator):
    """Like permutations and combinations: fn(items, *parts)."""

    def __init__(self, fn: Any, items: Var, parts: list[Var], choices: list[Var]) -> None:
        super().__init__(items, choices)
        self.fn = fn
        self.parts = parts
        self.real: Any = None

    def recipe(self) -> Any:
        number = min(self.index, len(self.snapshot or ()) + 1)
        return choices_from, Var(number), Var(self.fn), self.base, *self.parts


class EnumerateIterator(CapturedIterator):
    """Like enumerate."""

    def __init__(self, inner: Var, number: int) -> None:
        self.inner = inner
        self.number: int = number

    def step(self, tracer: "CaptureTracer") -> Var:
        x = self.inner.value.step(tracer)
        if x is END:
            return END
        number = computed(self.number, ())
        self.number += 1
        return tracer.heap.new_tuple([number, x])

    def place(self) -> list[Any]:
        return [*self.inner.value.place(), (self, "number", self.number)]

    def recipe(self) -> tuple[Any, ...]:
        return enumerate, self.inner, Var(self.number)


class ZipIterator(CapturedIterator):
    """Like zip."""

    def __init__(self, inners: list[Var]) -> None:
        self.inners = inners

    def step(self, tracer: "CaptureTracer") -> Var:
        row = []
        for inner in self.inners:
            x = inner.value.step(tracer)
            if x is END:
                return END
            row.append(x)
        return tracer.heap.new_tuple(row) if row else END

    def place(self) -> Any:
        return [part for inner in self.inners for part in inner.value.place()]

    def recipe(self) -> tuple[Any, ...]:
        return zip, *self.inners


def plain_value(var: Var) -> Any:
    """The value; Python's own iterator in place of one of ours."""
    if var.is_made("method") and isinstance(var.origin.parts[1], str):
        this = var.origin.parts[0]
        if isinstance(this.value, (CapturedIterator, CapturedGenerator)):
            return getattr(plain_value(this), var.origin.parts[1])
    value = var.value
    if isinstance(value, (CapturedIterator, CapturedGenerator)):
        return value.native()
    if type(value) is tuple and isinstance(var.items, list) and any(map(is_own, value)):
        return tuple([plain_value(x) if isinstance(x, Var) else x for x in var.items])
    return value


def is_own(value: Any) -> bool:
    """Whether a value is one of our iterators or generators."""
    return isinstance(value, (CapturedIterator, CapturedGenerator))


def holds_own(value: Any) -> bool:
    """Whether a value is one of our iterators or generators, or a tuple with one in it."""
    return is_own(value) or type(value) is tuple and any(map(holds_own, value))


def type_of(value: Any) -> type[Any]:
    """The type of a value in plain Python; for our iterators and generators Python's own type."""
    if isinstance(value, CapturedGenerator):
        return value.kind
    return type(value.native()) if isinstance(value, CapturedIterator) else type(value)


def zip_iterators(var: Var) -> list[Any]:
    """The iterators that a `zip` draws from, as Python's own."""
    value = var.value
    if isinstance(value, ZipIterator):
        return [plain_value(x) for x in value.inners]
    if isinstance(value, CapturedGenerator):
        names = value.frame.code.slots
        inners: Any = value.frame.locals[names.index("iterators")]  # set as it began
        return [plain_value(x) for x in inners.items or map(Var, inners.value)]
    return value.__reduce__()[1]


def may_go_on(generator: "CapturedGenerator | None") -> bool:
    """Whether a generator may continue after an error: a polyfill does, as its builtin does."""
    return generator is not None and generator.is_polyfill


class NativeLocals:
    """The values of locals by name, with Python's own iterators. They are made on demand, since an
    item may contain itself."""

    def __init__(self, slots: Any) -> None:
        self.slots: dict[Any, Any] = {name: var for name, var in slots if var is not None}

    def __getitem__(self, name: str) -> Any:
        var = self.slots[name]
        if isinstance(var.value, list) and name == "iterators":
            return [plain_value(x) for x in var.items or map(Var, var.value)]
        return plain_value(var)


class CapturedGenerator:
    """A generator that the interpreter runs; used as a Python object it runs untraced."""

    running: bool
    finished: bool

    def __init__(
        self,
        frame: CaptureFrame,
        site: tuple[Any, ...],
        make_tracer: Callable[..., Any],
        make_native: Callable[..., Any],
    ) -> None:
        self.frame = frame
        self.site = site
        self.make_tracer = make_tracer
        self.make_native = make_native
        self.started: bool = False
        self.kind: type[Any] = types.GeneratorType
        self.finished = self.running = self.closing = False
        self.last: Var | None = None  # the end value of the iterator that it drew from last
        self.remainder: Any = None  # Python's own iterator for the rest of a polyfill
        self.failed: bool = False  # whether it has raised: a polyfill may continue
        self.failed_stack: list[Var] | None = None  # before a handler cleared the stack
        self.is_kept = True  # whether only a loop or the library holds it
        self.then: Any = None  # receives the values while it runs
        self.rest: weakref.ref[Any] | None = None  # Python's own generator for the rest

    def stop(self, finished: bool = False) -> Any:
        """Stop at a yield or the end, and return the receiver of the value. Its frame no longer
        refers to it, so that it ends with its last reference, as in Python."""
        then, self.then = self.then, None
        self.frame.generator, self.running = None, False
        self.finished = finished
        return then

    def result(self, returned: Var) -> Var:
        """The Var that it ends with; a polyfill ends as its builtin does."""
        passes_on = self.frame.root in PASSES_ON
        return self.last if passes_on and self.last is not None else returned

    def stop_failed(self) -> Any:
        """End it with an error, and return the receiver. A polyfill may continue afterwards."""
        then = self.stop(finished=True)
        self.failed = may_go_on(self)
        if not self.failed:
            self.frame.let_go()
        return then

    def native(self) -> Any:
        """Python's own generator, for the rest if some of it has run."""
        if not self.started:
            return self.make_native()
        if self.finished and not self.failed and (ended := ended_native(self.frame.root)):
            return ended
        if self.is_polyfill and not self.running:
            if self.remainder is None:
                self.remainder = self.native_polyfill()
            if self.remainder is not None:
                return self.remainder
        generator: Any = self.rest and self.rest()
        if generator is None:
            generator = going_on(self)
            next(generator)
            generator.__name__ = self.frame.root.co_name
            generator.__qualname__ = self.frame.root.co_qualname
            self.rest = weakref.ref(generator)
        return generator

    @property
    def is_open(self) -> bool:
        """Whether it stands at a `yield`."""
        return self.started and not (self.running or self.finished)

    @property
    def is_polyfill(self) -> bool:
        """Whether it replaces an iterator written in C."""
        return self.kind is not types.GeneratorType

    gi_code: Any = property(lambda self: self.frame.root)
    gi_running: Any = property(lambda self: self.running)
    gi_suspended = is_open

    def native_polyfill(self) -> Any:
        """Python's own iterator for the rest of a polyfill; None if there is none."""
        frame = self.frame
        at = NativeLocals(zip(frame.code.slots, frame.locals, strict=True))
        zips = frame.root.co_name in ("map_of", "compress_of")
        stack = self.failed_stack if self.failed and self.failed_stack else frame.stack
        loop = [zip_iterators(x) if zips else plain_value(x) for x in stack if x is not NULL]
        return native_of(frame.root, at, loop)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """The next value."""
        return self.drive(Var(value), None)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        """Raise inside."""
        error = error_thrown(kind, value, trace) if value or trace else error_thrown(kind)
        set_error_part(error, "__traceback__", trace)
        try:
            return self.drive(Var(None), error)
        finally:
            del error, kind  # its traceback has this frame

    def drive(self, sent: Var, error: Any) -> Any:
        """The next value. An error that is raised instead is in no reference cycle with a frame."""
        try:
            return self.make_tracer().drive(self, sent, error)
        except BaseException as raised:
            cut_traceback(raised)
            native().raise_again(raised)
        finally:
            del error

    def __del__(self) -> None:
        continues = self.remainder is not None  # Python's own iterator draws from the same source
        if self.started and not (self.finished or self.running or continues):
            self.close()

    def close(self) -> Any:
        """End it."""
        if self.finished or not self.started:
            self.finished = True
            return None
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration) as error:
            set_error_part(error, "__traceback__", None)  # it holds our frames, they hold it
            if isinstance(error, StopIteration) and bytecode.close_gives_value:
                return error.value
        return None
