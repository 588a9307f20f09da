"""Data of tests: drawn from their module's generator, which each test's name seeds."""

import numpy as np
import pytest

rng = np.random.default_rng(0)
FIRST = {1: 0.7677740167122988, 3: 0.4773360866726907}


@pytest.mark.parametrize("count", FIRST)
def test_the_first_draw_depends_on_the_name_alone(count):
    assert rng.random(count)[0] == FIRST[count]
