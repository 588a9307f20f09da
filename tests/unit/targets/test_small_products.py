"""Small products, and those of float64, which kernels of ours compute: in each order of their
loops."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.targets.cpu.kernels import double_products
from glasshouse.targets.cpu.kernels.double_products import tiles_text
from glasshouse.targets.cpu.kernels.small_products import SmallProducts

SMALL = [(7, 5, 1), (1, 9, 6), (33, 17, 8), (3, 40, 2), (5, 1, 5), (1, 1, 1)]
LARGER = [(2000, 20, 1), (20, 2000, 1), (13, 3, 1), (40, 900, 40), (37, 300, 51), (2, 70, 9)]
SHAPES = [*SMALL, *LARGER]
TURNS = [(False, False), (True, False), (False, True), (True, True)]


def operand(shape, turned, draws):
    array = draws.standard_normal(shape[::-1] if turned else shape)
    return array, (lambda x: x.T) if turned else (lambda x: x)


@pytest.mark.parametrize("rows, depth, columns", SHAPES)
@pytest.mark.parametrize("turns", TURNS)
def test_products_are_numpys_and_run_as_kernels(rows, depth, columns, turns):
    draws = np.random.default_rng(0)
    (a, turn_a), (b, turn_b) = (
        operand(shape, turned, draws)
        for shape, turned in zip(((rows, depth), (depth, columns)), turns, strict=True)
    )
    captured = gh.optimize(lambda x, y: gh.matmul(turn_a(x), turn_b(y)) + 1.0, nopython=True)
    before = gh.backends.current().fallbacks["matmul"]
    for _ in range(2):
        result = captured(gh.asarray(a), gh.asarray(b))
        np.testing.assert_allclose(
            result.numpy(), turn_a(a) @ turn_b(b) + 1.0, rtol=1e-11, atol=1e-12
        )
    assert gh.backends.current().fallbacks["matmul"] == before


def test_parts_of_a_matrix_are_read_where_they_lie():
    a = np.random.default_rng(1).standard_normal((12, 10))
    captured = gh.optimize(lambda x: gh.matmul(x[1:9:2, 2:], x[:8, 3:7]), nopython=True)
    np.testing.assert_allclose(
        captured(gh.asarray(a)).numpy(), a[1:9:2, 2:] @ a[:8, 3:7], rtol=1e-12
    )


@pytest.mark.parametrize("rows, depth", [(8, 5), (40, 300), (53, 17), (128, 300)])
@pytest.mark.parametrize("turned", [False, True])
def test_half_of_a_symmetric_product_is_computed(rows, depth, turned, monkeypatch):
    """Elements below the diagonal are copies of those above: equal bit for bit."""
    texts = []

    def noted(*args):
        texts.append(tiles_text(*args))
        return texts[-1]

    monkeypatch.setattr(double_products, "tiles_text", noted)
    x = np.random.default_rng(4).standard_normal((depth, rows) if turned else (rows, depth))
    turn = (lambda x: x.T) if turned else (lambda x: x)
    captured = gh.optimize(lambda x: gh.matmul(turn(x), turn(x).T), nopython=True)
    result = captured(gh.asarray(x)).numpy()
    np.testing.assert_allclose(result, turn(x) @ turn(x).T, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(result, result.T)
    assert ["gh_mirror(" in text for text in texts] == [True]


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 30])
def test_a_row_by_a_vector_has_the_same_bits_whatever_rows_are_beside_it(rows):
    draws = np.random.default_rng(5)
    a, x = draws.standard_normal((rows, 23)), draws.standard_normal(23)
    captured = gh.optimize(lambda a, x: a @ x, nopython=True)
    whole = captured(gh.asarray(a), gh.asarray(x)).numpy()
    single = [captured(gh.asarray(row[None]), gh.asarray(x)).numpy()[0] for row in a]
    np.testing.assert_array_equal(whole, single)


def test_large_products_are_left_to_numpy():
    a = gh.asarray(np.random.default_rng(2).standard_normal((400, 400)))
    before = gh.backends.current().fallbacks["matmul"]
    gh.optimize(lambda x: gh.matmul(x, x), nopython=True)(a).numpy()
    assert gh.backends.current().fallbacks["matmul"] == before + 1


@pytest.mark.parametrize("rows, depth, columns", SMALL)
@pytest.mark.parametrize("turns", TURNS)
def test_products_of_float32_in_a_loop_are_kernels(rows, depth, columns, turns, monkeypatch):
    draws = np.random.default_rng(3)
    (a, turn_a), (b, turn_b) = (
        operand(shape, turned, draws)
        for shape, turned in zip(((rows, depth), (depth, columns)), turns, strict=True)
    )
    a, b = a.astype(np.float32), b.astype(np.float32)

    def step(i, state):
        factor, sums, x, y = state
        return factor * 0.5, sums + (turn_a(x) * factor) @ turn_b(y), x, y

    texts = []
    plan = SmallProducts.plan

    def noted(self, lowering, claim):
        texts.append(claim.last.op)
        return plan(self, lowering, claim)

    monkeypatch.setattr(SmallProducts, "plan", noted)
    with flags.override(compile="always"):
        start = gh.ones(()), gh.zeros((rows, columns)), gh.asarray(a), gh.asarray(b)
        result = gh.fori_loop(0, 3, step, start)[1].numpy()
    product = turn_a(a.astype(np.float64)) @ turn_b(b.astype(np.float64))
    np.testing.assert_allclose(result, product * 1.75, rtol=1e-5, atol=1e-5)
    assert texts == ["matmul"]
