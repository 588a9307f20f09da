"""Attributes of classes, of `super` objects and of enumerations."""

import enum
import types
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import original_of
from glasshouse.capture.guards.class_reads import is_descriptor
from glasshouse.capture.rules.class_lookups import (
    class_of,
    in_class,
    look_up_super,
    may_change,
    place_of,
    rely_on_bases,
    rely_on_namespace,
    rely_on_super,
    source_in,
)
from glasshouse.capture.rules.descriptors import (
    bind_attribute,
    bound_method,
    class_written,
    of_class,
)
from glasshouse.capture.rules.variables import cell_get
from glasshouse.capture.values.plain import (
    MISSING,
    SCALARS,
    getter_of_class,
    is_data_descriptor,
    is_heap,
    is_library,
    is_subtype,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Recipe, Then, Var, constant

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


CLASS_TEXTS = {"__doc__", "__name__", "__qualname__", "__module__", "__annotations__"}
# The attributes of a `super` object itself, from its class and object.
SUPER_PARTS: dict[str, Any] = {
    "__class__": lambda cls, obj: Var(super),
    "__thisclass__": lambda cls, obj: cls,
    "__self__": lambda cls, obj: obj,
}


def member_of_enum(t: "CaptureTracer", cls: type[Any], name: str, member: enum.Enum) -> Var:
    """A member of an enumeration, with its source."""
    place = t.guards.source("const", None, member, f"{cls.__name__}.{name}")
    return t.heap.load(member, place)


def member_for(
    t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, member: enum.Enum, then: Any
) -> Any:
    """The member of an enumeration for a value, by a call of the class."""
    cls, value = fn.value, args[0].value if len(args) == 1 and not kwargs else MISSING
    is_open = isinstance(member, enum.Enum) and may_change(t, cls)  # not one in C
    if not is_open or value is member:
        return t.give(then, member)
    if type(value) not in SCALARS or cls._value2member_map_.get(value) is not member:
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)
    table = source_in(t, fn, "lookup", "_value2member_map_")
    t.guards.add("is", t.guards.source("get", table, value), member)
    return t.deliver(then, member_of_enum(t, cls, member._name_ or repr(value), member))


def part_of_class(t: "CaptureTracer", cls: Var, name: str) -> Var:
    """An attribute that a data descriptor of the metaclass reads, such as `__name__`."""
    value = cls.value
    if name == "__dict__" and t.heap.class_items.get(value):
        reason = "the __dict__ of a class that was written to"
        raise Break(reason, Var(getattr), [cls, Var(name)])
    part = t.do(getattr, value, name)
    rely_on_bases(t, value)
    if name == "__dict__":
        rely_on_namespace(t, cls)
    if not t.guards.live or name not in CLASS_TEXTS or not is_heap(value):
        return constant(part)
    return t.heap.load(part, source_in(t, cls, "attr", name))


def class_attribute(t: "CaptureTracer", cls: Var, name: str, then: Then) -> Any:
    """An attribute of a class."""
    value = t.concretize(cls)
    meta = t.look_up(type(value), name)
    if isinstance(meta, property):
        return t.call(Var(meta.fget), [cls], {}, then)
    if is_data_descriptor(meta):
        descriptor = in_class(t, class_of(t, cls), name, meta)
        if t.call_own(descriptor, "__get__", [cls, Var(type(value))], then):
            return None
        return t.deliver(then, part_of_class(t, cls, name))
    class_value = t.look_up(value, name)
    if class_value is MISSING:
        for place, kind in ((cls, value), (Var(type(value)), type(value))):
            if may_change(t, kind) and (kind is value or meta is MISSING):
                t.guards.add("lacks", place_of(t, place), name)
        if isinstance(meta, types.FunctionType):
            return t.deliver(then, bound_method(t, cls, Var(meta)))
        if meta is MISSING and t.call_own(cls, "__getattr__", [Var(name)], then):
            return None
        if meta is not MISSING:
            descriptor = in_class(t, class_of(t, cls), name, meta)
            if t.call_own(descriptor, "__get__", [cls, Var(type(value))], then):
                return None
        if meta is MISSING or t.has(Var(meta), "__get__"):
            return t.give(then, t.do(getattr, value, name))
        cls, value, class_value = Var(type(value)), type(value), meta
    new_value = class_written(t, value, name)
    if new_value is not None:
        return t.deliver(then, new_value)
    getter = getter_of_class(class_value)
    if getter is not None:
        return t.call(Var(getter), [cls], {}, then)
    method = of_class(t, cls, class_value)
    if method is not None:
        return t.deliver(then, method)
    if t.call_own(in_class(t, cls, name, class_value), "__get__", [Var(None), cls], then):
        return None
    if t.has(Var(class_value), "__get__"):
        return t.give(then, t.do(getattr, value, name))
    if not may_change(t, value):
        return t.give(then, class_value)
    if isinstance(class_value, enum.Enum):
        return t.deliver(then, member_of_enum(t, value, name, class_value))
    source: Any = source_in(t, cls, "lookup", name)
    if is_library(value) and type(class_value) not in SCALARS:
        t.guards.add("is", source, class_value)
        return t.give(then, class_value)
    return t.deliver(then, t.heap.load(class_value, source))


