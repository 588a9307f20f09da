"""`functools.cached_property` and `lru_cache` whose parts, names or surroundings change."""

import builtins
import functools
import itertools
from unittest import mock

import pytest

import glasshouse as gh
from glasshouse.capture.rules.builtins import cached_calls

CALLS = []


def one(self):
    CALLS.append("one")
    return self.k + 1


def two(self):
    CALLS.append("two")
    return self.k * 5


class Slots:
    __slots__ = ("k",)


class Open:
    pass


def holder(base, attrname):
    """A class whose cached_property `held` keeps its value under `attrname`."""
    cls = type("Holder", (base,), {"__slots__": ("k",)} if base is Slots else {})
    cls.held = cls.property = functools.cached_property(one)
    cls.property.attrname = attrname
    return cls


def set_function(cls, o):
    cls.property.func = two


def set_name(cls, o):
    cls.property.attrname = "held"


def set_other_name(cls, o):
    cls.property.attrname = "other"


def forget_name(cls, o):
    cls.property.attrname = None


def set_entry(cls, o):
    if isinstance(o, Open):
        o.__dict__["other"] = 70


def replace_attribute(cls, o):
    cls.held = 90


def forget_value(cls, o):
    if isinstance(o, Open):
        o.__dict__.pop("held", None)
        o.__dict__.pop("other", None)


CHANGES = (
    *(set_function, set_name, set_other_name, forget_name, set_entry, replace_attribute),
    forget_value,
)


def seen_of(call, o, x):
    """Return the result of a call or its error, what it called and the names in the object."""
    CALLS.clear()
    try:
        result = call(o, x).tolist()
    except Exception as error:
        result = type(error).__name__, str(error)
    return result, list(CALLS), sorted(getattr(o, "__dict__", {}))


READS = {
    "attribute": lambda o, x: x * o.held,
    "hasattr": lambda o, x: x * hasattr(o, "held"),
    "getattr": lambda o, x: x * getattr(o, "held", 9),
}


def history(wrap, way, base, attrname, changes):
    cls = holder(base, attrname)
    read = wrap(READS[way])
    log = []
    for change in (None, *changes):
        for fresh in (False, True):
            if fresh or change is None:
                o = cls()
                o.k = 3
            if change is not None:
                change(cls, o)
            log += [seen_of(read, o, gh.ones(2)) for _ in range(2)]
    return log


@pytest.mark.sample(9)
@pytest.mark.parametrize("base", [Open, Slots])
@pytest.mark.parametrize("attrname", ["held", "other", None])
@pytest.mark.parametrize("way", READS)
def test_a_cached_property_follows_each_change_of_its_parts(way, base, attrname):
    with gh.capture.config.override(raise_internal_errors=True):
        for changes in itertools.permutations(CHANGES, 2):
            want = history(lambda fn: fn, way, base, attrname, changes)
            got = history(gh.optimize("eager"), way, base, attrname, changes)
            assert got == want, changes


@functools.lru_cache
def cached(v):
    return v * 2


def call_cached(x, n):
    return x * cached(n)


@pytest.mark.parametrize("name", ["callable", "isinstance", "issubclass", "len", "hasattr"])
@pytest.mark.parametrize("answer", [True, False, 5, None])
def test_a_cached_function_does_not_ask_builtins_that_the_user_replaced(name, answer):
    real, asked = getattr(builtins, name), (cached, cached.__wrapped__, cached_calls.nothing)

    def replaced(*args):
        """Answer otherwise for the functions of this file alone."""
        return answer if any(args[0] is x for x in asked) else real(*args)

    captured = gh.optimize("eager")(call_cached)
    cached.cache_clear()
    config = gh.capture.config.override(raise_internal_errors=True)
    with config, mock.patch.object(builtins, name, replaced):
        assert [captured(gh.ones(2), 3).tolist() for _ in range(3)] == [[6, 6]] * 3
