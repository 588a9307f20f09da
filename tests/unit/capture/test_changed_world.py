"""A thing that a captured function read is changed between calls: its entry must not answer any
more.

Each case has a world (a class, a module, a global, ...), a function that reads one thing in it, and
a change. The function runs plain and captured in two equal worlds: twice before the change, twice
after it, and once after the change is taken back."""

import builtins
import enum
import itertools
import operator
import sys
import types

import pytest

import glasshouse as gh

MISSING = object()


def outcome(call):
    """Return the outcome of a call as plain Python: a value, or the type and text of an
    exception."""
    try:
        value = call()
    except Exception as error:
        return type(error).__name__, str(error)
    return value.tolist() if isinstance(value, gh.Tensor) else value


def calls(make, mode):
    """The outcomes of calls before a change, after it, and after it is undone."""
    gh.reset()
    fn, change, undo = make()
    run = fn if mode is None else gh.optimize(mode)(fn)
    x = gh.ones(1)
    got = [outcome(lambda: run(x)) for _ in range(2)]
    change()
    try:
        got += [outcome(lambda: run(x)) for _ in range(2)]
    finally:
        undo()
    return [*got, outcome(lambda: run(x))]


def replacing(owner, name, value):
    """(change, undo) of an attribute; MISSING deletes it."""
    before = vars(owner).get(name, MISSING)

    def put(what):
        if what is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, what)

    return lambda: put(value), lambda: put(before)


def check(make):
    plain = calls(make, None)
    assert plain[0] != plain[2], "the change has no effect"
    for mode in ("eager", "program"):
        assert calls(make, mode) == plain, mode


# -- what is found on a class ---------------------------------------------------------------------

# name: (method before, method after, what reads it of an object `a` and a tensor `x`)
METHODS = {
    "__add__": (lambda s, o: 1, lambda s, o: 10, lambda a, x: x * (a + 1)),
    "__radd__": (lambda s, o: 1, lambda s, o: 10, lambda a, x: x * (1 + a)),
    "__iadd__": (
        lambda s, o: 1,
        lambda s, o: 10,
        lambda a, x: x * __import__("operator").iadd(a, 1),
    ),
    "__neg__": (lambda s: 1, lambda s: 10, lambda a, x: x * -a),
    "__lt__": (lambda s, o: True, lambda s, o: False, lambda a, x: x * (1 if a < 3 else 2)),
    "__eq__": (lambda s, o: True, lambda s, o: False, lambda a, x: x * (1 if a == 3 else 2)),
    "__ne__": (lambda s, o: True, lambda s, o: False, lambda a, x: x * (1 if a != 3 else 2)),
    "__bool__": (lambda s: True, lambda s: False, lambda a, x: x * (1 if a else 2)),
    "__len__": (lambda s: 2, lambda s: 5, lambda a, x: x * len(a)),
    "__contains__": (lambda s, o: True, lambda s, o: False, lambda a, x: x * (1 if 3 in a else 2)),
    "__getitem__": (lambda s, i: 3, lambda s, i: 7, lambda a, x: x * a[0]),
    "__iter__": (lambda s: iter([1]), lambda s: iter([4, 5]), lambda a, x: x * sum(a)),
    "__call__": (lambda s, v: 1, lambda s, v: 2, lambda a, x: x * a(0)),
    "__enter__": (lambda s: 1, lambda s: 2, lambda a, x: x * entered(a)),
    "__str__": (lambda s: "a", lambda s: "bb", lambda a, x: x * len(str(a))),
    "__repr__": (lambda s: "a", lambda s: "bb", lambda a, x: x * len(repr(a))),
    "__format__": (lambda s, f: "a", lambda s, f: "bb", lambda a, x: x * len(f"{a}")),
    "__int__": (lambda s: 1, lambda s: 2, lambda a, x: x * int(a)),
    "__index__": (lambda s: 1, lambda s: 2, lambda a, x: x * [3, 4, 5][a]),
    "__float__": (lambda s: 1.0, lambda s: 2.0, lambda a, x: x * float(a)),
    "__abs__": (lambda s: 1, lambda s: 2, lambda a, x: x * abs(a)),
    "__round__": (lambda s, n=None: 1, lambda s, n=None: 2, lambda a, x: x * round(a)),
    "__reversed__": (lambda s: iter([1]), lambda s: iter([2]), lambda a, x: x * next(reversed(a))),
    "__getattr__": (lambda s, n: 1, lambda s, n: 2, lambda a, x: x * a.anything),
    "__getattribute__": (
        lambda s, n: object.__getattribute__(s, n),
        lambda s, n: 5 if n == "data" else object.__getattribute__(s, n),
        lambda a, x: x * a.data,
    ),
    "__setattr__": (
        lambda s, n, v: object.__setattr__(s, n, v),
        lambda s, n, v: object.__setattr__(s, n, v + 1),
        lambda a, x: x * stored(a),
    ),
    "method": (lambda s: 1, lambda s: 2, lambda a, x: x * a.method()),
    "prop": (property(lambda s: 1), property(lambda s: 2), lambda a, x: x * a.prop),
    "static": (staticmethod(lambda: 1), staticmethod(lambda: 2), lambda a, x: x * a.static()),
    "cls_method": (
        classmethod(lambda c: 1),
        classmethod(lambda c: 2),
        lambda a, x: x * a.cls_method(),
    ),
    "number": (1, 2, lambda a, x: x * a.number),
    "items": ([1], [2, 3], lambda a, x: x * len(a.items)),
    "by_class": (1, 2, lambda a, x: x * type(a).by_class),
}
METHODS["__exit__"] = (lambda s, *e: None, lambda s, *e: True, lambda a, x: x * left(a))
METHODS["__hash__"] = (lambda s: 1, lambda s: 2, lambda a, x: x * hash(a))


