"""The Array API standard 2024.12, function by function, against array_api_strict.

Each line of the tables below runs on both libraries with the same operands, over dtypes, shapes and
special values; results must agree in structure, dtype, shape and value. Where array_api_strict
departs from the standard for NumPy's sake, the standard's own values are listed.
"""

import inspect
import itertools
import math
import operator
import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

strict = pytest.importorskip("array_api_strict")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
GROUPS = {
    "bool": ("bool",),
    "integer": INTEGERS,
    "bits": ("bool", *INTEGERS),
    "float": FLOATS,
    "complex": COMPLEX,
    "inexact": FLOATS + COMPLEX,
    "real": INTEGERS + FLOATS,
    "numeric": INTEGERS + FLOATS + COMPLEX,
    "all": ("bool", *INTEGERS, *FLOATS, *COMPLEX),
}
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}
SHAPES = ((), (1,), (5,), (0,), (2, 3), (3, 1, 2), (2, 0, 2))
PAIRS = (((5,), (5,)), ((2, 3), (3,)), ((), (4,)), ((2, 1), (1, 3)), ((0,), (1,)), ((), ()))
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e30, math.inf, -math.inf, math.nan)
SPECIAL_PARTS = (0.0, -0.0, 1.0, -0.5, math.inf, -math.inf, math.nan)


@pytest.fixture(autouse=True)
def quiet_standard():
    """array_api_strict at our version of the standard, without NumPy's floating-point warnings."""
    strict.set_array_api_strict_flags(api_version="2024.12")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice")
        yield
    strict.reset_array_api_strict_flags()


def draw(dtype: str, shape, seed: int = 0, low: int = -4) -> np.ndarray:
    """Random small numbers, whole ones for integers."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(max(low, 0) if dtype.kind == "u" else low, 5, shape).astype(dtype)
    values = rng.uniform(low, 4, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(low, 4, shape)
    return np.asarray(values).astype(dtype)


def special(dtype: str) -> np.ndarray:
    """The numbers at which functions have special values, as a vector."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, 0, 1, 2, 3, info.max], dtype)
    if dtype.kind == "f":
        return np.array(SPECIAL, dtype)
    out = np.empty((len(SPECIAL_PARTS),) * 2, dtype)
    out.real, out.imag = np.array(SPECIAL_PARTS)[:, None], np.array(SPECIAL_PARTS)
    return out.reshape(-1)


def assert_same(ours, theirs, where: str = "") -> None:
    """Equal structure, dtypes, shapes, and values up to rounding; NaN equals NaN."""
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs), where
        for a, b in zip(ours, theirs):
            assert_same(a, b, where)
        return
    if not isinstance(theirs, strict._array_object.Array):
        assert ours == theirs, where
        return
    theirs = np.asarray(theirs)
    assert ours.dtype.name == theirs.dtype.name, where
    assert ours.shape == theirs.shape, where
    ours = np.asarray(ours)
    if theirs.dtype.kind in "fc":
        tolerance = TOLERANCE[theirs.dtype.name]
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=where)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


