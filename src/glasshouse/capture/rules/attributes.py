"""Reading and writing attributes, with guards on reads and a log of writes."""

import functools
import threading
import types
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator
from glasshouse.capture.guards.class_reads import is_descriptor
from glasshouse.capture.rules.attribute_parts import (
    attributes_of_new,
    class_var,
    dict_entry,
    function_part,
    iterator_method,
    known_attributes,
    object_dict,
    rely_on_absence,
)
from glasshouse.capture.rules.class_attributes import class_attribute, super_attribute
from glasshouse.capture.rules.class_lookups import (
    class_of,
    dict_of,
    in_class,
    rely_on_bases,
    rely_on_data,
    rely_on_own,
)
from glasshouse.capture.rules.descriptors import (
    WITH_ITEMS,
    bind_attribute,
    class_written,
    read_descriptor,
    slice_parts,
)
from glasshouse.capture.rules.iteration import OrElse
from glasshouse.capture.rules.variables import cell_get, cell_set
from glasshouse.capture.values.plain import (
    FUNCTIONS,
    MISSING,
    PROXIES,
    converts,
    defers_annotations,
    is_data_descriptor,
    is_empty,
    is_heap,
    is_library,
    is_slot,
    own_dict,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.rebound_globals import is_rebound
from glasshouse.capture.values.signatures import is_of_signature, signature_part
from glasshouse.capture.values.var import (
    Break,
    Then,
    UserError,
    Var,
    discarded,
    is_new_container,
    pending,
    without_result,
)

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


# The getters that do nothing special.
PLAIN_GETTERS = {kind.__getattribute__ for kind in (object, BaseException, types.MethodType)}
CHAINED = {"__context__", "__cause__", "__suppress_context__", "__traceback__"}
FUNCTION_PARTS = set(
    "__code__ __defaults__ __kwdefaults__ __closure__ __dict__ __name__ __qualname__ __doc__ "
    "__module__ __wrapped__ __annotations__".split()
)
# Parts of a function that its call depends on.
FUNCTION_PARTS_CALLED = {"__code__", "__defaults__", "__kwdefaults__"}


def attribute_now(t: "CaptureTracer", obj: Var, name: str) -> Var | None:
    """An attribute that is read without running user code; None if there is none."""
    results = []
    depth = len(t.frames)
    try:
        t.get_attribute(obj, name, lambda t, v: results.append(v))
    except UserError:
        return None
    if len(t.frames) > depth or not results:
        raise Break(f"attribute {name!r} runs code in a pattern", None)
    return results[0]


@pending
def get_attribute(
    t: "CaptureTracer",
    obj: Var,
    name: str,
    then: Then = None,
    special: bool = False,
    plain: bool = False,
) -> Any:
    """obj.name, delivered to `then` or pushed. `special` looks it up on the type alone, `plain`
    as object.__getattribute__ does."""
    obj = t.heap.functions.get(id(obj.value), obj)
    value, kind = obj.value, type(obj.value)
    if t.is_tensor(obj):
        return t.deliver(then, t.front.attribute(t, obj, name))
    if t.front.is_ambient(value):
        return t.give(then, t.do(getattr, value, name))
    if issubclass(kind, (CapturedGenerator, CapturedIterator)):
        method = iterator_method(t, obj, name)
        if method is not None:
            return t.deliver(then, method)
        value, kind = obj.value, type(obj.value)
    has_items = isinstance(obj.items, dict) and not issubclass(kind, WITH_ITEMS) and not special
    if has_items and name in obj.items:
        return written_attribute(t, obj, name, then, plain)
    if is_of_signature(obj):
        return t.deliver(then, signature_part(t, obj, name))
    if kind is types.CellType and name == "cell_contents" and t.guards.live:
        if is_empty(value):
            raise Break("the contents of an empty cell", Var(getattr), [obj, Var(name)])
        return t.deliver(then, cell_get(t, obj, name))
    if name == "__annotations__" and t.guards.live and defers_annotations(value):
        raise Break("annotations that are made when asked for", Var(getattr), [obj, Var(name)])
    is_part = issubclass(kind, types.FunctionType) and name in FUNCTION_PARTS
    is_namespace = issubclass(kind, types.ModuleType) and name == "__dict__"
    if not t.guards.live and (is_part or is_namespace or kind in PROXIES):
        return t.give(then, t.do(getattr, value, name))
    if issubclass(kind, types.ModuleType):
        return module_attribute(t, obj, name, then)
    if issubclass(kind, super):
        return super_attribute(t, obj, name, then)
    if issubclass(kind, type):
        return class_attribute(t, obj, name, then)
    if kind is slice and obj.is_made("call") and name in ("start", "stop", "step"):
        return t.deliver(then, slice_parts(obj)[name])
    is_method = obj.is_made("method")
    if is_method and name == "__self__":
        return t.deliver(then, obj.origin.parts[0])
    if is_method and name == "__func__":
        return t.give(then, value.__func__)
    if is_part and hasattr(value, name):  # not all have __wrapped__
        return t.deliver(then, function_part(t, obj, name))
    return instance_attribute(t, obj, name, then, special, plain)


def written_attribute(t: "CaptureTracer", obj: Var, name: str, then: Then, plain: bool) -> Any:
    """An attribute that the trace set; for a deleted one, the attribute of the class."""
    if not plain and t.call_own(obj, "__getattribute__", [Var(name)], then):
        return None
    cls, attribute = type(obj.value), obj.items[name]
    if attribute is not None:
        return t.deliver(then, attribute)
    class_value, new_value = t.look_up(cls, name), class_written(t, cls, name)
    if new_value is not None:
        return t.deliver(then, new_value)
    rely_on_data(t, obj, name, class_value)
    if class_value is not MISSING and not is_slot(class_value):
        return bind_attribute(t, obj, name, class_value, then)
    if not plain and t.call_own(obj, "__getattr__", [Var(name)], then):
        return None
    way = object.__getattribute__ if plain else getattr
    return t.give(then, t.do(way, obj.value, name))  # raises, but for members of C


def module_attribute(t: "CaptureTracer", obj: Var, name: str, then: Then) -> Any:
    """An attribute of a module."""
    value = obj.value
    if name == "__dict__":
        raise Break("the namespace of a module", Var(getattr), [obj, Var(name)])
    names = dict_of(t, obj)
    trusted, scope = t.frames.in_library(), t.heap.scopes.get(id(value.__dict__))
    if not trusted:
        t.typed(obj)  # another object may take its place
        t.guards.note_read("item", value.__dict__, name, value)
    if scope is not None and name in scope.items:
        if scope.items[name] is None:
            raise Break("a global that was deleted", Var(getattr), [obj, Var(name)])
        return t.deliver(then, scope.items[name])
    if obj.origin is None and t.guards.live:
        obj = Var(value, t.guards.source("const", None, value, value.__name__))
        names = dict_of(t, obj)
    if name not in value.__dict__:
        finder, kind = value.__dict__.get("__getattr__"), type(t.typed(obj))
        if names is not None and not trusted:
            t.guards.add("absent", names, name)
            if finder is None:
                t.guards.add("absent", names, "__getattr__")
        class_value = MISSING if is_library(kind) else t.look_up(kind, name)
        if class_value is not MISSING and is_heap(kind):
            rely_on_data(t, obj, name, class_value)
            return bind_attribute(t, obj, name, class_value, then)
        if t.guards.live and isinstance(finder, types.FunctionType) and name[:2] != "__":
            getter = t.heap.load(finder, t.heap.entry_source(names, "__getattr__"))
            return t.call(getter, [Var(name)], {}, then)
        return t.give(then, t.do(getattr, value, name))
    source = t.heap.entry_source(names, name)
    fixed = trusted and not is_rebound(value.__dict__, name)
    return t.deliver(then, t.heap.load_in(fixed, value.__dict__[name], source))


def instance_attribute(
    t: "CaptureTracer", obj: Var, name: str, then: Then, special: bool, plain: bool
) -> Any:
    """An attribute of an ordinary object."""
    value, cls = obj.value, type(obj.value)
    if t.effects.scheduled and t.front.is_stale(t, obj):
        raise Break("a read after a scheduler's step")
    t.typed(obj)
    own_getter = cls.__getattribute__ not in PLAIN_GETTERS
    if plain and own_getter and isinstance(value, threading.local):  # whose dict C finds
        reader = Var(object.__getattribute__)
        raise Break(f"attribute {name!r} of a {cls.__name__}", reader, [obj, Var(name)])
    if own_getter and not plain and t.call_own(obj, "__getattribute__", [Var(name)], then):
        return None
    if name == "__class__":
        return t.give(then, cls)
    if name == "__dict__" and own_dict(value) is not None:
        return t.deliver(then, object_dict(t, obj))
    class_value = t.look_up(cls, name)
    if is_heap(type(class_value)):  # its class decides whether it is a descriptor
        rely_on_bases(t, type(class_value))
    new_value = class_written(t, cls, name)
    if new_value is not None and name not in (own_dict(value) or ()):
        rely_on_absence(t, obj, name)
        return t.deliver(then, new_value)
    if is_data_descriptor(class_value):
        return bind_attribute(t, obj, name, class_value, then)
    if not special:
        entry = dict_entry(t, obj, name)
        if entry is not MISSING:
            return t.deliver(then, entry)
        rely_on_data(t, obj, name, class_value)
        hidden = plain or class_value is not MISSING
        member = None if hidden else t.front.member(t, obj, name)
        if member is not None:
            return t.deliver(then, member)
    if special:
        rely_on_data(t, obj, name, class_value)
    if type(class_value) is functools.cached_property and not special:
        return compute_once(t, obj, name, class_value, then)
    if class_value is not MISSING:
        return bind_attribute(t, obj, name, class_value, then)
    if not t.guards.live and not special and not plain:
        return t.deliver(then, t.real_call(Var(getattr), [obj, Var(name)], {}))
    if not special and not plain and t.call_own(obj, "__getattr__", [Var(name)], then):
        return None
    reader = object.__getattribute__ if plain else getattr
    t.do(reader, value, name)  # raises if there is none
    raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])


