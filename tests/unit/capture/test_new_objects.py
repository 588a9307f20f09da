"""Objects that each call makes, with numbers that vary: few entries answer all calls,
and there are never more than so many."""

import collections
import dataclasses
import warnings

import pytest

import glasshouse as gh

CALLS = 40


class Plain:
    def __init__(self, a, b):
        self.a, self.b = a, b


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Nested:
    def __init__(self, a, b):
        self.a, self.inner = a, Plain(a, b)

    @property
    def b(self):
        return self.inner.b


class Called(Plain):
    def __call__(self, x):
        return x * self.a + self.b


Named = collections.namedtuple("Named", "a b")
Data = dataclasses.make_dataclass("Data", ["a", "b"])
Frozen = dataclasses.make_dataclass("Frozen", ["a", "b"], frozen=True)
Slotted = dataclasses.make_dataclass("Slotted", ["a", "b"], slots=True)
CLASSES = (Plain, Slots, Nested, Called, Named, Data, Frozen, Slotted)


def by_attributes(x, o):
    return x * o.a + o.b


def by_method(x, o):
    return o(x)


def made_inside(x, o):
    return by_attributes(x, type(o)(o.a + 1, o.b))


def object_first(o, x):
    """Entries are counted for the first argument."""
    return x * o.a + o.b


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kinds", [(int, int), (float, int), (int, float)])
def test_few_entries_answer_all_calls(cls, kept, kinds):
    captured, objects = gh.optimize("eager")(object_first), []
    for i in range(CALLS):
        o = cls(kinds[0](i), kinds[1](2 * i))
        objects += [o] if kept else []
        assert captured(o, gh.ones(2)).tolist() == [3.0 * i] * 2
    assert captured.hits >= CALLS - 4
    assert len(captured.entries) <= 4


@pytest.mark.parametrize("fn", [by_attributes, by_method, made_inside])
def test_also_of_an_object_that_is_not_the_first_argument(fn):
    captured = gh.optimize("eager")(fn)
    for i in range(CALLS):
        assert (
            captured(gh.ones(1), Called(i, 1.5)).tolist() == fn(gh.ones(1), Called(i, 1.5)).tolist()
        )
    assert captured.hits >= CALLS - 4


@pytest.mark.parametrize("kept", [False, True])
def test_entries_are_bounded_where_nothing_answers_all_calls(kept):
    """A text of its own in each object needs an entry of its own."""
    limit, objects = 3, []
    with gh.capture.config.override(cache_limit=limit), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = gh.optimize("eager")(lambda o, x: x * len(o.a) + o.b)
        for i in range(20 * limit):
            o = Plain("t" * i, 1)
            objects += [o] if kept else []
            assert captured(o, gh.ones(1)).item() == i + 1
    assert len(captured.entries) <= limit * (16 if kept else 1)


def test_layers_of_one_class_have_entries_of_their_own():
    with gh.capture.config.override(cache_limit=3):
        layers = [gh.nn.Linear(2, 2) for _ in range(6)]
        captured = gh.optimize("eager")(lambda layer, x: layer(x))
        for _ in range(3):
            for layer in layers:
                assert captured(layer, gh.ones((1, 2))).tolist() == layer(gh.ones((1, 2))).tolist()
        assert captured.hits == 2 * len(layers)


# -- exceptions whose class has a __new__ in Python ------------------------------------------------

FACTOR = 3


class Other(Exception):
    pass


def new_by_super(cls, *args):
    error = Exception.__new__(cls, *args)
    error.factor = FACTOR
    return error


def new_number(cls, *args):
    return 8 * FACTOR


def new_other(cls, *args):
    return Other(FACTOR)


def init_with_attribute(self, *args):
    self.made = FACTOR


def init_by_super(self, *args):
    Exception.__init__(self, *args, FACTOR)


NEWS = {"": None, "super": new_by_super, "number": new_number, "other": new_other}
INITS = {"": None, "attribute": init_with_attribute, "super": init_by_super}
USES = {
    "compared": lambda cls, x: (x * 2, cls(1) == 24),
    "read": lambda cls, x: (x * 2, described(cls(1, "a"))),
    "raised": lambda cls, x: (x * 2, caught(cls, 2)),
}


def described(error):
    """Return all that an exception, or what is there instead, holds."""
    parts = getattr(error, "args", error), getattr(error, "made", 0), getattr(error, "factor", 0)
    return type(error).__name__, *parts


def caught(cls, *args):
    try:
        raise cls(*args)
    except Exception as error:
        return type(error).__name__, error.args


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("new", NEWS)
def test_exceptions_are_made_as_python_makes_them(new, init, use, monkeypatch):
    parts = {"__new__": NEWS[new], "__init__": INITS[init]}
    cls = type("Made", (Exception,), {name: f for name, f in parts.items() if f is not None})

    def seen(call):
        try:
            return str(call(cls, gh.ones(2)))
        except Exception as error:
            return type(error).__name__, str(error)

    captured = gh.optimize("eager")(USES[use])
    with gh.capture.config.override(raise_internal_errors=True):
        for factor in (3, 3, 5):
            monkeypatch.setitem(globals(), "FACTOR", factor)
            assert seen(captured) == seen(USES[use])
