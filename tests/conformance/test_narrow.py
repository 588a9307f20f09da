"""Every public function of tensors on 16-bit floats, at their ends, against itself on float64.

A result is right if it is that of float64, rounded, up to a few units in the last place, or that of
float32 (whose own range and cancellation are not at issue here); so are gradients."""

import inspect
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from narrow_calls import CALLS, EXCEPTIONS, SPACES, TEMPLATES, Draw

import glasshouse as gh
from glasshouse.base.errors import DTypeError

NAMES = (Path(__file__).parent.parent / "structure" / "public_names.txt").read_text().split()
# Where elements of the operands under test lie: whole numbers whose squares exceed float16, numbers
# near its largest and its smallest, and such with as many digits in bfloat16, cubes in float32.
RANGES = {
    "typical": lambda rng, shape, top, low: rng.normal(size=shape),
    "ties": lambda rng, shape, top, low: rng.integers(-2, 3, shape),
    "squares": lambda rng, shape, top, low: rng.integers(290, 310, shape),
    "large": lambda rng, shape, top, low: scattered(rng, shape) * top,
    "tiny": lambda rng, shape, top, low: scattered(rng, shape) * low,
}
ENDS = {"float16": (6e4, 1e-4), "bfloat16": (1e11, 1e-12)}
VALUES, GRADIENTS = (2, 0.02), (8, 2)  # units in the last place: of each element, of the largest


def scattered(rng, shape):
    return rng.uniform(0.01, 1, shape) * rng.choice([-1, 1], shape)


def functions() -> dict:
    """The public functions of the array namespaces, without those that write."""
    results = {}
    for name in NAMES:
        space, _, last = name.rpartition(".")
        if space in SPACES and not last.endswith("_"):
            function = getattr(SPACES[space], last)
            if inspect.ismodule(function):
                function = inspect.unwrap(function)  # what calling this package runs
            if callable(function) and not inspect.isclass(function):
                results[name] = function
    return results


FUNCTIONS = functions()


def drawn(args, rng, dtype: str, where: str):
    """The arguments with an array of the dtype in place of each operand to draw."""
    if isinstance(args, Draw):
        if args.kind == "unit":
            values = rng.normal(size=args.shape)
        elif args.kind == "part":
            values = rng.uniform(0.05, 0.95, args.shape)
        else:
            values = RANGES[where](rng, args.shape, *ENDS[dtype])
        return Leaf(values.astype(getattr(gh, dtype).np))
    if isinstance(args, dict):
        return {name: drawn(x, rng, dtype, where) for name, x in args.items()}
    return tuple(drawn(x, rng, dtype, where) for x in args) if isinstance(args, tuple) else args


class Leaf:
    """An operand's numbers, which a run has in its own dtype."""

    def __init__(self, array):
        self.array = array


def built(args, dtype, leaves: list):
    if isinstance(args, Leaf):
        leaf = gh.tensor(args.array.astype(np.float64), dtype=dtype, requires_grad=True)
        leaves.append(leaf)
        return leaf
    if isinstance(args, dict):
        return {name: built(x, dtype, leaves) for name, x in args.items()}
    if isinstance(args, np.ndarray) and args.dtype.kind == "f":
        return gh.asarray(args.astype(dtype.np))
    return tuple(built(x, dtype, leaves) for x in args) if isinstance(args, tuple) else args


def tensors_of(result) -> list:
    if isinstance(result, gh.Tensor):
        return [result]
    parts = result if isinstance(result, (tuple, list)) else ()
    return [y for part in parts for y in tensors_of(part)]


def run(function, args, named, dtype):
    """(results, gradients of the operands), where each result has a cotangent of quarters."""
    leaves: list = []
    results = tensors_of(function(*built(args, dtype, leaves), **built(named, dtype, leaves)))
    rng = np.random.default_rng(5)
    for y in results:
        weights = rng.integers(1, 5, y.shape) / 4
        if y.requires_grad and y.dtype.is_floating:
            y.backward(gh.asarray(weights.astype(y.dtype.np)), retain_graph=True)
    grads = [x.grad.numpy() for x in leaves if x.grad is not None]
    return [y.detach().numpy() for y in results], grads