def assert_same_zeros(ours, theirs, where: str) -> None:
    """Zeros of equal sign, in both parts of complex numbers."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    for a, b in ((ours.real, theirs.real), (ours.imag, theirs.imag)):
        zero = (b == 0) & (a == 0)
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), err_msg=where)


def check(call, *arrays, where: str = "", zeros: bool = False) -> None:
    """`call(namespace, *arrays)` agrees in both libraries."""
    theirs = call(strict, *(strict.asarray(a) for a in arrays))
    ours = call(gh, *(gh.asarray(a) for a in arrays))
    assert_same(ours, theirs, where)
    if zeros:
        assert_same_zeros(ours, theirs, where)


def over(table):
    """One test per line and dtype of a table {name: (group, …)}."""
    return [
        pytest.param(name, dtype, *rest, id=f"{name}-{dtype}")
        for name, (group, *rest) in table.items()
        for dtype in GROUPS[group]
    ]


UNARY = {
    **dict.fromkeys(
        "acos acosh asin asinh atan atanh cos cosh exp log log1p log2 log10 sin sinh sqrt tan tanh "
        "expm1 reciprocal".split(),
        ("inexact",),
    ),
    **dict.fromkeys(
        "abs isfinite isinf isnan negative positive round sign square".split(), ("numeric",)
    ),
    **dict.fromkeys("ceil floor trunc".split(), ("real",)),
    **dict.fromkeys("conj imag real".split(), ("complex",)),
    "bitwise_invert": ("bits",),
    "logical_not": ("bool",),
    "signbit": ("float",),
}
# cosh(NaN + 0i) has an imaginary 0 of unspecified sign; NumPy's complex expm1 and reciprocal give
# NaN where the standard has infinities, and are tested below.
LOOSE_ZEROS = ("cosh", "expm1", "reciprocal", "sign")


@pytest.mark.parametrize(("name", "dtype"), over(UNARY))
def test_unary(name, dtype):
    for shape in SHAPES:
        check(lambda xp, x: getattr(xp, name)(x), draw(dtype, shape), where=f"{name} {shape}")
    values = special(dtype)
    if dtype in COMPLEX and name in ("expm1", "reciprocal", "sign", "square"):
        values = values[np.isfinite(values) & (values != 0)]
    zeros = dtype in FLOATS + COMPLEX and name not in LOOSE_ZEROS
    check(lambda xp, x: getattr(xp, name)(x), values, where=f"{name} {values}", zeros=zeros)


BINARY = {
    **dict.fromkeys("add subtract multiply equal not_equal".split(), ("numeric",)),
    **dict.fromkeys(
        "floor_divide remainder maximum minimum less less_equal greater greater_equal".split(),
        ("real",),
    ),
    **dict.fromkeys("atan2 hypot copysign nextafter logaddexp".split(), ("float",)),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), ("bits",)),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), ("bool",)),
    **dict.fromkeys("bitwise_left_shift bitwise_right_shift".split(), ("integer",)),
    "divide": ("inexact",),
    "pow": ("numeric",),
}
OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
}


def second(name: str, dtype: str, shape, seed: int = 1) -> np.ndarray:
    """A right operand: of 0 or more for powers and shifts of integers, never 0 in divisions."""
    if np.dtype(dtype).kind in "iu":
        if name in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
            return draw(dtype, shape, seed, low=0)
        if name in ("floor_divide", "remainder"):
            return draw(dtype, shape, seed, low=1)
    return draw(dtype, shape, seed)


def promotable(dtype: str, others):
    """The dtypes of `others` that the standard promotes together with `dtype`."""
    for other in others:
        try:
            strict.result_type(getattr(strict, dtype), getattr(strict, other))
        except TypeError:
            continue
        yield other


@pytest.mark.parametrize(("name", "dtype"), over(BINARY))
def test_binary(name, dtype):
    def call(xp, x, y):
        return getattr(xp, name)(x, y)

    def by_operator(xp, x, y):
        return OPERATORS[name](x, y)

    for other in promotable(dtype, GROUPS[BINARY[name][0]]):
        for left, right in PAIRS:
            x, y = draw(dtype, left), second(name, other, right)
            check(call, x, y, where=f"{name} {dtype}{left} {other}{right}")
            if name in OPERATORS:
                check(by_operator, x, y, where=f"{name} {dtype}{left} {other}{right}")


@pytest.mark.parametrize(
    ("name", "dtype"), [p for p in over(BINARY) if p.values[1] in ("bool", *FLOATS)]
)
def test_binary_at_special_values(name, dtype):
    values = special(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    if name == "floor_divide":  # NumPy's is NaN for infinities: see STANDARD_VALUES
        keep = ~(np.isinf(x) | np.isinf(y))
        x, y = x[keep], y[keep]
    zeros = name not in ("maximum", "minimum") and dtype != "bool"
    check(lambda xp, a, b: getattr(xp, name)(a, b), x, y, where=name, zeros=zeros)


SCALARS = {"b": (True,), "i": (2,), "u": (2,), "f": (2, 0.5), "c": (2, 0.5, 1.5 - 2j)}


@pytest.mark.parametrize(("name", "dtype"), over(BINARY))
def test_binary_with_python_scalar(name, dtype):
    x = second(name, dtype, (4,))
    for scalar in SCALARS[np.dtype(dtype).kind]:
        check(lambda xp, a, s=scalar: getattr(xp, name)(a, s), x, where=f"{name} {dtype} {scalar}")
        check(lambda xp, a, s=scalar: getattr(xp, name)(s, a), x, where=f"{name} {scalar} {dtype}")
        if name in OPERATORS:
            check(lambda xp, a, s=scalar: OPERATORS[name](s, a), x, where=f"{scalar} {name}")


def test_shifts_by_as_many_bits_as_there_are():
    for dtype, bits in itertools.product(INTEGERS, (7, 8, 63, 64, 100)):
        x = special(dtype)
        if bits <= np.iinfo(dtype).max:
            check(lambda xp, a, n=bits: (a << n, a >> n), x, where=f"{dtype} {bits}")


inf, nan = math.inf, math.nan
# (function, arguments, result) where array_api_strict gives NumPy's value instead of the standard's
STANDARD_VALUES = [
    *[
        ("floor_divide", pair, value)
        for pair, value in {
            (inf, 2.0): inf,
            (inf, -2.0): -inf,
            (-inf, 2.0): -inf,
            (-inf, -2.0): inf,
            (2.0, inf): 0.0,
            (2.0, -inf): -0.0,
            (-2.0, inf): -0.0,
            (-2.0, -inf): 0.0,
            (inf, inf): nan,
            (0.0, inf): 0.0,
            (-0.0, 3.0): -0.0,
            (1.0, 0.0): inf,
            (0.0, 0.0): nan,
        }.items()
    ],
    *[
        ("expm1", (x,), value)
        for x, value in {
            complex(inf, 0): complex(inf, 0),
            complex(-inf, inf): complex(-1, 0),
            complex(inf, inf): complex(inf, nan),
            complex(inf, nan): complex(inf, nan),
            complex(-inf, nan): complex(-1, 0),
            complex(1, inf): complex(nan, nan),
        }.items()
    ],
    ("expm1", (complex(nan, 0),), complex(nan, 0)),
    ("expm1", (complex(-0.0, 0.0),), complex(0.0, 0.0)),
    ("expm1", (complex(-0.0, -0.0),), complex(0.0, -0.0)),
    ("tanh", (complex(inf, 2),), complex(1, 0)),
    ("tanh", (complex(inf, -1),), complex(1, -0.0)),
    ("tanh", (complex(-inf, 2),), complex(-1, 0)),
    ("reciprocal", (complex(2, 0),), complex(0.5, 0)),
    ("sign", (complex(3, -4),), complex(0.6, -0.8)),
    ("sign", (complex(0, 0),), complex(0, 0)),
    ("sign", (complex(nan, 1),), complex(nan, nan)),
    ("hypot", (inf, nan), inf),
    ("hypot", (1e300, 1e300), math.sqrt(2) * 1e300),
    ("pow", (-inf, 0.5), inf),
    ("pow", (-0.0, 0.5), 0.0),
    ("asinh", (1.7e308,), math.asinh(1.7e308)),
    ("acosh", (1.7e308,), math.acosh(1.7e308)),
    ("atanh", (complex(1, 1e-200),), complex(0.5 * math.log(2e200), math.pi / 4)),
]


@pytest.mark.parametrize("compiled", ["auto", "always"])
@pytest.mark.parametrize(("name", "args", "value"), STANDARD_VALUES)
def test_value_of_the_standard(name, args, value, compiled, monkeypatch):
    monkeypatch.setattr(flags, "compile", compiled)
    kind = gh.complex128 if any(isinstance(a, complex) for a in args) else gh.float64
    out = np.asarray(getattr(gh, name)(*(gh.asarray(a, dtype=kind) for a in args)))
    for got, wanted in ((out.real, np.real(value)), (out.imag, np.imag(value))):
        np.testing.assert_allclose(got, wanted, rtol=1e-14)
        assert np.isnan(wanted) or np.signbit(got) == np.signbit(wanted)


def test_an_empty_mask_chooses_nothing_of_an_axis_of_any_size():
    x = gh.ones((2, 3))
    for shape in ((0,), (2, 0), (0, 3), (0, 0)):
        chosen = x[gh.zeros(shape, dtype=gh.bool)]
        assert chosen.shape == (0, *x.shape[len(shape) :])
    with pytest.raises(IndexError):
        x[gh.zeros((1, 0), dtype=gh.bool)]


@pytest.mark.parametrize("k", [2**63, -(2**63) - 1])
def test_diagonals_may_lie_far_outside(k):
    x, nothing = np.ones((2, 3)), np.zeros((2, 3))
    np.testing.assert_array_equal(gh.eye(2, 3, k=k).numpy(), nothing)
    np.testing.assert_array_equal(gh.tril(x, k=k).numpy(), x if k > 0 else nothing)
    np.testing.assert_array_equal(gh.triu(x, k=k).numpy(), nothing if k > 0 else x)


A, B, C = (2, 3, 4), (5,), (3, 4)
CALLS = {
    "sum": (
        "numeric",
        [A],
        lambda xp, x: (
            xp.sum(x),
            xp.sum(x, axis=1),
            xp.sum(x, axis=(0, -1), keepdims=True),
            xp.sum(x, axis=()),
            xp.sum(x, dtype=x.dtype),
        ),
    ),
    "prod": (
        "numeric",
        [(2, 3)],
        lambda xp, x: (
            xp.prod(x),
            xp.prod(x, axis=1),
            xp.prod(x, axis=(0, -1), keepdims=True),
            xp.prod(x, dtype=x.dtype),
        ),
    ),
    "max": ("real", [A], lambda xp, x: (xp.max(x), xp.max(x, axis=(0, 2), keepdims=True))),
    "min": ("real", [A], lambda xp, x: (xp.min(x), xp.min(x, axis=(0, 2), keepdims=True))),
    "mean": ("inexact", [A], lambda xp, x: (xp.mean(x), xp.mean(x, axis=(0, 2), keepdims=True))),
    "var": (
        "float",
        [A],
        lambda xp, x: (
            xp.var(x),
            xp.var(x, axis=1, correction=1),
            xp.var(x, axis=(0, 2), keepdims=True),
        ),
    ),
    "std": (
        "float",
        [A],
        lambda xp, x: (
            xp.std(x),
            xp.std(x, axis=1, correction=1.5),
            xp.std(x, axis=(0, 2), keepdims=True),
        ),
    ),
    "all": ("all", [A], lambda xp, x: (xp.all(x), xp.all(x, axis=(0, 1), keepdims=True))),
    "any": ("all", [A], lambda xp, x: (xp.any(x), xp.any(x, axis=(0, 1), keepdims=True))),
    "argmax": (
        "real",
        [A],
        lambda xp, x: (
            xp.argmax(x),
            xp.argmax(x, axis=-1),
            xp.argmax(x, axis=0, keepdims=True),
            xp.argmax(x, keepdims=True),
        ),
    ),
    "argmin": (
        "real",
        [A],
        lambda xp, x: (
            xp.argmin(x),
            xp.argmin(x, axis=-1),
            xp.argmin(x, axis=0, keepdims=True),
            xp.argmin(x, keepdims=True),
        ),
    ),
    "count_nonzero": (
        "all",
        [A],
        lambda xp, x: (xp.count_nonzero(x), xp.count_nonzero(x, axis=(0, 2), keepdims=True)),
    ),
    "cumulative_sum": (
        "numeric",
        [C],
        lambda xp, x: (
            xp.cumulative_sum(x, axis=1),
            xp.cumulative_sum(x, axis=-2, include_initial=True),
            xp.cumulative_sum(x[0, ...]),
            xp.cumulative_sum(x, axis=0, dtype=x.dtype),
        ),
    ),
    "cumulative_prod": (
        "numeric",
        [C],
        lambda xp, x: (
            xp.cumulative_prod(x, axis=1),
            xp.cumulative_prod(x, axis=-2, include_initial=True),
            xp.cumulative_prod(x[0, ...]),
            xp.cumulative_prod(x, axis=0, dtype=x.dtype),
        ),
    ),
    "diff": (
        "numeric",
        [C, (3, 1)],
        lambda xp, x, y: (
            xp.diff(x),
            xp.diff(x, axis=0, n=2),
            xp.diff(x, prepend=y, append=y),
            xp.diff(x, n=0),
        ),
    ),
    "broadcast_arrays": ("all", [(2, 1), B], lambda xp, x, y: tuple(xp.broadcast_arrays(x, y))),
    "broadcast_to": ("all", [(3, 1)], lambda xp, x: xp.broadcast_to(x, (2, 3, 4))),
    "concat": (
        "all",
        [(2, 3), (1, 3)],
        lambda xp, x, y: (
            xp.concat((x, y)),
            xp.concat([x, x], axis=-1),
            xp.concat([x, y], axis=None),
        ),
    ),
    "expand_dims": (
        "all",
        [(2, 3)],
        lambda xp, x: (
            xp.expand_dims(x, axis=0),
            xp.expand_dims(x, axis=-1),
            xp.expand_dims(x, axis=-3),
        ),
    ),
    "flip": ("all", [A], lambda xp, x: (xp.flip(x), xp.flip(x, axis=1), xp.flip(x, axis=(0, -1)))),
    "moveaxis": (
        "all",
        [A],
        lambda xp, x: (xp.moveaxis(x, 0, -1), xp.moveaxis(x, (0, 1), (-1, 0))),
    ),
    "permute_dims": ("all", [A], lambda xp, x: xp.permute_dims(x, (2, 0, 1))),
    "repeat": (
        "all",
        [(2, 3)],
        lambda xp, x: (
            xp.repeat(x, 2),
            xp.repeat(x, 2, axis=1),
            xp.repeat(x, xp.asarray([1, 0, 3]), axis=1),
            xp.repeat(x, 0, axis=0),
        ),
    ),
    "reshape": (
        "all",
        [A],
        lambda xp, x: (
            xp.reshape(x, (4, -1)),
            xp.reshape(x, (24,), copy=True),
            xp.reshape(x, (2, 12)),
        ),
    ),
    "roll": (
        "all",
        [A],
        lambda xp, x: (
            xp.roll(x, 5),
            xp.roll(x, -1, axis=1),
            xp.roll(x, (1, 2), axis=(0, 2)),
            xp.roll(x, 1, axis=(0, 1)),
        ),
    ),
    "squeeze": (
        "all",
        [(1, 3, 1)],
        lambda xp, x: (xp.squeeze(x, axis=0), xp.squeeze(x, axis=(0, -1))),
    ),
    "stack": (
        "all",
        [(2, 3), (2, 3)],
        lambda xp, x, y: (xp.stack((x, y)), xp.stack([x, y], axis=-1), xp.stack([x, y], axis=1)),
    ),
    "tile": (
        "all",
        [(2, 3)],
        lambda xp, x: (xp.tile(x, (2,)), xp.tile(x, (2, 1, 3)), xp.tile(x, (0, 1))),
    ),
    "unstack": ("all", [A], lambda xp, x: (xp.unstack(x), xp.unstack(x, axis=-1))),
    "sort": (
        "real",
        [A],
        lambda xp, x: (
            xp.sort(x),
            xp.sort(x, axis=0, descending=True),
            xp.sort(x, axis=1, stable=False),
        ),
    ),
    "argsort": (
        "real",
        [A],
        lambda xp, x: (
            xp.argsort(x),
            xp.argsort(x, axis=0, descending=True),
            xp.argsort(x, axis=1),
        ),
    ),
    "unique_all": (
        "all",
        [A],
        lambda xp, x: (
            xp.unique_all(x).values,
            xp.unique_all(x).counts,
            xp.unique_all(x).inverse_indices,
            xp.unique_all(x).indices,
        ),
    ),
    "unique_counts": ("all", [A], lambda xp, x: tuple(xp.unique_counts(x))),
    "unique_inverse": ("all", [A], lambda xp, x: tuple(xp.unique_inverse(x))),
    "unique_values": ("all", [A], lambda xp, x: xp.unique_values(x)),
    "nonzero": ("all", [A], lambda xp, x: xp.nonzero(x)),
    "searchsorted": (
        "real",
        [B, (2, 3)],
        lambda xp, x, y: (
            xp.searchsorted(xp.sort(x), y),
            xp.searchsorted(xp.sort(x), y, side="right"),
            xp.searchsorted(x, y, sorter=xp.argsort(x)),
        ),
    ),
    "take": (
        "all",
        [A],
        lambda xp, x: (
            xp.take(x, xp.asarray([1, 0, 1]), axis=1),
            xp.take(x[0, 0, :], xp.asarray([3])),
        ),
    ),
    "take_along_axis": (
        "all",
        [(2, 3)],
        lambda xp, x: (
            xp.take_along_axis(x, xp.asarray([[2, 0], [1, 1]])),
            xp.take_along_axis(x, xp.asarray([[1, 0, 1]]), axis=0),
        ),
    ),
    "where": (
        "all",
        [(2, 3), (3,)],
        lambda xp, x, y: xp.where(xp.asarray([[True], [False]]), x, y),
    ),
    "clip": (
        "real",
        [(2, 3), (3,)],
        lambda xp, x, y: (
            xp.clip(x),
            xp.clip(x, 1),
            xp.clip(x, max=2),
            xp.clip(x, 1, 2),
            xp.clip(x, y),
            xp.clip(x, max=y),
        ),
    ),
    "astype": (
        "real",
        [(2, 3)],
        lambda xp, x: (
            xp.astype(xp.abs(x), xp.int16),
            xp.astype(x, xp.complex64),
            xp.astype(x, xp.bool),
            xp.astype(x, x.dtype, copy=False),
        ),
    ),
    "matmul": (
        "numeric",
        [(2, 3, 4), (4, 2)],
        lambda xp, x, y: (xp.matmul(x, y), x @ y, xp.matmul(x, y[:, 0]), xp.matmul(y[:, 0], y)),
    ),
    "matrix_transpose": ("all", [A], lambda xp, x: (xp.matrix_transpose(x), x.mT)),
    "tensordot": (
        "numeric",
        [(3, 4), (4, 3)],
        lambda xp, x, y: (
            xp.tensordot(x, y, axes=1),
            xp.tensordot(x, y, axes=((0, 1), (1, 0))),
            xp.tensordot(x, y, axes=0),
        ),
    ),
    "vecdot": (
        "numeric",
        [(2, 3), (3,)],
        lambda xp, x, y: (xp.vecdot(x, y), xp.vecdot(x, x, axis=0 - 2)),
    ),
    "zeros_like": ("all", [C], lambda xp, x: (xp.zeros_like(x), xp.zeros_like(x, dtype=xp.int8))),
    "ones_like": ("all", [C], lambda xp, x: (xp.ones_like(x), xp.ones_like(x, dtype=xp.int8))),
    "full_like": (
        "numeric",
        [C],
        lambda xp, x: (xp.full_like(x, 3), xp.full_like(x, 3.5, dtype=xp.float32)),
    ),
    "tril": ("all", [(2, 3, 4)], lambda xp, x: (xp.tril(x), xp.tril(x, k=1), xp.tril(x, k=-2))),
    "triu": ("all", [(2, 3, 4)], lambda xp, x: (xp.triu(x), xp.triu(x, k=1), xp.triu(x, k=-2))),
    "meshgrid": (
        "all",
        [(2,), (3,)],
        lambda xp, x, y: (
            tuple(xp.meshgrid(x, y, indexing="xy")),
            tuple(xp.meshgrid(x, y, x, indexing="ij")),
            tuple(xp.meshgrid(x)),
        ),
    ),
    "asarray": (
        "all",
        [C],
        lambda xp, x: (xp.asarray(x), xp.asarray(x, copy=True), xp.asarray(x, dtype=xp.complex128)),
    ),
    "getitem": (
        "all",
        [A],
        lambda xp, x: (
            x[0, ...],
            x[..., 1],
            x[:, ::-1, 1:3],
            x[1, 2, 3],
            x[None, :, -1, ...],
            x[:, :0, :],
            x[x != x[0, 0, 0]],
            x[xp.asarray([True, False])],
        ),
    ),
}


@pytest.mark.parametrize(("name", "dtype", "shapes", "call"), over(CALLS))
def test_call(name, dtype, shapes, call):
    check(call, *(draw(dtype, shape, seed) for seed, shape in enumerate(shapes)), where=name)


EMPTY = ("sum", "prod", "mean", "all", "any", "count_nonzero", "sort", "argsort", "flip", "roll",
         "unique_all", "nonzero", "repeat")  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty(name, shape):
    arguments = {"roll": (1,), "repeat": (2,)}.get(name, ())

    def call(xp, x):
        out = getattr(xp, name)(x, *arguments)
        return tuple(out) if name in ("unique_all", "nonzero") else out

    check(call, draw("float64", shape))


ROWS = ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin",
        "cumulative_sum", "cumulative_prod", "sort", "argsort")  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_special_values_in_a_row(name):
    for row in itertools.permutations((nan, inf, -inf, -0.0, 2.0), 3):
        check(lambda xp, x: getattr(xp, name)(x), np.array(row), where=f"{name} {row}")


def test_nan_and_signed_zeros_are_distinct_or_equal_as_the_standard_says():
    x = np.array([nan, 0.0, -0.0, nan, 1.0])
    check(lambda xp, a: (tuple(xp.unique_counts(a)), xp.unique_all(a).indices.shape[0]), x)


CREATE = {
    "arange": lambda xp, d: (
        xp.arange(5, dtype=d),
        xp.arange(2, 9, 3, dtype=d),
        xp.arange(3, 3, dtype=d),
        xp.arange(9, 2, -2, dtype=d),
        xp.arange(0, 120, 119, dtype=d),
    ),
    "linspace": lambda xp, d: (
        xp.linspace(0, 8, 5, dtype=d),
        xp.linspace(0, 8, 4, dtype=d, endpoint=False),
        xp.linspace(3, 3, 1, dtype=d),
        xp.linspace(0, 1, 0, dtype=d),
    ),
    "eye": lambda xp, d: (
        xp.eye(3, dtype=d),
        xp.eye(2, 3, k=1, dtype=d),
        xp.eye(3, 2, k=-1, dtype=d),
        xp.eye(2, 2, k=5, dtype=d),
        xp.eye(0, 2, dtype=d),
    ),
    "full": lambda xp, d: (
        xp.full((2, 3), 7, dtype=d),
        xp.full((), 1, dtype=d),
        xp.full(3, 0, dtype=d),
    ),
    "ones": lambda xp, d: (xp.ones((2, 3), dtype=d), xp.ones(3, dtype=d)),
    "zeros": lambda xp, d: (xp.zeros((2, 0), dtype=d), xp.zeros(3, dtype=d)),
    "empty": lambda xp, d: xp.zeros_like(xp.empty((2, 3), dtype=d)),
    "asarray": lambda xp, d: (
        xp.asarray([[1, 0], [2, 3]], dtype=d),
        xp.asarray(1, dtype=d),
        xp.asarray([], dtype=d),
    ),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in CREATE for d in GROUPS["inexact" if n == "linspace" else "numeric"]],
)
def test_creation(name, dtype):
    assert_same(CREATE[name](gh, getattr(gh, dtype)), CREATE[name](strict, getattr(strict, dtype)))


@pytest.mark.parametrize("a", GROUPS["all"])
@pytest.mark.parametrize("b", GROUPS["all"])
def test_promotion_of_dtypes(a, b):
    try:
        expected = strict.result_type(getattr(strict, a), getattr(strict, b))
    except TypeError:
        return  # the standard is silent
    assert gh.result_type(getattr(gh, a), getattr(gh, b)).name == np.dtype(expected._np_dtype).name
    assert gh.can_cast(getattr(gh, a), getattr(gh, b)) == (expected == getattr(strict, b))


KINDS = (
    "bool",
    "signed integer",
    "unsigned integer",
    "integral",
    "real floating",
    "complex floating",
    "numeric",
)


@pytest.mark.parametrize("dtype", GROUPS["all"])
def test_dtype_functions(dtype):
    ours, theirs = getattr(gh, dtype), getattr(strict, dtype)
    for kind in (*KINDS, KINDS[1:3]):
        assert gh.isdtype(ours, kind) == strict.isdtype(theirs, kind), kind
    assert gh.isdtype(ours, (ours, "bool")) and isinstance(gh.isdtype(ours, ours), bool)
    if dtype in INTEGERS:
        for name in ("bits", "max", "min"):
            assert getattr(gh.iinfo(ours), name) == getattr(strict.iinfo(theirs), name)
    elif dtype != "bool":
        for name in ("bits", "eps", "max", "min", "smallest_normal"):
            got = getattr(gh.finfo(ours), name)
            assert type(got) in (int, float) and got == getattr(strict.finfo(theirs), name)
        assert gh.finfo(ours).dtype.name == np.dtype(strict.finfo(theirs).dtype._np_dtype).name


def test_inspection():
    info = gh.__array_namespace_info__()
    theirs = strict.__array_namespace_info__()
    assert set(info.capabilities()) == set(theirs.capabilities())
    assert info.default_device() in info.devices()
    assert set(info.default_dtypes()) == set(theirs.default_dtypes())
    for kind in (None, *KINDS, ("bool", "real floating")):
        assert set(info.dtypes(kind=kind)) == set(theirs.dtypes(kind=kind)), kind
    assert gh.__array_api_version__ == "2024.12"
    x = gh.zeros(1)
    assert x.__array_namespace__(api_version="2024.12").zeros is gh.zeros
    assert x.to_device(x.device).device == x.device
    assert (gh.e, gh.pi, gh.inf, gh.newaxis) == (math.e, math.pi, inf, None) and gh.nan != gh.nan


LINALG = {
    "det": lambda xp, a: xp.linalg.det(a),
    "inv": lambda xp, a: xp.linalg.inv(a),
    "solve": lambda xp, a: (xp.linalg.solve(a, a[..., :2]), xp.linalg.solve(a, a[0, :, 0])),
    "slogdet": lambda xp, a: tuple(xp.linalg.slogdet(a)),
    "trace": lambda xp, a: (xp.linalg.trace(a), xp.linalg.trace(a, offset=1)),
    "diagonal": lambda xp, a: (xp.linalg.diagonal(a), xp.linalg.diagonal(a, offset=-1)),
    "matrix_norm": lambda xp, a: [
        xp.linalg.matrix_norm(a, ord=o, keepdims=True) for o in ("fro", "nuc", 1, -1, 2, -2, inf)
    ],
    "vector_norm": lambda xp, a: [
        xp.linalg.vector_norm(a, axis=(0, 2), ord=o) for o in (0, 1, 2, 3, inf, -inf)
    ],
    "matrix_power": lambda xp, a: [xp.linalg.matrix_power(a, n) for n in (0, 1, 3, -2)],
    "matrix_rank": lambda xp, a: xp.linalg.matrix_rank(a),
    "pinv": lambda xp, a: xp.linalg.pinv(a[:, :2, :]),
    "svdvals": lambda xp, a: xp.linalg.svdvals(a),
    "outer": lambda xp, a: xp.linalg.outer(a[0, 0, :], a[0, :, 1]),
    "cross": lambda xp, a: xp.linalg.cross(a, a[:, ::-1, :], axis=-2),
    "matmul": lambda xp, a: xp.linalg.matmul(a, a),
    "matrix_transpose": lambda xp, a: xp.linalg.matrix_transpose(a),
    "tensordot": lambda xp, a: xp.linalg.tensordot(a, a, axes=((0, 1), (0, 2))),
    "vecdot": lambda xp, a: xp.linalg.vecdot(a, a),
    "cholesky": lambda xp, a: xp.linalg.cholesky(a @ xp.conj(a.mT)),
    "eigvalsh": lambda xp, a: xp.linalg.eigvalsh(a @ xp.conj(a.mT)),
    "qr": lambda xp, a: (xp.linalg.qr(a).Q @ xp.linalg.qr(a).R, xp.linalg.qr(a[..., :2]).R.shape),
    "eigh": lambda xp, a: xp.linalg.eigh(a @ xp.conj(a.mT)).eigenvalues,
    "svd": lambda xp, a: (
        xp.linalg.svd(a).S,
        xp.linalg.svd(a[..., :2], full_matrices=False).U.shape,
    ),
}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", LINALG)
def test_linalg(name, dtype):
    def call(xp, a):
        if dtype == "float64" and name in ("cholesky", "eigvalsh", "eigh"):
            a = a @ a.mT
            return LINALG[name](Real(xp), a)
        return LINALG[name](xp, a)

    check(call, draw(dtype, (2, 3, 3), seed=3), where=name)


class Real:
    """A namespace whose conj leaves real arrays alone, which array_api_strict refuses."""

    def __init__(self, xp):
        self.linalg = xp.linalg

    def conj(self, x):
        return x


def function_names(module) -> list[str]:
    return sorted(n for n in module.__all__ if inspect.isfunction(getattr(module, n)))


FLAGS = ("set_array_api_strict_flags", "reset_array_api_strict_flags", "get_array_api_strict_flags")
NEWER = ("isin", "broadcast_shapes")  # of the standard 2025.12


@pytest.mark.parametrize(
    "name",
    [n for n in function_names(strict) if n not in FLAGS + NEWER]
    + ["linalg." + n for n in function_names(strict.linalg)],
)
def test_signature(name):
    """Every call that fits the standard's signature fits ours; ours may allow more."""
    theirs = inspect.signature(operator.attrgetter(name)(strict)).parameters.values()
    ours = inspect.signature(operator.attrgetter(name)(gh)).parameters
    places = list(ours.values())
    for place, p in enumerate(theirs):
        if p.kind is p.POSITIONAL_ONLY:
            assert places[place].kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD), p
        elif p.kind is p.POSITIONAL_OR_KEYWORD:
            assert places[place].name == p.name and places[place].kind is p.kind, p
        elif p.kind is p.KEYWORD_ONLY:
            assert ours[p.name].kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD), p
        else:
            assert places[place].kind is p.kind, p
        if p.kind is not p.VAR_POSITIONAL and p.default is not p.empty:
            own = ours[p.name] if p.name in ours else places[place]
            undefined = type(p.default).__name__ == "Undef"
            assert own.default is None if undefined else own.default == p.default, p
    for p in places[len(list(theirs)) :]:
        assert p.default is not p.empty or p.kind is p.VAR_POSITIONAL, p


ATTRIBUTES = [n for n in dir(strict._array_object.Array) if n[:2] == "__" or n[0] != "_"]
OWN = ("__buffer__", "__init_subclass__", "__slots__", "__weakref__", "__module__", "__dict__")


@pytest.mark.parametrize("name", [n for n in ATTRIBUTES if n not in OWN])
def test_tensor_has(name):
    assert hasattr(gh.Tensor, name) or hasattr(gh.zeros((1, 1)), name)
