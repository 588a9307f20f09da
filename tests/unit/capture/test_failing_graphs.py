"""Where a graph raises, effects, lines and modes are plain Python's; iterators that are left show
what was written."""

import functools
import itertools
import traceback

import pytest

import glasshouse as gh

log: list = []


def plain(x, i):
    y = x * 2
    return y[i] + x.sum()


def appends(x, i):
    log.append(1)
    y = x[i]
    log.append(2)
    return y


def without_gradients(x, i):
    with gh.no_grad():
        log.append(1)
        return x[i]


def without_gradients_behind_a_break(x, i):
    with gh.no_grad():
        y = x * 2
        gh.graph_break()
        log.append("behind")
        return y[i]


def draws(x, i):
    noise = gh.random.normal(2)
    y = x[i] + noise.sum()
    log.append(1)
    return y


def writes(x, i):
    x[0] = 5
    log.append(1)
    y = x[i]
    log.append(2)
    x[1] = 3
    return y


CALLS = ((3, 1), (3, 2), (2, 1), (2, 1), (1, 1), (4, 3), (1, 0), (2, 0))  # size, index


def outcomes(fn):
    """Return all that can be seen of each call."""
    calls = []
    for size, i in CALLS:
        gh.random.seed(0)
        x, result, enabled = gh.arange(size) * 1.0, None, gh.is_grad_enabled()
        log.clear()
        try:
            result = [round(v, 5) for v in fn(x, i).reshape(-1).tolist()]
        except IndexError as error:
            frames = traceback.extract_tb(error.__traceback__)
            result = str(error), [f.lineno for f in frames if f.filename == __file__]
        draws = gh.random.default_generator().draws
        calls.append((result, list(log), x.tolist(), gh.is_grad_enabled() == enabled, draws))
        gh.set_grad_enabled(enabled)
    return calls


FAILING = [plain, appends, without_gradients, without_gradients_behind_a_break, draws]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("compiler", ["program", "eager"])
@pytest.mark.parametrize("fn", FAILING)
def test_graphs_that_raise(fn, compiler, dynamic):
    assert outcomes(gh.optimize(compiler, dynamic=dynamic)(fn)) == outcomes(fn)


def writes_by_an_operator(x, i):
    x *= 2
    log.append(1)
    y = x[i]
    x += y
    return y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [writes, writes_by_an_operator])
def test_graph_that_writes_and_raises(fn, dynamic):
    assert outcomes(gh.optimize("eager", dynamic=dynamic)(fn)) == outcomes(fn)


@pytest.mark.parametrize("fn", [writes, writes_by_an_operator])
def test_program_that_writes_and_raises_writes_once(fn):
    def written(fn):
        return [(x, type(result)) for result, _, x, *_ in outcomes(fn)]

    assert written(gh.optimize("program", dynamic=True)(fn)) == written(fn)


def reversed_behind(items, x):
    items[1:] = [7, 8]
    return reversed(items), x + 1


def begun_behind(items, x):
    left = iter(items)
    first = next(left)
    items.append(9)
    gh.graph_break()
    return first, left, x + 1


def of_a_dict(items, x):
    table = dict.fromkeys(items)
    left = iter(table)
    gh.graph_break()
    table[items[0]] = 1
    return left, x + 1


def in_a_list(items, x):
    results = []
    items.append(9)
    results.append(reversed(items))
    items += [results]
    return results[0], x + 1


def of_a_slice(items, x):
    for v in itertools.islice(reversed([*items, 1]), 4):
        gh.graph_break()
        first = v
        break
    else:
        first = "none"
    return iter([first]), x + 1


LEFT = [reversed_behind, begun_behind, of_a_dict, in_a_list, of_a_slice]


@pytest.mark.parametrize("fn", LEFT)
def test_iterators_over_what_is_written(fn):
    def left(fn, size):
        items = list(range(size))
        *more, _ = fn(items, gh.ones(1))
        return [type(x) for x in more], [x if type(x) is int else list(x) for x in more]

    fast, sizes = gh.optimize("eager")(fn), (2, 1, 3, 3, 1)
    assert [left(fast, n) for n in sizes] == [left(fn, n) for n in sizes]


