"""Kernels that are merged stay kernels that can be written."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.nn import functional as F

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def compiled_at_once():
    with flags.override(compile="always"):
        yield


def gradients_behind_a_mean() -> list[np.ndarray]:
    """Of a batch norm whose results are averaged: its gradient's sums read no order of axes, and
    what follows them lies channels last, for the convolution."""
    gh.random.seed(0)
    rng = np.random.default_rng(0)
    images = gh.tensor(rng.standard_normal((2, 16, 2, 2)).astype(np.float32))
    weight = gh.tensor(rng.standard_normal((96, 5)).astype(np.float32))
    model = nn.Sequential(nn.Conv2d(16, 96, 1), nn.BatchNorm2d(96))
    pooled = F.relu(model(images)).mean(axis=(2, 3)) + model(images).mean(axis=(2, 3))
    gh.exp(pooled @ weight / 50).sum().backward()
    return [parameter.grad.numpy() for parameter in model.parameters()]


@pytest.mark.slow
def test_an_operand_that_turns_the_loops_is_not_merged_with_sums_of_rows():
    with gh.backends.use("lazy"):
        compiled = gradients_behind_a_mean()
    with gh.backends.use("numpy"):
        expected = gradients_behind_a_mean()
    for value, reference in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-6)


def test_values_of_narrow_floats_are_rounded_once_and_stored_as_they_are():
    """Positions, sums and products beyond what 8 bits hold, by kernels and by the references."""

    def values():
        positions = gh.arange(600, dtype="bfloat16")
        filled = gh.full((600,), 259, dtype="bfloat16")
        return positions, positions + 1, filled, (positions * filled).sum(), -positions

    with flags.override(compile="always"):
        results = [x.numpy() for x in values()]
    with gh.backends.use("numpy"):
        expected = [x.numpy() for x in values()]
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))


@pytest.mark.parametrize("shape", [(1, 2, 3), (2, 1, 3), (1,)])
def test_what_a_value_is_gathered_from_is_stored_though_its_axis_has_size_1(shape):
    """Each element is read where it was made, but at a position that is computed."""
    x = gh.tensor(np.arange(1, 7, dtype=np.float32)[: np.prod(shape)].reshape(shape))
    index = gh.tensor(np.zeros(1, np.int64))
    result = x / 3
    taken = gh.take(result, index, axis=shape.index(1)) * 2
    np.testing.assert_allclose(taken.numpy(), x.numpy() / 3 * 2, rtol=1e-6)
