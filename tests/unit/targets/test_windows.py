"""Kernels of windows, beside the cards' definitions: to the last bit, in both orders of axes."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.nn import functional as F

OPTIONS = [  # size, stride, padding, dilation, ceil_mode
    (3, 2, 1, 1, False),
    (2, 2, 0, 1, False),
    (2, 2, 1, 1, False),
    ((3, 2), (1, 2), (1, 0), 1, True),
    ((2, 3), (2, 1), (1, 1), (3, 2), False),
    (3, 3, 1, 1, True),
]
LAST = pytest.mark.parametrize("last", [True, False])  # whether channels lie innermost in memory


def draw(dtype, last: bool):
    """Images with ties, infinities and NaN, a leaf, and their gradients."""
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (2, 11, 19, 5) if last else (2, 5, 11, 19)).astype(np.float64)
    values[rng.random(values.shape) < 0.5] = -np.inf
    values[rng.random(values.shape) < 0.02] = np.nan
    leaf = gh.tensor(values, dtype=dtype, requires_grad=True)
    g = rng.integers(-9, 9, (2, 5, 13, 21))
    return leaf, gh.permute_dims(leaf, (0, 3, 1, 2)) if last else leaf, g


def compare(function):
    """Compare what a function gives compiled with what it gives from the cards' definitions."""
    results = {}
    for backend in ("lazy", "numpy"):
        with gh.backends.use(backend), flags.override(compile="always"):
            results[backend] = [r.detach().to("float64").numpy() for r in function()]
    for got, expected in zip(results["lazy"], results["numpy"], strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.sample(8)
@pytest.mark.parametrize("options", OPTIONS)
@LAST
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_kernels_are_the_cards_to_the_last_bit(options, last, dtype):
    def both_passes():
        leaf, images, g = draw(dtype, last)
        y = F.max_pool2d(images, *options)
        y.backward(gh.tensor(g[..., : y.shape[2], : y.shape[3]], dtype=dtype))
        return y, leaf.grad

    compare(both_passes)


@pytest.mark.parametrize("options", OPTIONS)
@LAST
def test_places_are_the_cards(options, last):
    compare(lambda: F.max_pool2d(draw("float32", last)[1], *options, True))


@LAST
def test_a_padded_value_that_others_read_is_pooled_alike(last):
    """The windows read what is inside its edge, whoever else reads it."""

    def padded_and_pooled():
        _, images, _ = draw("float32", last)
        padded = F.pad(images, (1, 1, 1, 1), value=2.0)
        return padded, F.max_pool2d(padded, 3, 2)

    compare(padded_and_pooled)
