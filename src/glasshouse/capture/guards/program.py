"""Guards: conditions of a trace, as a program that C checks and that prints as Python."""

import re
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base.errors import type_name
from glasshouse.capture.values.plain import FUNCTIONS, SCALARS, is_heap, is_library
from glasshouse.capture.values.var import STEPS, ValueSource

if TYPE_CHECKING:
    from glasshouse.capture.sessions.entries import EntryRemover


# As in native/frame_hook.c.
READ = {"slot": 0, "const": 1, "dict": 2, "get": 3, "item": 4, "cell": 5, "attr": 6, "type": 7,
        "lookup": 8, "handled": 11}  # fmt: skip
TAG, SETTAG = 9, 10
CHECK = {"is": 20, "type": 21, "eq": 22, "len": 23, "absent": 24, "keys": 25, "same": 26,
         "distinct": 27, "call": 28, "spec": 29, "kind": 30, "lacks": 31,
         "unhooked": 34, "code": 35, "native": 36}  # fmt: skip
WEAK = {"is": 32, "type": 33}  # the same of a WeakLink
OF_DICT = {"absent", "kind", "keys"}
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
MAX_SAID = 4  # nested containers in the text of a value
WITHIN_TAG = {"is", "type", "eq", "spec"}  # checks on a dict's value that its tag covers
HEAP_TYPE = 1 << 9  # flag of classes that are not written in C alone (Include/object.h)


class WeakLink(weakref.ref[Any]):
    """A weak reference: a guard's to its value, or a dispatcher's to an entry."""


class Guard(NamedTuple):
    """One condition on the value at `source`; a WeakLink stands for its referent. `line` is the
    user's line that relied on it: (file, number)."""

    kind: str
    source: ValueSource
    value: Any
    line: tuple[str, int] | None = None

    def __str__(self) -> str:
        x, v = self.source.text, referent(self.value)
        if self.kind == "kind":
            name, cls, number = v
            what = ("is None", f"is a {cls.__name__}", "is something else")[number]
            return f"{x}[{name!r}] {what}"
        texts = {
            "is": f"{x} is {brief(v)}",
            "type": f"type({x}) is {brief(v)}",
            "eq": f"{x} == {repr(v) if says_itself(v) else brief(v)}",
            "len": f"len({x}) == {v}",
            "absent": f"{v!r} not in {x}",
            "same": f"{x} is {v}",
            "keys": f"list({x}) == {brief(v)}",
            "distinct": f"{x} is not {v}",
            "lacks": f"{x} has no {v!r}",
            "call": v.text if isinstance(v, OutcomeCheck) else f"{brief(v)} holds for {x}",
            "spec": f"{x} == {v}",
            "unhooked": f"{x} has no hooks",
            "code": f"{x}.__code__ is {brief(v)}",
            "read": f"{x} exists",
        }
        return texts[self.kind]


class GuardCheck:
    """A guard by a function: test(value, expected) must be true. `text` describes it."""

    def __init__(self, test: Callable[..., Any], expected: Any, text: str) -> None:
        self.test = test
        self.expected = expected
        self.words = text

    @property
    def text(self) -> str:
        return self.words

    def __call__(self, value: Any) -> bool:
        return self.test(value, self.expected)

    def __repr__(self) -> str:
        return self.text


class FinalCheck(GuardCheck):
    """A guard that is checked after all others, since the check has an effect."""


class OutcomeCheck(GuardCheck):
    """A guard on the outcome of an expression of the value; its text says it in full."""


def referent(value: Any) -> Any:
    """The value of a guard."""
    return value() if type(value) is WeakLink else value


def weaken(guard: Guard, gone: "EntryRemover") -> Guard:
    """A guard that does not keep its value alive, if possible. `gone` is called when the value
    dies, since the guard never holds again."""
    if guard.kind not in WEAK:
        return guard
    try:
        return guard._replace(value=WeakLink(guard.value, gone))
    except TypeError:  # a number, a tuple, …
        return guard


def without_address(text: str) -> str:
    """The text of a value without its address in memory."""
    return ADDRESS.sub("", text)


def brief(x: Any) -> str:
    """A value in one line, without its address in memory."""
    if isinstance(x, (type, types.FunctionType)):
        return x.__qualname__
    try:
        text = repr(x) if says_itself(x) else ""
    except Exception:  # a tensor that a transform has split up says nothing
        text = ""
    text = without_address(text)
    return text if 0 < len(text) < 60 else f"<{type_name(x)}>"


def says_itself(x: Any, depth: int = 0) -> bool:
    """Whether repr of a value is short and runs no user code."""
    kind, inside = type(x), None
    if kind is dict:
        inside = (*x.keys(), *x.values())
    elif kind in (list, tuple, set, frozenset):
        inside = x
    elif issubclass(kind, BaseException) and not is_heap(kind):
        inside = x.args
    if inside is not None:
        return depth < MAX_SAID and all(says_itself(y, depth + 1) for y in inside)
    return kind in (*SCALARS, *FUNCTIONS, range) or is_library(kind)


