"""Lists, tuples, dicts, sets, iteration, text."""

import collections
import enum
import itertools

import xp

from . import built, case, case_of, ints, t

Pair = collections.namedtuple("Pair", ["first", "second"])


class Mode(enum.Enum):
    LINEAR = 1
    SQUARE = 2


@case(t(3))
def list_is_built_and_summed(x):
    return sum([x, x + 1, x * 2])


@case(t(3))
def list_append(x):
    results = []
    for i in range(4):
        results.append(x * i)
    return xp.stack(results)


@case([t(3), t(3)])
def list_argument_is_appended_to(xs):
    xs.append(xs[0] + xs[1])
    return xs[-1] * 2


@case([t(3), t(3), t(3)])
def list_argument_is_unpacked(xs):
    a, b, c = xs
    return a * b + c


@case([t(3), t(3), t(3)])
def list_argument_by_index(xs):
    return xs[0] - xs[-1] * xs[1]


@case([t(3), t(3), t(3), t(3)])
def list_slices(xs):
    return sum(xs[1:]) + sum(xs[:2]) - sum(xs[::2]) * xs[::-1][0]


@case([t(3), t(3)])
def list_slice_assignment(xs):
    xs[0:1] = [xs[1] * 2, xs[0] + 1]
    return sum(xs)


@case([t(3), t(3), t(3)])
def list_methods(xs):
    ys = xs.copy()
    ys.reverse()
    ys.insert(1, ys[0] + 1)
    last = ys.pop()
    ys.extend([last * 2])
    return ys[0] + ys[1] * ys[-1]


@case([t(3), t(3), t(3)])
def list_del(xs):
    ys = list(xs)
    del ys[1]
    return ys[0] * ys[1]


@case(t(3))
def list_times_number(x):
    return xp.stack([x] * 3).sum()


@case(t(3))
def list_plus_list(x):
    return sum([x] + [x + 1] + [2])


@case([t(3)])
def list_inplace_add(xs):
    xs += [xs[0] * 3]
    return xs[0] + xs[1]


@case([])
def empty_list_is_false(xs):
    return xp.ones(3) + (1 if not xs else 2)


@case([t(3), t(3)])
def list_is_cleared(xs):
    total = xs[0] + xs[1]
    xs.clear()
    return total * (len(xs) + 1)


@case([t(3), t(3)])
def list_is_reversed(xs):
    out = 0
    for x in reversed(xs):
        out = out * 2 + x
    return out


@case(t(3))
def list_of_numbers_is_sorted(x):
    for n in sorted([3, 1, 2], key=lambda n: -n):
        x = x * n - 1
    return x


@case(t(3))
def list_membership(x):
    return x + 1 if 3 in [1, 2, 3] else x


@case(t(3))
def list_index_and_count(x):
    names = ["a", "b", "b"]
    return x * names.index("b") + names.count("b")


@case(t(3))
def list_comprehension(x):
    return sum([x * n for n in range(4) if n != 2])


@case(t(3))
def nested_comprehension(x):
    return sum([x * a + b for a in range(2) for b in range(3)])


@case(t(3))
def dict_comprehension(x):
    results = {name: x * n for n, name in enumerate("abc")}
    return results["b"] + results["c"]


@case(t(3))
def set_comprehension(x):
    return x * len({n % 3 for n in range(9)})


@case(t(3))
def generator_expression(x):
    return sum(x + n for n in range(3))


@case(t(3))
def tuple_plus_tuple(x):
    return sum((x, x + 1) + (x * 2,))


@case((t(3), t(3)))
def tuple_argument(pair):
    return pair[0] * pair[1]


@case((t(3), (t(3), t(3))))
def nested_tuple_argument(pair):
    a, (b, c) = pair
    return a + b - c


@case(t(3))
def tuple_contains(x):
    return x + 1 if "relu" in ("tanh", "relu") else x


