"""Subclasses of builtin containers are made of arguments as Python makes them, or refuse them."""

import itertools
from collections import Counter, OrderedDict, defaultdict, deque

import pytest

import glasshouse as gh

BASES = (defaultdict, OrderedDict, dict, list, set, deque, tuple, str, int, float, bytes, Counter)
KINDS = {base.__name__: type(f"Own_{base.__name__}", (base,), {}) for base in BASES}


class WithFactory(defaultdict):
    def __init__(self, *args):
        super().__init__(int, *args)


class OtherInit(list):
    __init__ = dict.__init__


KINDS |= {"WithFactory": WithFactory, "OtherInit": OtherInit}
ARGUMENTS = [(), (1,), ({1: 2},), (int,), (None,), (int, {1: 2}), ([1, 2],), ([1, 2], 3), ("ab",)]
ARGUMENTS += [((1, 2), (3, 4)), ([(1, 2)],), (int, [(1, 2)]), (b"ab",), ({1: 2}, {3: 4}), ("7",)]
CALLS = [*itertools.product(ARGUMENTS, ({}, {"k": 1}))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("args, words", CALLS, ids=str)
def test_subclasses_take_the_arguments_of_their_builtin(kind, args, words):
    cls = KINDS[kind]

    def make(x, args):
        return cls(*args, **words)

    def outcome(call):
        try:
            result = call(gh.ones(1), args)
        except Exception as error:
            return type(error), str(error)
        return type(result), repr(result)

    captured = gh.optimize("eager")(make)
    assert [outcome(captured) for _ in range(2)] == [outcome(make)] * 2
