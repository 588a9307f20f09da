"""Builtins over containers whose class says in Python what iteration gives."""

import itertools
import threading
import types
from collections import OrderedDict, defaultdict

import pytest

import glasshouse as gh


class Items:
    def __iter__(self):
        return iter([2, 1])


class OwnList(Items, list):
    pass


class OwnTuple(Items, tuple):
    pass


class OwnDict(Items, dict):
    pass


class OwnText(Items, str):
    pass


class OwnSet(Items, set):
    pass


class OwnFrozenSet(Items, frozenset):
    pass


class OwnKeys(dict):
    """Has keys and items of its own, and iterates as a dict does."""

    def keys(self):
        return [7]

    def __getitem__(self, key):
        return 5


class OwnOrder(OwnKeys, OrderedDict):
    pass


class OwnLength(set):
    def __len__(self):
        return 1

    def __contains__(self, x):
        return True


VALUES = [OwnList([9, 8]), OwnTuple((9, 8)), OwnDict({9: 1}), OwnText("ab")]
VALUES += [OwnSet({9, 8}), OwnFrozenSet({9, 8}), OwnKeys({9: 1}), OwnOrder({9: 1})]
VALUES += [OwnLength({9, 8}), types.MappingProxyType(OwnKeys({9: 1}))]
EXPRESSIONS = """sum(o); sum(o, 1); max(o); min(o); list(o); tuple(o); set(o); frozenset(o)
sorted(o); any(o); all(o); len(o); 2 in o; o == o; next(iter(o)); bytes(o); dict.fromkeys(o); [*o]
(lambda *a: a)(*o); list(zip(o, o)); list(enumerate(o)); list(map(str, o)); list(filter(None, o))
list(reversed(o))
list(itertools.permutations(o)); list(itertools.combinations(o, 1)); list(itertools.product(o, o))
list(itertools.chain(o)); list(itertools.accumulate(o)); set().union(o); {3}.intersection(o)
[].extend(o); merged([], "extend", o); merged(set(), "update", o); {*o}; {0, *o}; (*o,)
{0} | o; {3}.union(o); {1, 9}.difference(o); {1, 9}.symmetric_difference(o); {1, 9}.issubset(o)
{1, 2, 8, 9}.issuperset(o); {9}.isdisjoint(o); {1}.isdisjoint(o); o.copy() == {8, 9}; 9 in o
dict(o); merged({}, "update", o); {**o}; {**{"a": 1}, **o}; OrderedDict(o); {} | o
merged(OrderedDict(), "update", o); defaultdict(int, o); dict(o, a=1); merged({9, 3}, "__ior__", o)
merged({9, 3}, "intersection_update", o); merged({9, 3}, "difference_update", o)"""


def merged(target, method, other):
    getattr(target, method)(other)
    return target


NAMES = {"itertools": itertools, "merged": merged}
NAMES |= {"OrderedDict": OrderedDict, "defaultdict": defaultdict}


@pytest.mark.parametrize("value", VALUES, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("text", [x.strip() for x in EXPRESSIONS.replace("\n", ";").split(";")])
def test_builtins_iterate_as_the_class_says(text, value):
    fn = eval(f"lambda x, o: ({text}, x)", NAMES)
    captured = gh.optimize("eager")(fn)

    def outcome(call):
        try:
            return repr(call(gh.ones(1), value)[0])
        except (TypeError, AttributeError) as error:
            return str(error)

    expected = outcome(fn)
    assert [outcome(captured) for _ in range(3)] == [expected] * 3


def test_what_a_thread_lacks_it_may_have_later():
    local = threading.local()
    captured = gh.optimize("eager")(lambda x: (hasattr(local, "word"), x))
    assert [captured(gh.ones(1))[0] for _ in range(2)] == [False, False]
    local.word = 1
    assert captured(gh.ones(1))[0]
    del local.word
    assert not captured(gh.ones(1))[0]
