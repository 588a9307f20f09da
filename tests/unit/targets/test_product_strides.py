"""Products of stacks of one matrix: strides of axes of size 1 tell oneDNN nothing."""

import numpy as np

import glasshouse as gh
from glasshouse.base.flags import flags


def test_stacks_of_one_matrix_that_lie_differently_have_primitives_of_their_own():
    """oneDNN's cache took one for the other, which ran without scratch memory."""
    rng = np.random.default_rng(0)
    rows, matrix = rng.normal(size=(1, 37, 8)), rng.normal(size=(1, 24, 8))
    rows, matrix = (gh.asarray(x.astype(np.float32)) for x in (rows, matrix))
    with flags.override(compile="always"), gh.backends.use("lazy"):
        flipped = gh.swapaxes(matrix, -1, -2)
        packed, part = gh.matmul(rows[:, :2] * 2, flipped), gh.matmul(rows[:, 35:], flipped)
        gh.eval(packed, part)
    expected = rows.numpy()[:, 35:] @ np.swapaxes(matrix.numpy(), -1, -2)
    np.testing.assert_allclose(part.numpy(), expected, rtol=1e-5, atol=1e-5)
