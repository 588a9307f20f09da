"""Gradients of weights of convolutions: as convolutions or as products, those of the references."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.nn.functional import conv2d

CASES = {  # channels in and out, kernel, size, options
    "product, few positions": (128, 130, 1, 7, {}),
    "product, more channels out": (64, 256, 1, 20, {}),
    "convolution, fewer channels out": (256, 64, 1, 20, {}),
    "stride": (4, 6, 1, 9, {"stride": 2}),
    "padding": (4, 6, 1, 5, {"padding": 1}),
    "groups": (4, 6, 1, 5, {"groups": 2}),
    "kernel": (4, 6, 3, 8, {"padding": 1}),
}


def gradient(backend: str, case, dtype: str):
    """The weight's gradient on a backend."""
    channels, out_channels, kernel, size, options = case
    rng = np.random.default_rng(0)
    groups = options.get("groups", 1)
    x, w = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in ((2, channels, size, size), (out_channels, channels // groups, kernel, kernel))
    )
    with gh.backends.use(backend), flags.override(compile="always"):
        x, w = (gh.asarray(a).astype(dtype) for a in (x, w))
        loss = lambda weight: (conv2d(x, weight, **options).float() ** 2).sum() / x.size  # noqa: E731
        return gh.grad(loss)(w).float().numpy()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_weight_gradients_are_those_of_the_references(name, dtype):
    result, expected = (gradient(backend, CASES[name], dtype) for backend in ("lazy", "numpy"))
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(
        result, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )
