"""Side effects, objects, the user's classes, globals."""

import abc
import collections
import copy
import dataclasses
import enum
import types

import xp

from . import built, case, case_of, t

total = 0.0
history: list = []
settings = {"scale": 2.0}
counter = 0


class Config:
    """Plain attributes."""

    kind = "linear"

    def __init__(self, width=3, bias=None):
        self.width, self.bias = width, bias

    def apply(self, x):
        return x * self.width if self.bias is None else x * self.width + self.bias

    @property
    def half(self):
        return self.width / 2

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def named(cls, x):
        return x + len(cls.kind)


class Wider(Config):
    kind = "wide"

    def __init__(self, width=3):
        super().__init__(width * 2, bias=1.0)

    def apply(self, x):
        return super().apply(x) - 1


class Arithmetic:
    """Operators."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Arithmetic(self.value + getattr(other, "value", other))

    def __radd__(self, other):
        return self + other

    def __mul__(self, by):
        return Arithmetic(self.value * by)

    def __iadd__(self, other):
        self.value = self.value + other
        return self

    def __neg__(self):
        return Arithmetic(-self.value)

    def __getitem__(self, i):
        return self.value[i]

    def __len__(self):
        return 3

    def __call__(self, x):
        return self.value * x

    def __contains__(self, x):
        return x == 3

    def __bool__(self):
        return True

    def __eq__(self, other):
        return isinstance(other, Arithmetic)

    __hash__ = None


class Fallback:
    """Attributes that are made when they are asked for."""

    def __init__(self, x):
        self.known = x

    def __getattr__(self, name):
        if name.startswith("times"):
            return self.known * int(name[5:])
        raise AttributeError(name)


@dataclasses.dataclass
class Output:
    """The result of a model."""

    logits: object
    hidden: object = None
    names: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 2.0


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x): ...

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self, x):
        return x * self.side**2


class ListLike(list):
    def total(self):
        return sum(self)


class DictLike(dict):
    def __getattr__(self, name):
        return self[name]


class ModelOutput(collections.OrderedDict):
    """An ordered dict whose entries are attributes too."""

    def __init__(self, **entries):
        super().__init__(**entries)
        for name, value in entries.items():
            object.__setattr__(self, name, value)

    def __getitem__(self, key):
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def to_tuple(self):
        return tuple(self[name] for name in self.keys())


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a, self.b = a, a + 1


@built(t(3))
def reads_attributes():
    config = Config(4, 1.0)

    def fn(x):
        return config.apply(x) * config.half

    return fn


@case(t(3))
def makes_an_object(x):
    return Config(5).apply(x)


@case(t(3))
def makes_an_object_of_a_subclass(x):
    return Wider(2).apply(x)


@case(t(3))
def class_attribute_and_methods(x):
    return Config.twice(x) + Config.named(x) + len(Wider.kind) + Wider().named(x)


@built(t(3))
def writes_an_attribute():
    config = Config()

    def fn(x):
        config.last = x * 2
        config.width = 7
        return config.last + config.width

    return fn


@built(t(3))
def writes_a_tensor_attribute_each_call():
    config = Config()
    config.state = xp.zeros(3)

    def fn(x):
        config.state = config.state + x
        return config.state * 2

    return fn


@built(t(3))
def deletes_an_attribute():
    config = Config()

    def fn(x):
        config.temporary = x
        y = config.temporary + 1
        del config.temporary
        return y

    return fn


@case(Config(2), t(3))
def object_argument(config, x):
    return config.apply(x)


@case(t(3))
def own_operators(x):
    a = Arithmetic(x)
    b = -(a + 1) * 3
    b += x
    return (1 + b).value


@case(t(3))
def own_containers(x):
    a = Arithmetic(x)
    return a[0] + len(a) + a(x) + (1 if 3 in a else 0) + (1 if a else 0) + (a == a)


@case(t(3))
def own_getattr(x):
    return Fallback(x).times3 + Fallback(x).times5


@built(t(3))
def own_getattr_from_outside():
    instance = Fallback(xp.ones(3))

    def fn(x):
        return instance.times2 * x

    return fn


@case(t(3))
def getattr_by_name(x):
    config = Config(3)
    return x * getattr(config, "width") + getattr(config, "missing", 2)  # noqa: B009


@case(t(3))
def setattr_by_name(x):
    config = Config(3)
    setattr(config, "extra", x)  # noqa: B010
    return config.extra + 1 if hasattr(config, "extra") else x


@case(t(3))
def reads_the_dict_of_an_object(x):
    config = Config(3)
    return x * len(vars(config)) + config.__dict__["width"]


@case(t(3))
def class_name_is_asked(x):
    config = Wider()
    return x + len(type(config).__name__) + len(config.__class__.__mro__)


@case(t(3))
def isinstance_of_user_classes(x):
    config = Wider()
    if isinstance(config, Config) and issubclass(Wider, Config) and type(config) is Wider:
        return x + 1
    return x


@case(t(3))
def subclasses_are_listed(x):
    return x + 1 if Wider in Config.__subclasses__() else x


@case(t(3))
def a_dataclass(x):
    out = Output(x + 1, hidden=x)
    out.names.append("a")
    return out.logits * len(out.names) + out.hidden


@case(t(3))
def a_dataclass_is_returned(x):
    return Output(xp.sin(x)).logits


@case(t(3))
def fields_of_a_dataclass(x):
    out = Output(x)
    return x * len(dataclasses.fields(out))


@case(Frozen(3.0), t(3))
def a_frozen_dataclass(frozen, x):
    return x * frozen.scale


@case(t(3))
def a_dataclass_is_replaced(x):
    out = dataclasses.replace(Output(x), hidden=x + 1)
    return out.logits + out.hidden


@case(t(3))
def an_abstract_class(x):
    square = Square(3)
    square.side = 4
    return square.area(x)


@case(t(3))
def subclass_of_list(x):
    instance = ListLike([x, x + 1])
    instance.append(x * 2)
    return instance.total()


@case(t(3))
def subclass_of_dict(x):
    instance = DictLike(a=x)
    instance["b"] = x + 1
    return instance.a * instance["b"]


@case(t(3))
def model_output_made(x):
    out = ModelOutput(a=x, b=x + 1)
    return out.a * out["b"]


@case(t(3))
def model_output_by_index(x):
    out = ModelOutput(a=x, b=x + 1)
    return out[0] + out[1]


@case(t(3))
def model_output_as_tuple(x):
    a, b = ModelOutput(a=x, b=x + 1).to_tuple()
    return a - b


@case(t(3))
def an_integer_enum(x):
    return x * Level.HIGH + (1 if Level.LOW < Level.HIGH else 0) + Level(3).value


@case(t(3))
def slots(x):
    instance = Slotted(x)
    instance.b = instance.b * 2
    return instance.a + instance.b


@case(t(3))
def a_namespace(x):
    instance = types.SimpleNamespace(scale=2, shift=x)
    instance.scale = 3
    return x * instance.scale + instance.shift


@case(t(3))
def a_class_made_inside(x):
    class Inside:
        def apply(self, y):
            return y * 3

    return Inside().apply(x)


@case(t(3))
def method_is_passed(x):
    apply = Config(3).apply
    return apply(x) + apply(x + 1)


@case(t(3))
def property_is_written(x):
    class Holder:
        pass

    holder = Config(3)
    holder.width += 2
    return x * holder.half


# -- writes outside --------------------------------------------------------------------------------


@case(t(3))
def writes_a_global_number(x):
    global counter
    counter = 3
    return x + counter


@case(t(3))
def writes_a_global_tensor(x):
    global total
    total = x + 1
    return total * 2


@case(t(3))
def writes_a_global_list(x):
    history.append(1)
    history.clear()
    return x + len(history)


@case(t(3))
def writes_a_global_dict(x):
    settings["scale"] = 4.0
    return x * settings["scale"]


@case(t(3))
def writes_a_new_global(x):
    global made_here
    made_here = x * 2
    return made_here + 1


@case(t(3))
def writes_a_global_in_an_inlined_call(x):
    set_counter(5)
    return x + counter


def set_counter(n):
    global counter
    counter = n


@built(t(3))
def list_outside_is_appended_to():
    kept = []

    def fn(x):
        kept.append(x + 1)
        y = kept.pop()
        return y * 2

    return fn


@built(t(3))
def dict_outside_is_written_to():
    kept = {}

    def fn(x):
        kept["last"] = x + 1
        return kept["last"] * 2

    return fn


@case([t(3)], t(3))
def list_written_in_an_inlined_call(xs, x):
    def push(ys, y):
        ys.append(y * 2)

    push(xs, x)
    push(xs, x + 1)
    return xs[1] + xs[2]


@case({"a": t(3)}, t(3))
def dict_written_in_an_inlined_call(d, x):
    def put(e, name, y):
        e[name] = y * 2

    put(d, "b", x)
    return d["a"] + d["b"]


@case([[t(3)]], t(3))
def nested_list_is_written_to(xs, x):
    xs[0].append(x)
    xs.append([x + 1])
    return xs[0][1] + xs[1][0]


@case(t(3))
def result_of_append_is_none(x):
    results = []
    return x + 1 if results.append(x) is None else x


@case([t(3), t(3)])
def argument_list_is_reordered(xs):
    xs.reverse()
    xs[0], xs[1] = xs[1], xs[0]
    return xs[0] - xs[1]


@built(t(3))
def memo_in_a_dict():
    memo = {}

    def fn(x):
        if "weight" not in memo:
            memo["weight"] = xp.ones(3) * 2
        return x * memo["weight"]

    return fn


@built(t(3))
def an_attribute_counts_calls():
    config = Config()
    config.calls = 0

    def fn(x):
        config.calls += 1
        return x + config.calls

    return fn


# -- copies ----------------------------------------------------------------------------------------


@case(t(3))
def copy_of_a_tensor(x):
    return copy.copy(x) + 1


@case(t(3))
def deepcopy_of_a_tensor(x):
    y = copy.deepcopy(x)
    y.add_(1)
    return x + y


@case([t(3), t(3)])
def deepcopy_of_a_list(xs):
    ys = copy.deepcopy(xs)
    ys.append(xs[0])
    return sum(ys) + len(xs)


@case({"a": t(3), "b": [t(3)]})
def deepcopy_of_a_dict(d):
    e = copy.deepcopy(d)
    e["b"].append(d["a"])
    return e["a"] + sum(e["b"])


@case(t(3))
def copies_of_containers(x):
    xs = copy.copy([x, x + 1])
    d = copy.copy({"a": x})
    return xs[0] + xs[1] * d["a"]


@case(Config(3), t(3))
def copy_of_an_object(config, x):
    other = copy.copy(config)
    other.width = 5
    return other.apply(x) + config.apply(x)


@case(Config(3), t(3))
def deepcopy_of_an_object(config, x):
    other = copy.deepcopy(config)
    other.width = 5
    return other.apply(x) + config.apply(x)


@case_of((t(3), Config(2)), (t(3), Config(2)), (t(3), Config(3)))
def objects_of_one_class(x, config):
    return config.apply(x)