def make_super(t: "CaptureTracer", cls: Var, obj: Var) -> Var:
    value = t.do(super, t.concretize(cls), obj.value)
    return Var(value, Recipe("call", Var(super), [cls, obj]), [cls, obj])


def super_attribute(t: "CaptureTracer", sup: Var, name: str, then: Any) -> Any:
    """super().name: found after the class in the object's order, bound to the object."""
    cls, obj = sup.items
    if name in SUPER_PARTS:
        return t.deliver(then, SUPER_PARTS[name](cls, obj))
    if t.typed(obj) is None:  # it is bound to no object
        return t.give(then, t.do(getattr, sup.value, name))
    for_class = isinstance(obj.value, type) and is_subtype(obj.value, cls.value)
    start = obj.value if for_class else type(t.typed(obj))
    base, class_value = look_up_super(start, cls.value, name)
    rely_on_super(t, start, cls.value, name, base)
    if base is None and name in super.__dict__:
        if not t.guards.live:
            return t.give(then, t.do(getattr, sup.value, name))
        raise Break(f"attribute {name!r} of a super", Var(getattr), [sup, Var(name)])
    if base is None:
        return t.fail(AttributeError(f"'super' object has no attribute {name!r}"))
    new_value = t.heap.class_items.get(base, {}).get(name)
    if new_value is not None:
        return t.deliver(then, new_value)
    if not is_descriptor(class_value):
        place = t.guards.source("const", None, base, base.__name__)
        source = t.guards.source("lookup", place, name) if may_change(t, base) else None
        return t.deliver(then, t.heap.load(class_value, source))
    if not for_class:
        return bind_attribute(t, obj, name, class_value, then, Var(base))
    method = of_class(t, obj, class_value)
    if method is not None:
        return t.deliver(then, method)
    descriptor = in_class(t, Var(base), name, class_value)
    if t.call_own(descriptor, "__get__", [Var(None), obj], then):
        return None
    return t.deliver(then, Var(t.do(getattr, sup.value, name)))


def super_of_frame(t: "CaptureTracer") -> Var:
    """super() without arguments."""
    frame = t.frames[-1]
    code = frame.root
    this = frame.locals[0] if code.co_argcount else None
    if not original_of(code)[0].co_argcount:
        t.fail(RuntimeError("super(): no arguments"))
    if this is not None and isinstance(this.value, types.CellType):
        this = cell_get(t, this, code.co_varnames[0]) if is_filled(this.value) else None
    if this is None:
        t.fail(RuntimeError("super(): arg[0] deleted"))
    if "__class__" not in code.co_freevars:
        t.fail(RuntimeError("super(): __class__ cell not found"))
    cell: Any = frame.locals[frame.code.slots.index("__class__")]
    if not is_filled(cell.value):
        t.fail(RuntimeError("super(): empty __class__ cell"))
    return make_super(t, cell_get(t, cell, "__class__"), this)


def is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not MISSING
    except ValueError:
        return False
