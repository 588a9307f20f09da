"""A call that fails for a value that it reads goes right once the value is right, as in Python."""

import collections
import contextlib
import copy
import enum
import functools
import itertools
import math
import operator
import re
import types

import pytest

import glasshouse as gh

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
CALLS = 3  # of each value, so that an entry is there when the next one comes

OTHERS = [None, 1, 0.5, "ab", b"ab", (), (1,), [1, 2], {"a": 1}, {1}, int, KeyError, KeyError(1)]
OTHERS += [(KeyError, 1), (KeyError, ValueError), {1: 2}, range(3), len, lambda v=1: v, object]
OTHERS += [type("Plain", (), {}), type("Plain", (), {"__match_args__": ("real",), "real": 1})()]
OTHERS += [types.SimpleNamespace(a=1), collections.OrderedDict(a=2), enum.Enum("Colour", "a b")]

MODULES = {
    x.__name__: x
    for x in (collections, contextlib, copy, functools, itertools, math, operator, types)
}

STATEMENTS = {  # of `v`, one for each error that the interpreter raises itself
    "except": "try: raise KeyError(1)\nexcept v as error: r = 'caught'",
    "raise": "raise v",
    "raise from": "raise ValueError(1) from v",
    "call": "r = v()",
    "call with one": "r = v(1)",
    "call with keywords": "r = dict(a=1, **v)",
    "call twice the same": "r = dict(b=2, **v, **{'a': 3})",
    "keywords that are no text": "r = (lambda **k: sorted(k))(**v)",
    "call with a sequence": "r = (lambda *a: len(a))(*v)",
    "unpack": "a, b = v\nr = b",
    "unpack one": "(a,) = v\nr = a",
    "unpack with a rest": "a, *b = v\nr = len(b)",
    "len": "r = len(v)",
    "iterate": "r = [i for i in v]",
    "item": "r = v['a']",
    "first": "r = v[0]",
    "slice": "r = v[:1]",
    "attribute": "r = v.a",
    "real": "r = v.real",
    "add": "r = v + 1",
    "negate": "r = -v",
    "compare": "r = v < 2",
    "in": "r = 1 in v",
    "isinstance": "r = isinstance(1, v)",
    "issubclass": "r = issubclass(int, v)",
    "with": "with v as entered: r = 1",
    "match": "match 1:\n    case v(): r = 'one'\n    case _: r = 'none'",
    "match class": "match v:\n    case int(): r = 1\n    case str(): r = 2\n    case _: r = 0",
    "match with parts": "match 1:\n    case v(z): r = z\n    case _: r = 'none'",
    "match with two parts": "match 1:\n    case v(y, z): r = z\n    case _: r = 'none'",
    "match a mapping": "match v:\n    case {'a': z}: r = z\n    case _: r = 0",
    "match a sequence": "match v:\n    case [z, *_]: r = z\n    case _: r = 0",
    "pop": "r = dict(a=1, b=2).pop(v)",
    "key": "r = {'ab': 1, 1: 2}[v]",
    "store": "r = {}\nr[v] = 1\nr = len(r)",
    "int": "r = int(v)",
    "range": "r = list(range(v))",
    "join": "r = '-'.join(v)",
    "format": "r = '%d' % v",
    "format text": "r = f'{v:3d}'",
    "sorted": "r = sorted(v)",
    "sum": "r = sum(v)",
    "zip": "r = list(zip(v, [1], strict=True))",
    "super": "r = super(v, 1).real",
    "getattr": "r = getattr(v, 'a')",
    "a name": "r = getattr(1, v)",
    "class": "class Made(v): pass\nr = Made.__mro__[-1].__name__",
    "sent": "def made():\n    yield 1\ng = made()\ng.send(v)\nr = 1",
    "thrown": "def made():\n    yield 1\ng = made()\nnext(g)\ng.throw(v)\nr = 1",
    "yield from": "def made():\n    yield from v\nr = list(made())",
    "a set": "r = {v}",
    "update": "r = {}\nr.update(v)\nr = len(r)",
    "extend": "r = []\nr.extend(v)\nr = len(r)",
    "dict": "r = len(dict(v))",
    "next": "r = next(iter(v))",
    "float": "r = float(v)",
    "abs": "r = abs(v)",
    "max": "r = max(v)",
    "chr": "r = chr(v)",
    "startswith": "r = 'ab'.startswith(v)",
    "delete": "r = [1, 2]\ndel r[v]\nr = len(r)",
    "list index": "r = [1, 2, 3][v]",
    "assign attribute": "v.a = 2\nr = v.a",
    "enumerate": "r = list(enumerate(v))",
    "reversed": "r = list(reversed(v))",
    "map": "r = list(map(v, [1]))",
    "filter": "r = list(filter(v, [1]))",
    "divmod": "r = divmod(v, 2)",
    "power": "r = v ** 2",
    "by zero": "r = 1 / v",
    "matmul": "r = v @ 1",
    "invert": "r = ~v",
    "in place": "r = v\nr += 1",
    "round": "r = round(1.25, v)",
    "ord": "r = ord(v)",
    "index": "r = [1, 'ab', None].index(v)",
    "remove": "r = [1, 'ab', None]\nr.remove(v)",
    "list pop": "r = [1, 2, 3].pop(v)",
    "add to a set": "r = set()\nr.add(v)\nr = len(r)",
    "fromkeys": "r = len(dict.fromkeys(v))",
    "made of its type": "r = type(v)()",
    "partial": "r = functools.partial(v, 1)()",
    "reduce": "r = functools.reduce(v, [1, 2])",
    "itemgetter": "r = operator.itemgetter(v)([1, 2])",
    "attrgetter": "r = operator.attrgetter(v)(1)",
    "setattr": "o = types.SimpleNamespace()\nsetattr(o, v, 1)\nr = 1",
    "hasattr": "r = hasattr(1, v)",
    "delattr": "o = types.SimpleNamespace(ab=1)\ndelattr(o, v)\nr = 1",
    "vars": "r = len(vars(v))",
    "iter": "r = next(iter(v))",
    "call until": "r = next(iter(v, 1), 5)",
    "int of a base": "r = int('11', v)",
    "slice of a list": "r = [1, 2, 3][v:]",
    "step": "r = [1, 2, 3][::v]",
    "assert": "assert v\nr = 1",
    "assert with": "assert not v, v\nr = 1",
    "store an item": "w = copy.copy(v)\nw[0] = 1\nr = w[0]",
    "delete an item": "w = copy.copy(v)\ndel w[0]\nr = len(w)",
    "setdefault": "r = {}.setdefault(v, 1)",
    "get": "r = {'ab': 1}.get(v)",
    "string split": "r = 'a1b'.split(v)",
    "replace": "r = 'ab'.replace(v, 'x')",
    "times": "r = [1] * v",
    "and": "r = v & 1",
    "set union": "r = {1} | v",
    "not": "r = not v",
    "bool": "r = bool(v)",
    "if": "r = 1 if v else 2",
    "while": "r = 0\nwhile v and r < 2: r += 1",
    "all": "r = all(v)",
    "any": "r = any(v)",
    "min with key": "r = min([2, 1], key=v)",
    "sorted with key": "r = sorted([2, 1], key=v)",
    "list": "r = len(list(v))",
    "tuple": "r = len(tuple(v))",
    "set": "r = len(set(v))",
    "frozenset": "r = len(frozenset(v))",
    "hash": "hash(v)\nr = 1",
    "str": "r = str(v)",
    "name": "r = v.__name__",
    "property": "class Made:\n    p = property(v)\nr = Made().p",
    "method": "class Made:\n    m = v\nr = Made().m()",
    "dunder": "class Made:\n    __len__ = v\nr = len(Made())",
    "context": "with contextlib.suppress(v): raise KeyError(1)\nr = 2",
    "chain": "r = list(itertools.chain([1], v))",
    "islice": "r = list(itertools.islice([1, 2, 3], v))",
    "namedtuple": "r = collections.namedtuple('Pair', 'a b')(*v)",
    "deque": "r = list(collections.deque(v, 2))",
    "counter": "r = len(collections.Counter(v))",
    "math": "r = math.sqrt(v)",
    "gcd": "r = math.gcd(v, 4)",
    "global in a default": "def made(a=v): return a + 1\nr = made()",
    "lambda": "r = (lambda a: a.a)(v)",
    "comprehension": "r = [a + 1 for a in v]",
    "generator": "r = sum(a for a in v)",
    "nested": "def made(): return len(v)\nr = made()",
    "starred": "r = [*v, 1]",
    "merged": "r = {**v}",
    "format spec": "r = format(1, v)",
    "percent": "r = '%s %s' % v",
    "caught": "try: r = len(v)\nexcept TypeError as error: r = str(error)",
    "caught attribute": "try: r = v.a\nexcept AttributeError: r = 'none'",
    "finally": "r = 0\ntry: r = v[0]\nfinally: r = r or 1",
    "caught item": "try: r = v['a']\nexcept Exception as error: r = str(error)",
    "get attribute or": "r = getattr(v, 'a', 7)",
    "next or": "r = next(iter(v), 3)",
}


