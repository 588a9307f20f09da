"""Cases that CPython's own tests found: each function does the same plain and captured, three
times."""

import contextlib
import copy
import functools
import itertools
import operator
import pickle
import sys
from collections import OrderedDict, defaultdict, deque

import pytest

import glasshouse as gh


class Squares:
    """Nothing but `__getitem__`."""

    def __getitem__(self, number):
        if number < 4:
            return number * number
        raise IndexError


class Counting(int):
    """A key whose hash is counted."""

    hashes = 0

    def __hash__(self):
        Counting.hashes += 1
        return int(self)


class Cache(OrderedDict):
    """Writes and reads in Python, through those of its base."""

    def __init__(self):
        super().__init__()
        self.writes = self.reads = 0

    def __setitem__(self, key, value):
        self.writes += 1
        super().__setitem__(key, value)

    def __getitem__(self, key):
        self.reads += 1
        return super().__getitem__(key)


def names(error):
    """An exception and its contexts, by name."""
    chain = []
    while error is not None:
        chain.append(type(error).__name__)
        error = error.__context__
    return chain


def lines(error):
    """The lines of an exception's traceback within this file, from the function's first on."""
    results, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == __file__:
            results.append((code.co_name, trace.tb_lineno - code.co_firstlineno))
        trace = trace.tb_next
    return results


# -- exceptions ----------------------------------------------------------------------------------


def handled_in_an_opaque_call():
    try:
        raise KeyError("a")
    except KeyError:
        with contextlib.nullcontext(), contextlib.redirect_stdout(None):
            return repr(sys.exc_info()[1])


def context_of_a_raise():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as error:
        return names(error)


def context_of_an_error_in_a_builtin():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            [].pop()
    except IndexError as error:
        return names(error)


def context_behind_a_break():
    try:
        try:
            raise KeyError("a")
        except KeyError:
            gh.graph_break()
            int("x")
    except ValueError as error:
        return names(error)


def context_of_throw():
    def generator():
        try:
            raise KeyError("a")
        except KeyError:
            yield 1

    iterator = generator()
    next(iterator)
    try:
        iterator.throw(ValueError)
    except ValueError as error:
        return names(error)


def nothing_is_handled_in_a_generator():
    def generator():
        yield sys.exc_info()[0]
        yield sys.exc_info()[0]

    iterator = generator()
    next(iterator)
    gh.graph_break()
    try:
        raise KeyError
    except KeyError:
        inside = next(iterator)
    return inside, next(iterator, "end")


def traceback_of_a_caught_error():
    def fails():
        raise KeyError("a")

    try:
        fails()
    except KeyError as error:
        return lines(error)


def name_of_an_unknown_name():
    try:
        unknown_name
    except NameError as error:
        return error.name


def exceptions_of_a_group():
    group = ExceptionGroup("g", [ValueError(1), TypeError(2)])
    return [repr(x) for x in group.exceptions]


def except_takes_classes():
    try:
        try:
            raise ValueError
        except (ValueError, 42):  # noqa: B030
            return "caught"
    except TypeError as error:
        return str(error)


# -- generators ----------------------------------------------------------------------------------


def send_behind_a_break():
    def generator():
        got = yield 1
        while True:
            got = yield got

    iterator = generator()
    first = next(iterator)
    gh.graph_break()
    return first, iterator.send(5), iterator.send((1, 2)), next(iterator)


def send_to_a_fresh_generator():
    result = (x for x in "ab")
    try:
        result.send(1)
    except TypeError as error:
        return str(error), next(result)


def send_to_an_iterator():
    def generator():
        yield from range(3)

    iterator = generator()
    next(iterator)
    try:
        iterator.send(42)
    except AttributeError as error:
        return "send" in str(error)


def value_of_an_iterator():
    class Ends:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration(42)

    def generator():
        return (yield from Ends())

    try:
        next(generator())
    except StopIteration as error:
        return error.value


# -- builtins that iterate -----------------------------------------------------------------------

