"""copy.copy and copy.deepcopy of what Python copies by its own rules: containers, and objects that
are no more than their attributes. What its class copies in another way is left to Python."""

import copyreg
import enum
import types

from glasshouse.capture.attributes import own_dict
from glasshouse.capture.plain import MISSING, is_heap, static_lookup
from glasshouse.capture.plain import is_instance as isinstance
from glasshouse.capture.values import Break, Recipe, ValueSource, Var

MOST_APART = 32  # objects from outside in one copy: later calls check that they are several
ATOMS = {int, float, bool, complex, str, bytes, range, property, types.FunctionType}
ATOMS |= {types.BuiltinFunctionType, types.CodeType, *map(type, (None, Ellipsis, NotImplemented))}
OWN_WAYS = ("__deepcopy__", "__copy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


class ObjectCopier:
    """Copies values into new ones, all the way down or one step; `made` are the copies by what they
    are of."""

    def __init__(self, tracer, deep: bool):
        self.tracer, self.deep = tracer, deep
        self.made: dict[int, Var] = {}
        self.from_outside: list[Var] = []

    def part(self, x: Var) -> Var:
        return self.copied(x) if self.deep else x

    def copied(self, x: Var) -> Var:
        """The copy of a value.

        Raises: Break where the class of something in it has a way of its own
        """
        value, kind = x.value, type(x.value)
        if kind in ATOMS or isinstance(value, (type, enum.Enum)) or has_a_name(value):
            return x
        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(x.origin, ValueSource):
            self.from_outside.append(x)
        if kind is tuple:
            return self.tuple_of(x)
        way = {list: self.list_of, dict: self.dict_of, set: self.set_of}.get(kind, self.object_of)
        return way(x)

    def tuple_of(self, x: Var) -> Var:
        items = self.tracer.sequence(x)
        parts = [self.part(item) for item in items]
        same = all(a is b for a, b in zip(items, parts, strict=True))
        return x if same else self.tracer.new_tuple(parts)

    def list_of(self, x: Var) -> Var:
        t = self.tracer
        made = self.made[id(x.value)] = t.new_list([])
        for item in t.sequence(x):
            t.container_method(made, "append", [self.part(item)])
        return made

    def set_of(self, x: Var) -> Var:
        t = self.tracer
        items = [self.part(item) for item in t.sequence(x)]
        made = self.made[id(x.value)] = t.new_set(items, None if self.deep else set(x.value))
        return made

    def dict_of(self, x: Var) -> Var:
        t = self.tracer
        made = self.made[id(x.value)] = t.new_dict([])
        for key, value in t.entries(x):
            t.store_item(made, self.part(key), self.part(value))
        return made

    def object_of(self, x: Var) -> Var:
        t, cls = self.tracer, type(x.value)
        if t.is_tensor(x) or not is_its_attributes(x.value):
            raise Break(f"a copy of a {cls.__name__}", None)
        t.typed(x)
        made = t.track(Var(object.__new__(cls), Recipe("object", cls), {}))
        self.made[id(x.value)] = made
        table = t.attributes_of_new(made)
        for key, value in t.entries(t.object_dict(x)):
            t.store_item(table, key, self.part(value))
        return made

    def keep_apart(self) -> None:
        """Guard that what was copied is as many objects in later calls."""
        if len(self.from_outside) > MOST_APART:
            raise Break("a copy of so many objects", None)
        for i, x in enumerate(self.from_outside):
            for y in self.from_outside[:i]:
                if type(x.value) is type(y.value):
                    self.tracer.guards.add("distinct", x.origin, y.origin)


def has_a_name(value) -> bool:
    """Whether Python finds an object by a name, as PyTorch's dtypes: its copy is the object."""
    kind = type(value)
    own = not is_heap(kind) and kind.__reduce__ is not object.__reduce__
    return own and kind.__reduce_ex__ is object.__reduce_ex__ and type(value.__reduce__()) is str


def is_its_attributes(value) -> bool:
    """Whether Python copies an object by its class and its attributes alone."""
    cls = type(value)
    native = all(
        static_lookup(cls, name)[0] is vars(object).get(name, MISSING)
        for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__new__")
    )
    own = any(static_lookup(cls, name)[0] is not MISSING for name in OWN_WAYS)
    slots = copyreg._slotnames(cls)  # type: ignore[attr-defined]
    has_dict = type(own_dict(value)) is dict
    return has_dict and native and not (own or slots or cls in copyreg.dispatch_table)


def on_copy(deep: bool):
    def handler(t, fn, args, kwargs, then):
        if len(args) != 1 or kwargs or not t.live:
            raise Break(f"{fn.value.__name__} with a memo", fn, args, kwargs)
        copier = ObjectCopier(t, deep)
        try:
            made = copier.copied(args[0])
            copier.keep_apart()
        except Break as broke:
            raise Break(broke.reason, fn, args, kwargs) from None
        return t.deliver(then, made)

    return handler