@case(t(3))
def tuple_iadd(x):
    results = (x,)
    results += (x + 1, x + 2)
    return xp.stack(list(results))


@case(t(3))
def tuple_comparison(x):
    return x * 2 if (1, 2) < (1, 3) and x.shape == (3,) else x


@case(t(3))
def named_tuple_made(x):
    pair = Pair(x, second=x + 1)
    return pair.first * pair.second + pair[0]


@built(t(3))
def named_tuple_from_outside():
    pair = Pair(xp.ones(3), 3)

    def fn(x):
        return x * pair.first + pair.second

    return fn


@case(t(3))
def named_tuple_returned(x):
    return Pair(xp.sin(x), xp.cos(x))


@case(t(3))
def named_tuple_replaced(x):
    pair = Pair(x, 2)._replace(second=5)
    return pair.first * pair.second


@case({"a": t(3), "b": t(3)})
def dict_argument(d):
    return d["a"] + d["b"]


@case({"a": t(3), "b": t(3)})
def dict_is_written(d):
    d["c"] = d["a"] * d["b"]
    return d["c"] + 1


@case({"a": t(3), "b": t(3)})
def dict_items(d):
    total = 0
    for key, value in d.items():
        total = total + value * len(key)
    return total


@case({"a": t(3), "b": t(3)})
def dict_values_and_keys(d):
    return sum(d.values()) * len(list(d.keys()))


@case({"a": t(3), "b": t(3)})
def dict_methods(d):
    e = dict(d)
    e.update({"c": e["a"] * 2})
    last = e.pop("b")
    e.setdefault("d", last)
    return e.get("c") + e.get("missing", last) + e["d"]


@case({"a": t(3)})
def dict_del(d):
    d["b"] = d["a"] + 1
    del d["a"]
    return d["b"] * len(d)


@case({"a": t(3), "b": t(3)})
def dict_copy(d):
    e = d.copy()
    e["a"] = e["a"] + 1
    return e["a"] - d["a"] + e["b"]


@case({"a": t(3)}, {"b": t(3)})
def dict_merge(d, e):
    both = {**d, **e, "c": d["a"]}
    more = d | e
    return sum(both.values()) + sum(more.values())


@case({1: t(3), 2: t(3)})
def dict_of_numbers(d):
    return d[1] * 2 if 1 in d and 3 not in d else d[2]


@case(t(3))
def dict_is_returned(x):
    return {"sin": xp.sin(x), "cos": [xp.cos(x), x]}


@built(t(3))
def dict_with_parameter_keys():
    a, b = xp.nn.Parameter(xp.ones(3)), xp.nn.Parameter(xp.zeros(3))
    table = {a: 2, b: 3}

    def fn(x):
        return x * table[a] + table[b]

    return fn


@built(t(3))
def dict_order_is_kept():
    def fn(x):
        d = {"z": x}
        d["a"] = x + 1
        d["m"] = x * 2
        return d

    return fn


@case(t(3))
def default_dict(x):
    results = collections.defaultdict(list)
    results["a"].append(x)
    results["b"].append(x + 1)
    results["a"].append(x * 2)
    return sum(results["a"]) - results["b"][0]


@built(t(3))
def ordered_dict():
    table = collections.OrderedDict([("first", 1.0), ("second", 2.0)])

    def fn(x):
        for name, value in table.items():
            x = x + value if name == "first" else x * value
        return x

    return fn


@case(t(3))
def ordered_dict_made(x):
    table = collections.OrderedDict()
    table["a"] = x
    table["b"] = x + 1
    table.move_to_end("a")
    return xp.stack(list(table.values()))


@case(t(3))
def a_deque(x):
    queue = collections.deque([x, x + 1])
    queue.append(x * 2)
    first = queue.popleft()
    return first + queue[-1] * len(queue)


@case(t(3))
def a_counter(x):
    counts = collections.Counter("banana")
    return x * counts["a"]


