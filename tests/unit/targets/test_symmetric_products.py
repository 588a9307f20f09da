"""Symmetric products: half is computed. The twins are the whole product of oneDNN, and NumPy's."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn import symmetric_products

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not here")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No other Programs, and products of few rows are worth it."""
    monkeypatch.setattr(symmetric_products, "LEAST", 8)
    monkeypatch.setattr(symmetric_products, "STRIP", 16)
    with gh.backends.use("lazy") as backend, flags.override(compile="always", cache=""):
        backend.evaluate()
        monkeypatch.setattr(program, "programs", {})
        yield


def symmetric_steps() -> list:
    entries = program.programs.values()
    infos = [info for e in entries if e.program for info in e.program.step_infos()]
    return [info for info in infos if info.step_kind.label == "half product"]


def values(*shape) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def polynomial(x):
    gram = x @ x.mT
    square = gram @ gram
    return (square * 0.5 - gram * 0.1) @ gram


def with_identity(x):
    gram = x @ x.mT
    one = gh.eye(gram.shape[0], dtype=gram.dtype)
    return (gram - one * gh.sum(gram * one)) @ gram


PRODUCTS = {
    "rows": (lambda x: x @ x.mT, (40, 24)),
    "columns": (lambda x: x.mT @ x, (24, 40)),
    "one strip": (lambda x: x @ x.mT, (16, 24)),
    "a last strip of one row": (lambda x: x @ x.mT, (33, 24)),
    "a stack": (lambda x: x @ x.mT, (2, 3, 40, 24)),
    "of a turned matrix": (lambda x: (lambda y: y @ y.mT)(x.mT * 2), (24, 40)),
    "the square of a product": (lambda x: (lambda g: g @ g)(x @ x.mT), (40, 24)),
    "a polynomial": (polynomial, (40, 24)),
    "a polynomial with the identity": (with_identity, (40, 24)),
}

PRODUCT_COUNTS = {
    "the square of a product": 2,
    "a polynomial": 3,
    "a polynomial with the identity": 2,
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_half_a_product_gives_what_the_whole_gives(name, dtype, monkeypatch):
    function, shape = PRODUCTS[name]
    array = values(*shape) / 8

    def result():
        return function(gh.asarray(array).astype(dtype)).astype("float64").numpy()

    outcome = result()
    products = [info for info in symmetric_steps() if info.sources]
    assert len(products) == PRODUCT_COUNTS.get(name, 1)
    monkeypatch.setattr(symmetric_products, "LEAST", 1 << 30)
    monkeypatch.setattr(program, "programs", {})
    whole = result()
    assert not symmetric_steps()
    with gh.backends.use("numpy"):
        exact = function(gh.asarray(array.astype(np.float64))).numpy()
    size = np.abs(exact).max()
    error = np.abs(whole - exact).max()
    for same in (outcome, outcome.swapaxes(-1, -2)):
        assert np.abs(same - exact).max() <= 2 * error + 1e-7 * size


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ (x * 2).mT,
        lambda x: x[:24] @ x[8:32].mT,
        lambda x: (x @ x.mT) @ (x[:, :12] @ x[:, :12].mT),
        lambda x: (lambda g: (g + 1) @ g)(x @ x.mT[:, ::-1]),
    ],
)
def test_other_products_are_computed_whole(function):
    x = gh.asarray(values(40, 24))
    result = function(x).numpy()
    assert len([info for info in symmetric_steps() if info.sources]) <= 2
    with gh.backends.use("numpy"):
        expected = function(gh.asarray(x.numpy())).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_what_is_not_computed_is_not_counted():
    x = gh.asarray(values(32, 24))
    gh.eval(x @ x.mT)
    infos = symmetric_steps()
    whole = 2 * 32 * 32 * 24
    assert sum(info.saved_flops for info in infos) == whole // 4
    assert sum(info.executed_flops for info in infos) == whole - whole // 4
