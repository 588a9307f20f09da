"""Complex numbers in fused kernels: each composition as references compute it, without the host."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

DTYPES = ("complex64", "complex128")
PARTS = (0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan)
ODD = np.array([complex(*pair) for pair in itertools.product(PARTS, PARTS)])

UNARY = {
    "negative": lambda x: -x,
    "conj": gh.conj,
    "real": gh.real,
    "imag": gh.imag,
    "abs": gh.abs,
    "sign": gh.sign,
    "exp": gh.exp,
    "log": gh.log,
    "sqrt": gh.sqrt,
    "sin": gh.sin,
    "cos": gh.cos,
    "log10": gh.log10,
    "isnan": gh.isnan,
    "parts": gh.view_as_real,
    "swapped": lambda x: gh.complex(gh.imag(x), gh.real(x)),
    "is not 0": lambda x: gh.astype(x, gh.bool),
    "other width": lambda x: gh.astype(
        x, gh.complex64 if x.dtype == gh.complex128 else gh.complex128
    ),
    "with a number": lambda x: 2 * x - (1 - 0.5j),
    "with a real": lambda x: gh.real(x) * x,
    "padded": lambda x: gh.nn.functional.pad(x, (1, 2), value=3.0),
    "joined": lambda x: gh.concat([x, gh.conj(x)], axis=-1),
    "taken": lambda x: gh.take(x, gh.asarray([1, 0, 1]), axis=-1),
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "equal": lambda x, y: x == y,
    "where": lambda x, y: gh.where(gh.real(x) > 0, x, y),
    "filter": lambda x, y: gh.where(gh.abs(x) > 0.5, x, 0.2 * x) * gh.conj(y),
}
REDUCTIONS = {
    "sum": gh.sum,
    "mean": gh.mean,
    "prod": gh.prod,
    "largest": lambda x, axis: gh.max(gh.abs(x), axis=axis),
    "length": lambda x, axis: gh.sum(gh.real(x * gh.conj(x)), axis=axis),
    "spread": lambda x, axis: gh.sum(gh.abs(x - gh.mean(x, axis=axis, keepdims=True)), axis=axis),
}
LAYOUTS = {
    "whole": lambda x: x,
    "turned": lambda x: x.T,
    "each other": lambda x: x[::2, 1::2],
    "from the end": lambda x: gh.flip(x, axis=1),
    "a row for all": lambda x: gh.broadcast_to(x[:1], x.shape),
    "parts apart": lambda x: gh.complex(gh.imag(x), gh.real(x)),
}


def both(fn, *arrays):
    """The results of a function by kernels alone, and by the references."""
    results = []
    for mode in ("always", "never"):
        with gh.backends.use("lazy") as backend, flags.override(compile=mode):
            backend.evaluate()
            before = backend.fallbacks.copy()
            results.append(fn(*map(gh.asarray, arrays)).numpy())
            assert mode == "never" or not backend.fallbacks.since(before)
    return results


def check(fn, *arrays, tolerance: float = 2):
    """The results agree up to roundings, in each part also in infinities, NaN and zeros' signs."""
    got, expected = both(fn, *arrays)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    eps = tolerance * np.finfo(np.result_type(*arrays, np.complex64)).eps
    for part in (np.real, np.imag) if got.dtype.kind == "c" else (np.asarray,):
        y, e = part(got), part(expected)
        np.testing.assert_allclose(y, e, rtol=eps, atol=eps)
        zero = (y == 0) & (e == 0)
        np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(e[zero]))


def draw(*shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_odd_values(name, dtype):
    check(UNARY[name], ODD.astype(dtype), tolerance=16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_pairs_of_odd_values(name, dtype):
    x, y = (a.ravel() for a in np.meshgrid(ODD.astype(dtype), ODD.astype(dtype)))
    check(BINARY[name], x, y, tolerance=16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype):
    def fn(x, y):
        x, y = LAYOUTS[layout](x), LAYOUTS[layout](y)
        return gh.concat([fn(x, y) for fn in BINARY.values() if fn is not BINARY["equal"]])

    check(fn, draw(7, 18, dtype=dtype), draw(7, 18, dtype=dtype, seed=1), tolerance=16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, (0, 1), 2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis, dtype):
    x = draw(5, 6, 37, dtype=dtype)
    check(lambda x: REDUCTIONS[name](x, axis=axis), x, tolerance=2000 if name == "prod" else 100)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int64", "float16", "bfloat16", "float32", "float64"]
)
def test_conversions_from_real_numbers(dtype):
    def fn(x):
        x = gh.astype(x, getattr(gh, dtype))
        return gh.concat([gh.astype(gh.astype(x, gh.complex64), gh.complex128), x * (1 + 2j)])

    check(fn, np.array([0, 1, -3.25, 100]))


def test_parts_are_joined_without_memory_for_the_pairs():
    def fn(x):
        return gh.complex(gh.imag(x), gh.real(x)) * gh.conj(x)

    with gh.backends.use("lazy"), flags.override(compile="always"):
        x = gh.asarray(draw(33, dtype="complex64"))
        fn(x).numpy()
        with gh.profile() as profile:
            fn(x).numpy()
    (kernel,) = profile.kernels()
    assert kernel.kind == "kernel"
