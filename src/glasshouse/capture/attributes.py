"""Reading and writing attributes, with guards on what was read and a log of what was written."""

import enum
import threading
import types

from glasshouse.capture.frame import CapturedGenerator, CapturedIterator, type_of
from glasshouse.capture.plain import (
    CACHED,
    FUNCTIONS,
    MISSING,
    SCALARS,
    getter_of_class,
    is_heap,
    is_library,
    static_lookup,
)
from glasshouse.capture.plain import is_instance as isinstance
from glasshouse.capture.rebound_globals import is_rebound
from glasshouse.capture.signatures import is_of_signature, signature_part
from glasshouse.capture.values import (
    Break,
    Recipe,
    UserError,
    ValueSource,
    Var,
    constant,
    discarded,
    is_new_container,
    own_method,
    pending,
)

# The getters that do nothing special.
PLAIN_GETTERS = {kind.__getattribute__ for kind in (object, BaseException, types.MethodType)}
CHAINED = {"__context__", "__cause__", "__suppress_context__", "__traceback__"}
CONTAINERS = (list, tuple, dict, set, frozenset)  # whose Vars have their items
FUNCTION_PARTS = set(
    "__code__ __defaults__ __kwdefaults__ __closure__ __dict__ __name__ __qualname__ __doc__ "
    "__module__ __wrapped__ __annotations__".split()
)
CLASS_TEXTS = {"__doc__", "__name__", "__qualname__", "__module__"}
# What an object made by `super` has itself: of the class and the object that it is for.
SUPER_PARTS = {
    "__class__": lambda cls, obj: Var(super),
    "__thisclass__": lambda cls, obj: cls,
    "__self__": lambda cls, obj: obj,
}
# Of a new function: what can be changed in place.
FUNCTION_PARTS_KEPT = {"__closure__", "__dict__", "__defaults__", "__kwdefaults__"}
FUNCTION_PARTS_KEPT |= {"__annotations__"}

# What a call of a function goes by.
FUNCTION_PARTS_CALLED = {"__code__", "__defaults__", "__kwdefaults__"}