class GuardCompiler:
    """Lays out guards as a program: parents before children, a dict's entries together."""

    def __init__(self, guards: list[Guard], read: list[ValueSource]) -> None:
        self.ops: list[list[Any]] = []
        self.about: list[Guard | None] = []
        self.register: dict[ValueSource, int] = {}
        self.children: dict[ValueSource, dict[ValueSource, None]] = {}
        self.checks: dict[ValueSource, list[Guard]] = {}
        self.late: list[Guard] = []  # between two sources, or with an effect
        self.roots: dict[ValueSource, None] = {}
        for guard in guards:
            self.need(guard.source)
            if guard.kind in ("same", "distinct"):
                self.need(guard.value)
                self.late.append(guard)
            elif guard.kind == "call" and isinstance(guard.value, FinalCheck):
                self.late.append(guard)
            else:
                self.checks.setdefault(guard.source, []).append(guard)
        for source in read:  # the replacement reads these
            self.need(source)
        for root in self.roots:
            self.read(root)
            self.inside(root)
        for guard in sorted(self.late, key=lambda guard: guard.kind == "call"):
            self.check(guard, 0 if guard.kind == "call" else self.register[guard.value])

    def need(self, source: ValueSource) -> None:
        """Note that a source is read, and all sources on the path to it."""
        while source.base is not None:
            children = self.children.setdefault(source.base, {})
            if source in children:
                return
            children[source] = None
            source = source.base
        self.roots[source] = None

    def read(self, source: ValueSource) -> None:
        """Add the operation that puts a source into a register."""
        register = self.register[source] = len(self.register)
        base = -1 if source.base is None else self.register[source.base]
        number = source.key if source.kind in ("slot", "item") else 0
        key = None if source.kind in ("slot", "item") else source.key
        self.ops.append([READ[source.kind], register, base, number, key, 0])
        self.about.append(Guard("read", source, None))

    def check(self, guard: Guard, number: int = 0) -> None:
        """Add the operation of one guard."""
        key: Any = guard.value
        if guard.kind == "len":
            number = guard.value
        elif guard.kind == "kind":
            name, cls, number = guard.value
            key = (name, cls)
        elif guard.kind in ("same", "distinct"):
            key = None
        kind = guard.kind
        if kind == "call" and getattr(key, "native", None) is not None:
            kind, key = "native", key.native
        kinds = WEAK if type(key) is WeakLink else CHECK
        self.ops.append([kinds[kind], 0, self.register[guard.source], number, key, 0])
        self.about.append(guard)

    def inside(self, source: ValueSource, tagged: bool = False) -> None:
        """Lay out all checks on a source that is in a register, then those of its children."""
        children = list(self.children.get(source, ()))
        checks = self.checks.get(source, ())
        is_dict = source.kind == "dict" or any(c.kind == "get" for c in children)
        for guard in checks:
            is_covered = tagged and is_within_tag(guard) or is_dict and guard.kind in OF_DICT
            if not is_covered:
                self.check(guard)
        if is_dict:
            self.group(source, [c for c in children if c.kind == "get"], checks)
        for child in children:
            if child.kind != "get" or not is_dict:
                self.read(child)
                self.inside(child)

    def group(self, source: ValueSource, entries: list[ValueSource], checks: Any) -> None:
        """Lay out the entries of a dict with all that its version tag covers, then theirs."""
        register, at = self.register[source], len(self.ops)
        self.ops.append([TAG, 0, register, 0, None, 0])
        self.about.append(None)
        for guard in checks:
            if guard.kind in OF_DICT:
                self.check(guard)
        for entry in entries:
            self.read(entry)
            for guard in self.checks.get(entry, ()):
                if is_within_tag(guard):
                    self.check(guard)
        self.ops.append([SETTAG, 0, register, 0, None, at])
        self.about.append(None)
        self.ops[at][5] = len(self.ops)
        for entry in entries:
            self.inside(entry, tagged=True)

    def registers_of(self, sources: list[ValueSource]) -> tuple[int, ...]:
        """The registers of some sources."""
        return tuple(self.register[source] for source in sources)

    def program(self) -> tuple[list[tuple[Any, ...]], int]:
        """The operations as C takes them, and the number of registers."""
        return [tuple(op) for op in self.ops], len(self.register)


def is_within_tag(guard: Guard) -> bool:
    """Whether the version tag of a dict covers a check on one of its values. It does not cover the
    type of an object whose `__class__` can be set."""
    if guard.kind != "type":
        return guard.kind in WITHIN_TAG
    cls = referent(guard.value)
    changes = cls is types.ModuleType or cls is not None and cls.__flags__ & HEAP_TYPE
    return cls is not None and not changes


def handled_error() -> BaseException:
    """The exception that is being handled; raises if there is none."""
    error = sys.exc_info()[1]
    if error is None:
        raise LookupError("no exception is being handled")
    return error


def read_source(source: ValueSource, slots: tuple[Any, ...]) -> Any:
    """The value at a source now; raises where the path ends early."""
    if source.kind == "slot":
        return slots[source.key]
    if source.kind == "const":
        return source.key
    if source.kind == "handled":
        return handled_error()
    return STEPS[source.kind][1](read_source(source.base, slots), source.key)
