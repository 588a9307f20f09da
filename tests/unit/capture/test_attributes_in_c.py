"""Attributes that C keeps: what they become when they are set, and when they are deleted."""

import re

import pytest

import glasshouse as gh

OBJECTS = {  # how an object is made, and its attributes
    "def g(): 0": "doc__ module__ name__ qualname__ defaults__ kwdefaults__ annotations__ dict__",
    "g = StopIteration(3)": "value args cause__ context__ traceback__ suppress_context__ notes__",
    "g = ImportError('a', name='n', path='p')": "name path msg",
    "g = OSError(1, 'b', 'f')": "errno strerror filename filename2",
    "g = SyntaxError('m', ('f', 1, 2, 't'))": "msg filename lineno offset text print_file_and_line",
    "g = AttributeError('x', name='q', obj=3)": "name obj",
    "g = SystemExit(3)": "code",
    "g = UnicodeDecodeError('utf8', b'a', 0, 1, 'r')": "encoding object start end reason",
    "class K: pass\ng = K()\ng.x = 1": "x dict__ class__ weakref__",
    "class K: __slots__ = ('x', 'args')\ng = K()\ng.x = 1": "x args slots__",
    "class K(Exception): __slots__ = ('x', 'y')\ng = K(2)\ng.x = 1": "x y args z",
    "class K: 'd'\ng = K": "doc__ name__ module__ qualname__ dict__ annotations__",
}
USES = (
    "del g.A\nr = repr(g.A)",
    "g.A = 's'\nr = repr(g.A)",
    "g.A = None\nr = repr(g.A)",
    "g.A = True\nr = repr(g.A)",
    "g.A = ['s', 1]\nr = repr(g.A)",
    "g.A = 's'\ndel g.A\nr = repr(g.A)",
    "g.A = ()\nr = hasattr(g, 'A'), getattr(g, 'A', 5)",
)


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def outcome(fn) -> str:
    try:
        text = str(fn())
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return re.sub("0x[0-9a-f]+", "", text)


@pytest.mark.parametrize("is_new", [True, False], ids=["made inside", "a global"])
@pytest.mark.parametrize("make", OBJECTS)
def test_attributes_are_what_c_makes_of_them(make, is_new):
    for short in OBJECTS[make].split():
        name = f"__{short}" if short.endswith("__") else short
        for use in USES:
            names: dict = {}
            body = indented((f"{make}\n" if is_new else "") + re.sub(r"\bA\b", name, use))
            exec(f"def make_object():\n{indented(make)}\n    return g", names)
            exec(f"def fn():\n{body}\n    return r", names)
            captured = gh.optimize("eager")(names["fn"])
            for _ in range(2):
                names["g"] = names["make_object"]()
                expected = outcome(names["fn"])
                names["g"] = names["make_object"]()
                assert outcome(captured) == expected, use