def is_near(got, expected, dtype, limits) -> bool:
    """Whether numbers are the expected ones, rounded to their dtype, within limits."""
    if got.shape != expected.shape:
        return False
    if got.dtype.kind in "biu":
        return np.array_equal(got, expected)
    narrow = got.dtype.itemsize == 2
    info = ml_dtypes.finfo(got.dtype if narrow else np.float32)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    rounded = (expected.astype(got.dtype) if narrow else expected).astype(wide)
    got, finite = got.astype(wide), np.isfinite(rounded)
    largest = np.max(np.abs(rounded[finite]), initial=0)
    each, of_largest = limits
    eps = float(info.eps) * (1 if narrow else 64)
    allowed = each * np.maximum(eps * np.abs(rounded), float(info.smallest_subnormal))
    allowed = allowed + of_largest * eps * largest
    same = (got == rounded) | ((got != got) & (rounded != rounded))
    near = np.abs(np.where(finite, got - rounded, 0)) <= allowed
    end = (1 - 4 * eps) * float(info.max)  # where the last rounding says whether it is infinite
    beyond = (np.abs(got) >= end) & (np.abs(rounded) >= end) & (np.sign(got) == np.sign(rounded))
    return bool(np.all(same | (finite & near) | beyond))


def calls_of(name: str) -> list:
    """The calls of a function: those that are listed, or the first template that fits."""
    listed = [(args, named) for called, args, named in CALLS if called == name]
    if listed:
        return listed
    for template in TEMPLATES:
        args = drawn(template, np.random.default_rng(0), "float16", "typical")
        try:
            if run(FUNCTIONS[name], args, {}, gh.float64)[0]:
                return [(template, {})]
        except Exception:
            pass
    return []


@pytest.fixture(autouse=True)
def computed_by_references():
    with gh.backends.use("numpy"), np.errstate(all="ignore"):
        yield


def test_exceptions_are_functions_that_are_not_called():
    assert not set(EXCEPTIONS) - set(FUNCTIONS)
    assert {name for name, _, _ in CALLS} <= set(FUNCTIONS)


SLOW = ("gh.igamma", "gh.igammac", "gh.special.gammainc", "gh.special.gammaincc")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in FUNCTIONS
        if name not in EXCEPTIONS
    ],
)
def test_what_accumulates_or_counts_is_wide(name):
    calls = calls_of(name)
    assert calls, f"Name a call of {name} in narrow_calls.py."
    for args, named in calls:
        for dtype in ENDS:
            for where in RANGES:
                check(name, args, named, dtype, where)


def check(name: str, args, named, dtype: str, where: str) -> None:
    rng = np.random.default_rng(1)
    args, named = drawn(args, rng, dtype, where), drawn(named, rng, dtype, where)
    function = FUNCTIONS[name]
    try:
        got = run(function, args, named, getattr(gh, dtype))
    except DTypeError as error:
        assert "'linalg'" in str(error), error
        return  # factorisations take no 16-bit floats
    exact = run(function, args, named, gh.float64)
    single: list = []
    for kind, limits in enumerate((VALUES, GRADIENTS)):
        assert len(got[kind]) == len(exact[kind])
        for i, (mine, theirs) in enumerate(zip(got[kind], exact[kind], strict=True)):
            if is_near(mine, theirs, dtype, limits):
                continue
            single = single or list(run(function, args, named, gh.float32))
            text = f"{name} of {dtype}, {where}, {('value', 'gradient')[kind]} {i}"
            text += f": got {mine.ravel()[:4]}, expected {theirs.ravel()[:4]}"
            assert is_near(mine, single[kind][i], dtype, limits), text
