"""Elementwise functions beyond the standard: accuracy, derivatives, NumPy's extras, errors."""

import math

import ml_dtypes
import numpy as np
import pytest

import glasshouse as gh

UNARY = (
    "sqrt exp expm1 exp2 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh reciprocal"
).split()
NUMPY_NAMES = {n: "arc" + n[1:] for n in "asin acos atan asinh acosh atanh".split()}


def wide_numbers(rng) -> np.ndarray:
    """Numbers of all magnitudes, and many around the places where formulas change."""
    return np.concatenate(
        [
            rng.uniform(-1, 1, 3000),
            rng.uniform(-700, 700, 3000),
            np.exp(rng.uniform(-600, 600, 3000)) * rng.choice([-1, 1], 3000),
            1 + rng.uniform(-1e-3, 1e-3, 1000),
            2.0 ** np.arange(-60, 60),
            10.0 ** np.arange(-30, 30),
        ]
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_accuracy_within_a_few_units_in_the_last_place(name, dtype):
    with np.errstate(all="ignore"):
        x = wide_numbers(np.random.default_rng(0)).astype(dtype)
        wide = np.longdouble if dtype == "float64" else np.float64
        exact = getattr(np, NUMPY_NAMES.get(name, name))(x.astype(wide))
        got = getattr(gh, name)(gh.asarray(x)).numpy()
        rounded = exact.astype(dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(rounded))
        finite = np.isfinite(rounded)
        unit = np.spacing(np.maximum(np.abs(rounded[finite]), np.finfo(dtype).tiny))
        error = np.abs(got[finite].astype(wide) - exact[finite]) / unit.astype(wide)
    assert error.max() < 5


def test_logarithms_are_exact_at_powers_of_their_base():
    for dtype in (gh.float32, gh.float64):
        powers = gh.arange(-30, 31)
        assert gh.array_equal(gh.log2(gh.pow(gh.asarray(2, dtype=dtype), powers)), powers)
        tens = [float(10**k) for k in range(11)]
        assert gh.log10(gh.asarray(tens, dtype=dtype)).tolist() == list(range(11))


@pytest.mark.parametrize("name", [n for n in UNARY if n != "exp2"])
def test_complex_accuracy(name):
    rng = np.random.default_rng(1)
    parts = [rng.uniform(-2, 2, 400), np.exp(rng.uniform(-20, 3, 400)), -np.ones(400), np.ones(400)]
    z = np.concatenate([a + 1j * b for a in parts for b in parts if a is not b])
    z = z.astype(np.complex128)
    wide = z.astype(np.clongdouble)
    exact = getattr(np, NUMPY_NAMES.get(name, name), None)
    if name == "expm1":
        half = np.sin(wide.imag / 2)
        exact = np.expm1(wide.real) * np.cos(wide.imag) - 2 * half * half
        exact = exact + 1j * np.exp(wide.real) * np.sin(wide.imag)
    elif name in ("log1p", "log2", "log10"):
        exact = (
            np.log(1 + wide)
            if name == "log1p"
            else np.log(wide) / np.log(np.longdouble(int(name[3:])))
        )
    else:
        exact = exact(wide)
    got = getattr(gh, name)(gh.asarray(z)).numpy()
    usable = np.isfinite(exact) & ((np.abs(z) > 1e-3) | (name != "log1p"))  # the reference's limit
    error = np.abs(got - exact)[usable] / np.abs(exact)[usable]
    assert np.nanmax(error) < 1e-14


def gradient(function, *points):
    """The gradients of the sum of function's results at the points."""
    xs = [gh.tensor(p, gh.float64, requires_grad=True) for p in points]
    function(*xs).sum().backward()
    return [x.grad.tolist() for x in xs]


inf, nan = math.inf, math.nan
BOUNDARY = [
    ("abs", [0.0, -2.0], [0.0, -1.0]),
    ("sign", [0.0, -2.0], [0.0, 0.0]),
    ("sqrt", [0.0, 4.0], [inf, 0.25]),
    ("asin", [-1.0, 0.0, 1.0], [inf, 1.0, inf]),
    ("acos", [-1.0, 0.0, 1.0], [-inf, -1.0, -inf]),
    ("atan", [0.0, 1e200], [1.0, 0.0]),
    ("asinh", [0.0, -1e9, 1e200], [1.0, 1e-9, 1e-200]),
    ("acosh", [1.0, 1e200], [inf, 1e-200]),
    ("atanh", [0.0, 1.0], [1.0, inf]),
    ("log", [0.0], [inf]),
    ("log2", [0.0, 1.0], [inf, 1 / math.log(2)]),
    ("log10", [10.0], [0.1 / math.log(10)]),
    ("sinh", [0.0], [1.0]),
    ("cosh", [0.0], [0.0]),
    ("floor", [1.0], [0.0]),
    ("trunc", [-1.5], [0.0]),
]


@pytest.mark.parametrize(("name", "points", "expected"), BOUNDARY)
def test_derivatives_at_boundaries(name, points, expected):
    (got,) = gradient(getattr(gh, name), points)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


PAIRS = [
    ("atan2", (0.0, 0.0), (0.0, 0.0)),
    ("hypot", (0.0, 0.0), (0.0, 0.0)),
    ("hypot", (3.0, 4.0), (0.6, 0.8)),
    ("hypot", (inf, 1.0), (0.0, 0.0)),
    ("logaddexp", (1.0, 1.0), (0.5, 0.5)),
    ("logaddexp", (-inf, -inf), (0.5, 0.5)),
    ("logaddexp", (inf, 0.0), (1.0, 0.0)),
    ("maximum", (1.0, 1.0), (0.5, 0.5)),
    ("minimum", (1.0, 2.0), (1.0, 0.0)),
    ("copysign", (2.0, -1.0), (-1.0, None)),
    ("where", (1.0, 2.0), (1.0, 0.0)),
]


@pytest.mark.parametrize(("name", "point", "expected"), PAIRS)
def test_derivatives_of_two_arguments(name, point, expected):
    xs = [gh.tensor(p, gh.float64, requires_grad=True) for p in point]
    arguments = [True, *xs] if name == "where" else xs
    getattr(gh, name)(*arguments).backward()
    got = [None if x.grad is None else x.grad.item() for x in xs]
    assert got == pytest.approx(list(expected))


def test_clip_has_derivative_one_inside_and_at_its_bounds():
    assert gradient(lambda x: gh.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0]) == [[0, 1, 1, 1, 0]]
    low = gradient(lambda x, low: gh.clip(x, low), [0.0, 2.0], [1.0, 1.0])
    assert low == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    "name", [*UNARY, "abs", "sign", "square", "conj", "angle", "rsqrt", "real", "imag"]
)
def test_complex_derivatives_agree_with_torch(name):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    z = rng.uniform(-2, 2, 30) + 1j * rng.uniform(-2, 2, 30)
    ours = gh.tensor(z, requires_grad=True)
    y = getattr(gh, name)(ours)
    (gh.real(y) + 2 * gh.imag(y)).sum().backward()
    theirs = torch.tensor(z, requires_grad=True)
    function = {"sign": torch.sgn}.get(name) or getattr(torch, name)
    y = function(theirs)
    (y.real + (2 * y.imag if y.is_complex() else 0)).sum().backward()
    wanted = theirs.grad.resolve_conj().numpy()
    np.testing.assert_allclose(ours.grad.numpy(), wanted, rtol=1e-9)


