"""Captured functions as Python: containers, their methods and what happens to arguments."""
# ruff: noqa: C408

import collections
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import pytest
from checking import MODES, Cases, check

import glasshouse as gh

case = Cases()
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))
Point = namedtuple("Point", "x y")
Sized = namedtuple("Sized", "data size", defaults=[3])


class Pair(NamedTuple):
    first: object
    second: int = 4

    def total(self):
        return self.first + self.second


class Stack(list):
    def push(self, v):
        self.append(v)
        return self

    @property
    def top(self):
        return self[-1]


class OwnItems(tuple):
    def __getitem__(self, key):
        return f"{key}!"


class Tagged(dict):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.tag = "t"

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Defaulting(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


# -- lists -----------------------------------------------------------------------------------------


@case(X, [1, 2], whole=True, modes=MODES)
def list_append(x, items):
    items.append(x + 1)
    items.append(3)
    return len(items)


@case(X, [1, 2], whole=True)
def list_extend(x, items):
    items.extend([x, 3])
    items.extend(range(2))
    items.extend(i * 2 for i in range(2))
    items += (7,)
    return items


@case(X, [1, 2, 3], whole=True)
def list_insert_pop(x, items):
    items.insert(0, x)
    items.insert(-1, 9)
    a = items.pop()
    b = items.pop(1)
    return a, b, items


@case(X, [])
def list_pop_empty(x, items):
    return x + items.pop()


@case(X, [3, 1, 2], whole=True)
def list_sort(x, items):
    items.sort()
    copied = items[:]
    items.sort(reverse=True)
    items.sort(key=lambda v: -v)
    return x + items[0], copied


@case(X, [3, "a"])
def list_sort_fails(x, items):
    items.sort()
    return x


@case(X, [3, 1, 2], whole=True)
def list_reverse_copy(x, items):
    other = items.copy()
    items.reverse()
    return other, other is items, x * 2


@case(X, [3, 1, 3], whole=True)
def list_find(x, items):
    return items.index(1), items.count(3), 3 in items, 7 not in items, x


@case(X, [3, 1, 3])
def list_index_fails(x, items):
    return items.index(8)


@case(X, [3, 1, 3], whole=True)
def list_remove(x, items):
    items.remove(3)
    return x, items


@case(X, [3, 1])
def list_remove_fails(x, items):
    items.append(x)
    items.remove(9)


@case(X, [3, 1], whole=True)
def list_clear(x, items):
    items.clear()
    return x if not items else None


@case(X, [3, 1, 2, 5], whole=True)
def list_delete(x, items):
    del items[0], items[-1]
    return x + len(items)


@case(X, [0, 1, 2, 3, 4, 5], whole=True)
def list_slices(x, items):
    return items[1:], items[:-1], items[::2], items[::-1], items[4:1:-2], items[10:], x[0:1, ::2]


@case(X, [0, 1, 2, 3, 4, 5], whole=True)
def list_slice_assign(x, items):
    items[1:3] = [x, x, x]
    items[::4] = "ab"
    del items[-2:]
    return items


@case(X, [0, 1, 2, 3])
def list_slice_assign_fails(x, items):
    items[::2] = [1, 2, 3]


@case(X, [1])
def list_index_out_of_range(x, items):
    items.append(2)
    return items[5]


@case(X, [1])
def list_assign_out_of_range(x, items):
    items[3] = x


@case([1, X])
def list_contains_asks_tensor(items):
    return 7 in items


@case([X, 1], X)
def list_contains_finds_tensor(items, x):
    return items[0] in items, items.index(items[0])


@case(X, [1])
def list_bad_index(x, items):
    return items["a"]


@case(X, [1, 2], whole=True)
def list_arithmetic(x, items):
    return items + [x], items * 2, 2 * items, [0] * 3, [x] * 2


@case(X, [1, 2], whole=True)
def list_in_place_arithmetic(x, items):
    other = items
    items += [x]
    items *= 2
    return other is items, other


@case(X, [1, 2])
def list_add_tuple(x, items):
    return items + (1,)


@case(X, [1, 2], whole=True)
def list_compare(x, items):
    return items == [1, 2], items < [1, 3], items != [1], [] == [], [1] >= [], x


@case(X, [1, 2], [1, 2], whole=True)
def list_identity(x, a, b):
    return a is b, a == b, a is a, x + 1


SHARED = [1]


@case(X, SHARED, whole=True)
def list_twice_in_result(x, items):
    return [items, items, [items]], x


@case([X], whole=True)
def list_holds_itself(items):
    items.append(items)
    return items


@case(X, [[1], [2]], whole=True)
def nested_list_write(x, items):
    items[0][0] = x
    items[1].append(items[0])
    return items[1][1][0] is x


@case(X, [1, 2], whole=True)
def list_truth(x, items):
    a = x if items else -x
    items.clear()
    return a, x if items else -x, not items


@case(X, whole=True)
def list_of_rows(x):
    rows = [None] * 2
    for i in range(2):
        rows[i] = x[i] * i
    return gh.stack(rows)


@case(X, [5, 6, 7], whole=True)
def list_index_update(x, items):
    items[1] += 10
    items[-1] *= 2
    return x + items[1]


@case(X, Stack([1, 2]), whole=True)
def list_subclass(x, stack):
    stack.push(x).push(4)
    return stack.top, stack[0], len(stack), isinstance(stack, list)


@case(X, whole=True)
def list_subclass_made(x):
    s = Stack([x])
    s.push(3)
    return s


# -- tuples ----------------------------------------------------------------------------------------


@case((X, 2, 3), whole=True)
def tuple_ops(t):
    return t[0] + t[-1], t[1:], t + (4,), t * 2, len(t), (1, 2).count(2)


@case(X, (1, 2, 1), whole=True)
def tuple_methods(x, t):
    return t.index(2), t.count(1), 2 in t, hash(t) == hash((1, 2, 1)), x


@case(X, (1, 2))
def tuple_assign_fails(x, t):
    t[0] = x


@case((X, Y), whole=True)
def tuple_returned(t):
    return t, t[:1], (*t,)


@case(X, ([1], 2))
def tuple_in_place_list(x, t):
    t[0] += [2]


@case(X, (1, 2), whole=True)
def tuple_in_place(x, t):
    u = t
    t += (3,)
    return t, u, x


@case(X, (3, "a"), (3, "b"), whole=True)
def tuple_compare(x, a, b):
    return a < b, a == b, a != b, max(a, b), x


@case(Point(X, 2), whole=True, modes=MODES)
def named_tuple(p):
    a, b = p
    return p.x * p.y, a + b, p[0], p._fields, len(p)


@case(X, whole=True)
def named_tuple_made(x):
    p = Point(x, y=3)
    return p, Sized(x), Sized(data=1, size=x), p._replace(y=4), p._asdict(), isinstance(p, tuple)


@case(X, whole=True, sets=[(X,), (X + 1,), (X * 2,)])
def named_tuple_of_results(x):
    p = Point(x + 1, x * 2)
    return p.x * p.y + p[0]


@case(X)
def named_tuple_made_wrongly(x):
    return Point(x)


@case(Pair(X), whole=True)
def typed_named_tuple(p):
    return p.total(), p.second, Pair(p.first, second=7).total(), Pair(1)


@case(Point(X, 2))
def named_tuple_assign(p):
    p.x = 3


@case(X)
def named_tuple_class_inside(x):
    Local = namedtuple("Local", "a b")
    v = Local(x, 2)
    return v.a + v.b


# -- dicts -----------------------------------------------------------------------------------------


@case(X, {"a": 1, "b": 2}, whole=True, modes=MODES)
def dict_read(x, d):
    return x * d["a"] + d.get("b"), d.get("c"), d.get("c", x), "a" in d, len(d), "z" not in d


@case(X, {"a": 1}, whole=True)
def dict_write(x, d):
    d["b"] = x + 1
    d["a"] = 5
    d[3] = d
    return list(d)


@case(X, {"a": 1})
def dict_missing(x, d):
    d["c"] = x
    return d["b"]


@case(X, {"a": 1, "b": 2, "c": 3}, whole=True)
def dict_delete(x, d):
    del d["a"]
    p = d.pop("b")
    q = d.pop("zz", x)
    return p, q, d


@case(X, {"a": 1})
def dict_delete_missing(x, d):
    del d["b"]


@case(X, {"a": 1})
def dict_pop_missing(x, d):
    return d.pop("b")


@case(X, {"a": 1, "b": 2}, whole=True)
def dict_views(x, d):
    return list(d.keys()), list(d.values()), list(d.items()), [x * v for k, v in d.items()]


@case(X, {"a": 1, "b": 2}, whole=True)
def dict_view_follows(x, d):
    keys, values = d.keys(), d.values()
    d["c"] = x
    return list(keys), len(values), "c" in keys


@case(X, {"a": 1, "b": 2}, whole=True)
def returns_views(x, d):
    return d.keys(), d.items(), x + 1


@case(X, {"a": 1, "b": 2}, {"b": 1}, whole=True)
def dict_view_sets(x, d, e):
    return sorted(d.keys() & e.keys()), d.keys() - {"a"}, d.keys() == {"a", "b"}, x


@case(X, {"a": 1}, {"b": 2}, whole=True)
def dict_update(x, d, e):
    d.update(e, c=x)
    d.update([("z", 1)])
    d |= {"y": 2}
    return d | e, {**d, **e}


@case(X, {}, whole=True)
def dict_setdefault(x, d):
    d.setdefault("a", []).append(x)
    d.setdefault("a", []).append(1)
    return d.setdefault("n"), len(d["a"])


@case(X, {"a": 1, "b": X}, whole=True)
def dict_popitem_clear(x, d):
    k, v = d.popitem()
    d.clear()
    return k, v, bool(d)


@case(X, {})
def dict_popitem_empty(x, d):
    return d.popitem()


@case(X, {"b": 1, "a": 2}, whole=True)
def dict_order(x, d):
    d["c"] = 3
    v = d.pop("b")
    d["b"] = v
    return list(d), sorted(d), list(reversed(d)), x


@case(X, {"a": 1}, whole=True)
def dict_copy(x, d):
    e, f, g = d.copy(), dict(d), {**d}
    e["b"] = x
    return e, f, g, d


@case(X, {(1, "a"): 2, None: 3, 1.5: 4, True: 5, gh.float32: 6}, whole=True)
def dict_keys_of_kinds(x, d):
    return x * d[1, "a"] + d[None], d[1.5], d[1], d[gh.float32]


@case(X, whole=True)
def dict_key_by_equality(x):
    d = {1: "int", "a": x}
    d[1.0] = "float"
    d[True] = "bool"
    return d


@case(X)
def dict_unhashable_key(x):
    return {[1]: x}


@case(X, whole=True)
def dict_from_keys(x):
    return dict.fromkeys("ab"), dict.fromkeys([1, 2], x), dict(zip("ab", [x, 1]))


@case(X, {"a": {"b": [1]}}, whole=True)
def dict_nested_write(x, d):
    d["a"]["b"].append(x)
    d["a"]["c"] = d["a"]["b"]
    return d["a"]["c"] is d["a"]["b"]


@case(X, {"a": 1, "b": 2}, whole=True)
def dict_compare(x, d):
    return d == {"b": 2, "a": 1}, d != {}, not d, x


@case(X, {"a": 1, "b": 2}, whole=True)
def dict_iterate_and_write(x, d):
    for k in d:
        d[k] = x * d[k]
    for k in list(d):
        d.pop(k)
    return d


@case({"k": X}, whole=True)
def dict_of_tensors(d):
    d["k"] = d["k"] + 1
    d["k"] = d["k"] * 2
    return d["k"]


@case(X, hit=False)
def tensor_as_key(x):
    y = x + 1
    d = {x: "x", y: "y"}
    return d[x], d[y], x in d


@case(X, OrderedDict(a=1, b=2, c=3), whole=True)
def ordered_dict(x, d):
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    first = d.popitem(last=False)
    d["z"] = x
    return list(d), first, d


@case(X, whole=True)
def ordered_dict_made(x):
    d = OrderedDict([("a", x), ("b", 1)])
    d["c"] = 2
    return d, OrderedDict(), OrderedDict(a=1) == {"a": 1}


@case(X, defaultdict(list, {"a": [1]}), whole=True)
def default_dict(x, d):
    d["a"].append(2)
    d["b"].append(x)
    return d.get("zz"), "zz" in d, len(d)


@case(X, whole=True)
def default_dict_made(x):
    d = defaultdict(lambda: x + 1)
    n = defaultdict(int)
    for c in "abca":
        n[c] += 1
    return d["q"], n, list(d)


@case(X, defaultdict(None, a=1))
def default_dict_without_factory(x, d):
    return d["b"]


@case(X, Tagged(a=1), whole=True)
def dict_subclass(x, d):
    d["b"] = x
    return d.a, d.tag, d["a"], d.b, isinstance(d, dict)


@case(X, Tagged(a=1))
def dict_subclass_attribute_missing(x, d):
    return d.nothing


@case(X, whole=True)
def dict_subclass_made(x):
    d = Tagged({"k": x}, m=2)
    d.tag = "changed"
    return d


@case(X, Defaulting(a=5), whole=True)
def dict_with_missing(x, d):
    return d["a"], d["b"], d["b"], x, d


@case(X)
def counters_and_chains(x):
    c = Counter("abca")
    c.update("b")
    m = ChainMap({"a": 1}, {"b": 2})
    return c.most_common(1), c["zz"], m["b"], x + 1


# -- sets ------------------------------------------------------------------------------------------


@case(X, {1, 2}, whole=True, modes=MODES)
def set_methods(x, s):
    s.add(3)
    s.discard(1)
    s.discard(10)
    s.update([7, 8], {9})
    s.remove(8)
    return x * len(s), 3 in s


@case(X, {1, 2})
def set_remove_missing(x, s):
    s.add(3)
    s.remove(5)


@case(X, {1, 2}, {2, 3}, whole=True)
def set_operators(x, a, b):
    return a | b, a & b, a - b, a ^ b, a <= b, a < {1, 2, 3}, a == {2, 1}, a.isdisjoint(b), x


@case(X, {1, 2}, [2, 3], whole=True)
def set_named_operations(x, a, b):
    return a.union(b), a.intersection(b), a.difference(b), a.symmetric_difference(b), a.copy(), x


@case(X, {1, 2}, {2, 3}, whole=True)
def set_in_place(x, a, b):
    c = a
    a |= b
    a -= {1}
    a ^= {9}
    a &= {2, 3, 9}
    return c is a, x


@case(X, {5}, whole=True)
def set_pop_clear(x, s):
    v = s.pop()
    s.add(1)
    s.clear()
    return v, s, x


@case(X, [1, 2, 2], whole=True)
def frozen_sets(x, items):
    f = frozenset(items)
    return f | {3}, 2 in f, len(f), {f: 1}[frozenset({1, 2})], x


@case(X)
def set_of_unhashable(x):
    return {1, [2]}


@case(X, {"a", "b"}, whole=True)
def set_iterated(x, s):
    return sum(x for _ in s), sorted(s), {c.upper() for c in s}


@case(X, {1}, hit=False)
def set_grows_while_iterated(x, s):
    for i in s:
        s.add(i + 1)


@case(X, hit=False)
def set_of_tensors(x):
    y = x + 1
    s = {x, y, x}
    return len(s), x in s, y in s


# -- deques and others -----------------------------------------------------------------------------


@case(X, deque([1, 2, 3]))
def deque_methods(x, d):
    d.append(x)
    d.appendleft(0)
    a = d.pop()
    b = d.popleft()
    d.extend([7, 8])
    d.rotate(1)
    return a, b, d[0], len(d), list(d)


@case(X)
def deque_with_limit(x):
    d = deque(maxlen=2)
    for i in range(4):
        d.append(x + i)
    return d, d.maxlen


@case(X, deque([]))
def deque_pop_empty(x, d):
    return d.popleft()


@case(X, slice(1, 3), whole=True)
def slice_objects(x, s):
    t = slice(None, 2)
    return x[:, s], [1, 2, 3, 4][s], s.start, s.indices(2), t == slice(None, 2, None), "abc"[t]


@case(X, [1, 2, 3], 1, whole=True)
def computed_slices(x, items, n):
    return items[n : n + 1], items[-n:], x[:n], items[: len(items) - n]


@case(X, bytearray(b"ab"))
def byte_arrays(x, b):
    b.append(3)
    b[0] = 9
    return bytes(b), x


@case(X, whole=True)
def containers_of_containers(x):
    a = {"k": [(1, {"z": x})], "m": {2: {3}}}
    a["k"][0][1]["w"] = a["m"]
    return a


@case(X, [1], whole=True)
def augmented_chain(x, items):
    d = {"a": items}
    d["a"] += [2]
    d["a"][0] -= 5
    return d["a"] is items, x


@case([X, [Y, 1]], whole=True)
def inlined_mutation(items):
    def grow(t):
        t[1].append(t[0] + 1)
        t[0] = None
        return t

    return grow(items) is items


@case(X, [3, 4], {"a": [5]}, calls=4, again=True, hit=False)
def state_goes_on(x, items, d):
    items.append(len(items))
    d["a"][0] += items[-1]
    d[len(items)] = x * len(items)
    return items[-1], d


@case(X, whole=True)
def empty_containers(x):
    return [], {}, (), set(), frozenset(), "", list(), dict(), tuple(), x


@case(X, [X, X], whole=True)
def alias_in_argument(x, items):
    items[0] = items[0] + 1
    return items[0] is items[1], items


@case(X, whole=True)
def mapping_of_methods(x):
    table = {"cos": gh.cos, "neg": lambda v: -v, "sum": gh.Tensor.sum}
    return [table[k](x) for k in sorted(table)]


@case(X, whole=True)
def abstract_bases(x):
    abc = collections.abc
    return (
        isinstance([], abc.Sequence),
        isinstance({}, abc.Mapping),
        isinstance(x, abc.Hashable),
        isinstance((), abc.Iterable),
        isinstance(3, abc.Callable),
        x + 1,
    )


@case(X, [1, [2, [3]]], whole=True)
def deep_path(x, t):
    t[1][1][0] += 4
    t[1][1].append(x)
    return t[1][1][0]


@case(X, {"a": 1}, whole=True)
def get_with_call_default(x, d):
    return d.get("a", len("abc")), d.get("b", len("abc")), x


@case(X, [1, 2, 3], whole=True)
def remove_while_iterating(x, items):
    for i in items:
        if i == 1:
            items.remove(i)
    return items, x


@case(X, [[0] * 2] * 2, whole=True)
def aliased_rows(x, rows):
    rows[0][0] = 5
    return rows[1][0], rows[0] is rows[1], x


@case(X)
def tuple_with_items_of_its_own(x):
    return next(iter(OwnItems((1, 2)))), list(OwnItems((3, 4))), OwnItems((5,))[0], x


@case(X, whole=True)
def an_ordered_dict_with_attributes(x):
    instance = OrderedDict(a=1)
    instance.note, instance.about = "n", OrderedDict()
    instance.about["version"] = 2
    had = getattr(instance, "nothing", 5), hasattr(instance, "note"), instance.about["version"]
    del instance.note
    again = OrderedDict(instance)
    return (
        x + 1,
        instance,
        instance.__dict__,
        had,
        hasattr(again, "about"),
        hasattr(instance, "note"),
    )


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_containers(fn, args, options):
    check(fn, *args, **options)
