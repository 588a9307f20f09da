"""Operands of products that lie across: copied by our kernels, or read as they lie by oneDNN."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.compile.building.toolchain import threads_used
from glasshouse.compile.programs import program
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn import products as onednn_products
from glasshouse.targets.cpu.onednn.products import COLUMNS_ACROSS, TERMS_ACROSS

pytestmark = [
    pytest.mark.usefixtures("without_bf16x6"),
    pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not here"),
]
needs_panels = pytest.mark.skipif(
    onednn.library() is None or not onednn.library().chooses_panels,
    reason="oneDNN takes matrices as they lie here",
)
LAID_OUT = {"first": (True, False), "second": (False, True), "both": (True, True)}


def whole_numbers(rows: int, columns: int, across: bool):
    """A matrix whose products are exact in float32, perhaps with its columns in memory."""
    rng = np.random.default_rng(rows * columns)
    matrix = rng.integers(-8, 9, (rows, columns)).astype(np.float32)
    operand = gh.asarray(np.ascontiguousarray(matrix.T) if across else matrix)
    return matrix, operand.T if across else operand


def copies() -> int:
    entries = [entry.program for entry in program.programs.values() if entry.program]
    return sum(info.kind == "transpose" for p in entries for info in p.step_infos())


@needs_panels
@pytest.mark.parametrize("across", LAID_OUT)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [(1024, 768, 1024), (1030, 1001, 1040), (1025, 777, 1025), (1100, 800, 1536)],
)
def test_products_are_exact(rows, columns, depth, across):
    a, b = LAID_OUT[across]
    first, x = whole_numbers(rows, depth, a)
    second, y = whole_numbers(depth, columns, b)
    np.testing.assert_array_equal((x @ y).numpy(), first @ second)
    assert copies() == a + (b and depth % 16 == 0)


@needs_panels
@pytest.mark.parametrize("across", LAID_OUT)
def test_onednns_reading_across_is_the_twin(monkeypatch, across):
    rng = np.random.default_rng(3)
    a, b = LAID_OUT[across]
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((1040, 1056), (1056, 800)))
    x, y = (gh.asarray(m.T.copy()).T if turned else gh.asarray(m) for m, turned in ((x, a), (y, b)))
    ours = (x @ y).numpy()
    assert copies() == a + b
    monkeypatch.setattr(onednn_products, "is_read_across", lambda view: False)
    monkeypatch.setattr(program, "programs", {})
    twin = (x @ y).numpy()
    assert copies() == 0
    np.testing.assert_allclose(ours, twin, rtol=0, atol=1e-5 * np.abs(twin).max())


@needs_panels
def test_parts_of_wider_matrices_are_copied():
    whole, x = whole_numbers(1100, 900, False)
    second, y = whole_numbers(TERMS_ACROSS, 800, False)
    part = x[20 : 20 + TERMS_ACROSS, 8:600].T
    np.testing.assert_array_equal(
        (part @ y).numpy(), whole[20 : 20 + TERMS_ACROSS, 8:600].T @ second
    )
    assert copies() == 1


@needs_panels
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_copy(threads):
    with threads_used(threads):
        first, x = whole_numbers(1070, 1088, True)
        second, y = whole_numbers(1088, 900, True)
        np.testing.assert_array_equal((x @ y).numpy(), first @ second)
        assert copies() == 2


@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [(512, COLUMNS_ACROSS - 1, TERMS_ACROSS), (512, 800, TERMS_ACROSS - 1)],
)
def test_a_first_operand_is_read_as_it_lies_where_a_copy_costs_more(rows, columns, depth):
    first, x = whole_numbers(rows, depth, True)
    second, y = whole_numbers(depth, columns, False)
    np.testing.assert_array_equal((x @ y).numpy(), first @ second)
    assert copies() == 0


@needs_panels
def test_a_gradient_of_a_layer_is_eagers():
    """Of the weight, the columns of the gradient are read."""
    rng = np.random.default_rng(4)
    values = [rng.standard_normal(s).astype(np.float32) for s in ((1040, 768), (300, 768))]

    def gradient():
        x, w = map(gh.tensor, values)
        w.requires_grad = True
        ((x @ w.T) ** 2).sum().backward()
        return w.grad.numpy()

    ours = gradient()
    assert copies() == 2
    with gh.backends.use("numpy"):
        expected = gradient()
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("across", LAID_OUT)
def test_matrices_are_read_as_they_lie_where_onednn_makes_panels_itself(monkeypatch, across):
    monkeypatch.setattr(onednn.library(), "chooses_panels", False)
    a, b = LAID_OUT[across]
    first, x = whole_numbers(1030, 1040, a)
    second, y = whole_numbers(1040, 1001, b)
    np.testing.assert_array_equal((x @ y).numpy(), first @ second)
    assert copies() == 0
