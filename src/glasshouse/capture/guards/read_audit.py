"""An audit of the reads of traces: each value that was read is changed alone, and put back.
Meanwhile the guards of the entry must fail, unless the entry reads the value again in each call.

While an audit is active (`audited`), the rules of the interpreter note their reads of the user's
program in `TraceReads`, apart from the guards. So missing guards are found too. Only objects of
the user are changed, never a library."""

import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.capture.guards.program import OutcomeCheck, read_source
from glasshouse.capture.values.plain import MISSING, SCALARS, is_heap, static_lookup
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, Var, stored_item

if TYPE_CHECKING:
    from glasshouse.capture.guards.guard_set import GuardSet
    from glasshouse.capture.trace.tracer import CaptureTracer


CONTAINERS = (OrderedDict, dict, list, deque)  # written by methods of these types
# Names through which Python, or the audit itself, reaches all other attributes of a class.
UNTOUCHED = {"__dict__", "__weakref__", "__class__", "__getattribute__", "__del__", "__module__"}
UNTOUCHED |= {"__new__"}  # CPython does not restore a class after its deletion
# Rules that pass a value on without depending on it, by name: later calls use their new value.
# Identity has separate guards.
PASSING_ON = set(
    """TraceHeap.new_list TraceHeap.new_tuple new_dict TraceHeap.hand_over
    foldable varies store_item set_plain list_method number call_polyfill
    resume_call identical end_generators Effects.keep_apart CaptureSession.unfinished
    place_of is_generator generators_in CaptureTracer.is_tensor""".split()
)
# Rules that depend on the type of a value alone, and on parts of it that are noted separately.
BY_TYPE = set(
    """typed dict_of is_number_call get_attribute instance_attribute rely_on_absence has
    own_method rely_on_data NetworkFront.member is_of_signature check_classes on_sum
    divides_by_constant iterator_method function_part dict_entry""".split()
)
INSTALLED = ("site-packages", "dist-packages")


class AuditFindings:
    """The counts and findings of an audit: `entries` audited, `skipped` entries whose call wrote to
    values that it had read, `changes` made, and `unguarded` reads."""

    COUNTED = "entries", "skipped", "changes"

    def __init__(self) -> None:
        self.entries = self.skipped = self.changes = 0
        self.unguarded: list[str] = []

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return {name: getattr(self, name) for name in self.COUNTED}

    def __str__(self) -> str:
        return (
            f"{self.changes} changes of what {self.entries} entries read "
            f"({self.skipped} entries write to it): {len(self.unguarded)} without a guard"
        )


active: list[AuditFindings] = []  # of the audits that run, innermost last


@contextmanager
def audited() -> Iterator[Any]:
    """Inside, each new entry is audited; gives the findings."""
    active.append(AuditFindings())
    try:
        yield active[-1]
    finally:
        active.pop()


def new_reads() -> "TraceReads | None":
    """Return a recorder for the reads of a new trace, or None if no audit is active."""
    return TraceReads(active[-1]) if active else None


class ReadPlace(NamedTuple):
    """A place from which a trace reads. `kind` is item (of a dict or list), cell, slot (`key` is
    its descriptor), class (its behaviour), data (of a class) or function (its code or defaults)."""

    kind: str
    owner: Any
    key: Any

    @property
    def identity(self) -> tuple[Any, ...]:
        """A key that is unique to the place. It calls no `__eq__` or `__hash__` of the user."""
        key = self.key if type(self.key) in (str, int) else id(self.key)
        return self.kind, id(self.owner), key

    def get(self) -> Any:
        """Return the value at the place, or MISSING if it is empty."""
        kind, owner, key = self
        if kind in ("class", "data"):
            return owner.__dict__.get(key, MISSING)
        try:
            if kind == "cell":
                return owner.cell_contents
            if kind == "slot":
                return key.__get__(owner, type(owner))
            if kind == "function":
                return getattr(owner, key)
            return stored_item(owner, key) if isinstance(owner, dict) else own(owner)[0](owner, key)
        except (LookupError, AttributeError, ValueError):
            return MISSING

    def put(self, value: Any) -> None:
        """Put a value at the place; MISSING deletes. No user code runs."""
        kind, owner, key = self
        gone = value is MISSING
        if kind in ("class", "data"):
            type.__delattr__(owner, key) if gone else type.__setattr__(owner, key, value)
        elif kind == "cell" and gone:
            del owner.cell_contents
        elif kind == "cell":
            owner.cell_contents = value
        elif kind == "slot":
            key.__delete__(owner) if gone else key.__set__(owner, value)
        elif kind == "function":
            setattr(owner, key, value)
        elif gone:
            own(owner)[2](owner, key)
        else:
            own(owner)[1](owner, key, value)