@pytest.mark.slow
def test_complex_derivatives_at_zero():
    for name in "asin atan sinh tan asinh atanh expm1 log1p".split():
        z = gh.tensor(0j, gh.complex128, requires_grad=True)
        gh.real(getattr(gh, name)(z)).backward()
        assert z.grad.item() == 1, name
    for name in ("abs", "sign"):
        z = gh.tensor(0j, gh.complex128, requires_grad=True)
        gh.real(getattr(gh, name)(z)).backward()
        assert z.grad.item() == 0, name


@pytest.mark.parametrize("name", ["asinh", "log2", "sinh", "tan", "acosh"])
def test_second_derivatives_by_both_modes(name):
    x = gh.asarray([1.5, 2.0, 4.0], gh.float64)

    def function(x):
        return gh.sum(getattr(gh, name)(x))

    exact = np.diag(gh.hessian(function)(x).numpy())
    ahead, behind = (gh.grad(function)(x + step).numpy() for step in (1e-5, -1e-5))
    np.testing.assert_allclose(exact, (ahead - behind) / 2e-5, rtol=1e-6)
    forward = gh.jacobian(gh.grad(function), mode="forward")(x).numpy()
    np.testing.assert_allclose(np.diag(forward), exact, rtol=1e-10)


def test_integers_and_booleans_become_float32_where_numpy_makes_floats():
    for name in UNARY:
        for x in ([1], [True], 1):
            assert getattr(gh, name)(x).dtype is gh.float32
    assert gh.divide(1, 2).dtype is gh.float32 and gh.hypot(3, 4).item() == 5
    assert gh.floor([3]).dtype is gh.int64 and gh.round([True]).dtype is gh.bool
    assert gh.log2(gh.asarray([8], gh.uint8)).item() == 3


def test_arguments_may_be_python_data_and_numpy_arrays():
    assert gh.add([1, 2], 3).tolist() == [4, 5]
    assert gh.add(2, 3).item() == 5 and gh.add(1, 2.5).dtype is gh.float32
    assert gh.maximum(np.array([1.0, 5.0]), 2).dtype is gh.float64
    assert gh.sin([gh.asarray(0.0), 0.0]).tolist() == [0, 0]
    assert gh.multiply(np.float64(2), gh.ones(2)).dtype is gh.float64


