"""Kernels that go along an axis: the cards' references say what comes out, to the bit."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.dtype import bfloat16
from glasshouse.base.flags import flags
from glasshouse.dispatch import bind, primitives

FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("bool", "int8", "int64", "uint64")
SHAPES = [(1,), (37,), (3, 24), (2, 33, 270)]


@pytest.fixture(autouse=True)
def strict():
    """Programs that have a kernel for everything."""
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        with flags.override(compile="always", strict=True):
            yield


def numbers(shape, dtype: str, seed=0) -> np.ndarray:
    """Few values, so many ties; of floats also NaN, infinities and both zeros."""
    rng = np.random.default_rng(seed)
    kind = bfloat16.np if dtype == "bfloat16" else np.dtype(dtype)
    if dtype in FLOATS:
        x = rng.integers(-6, 7, shape) / 4
        for value in (-0.0, np.inf, -np.inf):
            x = np.where(rng.random(shape) < 0.1, value, x)
        if seed % 2:
            x = np.where(rng.random(shape) < 0.05, np.nan, x)
        return x.astype(kind)
    low, high = (0, 2) if dtype == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    x = rng.integers(low, high, shape, endpoint=True, dtype=kind if dtype != "bool" else "int64")
    x = x.astype(kind)
    return np.where(rng.random(shape) < 0.5, x, x.reshape(-1)[0])


def check(cases: list) -> None:
    """The results of all (card, operand, attrs), computed at once, are those of the references."""
    outputs = [listed(bind(primitives[name], (gh.asarray(x),), attrs)) for name, x, attrs in cases]
    gh.eval(*(y for results in outputs for y in results))
    for (name, x, attrs), results in zip(cases, outputs, strict=True):
        for ours, theirs in zip(results, listed(primitives[name].ref(x, **attrs)), strict=True):
            ours, theirs = ours.numpy(), np.asarray(theirs)
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            nan = theirs != theirs
            assert np.array_equal(ours != ours, nan)
            assert ours[~nan].tobytes() == theirs[~nan].tobytes(), (name, x, attrs)


def listed(results) -> list:
    return list(results) if isinstance(results, tuple) else [results]


CASES = [
    (name, dtype)
    for name in ("argmax", "argmin", "cumsum", "sort", "top_k")
    for dtype in (*FLOATS, *WHOLE)
    if (name, dtype) != ("cumsum", "bool")
]


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_axis_of_many_shapes(name, dtype):
    cases = []
    for seed, shape in enumerate(SHAPES):
        x, both = numbers(shape, dtype, seed), (False, True)
        if name == "top_k":
            cases += [(name, x, {"k": k}) for k in {1, shape[-1] // 2 + 1, shape[-1]}]
        elif name == "sort":
            cases += [(name, x, {"axis": i, "descending": t}) for i in range(x.ndim) for t in both]
        elif name == "cumsum":
            cases += [(name, x, {"axis": i, "reverse": t}) for i in range(x.ndim) for t in both]
        else:
            cases += [(name, x, {"axis": i}) for i in range(x.ndim)]
    with np.errstate(all="ignore"):
        check(cases)


def test_views_and_what_is_made_in_the_same_program():
    x = numbers((6, 50), "float32", 2)
    y = gh.permute_dims(gh.asarray(x), (1, 0))[::2] * 2
    want = x.T[::2] * 2
    assert gh.argmax(y, axis=0).tolist() == want.argmax(0).tolist()
    assert gh.argsort(y, axis=1).tolist() == np.argsort(want, 1, kind="stable").tolist()
    total = gh.cumulative_sum(gh.abs(y[:, 1]), axis=0) + 1
    assert np.array_equal(total.numpy(), np.cumsum(np.abs(want[:, 1])) + 1)


@pytest.mark.quick
def test_gradients_of_sorted_values_and_running_sums():
    x = gh.tensor(np.float32([3, 1, 2, 1]), requires_grad=True)
    weights = gh.asarray(np.float32([1, 10, 100, 1000]))
    (gh.sort(x) * weights).sum().backward()
    assert x.grad.tolist() == [1000, 1, 100, 10]
    x.grad = None
    (gh.cumulative_sum(x, axis=0) * weights).sum().backward()
    assert x.grad.tolist() == [1111, 1110, 1100, 1000]


def test_complex_running_sums_are_left_to_the_host():
    with flags.override(strict=False):
        x = gh.asarray(np.array([1j, 2], np.complex64))
        assert gh.cumulative_sum(x, axis=0).tolist() == [1j, 2 + 1j]
