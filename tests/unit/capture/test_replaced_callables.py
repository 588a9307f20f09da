"""A callable may be replaced before the next call, wherever it was found."""

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import random
import re
import types
import typing
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import glasshouse as gh


def plus_one(x=0):
    return x + 1


def minus_one(x=0):
    return x - 1


class Adder:
    def __init__(self, n=1):
        self.n = n

    def __call__(self, x=0):
        return x + self.n

    def add(self, x=0):
        return x + 2 * self.n


@dataclasses.dataclass
class Point:
    x: int = 1


CALLS = {  # an expression that calls F, what F is, and another callable of its kind
    "deepcopy": ("F([1])", copy.deepcopy, copy.copy),
    "deepcopy of a dict": ("F({'a': [1]})", copy.deepcopy, len),
    "deepcopy of a number": ("F(3)", copy.deepcopy, str),
    "copy": ("F([1])", copy.copy, len),
    "sqrt": ("F(4.0)", math.sqrt, math.exp),
    "fsum": ("F([1.0])", math.fsum, math.prod),
    "reduce": ("F(operator.add, [1, 2])", functools.reduce, map),
    "operator": ("F(1, 2)", operator.add, operator.sub),
    "itemgetter": ("F([1, 2])", operator.itemgetter(0), operator.itemgetter(1)),
    "methodcaller": ("F('a')", operator.methodcaller("upper"), operator.methodcaller("title")),
    "len": ("F([1])", len, sum),
    "sorted": ("F([2, 1])", sorted, list),
    "isinstance": ("F(True, int)", isinstance, getattr),
    "getattr": ("F(1, 'real')", getattr, hasattr),
    "type": ("F(1)", type, str),
    "map": ("list(F(abs, [1]))", map, filter),
    "format": ("F(1)", format, repr),
    "hash": ("F(1)", hash, abs),
    "partial": ("F(abs, 2)()", functools.partial, lambda f, x: lambda: -x),
    "a partial": ("F(2)", functools.partial(plus_one), functools.partial(minus_one)),
    "cached": ("F(2)", functools.lru_cache(plus_one), functools.lru_cache(minus_one)),
    "dispatched": ("F(2)", functools.singledispatch(plus_one), functools.singledispatch(minus_one)),
    "chain": ("list(F([1], [2]))", itertools.chain, zip),
    "Counter": ("F('aa')", collections.Counter, set),
    "deque": ("F([1])", collections.deque, tuple),
    "namedtuple": ("F('A', 'b')(1)", collections.namedtuple, lambda a, b: str),
    "replace": ("F(Point(1), x=2)", dataclasses.replace, lambda p, x: x),
    "cast": ("F(int, 1)", typing.cast, max),
    "sub": ("F('a', 'b', 'aa')", re.sub, lambda *x: x),
    "pattern": ("F('aa').group()", re.compile("a").match, re.compile("aa").match),
    "suppress": ("F(KeyError)", contextlib.suppress, repr),
    "nullcontext": ("F(1).__enter__()", contextlib.nullcontext, Adder),
    "seed": ("F(1)", random.seed, abs),
    "filter": ("F('ignore')", warnings.simplefilter, len),
    "wraps": ("F(len)(abs)(-1)", functools.wraps, lambda f: lambda g: f),
    "ufunc": ("F(4.0)", np.sqrt, np.exp),
    "zeros": ("F(2)", np.zeros, np.ones),
    "ones": ("F(2)", gh.ones, gh.zeros),
    "relu": ("F(x)", gh.relu, gh.exp),
    "no_grad": ("F()", gh.no_grad, dict),
    "layer": ("F(x)", gh.nn.ReLU(), gh.nn.Sigmoid()),
    "layers": ("type(F())", gh.nn.ReLU, gh.nn.Sigmoid),
    "context": ("entered(F(), leaf)", gh.no_grad, gh.enable_grad),
    "function": ("F(2)", plus_one, minus_one),
    "captured": ("F(2)", gh.optimize("eager")(plus_one), gh.optimize("eager")(minus_one)),
    "captured with a tensor": ("F(x)", gh.optimize("eager")(plus_one), minus_one),
    "object": ("F(2)", Adder(1), Adder(5)),
    "method": ("F(2)", Adder(1).add, Adder(5).add),
    "method of a tensor": ("F()", gh.ones(3).sum, gh.ones(3).max),
    "method of a list": ("F(1)", [1, 1].count, [1, 2].count),
    "class": ("F(2)()", Adder, lambda n: Adder(n).add),
    "property": ("F.__get__(o)", property(lambda o: 1), property(lambda o: 2)),
    "bound by types": ("F(2)", types.MethodType(plus_one, 2), types.MethodType(minus_one, 2)),
}
WAYS = ("global", "argument", "default", "closure", "attribute", "item")


def entered(context, leaf) -> bool:
    with context:
        return (2 * leaf).requires_grad


class World:
    """A function that finds what it calls in one way, and how that is replaced."""

    def __init__(self, way: str, expression: str, called):
        self.way, self.called = way, called
        place = {"attribute": "o.F", "item": "table['F']"}.get(way, "F")
        text = re.sub(r"\bF\b", place, expression)
        heads = {"argument": "def fn(x, F)", "default": "def fn(x, F=F)"}
        lines = [f"{heads.get(way, 'def fn(x)')}:", f"    return {text}"]
        if way == "closure":
            setter = ["def set_F(v):", "    nonlocal F", "    F = v", "return fn, set_F"]
            lines = ["def make(F):", *(f"    {line}" for line in lines + setter)]
            lines.append("fn, set_F = make(F)")
        self.names = {"F": called, "table": {"F": called}, "o": types.SimpleNamespace(F=called)}
        self.names |= {"operator": operator, "Point": Point, "entered": entered}
        exec("\n".join(lines), self.names)

    def replace(self, called) -> None:
        names, self.called = self.names, called
        names["F"] = names["o"].F = names["table"]["F"] = called
        if self.way == "closure":
            names["set_F"](called)
        if self.way == "default":
            names["fn"].__defaults__ = (called,)

    def outcome(self, fn, x) -> str:
        """The text of what a call gives, without addresses."""
        try:
            text = repr(fn(x, self.called) if self.way == "argument" else fn(x))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        return re.sub("0x[0-9a-f]+", "", text)


def check(case: tuple, x, names: dict, seed: Callable[[int], object]) -> None:
    """Call what is found in each way, and others in its place, captured and plainly."""
    expression, first, second = case
    for way in WAYS:
        world = World(way, expression, first)
        world.names |= names
        captured = gh.optimize("eager")(world.names["fn"])
        for called in (first, first, second, lambda *x, **y: "another", first):
            world.replace(called)
            seed(0)
            expected = world.outcome(world.names["fn"], x)
            seed(0)
            assert world.outcome(captured, x) == expected, way


@pytest.mark.parametrize("name", CALLS)
def test_what_is_called_may_be_replaced(name):
    leaf = gh.tensor([1.0], requires_grad=True)
    check(CALLS[name], gh.tensor([0.5, -1.0]), {"leaf": leaf}, random.seed)
