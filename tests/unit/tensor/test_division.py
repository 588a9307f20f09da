"""Quotients, remainders and divisors of all pairs of numbers at the ends of every dtype."""

import math

import ml_dtypes
import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
FLOATS = "float16 bfloat16 float32 float64".split()
WAYS = [("numpy", "never"), ("lazy", "always")]


def ends_of(name: str) -> np.ndarray:
    """Numbers at the ends of a dtype and around 0, and some in between."""
    dtype = getattr(gh, name).np
    if name in INTEGERS:
        info = np.iinfo(dtype)
        middle = [info.min // 2, 0, 1, 2, 3, 7, 100, info.max // 2]
        numbers = [info.min, info.min + 1, *middle, info.max - 1, info.max]
        numbers += [-1, -2, -7] if info.min else []
        return np.array(sorted(set(numbers)), dtype)
    info = ml_dtypes.finfo(dtype)
    ends = [info.smallest_subnormal, info.tiny, info.eps, info.max]
    positive = np.array([0, *map(float, ends), 0.3, 1, 2.5, 7, 100, math.inf]).astype(dtype)
    return np.concatenate([positive, -positive, np.array([math.nan], dtype)])


def pairs_of(name: str):
    numbers = ends_of(name)
    return tuple(np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(numbers, numbers))


def wrapped(numbers, dtype) -> np.ndarray:
    """Python's integers in a dtype, as many bits of them as it has."""
    bits = 8 * dtype.itemsize
    return np.array([n & (1 << bits) - 1 for n in numbers], f"uint{bits}").view(dtype)


def rounded_down(x, y):
    return x // y if y else 0


def rounded_to_zero(x, y):
    return abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) if y else 0


OF_INTEGERS = {  # by Python's integers, which have no end
    "floor_divide": (gh.floor_divide, rounded_down),
    "remainder": (gh.remainder, lambda x, y: x % y if y else 0),
    "fmod": (gh.fmod, lambda x, y: x - rounded_to_zero(x, y) * y if y else 0),
    "div floor": (lambda x, y: gh.div(x, y, rounding_mode="floor"), rounded_down),
    "div trunc": (lambda x, y: gh.div(x, y, rounding_mode="trunc"), rounded_to_zero),
    "gcd": (gh.gcd, math.gcd),
    "lcm": (gh.lcm, math.lcm),
}


def quotient_rounded_down(x, y):
    """NumPy's; where one of both is infinite, the standard's."""
    return np.where(np.isinf(x) | np.isinf(y), np.floor(x / y), np.floor_divide(x, y))


OF_FLOATS = {
    "floor_divide": (gh.floor_divide, quotient_rounded_down),
    "div floor": (lambda x, y: gh.div(x, y, rounding_mode="floor"), quotient_rounded_down),
    "remainder": (gh.remainder, np.remainder),
    "fmod": (gh.fmod, np.fmod),
    "div trunc": (
        lambda x, y: gh.div(x, y, rounding_mode="trunc"),
        lambda x, y: np.trunc(x / y),
    ),
}


def computed(function, arrays, backend: str, compile: str) -> np.ndarray:
    with gh.backends.use(backend), flags.override(compile=compile):
        return function(*map(gh.asarray, arrays)).numpy()


@pytest.mark.sample(7)
@pytest.mark.parametrize("backend, compile", WAYS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, backend, compile):
    x, y = pairs_of(dtype)
    for name, (function, exact) in OF_INTEGERS.items():
        expected = wrapped(map(exact, x.tolist(), y.tolist()), x.dtype)
        got = computed(function, (x, y), backend, compile)
        wrong = np.flatnonzero(got != expected)
        shown = [(x[i], y[i], got[i], expected[i]) for i in wrong[:3]]
        assert got.dtype == x.dtype and not len(wrong), (name, shown)


@pytest.mark.parametrize("backend, compile", WAYS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype, backend, compile):
    x, y = pairs_of(dtype)
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype  # the exact remainder fits the dtype
    for name, (function, exact) in OF_FLOATS.items():
        with np.errstate(all="ignore"):
            expected = exact(x.astype(wide), y.astype(wide)).astype(x.dtype)
        got = computed(function, (x, y), backend, compile)
        same = (got == expected) & (np.signbit(got) == np.signbit(expected))
        wrong = np.flatnonzero(~(same | ((got != got) & (expected != expected))))
        shown = [(x[i], y[i], got[i], expected[i]) for i in wrong[:3]]
        assert got.dtype == x.dtype and not len(wrong), (name, shown)


def test_slopes_of_fmod_are_pytorchs():
    torch = pytest.importorskip("torch")
    x = np.array([5.5, -5.5, 5.5, 0.0, -0.0, 3.0, -3.0])
    y = np.array([2.0, 2.0, -2.0, 2.0, 2.0, math.inf, -math.inf])
    ours = [gh.tensor(v, requires_grad=True) for v in (x, y)]
    theirs = [torch.tensor(v, requires_grad=True) for v in (x, y)]
    gh.fmod(*ours).sum().backward()
    torch.fmod(*theirs).sum().backward()
    for mine, other in zip(ours, theirs):
        np.testing.assert_array_equal(mine.grad.numpy(), other.grad.numpy())


def test_slopes_of_powers_of_zero_are_pytorchs():
    torch = pytest.importorskip("torch")
    bases = [0.0, -0.0, 0.5, 1.0]
    x, y = map(np.ravel, np.meshgrid(bases, [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]))
    for dtype in ("float64", "float32"):
        ours = [gh.tensor(v, dtype=dtype, requires_grad=True) for v in (x, y)]
        theirs = [torch.tensor(v.astype(dtype), requires_grad=True) for v in (x, y)]
        got, expected = gh.pow(*ours), torch.pow(*theirs)
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
        got.sum().backward()
        expected.sum().backward()
        for mine, other in zip(ours, theirs):
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-6)