def function_of(statement: str, names: dict):
    """A function of a statement that reads the global `v`."""
    body = "\n".join(f"    {line}" for line in statement.splitlines())
    exec(f"def fn(x):\n{body}\n    return r, x + 1", names)
    return names["fn"]


def outcome(fn, x) -> tuple:
    """Return the outcome of a call: its result's first part, or its error."""
    try:
        result, _ = fn(x)
    except Exception as error:
        return type(error).__name__, ADDRESS.sub("", str(error))
    return "result", ADDRESS.sub("", repr(result))


@pytest.mark.parametrize("name", STATEMENTS)
def test_an_error_is_raised_for_the_value_that_it_is_about(name):
    names: dict = {"__name__": "a_program"} | MODULES
    fn = function_of(STATEMENTS[name], names)
    captured, x = gh.optimize("eager")(fn), gh.ones(2)
    with gh.capture.config.override(cache_limit=8 * len(OTHERS)):
        for value in [*OTHERS, *OTHERS[::-1]]:
            for _ in range(CALLS):
                names["v"] = copy.copy(value)
                expected = outcome(fn, x)
                names["v"] = copy.copy(value)
                assert outcome(captured, x) == expected, value


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_text_of_an_error_has_the_name_that_a_class_has_now(name):
    first, second = (type(f"Kind{i}", (), {}) for i in (1, 2))
    names: dict = {"__name__": "a_program"} | MODULES
    fn = function_of(STATEMENTS[name], names)
    x = gh.ones(2)
    for value in (first, first()):
        captured = gh.optimize("eager")(fn)
        names["v"] = value
        for text in ("Kind1", "Other", "Kind1"):
            first.__name__ = text
            for _ in range(CALLS):
                assert outcome(captured, x) == outcome(fn, x)
    assert second.__name__ == "Kind2"


@pytest.mark.parametrize("key", [{3, 4}, {5}, frozenset([6]), 7, (8,)], ids=repr)
def test_the_key_that_an_error_names_is_the_one_that_was_asked_for(key):
    def remove(x, items, key):
        try:
            items.remove(key)
        except KeyError as error:
            return error.args[0], x

    captured = gh.optimize("eager")(remove)
    for _ in range(CALLS):
        assert captured(gh.ones(2), {1, 2}, key)[0] is key
