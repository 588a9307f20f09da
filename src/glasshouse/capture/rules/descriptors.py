"""Attributes that a class gives its instances: functions bind, descriptors run."""

import types
from collections import namedtuple
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.class_lookups import class_of, in_class, may_change, rely_on_own
from glasshouse.capture.rules.constants import is_plain
from glasshouse.capture.rules.containers import stored_items
from glasshouse.capture.values.plain import (
    CACHED,
    MISSING,
    bound_to,
    getter_of_class,
    is_slot,
    is_unset,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import (
    Break,
    Recipe,
    SymbolicNumber,
    Then,
    UserError,
    ValueSource,
    Var,
    constant,
)
from glasshouse.ir.node import IRNode

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


# The descriptor of a named tuple's field.
NAMED_FIELD: type[Any] = type(vars(namedtuple("Pair", "first"))["first"])
WITH_ITEMS = (list, tuple, dict, set, frozenset)  # their Vars have their items


def class_written(t: "CaptureTracer", cls: type[Any], name: str) -> Var | None:
    """The value that the trace wrote to a class or one of its bases under this name. None if it
    wrote nothing, or if a class earlier in the order has the attribute itself.

    Raises: Break if the trace deleted it from one, since guards are checked before that
    """
    order = cls.__mro__ if t.heap.class_items else ()
    deleted = (t.heap.class_items.get(c, {}).get(name, MISSING) is None for c in order)
    if t.guards.live and any(deleted):
        raise Break(f"{name!r} of a class, from which it was deleted")
    writers = [c for c in order if t.heap.class_items.get(c, {}).get(name) is not None]
    for base in order if writers else ():
        if base is writers[0]:
            return t.heap.class_items[base][name]
        rely_on_own(t, Var(base), name)
        if name in base.__dict__:
            return None
    return None


def bind_attribute(
    t: "CaptureTracer", obj: Var, name: str, class_value: Any, then: Then, owner: Var | None = None
) -> Any:
    """A class attribute as an instance sees it: functions bind to it, descriptors run. The
    class is `owner`, or the object's own."""
    kind = type(obj.value)
    if isinstance(class_value, (types.FunctionType, CACHED)):
        return t.deliver(then, bound_method(t, obj, Var(class_value)))
    getter = getter_of_class(class_value)
    if getter is not None:
        return t.call(Var(getter), [Var(kind)], {}, then)
    if isinstance(class_value, (staticmethod, classmethod)):
        return t.deliver(then, of_class(t, Var(kind), class_value))
    if isinstance(class_value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        method = bound_to(class_value, obj.value)
        return t.deliver(then, Var(method, Recipe("method", obj, Var(class_value))))
    if isinstance(class_value, property):
        if class_value.fget is None:
            t.do(class_value.__get__, obj.value, kind)  # raises
        return t.call(Var(class_value.fget), [obj], {}, then)
    items = stored_items(t, obj) if isinstance(class_value, NAMED_FIELD) else None
    if items is not None:
        return t.deliver(then, items[class_value.__reduce__()[1][0]])
    descriptor = in_class(t, owner or class_of(t, obj), name, class_value)
    if t.call_own(descriptor, "__get__", [obj, Var(kind)], then):
        return None
    if not t.has(Var(class_value), "__get__"):
        place = class_of(t, obj).origin if may_change(t, kind) else t.heap.sub(obj, "type")
        source = None if place is None else t.guards.source("lookup", place, name)
        return t.deliver(then, t.heap.load(class_value, source))
    value = read_descriptor(t, obj, name, class_value)
    if callable(value) and not t.has(Var(class_value), "__set__"):
        return t.deliver(then, Var(value, Recipe("method", obj, name)))
    return t.deliver(then, part_of(t, obj, name, value))


def read_descriptor(t: "CaptureTracer", obj: Var, name: str, descriptor: Any) -> Any:
    """The value of a descriptor written in C. Guards that a slot is unset if it raises."""
    if type(descriptor) is types.MemberDescriptorType and not obj.is_new:
        t.guards.note_read("slot", obj.value, descriptor, obj.value)
    try:
        return t.do(descriptor.__get__, obj.value, type(obj.value))
    except UserError:
        if t.guards.live and is_slot(descriptor) and isinstance(obj.origin, ValueSource):
            check = GuardCheck(is_unset, descriptor, f"{name!r} is not set")
            t.guards.add("call", obj.origin, check)
        raise


def part_of_new(t: "CaptureTracer", obj: Var, name: str, value: Any) -> Var:
    """An attribute of something new whose place in the object C code keeps."""
    by_class = obj.origin.kind == "call" and obj.origin.parts[0].value is type(obj.value)
    has_parts = by_class or obj.origin.kind == "exception"
    if name == "args" and has_parts and isinstance(obj.value, BaseException):
        return t.heap.new_tuple(obj.origin.parts[1])
    if name == "value" and type(obj.value) is StopIteration and obj.origin.kind == "call":
        return obj.origin.parts[1][0] if obj.origin.parts[1] else Var(None)
    var = t.heap.tracked.get(id(value))
    if var is not None or value is None:
        return var or Var(None)
    if isinstance(obj.value, BaseException) and is_plain(t, value):
        return Var(value) if name == "args" else constant(value)
    if isinstance(value, WITH_ITEMS):
        reason = f"attribute {name!r} of a new {type(obj.value).__name__}"
        raise Break(reason, Var(getattr), [obj, Var(name)])
    return t.heap.track(Var(value, Recipe("call", Var(getattr), [obj, Var(name)]), {}))


def bound_method(t: "CaptureTracer", obj: Var, fn: Var) -> Var:
    """A method bound to an object."""
    return Var(types.MethodType(fn.value, obj.value), Recipe("method", obj, fn))


def slice_parts(var: Var) -> dict[str, Var]:
    """The Vars of a new slice, by attribute."""
    parts = var.origin.parts[1]
    names = ("stop",) if len(parts) == 1 else ("start", "stop", "step")
    return dict.fromkeys(("start", "stop", "step"), Var(None)) | dict(zip(names, parts))


def part_of(t: "CaptureTracer", obj: Var, name: str, value: Any) -> Var:
    """The Var of an attribute that C code keeps in an object of any origin."""
    if isinstance(obj.origin, SymbolicNumber):  # .real and the like
        return t.number(getattr, [obj, Var(name)])
    if isinstance(obj.origin, Recipe):
        return part_of_new(t, obj, name, value)
    if isinstance(obj.origin, IRNode):
        t.concretize(obj)
    return t.heap.load(value, t.heap.sub(obj, "attr", name))


def of_class(t: "CaptureTracer", cls: Var, class_value: Any) -> Any:
    """A static or class method, or a function, as its class sees it; None for others."""
    if isinstance(class_value, classmethod):
        return bound_method(t, cls, Var(class_value.__func__))
    if isinstance(class_value, (staticmethod, types.FunctionType)):
        return Var(getattr(class_value, "__func__", class_value))
    return None