@case(t(3))
def set_of_names(x):
    names = {"a", "b"}
    names.add("c")
    return x * len(names | {"d"}) if "c" in names else x


@case(t(3))
def frozenset_contains(x):
    return x + 1 if x.dtype in frozenset([xp.float32, xp.float64]) else x


@case(t(3))
def frozenset_of_functions(x):
    return x + 1 if xp.sin in frozenset([xp.sin, xp.cos]) else x


@case(t(3))
def zips(x):
    total = 0
    for a, n in zip([x, x + 1, x + 2], (3, 4, 5), strict=True):
        total = total + a * n
    return total


@case([t(3), t(3), t(3)])
def enumerates(xs):
    total = 0
    for i, x in enumerate(xs, 1):
        total = total + x * i
    return total


@case(t(3))
def ranges(x):
    for i in range(6, 0, -2):
        x = x * i + len(range(i))
    return x


@case(t(3))
def while_loop_over_numbers(x):
    n = 4
    while n:
        x = x + n
        n -= 1
    return x


@case(t(3))
def loop_with_break_and_else(x):
    for i in range(10):
        if i == 3:
            break
        x = x * 2
    else:
        x = x + 100
    return x


@case(t(3))
def loop_with_continue(x):
    for i in range(6):
        if i % 2:
            continue
        x = x + i
    return x


@case(t(3, 2))
def iterates_over_a_tensor(x):
    total = 0
    for row in x:
        total = total * 2 + row
    return total


@case(t(3, 2))
def enumerates_a_tensor(x):
    total = 0
    for i, row in enumerate(x):
        total = total + row * i
    return total


@case(t(4, 2))
def chunks_are_unpacked(x):
    a, b = xp.chunk(x, 2)
    return a * b


@case([t(3), t(3), t(3)])
def iterator_is_stepped(xs):
    it = iter(xs)
    first = next(it)
    return first * sum(it)


@case([t(3)])
def next_with_default(xs):
    it = iter(xs)
    next(it)
    return xs[0] + next(it, 7)


@case([t(3), t(3), t(3), t(3)])
def chains_and_slices(xs):
    total = 0
    for x in itertools.islice(itertools.chain(xs, xs), 1, 6, 2):
        total = total + x
    return total


@case(t(3))
def product_of_ranges(x):
    for a, b in itertools.product(range(2), [3, 4]):
        x = x + a * b
    return x


@case([t(3), t(3), t(3)])
def accumulates(xs):
    return list(itertools.accumulate(xs))[-1]


@case(t(3))
def repeats_a_value(x):
    return sum(itertools.repeat(x, 3))


@case(t(3))
def combinations_of_numbers(x):
    for a, b in itertools.combinations([1, 2, 3], 2):
        x = x + a * b
    return x


@case(t(3))
def zip_longest(x):
    for a, b in itertools.zip_longest([1, 2, 3], [4], fillvalue=0):
        x = x + a * b
    return x


@case(t(3))
def own_generator(x):
    def parts(y):
        yield y
        yield y + 1
        yield y * 2

    return sum(parts(x))


@case(t(3))
def generator_from_a_generator(x):
    def inner(y):
        yield y
        yield y + 1

    def outer(y):
        yield from inner(y)
        yield y * 3

    total = 0
    for part in outer(x):
        total = total + part
    return total


@case(t(3))
def any_and_all(x):
    if any(n > 2 for n in (1, 2, 3)) and all([True, x is not None]):
        return x + 1
    return x


@case(t(3))
def min_and_max_of_numbers(x):
    return x * max(3, 5, x.shape[0]) - min([4, 2])


@case(t(3))
def min_and_max_with_key(x):
    return x * max([-3, 2], key=abs) - min("bbb", "a", key=len).count("a")


@case(t(1), t(1))
def max_of_tensors(x, y):
    return max(x, y) + 1


@case(t(1), t(1))
def min_of_tensors(x, y):
    return min(x * 2, y) + 1


