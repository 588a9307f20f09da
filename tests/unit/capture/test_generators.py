"""Generators that a captured function leaves unfinished go on, and end, as in plain Python."""

import gc
import itertools
import weakref

import pytest

import glasshouse as gh
from glasshouse import nn

log: list[str] = []


class TwoParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(gh.ones(2)), nn.Parameter(gh.ones(2))


def counted(n):
    try:
        yield from range(n)
    finally:
        log.append("the inner one ended")


def scaled(n):
    try:
        for i in counted(n):
            yield 10 * i
    finally:
        log.append("the outer one ended")


def delegated(n):
    yield from counted(n)


def failing():
    try:
        yield 1
    finally:
        log.append("an error at the end")
        raise ValueError("at the end")


def parameters(done):
    for p in TwoParameters().parameters():
        done.append(p.shape)
        vars(done.append.__class__)


def enumerated(done):
    for pair in enumerate(x for x in (1, 2, 3)):
        done.append(pair)
        vars(nn.Module)


def expression_in_expression(done):
    for x in (y for y in (z for z in (1, 2, 3))):
        done.append(x)
        exec("pass")


def ends_early(done):
    for x in scaled(3):
        done.append(x)
        vars(nn.Module)
        if x == 10:
            break


def delegates(done):
    for x in delegated(3):
        done.append(x)
        vars(nn.Module)


def in_a_list(done):
    results = [counted(3), scaled(3)]
    done += [next(x) for x in results]
    vars(nn.Module)
    done += [list(x) for x in results]


def steps(done):
    it = scaled(3)
    done.append(next(it))
    exec("pass")
    done.append(next(it))


def leaves_both_open(done):
    done.append(next(scaled(3)))


def fails_at_its_end(done):
    done.append(next(failing()))


CASES = [
    parameters, enumerated, expression_in_expression, ends_early, delegates, in_a_list, steps,
    leaves_both_open, fails_at_its_end,
]  # fmt: skip


def outcome(fn):
    """Return the outcome of a call: the items that it drew, and the order in which its generators
    ended."""
    done = []
    log.clear()
    fn(done)
    return done, list(log)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("backend", ["numpy", "lazy"])
@pytest.mark.parametrize("compiler", ["program", "eager"])
@pytest.mark.parametrize("fn", CASES)
def test_unfinished_generators(fn, compiler, backend):
    want = outcome(fn)
    with gh.backends.use(backend):
        captured = gh.optimize(compiler)(fn)
        gc.disable()  # a generator ends with the last reference to it
        try:
            assert [outcome(captured) for _ in range(3)] == [want] * 3
        finally:
            gc.enable()


def test_generator_that_nobody_asks_any_more_lives_as_long_as_the_call():
    log = []

    def numbers():
        try:
            yield 1
        finally:
            log.append("closed")

    def fn(x):
        g = numbers()
        next(g)
        gh.graph_break()
        log.append("behind")
        return x + 1

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        log.clear()
        fast(gh.ones(1))
        assert log == ["behind", "closed"]


def test_iterators_of_python_lie_where_they_were_put():
    def fn(x, results, items):
        results += [iter(items), reversed(items), enumerate(items), zip(items, items)]
        results.append(map(abs, items))
        items.append(4)
        return results[1], x + 1

    def left(fn):
        results, items = [], [1, 2, 3]
        last = fn(gh.ones(1), results, items)[0]
        return [type(x) for x in results], last is results[1], [list(x) for x in results]

    fast = gh.optimize("eager")(fn)
    assert [left(fast) for _ in range(3)] == [left(fn)] * 3


def test_chain_goes_on_in_python_behind_a_break():
    def counted(n):
        for i in range(n):
            gh.graph_break()
            yield i

    def fn(n):
        results = []
        for i in itertools.islice(itertools.chain([n], iter([5]), counted(n)), n):
            gh.graph_break()
            results.append(i)
        return results

    fast = gh.optimize("eager")(fn)
    assert [fast(4) for _ in range(3)] == [[4, 5, 0, 1]] * 3


def test_generator_that_was_closed_keeps_nothing_alive():
    def numbers():
        yield 1

    def fn(x):
        g = numbers()
        next(g)
        gh.graph_break()
        g.close()
        return x + 1

    fast = gh.optimize("eager")(fn)
    gc.disable()
    try:
        for _ in range(3):
            x = gh.ones(3)
            alive = weakref.ref(x)
            fast(x)
            del x
            assert alive() is None
    finally:
        gc.enable()


def test_reversed_of_a_list_that_changes():
    def fn(items, change, count):
        it = reversed(items)
        first = [next(it) for _ in range(count)]
        if change < 0:
            del items[change:]
        else:
            items += range(change)
        return first, sum(it), it

    def seen(fn, *args):
        first, rest, it = fn(*args)
        return first, rest, type(it), list(it)

    fast = gh.optimize("eager")(fn)
    for change in (0, 2, -1, -2, -3):
        for count in (0, 1, 2):
            want = seen(fn, [1, 2, 4], change, count)
            assert [seen(fast, [1, 2, 4], change, count) for _ in range(3)] == [want] * 3
