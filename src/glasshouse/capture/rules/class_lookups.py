"""Reads of classes: rules look into a class only here, and rely on the attributes they find."""

import enum
import types
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.class_reads import is_behaviour
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.values.plain import (
    MISSING,
    SCALARS,
    is_heap,
    is_library,
    is_native,
    is_trusted,
    static_lookup,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, ValueSource, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def dict_of(t: "CaptureTracer", var: Var) -> ValueSource | None:
    """The source of an object's attributes."""
    return source_in(t, var, "dict")


def look_up(t: "CaptureTracer", cls: type[Any], name: str) -> Any:
    """The attribute of a class under a name, or MISSING; no code of the user's runs."""
    if t.guards.live:
        if cls not in t.guards.classes.behaviours:
            t.guards.classes.add(cls)
        if t.guards.reads is not None:
            t.guards.note_read("class", cls, name, cls)
    return static_lookup(cls, name)[0]


def has_own_text(t: "CaptureTracer", var: Var) -> bool:
    """Whether the class of a value may make its text in Python from attributes that change, so
    that the text is no constant even if the value is."""
    value, cls = var.value, type(var.value)
    return t.guards.live and isinstance(value, (enum.Enum, type)) and may_change(t, cls)


def has(t: "CaptureTracer", var: Var, name: str) -> bool:
    """Whether the class of a value has something under a name; relies on its type."""
    return t.look_up(type(t.typed(var)), name) is not MISSING


def own_method(t: "CaptureTracer", var: Var, name: str) -> types.FunctionType | None:
    """The method of a value's class if it is written in Python; None if it is in C or missing.
    Relies on the value's type.

    Raises: Break if it is something else, such as a descriptor or a method of another class
    """
    class_value = t.look_up(type(t.typed(var)), name)
    if isinstance(class_value, types.FunctionType):
        return class_value
    if class_value is MISSING:
        return None
    owner = static_lookup(type(var.value), name)[1]
    if not is_native(class_value, owner):
        raise Break(f"{owner.__name__}.{name} is a {type(class_value).__name__}")
    return None


def derives_from(t: "CaptureTracer", var: Var, kinds: tuple[type[Any], ...]) -> bool:
    """Whether the class of a value derives from one of some classes, without asking a
    metaclass."""
    order = type(t.typed(var)).__mro__
    return any(kind is base for kind in kinds for base in order)


def rely_on_bases(t: "CaptureTracer", cls: type[Any]) -> None:
    """Rely on the bases of a class."""
    if t.guards.live:
        t.guards.classes.add(cls)


def rely_on_function(t: "CaptureTracer", fn: types.FunctionType) -> None:
    """Rely on the code and defaults of a function that is inlined."""
    if t.guards.live and not is_trusted(fn.__globals__.get("__name__", "")):
        t.guards.classes.functions[id(fn)] = fn


def may_change(t: "CaptureTracer", cls: type[Any]) -> bool:
    """Whether the data of a class may change before later calls."""
    return is_heap(cls) and is_open(t, cls)


def is_open(t: "CaptureTracer", cls: type[Any]) -> bool:
    """Whether data of a class or its objects may change before later calls: code of a library
    does not change its own."""
    return t.guards.live and not (is_library(cls) and t.frames[-1].trusted)


def has_open_attributes(t: "CaptureTracer", value: Any) -> bool:
    """Whether a value has attributes that may change before later calls."""
    if isinstance(value, types.FunctionType):
        return not is_trusted(str(value.__globals__.get("__name__")))
    return may_change(t, type(value)) and bool(type(value).__dictoffset__)


def class_of(t: "CaptureTracer", obj: Var) -> Var:
    """The class of an object, with its source."""
    cls = Var(type(obj.value), t.heap.sub(obj, "type"))
    return Var(cls.value, place_of(t, cls))


def in_class(t: "CaptureTracer", cls: Var, name: str, class_value: Any) -> Var:
    """The Var of a class attribute. A descriptor in Python has attributes, which later calls
    find through the class."""
    in_python = any(
        isinstance(t.look_up(type(class_value), part), types.FunctionType)
        for part in ("__get__", "__set__")
    )
    here = may_change(t, cls.value) and t.look_up(cls.value, name) is class_value
    if not in_python or not here:
        return Var(class_value)
    return t.heap.load(class_value, source_in(t, cls, "lookup", name))


def rely_on_data(t: "CaptureTracer", obj: Var, name: str, class_value: Any) -> None:
    """Guard the data that the class of an object has under a name; MISSING: that it has none.
    `look_up` relies on behaviour."""
    if not may_change(t, type(obj.value)):
        return
    if class_value is MISSING:
        t.guards.add("lacks", class_of(t, obj).origin, name)
    elif type(class_value) not in SCALARS and not is_behaviour(name, class_value):
        place = t.guards.source("lookup", class_of(t, obj).origin, name)
        t.guards.add("is", place, class_value)


def rely_on_namespace(t: "CaptureTracer", cls: Var) -> None:
    """Guard all attributes of a class itself, since its `__dict__` is read."""
    if may_change(t, cls.value):
        check = GuardCheck(has_namespace, dict(cls.value.__dict__), "__dict__")
        t.guards.add("call", place_of(t, cls), check)


def rely_on_own(t: "CaptureTracer", cls: Var, name: str) -> None:
    """Guard whether a class itself has an attribute that is deleted."""
    if may_change(t, cls.value) and name not in t.heap.class_items.get(cls.value, ()):
        expected = name, name in cls.value.__dict__
        check = GuardCheck(has_own, expected, f"{name!r} in __dict__")
        t.guards.add("call", place_of(t, cls), check)


def place_of(t: "CaptureTracer", var: Var) -> Any:
    """The source of an object, or of a constant whose attributes may change; else None."""
    value, origin = var.value, var.origin
    if isinstance(origin, ValueSource):
        return origin
    if isinstance(value, type) or origin is None and has_open_attributes(t, value):
        named = value if isinstance(value, (type, types.FunctionType)) else type(value)
        return t.guards.source("const", None, value, named.__name__)
    return None


def known_object(t: "CaptureTracer", value: Any) -> Var:
    """The Var of an object that guards have fixed: one Var for one object, so that a write to it
    is seen by all who read it."""
    is_named = isinstance(value, (type, types.FunctionType))
    if is_named or not t.guards.live or not has_open_attributes(t, value):
        return Var(value)
    return t.heap.load(value, place_of(t, Var(value)))


def source_in(
    t: "CaptureTracer", var: Var, kind: str, name: str | None = None
) -> ValueSource | None:
    """The source of a part of an object."""
    place = place_of(t, var) if t.guards.live else None
    return None if place is None else t.guards.source(kind, place, name)


def has_own(cls: type[Any], expected: tuple[str, bool]) -> bool:
    """Whether a class itself has an attribute, or lacks it, as expected."""
    name, there = expected
    return (name in cls.__dict__) is there


def has_namespace(cls: type[Any], expected: dict[Any, Any]) -> bool:
    """Whether a class has these names with these very values, and no others."""
    now = cls.__dict__
    return len(now) == len(expected) and all(
        name in now and now[name] is value for name, value in expected.items()
    )


def rely_on_super(
    t: "CaptureTracer", start: type[Any], cls: type[Any], name: str, base: type[Any] | None
) -> None:
    """Guard that `base` is the first base of `start` after `cls` with an attribute of a name
    (None: that there is none), if it may be data."""
    t.guards.classes.add(start)
    if base is None or may_change(t, base) and not is_behaviour(name, base.__dict__[name]):
        check = GuardCheck(super_finds, (cls, name, base), f"super().{name}")
        place = t.guards.source("const", None, start, start.__name__)
        t.guards.add("call", place, check)


def look_up_super(start: type[Any], cls: type[Any], name: str) -> tuple[Any, ...]:
    """(class, attribute) that super(cls, start) finds under a name, or (None, MISSING)."""
    order = start.__mro__
    for base in order[order.index(cls) + 1 :]:
        if name in base.__dict__:
            return base, base.__dict__[name]
    return None, MISSING


def super_finds(start: type[Any], expected: Any) -> bool:
    """Whether super() still finds an attribute in the same class."""
    cls, name, base = expected
    return look_up_super(start, cls, name)[0] is base
