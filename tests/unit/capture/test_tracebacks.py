"""Exceptions of captured calls: they show the frames that plain Python has, and the same
objects."""

import itertools
import traceback

import pytest

import glasshouse as gh


class Bare:
    def __getattr__(self, name):
        raise AttributeError


def unknown(x):
    return undefined  # noqa: F821


def calls_unknown(x):
    return unknown(x)


def fails_in_the_middle(x):
    return calls_unknown(x)


def apply(fn, x):
    return fn(x)


def fails_in_a_lambda(x):
    return apply(lambda v: undefined, x)  # noqa: F821


def calls_a_number(x):
    return apply(1, x)


def breaks_inside(x):
    gh.graph_break()
    raise ValueError(1)


def fails_behind_a_break(x):
    return apply(breaks_inside, x)


def catches(x):
    try:
        apply(breaks_inside, x)
    except ValueError as error:
        raise KeyError from error


def fails_in_a_handler(x):
    return apply(catches, x)


def asks_for_nothing(x):
    return Bare().nothing


def lets_an_error_through(x):
    try:
        return apply(asks_for_nothing, x)
    finally:
        x + 1


def unpacks_a_number(x):
    first, *rest = 1
    return first


def spreads_a_number(x):
    return [*1, x]


def fails_behind_a_handler_that_broke(x):
    try:
        [][1]
    except IndexError:
        gh.graph_break()
    try:
        return x.reshape(print)
    except KeyError:
        return x


FAILING = [
    fails_in_the_middle, fails_in_a_lambda, calls_a_number, fails_behind_a_break,
    fails_in_a_handler, asks_for_nothing, lets_an_error_through, unpacks_a_number,
    spreads_a_number, fails_behind_a_handler_that_broke,
]  # fmt: skip


def told(fn) -> list:
    """Return all that can be seen of the exception of a call, and of its causes."""
    try:
        fn(gh.ones(3))
    except Exception as raised:
        first = error = raised
    results = []
    while error is not None:
        entries = traceback.extract_tb(error.__traceback__)
        lines = [(x.name, x.lineno) for x in entries if x.filename == __file__][error is first :]
        about = type(getattr(error, "obj", None)), getattr(error, "name", None)
        results.append((type(error), str(error), lines, about))
        error = error.__cause__ or error.__context__
    return results


# What iterators say of their arguments at once, before an item is asked for.
REFUSED = [
    lambda _: itertools.repeat(1, abs),
    lambda _: itertools.repeat(1, None),
    lambda _: itertools.repeat(1, other=2),
    lambda _: itertools.count("a"),
    lambda _: itertools.count(step=None),
    lambda _: itertools.product([1], repeat=-1),
    lambda _: itertools.product([1], repeat="a"),
    lambda _: itertools.islice([1], -1),
    lambda _: itertools.chain.from_iterable(3),
    lambda _: enumerate([1], "a"),
    lambda _: enumerate([1], start=1.5),
    lambda _: map(abs),
    lambda _: filter(abs),
    lambda _: itertools.cycle(3),
]


@pytest.mark.parametrize("fn", REFUSED)
def test_iterators_refuse_arguments_where_they_are_made(fn):
    assert told(gh.optimize("eager")(fn)) == told(fn) != []


def test_numbers_of_iterators_are_what_python_makes_of_them():
    def fn(_):
        pairs = [*enumerate([5, 6], True), *enumerate([7], start=-3)]
        rows = list(itertools.product("ab", repeat=True))
        return [(type(a), a, b) for a, b in pairs], rows, list(itertools.repeat(1, -2))

    assert gh.optimize("eager")(fn)(gh.ones(2)) == fn(gh.ones(2))


@pytest.mark.parametrize("fn", FAILING)
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_exceptions_tell_what_plain_ones_do(fn, compiler):
    fast = gh.optimize(compiler)(fn)
    assert [told(fast) for _ in range(3)] == [told(fn)] * 3


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_what_was_written_before_a_graph_raised_is_there(compiler):
    def fn(x, written, i):
        written["n"] += 1
        del written["old"]
        return (x * 2)[i], written

    fast = gh.optimize(compiler, dynamic=True)(fn)
    for i in (0, 1, 5, 2, 7):
        written = {"n": 0, "old": 1}
        if i > 2:
            with pytest.raises(IndexError) as raised:
                fast(gh.ones(3), written, i)
            lines = [x.lineno for x in raised.traceback if x.path.name == "test_tracebacks.py"]
            assert len(lines) == 2  # this function, and that one
        else:
            fast(gh.ones(3), written, i)
        assert written == {"n": 1}


def test_an_error_of_the_library_keeps_the_context_that_it_has_inside_a_handler():
    def fn(x, values):
        try:
            [][0]
        except IndexError:
            return x + gh.asarray(values)

    def chain(call):
        with pytest.raises(gh.base.errors.DTypeError) as raised:
            call(gh.ones(1), [1, "a"])
        results, error = [], raised.value
        while error is not None:
            results.append((type(error).__name__, error.__suppress_context__))
            error = error.__cause__ or error.__context__
        return results

    fast = gh.optimize("eager")(fn)
    assert [chain(fast) for _ in range(3)] == [chain(fn)] * 3
