"""A check of first and second derivatives, for float64 and complex128 functions of tensors."""

import numpy as np
import pytest

from glasshouse.dispatch.value import as_value
from glasshouse.transforms.forward import jvp
from glasshouse.transforms.reverse import vjp

STEP = 1e-6


def as_tuple(x) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def normal(rng, shape, dtype):
    values = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.normal(size=shape)
    return values.astype(dtype)


def inner(xs, ys) -> float:
    """Re of the sum of conj(x) y, over lists of arrays."""
    return sum(float(np.sum(np.conj(x) * y).real) for x, y in zip(xs, ys, strict=True))


def forward(fn, arrays, tangents):
    """The derivative of fn along `tangents`, by jvp and by central differences."""
    _, exact = jvp(fn, tuple(map(as_value, arrays)), tuple(map(as_value, tangents)))
    ahead, behind = (
        fn(*(as_value(a + sign * STEP * t) for a, t in zip(arrays, tangents, strict=True)))
        for sign in (1, -1)
    )
    numeric = [(p.numpy() - m.numpy()) / (2 * STEP) for p, m in zip(ahead, behind, strict=True)]
    return [t.numpy() for t in exact], numeric


def check_first(fn, arrays, rng):
    """Compare jvp with differences and vjp with jvp; return fn's pullback of random cotangents."""
    tangents = [normal(rng, a.shape, a.dtype) for a in arrays]
    exact, numeric = forward(fn, arrays, tangents)
    for got, expected in zip(exact, numeric, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    cotangents = [normal(rng, t.shape, t.dtype) for t in exact]

    def backward(*xs):
        _, back = vjp(fn, *xs)
        return back(tuple(map(as_value, cotangents)))

    pulled = [x.numpy() for x in backward(*map(as_value, arrays))]
    both = inner(pulled, tangents), inner(cotangents, exact)
    np.testing.assert_allclose(*both, rtol=1e-8, atol=1e-14)  # 0 where terms cancel
    return backward


@pytest.fixture
def check_derivatives():
    """check(fn, *arrays): jvp, vjp, and both of the vjp, against central differences."""

    def check(fn, *arrays):
        rng = np.random.default_rng(1)
        backward = check_first(lambda *xs: as_tuple(fn(*xs)), arrays, rng)
        check_first(backward, arrays, rng)

    return check
