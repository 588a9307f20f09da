"""Sizes and numbers that vary: few entries, right results."""

import numpy as np
import pytest
from checking import Counting, X

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.nn import functional as F


def same(a, b):
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, gh.Tensor):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5, strict=True)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, float):
        assert a == pytest.approx(b)
    else:
        assert a == b


def pointwise(x):
    return gh.sin(x) * 2 + 1


def reduces(x):
    return x.sum(axis=0), x.mean(axis=1)


def by_rows(x):
    return x / x.shape[0]


def reshapes(x):
    return x.reshape(x.shape[0] * x.shape[1])


def flattens(x):
    return x.reshape(x.shape[0], -1) @ gh.ones((4, 2))


def rows_and_length(x):
    n, m = x.shape
    return x + n * m, n, len(x), x.size


def makes(x):
    return x + gh.zeros((x.shape[0], 1)) + gh.arange(x.shape[0])[:, None]


def halves(x):
    half = x.shape[0] // 2
    return x[:half].sum() - x[half:].sum()


def branches(x):
    return x + 1 if x.shape[0] > 4 else x - 1


def loops(x):
    total = gh.zeros(4)
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def concats(x):
    return gh.concat([x, x * 2], axis=0), gh.stack([x, x])


def attends(x):
    return F.softmax(x @ x.T / x.shape[1] ** 0.5, dim=-1) @ x


def pads(x):
    return F.pad(x, (0, 0, 0, 10 - x.shape[0]))


def breaks(x):
    n = x.shape[0]
    gh.graph_break()
    return x * n + x.sum().item()


SIZED = [
    pointwise,
    reduces,
    by_rows,
    reshapes,
    flattens,
    rows_and_length,
    makes,
    halves,
    branches,
    loops,
    concats,
    attends,
    pads,
    breaks,
]


@pytest.mark.sample(32)
@pytest.mark.parametrize("fn", SIZED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_first_axis_varies(fn, dynamic, compiler):
    fast = gh.optimize(compiler, dynamic=dynamic)(fn)
    for n in (4, 4, 5, 6, 3, 2, 7, 5, 4, 8, 1):
        same(fast(X(n, 4, seed=n)), fn(X(n, 4, seed=n)))


@pytest.mark.parametrize("fn", [pointwise, reduces, by_rows, reshapes, flattens, concats, attends])
@pytest.mark.parametrize("dynamic", [False, True])
def test_few_entries_for_many_sizes(fn, dynamic):
    counting = Counting()
    fast = gh.optimize(counting, dynamic=dynamic)(fn)
    for n in range(2, 20):
        same(fast(X(n, 4, seed=n)), fn(X(n, 4, seed=n)))
    assert len(counting.graphs) <= (1 if dynamic else 2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_both_axes_vary(dynamic):
    counting = Counting()
    fast = gh.optimize(counting, dynamic=dynamic)(reduces)
    for n, m in ((2, 3), (4, 3), (4, 5), (6, 7), (3, 2), (9, 9), (5, 4)):
        same(fast(X(n, m)), reduces(X(n, m)))
    assert len(counting.graphs) <= 3


def test_size_one_is_broadcast_right():
    def fn(x, y):
        return x + y

    for dynamic in (False, True):
        fast = gh.optimize("eager", dynamic=dynamic)(fn)
        for n, m in ((3, 3), (4, 4), (1, 4), (4, 1), (5, 5), (1, 1), (1, 6)):
            same(fast(X(n, 2), X(m, 2, seed=4)), fn(X(n, 2), X(m, 2, seed=4)))


def test_sizes_that_do_not_fit_raise_as_in_python():
    def fn(x, y):
        return x + y

    for dynamic in (False, True):
        fast = gh.optimize("eager", dynamic=dynamic)(fn)
        fast(X(3), X(3)), fast(X(4), X(4)), fast(X(5), X(5))
        with pytest.raises(gh.ShapeError):
            fast(X(3), X(4))
        same(fast(X(6), X(6)), X(6) * 2)


def model():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)
    )