def test_sixteen_bit_floats_keep_their_dtype():
    for dtype, unit in ((gh.float16, 2e-3), (gh.bfloat16, 2e-2)):
        x = gh.asarray([0.25, 0.5, 0.75], dtype)
        for name in [*UNARY, "sign", "abs", "floor", "square"]:
            x_here = x + 1 if name == "acosh" else x
            got = getattr(gh, name)(x_here)
            assert got.dtype is dtype
            exact = getattr(gh, name)(x_here.astype(gh.float64)).numpy()
            np.testing.assert_allclose(got.numpy().astype(float), exact, rtol=2 * unit, atol=unit)
        y = gh.nextafter(x, gh.asarray(1, dtype))
        assert gh.all(y > x) and gh.all(gh.signbit(-x)) and y.dtype is dtype
    assert gh.nextafter(gh.asarray(1, gh.bfloat16), 2).item() == 1 + 2**-7
    assert gh.nan_to_num(gh.asarray(inf, gh.bfloat16)).item() == float(
        ml_dtypes.finfo(ml_dtypes.bfloat16).max
    )


def test_clip_saturates_and_keeps_the_dtype():
    x = gh.asarray([-128, 0, 127], gh.int8)
    assert gh.clip(x, -1000, 1000).tolist() == [-128, 0, 127]
    assert gh.clip(x, gh.asarray(-5, gh.int16), 5).dtype is gh.int8
    assert gh.clip(x, 0.5).dtype is gh.float32 and gh.clip(x) is x
    assert gh.clip([1.0, nan], 2.0).tolist()[0] == 2 and math.isnan(gh.clip(1.0, nan).item())
    assert gh.clip([1, 5], 3, 2).tolist() == [2, 2]


def test_numpy_extras():
    assert gh.round([0.125, 2.5], 2).tolist() == pytest.approx([0.12, 2.5])
    assert gh.round([1234, 1250], -2).tolist() == [1200, 1200]
    assert gh.nan_to_num([nan, inf, -inf, 1], nan=7, posinf=8, neginf=9).tolist() == [7, 8, 9, 1]
    assert gh.nan_to_num([complex(nan, inf)]).numpy().imag[0] == np.finfo(np.float32).max
    assert gh.isclose([1.0, nan, inf], [1.0, nan, inf], equal_nan=True).tolist() == [True] * 3
    assert gh.isclose([1.0, nan, inf], [1.1, nan, -inf]).tolist() == [False] * 3
    assert gh.allclose([1, 2], [1, 2]) is True and gh.allclose(1e-9, 0.0) is True
    assert gh.array_equal([1, 2], [1, 2, 3]) is False
    assert gh.array_equal([nan], [nan]) is False and gh.array_equal([nan], [nan], equal_nan=True)
    assert gh.erf([0.0, 100.0]).tolist() == [0, 1] and gh.angle([1j]).item() == pytest.approx(
        math.pi / 2
    )
    assert gh.exp2([3]).item() == 8 and gh.rsqrt([4.0]).item() == 0.5
    assert gh.abs(True).item() is True and gh.positive([1]).tolist() == [1]
    assert gh.logical_and([0, 2.5], 1).tolist() == [False, True]
    assert gh.where([1, 0], 1, 2.5).tolist() == [1, 2.5]


ERRORS = [
    (lambda: gh.bitwise_and([1.0], 1), "bitwise_and: expected booleans or integers; got float32"),
    (lambda: gh.bitwise_invert(1.5), "bitwise_invert: expected booleans or integers"),
    (
        lambda: gh.bitwise_left_shift([True], [True]),
        "bitwise_left_shift: expected integers; got bool",
    ),
    (lambda: gh.atan2(1j, 1), "atan2: expected real values; got complex64"),
    (lambda: gh.floor(1j), "floor: expected real values"),
    (lambda: gh.erf(1j), "erf: expected real values"),
    (lambda: gh.less(1j, 1), "less: expected real values"),
    (lambda: gh.maximum(1j, 1), "maximum: expected real values"),
    (lambda: gh.clip(1j, 0), "clip: expected real values"),
    (lambda: gh.signbit(1j), "signbit: expected real values"),
    (lambda: gh.negative([True]), "neg: expected a dtype"),
    (lambda: gh.subtract([True], [True]), "sub: expected a dtype"),
    (lambda: gh.sin("a"), "sin: expected numbers or a numeric array; got str"),
    (lambda: gh.add([1], None), "add: expected numbers or a numeric array; got NoneType"),
    (lambda: gh.add(gh.asarray([1], gh.int8), 300), "add: expected an integer that fits int8"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS)
def test_wrong_dtypes_are_refused(call, text):
    with pytest.raises(gh.DTypeError, match=text):
        call()


def test_wrong_shapes_are_refused():
    with pytest.raises(
        gh.ShapeError, match=r"add: expected shapes that broadcast.*\(2,\) and \(3,\)"
    ):
        gh.add(gh.ones(2), gh.ones(3))
    with pytest.raises(gh.ShapeError, match="where: expected shapes that broadcast"):
        gh.where(gh.ones(2), gh.ones(3), 1.0)


def test_tensors_of_other_libraries_are_refused():
    torch = pytest.importorskip("torch")
    for call in (gh.sin, gh.asarray, lambda t: gh.add(gh.ones(2), t), lambda t: gh.sin([t])):
        with pytest.raises(gh.DTypeError, match=r"got torch\.Tensor.*from_dlpack"):
            call(torch.ones(2))