def compute_once(
    t: "CaptureTracer", obj: Var, name: str, attribute: functools.cached_property[Any], then: Any
) -> Any:
    """The value of a cached_property, which from now on lies in the object. Python 3.11 takes a
    lock for that, which no graph needs."""
    descriptor = in_class(t, class_of(t, obj), name, attribute)

    def find(t, attrname: Var):
        stored_name = t.concretize(attrname)
        if stored_name is None or own_dict(obj.value) is None:
            t.do(attribute.__get__, obj.value, type(obj.value))  # raises
        entry = MISSING if stored_name == name else dict_entry(t, obj, stored_name)
        if entry is not MISSING:
            return t.deliver(then, entry)
        return t.get_attribute(descriptor, "func", lambda t, fn: t.call(fn, [obj], {}, keep))

    def keep(t, value: Var):
        set_plain(t, obj, attribute.attrname, value)
        return t.deliver(then, value)

    return t.get_attribute(descriptor, "attrname", find)


@pending
def set_attribute(
    t: "CaptureTracer", obj: Var, name: str, var: Var | None, then: Any = discarded
) -> Any:
    """obj.name = var (None deletes); the result goes to `then`."""
    value, cls, more = obj.value, type(obj.value), [] if var is None else [var]
    if t.is_tensor(obj):
        t.front.set_attribute(t, obj, name, var)
        return t.give(then, None)
    change = Var(setattr if more else delattr)
    if isinstance(value, type):
        t.concretize(obj)
        custom = name[:2] == "__" or t.look_up(cls, "__setattr__") is not type.__setattr__
        before = t.look_up(value, name) if var is None else var.value
        binds = callable(before) or is_descriptor(before)
        if var is None:
            rely_on_own(t, obj, name)
        if custom or binds or not t.guards.live:
            reason = f"attribute {name!r} of a class is set"
            raise Break(reason, change, [obj, Var(name), *more])
        t.do(change.value, value, name, *(x.value for x in more))
        t.heap.class_items.setdefault(value, {})[name] = var
        t.effects.write(class_var(t, value), ("attr", name, var))
        return t.give(then, None)
    t.typed(obj)
    if t.guards.live and t.front.is_called(t, value):
        raise Break("a layer that was called here is changed", change, [obj, Var(name), *more])
    if type(value) is types.CellType and name == "cell_contents":
        cell_set(t, obj, var)
        return t.give(then, None)
    setter = "__setattr__" if more else "__delattr__"
    if isinstance(value, (types.ModuleType, threading.local)):
        if not t.guards.live:
            return t.give(then, t.do(change.value, value, name, *(x.value for x in more)))
        reason = f"an attribute of a {cls.__name__} is set"
        raise Break(reason, change, [obj, Var(name), *more])
    if t.own_method(obj, setter) and not t.front.sets_plainly(t, obj, name, var):
        t.call_own(obj, setter, [Var(name), *more], without_result(then))
        return None
    if not is_set_plainly(value):
        reason = f"an attribute of a {cls.__name__} is set"
        raise Break(reason, change, [obj, Var(name), *more])
    return set_plain(t, obj, name, var, then)