ITERATORS = {
    "map": lambda: map(max, [1, 2, 3], [3, 1, 5]),
    "filter": lambda: filter(None, [1, 0, 2, 3]),
    "enumerate": lambda: enumerate(iter([5, 6, 7])),
    "zip": lambda: zip([1, 2, 3], iter("abc")),
    "chain": lambda: itertools.chain([1, 2], [3, 4]),
    "islice": lambda: itertools.islice(range(20), 3, 15, 2),
    "repeat": lambda: itertools.repeat(3, 4),
    "accumulate": lambda: itertools.accumulate([1, 2, 3, 4]),
    "starmap": lambda: itertools.starmap(pow, [(1, 2), (2, 3), (3, 4)]),
    "takewhile": lambda: itertools.takewhile(bool, [1, 2, 0, 3]),
    "dropwhile": lambda: itertools.dropwhile(bool, [1, 0, 3, 4]),
    "filterfalse": lambda: itertools.filterfalse(bool, [0, 1, 0, 0]),
    "pairwise": lambda: itertools.pairwise([1, 2, 3, 4]),
    "zip_longest": lambda: itertools.zip_longest([1, 2, 3], [4]),
    "compress": lambda: itertools.compress("abcd", [1, 0, 1, 1]),
    "sequence": lambda: iter(Squares()),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_a_begun_iterator_goes_on_as_pythons_own(name):
    make = ITERATORS[name]

    def fn():
        it = make()
        first = next(it)
        gh.graph_break()
        return first, repr(it).partition(" ")[0], type(it), list(it), list(it)

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        assert fast() == fn()


@pytest.mark.parametrize("inputs", [1, 3, 4, 5, 7])
def test_a_begun_cycle_goes_on_as_pythons_own(inputs):
    def fn():
        it = itertools.cycle(iter([1, 2, 3]))
        first = [next(it) for _ in range(inputs)]
        gh.graph_break()
        return first, type(it), list(itertools.islice(it, 8))

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        assert fast() == fn()


def a_sequence_is_pickled():
    it = iter(Squares())
    next(it)
    return list(pickle.loads(pickle.dumps(it)))


def hint_of_an_iterator():
    it = iter([1, 2, 3])
    return type(it).__length_hint__(it), list(it)


def an_iterator_stays_finished():
    items = [1, 2]
    it = iter(items)
    samples = list(it)
    gh.graph_break()
    items.append(3)
    return samples, list(it)


def stop_in_a_function_of_map():
    def stops(x):
        if x == 2:
            raise StopIteration
        return x

    it = map(stops, [1, 2, 3])
    return list(it), list(it)


def map_goes_on_behind_an_error():
    it = map(operator.truediv, [1, 1, 4], [1, 0, 2])
    got = [next(it)]
    try:
        next(it)
    except ZeroDivisionError:
        got.append("error")
    return [*got, *it]


def what_cannot_be_iterated_raises_at_once():
    class Bad:
        def __iter__(self):
            raise KeyError("bad")

    raised = []
    for make in (itertools.pairwise, enumerate, itertools.zip_longest, itertools.cycle):
        try:
            make(Bad())
        except KeyError as error:
            raised.append(str(error))
    return raised


# -- containers ----------------------------------------------------------------------------------


def items_written_in_python():
    cache = Cache()
    cache["a"] = 1
    cache["b"] = cache["a"]
    return cache.writes, cache.reads, list(cache.items())


def methods_of_another_base():
    instance = OrderedDict(a=1, b=2)
    dict.pop(instance, "a")
    try:
        return repr(instance)
    except KeyError as error:
        return str(error)


def too_many_arguments():
    try:
        OrderedDict([("a", 1)], None)
    except TypeError as error:
        return str(error)


def keywords_of_setdefault():
    return OrderedDict().setdefault("g", default=9)


def copies_keep_their_type():
    results = defaultdict(list, a=[1])
    return results.copy(), results | {"b": 2}, type(OrderedDict(a=1) | {"b": 2})


def keys_change_while_they_are_read():
    table = {0: 0}
    try:
        for _ in table:
            del table[0]
            table[0] = 0
    except RuntimeError as error:
        return str(error)


def values_written_while_they_are_read():
    table = {1: 1, 2: 2, 3: 3}
    log = []
    for key, value in table.items():
        log.append(value)
        if key < 3:
            table[key + 1] = value * 10
    return log


def a_dict_that_contains_itself():
    table = {}
    table[1] = table
    return repr(table)


def hashes_of_keys():
    table = dict.fromkeys(map(Counting, range(3)))
    before = Counting.hashes
    total = sum(x + 1 for x in table)
    return total, Counting.hashes - before


def a_set_in_a_set():
    results = {frozenset("ab")}
    results.remove({"a", "b"})
    return results


def the_same_frozenset():
    result = frozenset("ab")
    return frozenset(result) is result


def init_again():
    result = deque([1, 2])
    result.__init__([3])
    return result


def comparison_that_writes():
    class Clears:
        def __eq__(self, other):
            right.clear()
            return NotImplemented

    left, right = [Clears()], [1]
    return left == right, copy.copy(right)


def sums_of_tuples(parts=((), (0,), (0, 1))):
    return [part + ("x",) for part in parts]


def default_of_an_opaque_getter():
    return getattr(functools.partial(len), "nothing", "default")


PLAIN = [
    fn
    for name, fn in list(globals().items())
    if callable(fn) and getattr(fn, "__module__", "") == __name__ and "__code__" in dir(fn)
    if fn not in (names, lines) and not name.startswith("test_")
]


@pytest.mark.parametrize("fn", PLAIN, ids=lambda fn: fn.__name__)
def test_a_function_does_what_it_does_in_python(fn):
    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        assert repr(fast()) == repr(fn())


def test_an_empty_tuple_in_a_sum_is_guarded():
    def fn(part):
        return (*part, 0), part + ("x",)

    fast = gh.optimize("eager")(fn)
    for part in ((), (1,), (1, 2), ()):
        assert fast(part) == fn(part)


@pytest.mark.parametrize("name", ["_getframe", "weakref", "getrecursionlimit", "gc_collect"])
def test_functions_that_see_python_itself_are_left_to_it(name):
    names_of = {name: None, "gh": gh}
    exec(f"def outer(x):\n    def inner():\n        return {name}\n    return x + 1", names_of)
    fast = gh.optimize("eager")(names_of["outer"])
    assert fast(gh.ones(2)).tolist() == [2.0, 2.0]
    assert not fast.capture.entries