def entered(a):
    with a as value:
        return value


def left(a):
    with a:
        raise ValueError("inside")
    return 3


def stored(a):
    a.data = 4
    return a.data


def world(name, value):
    """A class with a method, whose base has it where `inherited`."""
    space = {"__exit__": lambda s, *e: None, "__enter__": lambda s: 1, "data": 1}
    return type("A", (), {**space, name: value})


WAYS = {
    "object": lambda cls, own, read: (lambda a: lambda x: read(a, x))(cls()),
    "made inside": lambda cls, own, read: lambda x: read(cls(), x),
    "in a container": lambda cls, own, read: (lambda held: lambda x: read(held[0]["a"], x))(
        [{"a": cls()}]
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inherited", [False, True], ids=["own", "of a base"])
@pytest.mark.parametrize("name", METHODS)
def test_class_attribute_replaced(name, inherited, way):
    before, after, read = METHODS[name]

    def make():
        owner = world(name, before)
        cls = type("B", (owner,), {}) if inherited else owner
        return WAYS[way](cls, owner, read), *replacing(owner, name, after)

    check(make)


@pytest.mark.parametrize(
    "name", [x for x in METHODS if x not in ("__getattribute__", "__setattr__")]
)
def test_class_attribute_hidden_by_a_subclass(name):
    before, after, read = METHODS[name]

    def make():
        cls = type("B", (world(name, before),), {})
        a = cls()
        return (lambda x: read(a, x)), *replacing(cls, name, after)

    check(make)


@pytest.mark.parametrize("name", ["method", "prop", "static", "cls_method", "number", "items"])
def test_super_attribute_replaced(name):
    before, after, _ = METHODS[name]

    def make():
        class Base:
            pass

        class Derived(Base):
            def go(self):
                value = getattr(super(), name)
                value = value() if callable(value) else value
                return len(value) if isinstance(value, list) else value

        setattr(Base, name, before)
        setattr(Derived, name, before)
        a = Derived()
        return (lambda x: x * a.go()), *replacing(Base, name, after)

    check(make)


def test_bases_replaced():
    def make():
        class One:
            def go(self):
                return 1

        class Two:
            def go(self):
                return 2

        class A(One):
            pass

        a = A()

        def put(*bases):
            A.__bases__ = bases

        return (lambda x: x * a.go()), lambda: put(Two, One), lambda: put(One)

    check(make)


# -- what is found on a metaclass -----------------------------------------------------------------

META = {
    "__call__": (type.__call__, lambda c: 5, lambda c, x: x * (1 if isinstance(c(), c) else 2)),
    "__instancecheck__": (lambda c, o: True, lambda c, o: False, lambda c, x: x * isinstance(3, c)),
    "__subclasscheck__": (
        lambda c, o: True,
        lambda c, o: False,
        lambda c, x: x * issubclass(int, c),
    ),
    "__contains__": (lambda c, o: True, lambda c, o: False, lambda c, x: x * (3 in c)),
    "__len__": (lambda c: 1, lambda c: 2, lambda c, x: x * len(c)),
    "__getitem__": (lambda c, i: 1, lambda c, i: 2, lambda c, x: x * c[0]),
    "__iter__": (lambda c: iter([1]), lambda c: iter([2]), lambda c, x: x * sum(c)),
    "__getattr__": (lambda c, n: 1, lambda c, n: 2, lambda c, x: x * c.anything),
    "__add__": (lambda c, o: 1, lambda c, o: 2, lambda c, x: x * (c + 1)),
    "prop": (property(lambda c: 1), property(lambda c: 2), lambda c, x: x * c.prop),
    "method": (lambda c: 1, lambda c: 2, lambda c, x: x * c.method()),
    "number": (1, 2, lambda c, x: x * c.number),
}


@pytest.mark.parametrize("name", META)
def test_metaclass_attribute_replaced(name):
    before, after, read = META[name]

    def make():
        meta = type("M", (type,), {name: before})
        cls = meta("A", (), {})
        return (lambda x: read(cls, x)), *replacing(meta, name, after)

    check(make)


# -- absence --------------------------------------------------------------------------------------


def slotted():
    cls = type("S", (), {"__slots__": ("v",)})
    return cls(), cls


def plain_object():
    cls = type("S", (), {})
    return cls(), cls


PLACES = {
    "slot": lambda: slotted()[0],
    "object": lambda: plain_object()[0],
    "class": lambda: plain_object()[1],
    "module": lambda: types.ModuleType("some"),
    "metaclass": lambda: type("M", (type,), {})("A", (), {}),
    "class of an object": lambda: plain_object(),
    "class of a new object": lambda: plain_object(),
    "base": lambda: type("B", (plain_object()[1],), {}),
    "layer": lambda: gh.nn.ReLU(),
    "function": lambda: lambda: None,
    "super": lambda: plain_object()[1],
}


def super_of(cls):
    return super(cls, cls())


def read_of(place, thing):
    """(what is read, what is written)."""
    if place == "class of an object":
        return (lambda: thing[0]), thing[1]
    if place == "class of a new object":
        return thing[1], thing[1]
    if place == "base":
        return (lambda: thing), thing.__base__
    if place == "super":
        derived = type("D", (thing,), {})
        one = derived()
        return (lambda: super(derived, one)), thing
    if place == "metaclass":
        return (lambda: thing), type(thing)
    return (lambda: thing), thing


def by_hasattr(get):
    return lambda x: x * (1 if hasattr(get(), "v") else 2)


def by_getattr(get):
    return lambda x: x * getattr(get(), "v", 5)


def by_try(get):
    def fn(x):
        try:
            return x * get().v
        except AttributeError:
            return x * 5

    return fn


def by_vars(get):
    return lambda x: x * (1 if "v" in get().__dict__ else 2)


@pytest.mark.parametrize("how", [by_hasattr, by_getattr, by_try])
@pytest.mark.parametrize("place", PLACES)
def test_absent_attribute_appears(place, how):
    def make():
        get, owner = read_of(place, PLACES[place]())
        return how(get), lambda: setattr(owner, "v", 1), lambda: delattr(owner, "v")

    check(make)


@pytest.mark.parametrize("place", ["object", "class", "layer", "function"])
def test_namespace_grows(place):
    def make():
        thing = PLACES[place]()
        return by_vars(lambda: thing), lambda: setattr(thing, "v", 1), lambda: delattr(thing, "v")

    check(make)


def in_module(text):
    """The function `fn` of a module with this source, and its names."""
    names = {"gh": gh, "__name__": "some_module", "sys": sys}
    exec(text, names)
    return names["fn"], names


ABSENT = {
    "try": "def fn(x):\n try: return x * value\n except NameError: return x * 5",
    "globals": "def fn(x): return x * (1 if 'value' in globals() else 2)",
    "nested": (
        "def fn(x):\n def g():\n  try: return value\n  except NameError: return 5\n return x * g()"
    ),
}


@pytest.mark.parametrize("how", ABSENT)
def test_absent_global_appears(how):
    def make():
        fn, names = in_module(ABSENT[how])
        return fn, lambda: names.update(value=1), lambda: names.pop("value")

    check(make)


def test_absent_builtin_appears():
    def make():
        fn, _ = in_module(ABSENT["try"])
        return fn, lambda: setattr(builtins, "value", 1), lambda: delattr(builtins, "value")

    check(make)


# Of those that the engine itself does not need.
BUILTINS = {
    "abs": (lambda v: 9, "x * abs(-1)"),
    "divmod": (lambda a, b: (9, 9), "x * divmod(3, 2)[0]"),
    "oct": (lambda v: "9", "x * len(oct(8))"),
    "chr": (lambda v: "999", "x * len(chr(65))"),
    "complex": (lambda v: 9, "x * complex(1).real"),
}


@pytest.mark.parametrize("name", BUILTINS)
def test_builtin_replaced(name):
    after, text = BUILTINS[name]

    def make():
        fn, _ = in_module(f"def fn(x): return {text}")
        return fn, *replacing(builtins, name, after)

    check(make)


def test_global_hides_a_builtin():
    def make():
        fn, names = in_module("def fn(x): return x * abs(-1)")
        return fn, lambda: names.update(abs=lambda v: 9), lambda: names.pop("abs")

    check(make)


# -- functions and modules ------------------------------------------------------------------------


def helper(v, k=1, *, n=1):
    return v * k + n


def other(v, k=1, *, n=1):
    return v * k + 7


@pytest.mark.parametrize(
    "name, value",
    [("__code__", other.__code__), ("__defaults__", (5,)), ("__kwdefaults__", {"n": 5})],
)
@pytest.mark.parametrize("held", ["closure", "class", "container"])
def test_function_changed_in_place(name, value, held):
    def make():
        fn = types.FunctionType(helper.__code__, globals(), "f", (1,))
        fn.__kwdefaults__ = {"n": 1}
        cls = type("A", (), {"f": staticmethod(fn)})
        before = getattr(fn, name)
        reads = {
            "closure": lambda x: fn(x),
            "class": lambda x: cls().f(x),
            "container": (lambda table: lambda x: table["f"](x))({"f": fn}),
        }
        return reads[held], lambda: setattr(fn, name, value), lambda: setattr(fn, name, before)

    check(make)


def test_keyword_default_changed_in_place():
    def make():
        fn = types.FunctionType(helper.__code__, globals(), "f", (1,))
        fn.__kwdefaults__ = {"n": 1}
        cls = type("A", (), {"f": staticmethod(fn)})
        table = fn.__kwdefaults__
        return (lambda x: cls().f(x)), lambda: table.update(n=5), lambda: table.update(n=1)

    check(make)


@pytest.mark.parametrize("name", ["__defaults__", "__kwdefaults__"])
def test_defaults_taken_away(name):
    def make():
        fn = types.FunctionType(helper.__code__, globals(), "f", (1,))
        fn.__kwdefaults__ = {"n": 1}
        before = getattr(fn, name)
        return (
            lambda x: fn(x),
            lambda: setattr(fn, name, None),
            lambda: setattr(fn, name, before),
        )

    check(make)


def with_module(text):
    """A function that reads an entry of sys.modules."""
    fn, _ = in_module(text)
    one, two = types.ModuleType("some_entry"), types.ModuleType("some_entry")
    one.v, two.v = 1, 2
    sys.modules["some_entry"] = one
    return (
        fn,
        lambda: sys.modules.update(some_entry=two),
        lambda: sys.modules.update(some_entry=one),
    )


IMPORTS = {
    "import": "def fn(x):\n import some_entry\n return x * some_entry.v",
    "import as": "def fn(x):\n import some_entry as s\n return x * s.v",
    "from": "def fn(x):\n from some_entry import v\n return x * v",
    "table": "def fn(x): return x * sys.modules['some_entry'].v",
}


@pytest.mark.parametrize("how", IMPORTS)
def test_module_replaced(how):
    check(lambda: with_module(IMPORTS[how]))


def test_module_attribute_replaced_by_patch():
    from unittest import mock

    def make():
        module = types.ModuleType("some")
        module.scale = lambda v: v * 2
        patch = mock.patch.object(module, "scale", lambda v: v * 3)
        return (lambda x: module.scale(x)), patch.start, patch.stop

    check(make)


# -- layers ---------------------------------------------------------------------------------------

LAYERS = {
    "relu": lambda: gh.nn.ReLU(),
    "linear": lambda: gh.nn.Linear(1, 1, bias=False),
    "sequence": lambda: gh.nn.Sequential(gh.nn.ReLU(), gh.nn.ReLU()),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("where", ["instance", "class"])
def test_forward_replaced(kind, where):
    def make():
        gh.random.seed(0)
        layer = LAYERS[kind]()
        if where == "instance":
            return (
                lambda x: layer(x),
                lambda: setattr(layer, "forward", lambda x: x * 100),
                lambda: delattr(layer, "forward"),
            )
        return (lambda x: layer(x)), *replacing(type(layer), "forward", lambda self, x: x * 100)

    check(make)


def test_forward_of_an_inner_layer_replaced():
    def make():
        layer = gh.nn.Sequential(gh.nn.ReLU(), gh.nn.ReLU())
        inner = layer[1]
        return (
            lambda x: layer(x),
            lambda: setattr(inner, "forward", lambda x: x * 100),
            lambda: delattr(inner, "forward"),
        )

    check(make)


# -- found by the audit ----------------------------------------------------------------------------


def test_an_attribute_of_a_member_of_an_enumeration():
    def make():
        color = enum.Enum("Color", {"RED": 1, "BLUE": 2})
        member = color.BLUE
        return (
            lambda x: x * color(2).value,
            lambda: setattr(member, "_value_", 7),
            lambda: setattr(member, "_value_", 2),
        )

    check(make)


@pytest.mark.parametrize("value", [7, MISSING])
def test_an_attribute_of_a_function_in_a_class(value):
    def make():
        class Own:
            def method(self):
                return 1

        Own.method.scale = 2
        change, undo = replacing(Own.method, "scale", value)
        return (lambda x: x * getattr(Own.method, "scale", 3)), change, undo

    check(make)


# Builtins that check their arguments and of which nothing is drawn.
LAZY = {
    "zip": (lambda box: zip(box[0], [1]), [1], 5),
    "enumerate": (lambda box: enumerate(box[0]), [1], 5),
    "count": (lambda box: itertools.count(box[0]), 1, "a"),
    "product": (lambda box: itertools.product([1, 2], repeat=box[0]), 1, -1),
    "islice": (lambda box: itertools.islice([1, 2], box[0]), 1, -1),
    "repeat": (lambda box: itertools.repeat(1, box[0]), 1, "a"),
    "accumulate": (lambda box: itertools.accumulate(box[0]), [1], 5),
}


@pytest.mark.parametrize("name", LAZY)
def test_an_argument_that_a_builtin_refuses(name):
    call, value, other = LAZY[name]

    def make():
        box = [value]

        def fn(x):
            call(box)
            return x

        def put(what):
            box[0] = what

        return fn, lambda: put(other), lambda: put(value)

    check(make)


def test_an_iterator_that_is_none():
    def make():
        class Row:
            def __iter__(self):
                return self.made

            def __next__(self):
                raise StopIteration

        row = Row()
        row.made = row

        def fn(x):
            try:
                return [*row]
            except TypeError as error:
                return str(error)

        return fn, *replacing(row, "made", 5)

    check(make)


def test_an_object_without_a_protocol():
    def make():
        class Row:
            __getitem__ = lambda self, i: [1, 1][i]  # noqa: E731

        table = {"row": Row()}

        def fn(x):
            try:
                return [*reversed(table["row"])]
            except TypeError as error:
                return str(error)

        def put(row):
            table["row"] = row

        return fn, lambda: put(None), lambda: put(Row())

    check(make)


def test_functions_that_write_give_nothing():
    """The result of a user's method that writes is dropped."""

    class Own:
        part = property(lambda self: 1, lambda self, value: 9, lambda self: 10)
        __setitem__ = __delitem__ = lambda self, *args: 7

    class Attributes:
        __setattr__ = __delattr__ = lambda self, *args: 5

    own, attributes = Own(), Attributes()

    def fn(x):
        writes = [setattr(attributes, "q", 1), delattr(attributes, "q")]
        writes += [operator.setitem(own, 1, 2), operator.delitem(own, 1)]
        return [*writes, setattr(own, "part", 1), delattr(own, "part")]

    assert gh.optimize("eager")(fn)(gh.ones(1)) == fn(None) == [None] * 6


class Plain:
    pass


WRAPPED = sorted(
    name
    for name, value in vars(object).items()
    if isinstance(value, types.WrapperDescriptorType)
    and name not in ("__init__", "__setattr__", "__delattr__")
)
ORDERS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
ARGUMENTS = {"__getattribute__": ("__class__",), **dict.fromkeys(ORDERS, (3,))}


@pytest.mark.parametrize("bound_first", [False, True])
@pytest.mark.parametrize("name", WRAPPED)
def test_methods_of_objects_on_one_value_and_then_on_another(name, bound_first):
    """`__get__` of a method of C takes None for no object."""
    descriptor, args = vars(object)[name], ARGUMENTS.get(name, ())

    def fn(value, x):
        method = getattr(value, name) if bound_first else None
        total = (x + 1).sum().item()
        try:
            return total, method(*args) if bound_first else descriptor(value, *args)
        except Exception as error:
            return total, type(error), str(error)

    x, captured = gh.ones(2), gh.optimize("eager")(fn)
    for value in (None, 5, None, Plain, "a", None, Plain()):
        assert captured(value, x) == fn(value, x), value
