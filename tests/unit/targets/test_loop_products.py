"""Products of few rows by a constant matrix in loops: the same as NumPy's, and in our kernels."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import describe_steps
from glasshouse.compile.programs import program
from glasshouse.graph import record
from glasshouse.targets.cpu.kernels.loop_products import FEW_ELEMENTS, ROWS

LENGTH = 3


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def in_a_loop(rows, w, turned: bool):
    """(what each step multiplies, summed with its own result; names of the steps)."""
    gh.backends.current().evaluate()
    columns = w.shape[0] if turned else w.shape[1]
    start = gh.zeros((rows.shape[1], columns))
    w = gh.asarray(w)

    def step(total, x):
        total = total + x @ (w.T if turned else w)
        return total, total

    _, ys = gh.scan(step, start, gh.asarray(rows))
    with program.plans_kept():
        kernel_program = program.compiled(record.describe(record.recorder.pending))
    return ys.numpy(), describe_steps(kernel_program.plan)


def expected(rows, w, turned: bool):
    wide = rows.astype(np.float64) @ (w.T if turned else w)
    return np.cumsum(wide, axis=0)


@pytest.mark.sample(15)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("depth, columns", [(1030, 256), (512, 512), (333, 800), (4096, 64)])
@pytest.mark.parametrize("rows", [8, 13, 32, 48])
def test_products_are_numpys(rows, depth, columns, turned):
    x, w = drawn(LENGTH, rows, depth), drawn(*(columns, depth) if turned else (depth, columns))
    result, steps = in_a_loop(x, w, turned)
    assert steps.count("panels") == 2
    np.testing.assert_allclose(result, expected(x, w, turned), rtol=1e-4, atol=1e-3)


OTHERS = {
    "few rows": (ROWS[0] - 1, 512, 512),
    "many rows": (ROWS[-1] + 1, 512, 512),
    "odd columns": (8, 512, 515),
    "a small matrix": (8, FEW_ELEMENTS // 32 - 1, 32),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_are_onednns(name):
    rows, depth, columns = OTHERS[name]
    x, w = drawn(LENGTH, rows, depth), drawn(depth, columns)
    result, steps = in_a_loop(x, w, False)
    assert "panels" not in steps
    np.testing.assert_allclose(result, expected(x, w, False), rtol=1e-4, atol=1e-3)


def test_a_matrix_that_changes_is_not_brought_into_panels():
    def step(w, x):
        return w * 0.5, x @ w

    gh.backends.current().evaluate()
    x, w = drawn(LENGTH, 8, 512), drawn(512, 512)
    _, ys = gh.scan(step, gh.asarray(w), gh.asarray(x))
    with program.plans_kept():
        kernel_program = program.compiled(record.describe(record.recorder.pending))
    assert "panels" not in describe_steps(kernel_program.plan)
    scales = 0.5 ** np.arange(LENGTH)[:, None, None]
    np.testing.assert_allclose(ys.numpy(), (x @ w) * scales, rtol=1e-4, atol=1e-3)
