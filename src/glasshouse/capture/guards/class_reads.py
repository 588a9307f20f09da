"""Reads of classes: rules read class attributes through `look_up`, and one guard covers all classes
and functions that a trace read.

The *behaviour* of a class decides how Python treats it and its instances: its special names, its
functions, descriptors and other callables, and those of its bases. A trace relies on all of it as
soon as it reads any of it, so no rule can forget a part. Other class attributes are data, which
have separate guards (`rely_on_data`)."""

import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.native import unchanged
from glasshouse.capture.guards.program import OutcomeCheck, WeakLink
from glasshouse.capture.values.plain import is_heap
from glasshouse.capture.values.plain import is_instance as isinstance

if TYPE_CHECKING:
    from glasshouse.capture.sessions.entries import EntryRemover


PROTOCOL = ("__get__", "__set__", "__delete__", "__set_name__")
# Special names with data that no look-up depends on, and that programs may change.
TEXTS = {"__doc__", "__module__", "__qualname__", "__name__", "__firstlineno__"}
# Names that CPython puts there: slots of instances, notes of `copy`.
TEXTS |= {"__dict__", "__weakref__", "__slotnames__"}
STANDS_FOR = "__gh_stands_for__"  # an attribute of observers: what they replace for a time

behaviours: dict[int, "ClassBehaviour"] = {}  # the last one seen of each class, by its id


class ClassBehaviour:
    """A snapshot of the behaviour of a class."""

    __slots__ = ("cls", "version", "order", "parts")

    def __init__(self, cls: type[Any], version: int) -> None:
        self.cls: weakref.ref[Any] = weakref.ref(cls, forget_behaviour(id(cls)))
        self.version: int = version
        self.order: list[weakref.ref[Any]] = [weakref.ref(base) for base in cls.__mro__]
        self.parts: list[tuple[Any, Any]] = [
            (name, identity_of(value)) for name, value in behaviour_in(cls)
        ]

    def is_of(self, cls: type[Any]) -> bool:
        """Whether the class still matches the snapshot."""
        order = cls.__mro__
        if len(order) != len(self.order) or any(a() is not b for a, b in zip(self.order, order)):
            return False
        now = list(behaviour_in(cls))
        return len(now) == len(self.parts) and all(
            name == other and is_identical(identity, value)
            for (name, identity), (other, value) in zip(self.parts, now, strict=True)
        )

    def changed_in(self, cls: type[Any]) -> list[str]:
        """The names that have changed in the class; empty if only its bases were reordered."""
        unmatched, now = self.parts[:], dict.fromkeys(name for name, _ in self.parts)
        for name, value in behaviour_in(cls):
            same = next((x for x in unmatched if x[0] == name and is_identical(x[1], value)), None)
            if same is None:
                now[name] = now.get(name) or True
            else:
                unmatched.remove(same)
        gone = {name for name, _ in unmatched}
        return [name for name, other in now.items() if other or name in gone]


def forget_behaviour(key: int) -> Callable[..., Any]:
    """A callback that removes the snapshot of a class when the class dies."""
    return lambda _: behaviours.pop(key, None)


def behaviour_in(cls: type[Any]) -> Iterator[Any]:
    """The (name, value) pairs of a class and its bases that are behaviour, or that are data and may
    hide behaviour of another base."""
    bases = [base.__dict__ for base in cls.__mro__ if is_heap(base)]
    names = {name for base in bases for name, value in base.items() if is_behaviour(name, value)}
    of_c = [names_in_c(base) for base in cls.__mro__ if not is_heap(base)]
    for base in bases:
        for name, value in base.items():
            if name in names or name not in TEXTS and any(name in other for other in of_c):
                yield name, without_observer(value)


@functools.cache
def names_in_c(cls: type[Any]) -> frozenset[str]:
    """The names of a class that Python code cannot change."""
    return frozenset(cls.__dict__)


def without_observer(value: Any) -> Any:
    """The value itself, or, if it is one of our observers, the attribute that it replaces."""
    fn = value.__func__ if isinstance(value, staticmethod) else value
    if isinstance(fn, types.FunctionType):
        return fn.__dict__.get(STANDS_FOR, value)
    return value


def is_behaviour(name: str, value: Any) -> bool:
    """Whether a class attribute is behaviour rather than data."""
    special = name[:2] == "__" == name[-2:] and name not in TEXTS
    return special or callable(value) or is_descriptor(value)


