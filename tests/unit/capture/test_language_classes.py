"""Captured functions as Python: classes, attributes, special methods, dataclasses, enums."""
# ruff: noqa: B009, B010, UP003, UP030

import abc
import dataclasses
import enum
import functools
import types
from dataclasses import dataclass, field

import pytest
from checking import MODES, Cases, Make, check

import glasshouse as gh

case = Cases()
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))
LINEAR = gh.nn.Linear(3, 2)


class Plain:
    shared = 3
    items: list = []

    def __init__(self, v=1, **more):
        self.v = v
        for name, value in more.items():
            setattr(self, name, value)

    def times(self, x, n=2):
        return x * self.v * n

    def bump(self):
        self.v += 1
        return self

    @property
    def double(self):
        return self.v * 2

    @double.setter
    def double(self, value):
        self.v = value / 2

    @double.deleter
    def double(self):
        self.v = None

    @staticmethod
    def static(x):
        return x + 10

    @classmethod
    def made(cls, v):
        return cls(v)

    @classmethod
    def name(cls):
        return cls.__name__


class Child(Plain):
    shared = 4

    def __init__(self, v=1, w=2):
        super().__init__(v)
        self.w = w

    def times(self, x, n=3):
        return super().times(x, n) + self.w

    @property
    def double(self):
        return super().double + 1

    @classmethod
    def name(cls):
        return "child " + super().name()


class Left(Plain):
    def times(self, x, n=2):
        return super().times(x, n) + 1


class Right(Plain):
    def times(self, x, n=2):
        return super().times(x, n) * 2


class Diamond(Left, Right):
    pass


class Vector:
    def __init__(self, *values):
        self.values = list(values)

    def __add__(self, other):
        if isinstance(other, Vector):
            return Vector(*(a + b for a, b in zip(self.values, other.values)))
        if isinstance(other, (int, float)):
            return Vector(*(a + other for a in self.values))
        return NotImplemented

    __radd__ = __add__

    def __iadd__(self, other):
        self.values = [a + other for a in self.values]
        return self

    def __sub__(self, other):
        return NotImplemented

    def __rsub__(self, other):
        return ("rsub", other)

    def __mul__(self, k):
        return Vector(*(a * k for a in self.values))

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.values, other.values))

    def __neg__(self):
        return Vector(*(-a for a in self.values))

    def __invert__(self):
        return "inverted"

    def __abs__(self):
        return sum(abs(a) for a in self.values)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return Vector(*self.values[i])
        return self.values[i]

    def __setitem__(self, i, v):
        self.values[i] = v

    def __delitem__(self, i):
        del self.values[i]

    def __len__(self):
        return len(self.values)

    def __contains__(self, v):
        return v in self.values

    def __eq__(self, other):
        return isinstance(other, Vector) and self.values == other.values

    def __lt__(self, other):
        return len(self) < len(other)

    def __hash__(self):
        return hash(tuple(self.values))

    def __repr__(self):
        return f"Vector({', '.join(map(str, self.values))})"

    def __call__(self, x, *, k=1):
        return x * k + self.values[0]

    def __int__(self):
        return int(self.values[0])

    def __float__(self):
        return float(self.values[0])

    def __index__(self):
        return self.values[0]

    def __format__(self, spec):
        return f"<{spec}>"


class Falsy:
    def __bool__(self):
        return False


class Empty:
    def __len__(self):
        return 0


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Sequence:
    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return i * 10


class Lazy:
    def __init__(self):
        self.real = 1
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.asked.append(name)
        return name + "!"


class Guarded:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, name, value):
        self.log.append(name)
        super().__setattr__(name, value)

    def __delattr__(self, name):
        self.log.append("-" + name)
        super().__delattr__(name)


class Watched:
    def __init__(self):
        self.a = 5

    def __getattribute__(self, name):
        if name == "b":
            return 7
        return super().__getattribute__(name)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        if obj is None:
            return self
        return getattr(obj, self.name, 0)

    def __set__(self, obj, value):
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{self.name} must be positive")
        setattr(obj, self.name, value)


class Once:
    def __init__(self, fn):
        self.fn = fn

    def __get__(self, obj, cls):
        value = obj.__dict__[self.fn.__name__] = self.fn(obj)
        return value


class Described:
    size = Positive()

    def __init__(self, size=1):
        self.size = size

    @Once
    def costly(self):
        return self.size * 100

    @functools.cached_property
    def kept(self):
        return [self.size]