@case(t(1))
def min_of_tensor_and_number(x):
    return min(x, 0.5) + max(x, 0.25)


@case(t(1), 3)
def max_of_tensor_and_argument(x, n):
    return max(x, n) * 2


@case(t(3))
def lengths_of_containers(x):
    return x * (len([1, 2]) + len({1: 2}) + len((1,)) + len("ab") + len({3}))


@case(t(3, 2))
def length_of_a_tensor(x):
    return x * len(x)


@case(t(3))
def formats_text(x):
    names = {"dim1": x}
    return names[f"dim{x.ndim}"] + 1


@case(t(3))
def formats_with_specification(x):
    text = f"{3.14159:.2f} {7:>4d} {'a'!r}"
    return x * len(text)


@case(t(3))
def text_methods(x):
    name = "layer.0.weight"
    if name.startswith("layer") and name.split(".")[1].isdigit():
        return x * len(name.replace(".", "_").upper())
    return x


@case(t(3))
def text_percent_and_format(x):
    template = "%d-%s"
    return x * len(template % (3, "ab")) + len("{}:{name}".format(1, name="n"))


@case(t(3))
def enum_members(x):
    mode = Mode.SQUARE
    return x**2 if mode is Mode.SQUARE and mode.value == 2 else x


@case_of((t(3), Mode.LINEAR), (t(3), Mode.SQUARE), (t(3), Mode.LINEAR))
def enum_argument(x, mode):
    return x**2 if mode == Mode.SQUARE else x


@case(t(3))
def slice_object(x):
    part = slice(0, 2)
    return x[part] * part.stop


@case(t(4, 4))
def ellipsis_index(x):
    return x[..., 1] + x[1, ...]


@case(t(4, 4))
def none_index(x):
    return x[None, :, 1:3] * x[:, None, :2].sum()


@case(t(4))
def slice_by_numbers(x):
    return x[1:] - x[:-1] + x[slice(None, 3)]


@case(t(4), ints(2))
def index_with_a_tensor(x, i):
    return x[i] * 2


@case(t(4))
def index_with_a_list(x):
    return x[[0, 2]] + 1


@case(t(4, 2))
def setitem_of_a_slice(x):
    y = xp.zeros((4, 2))
    y[1:3] = x[1:3] * 2
    return y + 1


@case(t(4))
def setitem_of_a_number(x):
    y = x.clone()
    y[0] = 5.0
    return y * 2


@case(t(3))
def nested_containers_are_returned(x):
    return [x, (x + 1, {"a": [x * 2]})], {"b": (x, 3, "name", None)}


@case(t(3))
def recursive_map(x):
    def mapped(fn, part):
        if isinstance(part, (list, tuple)):
            return type(part)(mapped(fn, p) for p in part)
        return fn(part)

    return mapped(lambda y: y * 2, [x, (x + 1, [x])])


@case(t(3))
def isinstance_of_containers(x):
    both = [x, (x,)]
    return x + sum(isinstance(part, (list, tuple)) for part in both)


@case(t(3))
def matches_a_list(x):
    match [x, 3]:
        case [first, int(n)]:
            return first * n
    return x


@case(t(3))
def matches_a_dict(x):
    match {"kind": "scale", "by": 4}:
        case {"kind": "scale", "by": by}:
            return x * by
        case _:
            return x


@case(t(3))
def dict_in_a_list_is_changed(x):
    parts = [{"a": x}, {"a": x + 1}]
    for part in parts:
        part["a"] = part["a"] * 2
    return parts[0]["a"] + parts[1]["a"]


@case(t(3))
def map_of_two(x):
    return sum(map(lambda a, n: a * n, [x, x + 1], [2, 3]))


@case(t(3))
def dict_from_pairs_and_keys(x):
    d = dict([("a", 1), ("b", 2)], c=3)
    e = dict.fromkeys(["u", "v"], 4)
    return x * sum(d.values()) + sum(e.values())
