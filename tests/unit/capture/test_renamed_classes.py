"""Errors name the class of an operand; a class that is renamed has its new name in the next one."""

import operator

import pytest

import glasshouse as gh

BINARY = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.matmul, operator.and_, operator.or_, operator.xor, operator.lshift,
    operator.rshift, operator.lt, operator.le, operator.gt, operator.ge, operator.iadd,
    operator.imul, divmod,
)  # fmt: skip
ONE = (
    operator.neg, operator.pos, operator.invert, len, iter, next, abs, int, float, operator.index,
    round, hash, reversed,
)  # fmt: skip
USES = {
    **{f"{fn.__name__}, left": lambda o, fn=fn: fn(o, 1) for fn in BINARY},
    **{f"{fn.__name__}, right": lambda o, fn=fn: fn(1, o) for fn in BINARY},
    **{f"{fn.__name__}, both": lambda o, fn=fn: fn(o, o) for fn in BINARY},
    **{fn.__name__: lambda o, fn=fn: fn(o) for fn in ONE},
    "call": lambda o: o(),
    "attribute": lambda o: o.missing,
    "item": lambda o: o[0],
    "search": lambda o: 1 in o,
    "unpack": lambda o: [*o],
    "with": lambda o: o.__enter__(),
}


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("use", USES)
def test_an_error_has_the_name_that_the_class_has_now(use, answers):
    methods = {"__add__": lambda self, o: NotImplemented} if answers else {}
    kind = type("First", (), {"__hash__": None, **methods})

    def run(x):
        try:
            USES[use](kind())
        except Exception as error:
            return x + 1, str(error)

    captured = gh.optimize("eager")(run)
    for name in ("First", "First", "Second", "Third", "First"):
        kind.__name__ = kind.__qualname__ = name
        assert captured(gh.ones(1))[1] == run(gh.ones(1))[1]
