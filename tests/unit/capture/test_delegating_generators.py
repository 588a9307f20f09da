"""Generators that draw from generators, in every combination, end when plain Python ends them."""

import itertools

import pytest

import glasshouse as gh

INNER = {
    "plain": "    yield 1\n    yield 2\n",
    "finally": "    try:\n        yield 1\n        yield 2\n    finally:\n"
    "        log.append('inner')\n",
    "caught": "    try:\n        yield 1\n        yield 2\n    except GeneratorExit:\n"
    "        log.append('exit')\n        raise\n",
    "with": "    with Logged(log):\n        yield 1\n        yield 2\n",
}
DRAWING = {
    "from": "yield from {}(log)",
    "loop": "for v in {}(log): yield v",
    "named": "g = {}(log); yield next(g); yield next(g)",
    "two": "yield from zip({}(log), itertools.count())",
}
OUTER = {
    "bare": "    {}\n",
    "finally": "    try:\n        {}\n    finally:\n        log.append('outer')\n",
}
USES = {
    "break": "    for k in outer(log): break\n",
    "whole": "    for k in outer(log): log.append(k)\n",
    "list": "    log.append([*outer(log)])\n",
    "next": "    log.append(next(outer(log)))\n",
    "kept": "    g = outer(log)\n    log.append(next(g))\n    log.append('kept')\n    del g\n",
    "again": "    g = outer(log)\n    next(g)\n    for k in g: break\n    log.append('left')\n"
    "    log.append(next(g, None))\n    del g\n",
    "closed": "    g = outer(log)\n    log.append(next(g))\n    g.close()\n",
    "error": "    try:\n        for k in outer(log): raise ValueError(k)\n"
    "    except ValueError:\n        log.append('caught')\n",
    "returned": "    def find():\n        for k in outer(log): return k\n    log.append(find())\n",
    "any": "    log.append(any(k == 1 for k in outer(log)))\n",
    "thrown": "    g = outer(log)\n    next(g)\n    try: g.throw(KeyError)\n"
    "    except KeyError: log.append('thrown')\n",
}


class Logged:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, *error):
        self.log.append(str(error[0]))


def function_of(inner, drawing, outer, use, deep):
    text = OUTER[outer].format(DRAWING[drawing].format("middle" if deep else "inner"))
    middle = "def middle(log):\n    yield from inner(log)\n" if deep else ""
    source = (
        f"def inner(log):\n{INNER[inner]}\n{middle}\ndef outer(log):\n{text}\n"
        f"def fn(x):\n    log = []\n{USES[use]}    log.append('after')\n"
        "    return log, (x + len(log)).tolist()\n"
    )
    space = {"Logged": Logged, "itertools": itertools}
    exec(source, space)
    return space["fn"]


COMBINATIONS = list(itertools.product(INNER, DRAWING, OUTER, USES, (False, True)))


@pytest.mark.parametrize("use", USES)
def test_generators_end_as_in_python(use):
    wrong = []
    for case in COMBINATIONS:
        if case[3] == use:
            plain = function_of(*case)(gh.ones(1))
            captured = gh.optimize("eager")(function_of(*case))
            got = [captured(gh.ones(1)) for _ in range(3)]
            if got != [plain] * 3:
                wrong.append((case, plain, got))
    assert wrong == []
