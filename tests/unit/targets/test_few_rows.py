"""Products of a few rows by a matrix: NumPy's, in our kernel where columns lie in one piece."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import describe_steps
from glasshouse.compile.programs import program
from glasshouse.graph import record


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")


def multiplied(x, w):
    """(x wᵀ, the steps of its Program)."""
    gh.backends.current().evaluate()
    y = gh.asarray(x) @ gh.asarray(w).mT
    with program.plans_kept():
        kernel_program = program.compiled(record.describe(record.recorder.pending))
    return y.numpy(), describe_steps(kernel_program.plan)


@pytest.mark.sample(13)
@pytest.mark.parametrize("columns", [7, 8, 63, 64, 65, 200])
@pytest.mark.parametrize("depth", [33, 48])
@pytest.mark.parametrize("lead", [(1,), (1, 1), (2, 1), (3,), (1, 4), (5,), (6,), (7,), (8,)])
def test_rows_times_a_matrix_is_numpys(lead, depth, columns):
    rng = np.random.default_rng(depth + columns)
    x = rng.standard_normal((*lead, depth)).astype(np.float32)
    w = rng.standard_normal((columns, depth)).astype(np.float32)
    y, steps = multiplied(x, w)
    assert "few_rows matmul" in steps
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-4)


def test_many_rows_few_terms_and_other_layouts_are_not_ours():
    ones = np.ones((64, 64), np.float32)
    for x, w in ((ones[:9], ones), (ones[:1, :16], ones[:, :16])):
        y, steps = multiplied(x, w)
        assert "few_rows matmul" not in steps
        np.testing.assert_allclose(y, x @ w.T)
    gh.backends.current().evaluate()
    y = gh.asarray(ones[:1]) @ gh.asarray(ones)
    with program.plans_kept():
        kernel_program = program.compiled(record.describe(record.recorder.pending))
    assert "few_rows matmul" not in describe_steps(kernel_program.plan)
    np.testing.assert_allclose(y.numpy(), ones[:1] @ ones)


def test_the_layers_of_a_linear_map_with_a_bias_are_right():
    layer, x = gh.nn.Linear(40, 70), gh.random.normal((1, 1, 40))
    y = gh.optimize(layer)(x)
    expected = x.numpy() @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-5)
