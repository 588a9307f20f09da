"""Generators that yield inside `try` or `with` end when plain Python ends them."""

import gc
import itertools
import types

import pytest

import glasshouse as gh

log: list[str] = []


def counted(n):
    try:
        yield from range(n)
    finally:
        log.append("closed")


def echo(v):
    try:
        got = yield v
        yield got + 1
    except ValueError as error:
        yield len(str(error))
    finally:
        log.append("closed")


def breaks_and_counts(k):
    for i in range(k):
        gh.graph_break()
        yield i


def leaves_a_loop(x):
    for i in counted(5):
        x = x + i
        if i == 2:
            break
    log.append("behind")
    return x


def returns_from_a_loop(x):
    def inner(x):
        for i in counted(5):
            if i == 1:
                return x + 1
        return x

    y = inner(x)
    log.append("behind")
    return y


def raises_in_a_loop(x):
    try:
        for i in counted(5):
            x = x + i
            if i == 2:
                raise ValueError(i)
    except ValueError:
        log.append("caught")
    return x


def raises_in_a_loop_of_a_callee(x):
    def inner(x):
        for i in counted(5):
            x = x + i
            if i == 2:
                raise ValueError(i)

    try:
        inner(x)
    except ValueError:
        log.append("caught")
    return x


def draws_all(x):
    for i in counted(3):
        x = x + i
    log.append("behind")
    return x


def breaks_in_a_loop(x):
    for i in counted(3):
        x = x + i
        gh.graph_break()
    log.append("behind")
    return x


def gives_its_name_away(x):
    g = counted(3)
    next(g)
    try:
        g = 1
        log.append("other")
        gh.graph_break()
        g = echo(2)
        x = x + next(g)
        g = None
        log.append("none")
    finally:
        log.append("finally")
    return x


def gives_its_name_away_in_a_callee(x):
    def inner(x):
        g = echo(1)
        x = x + next(g)
        g = None
        log.append("inner")
        return x

    y = inner(x)
    log.append("outer")
    gh.graph_break()
    return y + inner(x)


def deletes_its_name(x):
    g = echo(3)
    x = x * next(g) + g.send(4)
    del g
    log.append("deleted")
    return x


def closes_and_throws(x):
    g, h = echo(1), echo(2)
    x = x + next(g) + next(h)
    x = x + g.throw(ValueError("thrown"))
    g.close()
    log.append("between")
    h.close()
    return x


def throws_through_a_delegation(x):
    def delegates():
        yield from echo(1)

    g = delegates()
    x = x + next(g)
    x = x + g.throw(ValueError("thrown"))
    log.append("thrown")
    return x


def in_a_list(x):
    kept = [echo(i) for i in range(2)]
    x = x + sum(map(next, kept))
    kept.pop()
    log.append("popped")
    kept[0] = None
    log.append("replaced")
    return x


CASES = [
    leaves_a_loop, returns_from_a_loop, raises_in_a_loop, raises_in_a_loop_of_a_callee, draws_all,
    breaks_in_a_loop, gives_its_name_away, gives_its_name_away_in_a_callee, deletes_its_name,
    closes_and_throws, throws_through_a_delegation, in_a_list,
]  # fmt: skip


def outcome(fn):
    log.clear()
    return fn(gh.ones(2)).tolist(), list(log)


@pytest.mark.parametrize("compiler", ["program", "eager"])
@pytest.mark.parametrize("fn", CASES)
def test_generators_end_as_in_python(fn, compiler):
    want, captured = outcome(fn), gh.optimize(compiler)(fn)
    gc.disable()  # a generator ends with the last reference to it
    try:
        assert [outcome(captured) for _ in range(3)] == [want] * 3
    finally:
        gc.enable()


def test_loop_that_draws_all_is_one_graph():
    captured = gh.optimize("eager")(draws_all)
    outcome(captured)
    outcome(captured)
    assert captured.hits == 1
    assert captured.capture.entries[0].graph is not None