class AttributeRules:
    """The part of the tracer that knows how attributes are found, bound and set."""

    def attribute_now(self, obj: Var, name: str) -> Var | None:
        """An attribute that needs no user's code to read; None if there is none."""
        results = []
        depth = len(self.frames)
        try:
            self.get_attribute(obj, name, lambda t, v: results.append(v))
        except UserError:
            return None
        if len(self.frames) > depth or not results:
            raise Break(f"attribute {name!r} runs code in a pattern", None)
        return results[0]

    @pending
    def get_attribute(self, obj: Var, name: str, then=None, special=False, plain=False):
        """obj.name, given to `then` or pushed; `special` looks it up on the type alone, `plain` as
        object.__getattribute__ does."""
        obj = self.functions.get(id(obj.value), obj)
        value = obj.value
        if self.is_tensor(obj):
            return self.deliver(then, self.front.attribute(self, obj, name))
        if self.front.is_ambient(value):
            return self.give(then, self.do(getattr, value, name))
        own = isinstance(value, CapturedGenerator) and hasattr(value.kind, name)
        if own and hasattr(value, name):
            return self.deliver(then, Var(getattr(value, name), Recipe("method", obj, name)))
        if own:
            if self.live:
                raise Break(f"attribute {name!r} of a {value.kind.__name__}")
            obj.value = value = value.native()
            self.handed_over.append(obj)
        if isinstance(value, CapturedIterator) and hasattr(value.native(), name):
            if name not in ("__next__", "__iter__"):
                reason = f"attribute {name!r} of a {type_of(value).__name__}"
                raise Break(reason, Var(getattr), [obj, Var(name)])
            return self.deliver(
                then, Var(getattr(value.native(), name), Recipe("method", obj, name))
            )
        has_items = (
            isinstance(obj.items, dict) and not isinstance(value, CONTAINERS) and not special
        )
        if has_items and name in obj.items:
            attribute = obj.items[name]
            if attribute is None:
                kind = type(value).__name__
                self.fail(AttributeError(f"{kind!r} object has no attribute {name!r}"))
            return self.deliver(then, attribute)
        if is_of_signature(obj):
            return self.deliver(then, signature_part(self, obj, name))
        if isinstance(value, types.ModuleType):
            return self.module_attribute(obj, name, then)
        if isinstance(value, super):
            return self.super_attribute(obj, name, then)
        if isinstance(value, type):
            return self.class_attribute(obj, name, then)
        if type(value) is slice and obj.is_made("call") and name in ("start", "stop", "step"):
            return self.deliver(then, slice_parts(obj)[name])
        is_method = obj.is_made("method")
        if is_method and name == "__self__":
            return self.deliver(then, obj.origin.parts[0])
        if is_method and name == "__func__":
            return self.give(then, value.__func__)
        if isinstance(value, types.FunctionType) and name in FUNCTION_PARTS:
            if obj.is_new and name in FUNCTION_PARTS_KEPT or obj.items and name == "__dict__":
                reason = f"{name} of a new or changed function"
                raise Break(reason, Var(getattr), [obj, Var(name)])
            part = self.do(getattr, value, name)
            return self.deliver(then, self.load(part, self.sub(obj, "attr", name)))
        return self.instance_attribute(obj, name, then, special, plain)

    def module_attribute(self, obj: Var, name: str, then):
        """An attribute of a module."""
        value = obj.value
        if name == "__dict__":
            raise Break("the namespace of a module", Var(getattr), [obj, Var(name)])
        if name not in value.__dict__:
            return self.give(then, self.do(getattr, value, name))
        source = self.entry_source(self.dict_of(obj), name)
        if obj.origin is None and self.live:
            base = self.guards.source("const", None, value, value.__name__)
            source = self.entry_source(self.guards.source("dict", base), name)
        fixed = self.frames[-1].trusted and not is_rebound(value.__dict__, name)
        return self.deliver(then, self.load_in(fixed, value.__dict__[name], source))

    def instance_attribute(self, obj: Var, name: str, then, special: bool, plain: bool):
        """An attribute of an ordinary object."""
        value, cls = obj.value, type(obj.value)
        if self.scheduled and self.front.is_stale(self, obj):
            raise Break("a read behind a scheduler's step")
        self.typed(obj)
        own_getter = not plain and cls.__getattribute__ not in PLAIN_GETTERS
        if own_getter and self.call_own(obj, "__getattribute__", [Var(name)], then):
            return None
        if name == "__class__":
            return self.give(then, cls)
        if name == "__dict__" and hasattr(value, "__dict__"):
            return self.deliver(then, self.object_dict(obj))
        class_value = static_lookup(cls, name)[0]
        written = self.class_written(cls, name)
        if written is not None and name not in getattr(value, "__dict__", ()):
            return self.deliver(then, written)
        self.rely_on_class(obj, cls, name, class_value)
        if is_data_descriptor(class_value):
            return self.bind_attribute(obj, name, class_value, then)
        if not special:
            own = getattr(value, "__dict__", None)
            if own is None and cls.__dictoffset__ and self.live:  # C keeps it to itself
                reason = f"attribute {name!r} of a {cls.__name__}"
                raise Break(reason, Var(getattr), [obj, Var(name)])
            if isinstance(own, dict):
                table = self.known_attributes(obj, own)
                if table is not None and name in table.items:
                    return self.deliver(then, table.items[name][1])
                if name in own:
                    source = self.entry_source(self.dict_of(obj), name)
                    return self.deliver(then, self.load(own[name], source))
                if self.live and isinstance(obj.origin, ValueSource) and not is_library(cls):
                    self.guards.add("absent", self.dict_of(obj), name)
            hidden = plain or class_value is not MISSING
            member = None if hidden else self.front.member(self, obj, name)
            if member is not None:
                return self.deliver(then, member)
        if class_value is not MISSING:
            return self.bind_attribute(obj, name, class_value, then)
        if not self.live and not special and not plain:
            return self.deliver(then, self.real_call(Var(getattr), [obj, Var(name)], {}))
        if not special and not plain and self.call_own(obj, "__getattr__", [Var(name)], then):
            return None
        reader = object.__getattribute__ if plain else getattr
        self.do(reader, value, name)  # raises where there is none
        raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])

    def known_attributes(self, obj: Var, own: dict | None) -> Var | None:
        """What is known of an object's dict, `own`, where it was reached as a dict: in later calls
        too it is that object's."""
        table, source = self.tracked.get(id(own)), self.dict_of(obj)
        if table is None or table.items is None:
            return None
        return table if source is None else self.load(own, source)

    def class_written(self, cls: type, name: str) -> Var | None:
        """What the trace put into a class, or a base of it, under this name."""
        tables = (self.class_items.get(c, ()) for c in cls.__mro__)
        return next((table[name] for table in tables if name in table), None)

    def rely_on_class(self, obj: Var, cls: type, name: str, class_value) -> None:
        """Guard what a class has under a name (MISSING: that it has nothing), unless it is the
        library's or built in."""
        if not self.live or not isinstance(obj.origin, ValueSource) or is_library(cls):
            return
        if is_heap(cls):  # others cannot be changed
            kind = self.guards.source("type", obj.origin)
            if class_value is MISSING:
                self.guards.add("lacks", kind, name)
            elif type(class_value) not in SCALARS:
                place = self.guards.source("lookup", kind, name)
                self.guards.add("is", place, class_value)
                if type(class_value) is types.FunctionType:
                    self.guards.add("code", place, class_value.__code__)

    def object_dict(self, obj: Var) -> Var:
        """obj.__dict__, as a dict that shares what is known of the attributes."""
        if obj.is_made("object") or is_new_container(obj):
            return self.attributes_of_new(obj)
        if obj.is_new or obj.items:
            reason = "the __dict__ of an object that was written to"
            raise Break(reason, Var(getattr), [obj, Var("__dict__")])
        return self.load(obj.value.__dict__, self.dict_of(obj))

    def bind_attribute(self, obj: Var, name: str, class_value, then):
        """What a class has under a name, as an instance sees it: functions bind to it, descriptors
        run."""
        kind = type(obj.value)
        if isinstance(class_value, (types.FunctionType, CACHED)):
            return self.deliver(then, self.bound(obj, Var(class_value)))
        getter = getter_of_class(class_value)
        if getter is not None:
            return self.call(Var(getter), [Var(kind)], {}, then)
        if isinstance(class_value, (staticmethod, classmethod)):
            return self.deliver(then, self.of_class(Var(kind), class_value))
        if isinstance(class_value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            method = class_value.__get__(obj.value, kind)
            return self.deliver(then, Var(method, Recipe("method", obj, Var(class_value))))
        if isinstance(class_value, property):
            if class_value.fget is None:
                self.do(class_value.__get__, obj.value, kind)  # raises
            return self.call(Var(class_value.fget), [obj], {}, then)
        items = self.sequence(obj) if isinstance(obj.value, tuple) else None
        if items is not None and name in getattr(kind, "_fields", ()):
            return self.deliver(then, items[kind._fields.index(name)])
        if self.call_own(Var(class_value), "__get__", [obj, Var(kind)], then):
            return None
        if not hasattr(type(class_value), "__get__"):
            table = self.sub(obj, "type")
            source = None if table is None else self.guards.source("lookup", table, name)
            return self.deliver(then, self.load(class_value, source))
        value = self.do(class_value.__get__, obj.value, kind)
        if callable(value) and not hasattr(type(class_value), "__set__"):
            return self.deliver(then, Var(value, Recipe("method", obj, name)))
        if isinstance(obj.origin, Recipe):
            return self.deliver(then, self.part_of_new(obj, name, value))
        return self.deliver(then, self.load(value, self.sub(obj, "attr", name)))

    def part_of_new(self, obj: Var, name: str, value) -> Var:
        """What something new has in a place of its own that C code keeps."""
        made = obj.origin.kind == "call" and obj.origin.parts[0].value is type(obj.value)
        if name == "args" and made and isinstance(obj.value, BaseException):
            return self.new_tuple(obj.origin.parts[1])
        if name == "value" and type(obj.value) is StopIteration and obj.origin.kind == "call":
            return obj.origin.parts[1][0] if obj.origin.parts[1] else Var(None)
        var = self.tracked.get(id(value))
        if var is not None or value is None:
            return var or Var(None)
        if isinstance(obj.value, BaseException) and self.is_plain(value):
            return Var(value) if name == "args" else constant(value)
        if isinstance(value, CONTAINERS):
            reason = f"attribute {name!r} of a new {type(obj.value).__name__}"
            raise Break(reason, Var(getattr), [obj, Var(name)])
        return self.track(Var(value, Recipe("call", Var(getattr), [obj, Var(name)]), {}))

    def of_class(self, cls: Var, class_value) -> Var | None:
        """A static or class method, or a function, as its class sees it; None for other things."""
        if isinstance(class_value, classmethod):
            return self.bound(cls, Var(class_value.__func__))
        if isinstance(class_value, (staticmethod, types.FunctionType)):
            return Var(getattr(class_value, "__func__", class_value))
        return None

    def bound(self, obj: Var, fn: Var) -> Var:
        """A method bound to an object."""
        return Var(types.MethodType(fn.value, obj.value), Recipe("method", obj, fn))

    def class_attribute(self, cls: Var, name: str, then):
        """An attribute of a class."""
        value = self.concretize(cls)
        meta, _ = static_lookup(type(value), name)
        if isinstance(meta, property):
            return self.call(Var(meta.fget), [cls], {}, then)
        if is_data_descriptor(meta):
            part = self.do(getattr, value, name)
            if not self.live or name not in CLASS_TEXTS or not is_heap(value):
                return self.deliver(then, constant(part))
            return self.deliver(then, self.load(part, self.part_of_class(cls, "attr", name)))
        class_value = static_lookup(value, name)[0]
        if class_value is MISSING:
            if isinstance(meta, types.FunctionType):
                return self.deliver(then, self.bound(cls, Var(meta)))
            if meta is MISSING or hasattr(type(meta), "__get__"):
                return self.give(then, self.do(getattr, value, name))
            if self.may_change(value):
                self.guards.add("lacks", self.place_of_class(cls), name)
            cls, value, class_value = Var(type(value)), type(value), meta
        written = self.class_written(value, name)
        if written is not None:
            return self.deliver(then, written)
        getter = getter_of_class(class_value)
        if getter is not None:
            return self.call(Var(getter), [cls], {}, then)
        method = self.of_class(cls, class_value)
        if method is not None:
            if self.may_change(value):
                place = self.part_of_class(cls, "lookup", name)
                self.guards.add("is", place, class_value)
            return self.deliver(then, method)
        if hasattr(type(class_value), "__get__"):
            return self.give(then, self.do(getattr, value, name))
        if not self.may_change(value) or isinstance(class_value, enum.Enum):
            return self.give(then, class_value)
        return self.deliver(then, self.load(class_value, self.part_of_class(cls, "lookup", name)))

    def may_change(self, cls: type) -> bool:
        """Whether other things may be found in a class in later calls."""
        return self.live and is_heap(cls) and not is_library(cls)

    def place_of_class(self, cls: Var) -> ValueSource:
        """The source of a class."""
        if isinstance(cls.origin, ValueSource):
            return cls.origin
        return self.guards.source("const", None, cls.value, cls.value.__name__)

    def part_of_class(self, cls: Var, kind: str, name: str) -> ValueSource:
        """The source of an attribute of a class."""
        return self.guards.source(kind, self.place_of_class(cls), name)

    def make_super(self, cls: Var, obj: Var) -> Var:
        value = self.do(super, self.concretize(cls), obj.value)
        return Var(value, Recipe("call", Var(super), [cls, obj]), [cls, obj])

    def super_attribute(self, sup: Var, name: str, then):
        """super().name: found behind the class in the object's order, bound to the object."""
        cls, obj = sup.items
        if name in SUPER_PARTS:
            return self.deliver(then, SUPER_PARTS[name](cls, obj))
        own = isinstance(obj.value, type) and issubclass(obj.value, cls.value)
        start = obj.value if own else type(self.typed(obj))
        order = start.__mro__
        for base in order[order.index(cls.value) + 1 :]:
            if name in base.__dict__:
                class_value = base.__dict__[name]
                if not own:
                    return self.bind_attribute(obj, name, class_value, then)
                method = self.of_class(obj, class_value)
                return self.deliver(then, method or Var(self.do(getattr, sup.value, name)))
        return self.fail(AttributeError(f"'super' object has no attribute {name!r}"))

    @pending
    def set_attribute(self, obj: Var, name: str, var: Var | None, then=discarded):
        """obj.name = var (None deletes); what comes back goes to `then`."""
        value, cls, more = obj.value, type(obj.value), [] if var is None else [var]
        if self.is_tensor(obj):
            self.front.set_attribute(self, obj, name, var)
            return self.give(then, None)
        change = Var(setattr if more else delattr)
        if isinstance(value, type):
            self.concretize(obj)
            own = name[:2] == "__" or cls.__setattr__ is not type.__setattr__
            binds = var is not None and hasattr(type(var.value), "__get__")
            if own or binds or not self.live:
                reason = f"attribute {name!r} of a class is set"
                raise Break(reason, change, [obj, Var(name), *more])
            self.do(change.value, value, name, *(x.value for x in more))
            self.class_items.setdefault(value, {})[name] = var
            self.write(self.class_var(value), ("attr", name, var))
            return self.give(then, None)
        self.typed(obj)
        if self.live and self.scheduled and self.front.is_stale(self, obj):
            reason = "a write behind a scheduler's step"
            raise Break(reason, change, [obj, Var(name), *more])
        setter = "__setattr__" if more else "__delattr__"
        if isinstance(value, (types.ModuleType, threading.local)):
            if not self.live:
                return self.give(then, self.do(change.value, value, name, *(x.value for x in more)))
            reason = f"an attribute of a {cls.__name__} is set"
            raise Break(reason, change, [obj, Var(name), *more])
        if own_method(obj, setter) and not self.front.sets_plainly(obj, name, var):
            self.call_own(obj, setter, [Var(name), *more], then)
            return None
        return self.set_plain(obj, name, var, then)

    @pending
    def set_plain(self, obj: Var, name: str, var: Var | None, then=discarded):
        """What object.__setattr__ does; what comes back goes to `then`."""
        obj = self.functions.get(id(obj.value), obj)
        value, cls, more = obj.value, type(obj.value), [] if var is None else [var]
        plain = object.__setattr__ if more else object.__delattr__
        if not self.live:
            self.hand_over(more)
            self.do(plain, value, name, *(x.value for x in more))
            return self.give(then, None)
        if isinstance(value, types.FunctionType) and name in FUNCTION_PARTS_CALLED:
            reason = f"{name} of a function is set"
            raise Break(reason, Var(plain), [obj, Var(name), *more])
        class_value, _ = static_lookup(cls, name)
        if isinstance(class_value, property):
            setter = class_value.fset if more else class_value.fdel
            if setter is None:
                self.do(plain, value, name, *(x.value for x in more))  # raises
            return self.call(Var(setter), [obj, *more], {}, then)
        if more and self.call_own(Var(class_value), "__set__", [obj, var], then):
            return None
        data = hasattr(type(class_value), "__set__") or hasattr(type(class_value), "__delete__")
        function = isinstance(value, FUNCTIONS) and not isinstance(value, types.FunctionType)
        if is_new_container(obj) and not data and (more or name in value.__dict__):
            self.store_item(self.attributes_of_new(obj), Var(name), var)
            return self.give(then, None)
        if function or isinstance(value, CONTAINERS) or data and not is_slot(class_value):
            reason = f"attribute {name!r} of a {cls.__name__} is set"
            raise Break(reason, Var(plain), [obj, Var(name), *more])
        table = self.known_attributes(obj, own_dict(value))
        there = more or name in (own_dict(value) or ())
        if there and table is not None and not data:
            self.store_item(table, Var(name), var)
            return self.give(then, None)
        if not more and name not in (obj.items or ()):
            self.rely_on_presence(obj, name, table)
        self.do(plain, value, name, *(x.value for x in more))
        if obj.is_new and name in CHAINED and isinstance(value, BaseException):
            return self.give(then, None)  # it also changes where the exception is raised again
        if not isinstance(obj.items, dict):
            obj.items = {}
        if isinstance(value, types.FunctionType):
            self.functions[id(value)] = obj
        obj.items[name] = var
        if not obj.is_new:
            self.write(obj, ("attr", name, var))
        return self.give(then, None)

    def rely_on_presence(self, obj: Var, name: str, table: Var | None) -> None:
        """Guard that an object has an attribute of its own, or has not: it is deleted. `table` is
        what is known of its dict."""
        own, source = own_dict(obj.value), self.dict_of(obj)
        if table is not None:
            self.entry(table, name)
        elif own is not None and source is not None and name in own:
            self.load(own[name], self.entry_source(source, name))
        elif own is not None and source is not None:
            self.guards.add("absent", source, name)

    def attributes_of_new(self, obj: Var) -> Var:
        """The dict with the attributes of a new object, or of a list or dict of a user's class."""
        own = obj.value.__dict__
        table = self.tracked.get(id(own))
        if table is None:
            table = self.track(Var(own, Recipe("attributes", obj), {}))
            items = obj.items if obj.is_made("object") else {}
            for name in [x for x in items if x in own]:
                table.items[name] = Var(name), items.pop(name)
        return table

    def class_var(self, cls: type) -> Var:
        """The Var of a class that is written to."""
        var = self.tracked.get(id(cls))
        if var is None:
            var = self.tracked[id(cls)] = Var(cls)
        return var


def slice_parts(var: Var) -> dict[str, Var]:
    """What a new slice was made of."""
    parts = var.origin.parts[1]
    names = ("stop",) if len(parts) == 1 else ("start", "stop", "step")
    return dict.fromkeys(("start", "stop", "step"), Var(None)) | dict(zip(names, parts))


def is_data_descriptor(class_value) -> bool:
    """Whether what a class has under a name goes before what an instance has under it."""
    kind = type(class_value)
    return hasattr(kind, "__get__") and (hasattr(kind, "__set__") or hasattr(kind, "__delete__"))


def is_slot(descriptor) -> bool:
    """Whether a descriptor is a place in the object itself, as `__slots__` makes them."""
    return isinstance(descriptor, (types.MemberDescriptorType, types.GetSetDescriptorType))


def own_dict(value) -> dict | None:
    """The dict of an object's attributes; nothing of the user's runs."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
