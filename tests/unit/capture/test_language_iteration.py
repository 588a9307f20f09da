"""Captured functions as Python: comprehensions, generators, iterators, builtins over them."""
# ruff: noqa: B007, C406, C409, C416, C417, PIE804, UP028

import functools
import itertools

import pytest
from checking import MODES, Cases, Make, check

import glasshouse as gh

case = Cases()
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))


# -- comprehensions --------------------------------------------------------------------------------


@case(X, whole=True, modes=MODES)
def list_comprehension(x):
    return [x + i for i in range(4)]


@case(X, [3, 1, 2], whole=True)
def condition_in_comprehension(x, items):
    return [x * i for i in items if i > 1 if i != 3]


@case(X, {"a": 1, "b": 2}, whole=True)
def dict_comprehension(x, d):
    return {k.upper(): x + v for k, v in d.items() if v}


@case(X, [1, 2, 1], whole=True)
def set_comprehension(x, items):
    return {i % 2 for i in items}, x


@case(X, whole=True)
def two_loops(x):
    return [(a, b) for a in range(3) for b in range(a)], x + 1


@case([X, Y], whole=True)
def nested_comprehension(xs):
    return [[x[i] for x in xs] for i in range(2)]


@case(X, whole=True)
def comprehension_keeps_name(x):
    i = 10
    a = [i for i in range(3)]
    return x + i, a


@case(X, whole=True)
def comprehension_over_tensor(x):
    return [row.sum() for row in x]


@case(X, whole=True)
def walrus_in_comprehension(x):
    a = [y := i * 2 for i in range(3)]
    return x + y, a


@case(X, whole=True)
def conditional_in_comprehension(x):
    return [x if i % 2 else -x for i in range(3)]


@case(X, [(1, 2), (3, 4)], whole=True)
def unpack_in_comprehension(x, pairs):
    return [x * a + b for a, b in pairs], [c for c, *_ in pairs]


@case(X, [[1], [2, 3], []], whole=True)
def flatten_lists(x, lists):
    return x, [a for b in lists for a in b]


