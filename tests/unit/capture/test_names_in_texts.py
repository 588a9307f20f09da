"""Texts have the names that classes and functions have now: programs may change them."""

import enum
import functools
import re

import pytest

import glasshouse as gh

ADDRESS = re.compile("0x[0-9a-f]+")
TEXTS = (  # of a class, a class of a metaclass, a function, an enumeration, an error
    "f'{A}'",
    "f'{A!r}'",
    "f'{A:}'",
    "str(A)",
    "repr(A)",
    "ascii(A)",
    "format(A)",
    "'%s' % A",
    "'%r' % (A,)",
    "'{}'.format(A)",
    "'{x}'.format(x=A)",
    "'a' + str(A)",
    "hash(str(A))",
    "f'{A.itself()}'",
    "str([A])",
    "str((A, B))",
    "str({'a': [A]})",
    "repr({A: 1})",
    "repr({A})",
    "str(list[A])",
    "str(A | int)",
    "str(type(A()))",
    "list(map(str, [A]))",
    "','.join(map(repr, (A, B)))",
    "A.__name__, A.__qualname__, A.__module__",
    "type(A()).__qualname__",
    "A.method.__qualname__",
    "repr(A.method)",
    "str(B)",
    "repr(function)",
    "repr([A, function])",
    "function.__qualname__, f'{function.__name__}'",
    "repr(functools.partial(function))",
    "str(Kind.X), repr(Kind.X), str(Kind)",
    "repr(Failure('x')), str(Failure)",
)
CHANGES = [
    f"{what}.{name} = 'other'"
    for what in ("A", "B", "A.method", "function", "Kind", "Failure")
    for name in ("__name__", "__qualname__", "__module__")
]


def make_world() -> dict:
    class A:
        itself = classmethod(lambda cls: cls)

        def method(self):
            pass

    class B(metaclass=type("Meta", (type,), {})):
        pass

    def function():
        pass

    kinds = {"Kind": enum.Enum("Kind", "X"), "Failure": type("Failure", (Exception,), {})}
    return {"A": A, "B": B, "function": function, "functools": functools} | kinds


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_names_of_now(text):
    for change in CHANGES:
        names = make_world()
        exec(f"def fn(): return {text}", names)
        captured = gh.optimize("eager")(names["fn"])
        for step in ("", change):
            exec(step, names)
            expected, got = (ADDRESS.sub("", repr(fn())) for fn in (names["fn"], captured))
            assert got == expected, change