def is_descriptor(value: Any) -> bool:
    """Whether a class attribute takes part in how it is read or written."""
    return any(name in base.__dict__ for base in type(value).__mro__ for name in PROTOCOL)


def identity_of(value: Any) -> Any:
    """A token to compare with a value later, see `is_identical`. It holds the value weakly if
    possible, because methods refer to their class."""
    if isinstance(value, (staticmethod, classmethod)):
        return type(value), identity_of(value.__func__)
    if type(value) is property:
        return property, *map(identity_of, (value.fget, value.fset, value.fdel))
    if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return id(value)  # of a slot, which refers to its class
    try:
        return weakref.ref(value)
    except TypeError:
        return value


def is_identical(identity: Any, value: Any) -> bool:
    """Whether `identity_of` was called on this very value."""
    if type(identity) is weakref.ref:
        return identity() is value
    if type(identity) is tuple and isinstance(value, (staticmethod, classmethod)):
        return type(value) is identity[0] and is_identical(identity[1], value.__func__)
    if type(identity) is tuple and type(value) is property:
        parts = value.fget, value.fset, value.fdel
        return identity[0] is property and all(map(is_identical, identity[1:], parts))
    return identity is value or type(identity) is int and identity == id(value)


def behaviour_of(cls: type[Any]) -> ClassBehaviour:
    """The current snapshot of a class: the same object until the behaviour changes."""
    version, last = unchanged().class_version(cls), behaviours.get(id(cls))
    if last is not None and last.cls() is cls:
        if version and last.version == version:
            return last
        if last.is_of(cls):
            last.version = version
            return last
    snapshot = behaviours[id(cls)] = ClassBehaviour(cls, version)
    return snapshot


def behaves_as(cls: type[Any], behaviour: ClassBehaviour) -> bool:
    """Whether the class still has this behaviour."""
    return behaviour_of(cls) is behaviour or behaviour.is_of(cls)


class ReadClasses:
    """The classes and functions that one trace read."""

    def __init__(self) -> None:
        self.behaviours: dict[type[Any], ClassBehaviour | None] = {}
        self.functions: dict[int, types.FunctionType] = {}

    def add(self, cls: type[Any]) -> None:
        """Rely on the behaviour of a class and its metaclass."""
        while cls not in self.behaviours:
            self.behaviours[cls] = behaviour_of(cls) if is_heap(cls) else None
            cls = type(cls)

    def guard(self, gone: "EntryRemover") -> "UnchangedCheck | None":
        """One guard on all of them; `gone` is called when one of them dies."""
        read = {cls: x for cls, x in self.behaviours.items() if x is not None}
        if not read and not self.functions:
            return None
        links = [WeakLink(x, gone) for x in (*read, *self.functions.values())]
        recheck = BehaviourCheck(list(zip(links, read.values())))
        native = unchanged().Unchanged(list(read), list(self.functions.values()), recheck)
        return UnchangedCheck(native, links, recheck)


class BehaviourCheck:
    """Whether all classes still have their behaviour; called when a version has changed."""

    def __init__(self, expected: list[tuple[WeakLink, ClassBehaviour]]) -> None:
        self.expected = expected

    def __call__(self) -> bool:
        return all(
            (cls := link()) is not None and behaves_as(cls, behaviour)
            for link, behaviour in self.expected
        )


class UnchangedCheck(OutcomeCheck):
    """The guard on all classes and functions that a trace read."""

    def __init__(self, native: Any, links: list[WeakLink], recheck: BehaviourCheck) -> None:
        self.native = native
        self.links = links
        self.recheck = recheck

    def __call__(self, value: Any) -> bool:
        raise NotImplementedError("the guard is checked in C")

    @property
    def text(self) -> str:
        alive = [x for link in self.links if (x := link()) is not None]
        names = dict.fromkeys(x.__qualname__ for x in alive)
        return f"unchanged: {', '.join(names)}"

    def changes(self) -> str:
        """The names of the changed class attributes, for a report."""
        parts = []
        for link, behaviour in self.recheck.expected:
            cls = link()
            if cls is not None and not behaves_as(cls, behaviour):
                names = behaviour.changed_in(cls) or ["__bases__"]
                parts += [f"{cls.__qualname__}.{name}" for name in names]
        return f"{', '.join(parts) or 'code or defaults of a function'} changed"
