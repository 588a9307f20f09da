"""Products of a few rows by a matrix: NumPy's, in our kernel where columns lie in one piece."""

from math import prod

import ml_dtypes
import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import describe_steps
from glasshouse.compile.programs import program
from glasshouse.graph import record
from glasshouse.targets.cpu.kernels import few_rows
from glasshouse.targets.cpu.onednn import library as onednn


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


KINDS = {"float32": 1e-4, "bfloat16": 2**-8}  # and what a rounded sum may differ by
lacks_bfloat16 = onednn.lacks(gh.bfloat16)  # such products are widened before


@pytest.mark.sample(26)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [7, 8, 63, 64, 65, 200])
@pytest.mark.parametrize("depth", [33, 48, 64, 100])
@pytest.mark.parametrize("lead", [(1,), (1, 1), (2, 1), (3,), (1, 4), (5,), (6,), (7,), (8,)])
def test_rows_times_a_matrix_is_numpys(lead, depth, columns, kind):
    rng = np.random.default_rng(depth + columns)
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    x = rng.standard_normal((*lead, depth)).astype(dtype)
    w = rng.standard_normal((columns, depth)).astype(dtype)
    y, steps = multiplied(x, w)
    is_ours = kind == "float32" or prod(lead) <= few_rows.MOST_BRIEF and not lacks_bfloat16
    assert ("few_rows matmul" in steps) == is_ours
    expected = x.astype(np.float64) @ w.astype(np.float64).T
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=KINDS[kind], atol=1e-4)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nans_stay_in_their_rows_and_columns(value):
    x, w = (np.ones((2, 64), ml_dtypes.bfloat16), np.ones((9, 64), ml_dtypes.bfloat16))
    x[1, 5], w[3, 7] = value, -value
    y = multiplied(x, w)[0].astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_array_equal(y, expected)


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
