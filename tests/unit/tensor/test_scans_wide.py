"""Running sums and products of many numbers, against float64: rounded once, not at each step."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

COUNT = 300_000
WAYS = [("numpy", "never"), ("lazy", "always"), ("torch", "never")]


def close_to_one(shape) -> np.ndarray:
    return 1 + 1e-3 * np.random.default_rng(0).standard_normal(shape)


def positive(shape) -> np.ndarray:
    return np.random.default_rng(1).random(shape) + 0.1


def in_order(function):
    return lambda x, axis: function(x, axis=axis, dtype=np.result_type(x, np.float64))


SCANS = {  # ours, in float64, numbers
    "cumsum": (gh.cumsum, in_order(np.cumsum), positive),
    "cumprod": (gh.cumprod, in_order(np.cumprod), close_to_one),
}


@pytest.mark.sample(23)
@pytest.mark.parametrize("backend, compile", WAYS)
@pytest.mark.parametrize("shape, axis", [((COUNT,), 0), ((2, COUNT), 1), ((COUNT, 3), 0)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", SCANS)
def test_scans_are_as_exact_as_their_dtype(name, dtype, shape, axis, backend, compile):
    if backend == "torch":
        pytest.importorskip("torch")
    ours, reference, numbers = SCANS[name]
    x = numbers(shape).astype(dtype)
    if dtype == "complex64":
        x *= np.exp(1e-3j).astype(dtype)
    with gh.backends.use(backend), flags.override(compile=compile):
        got = ours(gh.asarray(x), axis).numpy()
    wanted = reference(x, axis)
    assert got.dtype == x.dtype
    assert np.max(np.abs(got - wanted) / np.abs(wanted)) < 2 * np.finfo(np.float32).eps


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 63, 64, 65, 513])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_products_of_any_length_are_pytorchs(size, axis):
    torch = pytest.importorskip("torch")
    shape = (size, 3) if axis == 0 else (2, size)
    x = np.random.default_rng(2).standard_normal(shape) * 2
    if size:
        x[tuple(n // 2 for n in shape)] = 0
    ours, theirs = gh.asarray(x).requires_grad_(), torch.from_numpy(x).requires_grad_()
    weights = np.random.default_rng(3).standard_normal(shape)
    y, wanted = gh.cumprod(ours, axis), torch.cumprod(theirs, axis)
    (y * gh.asarray(weights)).sum().backward()
    (wanted * torch.from_numpy(weights)).sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-12)
