"""A module that another kind of object replaces between calls, wherever the function finds it."""

import itertools
import sys
import types

import pytest

import glasshouse as gh


class Stored:
    def __init__(self):
        self.size = 2


class Computed:
    """Its class answers before what its dict has."""

    size = property(lambda self: 3, lambda self, value: None)

    def __init__(self):
        vars(self)["size"] = 4


class Asked:
    def __getattr__(self, name):
        if name == "size":
            return 5
        raise AttributeError(name)


class OfClass:
    size = 6


def new_module():
    module = types.ModuleType("replaced")
    module.size = 1
    return module


KINDS = {
    "module": new_module,
    "stored": Stored,
    "namespace": lambda: types.SimpleNamespace(size=7),
    "computed": Computed,
    "asked": Asked,
    "of the class": OfClass,
    "class": lambda: OfClass,
}
held = types.SimpleNamespace()
table = {}


def put_everywhere(thing):
    """Put a thing where the functions look."""
    global target
    target = held.target = table["target"] = sys.modules["replaced"] = thing


READS = {
    "global": lambda: target.size,
    "attribute": lambda: held.target.size,
    "item": lambda: table["target"].size,
    "sys.modules": lambda: sys.modules["replaced"].size,
    "getattr": lambda: getattr(target, "size", 0),
    "hasattr": lambda: hasattr(target, "size"),
}


def add_and_read():
    if not isinstance(target, type):
        held.target.size += 1
    return table["target"].size


READS["written before"] = add_and_read


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(KINDS, 2)))
def test_each_object_is_read_as_python_reads_it(first, second, read, monkeypatch):
    monkeypatch.setitem(sys.modules, "replaced", None)

    def run(x):
        return x + 1, READS[read]()

    captured, order = gh.optimize("eager")(run), (first, second, second, first)
    results = []
    for fn in (run, captured):
        objects = {name: KINDS[name]() for name in order}
        results.append([])
        for name in order:
            put_everywhere(objects[name])
            results[-1].append(fn(gh.ones(1))[1])
    assert results[0] == results[1]