def own(container: Any) -> tuple[Callable[..., Any], ...]:
    """How a container's builtin type reads, writes and deletes an item."""
    kind = next(x for x in CONTAINERS if isinstance(container, x))
    return kind.__getitem__, kind.__setitem__, kind.__delitem__


def replacement(*args: Any, **kwargs: Any) -> None:
    """A stand-in for a function."""


def another(value: Any) -> Any:
    """A value that is not equal to this one, of the same type if that is simple."""
    if type(value) in (int, float, complex):
        return type(value)(4) if value != 4 else type(value)(5)
    if type(value) is bool:
        return not value
    if type(value) in (str, bytes, tuple):
        more: dict[Any, Any] = {str: "x", bytes: b"x", tuple: (1,)}
        return value + more[type(value)]
    if type(value) is types.CodeType:
        return value.replace(co_name=f"{value.co_name}_")
    if isinstance(value, (types.FunctionType, staticmethod, classmethod, property)):
        return replacement
    return 1 if value is None or value is MISSING else None


def is_users_module(name: Any) -> bool:
    """Whether a module is the user's, not a library's or Python's."""
    root = str(name).partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    is_library = root in sys.stdlib_module_names or root == "glasshouse"
    return not is_library and not any(part in file for part in INSTALLED)


def is_users(value: Any) -> bool:
    """Whether an object is the user's: a user's module, or an object of it or of its classes."""
    if isinstance(value, types.ModuleType):
        return is_users_module(value.__name__)
    if isinstance(value, types.FunctionType):
        return is_users_module(value.__globals__.get("__name__"))
    if type(value) is dict:
        return "__builtins__" in value and is_users_module(value.get("__name__"))
    cls = value if isinstance(value, type) else type(value)
    return is_heap(cls) and is_users_module(cls.__dict__.get("__module__"))


VALUE = vars(Var)["value"]  # the descriptor of its slot


class LoadedVar(Var):
    """The Var of a loaded value; it notes in `users` the rules that look at the value."""

    __slots__ = ("users",)

    def __init__(self, value: Any, source: ValueSource) -> None:
        self.users: dict[str, None] = {}
        super().__init__(value, source)

    @property
    def value(self) -> Any:
        rule = sys._getframe(1).f_code.co_qualname.partition(".<locals>")[0]
        if rule not in PASSING_ON:
            self.users[rule] = None
        return VALUE.__get__(self)

    @value.setter
    def value(self, value: Any) -> None:
        VALUE.__set__(self, value)


class NotedRead(NamedTuple):
    """A read: its place, its text, and the line or the rules that read. `is_noted`: not through a
    source. `by_type`: the rules depend on the type of the value alone."""

    place: ReadPlace
    text: str
    where: str
    is_noted: bool = True
    by_type: bool = False


def text_of_key(key: Any) -> str:
    """The key of a place as text; no user code runs."""
    if type(key) is types.MemberDescriptorType:
        return key.__name__
    return str(key) if type(key) in SCALARS else type(key).__name__