def test_generator_that_broke_inside_is_pythons_own():
    def apply(fn, v):
        return fn(v)

    def fn(x):
        result = breaks_and_counts(3)
        apply(lambda v: next(result), 1)
        return result, [result], x + 1

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        result, inside, _ = fast(gh.ones(1))
        assert type(result) is types.GeneratorType
        assert inside[0] is result
        assert list(result) == [1, 2]


def ends_with(value):
    yield 1
    return value


DRAWING = {
    "enumerate": enumerate,
    "filter": lambda it: filter(None, it),
    "map": lambda it: map(abs, it),
    "zip": zip,
    "zip of two": lambda it: zip(it, [1, 2, 3]),
    "zip_longest": itertools.zip_longest,
    "accumulate": itertools.accumulate,
    "compress": lambda it: itertools.compress(it, [1, 1, 1]),
    "dropwhile": lambda it: itertools.dropwhile(bool, it),
    "filterfalse": lambda it: itertools.filterfalse(None, it),
    "takewhile": lambda it: itertools.takewhile(bool, it),
    "starmap": lambda it: itertools.starmap(max, zip(it, [1, 2])),
    "islice": lambda it: itertools.islice(it, 5),
    "islice to its end": lambda it: itertools.islice(it, 1),
    "pairwise": itertools.pairwise,
    "chain": itertools.chain,
    "cycle": lambda it: itertools.islice(itertools.cycle(it), 3),
    "groupby": itertools.groupby,
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_a_delegation_to_a_builtin_ends_with(name):
    draw = DRAWING[name]

    def delegates(done):
        done.append((yield from draw(ends_with(len(done) + 5))))

    def fn(x, done):
        for _ in delegates(done):
            x = x + 1
        return x

    def ended(fn):
        done = []
        return fn(gh.ones(1), done).tolist(), done

    fast = gh.optimize("eager")(fn)
    assert [ended(fast) for _ in range(3)] == [ended(fn)] * 3


def test_what_is_thrown_through_a_delegation_has_its_context():
    def inner():
        yield

    def delegates():
        try:
            raise KeyError("first")
        except KeyError:
            yield from inner()

    def fn(x):
        g = delegates()
        next(g)
        try:
            g.throw(ValueError)
        except ValueError as error:
            return repr(error.__context__), x + 1

    fast = gh.optimize("eager")(fn)
    assert [fast(gh.ones(1))[0] for _ in range(3)] == ["KeyError('first')"] * 3


class Catching:
    def __enter__(self):
        return self

    @gh.disable
    def __exit__(self, kind, error, trace):
        self.error = error
        return True


@gh.disable
def raises():
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second")  # noqa: B904


def test_arguments_of_the_context_of_an_error():
    def fn(x):
        with Catching() as caught:
            raises()
        context = caught.error.__context__
        return context.args, x + 1

    fast = gh.optimize("eager")(fn)
    assert [fast(gh.ones(1))[0] for _ in range(3)] == [("first",)] * 3


def test_an_error_behind_a_break_in_finally_is_matched_by_its_type():
    def fn(x, k):
        try:
            try:
                if k:
                    raise TypeError("another")
                [][0]
            finally:
                gh.graph_break()
        except IndexError:
            return x + 1

    fast = gh.optimize("eager")(fn)
    for _ in range(2):
        assert fast(gh.ones(1), 0).tolist() == [2.0]
        with pytest.raises(TypeError, match="another"):
            fast(gh.ones(1), 1)


def test_iterators_in_cells_and_in_parts_of_containers_are_pythons_own_behind_a_break():
    def delegates(it):
        yield from it

    def fn(x):
        inside, held = iter([1, 2]), [(iter([3]), 4)]
        gh.graph_break()
        result = delegates(held)
        gh.graph_break()
        kinds = (lambda: type(inside).__name__)(), type(held[0][0]).__name__
        gh.graph_break()
        return x + 1, kinds, next(result)[1]

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        assert fast(gh.ones(1))[1:] == fn(gh.ones(1))[1:]
