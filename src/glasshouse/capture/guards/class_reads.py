"""Reads of classes: rules read class attributes through `look_up`, and one guard covers all classes
and functions that a trace read.

The *behaviour* of a class decides how Python treats it and its instances: its special names, its
functions, descriptors and other callables, and those of its bases. A trace relies on all of it as
soon as it reads any of it, so no rule can forget a part. Other class attributes are data, which
have separate guards (`rely_on_data`)."""

import enum
import functools
import types
import weakref

from glasshouse.capture.bytecode.native import unchanged
from glasshouse.capture.guards.class_parts import part_of_class
from glasshouse.capture.guards.program import GuardCheck, OutcomeCheck, WeakLink
from glasshouse.capture.values.plain import (
    MISSING,
    SCALARS,
    getter_of_class,
    is_data_descriptor,
    is_heap,
    is_library,
    is_native,
    is_trusted,
    static_lookup,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Recipe, ValueSource, Var

PROTOCOL = ("__get__", "__set__", "__delete__", "__set_name__")
# Special names with data that no look-up depends on, and that programs may change.
TEXTS = {"__doc__", "__module__", "__qualname__", "__name__", "__firstlineno__"}
# Names that CPython puts there: slots of instances, notes of `copy`.
TEXTS |= {"__dict__", "__weakref__", "__slotnames__"}

# The attributes of a `super` object itself, from its class and object.
SUPER_PARTS = {
    "__class__": lambda cls, obj: Var(super),
    "__thisclass__": lambda cls, obj: cls,
    "__self__": lambda cls, obj: obj,
}
STANDS_FOR = "__gh_stands_for__"  # an attribute of observers: what they replace for a time

behaviours: dict[int, "ClassBehaviour"] = {}  # the last one seen of each class, by its id


class ClassBehaviour:
    """A snapshot of the behaviour of a class."""

    __slots__ = ("cls", "version", "order", "parts")

    def __init__(self, cls: type, version: int):
        self.cls = weakref.ref(cls, forget_behaviour(id(cls)))
        self.version = version
        self.order = [weakref.ref(base) for base in cls.__mro__]
        self.parts = [(name, identity_of(value)) for name, value in behaviour_in(cls)]

    def is_of(self, cls: type) -> bool:
        """Whether the class still matches the snapshot."""
        order = cls.__mro__
        if len(order) != len(self.order) or any(a() is not b for a, b in zip(self.order, order)):
            return False
        now = list(behaviour_in(cls))
        return len(now) == len(self.parts) and all(
            name == other and is_identical(identity, value)
            for (name, identity), (other, value) in zip(self.parts, now, strict=True)
        )

    def changed_in(self, cls: type) -> list[str]:
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


def forget_behaviour(key: int):
    """A callback that removes the snapshot of a class when the class dies."""
    return lambda _: behaviours.pop(key, None)


def behaviour_in(cls: type):
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
def names_in_c(cls: type) -> frozenset[str]:
    """The names of a class that Python code cannot change."""
    return frozenset(cls.__dict__)


def without_observer(value):
    """The value itself, or, if it is one of our observers, the attribute that it replaces."""
    fn = value.__func__ if isinstance(value, staticmethod) else value
    if isinstance(fn, types.FunctionType):
        return fn.__dict__.get(STANDS_FOR, value)
    return value


def is_behaviour(name: str, value) -> bool:
    """Whether a class attribute is behaviour rather than data."""
    special = name[:2] == "__" == name[-2:] and name not in TEXTS
    return special or callable(value) or is_descriptor(value)


def is_descriptor(value) -> bool:
    """Whether a class attribute takes part in how it is read or written."""
    return any(name in base.__dict__ for base in type(value).__mro__ for name in PROTOCOL)


def identity_of(value):
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


def is_identical(identity, value) -> bool:
    """Whether `identity_of` was called on this very value."""
    if type(identity) is weakref.ref:
        return identity() is value
    if type(identity) is tuple and isinstance(value, (staticmethod, classmethod)):
        return type(value) is identity[0] and is_identical(identity[1], value.__func__)
    if type(identity) is tuple and type(value) is property:
        parts = value.fget, value.fset, value.fdel
        return identity[0] is property and all(map(is_identical, identity[1:], parts))
    return identity is value or type(identity) is int and identity == id(value)


def behaviour_of(cls: type) -> ClassBehaviour:
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


def behaves_as(cls: type, behaviour: ClassBehaviour) -> bool:
    """Whether the class still has this behaviour."""
    return behaviour_of(cls) is behaviour or behaviour.is_of(cls)


class ReadClasses:
    """The classes and functions that one trace read."""

    def __init__(self):
        self.classes: dict[type, ClassBehaviour | None] = {}
        self.functions: dict[int, types.FunctionType] = {}

    def add(self, cls: type) -> None:
        """Rely on the behaviour of a class and its metaclass."""
        while cls not in self.classes:
            self.classes[cls] = behaviour_of(cls) if is_heap(cls) else None
            cls = type(cls)

    def guard(self, gone) -> "UnchangedCheck | None":
        """One guard on all of them; `gone` is called when one of them dies."""
        read = {cls: behaviour for cls, behaviour in self.classes.items() if behaviour is not None}
        if not read and not self.functions:
            return None
        links = [WeakLink(x, gone) for x in (*read, *self.functions.values())]
        recheck = BehaviourCheck([(link, read[link()]) for link in links[: len(read)]])
        native = unchanged().Unchanged(list(read), list(self.functions.values()), recheck)
        return UnchangedCheck(native, links, recheck)


class BehaviourCheck:
    """Whether all classes still have their behaviour; called when a version has changed."""

    def __init__(self, expected: list[tuple[WeakLink, ClassBehaviour]]):
        self.expected = expected

    def __call__(self) -> bool:
        return all(behaves_as(link(), behaviour) for link, behaviour in self.expected)


class UnchangedCheck(OutcomeCheck):
    """The guard on all classes and functions that a trace read."""

    def __init__(self, native, links: list[WeakLink], recheck: BehaviourCheck):
        self.native, self.links, self.recheck = native, links, recheck

    def __call__(self, value) -> bool:
        raise NotImplementedError("the guard is checked in C")

    @property
    def text(self) -> str:
        names = dict.fromkeys(x().__qualname__ for x in self.links if x() is not None)
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


class ClassReadRules:
    """The part of the tracer that reads classes: nothing else looks into them."""

    read_classes: ReadClasses

    def look_up(self, cls: type, name: str):
        """The attribute of a class under a name, or MISSING; no code of the user's runs."""
        if self.live:
            if cls not in self.read_classes.classes:
                self.read_classes.add(cls)
            if self.reads is not None:
                self.note_read("class", cls, name, cls)
        return static_lookup(cls, name)[0]

    def has_own_text(self, var: Var) -> bool:
        """Whether the class of a value may make its text in Python from attributes that change, so
        that the text is no constant even if the value is."""
        value, cls = var.value, type(var.value)
        return self.live and isinstance(value, (enum.Enum, type)) and self.may_change(cls)

    def has(self, var: Var, name: str) -> bool:
        """Whether the class of a value has something under a name; relies on its type."""
        return self.look_up(type(self.typed(var)), name) is not MISSING

    def own_method(self, var: Var, name: str) -> types.FunctionType | None:
        """The method of a value's class if it is written in Python; None if it is in C or missing.
        Relies on the value's type.

        Raises: Break if it is something else, such as a descriptor or a method of another class
        """
        class_value = self.look_up(type(self.typed(var)), name)
        if isinstance(class_value, types.FunctionType):
            return class_value
        if class_value is MISSING:
            return None
        owner = static_lookup(type(var.value), name)[1]
        if not is_native(class_value, owner):
            raise Break(f"{owner.__name__}.{name} is a {type(class_value).__name__}")
        return None

    def derives_from(self, var: Var, kinds) -> bool:
        """Whether the class of a value derives from one of some classes, without asking a
        metaclass."""
        order = type(self.typed(var)).__mro__
        return any(kind is base for kind in kinds for base in order)

    def rely_on_bases(self, cls: type) -> None:
        """Rely on the bases of a class."""
        if self.live:
            self.read_classes.add(cls)

    def rely_on_function(self, fn: types.FunctionType) -> None:
        """Rely on the code and defaults of a function that is inlined."""
        if self.live and not is_trusted(fn.__globals__.get("__name__", "")):
            self.read_classes.functions[id(fn)] = fn

    def may_change(self, cls: type) -> bool:
        """Whether the data of a class may change before later calls."""
        return is_heap(cls) and self.is_open(cls)

    def is_open(self, cls: type) -> bool:
        """Whether data of a class or its objects may change before later calls: code of a library
        does not change its own."""
        return self.live and not (is_library(cls) and self.frames[-1].trusted)

    def has_open_attributes(self, value) -> bool:
        """Whether a value has attributes that may change before later calls."""
        if isinstance(value, types.FunctionType):
            return not is_trusted(str(value.__globals__.get("__name__")))
        return self.may_change(type(value)) and bool(type(value).__dictoffset__)

    def class_of(self, obj: Var) -> Var:
        """The class of an object, with its source."""
        cls = Var(type(obj.value), self.sub(obj, "type"))
        return Var(cls.value, self.place_of(cls))

    def in_class(self, cls: Var, name: str, class_value) -> Var:
        """The Var of a class attribute. A descriptor in Python has attributes, which later calls
        find through the class."""
        in_python = any(
            isinstance(self.look_up(type(class_value), part), types.FunctionType)
            for part in ("__get__", "__set__")
        )
        here = self.may_change(cls.value) and self.look_up(cls.value, name) is class_value
        if not in_python or not here:
            return Var(class_value)
        return self.load(class_value, self.source_in(cls, "lookup", name))

    def rely_on_data(self, obj: Var, name: str, class_value) -> None:
        """Guard the data that the class of an object has under a name; MISSING: that it has none.
        `look_up` relies on behaviour."""
        if not self.may_change(type(obj.value)):
            return
        if class_value is MISSING:
            self.guards.add("lacks", self.class_of(obj).origin, name)
        elif type(class_value) not in SCALARS and not is_behaviour(name, class_value):
            place = self.guards.source("lookup", self.class_of(obj).origin, name)
            self.guards.add("is", place, class_value)

    def rely_on_namespace(self, cls: Var) -> None:
        """Guard all attributes of a class itself, since its `__dict__` is read."""
        if self.may_change(cls.value):
            check = GuardCheck(has_namespace, dict(cls.value.__dict__), "__dict__")
            self.guards.add("call", self.place_of(cls), check)

    def rely_on_own(self, cls: Var, name: str) -> None:
        """Guard whether a class itself has an attribute that is deleted."""
        if self.may_change(cls.value) and name not in self.class_items.get(cls.value, ()):
            expected = name, name in cls.value.__dict__
            check = GuardCheck(has_own, expected, f"{name!r} in __dict__")
            self.guards.add("call", self.place_of(cls), check)

    def rely_on_super(self, start: type, cls: type, name: str, base: type | None) -> None:
        """Guard that `base` is the first base of `start` after `cls` with an attribute of a name
        (None: that there is none), if it may be data."""
        self.read_classes.add(start)
        if base is None or self.may_change(base) and not is_behaviour(name, base.__dict__[name]):
            check = GuardCheck(super_finds, (cls, name, base), f"super().{name}")
            place = self.guards.source("const", None, start, start.__name__)
            self.guards.add("call", place, check)

    def of_class(self, cls: Var, class_value) -> Var | None:
        """A static or class method, or a function, as its class sees it; None for others."""
        if isinstance(class_value, classmethod):
            return self.bound(cls, Var(class_value.__func__))
        if isinstance(class_value, (staticmethod, types.FunctionType)):
            return Var(getattr(class_value, "__func__", class_value))
        return None

    def class_attribute(self, cls: Var, name: str, then):
        """An attribute of a class."""
        value = self.concretize(cls)
        meta = self.look_up(type(value), name)
        if isinstance(meta, property):
            return self.call(Var(meta.fget), [cls], {}, then)
        if is_data_descriptor(meta):
            descriptor = self.in_class(self.class_of(cls), name, meta)
            if self.call_own(descriptor, "__get__", [cls, Var(type(value))], then):
                return None
            return self.deliver(then, part_of_class(self, cls, name))
        class_value = self.look_up(value, name)
        if class_value is MISSING:
            for place, kind in ((cls, value), (Var(type(value)), type(value))):
                if self.may_change(kind) and (kind is value or meta is MISSING):
                    self.guards.add("lacks", self.place_of(place), name)
            if isinstance(meta, types.FunctionType):
                return self.deliver(then, self.bound(cls, Var(meta)))
            if meta is MISSING and self.call_own(cls, "__getattr__", [Var(name)], then):
                return None
            if meta is not MISSING:
                descriptor = self.in_class(self.class_of(cls), name, meta)
                if self.call_own(descriptor, "__get__", [cls, Var(type(value))], then):
                    return None
            if meta is MISSING or self.has(Var(meta), "__get__"):
                return self.give(then, self.do(getattr, value, name))
            cls, value, class_value = Var(type(value)), type(value), meta
        new_value = self.class_written(value, name)
        if new_value is not None:
            return self.deliver(then, new_value)
        getter = getter_of_class(class_value)
        if getter is not None:
            return self.call(Var(getter), [cls], {}, then)
        method = self.of_class(cls, class_value)
        if method is not None:
            return self.deliver(then, method)
        if self.call_own(self.in_class(cls, name, class_value), "__get__", [Var(None), cls], then):
            return None
        if self.has(Var(class_value), "__get__"):
            return self.give(then, self.do(getattr, value, name))
        if not self.may_change(value):
            return self.give(then, class_value)
        if isinstance(class_value, enum.Enum):
            return self.deliver(then, self.member(value, name, class_value))
        place = self.source_in(cls, "lookup", name)
        if is_library(value) and type(class_value) not in SCALARS:
            self.guards.add("is", place, class_value)
            return self.give(then, class_value)
        return self.deliver(then, self.load(class_value, place))

    def place_of(self, var: Var) -> ValueSource | None:
        """The source of an object, or of a constant whose attributes may change; else None."""
        value, origin = var.value, var.origin
        if isinstance(origin, ValueSource):
            return origin
        if isinstance(value, type) or origin is None and self.has_open_attributes(value):
            named = value if isinstance(value, (type, types.FunctionType)) else type(value)
            return self.guards.source("const", None, value, named.__name__)
        return None

    def source_in(self, var: Var, kind: str, name: str | None = None) -> ValueSource | None:
        """The source of a part of an object."""
        place = self.place_of(var) if self.live else None
        return None if place is None else self.guards.source(kind, place, name)

    def make_super(self, cls: Var, obj: Var) -> Var:
        value = self.do(super, self.concretize(cls), obj.value)
        return Var(value, Recipe("call", Var(super), [cls, obj]), [cls, obj])

    def super_attribute(self, sup: Var, name: str, then):
        """super().name: found after the class in the object's order, bound to the object."""
        cls, obj = sup.items
        if name in SUPER_PARTS:
            return self.deliver(then, SUPER_PARTS[name](cls, obj))
        if self.typed(obj) is None:  # it is bound to no object
            return self.give(then, self.do(getattr, sup.value, name))
        for_class = isinstance(obj.value, type) and issubclass(obj.value, cls.value)
        start = obj.value if for_class else type(self.typed(obj))
        base, class_value = look_up_super(start, cls.value, name)
        self.rely_on_super(start, cls.value, name, base)
        if base is None and name in super.__dict__:
            if not self.live:
                return self.give(then, self.do(getattr, sup.value, name))
            raise Break(f"attribute {name!r} of a super", Var(getattr), [sup, Var(name)])
        if base is None:
            return self.fail(AttributeError(f"'super' object has no attribute {name!r}"))
        new_value = self.class_items.get(base, {}).get(name)
        if new_value is not None:
            return self.deliver(then, new_value)
        if not is_descriptor(class_value):
            place = self.guards.source("const", None, base, base.__name__)
            source = self.guards.source("lookup", place, name) if self.may_change(base) else None
            return self.deliver(then, self.load(class_value, source))
        if not for_class:
            return self.bind_attribute(obj, name, class_value, then, Var(base))
        method = self.of_class(obj, class_value)
        if method is not None:
            return self.deliver(then, method)
        descriptor = self.in_class(Var(base), name, class_value)
        if self.call_own(descriptor, "__get__", [Var(None), obj], then):
            return None
        return self.deliver(then, Var(self.do(getattr, sup.value, name)))


def has_own(cls: type, expected: tuple[str, bool]) -> bool:
    """Whether a class itself has an attribute, or lacks it, as expected."""
    name, there = expected
    return (name in cls.__dict__) is there


def has_namespace(cls: type, expected: dict) -> bool:
    """Whether a class has these names with these very values, and no others."""
    now = cls.__dict__
    return len(now) == len(expected) and all(
        name in now and now[name] is value for name, value in expected.items()
    )


def look_up_super(start: type, cls: type, name: str):
    """(class, attribute) that super(cls, start) finds under a name, or (None, MISSING)."""
    order = start.__mro__
    for base in order[order.index(cls) + 1 :]:
        if name in base.__dict__:
            return base, base.__dict__[name]
    return None, MISSING


def super_finds(start: type, expected) -> bool:
    """Whether super() still finds an attribute in the same class."""
    cls, name, base = expected
    return look_up_super(start, cls, name)[0] is base
