"""Distributions by their statistics, streams by their independence, state by replay."""

import threading

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, OptionError, ShapeError

R = gh.random
N = 8000


@pytest.fixture(autouse=True)
def fixed_seed():
    R.seed(1)


@pytest.mark.parametrize(
    ("draw", "name", "args"),
    [
        (lambda: R.uniform((N,)), "uniform", ()),
        (lambda: R.uniform((N,), dtype=gh.float64), "uniform", ()),
        (lambda: R.uniform((N,), 2.0, 5.0), "uniform", (2, 3)),
        (lambda: R.normal((N,)), "norm", ()),
        (lambda: R.normal((N,), 1.0, 2.0, dtype=gh.float64), "norm", (1, 2)),
        (lambda: R.truncated_normal((N,)), "truncnorm", (-2, 2)),
        (lambda: R.exponential((N,), 2.0), "expon", (0, 2)),
        (lambda: R.gumbel((N,)), "gumbel_r", ()),
        (lambda: R.gamma((N,), 2.5), "gamma", (2.5,)),
        (lambda: R.gamma((N,), 0.5), "gamma", (0.5,)),
        (lambda: R.beta((N,), 2.0, 3.0), "beta", (2, 3)),
    ],
)
def test_distributions(draw, name, args):
    stats = pytest.importorskip("scipy.stats")
    samples = draw().numpy().astype(np.float64)
    assert stats.kstest(samples, getattr(stats, name)(*args).cdf).pvalue > 1e-3


@pytest.mark.slow
def test_integers_cover_their_range_evenly():
    counts = np.bincount(R.randint(-5, 6, (11_000,)).numpy() + 5)
    assert len(counts) == 11 and abs(counts - 1000).max() < 150
    for low, high, dtype in (
        (-(2**63), 2**63, "int64"),
        (-(2**62) - 9, 2**63, "int64"),
        (0, 2**64, "uint64"),
        (2**63, 2**64, "uint64"),
        (-128, 128, "int8"),
        (2**63 - 2, 2**63, "int64"),
    ):
        samples = R.randint(low, high, (2000,), dtype=dtype).numpy().astype(object)
        assert low <= samples.min() and samples.max() < high
        assert samples.mean() == pytest.approx((low + high) / 2, abs=0.03 * (high - low))
        assert low <= R.randint(low, high, dtype=dtype).item() < high
    assert R.randint(200, 256, (50,), dtype=gh.uint8).dtype == gh.uint8


def test_weighted_draws():
    p = np.array([0.1, 0.2, 0.7])
    for sample in (R.categorical(np.log(p), shape=(N,)), R.choice(3, (N,), p=p)):
        np.testing.assert_allclose(np.bincount(sample.numpy()) / N, p, atol=0.02)
    assert R.bernoulli(0.3, (N,)).numpy().mean() == pytest.approx(0.3, abs=0.02)
    assert sorted(R.choice(5, (5,), replace=False).tolist()) == [0, 1, 2, 3, 4]
    assert R.choice(gh.asarray([[1, 2], [3, 4]]), (3,), axis=1).shape == (2, 3)


def test_permutations():
    assert sorted(R.permutation(50).tolist()) == list(range(50))
    rows = R.shuffle(gh.asarray(np.arange(6).reshape(3, 2)))
    assert sorted(rows.tolist()) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_stays_below_one(dtype):
    samples = R.uniform((N,), dtype=dtype)
    assert samples.dtype == dtype and bool((samples < 1).all()) and bool((samples >= 0).all())
    samples = R.uniform((N,), 1, 3, dtype=dtype)
    assert bool((samples < 3).all()) and bool((samples >= 1).all())


def test_a_seed_fixes_the_draws_and_each_draw_differs():
    first = R.normal((4,)).tolist(), R.normal((4,)).tolist()
    assert first[0] != first[1]
    R.seed(1)
    assert (R.normal((4,)).tolist(), R.normal((4,)).tolist()) == first
    R.seed(2)
    assert R.normal((4,)).tolist() != first[0]


def test_state_is_replayed():
    import json

    state = json.loads(json.dumps(R.default_generator().state()))
    samples = R.uniform((3,)).tolist()
    R.default_generator().set_state(state)
    assert R.uniform((3,)).tolist() == samples
    with pytest.raises(OptionError, match="state"):
        R.default_generator().set_state({"seed": 1})


def test_streams_are_independent():
    g = R.Generator(5)
    children = g.split(3)
    draws = [tuple(R.bits((4,), generator=c).tolist()) for c in (*children, *g.split(2), g)]
    assert len(set(draws)) == len(draws)
    again = R.Generator(5).split(3)
    assert R.bits((4,), generator=again[1]).tolist() == list(draws[1])
    seeds = [R.Generator(s).state()["key"] for s in (0, 1, -1, 2**32, 2**64, 2**64 + 1, -(2**64))]
    assert len({tuple(key) for key in seeds}) == len(seeds)


def test_threads_never_share_a_key():
    g, keys = R.Generator(0), []
    work = [
        threading.Thread(target=lambda: keys.extend(tuple(g.key().tolist()) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(set(keys)) == 200


def test_draws_pass_the_door():
    log = []

    class Names(gh.Mode):
        def process(self, primitive, args, attrs, below):
            log.append(primitive.name)
            return below(primitive, args, attrs)

    with Names():
        R.normal((2,))
    assert log.count("random_bits") == 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: R.seed("a"), DTypeError, "'a'"),
        (lambda: R.uniform((2,), dtype=gh.int32), DTypeError, "int32"),
        (lambda: R.uniform((2,), 3.0, 1.0), OptionError, "low <= high"),
        (lambda: R.normal((-1,)), ShapeError, "0 or more"),
        (lambda: R.randint(5, 5), OptionError, "low < high"),
        (lambda: R.randint(0, 300, dtype=gh.uint8), OptionError, "uint8"),
        (lambda: R.randint(3, dtype=gh.float32), DTypeError, "float32"),
        (lambda: R.bernoulli(1.5, (2,)), OptionError, "1.5"),
        (lambda: R.choice(3, (5,), replace=False), ShapeError, "at most 3"),
        (lambda: R.choice(3, (2,), p=[0.5, 0.5]), ShapeError, r"\(3,\)"),
        (lambda: R.gamma((2,), -1.0), OptionError, "-1.0"),
        (lambda: R.truncated_normal((2,), low=2.0, high=-2.0), OptionError, "low < high"),
        (lambda: R.categorical(gh.zeros(3), axis=1), ShapeError, "axis"),
    ],
)
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()
