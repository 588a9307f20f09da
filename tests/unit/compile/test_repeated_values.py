"""A small value that takes long to compute is stored before it is repeated."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.lowering import lower
from glasshouse.compile.programs import program


@pytest.fixture(autouse=True)
def compiled_anew(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")
    monkeypatch.setattr(program, "programs", {})
    (gh.ones(2) + 1).numpy()  # and with it what other tests left to be computed


def normalized(rows: int):
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((rows, 64), np.float32), rng.random(64, np.float32)
    return gh.tensor(x) / gh.sqrt(gh.exp(gh.tensor(scale)) + 1e-5)


def steps_of(rows: int) -> tuple[bytes, int]:
    """(the bits of the result, how many steps compute it)."""
    with gh.profile() as prof:
        bits = normalized(rows).numpy().tobytes()
    return bits, len(prof.kernels())


def test_it_is_a_step_of_its_own_where_it_is_repeated_often():
    assert steps_of(1000)[1] == 2
    assert steps_of(10)[1] == 1


def test_bits_are_those_of_computing_it_again(monkeypatch):
    stored, _ = steps_of(1000)
    monkeypatch.setattr(lower, "REPEATED_COST", 1 << 30)
    monkeypatch.setattr(program, "programs", {})
    again, count = steps_of(1000)
    assert count == 1 and stored == again


def test_what_follows_the_reduction_of_a_row_stays_in_its_kernel():
    x = gh.tensor(np.random.default_rng(0).standard_normal((512, 256), np.float32))
    with gh.profile() as prof:
        y = x / gh.sqrt(gh.exp(gh.sum(x * x, axis=-1, keepdims=True) / 256))
        gh.eval(y)
    assert len(prof.kernels()) == 1


def spread(order: tuple[int, ...]):
    """Images over their channels' norms, as memory has them in this order of axes."""
    rng, back = np.random.default_rng(0), np.argsort(order)
    shape = tuple(np.array((8, 16, 32, 32))[list(order)])
    x = gh.permute(gh.tensor(rng.standard_normal(shape, np.float32)), tuple(map(int, back)))
    return x / gh.sqrt(gh.exp(gh.sum(x * x, axis=(0, 2, 3), keepdims=True) / 8192))


@pytest.mark.parametrize("order, counts", [((0, 2, 3, 1), [3, 2]), ((1, 0, 2, 3), [1, 1])])
def test_what_follows_a_sum_along_wide_strides_is_stored(order, counts, monkeypatch):
    """The innermost axis in memory counts, not the last one."""
    ends, results = [], []
    for cost in (lower.REPEATED_COST, 1 << 30):
        monkeypatch.setattr(lower, "REPEATED_COST", cost)
        monkeypatch.setattr(program, "programs", {})
        with gh.profile() as prof:
            y = spread(order)
            gh.eval(y)
        results.append(len(prof.kernels()))
        ends.append(y.numpy().tobytes())
    assert results == counts
    assert ends[0] == ends[1]


def masked(layers: int):
    """Scores of four heads in some layers, each added to the same mask, made of positions."""
    rng = np.random.default_rng(0)
    x = gh.tensor(rng.standard_normal((4, 64, 64), np.float32))
    key = gh.tensor(rng.standard_normal(64, np.float32))
    mask = gh.where(gh.exp(key[:, None]) < gh.exp(key), 0.0, -1e9)
    products = [gh.tensor(rng.standard_normal((64, 64), np.float32)) for _ in range(layers)]
    for product in products:
        x = gh.sin(x + mask) @ product
    return x


def test_what_many_layers_repeat_a_few_times_is_stored(monkeypatch):
    with gh.profile() as prof:
        stored = masked(6).numpy()
    assert [kernel.name for kernel in prof.kernels() if "exp" in kernel.name] == [
        "exp + less + where"
    ]
    monkeypatch.setattr(lower, "REPEATED_COST", 1 << 30)
    monkeypatch.setattr(program, "programs", {})
    np.testing.assert_array_equal(stored, masked(6).numpy())


def test_a_mean_is_divided_once_before_it_is_taken_off():
    """A division takes as long as eight additions: not one for each element."""
    x = gh.tensor(np.random.default_rng(0).standard_normal((1000, 64), np.float32))
    with gh.profile() as prof:
        gh.eval(x - gh.sum(x, axis=0, keepdims=True) / 1000)
    assert len(prof.kernels()) == 3