class TraceReads:
    """The places of the user's program that one trace read, with the lines that did."""

    def __init__(self, findings: AuditFindings) -> None:
        self.findings = findings
        self.places: dict[tuple[Any, ...], NotedRead] = {}
        self.loads: dict[ValueSource, list[LoadedVar]] = {}

    def loaded(self, value: Any, source: ValueSource) -> LoadedVar:
        """The Var of a value loaded at a source."""
        var = LoadedVar(value, source)
        self.loads.setdefault(source, []).append(var)
        return var

    def note(self, place: ReadPlace, holder: Any, line: str) -> None:
        """Note a read of something that belongs to `holder`."""
        if place.identity in self.places or not is_users(holder):
            return
        if place.kind in ("class", "data") and place.key in UNTOUCHED:
            return
        named = holder if isinstance(holder, (type, types.FunctionType)) else type(holder)
        name, key = named.__qualname__, text_of_key(place.key)
        text = f"{name}.{key}" if type(holder) is not dict else f"the global {key}"
        self.places[place.identity] = NotedRead(place, text, line)

    def audit(
        self, entry: Any, slots: tuple[Any, ...], tracer: "CaptureTracer", variables: dict[int, str]
    ) -> None:
        """Change each place alone. `variables` has the ids of the sources that the entry reads
        again in each call."""
        if not is_valid(entry, slots):  # the call has changed values that it read
            self.findings.skipped += 1
            return
        self.findings.entries += 1
        free = self.add_sources(tracer.guards, slots, variables)
        for identity, read in self.places.items():
            # If the call has replaced an owner, this is the old one.
            gone = (
                read.is_noted
                and bool(tracer.effects.written)
                and read.place.kind in ("item", "slot")
            )
            if identity not in free and not gone and self.outlives(entry, slots, read):
                where = f"{read.where}: " if read.where else ""
                self.findings.unguarded.append(f"{where}{read.text} is read, and has no guard")

    def add_sources(
        self, guards: "GuardSet", slots: tuple[Any, ...], variables: dict[int, str]
    ) -> set[tuple[Any, ...]]:
        """Add the places of values loaded at sources, with the rules that used them. Returns the
        identities of places where another value is fine: no rule used the value, the entry reads it
        again, or the outcome of an expression is guarded, which other numbers may have too."""
        decided = {x.source for x in guards.guards.values() if isinstance(x.value, OutcomeCheck)}
        checked = {x.source for x in guards.guards.values()}
        free = set()
        for source in guards.sources.values():
            place = place_of(source, slots)
            if place is None:
                continue
            users = {x for var in self.loads.get(source, ()) for x in var.users}
            if id(source) in variables or source in decided or not users and source in self.loads:
                free.add(place.identity)
            elif users or source in checked:
                by_type = bool(users) and users <= BY_TYPE
                read = NotedRead(place, source.text, ", ".join(sorted(users)), False, by_type)
                self.places[place.identity] = read
        return free

    def outlives(self, entry: Any, slots: tuple[Any, ...], read: NotedRead) -> bool:
        """Whether the guards still hold while another value is at a place."""
        place, before = read.place, read.place.get()
        value: Any = property(replacement) if place.kind == "class" else another(before)
        if read.by_type:
            value = None if isinstance(before, types.FunctionType) else replacement
        try:
            place.put(value)
        except (TypeError, ValueError, AttributeError):  # it cannot be set
            return False
        self.findings.changes += 1
        try:
            return is_valid(entry, slots)
        finally:
            place.put(before)


def is_valid(entry: Any, slots: tuple[Any, ...]) -> bool:
    """Whether the guards of an entry hold."""
    return entry.check(slots) < 0


def place_of(source: ValueSource, slots: tuple[Any, ...]) -> ReadPlace | None:
    """The place of a source, if it is the user's and can be changed."""
    path = [source]
    while path[-1].base is not None:
        path.append(path[-1].base)
    try:
        bases = [read_source(x, slots) for x in path[1:]]
    except Exception:  # the call itself has deleted it
        return None
    if not bases or path[-1].kind not in ("slot", "const"):
        return None
    on_path = bases if path[-1].kind == "const" else bases[:-1]
    in_module = bases[: next((i for i, x in enumerate(bases) if x is sys.modules), 0)]
    if path[-1].kind == "const" and not is_users(bases[-1]) and not in_module:
        return None
    on_path = in_module or on_path
    fixed = (types.ModuleType, types.FunctionType, type)
    if any(isinstance(x, fixed) and not is_users(x) for x in on_path):
        return None
    owner, key = bases[0], source.key
    if source.kind in ("get", "item") and isinstance(owner, CONTAINERS):
        return ReadPlace("item", owner, key)
    if source.kind == "cell":
        return ReadPlace("cell", owner, None)
    if source.kind == "lookup":
        return data_place(owner, key)
    if source.kind == "attr" and is_users(type(owner)):
        slot = static_lookup(type(owner), key)[0]
        is_slot = type(slot) is types.MemberDescriptorType
        return ReadPlace("slot", owner, slot) if is_slot else None
    return None


def data_place(cls: type[Any], name: str) -> ReadPlace | None:
    """The place of the attribute of a class under a name, or None."""
    owner = static_lookup(cls, name)[1]
    return ReadPlace("data", owner, name) if owner is not None and is_users(owner) else None