@pytest.mark.parametrize("compiler", ["eager", "program"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_module_with_batches(dynamic, compiler):
    net = model().eval()
    fast = gh.optimize(compiler, dynamic=dynamic)(net)
    for n in (4, 4, 2, 7, 1, 3):
        same(fast(X(n, 1, 8, 8, seed=n)), net(X(n, 1, 8, 8, seed=n)))


def test_module_with_batches_has_few_graphs():
    counting = Counting()
    fast = gh.optimize(counting)(model().eval())
    for n in range(2, 12):
        fast(X(n, 1, 8, 8))
    assert len(counting.graphs) <= 2


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_gradients_with_batches(compiler):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    fast = gh.optimize(compiler)(net)
    for n in (3, 3, 5, 2, 6, 3):
        grads = []
        for call in (net, fast):
            net.zero_grad()
            call(X(n, 4, seed=n)).sum().backward()
            grads.append([p.grad for p in net.parameters()])
        same(*grads)


def scales(x, k):
    return x * k


def mixes(x, k):
    return (x + k) * (k - 1) / (k + 0.5)


def powers(x, k):
    return x**k


def doubles(x, k):
    return x * (k * 2 + 1), k * 3


def indexes(x, k):
    return x[k]


def slices(x, k):
    return x[:k] * 2


def repeats(x, k):
    return [x * i for i in range(k)]


def compares(x, k):
    return x + 1 if k > 2 else x - k


def fills(x, k):
    return x + gh.full((4,), k)


def divides(x, k):
    return x / k, x // k, x % k


def texts(x, k):
    return x * k, f"{k}"


def clips(x, k):
    return x.clip(-k, k)


def keyed(x, k):
    return {1: x, 2: x * 2}.get(k, x * 3)


def reduces_axis(x, k):
    return x.reshape(2, 2).sum(axis=k % 2)


INTS = [
    scales,
    mixes,
    powers,
    doubles,
    indexes,
    slices,
    repeats,
    compares,
    fills,
    divides,
    texts,
    clips,
    keyed,
    reduces_axis,
]


@pytest.mark.sample(40)
@pytest.mark.parametrize("fn", INTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_int_varies(fn, dynamic, compiler):
    fast = gh.optimize(compiler, dynamic=dynamic)(fn)
    for k in (2, 2, 3, 1, 2, 3, 1, True, 2):
        same(fast(X(4, seed=int(k)), k), fn(X(4, seed=int(k)), k))


FLOATS = [scales, mixes, powers, doubles, compares, fills, divides, texts, clips]


@pytest.mark.parametrize("fn", FLOATS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_float_varies(fn, compiler):
    fast = gh.optimize(compiler)(fn)
    for k in (2.0, 2.0, 3.5, 1.25, 2.0, 0.1, 1e-30, 1e30, 7.0):
        same(fast(abs(X(4)) + 1, k), fn(abs(X(4)) + 1, k))


@pytest.mark.parametrize("fn", [scales, mixes, doubles], ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", ["ints", "floats"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_few_entries_for_many_numbers(fn, values, dynamic):
    counting = Counting()
    fast = gh.optimize(counting, dynamic=dynamic)(fn)
    for k in range(2, 14):
        fast(X(4), k if values == "ints" else k / 4 + 0.1)
    assert len(counting.graphs) <= (1 if dynamic else 2)


def test_dynamic_config():
    counting = Counting()
    with gh.capture.config.override(dynamic=True):
        fast = gh.optimize(counting)(scales)
        for k in range(2, 8):
            same(fast(X(k), k), X(k) * k)
    assert len(counting.graphs) == 1


def test_mark_dynamic():
    counting = Counting()
    fast = gh.optimize(counting)(pointwise)
    x = X(3, 4)
    gh.mark_dynamic(x, 0)
    same(fast(x), pointwise(x))
    for n in (5, 6, 7):
        same(fast(X(n, 4)), pointwise(X(n, 4)))
    assert len(counting.graphs) == 1


def test_mark_dynamic_takes_a_tuple():
    counting = Counting()
    fast = gh.optimize(counting)(pointwise)
    x = X(3, 4)
    gh.mark_dynamic(x, (0, 1))
    fast(x)
    for n in (5, 6):
        same(fast(X(n, n + 1)), pointwise(X(n, n + 1)))
    assert len(counting.graphs) == 1


def test_number_in_an_object_varies():
    class Box:
        k = 1.0

    counting, box = Counting(), Box()
    fast = gh.optimize(counting)(lambda x, box: x * box.k)
    for k in range(12):
        box.k = k + 0.5
        same(fast(X(4), box), X(4) * (k + 0.5))
    assert len(counting.graphs) <= 2


def test_number_in_containers_varies():
    counting = Counting()
    fast = gh.optimize(counting)(lambda x, d: x * d["k"][0])
    for k in range(12):
        same(fast(X(4), {"k": [k + 0.5]}), X(4) * (k + 0.5))
    assert len(counting.graphs) <= 2


def test_list_grows():
    fast = gh.optimize("eager")(lambda x, parts: sum(parts, x))
    with gh.capture.config.override(cache_limit=32), flags.override(compile="always"):
        for n in range(8):
            parts = [X(4, seed=i) for i in range(n)]
            same(fast(X(4), parts), sum(parts, X(4)))
            same(fast(X(4), parts), sum(parts, X(4)))
    assert fast.hits == 8


def test_step_count_and_position():
    """A decoding loop: the position and the length grow by one."""

    def step(x, cache, position):
        cache = gh.concat([cache, x[None] + position], axis=0)
        return cache.mean(axis=0), cache

    counting = Counting()
    fast = gh.optimize(counting)(step)
    got = want = gh.zeros((1, 4))
    for position in range(1, 14):
        a, got = fast(X(4, seed=position), got, position)
        b, want = step(X(4, seed=position), want, position)
        same((a, got), (b, want))
    assert len(counting.graphs) <= 3


def test_glass_keeps_programs_of_many_sizes():
    fast = gh.optimize("program", dynamic=True)(pointwise)
    for _ in range(2):
        for n in range(1, 12):
            same(fast(X(n, seed=n)), pointwise(X(n, seed=n)))
    assert len(fast.entries) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_error_that_depends_on_sizes_is_guarded(dynamic):
    def fn(x, y):
        try:
            return x @ y
        except ValueError as error:
            return x * 2, str(error)

    fast = gh.optimize("eager", dynamic=dynamic)(fn)
    for rows, columns in ((2, 3), (2, 4), (5, 3), (3, 3), (2, 3), (4, 4)):
        x, y = X(rows, columns), X(3, 2)
        same(fast(x, y), fn(x, y))


@pytest.mark.parametrize("sizes", [(1, 7, 1, 3), (7, 1, 3)])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: (gh.squeeze(gh.ones(n)) * 2).ndim,
        lambda x, n: (x[:n].squeeze(0) * 2).ndim,
        lambda x, n: (gh.squeeze(x[:n], dim=0) * 2).ndim,
        lambda x, n: gh.exp(gh.squeeze(x[:n]) * 2 + 1).shape[-1],
        lambda x, n: x.sum(-1) if (gh.squeeze(x[:n]) + 1).ndim else x,
    ],
)
def test_ranks_that_depend_on_sizes_are_told_apart_behind_further_operations(fn, sizes):
    captured = gh.optimize("eager", dynamic=True)(fn)
    for n in sizes:
        try:
            want = repr(fn(gh.arange(8.0), n))
        except IndexError:
            with pytest.raises(IndexError):
                captured(gh.arange(8.0), n)
        else:
            assert repr(captured(gh.arange(8.0), n)) == want


SIZES = {
    "x.shape[0]": lambda x: x.shape[0],
    "x.size(0)": lambda x: x.size(0),
    "x.size(dim=0)": lambda x: x.size(dim=0),
    "x.size()[0]": lambda x: x.size()[0],
    "x.size() unpacked": lambda x: next(iter(x.size())),
    "x.size // 2": lambda x: x.size // 2,
    "x.numel() // 2": lambda x: x.numel() // 2,
    "len(x)": len,
    "(x * 2).size(0)": lambda x: (x * 2).size(0),
    "(x * 2).size()[0]": lambda x: (x * 2).size()[0],
}


@pytest.mark.parametrize("spelling", SIZES)
@pytest.mark.parametrize("use", ["in a loop", "as a number"])
def test_each_spelling_of_a_size_is_that_of_the_call(spelling, use):
    size = SIZES[spelling]

    def by_rows(x):
        total = gh.zeros(2)
        for i in range(size(x)):
            total = total * 0.5 + x[i]
        return total

    def scaled(x):
        return x.sum(axis=0) * size(x)

    fn = by_rows if use == "in a loop" else scaled
    captured = gh.optimize(fn)
    for rows in (5, 7, 4, 6, 9, 8, 3, 9):
        x = gh.reshape(gh.arange(2.0 * rows), (rows, 2))
        np.testing.assert_allclose(captured(x).numpy(), fn(x).numpy(), rtol=1e-6)
