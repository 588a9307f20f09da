"""Sums of columns by generated kernels: the order in which they are added up."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.kernels.loops import BLOCK


def added_in_order(x: np.ndarray) -> np.ndarray:
    """The sums of columns: of `BLOCK` rows in float32, of these and of blocks in float64."""
    blocks = min(64, -(-len(x) // BLOCK))
    ends = [block * len(x) // blocks for block in range(blocks + 1)]
    total = np.zeros(x.shape[1])
    for first, last in zip(ends, ends[1:]):
        part = np.zeros(x.shape[1])
        for low in range(first, last, BLOCK):
            run = np.zeros(x.shape[1], np.float32)
            for row in x[low : min(low + BLOCK, last)]:
                run += row
            part += run
        total += part
    return total.astype(np.float32)


@pytest.mark.parametrize("shape", [(9000, 17), (200, 64), (4100, 2)])
def test_sums_of_columns_are_added_in_the_order_of_their_blocks(monkeypatch, shape):
    monkeypatch.setattr(flags, "compile", "always")
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    value = gh.tensor(x)
    total, most = gh.sum(value, 0), gh.max(value, axis=0)
    np.testing.assert_array_equal(np.asarray(total), added_in_order(x))
    np.testing.assert_array_equal(np.asarray(most), x.max(0))