@case(X)
def error_in_comprehension(x):
    return [x / (1 // i) for i in (1, 0)]


@case(X, whole=True)
def comprehension_with_method(x):
    return [x.sum(d) for d in range(x.ndim)]


# -- generators ------------------------------------------------------------------------------------


def numbers(n, x=1):
    for i in range(n):
        yield x * i


def delegated(n, x):
    yield -1
    got = yield from numbers(n, x)
    yield got
    return "end"


def averaging(x):
    total, n = x, 0
    while True:
        got = yield total
        if got is None:
            return total, n
        total, n = total + got, n + 1


def careful(log):
    try:
        yield 1
        yield 2
    except ValueError as error:
        log.append(str(error))
        yield 3
    finally:
        log.append("closed")


@case(X, whole=True, modes=MODES)
def list_of_generator(x):
    return list(numbers(4, x))


@case(X, whole=True)
def for_over_generator(x):
    for y in numbers(4, x):
        x = x + y
    return x


@case(X, whole=True)
def generator_left_early(x):
    for y in numbers(10, x):
        if y is not x and y.shape[0] == 2:
            break
    return y


@case(X, whole=True)
def yields_from(x):
    return list(delegated(3, x))


@case(X, whole=True)
def result_of_generator(x):
    def outer():
        result = yield from delegated(2, x)
        yield result

    return [*outer()]


@case(X, whole=True)
def generator_expression(x):
    return sum(x * i for i in range(4)), tuple(i for i in range(3) if i)


@case(X, whole=True)
def next_of_generator(x):
    g = numbers(3, x)
    return next(g), next(g), next(g), next(g, "none"), next(g, None)


@case(X)
def next_of_ended(x):
    g = numbers(1, x)
    next(g)
    return next(g)


@case(X, whole=True)
def send_to_generator(x):
    g = averaging(x)
    next(g)
    g.send(1)
    return g.send(x)


@case(X, whole=True)
def value_of_stop(x):
    g = averaging(x)
    next(g)
    g.send(2)
    try:
        next(g)
    except StopIteration as stop:
        return stop.value


@case(X, whole=True)
def throw_into_generator(x):
    log = []
    g = careful(log)
    a = next(g)
    b = g.throw(ValueError("thrown"))
    g.close()
    return x + a + b, log


@case(X, whole=True)
def close_generator(x):
    log = []
    g = careful(log)
    next(g)
    g.close()
    return x, log, list(g)


@case(X)
def error_in_generator(x):
    def g():
        yield x
        raise KeyError("inside")

    return [*g()]


@case(X)
def stop_inside_generator(x):
    def g():
        yield x
        raise StopIteration(3)

    return [*g()]


@case(X, whole=True)
def interleaved_generators(x):
    a, b = numbers(5, x), numbers(5)
    return [next(a), next(b), next(b), next(a) + next(b)]


@case(X, whole=True)
def generator_with_closure(x):
    log = []

    def g():
        for i in range(3):
            log.append(i)
            yield x + i

    it = g()
    first = next(it)
    before = list(log)
    rest = list(it)
    return first, before, rest, log


@case(X, whole=True)
def generator_is_lazy(x):
    log = []

    def g():
        log.append("started")
        yield x

    it = g()
    log.append("made")
    return next(it), log


@case(X)
def returns_generator(x):
    return (x + i for i in range(3))


@case(X)
def returns_started_generator(x):
    g = numbers(4, x)
    next(g)
    return g


@case(X, factory=True, hit=False)
def captured_generator():
    return numbers_of


def numbers_of(x):
    for i in range(3):
        x = x + i
        yield x


@case(Make(numbers, 3, X), hit=False)
def generator_argument(g):
    return [y + 1 for y in g]


@case(Make(numbers, 4), X, hit=False)
def generator_argument_partly(g, x):
    return x + next(g) + next(g)


@case(X, whole=True)
def generator_recursion(x):
    def walk(tree):
        for t in tree:
            if isinstance(t, list):
                yield from walk(t)
            else:
                yield t * x

    return list(walk([1, [2, [3]], 4]))


@case(X, whole=True)
def generator_pipeline(x):
    a = (i for i in range(6))
    b = (i * i for i in a if i % 2)
    return [x + i for i in b]


@case(X, whole=True)
def unpack_generator(x):
    a, b, *c = numbers(5, x)
    return a, b, c


@case(X, whole=True)
def star_generator(x):
    return max(*numbers(4)), [*numbers(2, x)], {*numbers(3)}


@case(X, whole=True)
def generator_in_class(x):
    class Tree:
        def __init__(self, *kids):
            self.kids = kids

        def __iter__(self):
            for k in self.kids:
                yield k

    return [x + k for k in Tree(1, 2, 3)]


@case(X, whole=True)
def contains_in_generator(x):
    g = numbers(5)
    return x, 2 in g, list(g)


# -- iterators -------------------------------------------------------------------------------------


@case(X, [1, 2, 3, 4], whole=True)
def iterator_of_list(x, items):
    it = iter(items)
    a = next(it)
    return x + a, [i for i in it], next(it, "end")


@case(X, [1, 2, 3, 4], whole=True)
def pairs_by_one_iterator(x, items):
    it = iter(items)
    return [x * a + b for a, b in zip(it, it)]


@case(Make(iter, [1, 2, 3]), X, hit=False)
def iterator_argument(it, x):
    a = next(it)
    return x + a


@case(Make(lambda: zip([1, 2], [X, Y])), hit=False)
def zip_argument(z):
    return [a * b for a, b in z]


@case(X, [1, 2], whole=True)
def returns_iterator(x, items):
    it = iter(items)
    next(it)
    return it, x + 1


@case(X, [1, 2, 3], whole=True)
def returns_lazy_builtins(x, items):
    return enumerate(items), zip(items, items), reversed(items), x + 1


@case(X, [1, 2, 3])
def returns_map(x, items):
    return map(lambda v: x + v, items), filter(None, items)


@case(X, [1, 2, 3], whole=True)
def list_grows_while_iterated(x, items):
    for i in items:
        if len(items) < 6:
            items.append(i * 2)
        x = x + i
    return x


@case(X, {"a": 1}, hit=False)
def dict_grows_while_iterated(x, d):
    for k in d:
        d[k + k] = 1
    return x


@case(X, [5, 6], whole=True)
def iter_with_sentinel(x, items):
    return [x + v for v in iter(items.pop, 5)]


@case(X, [5, 6, 7], whole=True)
def iter_is_itself(x, items):
    it = iter(items)
    return iter(it) is it, x + next(it)


# -- builtins --------------------------------------------------------------------------------------


@case(X, [3, 4], whole=True, modes=MODES)
def enumerates(x, items):
    return [x * i + v for i, v in enumerate(items)], list(enumerate("ab", 5))


@case([X, Y], [1, 2, 3], whole=True)
def zips(xs, ns):
    return [x * n for x, n in zip(xs, ns)], list(zip()), dict(zip("ab", xs))


@case([X, Y], [1, 2, 3])
def zips_strictly(xs, ns):
    return [x * n for x, n in zip(xs, ns, strict=True)]


@case([X, Y], [1, 2], [3], whole=True)
def zips_longest(xs, ns, ms):
    return list(itertools.zip_longest(xs, ns, ms, fillvalue=0))


@case([X, Y], whole=True)
def maps(xs):
    return list(map(gh.cos, xs)), [*map(lambda a, b: a + b, xs, [1, 2])], list(map(str, [1, 2]))


@case([X, None, Y, 0], whole=True)
def filters(xs):
    return list(filter(lambda v: v is not None, xs)), list(filter(None, [0, 1, "", "a"]))


@case([X, Y, 3], whole=True)
def reverses(xs):
    return list(reversed(xs)), [*reversed(range(3))], "".join(reversed("abc"))


@case({"a": X, "b": Y}, whole=True)
def reverses_dict(d):
    return list(reversed(d)), list(reversed(d.values()))


@case(X, [3, 1, 2], whole=True)
def sorts(x, items):
    return [x * i for i in sorted(items)], sorted(items, reverse=True), items


@case(X, ["bb", "a", "ccc"], whole=True)
def sorts_by_key(x, words):
    return sorted(words, key=len), sorted(words, key=lambda w: -len(w)), x + 1


@case([(2, X), (1, Y)], whole=True)
def sorts_pairs(pairs):
    return sorted(pairs, key=lambda p: p[0])


@case(X, [1, "a"])
def sorts_mixed(x, items):
    return sorted(items)


@case([(1, "b"), (0, "z"), (1, "a"), (0, "y")], X, whole=True)
def sort_is_stable(pairs, x):
    pairs.sort(key=lambda p: p[0], reverse=True)
    return x + 1


@case(X, [3, 1, 2], whole=True)
def minimum_maximum(x, items):
    return x * min(items) + max(items), min(3, 1, 2), max("b", "a"), max([], default=7)


@case(X, ["aa", "b"], whole=True)
def minimum_by_key(x, words):
    return min(words, key=len), max(words, key=lambda w: w[0]), x


@case(X, [])
def minimum_of_nothing(x, items):
    return min(items)


@case([X, Y, X], whole=True, modes=MODES)
def sums(xs):
    return sum(xs), sum(xs, X * 0), sum([1, 2.5]), sum([[1], [2]], [])


@case(X, whole=True)
def sums_tensor(x):
    return sum(x), sum(x[0])


@case(X, [0, 1, 2], whole=True)
def any_all(x, items):
    return any(items), all(items), any([]), all([]), any(i > 1 for i in items), x + 1


@case(X, [1, 0, 3], whole=True)
def any_stops_early(x, items):
    log = []
    result = any(log.append(i) or i == 0 for i in items)
    return result, log, x


@case(X, whole=True)
def ranges(x):
    r = range(1, 10, 3)
    return [x * i for i in r], len(r), 4 in r, r[1], r[-1], r[1:], list(range(3, 0, -1)), r.stop


@case(X, whole=True)
def itertools_chain(x):
    return [x * i for i in itertools.chain([1, 2], (3,))], [
        *itertools.chain.from_iterable([[1], [2]])
    ]


@case(X, whole=True)
def itertools_islice(x):
    return [*itertools.islice(numbers(10, x), 1, 6, 2)], [*itertools.islice("abc", 2)]


@case(X, whole=True)
def itertools_product(x):
    return [x * a + b for a, b in itertools.product([1, 2], repeat=2)]


@case(X, whole=True)
def itertools_several(x):
    return (
        [*itertools.accumulate([1, 2, 3])],
        [*itertools.combinations([1, 2, 3], 2)],
        [*itertools.permutations("ab")],
        [*itertools.repeat(x, 2)],
        [*itertools.starmap(pow, [(2, 3)])],
    )


@case(X, whole=True)
def itertools_takewhile(x):
    return [x + i for i in itertools.takewhile(lambda i: i < 3, itertools.count())], [
        *itertools.dropwhile(lambda i: i < 2, range(4))
    ]


@case(X, [1, 1, 2], whole=True)
def itertools_groupby(x, items):
    return [(k, len(list(g))) for k, g in itertools.groupby(items)], x


@case(X, whole=True)
def itertools_cycle(x):
    c = itertools.cycle([1, 2])
    return [x * next(c) for _ in range(3)]


@case(X, whole=True)
def itertools_pairwise(x):
    return [b - a for a, b in itertools.pairwise([1, 4, 9])], x + 1


@case([X, Y], whole=True)
def reduces(xs):
    return functools.reduce(lambda a, b: a * b, xs, 2), functools.reduce(max, [1, 3, 2])


@case(X, [])
def reduces_nothing(x, items):
    return functools.reduce(lambda a, b: a, items)


@case(X, whole=True)
def lengths(x):
    return len(x), len([1]), len({}), len("ab"), len(range(3)), len(()), len({1: 2}.items())


@case(X)
def length_of_number(x):
    return len(3)


@case(X)
def iterate_a_number(x):
    return [i for i in 3]


@case(X)
def next_of_list(x):
    return next([1])


@case(X, whole=True)
def conversions(x):
    g = (i for i in range(3))
    return list("ab"), tuple([1, x]), set("aab"), dict([("a", x)]), dict(a=1, **{"b": 2}), tuple(g)


@case(X, [1, 2, 3], whole=True)
def for_else(x, items):
    for i in items:
        if i > 5:
            break
    else:
        x = x + 100
    return x, i


@case(X, whole=True)
def loop_variable_stays(x):
    for i, _j in enumerate(range(3)):
        pass
    return x + i


@case(X, whole=True)
def sum_of_an_iterator(x):
    it = iter([x, x + 1, x + 2])
    return next(it) * sum(it)


@case(X, whole=True)
def list_takes_in_an_iterator(x):
    xs = [x]
    xs += iter([x + 1, x + 2])
    xs += zip([x], [x + 3])
    return xs


@case(X)
def set_of_an_iterator(x):
    return sorted(set(iter([x + 1, x + 2])), key=lambda y: float(y.sum()))


@case(X)
def frozenset_of_enumerated(x):
    return len(frozenset(enumerate([x, x + 1])))


@case(X)
def set_update_by_an_iterator(x):
    results = {3}
    results.update(zip([x, x + 1], [1, 2]))
    return len(results)


@case(X)
def an_iterator_is_not_reversed(x):
    try:
        return reversed(iter([x]))
    except TypeError as error:
        return str(error), x + 1


class Lists(list):
    def __iter__(self):
        yield 1


class Tuples(tuple):
    def __iter__(self):
        yield 1


def given(*args):
    return args


@case(X)
def iteration_asks_the_class_before_the_items(x):
    a, b = Lists([2]), Tuples((2,))
    results = (
        list(a),
        tuple(a),
        set(a),
        list(b),
        tuple(b),
        set(b),
        [*a, *b],
        given(*a, *b),
        given(*a),
    )
    joined, joined[:0] = [7], a
    joined += a
    joined.extend(b)
    (c,) = a
    d, *e = b
    return results, joined, {3}.union(a), sorted(a), sum(b), c, d, e, a[0], b.index(2), x + 1


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_iteration(fn, args, options):
    check(fn, *args, **options)


@pytest.mark.parametrize("calls", [3, 6])
def test_unpacking_a_map_whose_function_breaks_goes_on(calls):
    """Python draws the items, then the captured rest unpacks the tuple of them: a map no more."""

    def doubled(x):
        int.__subclasses__()  # a break
        return x * 2

    def unpacked(x, y):
        a, b = map(functools.partial(doubled), (x, y))
        c, *d = map(doubled, (y, x))
        return a - b, c + d[0]

    captured = gh.optimize(unpacked)
    for _ in range(calls):
        first, second = captured(X, Y)
        assert (first == 2 * X - 2 * Y).all()
        assert (second == 2 * Y + 2 * X).all()
