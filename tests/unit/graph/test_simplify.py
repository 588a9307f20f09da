"""Rules of rewriting on graphs that are as deep as loops make them."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

STEPS = {
    "terms": lambda y: y + 0.5,
    "factors": lambda y: y * 1.001,
    "signs": lambda y: -y,
    "all": lambda y: (-y * 1.001 + 1) / 2,
}


@pytest.mark.parametrize("name", STEPS)
def test_the_sum_of_a_long_chain_is_compiled(name):
    def chain():
        y = gh.tensor(np.arange(12, dtype=np.float32).reshape(3, 4)) / 12
        for _ in range(600):
            y = STEPS[name](y)
        return [y.sum().numpy(), y.sum(axis=0).numpy()]

    with flags.override(compile="always"), gh.backends.use("lazy"):
        compiled = chain()
    with gh.backends.use("numpy"):
        expected = chain()
    for value, reference in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4)
