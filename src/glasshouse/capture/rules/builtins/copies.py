"""copy.copy and copy.deepcopy of containers, and of objects that Python copies by their attributes
alone. Objects whose class copies in another way are left to Python."""

import copyreg
import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import type_of
from glasshouse.capture.rules.attribute_parts import attributes_of_new, object_dict
from glasshouse.capture.rules.builtins.container_methods import container_method
from glasshouse.capture.rules.new_objects import new_dict, new_set
from glasshouse.capture.values.plain import MISSING, is_heap, own_dict, static_lookup
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Recipe, ValueSource, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


MOST_APART = 32  # objects from outside in one copy, which later calls check for identity
ATOMS = {int, float, bool, complex, str, bytes, range, property, types.FunctionType}
ATOMS |= {types.BuiltinFunctionType, types.CodeType, *map(type, (None, Ellipsis, NotImplemented))}
BUILT_IN = (tuple, list, dict, set)
WAYS = ("__reduce_ex__", "__reduce__", "__getstate__")
OWN_WAYS = ("__deepcopy__", "__copy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


class ObjectCopier:
    """Copies values into new ones, all the way down or one step; `copies` has them by the id of the
    original."""

    def __init__(self, tracer: "CaptureTracer", deep: bool) -> None:
        self.tracer = tracer
        self.deep = deep
        self.copies: dict[int, Var] = {}
        self.from_outside: list[Var] = []

    def part(self, x: Var) -> Var:
        return self.copied(x) if self.deep else x

    def copied(self, x: Var) -> Var:
        """The copy of a value.

        Raises: Break if the class of something in it copies in another way
        """
        value, kind = x.value, type(x.value)
        if is_left_as_it_is(value):
            self.tracer.typed(x)  # values of other types have copies
            return x
        if id(value) in self.copies:
            return self.copies[id(value)]
        if isinstance(x.origin, ValueSource):
            self.from_outside.append(x)
        if kind is tuple:
            return self.tuple_of(x)
        ways: dict[Any, Any] = {list: self.list_of, dict: self.dict_of, set: self.set_of}
        return ways.get(kind, self.object_of)(x)

    def tuple_of(self, x: Var) -> Var:
        items = self.tracer.sequence(x)
        parts = [self.part(item) for item in items]
        if id(x.value) in self.copies:  # it is in itself
            return self.copies[id(x.value)]
        same = all(a is b for a, b in zip(items, parts, strict=True))
        new = self.copies[id(x.value)] = x if same else self.tracer.heap.new_tuple(parts)
        return new

    def list_of(self, x: Var) -> Var:
        t = self.tracer
        new = self.copies[id(x.value)] = t.heap.new_list([])
        for item in t.sequence(x):
            container_method(t, new, "append", [self.part(item)])
        return new

    def set_of(self, x: Var) -> Var:
        t = self.tracer
        items = [self.part(item) for item in t.sequence(x)]
        new = self.copies[id(x.value)] = new_set(t, items, None if self.deep else set(x.value))
        return new

    def dict_of(self, x: Var) -> Var:
        t = self.tracer
        new = self.copies[id(x.value)] = new_dict(t, [])
        for key, value in t.entries(x):
            t.store_item(new, self.part(key), self.part(value))
        return new

    def object_of(self, x: Var) -> Var:
        if looks_up_in_python(x.value):
            raise Break(f"a copy of a {type(x.value).__name__} inside of another", None)
        new, pairs = self.object_with_parts(x)
        self.fill(new, pairs)
        return new

    def object_with_parts(self, x: Var) -> tuple[Var, list[Any]]:
        """A new object without attributes, and copies of its future attributes."""
        t, cls = self.tracer, type(x.value)
        if t.is_tensor(x) or not is_its_attributes(x.value):
            raise Break(f"a copy of a {cls.__name__}", None)
        t.typed(x)
        new = t.heap.track(Var(object.__new__(cls), Recipe("object", cls), {}))
        self.copies[id(x.value)] = new
        return new, [(key, self.part(value)) for key, value in t.entries(object_dict(t, x))]

    def fill(self, new: Var, pairs: list[Any]) -> None:
        table = attributes_of_new(self.tracer, new)
        for key, value in pairs:
            self.tracer.store_item(table, key, value)

    def whole(self, x: Var) -> Var:
        new = self.copied(x)
        self.keep_apart()
        return new

    def keep_apart(self) -> None:
        """Guard that the copied objects are different objects in later calls too."""
        if len(self.from_outside) > MOST_APART:
            raise Break("a copy of so many objects", None)
        for i, x in enumerate(self.from_outside):
            for y in self.from_outside[:i]:
                if type(x.value) is type(y.value):
                    self.tracer.guards.add("distinct", x.origin, y.origin)


def is_left_as_it_is(value: Any) -> bool:
    """Whether a copy of a value is the value itself."""
    return type(value) in ATOMS or isinstance(value, (type, enum.Enum)) or has_a_name(value)


def has_a_name(value: Any) -> bool:
    """Whether Python finds an object by a name, as PyTorch's dtypes: its copy is the object."""
    kind = type(value)
    fixed = not is_heap(kind) and kind.__reduce__ is not object.__reduce__
    return fixed and kind.__reduce_ex__ is object.__reduce_ex__ and type(value.__reduce__()) is str


def is_its_attributes(value: Any) -> bool:
    """Whether Python copies an object by its class and its attributes alone."""
    cls = type(value)
    native = all(
        static_lookup(cls, name)[0] is vars(object).get(name, MISSING)
        for name in (*WAYS, "__new__")
    )
    parts = own_dict(value)
    has_dict = type(parts) is dict and not any(name in parts for name in (*WAYS, *OWN_WAYS))
    hooked = any(static_lookup(cls, name)[0] is not MISSING for name in OWN_WAYS)
    hooked = hooked or static_lookup(type(cls), "__getattr__")[0] is not MISSING  # it is asked
    slots = copyreg._slotnames(cls)  # type: ignore[attr-defined]  # not in its stub
    if type_of(value) is not cls:  # it is one of our iterators
        return False
    return has_dict and native and not (hooked or slots or cls in copyreg.dispatch_table)


def looks_up_in_python(value: Any) -> bool:
    """Whether reading the attributes that copies ask for runs code of the class."""
    has_getter = type(value).__getattribute__ is not object.__getattribute__
    return has_getter or static_lookup(type(value), "__getattr__")[0] is not MISSING


def read_attributes(x: Any, names: Any) -> Any:
    """The attributes of an object that Python's copies ask for; None for missing ones."""
    return [getattr(x, name, None) for name in names]


def is_bound(way: Any, x: Any) -> bool:
    """Whether a method in C is bound to an object."""
    return type(way) is types.BuiltinMethodType and way.__self__ is x


def on_copy(deep: bool) -> Any:
    def handler(t, fn, args, kwargs, then):
        if len(args) != 1 or kwargs or not t.guards.live:
            raise Break(f"{fn.value.__name__} with a memo", fn, args, kwargs)
        x, copier = args[0], ObjectCopier(t, deep)
        by_rules = type(x.value) not in BUILT_IN and not is_left_as_it_is(x.value)
        if by_rules and is_its_attributes(x.value) and looks_up_in_python(x.value):
            return copy_asking(copier, fn, x, then)
        return t.deliver(then, breaking_at(fn, x, lambda: copier.whole(x)))

    return handler


def copy_asking(copier: ObjectCopier, fn: Var, x: Var, then: Any) -> Any:
    """Copy an object whose class looks up attributes in Python. The object is asked for the same
    attributes as by Python's copy, and so is the copy before it gets its attributes."""

    def go_on(t, answers):
        *deepcopy, reduce_ex, reduce, state = t.sequence(answers)
        if deepcopy and deepcopy[0].value is not None:
            return t.call(deepcopy[0], [new_dict(t, [])], {}, then)
        if not all(is_bound(way.value, x.value) for way in (reduce_ex, reduce, state)):
            if t.guards.live:
                raise Break(f"a copy of a {type(x.value).__name__}", fn, [x])
            return t.give(then, t.do(fn.value, x.value))
        new, pairs = breaking_at(fn, x, lambda: copier.object_with_parts(x))
        breaking_at(fn, x, copier.keep_apart)

        def end(t2, reply):
            way = t2.sequence(reply)[0] if pairs else Var(None)
            if way.value is not None:
                return t2.call(way, [new_dict(t2, pairs)], {}, lambda t3, _: t3.deliver(then, new))
            copier.fill(new, pairs)
            return t2.deliver(then, new)

        names = ("__setstate__", "__dict__") if pairs else ()
        return t.call(Var(read_attributes), [new, Var(names)], {}, end)

    names = ("__deepcopy__", "__reduce_ex__") if copier.deep else ("__reduce_ex__",)
    names += ("__reduce__", "__getstate__")
    return copier.tracer.call(Var(read_attributes), [x, Var(names)], {}, go_on)


def breaking_at(fn: Var, x: Var, do: Callable[..., Any]) -> Any:
    """Run `do`; where it breaks, Python makes the whole copy."""
    try:
        return do()
    except Break as broke:
        raise Break(broke.reason, fn, [x]) from None