@pending
def set_plain(
    t: "CaptureTracer", obj: Var, name: str, var: Var | None, then: Any = discarded
) -> Any:
    """Set or delete an attribute as object.__setattr__ does; the result goes to `then`."""
    obj = t.heap.functions.get(id(obj.value), obj)
    value, cls, more = obj.value, type(obj.value), [] if var is None else [var]
    plain = object.__setattr__ if more else object.__delattr__
    if not t.guards.live:
        t.heap.hand_over(more)
        t.do(plain, value, name, *(x.value for x in more))
        return t.give(then, None)
    if isinstance(value, types.FunctionType) and name in FUNCTION_PARTS_CALLED:
        raise Break(f"{name} of a function is set", Var(plain), [obj, Var(name), *more])
    class_value = t.look_up(cls, name)
    if isinstance(class_value, property):
        setter = class_value.fset if more else class_value.fdel
        if setter is None:
            t.do(plain, value, name, *(x.value for x in more))  # raises
        return t.call(Var(setter), [obj, *more], {}, without_result(then))
    descriptor = in_class(t, class_of(t, obj), name, class_value)
    if more and t.call_own(descriptor, "__set__", [obj, var], without_result(then)):
        return None
    data = any(t.has(Var(class_value), x) for x in ("__set__", "__delete__"))
    function = isinstance(value, FUNCTIONS) and not isinstance(value, types.FunctionType)
    is_there = name in ((attributes := own_dict(value)) or ())
    if is_new_container(obj) and not data and (is_there or more and attributes is not None):
        t.store_item(attributes_of_new(t, obj), Var(name), var)
        return t.give(then, None)
    function |= var is not None and converts(class_value, var.value)
    if function or isinstance(value, WITH_ITEMS) or data and not is_slot(class_value):
        reason = f"attribute {name!r} of a {cls.__name__} is set"
        raise Break(reason, Var(plain), [obj, Var(name), *more])
    table = known_attributes(t, obj, attributes)
    if (more or is_there) and table is not None and not data:
        t.store_item(table, Var(name), var)
        return t.give(then, None)
    if not more and name not in (obj.items or ()):
        rely_on_presence(t, obj, name, table, class_value)
    if var is not None and isinstance(class_value, types.GetSetDescriptorType):
        t.concretize(var) if isinstance(var.value, type) else t.typed(var)  # C looks at it
    t.do(plain, value, name, *(x.value for x in more))
    if obj.is_new and name in CHAINED and isinstance(value, BaseException):
        return t.give(then, None)  # it also changes where the exception is raised again
    if not isinstance(obj.items, dict):
        obj.items = {}
    if isinstance(value, types.FunctionType):
        t.heap.functions[id(value)] = obj
    obj.items[name] = var
    if not obj.is_new:
        t.effects.write(obj, ("attr", name, var))
    return t.give(then, None)