@dataclass
class Config:
    x: object
    n: int = 3
    names: list = field(default_factory=list)

    def scaled(self):
        return self.x * self.n


@dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 2


@dataclass(slots=True)
class Compact:
    a: object = 1
    b: int = field(init=False, default=7)

    def __post_init__(self):
        self.b += 1


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def pretty(self):
        return self.name.title()

    @classmethod
    def first(cls):
        return cls.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flag(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def twice(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, x):
        self.x = x

    def area(self):
        return self.x * self.x


class Meta(type):
    def __call__(cls, *args):
        result = super().__call__(*args)
        result.by_meta = True
        return result

    @property
    def title(cls):
        return cls.__name__.lower()


class WithMeta(metaclass=Meta):
    def __init__(self, v):
        self.v = v


class Single:
    instance = None

    def __new__(cls, *args):
        if cls.instance is None:
            cls.instance = super().__new__(cls)
        return cls.instance


class Registry:
    classes: dict = {}

    def __init_subclass__(cls, key=None, **more):
        super().__init_subclass__(**more)
        Registry.classes[key] = cls


# -- attributes and methods ------------------------------------------------------------------------


@case(X, Plain(2), whole=True, modes=MODES)
def reads_attributes(x, p):
    return x * p.v + p.shared, p.times(x), p.double


@case(X, Plain(2), whole=True, modes=MODES)
def writes_attributes(x, p):
    p.v = x
    p.new = [p]
    p.w = p.v + 1
    return p.w


@case(X, Plain(2), whole=True)
def method_changes_self(x, p):
    return p.bump().bump().times(x), p.v


@case(X, Plain(2), whole=True)
def deletes_attribute(x, p):
    p.w = 1
    del p.v
    return hasattr(p, "v"), p.w, x


@case(X, Plain(2))
def missing_attribute(x, p):
    p.w = 3
    return p.nothing


@case(X, Plain(2))
def delete_missing_attribute(x, p):
    del p.nothing


@case(X, Plain(2), whole=True)
def property_set_and_deleted(x, p):
    p.double = 10
    a = p.v
    del p.double
    return a, p.v, x


@case(X, Child(), whole=True)
def property_without_setter(x, c):
    try:
        c.double = 3
    except AttributeError:
        return c.double, x
    return "set"


@case(X, Child())
def property_without_setter_raises(x, c):
    c.double = 3


@case(X, Plain(2), whole=True)
def shadows_class_attribute(x, p):
    before = p.shared
    p.shared = 7
    return before, p.shared, Plain.shared, x


@case(X, Plain(2), whole=True)
def getattr_setattr(x, p):
    setattr(p, "w", x)
    return getattr(p, "w"), getattr(p, "zz", 5), hasattr(p, "times"), hasattr(p, "q"), p


@case(X, Plain(2))
def getattr_missing(x, p):
    return getattr(p, "zz")


@case(X, Plain(2), whole=True)
def delattr_and_vars(x, p):
    p.k = 1
    delattr(p, "v")
    return sorted(vars(p)), x


@case(X, Plain(2), whole=True)
def instance_dict(x, p):
    d = p.__dict__
    return dict(d), "v" in d, d["v"], x + 1


@case(X, Plain(2))
def instance_dict_written(x, p):
    p.__dict__["q"] = x
    p.__dict__.update(r=3)
    return p.q, p.r


@case(X, Plain(2), whole=True)
def static_and_class_methods(x, p):
    return p.static(x), Plain.static(x), p.made(5).v, Plain.made(x).v, p.name(), Child.name()


@case(X, Plain(2), whole=True)
def bound_methods(x, p):
    f, g = p.times, Plain.times
    return f(x), g(p, x), f.__self__ is p, f.__func__ is g, f


@case(X, Plain(2), whole=True)
def instance_function_attribute(x, p):
    p.fn = lambda v: v + 1
    p.times = lambda v: v - 1
    return p.fn(x), p.times(x)


@case(X, Plain(2), Plain(2), whole=True)
def identity_of_objects(x, a, b):
    return a is b, a == b, a != b, a is not a, x


@case(X, Plain(2), whole=True)
def returns_the_object(x, p):
    p.v = x
    return p, [p], {"p": p}


@case(X, Plain(Plain(3)), whole=True)
def nested_objects(x, p):
    p.v.v += 1
    p.v.parent = p
    return p.v.parent.v.v * x


@case(X, Plain(2, n=0), again=True, hit=False, calls=5)
def counts_its_calls(x, p):
    p.n += 1
    return x * p.n


@case(X, Plain(2, log=[]), again=True, hit=False, calls=4)
def logs_its_calls(x, p):
    p.log.append(x.sum())
    return len(p.log)


@case(X, Child(3), whole=True, modes=MODES)
def inheritance(x, c):
    return c.times(x), c.double, c.shared, c.name(), isinstance(c, Plain), Plain.times(c, x)


@case(X, Diamond(2), whole=True)
def multiple_inheritance(x, d):
    return d.times(x), [k.__name__ for k in type(d).__mro__]


@case(X, whole=True)
def makes_objects(x):
    p = Plain(x, extra=2)
    c = Child(w=5)
    return p.times(1), c.times(x), p, c


@case(X)
def makes_object_wrongly(x):
    return Child(1, 2, 3)


@case(X, whole=True)
def object_stays_inside(x):
    p = Plain(2)
    p.bump()
    return p.times(x)


@case(X, Square(Y), whole=True)
def abstract_class(x, s):
    return s.twice() + x, Square(x).area()


@case(X)
def abstract_instance(x):
    return Shape()


@case(X)
def metaclass_call(x):
    w = WithMeta(x)
    return w.v, w.by_meta, WithMeta.title


@case(X)
def singleton(x):
    try:
        a, b = Single(1), Single(2)
        return a is b, x + 1
    finally:
        Single.instance = None


@case(X)
def class_made_inside(x):
    class Local:
        k = 3

        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v * self.k

    return Local(x).get(), Local.__name__, Local.__qualname__


@case(X)
def class_made_inside_with_super(x):
    class Local(Plain):
        def times(self, v, n=1):
            return super().times(v, n) + x

    return Local(2).times(x)


@case(X)
def returns_local_class(x):
    class Local:
        """Doc."""

        value = x

    return Local, Local()


@case(X)
def class_with_init_subclass(x):
    class Sub(Registry, key="k"):
        pass

    return Registry.classes.pop("k") is Sub, x


@case(X)
def type_call(x):
    result = type("Made", (Plain,), {"k": 5})
    return result(2).k, result(2).times(x)


@case(X, whole=True)
def type_of_things(x):
    return type(x) is gh.Tensor, type(1), type([]) is list, type(Plain(1)).__name__, type(None)


@case(X, Child(), whole=True)
def instance_checks(x, c):
    return (
        isinstance(x, gh.Tensor),
        isinstance(c, (int, Plain)),
        isinstance(1, int | str),
        isinstance(True, int),
        issubclass(Child, Plain),
        issubclass(bool, (str, int)),
        isinstance(c, Left),
        callable(c),
        callable(c.times),
    )


@case(X)
def instance_check_fails(x):
    return isinstance(x, "str")


@case(X, Plain(1), whole=True)
def class_attribute_of_instance(x, p):
    return (
        p.__class__ is Plain,
        p.__class__.__name__,
        p.__module__ == Plain.__module__,
        Plain.__doc__,
    )


@case(X, types.SimpleNamespace(a=1, b=[2]), whole=True)
def simple_namespace(x, n):
    n.c = x
    n.b.append(n.a)
    return n.a + x


@case(X)
def simple_namespace_made(x):
    return types.SimpleNamespace(a=x, b=2)


@case(X, hit=False)
def class_attribute_written(x):
    Plain.counter = getattr(Plain, "counter", 0) + 1
    try:
        return Plain.counter, Child.counter, x
    finally:
        del Plain.counter


@case(X, Plain(1), whole=True)
def class_list_attribute(x, p):
    p.items.append(1)
    n = len(Plain.items)
    Plain.items.clear()
    return n, x


@case(X, Plain(1), whole=True)
def chained_attributes(x, p):
    p.a = p.b = Plain(2)
    p.a.v += 1
    return p.b.v, p.a is p.b, x


@case(X, Plain(1), Plain(2), whole=True)
def attributes_swapped(x, p, q):
    p.v, q.v = q.v, p.v
    return p.v, q.v


# -- special methods -------------------------------------------------------------------------------


@case(X, Vector(1, 2), whole=True, modes=MODES)
def arithmetic_methods(x, v):
    return v + v, v + 1, 1 + v, v * 3, -v, ~v, abs(v), v @ v, sum([v, v]), 5 - v


@case(X, Vector(1, 2))
def unsupported_operand(x, v):
    return v - "a"


@case(X, Vector(1, 2))
def unsupported_power(x, v):
    return v**2


@case(X, Vector(1, 2), whole=True)
def in_place_methods(x, v):
    w = v
    v += 1
    v *= 2
    return v, w, v is w


@case(X, Vector(1, 2, 3), whole=True)
def item_methods(x, v):
    v[0] = x
    v[1] += 5
    del v[2]
    return v[0], v[1:], len(v), v[-1], 7 in v[1:]


@case(X, Vector(1, 2, 3))
def item_method_fails(x, v):
    return v[10]


@case(X, Vector(1, 2), Vector(1, 2), Vector(3), whole=True)
def comparison_methods(x, a, b, c):
    return a == b, a != b, a == c, c < a, a > c, a is b, a in [b], [a, c].index(c), max(a, c)


@case(X, Vector(1, 2), Vector(3))
def comparison_missing(x, a, b):
    return a <= b


@case(X, Vector(1, 2), whole=True)
def hash_method(x, v):
    return {v: 1}[Vector(1, 2)], len({v, Vector(1, 2)}), x


@case(X, Vector(1, 2), whole=True)
def text_methods(x, v):
    return repr(v), str(v), f"{v!r} {v:abc} {v}", "{0!r}".format(v), x  # noqa: UP032


@case(X, Vector(1, 2), whole=True)
def call_method(x, v):
    return v(x), v(x, k=3), callable(v), list(map(v, [x]))


@case(X, Vector(1, 2), whole=True)
def number_methods(x, v):
    return int(v), float(v), [5, 6, 7][v], range(v), x


@case(X, Falsy(), Empty(), Plain(), whole=True)
def truth_methods(x, f, e, p):
    return bool(f), not e, x if p else None, f or e, f and e, bool(e), len(e)


@case(X, Countdown(3), whole=True)
def iteration_methods(x, c):
    a = [x + i for i in c]
    return a, c.n, list(Countdown(2)), next(iter(Countdown(5)))


@case(X, Sequence(), whole=True)
def iteration_by_items(x, s):
    return [x + i for i in s], 20 in s, list(s), [*zip(s, s)]


@case(X, Countdown(0))
def next_method_ends(x, c):
    return next(c)


@case(X, Lazy(), whole=True)
def getattr_method(x, z):
    return z.real, z.other, z.third, z.asked


@case(X, Guarded(), whole=True)
def setattr_method(x, g):
    g.a = x
    g.b = 1
    del g.b
    return g.log


@case(X, Watched(), whole=True)
def getattribute_method(x, w):
    return w.a + w.b, x


@case(X, Slotted(3), whole=True)
def slots(x, s):
    s.b = x
    s.a += 1
    return s.a, s.b, hasattr(s, "__dict__")


@case(X, Slotted(3))
def slot_unset(x, s):
    return s.b


@case(X, Slotted(3))
def slot_unknown(x, s):
    s.zz = 3


@case(X, whole=True)
def slots_made(x):
    s = SlottedChild(x)
    s.c = 1
    del s.a
    return s, hasattr(s, "a")


@case(X, Described(2), whole=True)
def data_descriptor(x, d):
    d.size = 5
    return d.size * x, d._size


@case(X, Described(2))
def data_descriptor_raises(x, d):
    d.size = -1


@case(X, Described(2), whole=True)
def non_data_descriptor(x, d):
    return d.costly, d.costly, "costly" in d.__dict__, x


@case(X, Described(2))
def cached_property(x, d):
    return d.kept, d.kept is d.kept, x


class NamedProperty(property):
    def __init__(self, getter, **more):
        property.__init__(self, getter, **more)
        self.wrapped = getter


@case(X, whole=True)
def property_of_a_subclass_made(x):
    p = NamedProperty(lambda o: o + 5)
    return p.fget(x), p.wrapped(1), p.fset, isinstance(p, property)


@case(X, whole=True)
def described_made(x):
    d = Described(x)
    return d.size, d


# -- dataclasses and enums -------------------------------------------------------------------------


@case(Config(X), whole=True, modes=MODES)
def data_class(c):
    c.names.append("a")
    c.n += 1
    return c.scaled()


@case(X, whole=True)
def data_class_made(x):
    c = Config(x, names=["q"])
    d = Config(x + 1, 4)
    return c, d, c.names is d.names, c.scaled()


@case(X)
def data_class_made_wrongly(x):
    return Config()


@case(X)
def data_class_helpers(x):
    c = Config(1, 2, [3])
    return (
        dataclasses.asdict(c),
        dataclasses.astuple(c),
        dataclasses.replace(c, n=9),
        [f.name for f in dataclasses.fields(c)],
        dataclasses.is_dataclass(c),
        x,
    )


@case(X, whole=True)
def data_class_compare(x):
    return (
        Config(1) == Config(1),
        Frozen(1) < Frozen(2),
        Frozen(1) == Frozen(1, 2),
        repr(Frozen(1)),
        x,
    )


@case(X, Frozen(3))
def data_class_frozen(x, f):
    f.a = 4


@case(X, Frozen(3))
def data_class_frozen_used(x, f):
    return x * f.a, {f: 1}[Frozen(3)], dataclasses.replace(f, a=1), Frozen(b=1, a=x).a


@case(X, Compact(2), whole=True)
def data_class_with_slots(x, c):
    c.a = x
    return c.b, Compact(a=3)


@case(X, Color.RED, whole=True)
def enum_member(x, c):
    a = x if c is Color.RED else -x
    return a, c.value, c.name, c == Color.BLUE, c.pretty, Color.first() is c


@case(X, whole=True)
def enum_lookups(x):
    return Color(2), Color["RED"], [c.value for c in Color], len(Color), Color.RED in Color, x


@case(X)
def enum_lookup_fails(x):
    return Color(7)


@case(X, Level.HIGH, whole=True)
def int_enum(x, n):
    return x * n, n > Level.LOW, n + 1, {Level.LOW: "a"}[1], [1, 2, 3, 4, 5, 6][n], int(n)


@case(X, Flag.A | Flag.B, whole=True)
def flag_enum(x, f):
    return x, Flag.A in f, f & Flag.B, bool(f & Flag.A)


@case(X, {Color.RED: 1, Color.BLUE: 2}, whole=True)
def enum_keys(x, d):
    return x * d[Color.RED], [k.name for k in d]


@case(X, Child(2), whole=True)
def super_in_nested_function(x, c):
    class_name = type(c).__name__
    return class_name, super(Child, c).times(x)


@case(X, Plain(2))
def method_added_to_object(x, p):
    p.extra = types.MethodType(lambda self, v: self.v * v, p)
    return p.extra(x)


@case(X, whole=True)
def recursive_objects(x):
    a, b = Plain(1), Plain(2)
    a.other, b.other = b, a
    return a.other.other is a, a, x


@case(X, Make(lambda: LINEAR), whole=True)
def module_call(x, m):
    return m(x), m.weight.shape, [n for n, _ in m.named_parameters()]


@case(X, Plain(2), whole=True)
def private_names(x, p):
    p._Plain__hidden = 3
    return p._Plain__hidden * x


@case(X, "v", Plain(2), whole=True)
def attribute_by_variable(x, name, p):
    setattr(p, name + "2", getattr(p, name) * 2)
    return p.v2 * x


@case(X, Plain(2), whole=True)
def while_on_attribute(x, p):
    while p.v < 5:
        p.v += 1
        x = x + p.v
    return x


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_classes(fn, args, options):
    check(fn, *args, **options)


def test_a_new_property_leaves_the_function():
    fn = gh.optimize(lambda x: (NamedProperty(lambda o: o + 5), x * 2))
    for _ in range(3):
        result, _ = fn(X)
        assert (type(result), result.fget(1), result.wrapped(2)) == (NamedProperty, 6, 7)
    assert not fn.capture.breaks


class Circle:
    def __init__(self, radius):
        self.radius, self.count = radius, 0

    @functools.cached_property
    def area(self):
        self.count += 1
        return self.radius * self.radius * 3.0


def test_a_cached_property_is_computed_once_and_lies_in_the_object():
    def new(radius):
        circle = Circle(radius)
        return circle.area + circle.area, circle.count

    old = Circle(gh.asarray(2.0))
    captured, reading = gh.optimize(new, nopython=True), gh.optimize(lambda: old.area + 1.0)
    for _ in range(3):
        value, count = captured(gh.asarray(2.0))
        assert (value.item(), count, reading().item()) == (24.0, 1, 13.0)
    assert captured.hits == 2 and old.count == 1 and vars(old)["area"].item() == 12.0
