"""One object reached in two ways in one call: what is written through the first is read through the
second, whatever the object held before the call."""

import itertools
import operator
import types

import pytest

import glasshouse as gh


class Thing:
    """A plain object; as an attribute of a class, a descriptor that gives itself."""

    def __get__(self, owner, kind=None):
        return self


thing = Thing()
listed, table, names = [thing], {"thing": thing}, types.SimpleNamespace(thing=thing)
view = types.MappingProxyType(table)


class Holder:
    held = thing


WAYS = {
    "global": lambda: thing,
    "list": lambda: listed[0],
    "dict": lambda: table["thing"],
    "namespace": lambda: names.thing,
    "read-only view": lambda: view["thing"],
    "get of a view": lambda: view.get("thing"),
    "attribute of a class": lambda: Holder.held,
    "attribute of an object": lambda: Holder().held,
    "namespace of a class": lambda: Holder.__dict__["held"],
    "vars of a class": lambda: vars(Holder)["held"],
    "getter of items": lambda: operator.itemgetter("held")(Holder.__dict__),
    "getter of attributes": lambda: operator.attrgetter("held")(Holder),
    "values": lambda: next(x for x in Holder.__dict__.values() if x is thing),
}


def make(written, read):
    def run(x):
        written().value = 4
        first = read().value
        read().value = 5
        return x + 1, first, written().value, written() is read()

    return run


@pytest.mark.parametrize(("written", "read"), list(itertools.permutations(WAYS, 2)))
def test_what_is_written_is_read(written, read):
    run = make(WAYS[written], WAYS[read])
    captured = gh.optimize("eager")(run)
    vars(thing).clear()
    for before in (None, 6, 8, 9):
        if before is not None:
            thing.value = before
        assert captured(gh.ones(1))[1:] == (4, 5, True)
        assert thing.value == 5