def rely_on_presence(
    t: "CaptureTracer", obj: Var, name: str, table: Var | None, class_value: Any
) -> None:
    """Guard whether an object itself has an attribute that is deleted. `table` is the Var of
    its dict, if known."""
    attributes, source = own_dict(obj.value), dict_of(t, obj)
    if isinstance(class_value, types.MemberDescriptorType):
        with suppress(UserError):  # of an unset slot: the deletion raises it again
            value = read_descriptor(t, obj, name, class_value)
            t.heap.load(value, t.heap.sub(obj, "attr", name))
    elif table is not None:
        t.entry(table, name)
    elif attributes is not None and source is not None and name in attributes:
        t.heap.load(attributes[name], t.heap.entry_source(source, name))
    elif attributes is not None and source is not None:
        t.guards.add("absent", source, name)


def is_set_plainly(value: Any) -> bool:
    """Whether attributes are set as `object.__setattr__` does. Before it looks at the name, that
    refuses an object whose class in C has another setter."""
    try:
        object.__setattr__(value, None, None)  # type: ignore[arg-type]  # refused either way
    except TypeError as error:
        return "can't apply" not in str(error)
    return True


def attribute_or(
    t: "CaptureTracer", whole: tuple[Any, ...], obj: Var, name: str, then: Then, other: Any
) -> Any:
    """obj.name to `then`, or other(tracer) if there is none. `whole` is the function and its
    arguments, which Python calls if this breaks."""
    frame = t.frames[-1]
    depth = len(t.frames)
    missing = False
    try:
        get_attribute(t, obj, name, then)
    except UserError as user_error:
        if not isinstance(user_error.error, AttributeError) or len(t.frames) != depth:
            raise
        missing = True
    except Break as graph_break:
        if not t.guards.live or len(t.frames) != depth:
            raise
        raise Break(graph_break.reason, *whole) from None
    if missing:
        return other(t)
    if t.frames[-1] is not frame:
        inner = t.frames[-1]  # which may have more to do with its result than to deliver it
        inner.then = OrElse(AttributeError, inner.then or then, lambda t, error: other(t))
    return None
