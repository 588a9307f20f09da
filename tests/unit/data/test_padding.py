"""PadCollate: samples whose leaves have any number of axes."""

import numpy as np
import pytest

from glasshouse.base.tree import flatten
from glasshouse.data import PadCollate


def samples_of(draw, ranks, count):
    """Samples whose leaves have these numbers of axes; scalars are of Python or NumPy."""

    def leaf(ndim):
        if ndim == 0:
            value = draw.integers(0, 9)
            return int(value) if draw.random() < 0.5 else value
        return draw.integers(0, 9, draw.integers(1, 5, ndim))

    return [tuple(leaf(ndim) for ndim in ranks) for _ in range(count)]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("seed", range(20))
def test_leaves_of_all_ranks_stand_in_the_padded_batch(seed, side):
    draw = np.random.default_rng(seed)
    ranks = draw.integers(0, 4, draw.integers(1, 5)).tolist()
    multiple = int(draw.integers(1, 4))
    samples = samples_of(draw, ranks, int(draw.integers(1, 5)))
    batch = PadCollate(value=-1, side=side, multiple=multiple).stack(samples)
    for place, padded in enumerate(flatten(batch)[0]):
        leaves = [np.asarray(sample[place]) for sample in samples]
        assert padded.shape[0] == len(samples)
        assert all(size % multiple == 0 for size in padded.shape[1:])
        for row, leaf in zip(padded, leaves, strict=True):
            row = np.asarray(row)
            own = tuple(
                slice(n) if side == "right" else slice(m - n, m)
                for n, m in zip(leaf.shape, row.shape, strict=True)
            )
            assert np.array_equal(row[own], leaf)
            assert (row == -1).sum() == row.size - leaf.size
