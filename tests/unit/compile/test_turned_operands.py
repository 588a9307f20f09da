"""Operands that lie across one another in memory, and are summed: one is brought into line."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.compile.programs import program


def operands(size: int):
    """The same values, and tensors of them: channels last in memory, and row by row."""
    rng = np.random.default_rng(size)
    last, rows = rng.standard_normal((2, 8, size, size, 16), np.float32)
    rows = rows.transpose(0, 3, 1, 2).copy()
    tensors = gh.permute(gh.asarray(last), (0, 3, 1, 2)), gh.asarray(rows)
    return (last.transpose(0, 3, 1, 2), rows), tensors


def steps() -> list:
    programs = [entry.program for entry in program.programs.values() if entry.program]
    return [info for p in programs for info in p.step_infos()]


def gradient(x, g, total):
    """As the gradient of a batch norm is made of its input and the gradient of its result."""
    masked = g * (g > 0)
    return masked, total(masked), total(masked * x)


@pytest.mark.parametrize("size", [4, 32])
def test_sums_of_what_lies_otherwise(alone, size):
    (x, g), inputs = operands(size)
    results = gradient(*inputs, lambda v: gh.sum(v, (0, 2, 3)))
    gh.eval(*results)
    wanted = gradient(x, g, lambda v: v.sum((0, 2, 3), dtype=np.float64))
    for result, exact in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result.numpy(), exact, rtol=1e-4, atol=1e-3)
    # The masked values and their sum; of many also a copy channels last, and its sum with x.
    outputs = [info.name for info in steps() if info.name != "permute"]
    assert len(outputs) == (1 if size == 4 else 3)
