"""Attributes of iterators, functions and an object's own `__dict__`, each read with its guards."""

from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator, type_of
from glasshouse.capture.rules.class_lookups import dict_of, is_open, source_in
from glasshouse.capture.values.plain import MISSING, own_dict
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Recipe, Var, is_new_container

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


# Parts of a new function that can be changed in place.
KEPT_PARTS = set("__closure__ __dict__ __defaults__ __kwdefaults__ __annotations__".split())


def iterator_method(t: "CaptureTracer", obj: Var, name: str) -> Var | None:
    """A method of a generator or an iterator that is interpreted; None where it has no such
    attribute, or where Python's own object takes its place."""
    value = obj.value
    if issubclass(type(value), CapturedGenerator) and hasattr(value.kind, name):
        if hasattr(value, name):
            return Var(getattr(value, name), Recipe("method", obj, name))
        if t.guards.live:
            raise Break(f"attribute {name!r} of a {value.kind.__name__}")
        obj.value = value = value.native()
        t.heap.handed_over.append(obj)
    if issubclass(type(value), CapturedIterator) and hasattr(value.native(), name):
        if name not in ("__next__", "__iter__"):
            reason = f"attribute {name!r} of a {type_of(value).__name__}"
            raise Break(reason, Var(getattr), [obj, Var(name)])
        return Var(getattr(value.native(), name), Recipe("method", obj, name))
    return None


def function_part(t: "CaptureTracer", obj: Var, name: str) -> Var:
    """A part of a function, such as `__defaults__`."""
    if obj.is_new and name in KEPT_PARTS or obj.items and name == "__dict__":
        raise Break(f"{name} of a new or changed function", Var(getattr), [obj, Var(name)])
    part = t.do(getattr, obj.value, name)
    return t.heap.load(part, source_in(t, obj, "attr", name))


def dict_entry(t: "CaptureTracer", obj: Var, name: str) -> Any:
    """An attribute in an object's own `__dict__`, or MISSING; either is guarded."""
    value, cls = obj.value, type(obj.value)
    attributes: Any = own_dict(value)
    if attributes is None and cls.__dictoffset__ and t.guards.live:  # C keeps it to itself
        raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])
    if not isinstance(attributes, dict):
        return MISSING
    table = known_attributes(t, obj, attributes)
    if table is not None and name in table.items:
        return table.items[name][1]
    if not obj.is_new:
        t.guards.note_read("item", attributes, name, value)
    if name in attributes:
        return t.heap.load(attributes[name], t.heap.entry_source(dict_of(t, obj), name))
    rely_on_absence(t, obj, name)
    return MISSING


def rely_on_absence(t: "CaptureTracer", obj: Var, name: str) -> None:
    """Guard that an object itself has no attribute of a name."""
    source = dict_of(t, obj)
    if source is not None and is_open(t, type(obj.value)) and own_dict(obj.value) is not None:
        t.guards.add("absent", source, name)


def known_attributes(t: "CaptureTracer", obj: Var, attributes: dict[Any, Any] | None) -> Var | None:
    """The Var of an object's dict, `attributes`, if it was reached as a dict. Guards that in
    later calls too it is that object's."""
    table, source = t.heap.tracked.get(id(attributes)), dict_of(t, obj)
    if table is None or table.items is None:
        return None
    return table if source is None else t.heap.load(attributes, source)


def object_dict(t: "CaptureTracer", obj: Var) -> Var:
    """obj.__dict__, as a dict that shares the Vars of the attributes."""
    if obj.is_made("object") or is_new_container(obj):
        return attributes_of_new(t, obj)
    if obj.is_new or obj.items:
        reason = "the __dict__ of an object that was written to"
        raise Break(reason, Var(getattr), [obj, Var("__dict__")])
    return t.heap.load(own_dict(obj.value), dict_of(t, obj))


def attributes_of_new(t: "CaptureTracer", obj: Var) -> Var:
    """The dict with the attributes of a new object, or of a list or dict of a user's class."""
    attributes: Any = own_dict(obj.value)
    table = t.heap.tracked.get(id(attributes))
    if table is None:
        table = t.heap.track(Var(attributes, Recipe("attributes", obj), {}))
        items = obj.items if obj.is_made("object") else {}
        for name in [x for x in items if x in attributes]:
            table.items[name] = Var(name), items.pop(name)
    return table


def class_var(t: "CaptureTracer", cls: type[Any]) -> Var:
    """The Var of a class that is written to."""
    var = t.heap.tracked.get(id(cls))
    if var is None:
        var = t.heap.tracked[id(cls)] = Var(cls)
    return var
