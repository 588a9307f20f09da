"""Fourier transforms by kernels of ours: as the references compute them."""

from functools import partial

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.targets.cpu.kernels.fourier import MOST, is_taken

SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 15, 16, 25, 60, 400)
TOLERANCE = {"float32": 2e-6, "float64": 2e-15}
TRANSFORMS = {
    "fft": gh.fft.fft,
    "ifft": gh.fft.ifft,
    "rfft": gh.fft.rfft,
    "irfft": lambda x, n, axis: gh.fft.irfft(x, n=n, axis=axis),
}


def draw(name, shape, n, axis, dtype):
    rng = np.random.default_rng(n)
    if name == "irfft":
        shape = (*shape[:axis], n // 2 + 1, *shape[axis + 1 :])
    x = rng.normal(size=shape).astype(dtype)
    return x if name == "rfft" else x + 1j * rng.normal(size=shape).astype(dtype)


def both(calls):
    """The results of (function, array) by kernels alone, of one Program, and by the references in
    float64."""
    with gh.backends.use("lazy") as backend:
        with flags.override(compile="always"):
            backend.evaluate()
            before = backend.fallbacks.copy()
            results = [fn(gh.asarray(x)) for fn, x in calls]
            gh.eval(*results)
            assert not backend.fallbacks.since(before)
        wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for _, x in calls]
        with flags.override(compile="never"):
            expected = [fn(gh.asarray(x)).numpy() for (fn, _), x in zip(calls, wide, strict=True)]
    return [y.numpy() for y in results], expected


def check(*calls):
    dtype = calls[0][1].real.dtype.name
    for got, expected in zip(*both(calls), strict=True):
        assert got.real.dtype.name == dtype and got.shape == expected.shape
        np.testing.assert_allclose(
            got, expected, rtol=0, atol=TOLERANCE[dtype] * abs(expected).max()
        )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_sizes_along_the_last_axis_and_another(name, dtype):
    shapes = [case for n in SIZES for case in ((n, (2, n), 1), (n, (2, n, 19), 1))]
    check(
        *[
            (partial(TRANSFORMS[name], n=n, axis=axis), draw(name, shape, n, axis, dtype))
            for n, shape, axis in shapes
        ]
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_several_axes_one_after_the_other(dtype):
    x = draw("fft", (6, 5, 8), 8, 2, dtype)
    functions = (gh.fft.fftn, gh.fft.ifftn, gh.fft.fft2, lambda x: gh.fft.rfftn(gh.real(x)))
    turned = (lambda x: gh.fft.fft(gh.permute_dims(x, (2, 1, 0))), x)  # not row by row
    check(turned, *[(fn, x) for fn in functions])


def test_a_large_transform():
    check((gh.fft.rfft, draw("rfft", (8192,), 8192, 0, "float64")))


def test_the_frequencies_of_a_real_signal_that_stand_alone_are_real():
    with gh.backends.use("lazy"), flags.override(compile="always"):
        y = gh.fft.rfft(gh.asarray(draw("rfft", (3, 12), 12, 1, "float64"))).numpy()
        assert np.all(y[:, [0, -1]].imag == 0)
        parts = gh.asarray(np.array([1 + 5j, 2, 3 + 7j]))  # of the first and last, one is not read
        np.testing.assert_allclose(gh.fft.irfft(parts).numpy(), [2, -0.5, 0, -0.5], atol=1e-15)


def test_infinities_and_nan_go_where_they_reach():
    x = draw("fft", (2, 16), 16, 1, "float64")
    x[1, 3] = np.nan
    (got,), _ = both([(gh.fft.fft, x)])
    assert np.isnan(got[1]).all() and np.isfinite(got[0]).all()


def test_other_sizes_are_the_references():
    assert [n for n in range(1, 22) if not is_taken(n)] == [7, 11, 13, 14, 17, 19, 21]
    assert is_taken(MOST) and not is_taken(2 * MOST)
    with gh.backends.use("lazy"), flags.override(compile="always"):
        x = np.random.default_rng(0).normal(size=14)
        np.testing.assert_allclose(gh.fft.rfft(gh.asarray(x)).numpy(), np.fft.rfft(x), atol=1e-13)


def test_gradients_pass_through():
    x = gh.asarray(np.random.default_rng(0).normal(size=(3, 20)))

    def energy(x):
        return gh.sum(gh.abs(gh.fft.rfft(x, axis=1)) ** 2)

    with gh.backends.use("lazy"), flags.override(compile="always"):
        got = gh.grad(energy)(x).numpy()
    with gh.backends.use("lazy"), flags.override(compile="never"):
        np.testing.assert_allclose(got, gh.grad(energy)(x).numpy(), rtol=1e-12)
