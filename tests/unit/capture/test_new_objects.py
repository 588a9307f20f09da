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
