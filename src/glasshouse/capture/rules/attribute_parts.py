"""Attributes of iterators, functions and an object's own `__dict__`, each read with its guards."""

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator, type_of
from glasshouse.capture.values.plain import MISSING
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Recipe, Var

# Parts of a new function that can be changed in place.
KEPT_PARTS = set("__closure__ __dict__ __defaults__ __kwdefaults__ __annotations__".split())


def iterator_method(trace, obj: Var, name: str) -> Var | None:
    """A method of a generator or an iterator that is interpreted; None where it has no such
    attribute, or where Python's own object takes its place."""
    value = obj.value
    if issubclass(type(value), CapturedGenerator) and hasattr(value.kind, name):
        if hasattr(value, name):
            return Var(getattr(value, name), Recipe("method", obj, name))
        if trace.live:
            raise Break(f"attribute {name!r} of a {value.kind.__name__}")
        obj.value = value = value.native()
        trace.handed_over.append(obj)
    if issubclass(type(value), CapturedIterator) and hasattr(value.native(), name):
        if name not in ("__next__", "__iter__"):
            reason = f"attribute {name!r} of a {type_of(value).__name__}"
            raise Break(reason, Var(getattr), [obj, Var(name)])
        return Var(getattr(value.native(), name), Recipe("method", obj, name))
    return None


def function_part(trace, obj: Var, name: str) -> Var:
    """A part of a function, such as `__defaults__`."""
    if obj.is_new and name in KEPT_PARTS or obj.items and name == "__dict__":
        raise Break(f"{name} of a new or changed function", Var(getattr), [obj, Var(name)])
    part = trace.do(getattr, obj.value, name)
    return trace.load(part, trace.source_in(obj, "attr", name))


def dict_entry(trace, obj: Var, name: str) -> Var:
    """An attribute in an object's own `__dict__`, or MISSING; either is guarded."""
    value, cls = obj.value, type(obj.value)
    attributes = getattr(value, "__dict__", None)
    if attributes is None and cls.__dictoffset__ and trace.live:  # C keeps it to itself
        raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])
    if not isinstance(attributes, dict):
        return MISSING
    table = trace.known_attributes(obj, attributes)
    if table is not None and name in table.items:
        return table.items[name][1]
    if not obj.is_new:
        trace.note_read("item", attributes, name, value)
    if name in attributes:
        return trace.load(attributes[name], trace.entry_source(trace.dict_of(obj), name))
    trace.rely_on_absence(obj, name)
    return MISSING
