"""Reading and writing attributes, with guards on what was read and a log of what was written."""

import types

from glasshouse.capture.frame import Generator, Iterator
from glasshouse.capture.values import (
    FUNCTIONS,
    MISSING,
    SCALARS,
    Break,
    Made,
    Source,
    UserError,
    Var,
    constant,
    pending,
    static_lookup,
)

# The getters that do nothing special.
PLAIN_GETTERS = {kind.__getattribute__ for kind in (object, BaseException, types.MethodType)}
FUNCTION_PARTS = {"__code__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__",
                  "__name__", "__qualname__", "__doc__", "__module__", "__wrapped__",
                  "__annotations__"}  # fmt: skip


class Attributes:
    """The part of the tracer that knows how attributes are found, bound and set."""

    def attribute_now(self, obj: Var, name: str) -> Var | None:
        """An attribute that needs no user's code to read; None if there is none."""
        found = []
        depth = len(self.frames)
        try:
            self.get_attribute(obj, name, lambda t, v: found.append(v))
        except UserError:
            return None
        if len(self.frames) > depth or not found:
            raise Break(f"attribute {name!r} runs code in a pattern", None)
        return found[0]

    @pending
    def get_attribute(self, obj: Var, name: str, then=None, special: bool = False):
        """obj.name, given to `then` or pushed; `special` looks it up on the type alone."""
        value = obj.value
        if self.is_tensor(obj):
            return self.deliver(then, self.front.attribute(self, obj, name))
        if self.front.is_ambient(value):
            return self.give(then, self.do(getattr, value, name))
        if isinstance(value, (Generator, Iterator)) and hasattr(value.native(), name):
            own = getattr(value, name, None) or getattr(value.native(), name)
            return self.deliver(then, Var(own, Made("method", obj, name)))
        if (
            not special
            and isinstance(obj.items, dict)
            and self.keeps_attributes(obj)
            and name in obj.items
        ):
            found = obj.items[name]
            if found is None:
                self.fail(
                    AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")
                )
            return self.deliver(then, found)
        if isinstance(value, types.ModuleType):
            if name not in value.__dict__:
                return self.give(then, self.do(getattr, value, name))
            source = self.entry_source(self.dict_of(obj), name)
            if obj.origin is None and self.live:
                base = self.guards.source("const", None, value, value.__name__)
                table = self.guards.source("dict", base)
                source = self.entry_source(table, name)
            if self.frames[-1].trusted:
                found = value.__dict__[name]
                plain = isinstance(found, (*SCALARS, *FUNCTIONS))
                return self.deliver(then, Var(found) if plain else self.load(found, source))
            return self.deliver(then, self.load(value.__dict__[name], source))
        if isinstance(value, super):
            return self.super_attribute(obj, name, then)
        if isinstance(value, type):
            return self.class_attribute(obj, name, then)
        if (
            isinstance(obj.origin, Made)
            and obj.origin.kind == "method"
            and name in ("__self__", "__func__")
        ):
            if name == "__self__":
                return self.deliver(then, obj.origin.parts[0])
            return self.give(then, getattr(value, name))
        if isinstance(value, types.FunctionType) and name in FUNCTION_PARTS:
            if obj.is_new and name in ("__closure__", "__dict__", "__defaults__", "__kwdefaults__"):
                raise Break(f"{name} of a new function", Var(getattr), [obj, Var(name)])
            return self.deliver(then, self.load(getattr(value, name,
            None) if name != "__wrapped__" else self.do(
                getattr, value, name), self.sub(obj, "attr", name)))  # fmt: skip
        return self.instance_attribute(obj, name, then, special)

    def keeps_attributes(self, obj: Var) -> bool:
        """Whether `items` of a Var holds attributes."""
        return not isinstance(obj.value, (list, tuple, dict, set, frozenset))

    def instance_attribute(self, obj: Var, name: str, then, special: bool):
        """An attribute of an ordinary object."""
        value, cls = obj.value, type(obj.value)
        if self.scheduled and self.front.is_stale(self, obj):
            raise Break("a read behind a scheduler's step")
        self.typed(obj)
        getter = cls.__getattribute__
        if getter not in PLAIN_GETTERS and isinstance(getter, types.FunctionType):
            return self.call(Var(getter), [obj, Var(name)], {}, then)
        if name == "__class__":
            return self.give(then, cls)
        if name == "__dict__" and hasattr(value, "__dict__"):
            return self.deliver(then, self.object_dict(obj))
        found = static_lookup(cls, name)[0]
        written = self.class_written(cls, name)
        if written is not None and name not in getattr(value, "__dict__", ()):
            return self.deliver(then, written)
        self.rely_on_class(obj, cls, name, found)
        if hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"):
            return self.descriptor(obj, name, found, then)
        if not special:
            own = getattr(value, "__dict__", None)
            if isinstance(own, dict):
                table = self.tracked.get(id(own))
                if table is not None and table.items and name in table.items:
                    return self.deliver(then, table.items[name][1])
                if name in own:
                    source = self.entry_source(self.dict_of(obj), name)
                    return self.deliver(then, self.load(own[name], source))
                if self.live and isinstance(obj.origin, Source) and not self.is_library(cls):
                    self.guards.add("absent", self.dict_of(obj), name)
            member = self.front.member(self, obj, name)
            if member is not None:
                return self.deliver(then, member)
        if found is not MISSING:
            return self.bind_class_attribute(obj, name, found, then)
        fallback, _ = static_lookup(cls, "__getattr__")
        if fallback is not MISSING and isinstance(fallback, types.FunctionType) and not special:
            return self.call(Var(fallback), [obj, Var(name)], {}, then)
        result = self.do(getattr, value, name)
        raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj,
        Var(name)]) if result is not None else Break(
            f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])  # fmt: skip

    def class_written(self, cls: type, name: str) -> Var | None:
        """What the trace put into a class, or a base of it, under this name."""
        tables = (self.class_items.get(c, ()) for c in cls.__mro__)
        return next((table[name] for table in tables if name in table), None)

    def is_library(self, cls: type) -> bool:
        return cls.__module__.startswith("glasshouse.")

    def rely_on_class(self, obj: Var, cls: type, name: str, found) -> None:
        """Guard what a class has under a name (MISSING: that it has nothing), unless it is the
        library's or built in."""
        if not self.live or not isinstance(obj.origin, Source) or self.is_library(cls):
            return
        if is_heap(cls):  # others cannot be changed
            kind = self.guards.source("type", obj.origin)
            if found is MISSING:
                self.guards.add("lacks", kind, name)
            elif type(found) not in SCALARS:
                self.guards.add("is", self.guards.source("lookup", kind, name), found)

    def class_source(self, obj: Var, name: str) -> Source | None:
        kind = self.sub(obj, "type")
        return None if kind is None else self.guards.source("lookup", kind, name)

    def object_dict(self, obj: Var) -> Var:
        """obj.__dict__, as a dict that shares what is known of the attributes."""
        if obj.is_new or (obj.items and any(True for _ in obj.items)):
            raise Break(
                "the __dict__ of an object that was written to",
                Var(getattr),
                [obj, Var("__dict__")],
            )
        return self.load(obj.value.__dict__, self.dict_of(obj))

    def descriptor(self, obj: Var, name: str, found, then):
        """A data descriptor: property, slot, or a user's."""
        if isinstance(found, property):
            if found.fget is None:
                self.fail(AttributeError(f"property {name!r} has no getter"))
            return self.call(Var(found.fget), [obj], {}, then)
        getter = static_lookup(type(found), "__get__")[0]
        if isinstance(getter, types.FunctionType):
            return self.call(Var(getter), [Var(found), obj, Var(type(obj.value))], {}, then)
        value = self.do(found.__get__, obj.value, type(obj.value))
        if (
            isinstance(obj.origin, Made)
            and type(obj.value).__name__
            and isinstance(obj.value, BaseException)
        ):
            return self.deliver(then,
            constant(value) if name != "args" else self.new_tuple(obj.origin.parts[1])
                                if obj.origin.kind == "call" else Var(value))  # fmt: skip
        return self.deliver(then, self.load(value, self.sub(obj, "attr", name)))

    def bind_class_attribute(self, obj: Var, name: str, found, then):
        """A class attribute that was found through an instance: functions bind to it."""
        if isinstance(found, types.FunctionType):
            return self.deliver(then, self.bound(obj, Var(found)))
        if isinstance(found, staticmethod):
            return self.give(then, found.__func__)
        if isinstance(found, classmethod):
            return self.deliver(then, self.bound(Var(type(obj.value)), Var(found.__func__)))
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self.deliver(then, Var(getattr(obj.value, name), Made("method", obj, name)))
        if isinstance(obj.value, tuple) and name in getattr(type(obj.value), "_fields", ()):
            return self.deliver(then, self.sequence(obj)[type(obj.value)._fields.index(name)])
        getter = static_lookup(type(found), "__get__")[0]
        if isinstance(getter, types.FunctionType):
            return self.call(Var(getter), [Var(found), obj, Var(type(obj.value))], {}, then)
        if getter is not MISSING:
            value = self.do(found.__get__, obj.value, type(obj.value))
            return self.deliver(then, Var(value, Made("method", obj, name)) if callable(value) else
                                self.load(value, self.sub(obj, "attr", name)))  # fmt: skip
        return self.deliver(then, self.load(found, self.class_source(obj, name)))

    def bound(self, obj: Var, fn: Var) -> Var:
        """A method bound to an object."""
        return Var(types.MethodType(fn.value, obj.value), Made("method", obj, fn))

    def class_attribute(self, cls: Var, name: str, then):
        """An attribute of a class."""
        value = self.known(cls)
        meta, _ = static_lookup(type(value), name)
        if meta is not MISSING and (hasattr(type(meta), "__set__") or isinstance(meta, property)):
            if isinstance(meta, property):
                return self.call(Var(meta.fget), [cls], {}, then)
            return self.deliver(then, constant(self.do(getattr, value, name)))
        found, owner = static_lookup(value, name)
        if found is MISSING:
            if meta is not MISSING and isinstance(meta, types.FunctionType):
                return self.deliver(then, self.bound(cls, Var(meta)))
            return self.give(then, self.do(getattr, value, name))
        written = self.class_written(value, name)
        if written is not None:
            return self.deliver(then, written)
        if isinstance(found, staticmethod):
            return self.give(then, found.__func__)
        if isinstance(found, classmethod):
            return self.deliver(then, self.bound(cls, Var(found.__func__)))
        if (
            type(found) in SCALARS
            or isinstance(found, (list, dict, set))
            or self.front.is_tensor(found)
        ):
            source = None
            if (
                self.live
                and not self.is_library(value)
                and owner is not None
                and owner.__flags__ & 1 << 9
            ):
                base = cls.origin
                if not isinstance(base, Source):
                    base = self.guards.source("const", None, value, value.__name__)
                source = self.guards.source("lookup", base, name)
            return self.deliver(then, self.load(found, source) if source else Var(found))
        return self.give(then, self.do(getattr, value, name))

    def make_super(self, cls: Var, obj: Var) -> Var:
        value = self.do(super, self.known(cls), obj.value)
        return Var(value, Made("call", Var(super), [cls, obj]), [cls, obj])

    def super_attribute(self, sup: Var, name: str, then):
        """super().name: found behind the class in the object's order, bound to the object."""
        cls, obj = sup.items
        own = isinstance(obj.value, type) and issubclass(obj.value, cls.value)
        start = obj.value if own else type(self.typed(obj))
        order = start.__mro__
        for base in order[order.index(cls.value) + 1 :]:
            if name in base.__dict__:
                found = base.__dict__[name]
                if isinstance(obj.value, type) and isinstance(found, types.FunctionType):
                    return self.give(then, found)
                if isinstance(found, property):
                    return self.call(Var(found.fget), [obj], {}, then)
                if isinstance(found, classmethod):
                    return self.deliver(then, self.bound(Var(start), Var(found.__func__)))
                if isinstance(found, (types.WrapperDescriptorType, types.MethodDescriptorType)):
                    return self.deliver(
                        then, Var(found.__get__(obj.value), Made("method", obj, Var(found)))
                    )
                if base is object and name == "__new__":
                    return self.give(then, object.__new__)
                return self.bind_class_attribute(obj, name, found, then)
        return self.fail(AttributeError(f"'super' object has no attribute {name!r}"))

    def set_attribute(self, obj: Var, name: str, var: Var | None):
        """obj.name = var (None deletes)."""
        value, cls = obj.value, type(obj.value)
        if self.is_tensor(obj):
            return self.front.set_attribute(self, obj, name, var)
        if isinstance(value, type):
            self.known(obj)
            if cls.__setattr__ is not type.__setattr__:
                raise Break(
                    f"attribute {name!r} of a class is set", Var(setattr), [obj, Var(name), var]
                )
            self.do(
                *((setattr, value, name, var.value) if var is not None else (delattr, value, name))
            )
            self.class_items.setdefault(value, {})[name] = var
            return self.write(self.class_var(value), ("attr", name, var))
        self.typed(obj)
        if isinstance(value, types.ModuleType):
            raise Break("an attribute of a module is set", Var(setattr), [obj, Var(name), var])
        setter = static_lookup(cls, "__setattr__" if var is not None else "__delattr__")[0]
        if isinstance(setter, types.FunctionType) and not self.front.sets_plainly(obj, name, var):
            return self.call(
                Var(setter),
                [obj, Var(name), *([var] if var is not None else [])],
                {},
                lambda t, v: None,
            )
        return self.set_plain(obj, name, var)

    def set_plain(self, obj: Var, name: str, var: Var | None):
        """What object.__setattr__ does."""
        value, cls = obj.value, type(obj.value)
        found, _ = static_lookup(cls, name)
        if isinstance(found, property):
            setter = found.fset if var is not None else found.fdel
            if setter is None:
                self.fail(
                    AttributeError(f"property {name!r} of {cls.__name__!r} object has no setter")
                )
            return self.call(
                Var(setter), [obj, *([var] if var is not None else [])], {}, lambda t, v: None
            )
        custom = static_lookup(type(found), "__set__")[0] if found is not MISSING else MISSING
        if isinstance(custom, types.FunctionType) and var is not None:
            return self.call(Var(custom), [Var(found), obj, var], {}, lambda t, v: None)
        plain = not isinstance(value, FUNCTIONS) or isinstance(value, types.FunctionType)
        if not plain or obj.origin is None and not isinstance(value, object):
            raise Break(
                f"attribute {name!r} of a {cls.__name__} is set",
                Var(setattr),
                [obj, Var(name), var],
            )
        table = self.tracked.get(id(getattr(value, "__dict__", None)))
        if table is not None and table.items is not None and found is MISSING:
            return self.store_item(table, Var(name), var)
        if var is not None:
            self.do(object.__setattr__, value, name, var.value)
        else:
            self.do(object.__delattr__, value, name)
        if not self.live:
            return None
        if obj.items is None or not isinstance(obj.items, dict):
            obj.items = {}
        obj.items[name] = var
        if not obj.is_new:
            self.write(obj, ("attr", name, var))
        return None

    def class_var(self, cls: type) -> Var:
        """The Var of a class that is written to."""
        found = self.tracked.get(id(cls))
        if found is None:
            found = self.tracked[id(cls)] = Var(cls)
        return found


def is_heap(cls: type) -> bool:
    """Whether a class was made by Python code, and so can be changed."""
    return bool(cls.__flags__ & 1 << 9)
