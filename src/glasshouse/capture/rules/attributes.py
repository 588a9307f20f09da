"""Reading and writing attributes, with guards on reads and a log of writes."""

import threading
import types
from collections import namedtuple
from contextlib import suppress

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator
from glasshouse.capture.guards.class_reads import is_descriptor
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.attribute_parts import dict_entry, function_part, iterator_method
from glasshouse.capture.values.plain import (
    CACHED,
    FUNCTIONS,
    MISSING,
    PROXIES,
    bound_to,
    converts,
    defers_annotations,
    getter_of_class,
    is_data_descriptor,
    is_empty,
    is_heap,
    is_library,
    is_slot,
    is_unset,
    own_dict,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.rebound_globals import is_rebound
from glasshouse.capture.values.signatures import is_of_signature, signature_part
from glasshouse.capture.values.var import (
    Break,
    Recipe,
    UserError,
    ValueSource,
    Var,
    constant,
    discarded,
    is_new_container,
    pending,
    without_result,
)

# The getters that do nothing special.
PLAIN_GETTERS = {kind.__getattribute__ for kind in (object, BaseException, types.MethodType)}
CHAINED = {"__context__", "__cause__", "__suppress_context__", "__traceback__"}
NAMED_FIELD = type(namedtuple("Pair", "first").first)  # the descriptor of a named tuple's field
CONTAINERS = (list, tuple, dict, set, frozenset)  # whose Vars have their items
FUNCTION_PARTS = set(
    "__code__ __defaults__ __kwdefaults__ __closure__ __dict__ __name__ __qualname__ __doc__ "
    "__module__ __wrapped__ __annotations__".split()
)
# Parts of a function that its call depends on.
FUNCTION_PARTS_CALLED = {"__code__", "__defaults__", "__kwdefaults__"}


class AttributeRules:
    """The part of the tracer that knows how attributes are found, bound and set."""

    def attribute_now(self, obj: Var, name: str) -> Var | None:
        """An attribute that is read without running user code; None if there is none."""
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
        """obj.name, delivered to `then` or pushed. `special` looks it up on the type alone, `plain`
        as object.__getattribute__ does."""
        obj = self.functions.get(id(obj.value), obj)
        value, kind = obj.value, type(obj.value)
        if self.is_tensor(obj):
            return self.deliver(then, self.front.attribute(self, obj, name))
        if self.front.is_ambient(value):
            return self.give(then, self.do(getattr, value, name))
        if issubclass(kind, (CapturedGenerator, CapturedIterator)):
            method = iterator_method(self, obj, name)
            if method is not None:
                return self.deliver(then, method)
            value, kind = obj.value, type(obj.value)
        has_items = isinstance(obj.items, dict) and not issubclass(kind, CONTAINERS) and not special
        if has_items and name in obj.items:
            return self.written_attribute(obj, name, then, plain)
        if is_of_signature(obj):
            return self.deliver(then, signature_part(self, obj, name))
        if kind is types.CellType and name == "cell_contents" and self.live:
            if is_empty(value):
                raise Break("the contents of an empty cell", Var(getattr), [obj, Var(name)])
            return self.deliver(then, self.cell_get(obj, name))
        if name == "__annotations__" and self.live and defers_annotations(value):
            raise Break("annotations that are made when asked for", Var(getattr), [obj, Var(name)])
        is_part = issubclass(kind, types.FunctionType) and name in FUNCTION_PARTS
        is_namespace = issubclass(kind, types.ModuleType) and name == "__dict__"
        if not self.live and (is_part or is_namespace or kind in PROXIES):
            return self.give(then, self.do(getattr, value, name))
        if issubclass(kind, types.ModuleType):
            return self.module_attribute(obj, name, then)
        if issubclass(kind, super):
            return self.super_attribute(obj, name, then)
        if issubclass(kind, type):
            return self.class_attribute(obj, name, then)
        if kind is slice and obj.is_made("call") and name in ("start", "stop", "step"):
            return self.deliver(then, slice_parts(obj)[name])
        is_method = obj.is_made("method")
        if is_method and name == "__self__":
            return self.deliver(then, obj.origin.parts[0])
        if is_method and name == "__func__":
            return self.give(then, value.__func__)
        if is_part and hasattr(value, name):  # not all have __wrapped__
            return self.deliver(then, function_part(self, obj, name))
        return self.instance_attribute(obj, name, then, special, plain)

    def written_attribute(self, obj: Var, name: str, then, plain: bool):
        """An attribute that the trace set; for a deleted one, the attribute of the class."""
        if not plain and self.call_own(obj, "__getattribute__", [Var(name)], then):
            return None
        cls, attribute = type(obj.value), obj.items[name]
        if attribute is not None:
            return self.deliver(then, attribute)
        class_value, new_value = self.look_up(cls, name), self.class_written(cls, name)
        if new_value is not None:
            return self.deliver(then, new_value)
        self.rely_on_data(obj, name, class_value)
        if class_value is not MISSING and not is_slot(class_value):
            return self.bind_attribute(obj, name, class_value, then)
        if not plain and self.call_own(obj, "__getattr__", [Var(name)], then):
            return None
        way = object.__getattribute__ if plain else getattr
        return self.give(then, self.do(way, obj.value, name))  # raises, but for members of C

    def module_attribute(self, obj: Var, name: str, then):
        """An attribute of a module."""
        value = obj.value
        if name == "__dict__":
            raise Break("the namespace of a module", Var(getattr), [obj, Var(name)])
        names = self.dict_of(obj)
        trusted, scope = self.in_library(), self.scopes.get(id(value.__dict__))
        if not trusted:
            self.note_read("item", value.__dict__, name, value)
        if scope is not None and name in scope.items:
            if scope.items[name] is None:
                raise Break("a global that was deleted", Var(getattr), [obj, Var(name)])
            return self.deliver(then, scope.items[name])
        if obj.origin is None and self.live:
            obj = Var(value, self.guards.source("const", None, value, value.__name__))
            names = self.dict_of(obj)
        if name not in value.__dict__:
            finder, kind = value.__dict__.get("__getattr__"), type(self.typed(obj))
            if names is not None and not trusted:
                self.guards.add("absent", names, name)
                if finder is None:
                    self.guards.add("absent", names, "__getattr__")
            class_value = MISSING if is_library(kind) else self.look_up(kind, name)
            if class_value is not MISSING and is_heap(kind):
                self.rely_on_data(obj, name, class_value)
                return self.bind_attribute(obj, name, class_value, then)
            if self.live and isinstance(finder, types.FunctionType) and name[:2] != "__":
                getter = self.load(finder, self.entry_source(names, "__getattr__"))
                return self.call(getter, [Var(name)], {}, then)
            return self.give(then, self.do(getattr, value, name))
        source = self.entry_source(names, name)
        fixed = trusted and not is_rebound(value.__dict__, name)
        return self.deliver(then, self.load_in(fixed, value.__dict__[name], source))

    def instance_attribute(self, obj: Var, name: str, then, special: bool, plain: bool):
        """An attribute of an ordinary object."""
        value, cls = obj.value, type(obj.value)
        if self.scheduled and self.front.is_stale(self, obj):
            raise Break("a read after a scheduler's step")
        self.typed(obj)
        own_getter = cls.__getattribute__ not in PLAIN_GETTERS
        if plain and own_getter and isinstance(value, threading.local):  # whose dict C finds
            reader = Var(object.__getattribute__)
            raise Break(f"attribute {name!r} of a {cls.__name__}", reader, [obj, Var(name)])
        if own_getter and not plain and self.call_own(obj, "__getattribute__", [Var(name)], then):
            return None
        if name == "__class__":
            return self.give(then, cls)
        if name == "__dict__" and own_dict(value) is not None:
            return self.deliver(then, self.object_dict(obj))
        class_value = self.look_up(cls, name)
        if is_heap(type(class_value)):  # its class decides whether it is a descriptor
            self.rely_on_bases(type(class_value))
        new_value = self.class_written(cls, name)
        if new_value is not None and name not in (own_dict(value) or ()):
            self.rely_on_absence(obj, name)
            return self.deliver(then, new_value)
        if is_data_descriptor(class_value):
            return self.bind_attribute(obj, name, class_value, then)
        if not special:
            entry = dict_entry(self, obj, name)
            if entry is not MISSING:
                return self.deliver(then, entry)
            self.rely_on_data(obj, name, class_value)
            hidden = plain or class_value is not MISSING
            member = None if hidden else self.front.member(self, obj, name)
            if member is not None:
                return self.deliver(then, member)
        if special:
            self.rely_on_data(obj, name, class_value)
        if class_value is not MISSING:
            return self.bind_attribute(obj, name, class_value, then)
        if not self.live and not special and not plain:
            return self.deliver(then, self.real_call(Var(getattr), [obj, Var(name)], {}))
        if not special and not plain and self.call_own(obj, "__getattr__", [Var(name)], then):
            return None
        reader = object.__getattribute__ if plain else getattr
        self.do(reader, value, name)  # raises if there is none
        raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])

    def rely_on_absence(self, obj: Var, name: str) -> None:
        """Guard that an object itself has no attribute of a name."""
        source = self.dict_of(obj)
        if source is not None and self.is_open(type(obj.value)) and own_dict(obj.value) is not None:
            self.guards.add("absent", source, name)

    def known_attributes(self, obj: Var, attributes: dict | None) -> Var | None:
        """The Var of an object's dict, `attributes`, if it was reached as a dict. Guards that in
        later calls too it is that object's."""
        table, source = self.tracked.get(id(attributes)), self.dict_of(obj)
        if table is None or table.items is None:
            return None
        return table if source is None else self.load(attributes, source)

    def class_written(self, cls: type, name: str) -> Var | None:
        """The value that the trace wrote to a class or one of its bases under this name. None if it
        wrote nothing, or if a class earlier in the order has the attribute itself.

        Raises: Break if the trace deleted it from one, since guards are checked before that
        """
        order = cls.__mro__ if self.class_items else ()
        deleted = (self.class_items.get(c, {}).get(name, MISSING) is None for c in order)
        if self.live and any(deleted):
            raise Break(f"{name!r} of a class, from which it was deleted")
        writers = [c for c in order if self.class_items.get(c, {}).get(name) is not None]
        for base in order if writers else ():
            if base is writers[0]:
                return self.class_items[base][name]
            self.rely_on_own(Var(base), name)
            if name in base.__dict__:
                return None
        return None

    def object_dict(self, obj: Var) -> Var:
        """obj.__dict__, as a dict that shares the Vars of the attributes."""
        if obj.is_made("object") or is_new_container(obj):
            return self.attributes_of_new(obj)
        if obj.is_new or obj.items:
            reason = "the __dict__ of an object that was written to"
            raise Break(reason, Var(getattr), [obj, Var("__dict__")])
        return self.load(own_dict(obj.value), self.dict_of(obj))

    def bind_attribute(self, obj: Var, name: str, class_value, then, owner: Var | None = None):
        """A class attribute as an instance sees it: functions bind to it, descriptors run. The
        class is `owner`, or the object's own."""
        kind = type(obj.value)
        if isinstance(class_value, (types.FunctionType, CACHED)):
            return self.deliver(then, self.bound(obj, Var(class_value)))
        getter = getter_of_class(class_value)
        if getter is not None:
            return self.call(Var(getter), [Var(kind)], {}, then)
        if isinstance(class_value, (staticmethod, classmethod)):
            return self.deliver(then, self.of_class(Var(kind), class_value))
        if isinstance(class_value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            method = bound_to(class_value, obj.value)
            return self.deliver(then, Var(method, Recipe("method", obj, Var(class_value))))
        if isinstance(class_value, property):
            if class_value.fget is None:
                self.do(class_value.__get__, obj.value, kind)  # raises
            return self.call(Var(class_value.fget), [obj], {}, then)
        items = self.stored_items(obj) if isinstance(class_value, NAMED_FIELD) else None
        if items is not None:
            return self.deliver(then, items[class_value.__reduce__()[1][0]])
        descriptor = self.in_class(owner or self.class_of(obj), name, class_value)
        if self.call_own(descriptor, "__get__", [obj, Var(kind)], then):
            return None
        if not self.has(Var(class_value), "__get__"):
            place = self.class_of(obj).origin if self.may_change(kind) else self.sub(obj, "type")
            source = None if place is None else self.guards.source("lookup", place, name)
            return self.deliver(then, self.load(class_value, source))
        value = self.read_descriptor(obj, name, class_value)
        if callable(value) and not self.has(Var(class_value), "__set__"):
            return self.deliver(then, Var(value, Recipe("method", obj, name)))
        return self.deliver(then, self.part_of(obj, name, value))

    def read_descriptor(self, obj: Var, name: str, descriptor):
        """The value of a descriptor written in C. Guards that a slot is unset if it raises."""
        if type(descriptor) is types.MemberDescriptorType and not obj.is_new:
            self.note_read("slot", obj.value, descriptor, obj.value)
        try:
            return self.do(descriptor.__get__, obj.value, type(obj.value))
        except UserError:
            if self.live and is_slot(descriptor) and isinstance(obj.origin, ValueSource):
                check = GuardCheck(is_unset, descriptor, f"{name!r} is not set")
                self.guards.add("call", obj.origin, check)
            raise

    def part_of_new(self, obj: Var, name: str, value) -> Var:
        """An attribute of something new whose place in the object C code keeps."""
        by_class = obj.origin.kind == "call" and obj.origin.parts[0].value is type(obj.value)
        if name == "args" and by_class and isinstance(obj.value, BaseException):
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

    def bound(self, obj: Var, fn: Var) -> Var:
        """A method bound to an object."""
        return Var(types.MethodType(fn.value, obj.value), Recipe("method", obj, fn))

    @pending
    def set_attribute(self, obj: Var, name: str, var: Var | None, then=discarded):
        """obj.name = var (None deletes); the result goes to `then`."""
        value, cls, more = obj.value, type(obj.value), [] if var is None else [var]
        if self.is_tensor(obj):
            self.front.set_attribute(self, obj, name, var)
            return self.give(then, None)
        change = Var(setattr if more else delattr)
        if isinstance(value, type):
            self.concretize(obj)
            custom = name[:2] == "__" or self.look_up(cls, "__setattr__") is not type.__setattr__
            before = self.look_up(value, name) if var is None else var.value
            binds = callable(before) or is_descriptor(before)
            if var is None:
                self.rely_on_own(obj, name)
            if custom or binds or not self.live:
                reason = f"attribute {name!r} of a class is set"
                raise Break(reason, change, [obj, Var(name), *more])
            self.do(change.value, value, name, *(x.value for x in more))
            self.class_items.setdefault(value, {})[name] = var
            self.write(self.class_var(value), ("attr", name, var))
            return self.give(then, None)
        self.typed(obj)
        if self.live and self.scheduled and self.front.is_stale(self, obj):
            reason = "a write after a scheduler's step"
            raise Break(reason, change, [obj, Var(name), *more])
        if self.live and self.front.is_called(self, value):
            raise Break("a layer that was called here is changed", change, [obj, Var(name), *more])
        if type(value) is types.CellType and name == "cell_contents":
            self.cell_set(obj, var)
            return self.give(then, None)
        setter = "__setattr__" if more else "__delattr__"
        if isinstance(value, (types.ModuleType, threading.local)):
            if not self.live:
                return self.give(then, self.do(change.value, value, name, *(x.value for x in more)))
            reason = f"an attribute of a {cls.__name__} is set"
            raise Break(reason, change, [obj, Var(name), *more])
        if self.own_method(obj, setter) and not self.front.sets_plainly(self, obj, name, var):
            self.call_own(obj, setter, [Var(name), *more], without_result(then))
            return None
        if not is_set_plainly(value):
            reason = f"an attribute of a {cls.__name__} is set"
            raise Break(reason, change, [obj, Var(name), *more])
        return self.set_plain(obj, name, var, then)

    @pending
    def set_plain(self, obj: Var, name: str, var: Var | None, then=discarded):
        """Set or delete an attribute as object.__setattr__ does; the result goes to `then`."""
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
        class_value = self.look_up(cls, name)
        if isinstance(class_value, property):
            setter = class_value.fset if more else class_value.fdel
            if setter is None:
                self.do(plain, value, name, *(x.value for x in more))  # raises
            return self.call(Var(setter), [obj, *more], {}, without_result(then))
        descriptor = self.in_class(self.class_of(obj), name, class_value)
        if more and self.call_own(descriptor, "__set__", [obj, var], without_result(then)):
            return None
        data = any(self.has(Var(class_value), x) for x in ("__set__", "__delete__"))
        function = isinstance(value, FUNCTIONS) and not isinstance(value, types.FunctionType)
        attributes = own_dict(value)
        is_there = name in (attributes or ())
        if is_new_container(obj) and not data and (is_there or more and attributes is not None):
            self.store_item(self.attributes_of_new(obj), Var(name), var)
            return self.give(then, None)
        function |= bool(more) and converts(class_value, var.value)
        if function or isinstance(value, CONTAINERS) or data and not is_slot(class_value):
            reason = f"attribute {name!r} of a {cls.__name__} is set"
            raise Break(reason, Var(plain), [obj, Var(name), *more])
        table = self.known_attributes(obj, attributes)
        if (more or is_there) and table is not None and not data:
            self.store_item(table, Var(name), var)
            return self.give(then, None)
        if not more and name not in (obj.items or ()):
            self.rely_on_presence(obj, name, table, class_value)
        if more and isinstance(class_value, types.GetSetDescriptorType):  # C looks at the value
            self.concretize(var) if isinstance(var.value, type) else self.typed(var)
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

    def rely_on_presence(self, obj: Var, name: str, table: Var | None, class_value) -> None:
        """Guard whether an object itself has an attribute that is deleted. `table` is the Var of
        its dict, if known."""
        attributes, source = own_dict(obj.value), self.dict_of(obj)
        if isinstance(class_value, types.MemberDescriptorType):
            with suppress(UserError):  # of an unset slot: the deletion raises it again
                value = self.read_descriptor(obj, name, class_value)
                self.load(value, self.sub(obj, "attr", name))
        elif table is not None:
            self.entry(table, name)
        elif attributes is not None and source is not None and name in attributes:
            self.load(attributes[name], self.entry_source(source, name))
        elif attributes is not None and source is not None:
            self.guards.add("absent", source, name)

    def attributes_of_new(self, obj: Var) -> Var:
        """The dict with the attributes of a new object, or of a list or dict of a user's class."""
        attributes = obj.value.__dict__
        table = self.tracked.get(id(attributes))
        if table is None:
            table = self.track(Var(attributes, Recipe("attributes", obj), {}))
            items = obj.items if obj.is_made("object") else {}
            for name in [x for x in items if x in attributes]:
                table.items[name] = Var(name), items.pop(name)
        return table

    def class_var(self, cls: type) -> Var:
        """The Var of a class that is written to."""
        var = self.tracked.get(id(cls))
        if var is None:
            var = self.tracked[id(cls)] = Var(cls)
        return var


def is_set_plainly(value) -> bool:
    """Whether attributes are set as `object.__setattr__` does. Before it looks at the name, that
    refuses an object whose class in C has another setter."""
    try:
        object.__setattr__(value, None, None)
    except TypeError as error:
        return "can't apply" not in str(error)
    return True


def slice_parts(var: Var) -> dict[str, Var]:
    """The Vars of a new slice, by attribute."""
    parts = var.origin.parts[1]
    names = ("stop",) if len(parts) == 1 else ("start", "stop", "step")
    return dict.fromkeys(("start", "stop", "step"), Var(None)) | dict(zip(names, parts))