NOT_ITERABLE = {
    "reduce": lambda v: functools.reduce(max, v),
    "sorted": lambda v: sorted(v, key=abs),
    "sum": lambda v: sum(v),
    "map": lambda v: map(abs, v),
    "zip": lambda v: zip([], v),
    "chain": lambda v: list(itertools.chain(v)),
    "compress": lambda v: itertools.compress(v, [1]),
    "enumerate": lambda v: enumerate(v),
    "takewhile": lambda v: itertools.takewhile(bool, v),
    "product": lambda v: itertools.product([1], v),
}


@pytest.mark.parametrize("name", NOT_ITERABLE)
def test_what_is_no_iterable_is_refused_as_in_python(name):
    make = NOT_ITERABLE[name]

    def fn(x, v):
        try:
            make(v)
        except TypeError as error:
            return str(error), x + 1

    fast = gh.optimize("eager")(fn)
    assert [fast(gh.ones(1), 5)[0] for _ in range(3)] == [fn(gh.ones(1), 5)[0]] * 3


class Careful:
    def __delattr__(self, name):
        super().__delattr__(name)


def test_attribute_that_is_not_there_to_be_deleted():
    def fn(x, obj):
        vars(obj)["z"] = 1
        del obj.extra
        return x

    for captured in (fn, gh.optimize("eager")(fn)):
        for _ in range(2):
            with pytest.raises(AttributeError, match="extra"):
                captured(gh.ones(1), Careful())


def test_super_of_a_class_alone():
    def fn(x):
        return repr(super(Careful))[:7], x + 1

    assert gh.optimize("eager")(fn)(gh.ones(1))[0] == "<super:"


class Holder:
    pass


def deletes(x, obj):
    del obj.extra
    return x + 1


def deletes_without_gradients(x, obj):
    with gh.no_grad():
        delattr(obj, "extra")
    return x + 1


@pytest.mark.parametrize("fn", [deletes, deletes_without_gradients])
@pytest.mark.parametrize("order", [(True, True, False, True, False), (False, True, True, False)])
def test_attribute_that_only_some_calls_can_delete(fn, order):
    fast = gh.optimize("eager")(fn)
    for there in order:
        obj = Holder()
        if there:
            obj.extra = 1
            fast(gh.ones(1), obj)
            assert vars(obj) == {}
        else:
            with pytest.raises(AttributeError, match="extra"):
                fast(gh.ones(1), obj)
    assert fast.hits >= 1


def test_dict_of_attributes_belongs_to_the_object_or_not():
    def fn(x, obj, other, own):
        table = vars(obj if own else other)
        gh.graph_break()
        table["z"] = 1
        obj.value = 5
        return x + obj.value

    fast = gh.optimize("eager")(fn)
    for own in (True, False, True, False):
        obj, other = Holder(), Holder()
        fast(gh.ones(1), obj, other, own)
        assert (vars(obj), vars(other)) == (
            ({"z": 1, "value": 5}, {}) if own else ({"value": 5}, {"z": 1})
        )


def test_cell_that_only_some_calls_have_set():
    def fn(x, items):
        for v in items:
            gh.graph_break()
            x = x + 0 * v
        get = lambda: v  # noqa: E731
        gh.graph_break()
        return x + get()

    fast = gh.optimize("eager")(fn)
    for items in ([], [3], [], [4], [5]):
        if items:
            assert fast(gh.ones(1), items).tolist() == [1.0 + items[0]]
        else:
            with pytest.raises(NameError, match="free variable 'v'"):
                fast(gh.ones(1), items)


def test_builtins_draw_from_iterators_in_one_graph():
    def fn(x, items):
        for v in itertools.islice(iter(list(items)), 2):
            x = x + v
        return x

    fast = gh.optimize("eager", nopython=True)(fn)
    assert [fast(gh.ones(1), [1, 2, 3]).tolist() for _ in range(2)] == [[4.0]] * 2
