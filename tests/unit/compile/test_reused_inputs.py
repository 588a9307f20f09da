"""Results of an optimizer in the memory of what they replace."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.scope import phase


def address_of(tensor):
    return tensor.numpy().__array_interface__["data"][0]


@pytest.mark.parametrize("is_read_later", [False, True])
def test_a_product_takes_the_place_of_a_parameter_that_nothing_reads_any_more(is_read_later):
    rng = np.random.default_rng(0)
    factor, before = (rng.standard_normal(s).astype(np.float32) for s in ((64, 32), (64, 64)))
    with flags.override(compile="always"), gh.backends.use("lazy"):
        parameter = gh.asarray(before) + 0
        place = address_of(parameter)
        with phase("optimizer"):
            after = gh.asarray(factor) @ (parameter[:32] * 2)
            later = after @ parameter if is_read_later else after.sum()
        del parameter
        gh.eval(after, later)
    expected = factor @ (before[:32] * 2)
    np.testing.assert_allclose(after.numpy(), expected, rtol=1e-4, atol=1e-4)
    wanted = expected @ before if is_read_later else expected.sum()
    np.testing.assert_allclose(later.numpy(), wanted, rtol=1e-3, atol=1e-2)
    assert (address_of(after) == place) is not is_read_later
