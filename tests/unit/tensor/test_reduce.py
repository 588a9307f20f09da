"""Reductions: derivatives, 16-bit floats, NumPy's and PyTorch's habits, errors."""

import math

import numpy as np
import pytest

import glasshouse as gh

inf, nan = math.inf, math.nan


def gradient(function, point):
    x = gh.tensor(point, gh.float64, requires_grad=True)
    function(x).backward()
    return x.grad.tolist()


CASES = [
    ("sum", [1.0, 2.0], [1, 1]),
    ("prod", [0.0, 2.0, 3.0], [6, 0, 0]),
    ("prod", [0.0, 0.0, 3.0], [0, 0, 0]),
    ("max", [1.0, 3.0, 3.0], [0, 0.5, 0.5]),
    ("min", [1.0, 3.0, 1.0], [0.5, 0, 0.5]),
    ("mean", [1.0, 3.0], [0.5, 0.5]),
    ("var", [1.0, 3.0], [-1, 1]),
    ("std", [1.0, 3.0], [-0.5, 0.5]),
    ("std", [2.0, 2.0], [0, 0]),
    ("logsumexp", [0.0, 0.0], [0.5, 0.5]),
    ("logsumexp", [-inf, 0.0], [0, 1]),
    ("logsumexp", [-inf, -inf], [0, 0]),
    ("logsumexp", [1000.0, -1000.0], [1, 0]),
]


@pytest.mark.parametrize(("name", "point", "expected"), CASES)
def test_derivatives(name, point, expected):
    assert gradient(getattr(gh, name), point) == pytest.approx(expected)


@pytest.mark.parametrize(
    "name", ["cumulative_sum", "cumulative_prod", "diff", "var", "std", "prod"]
)
def test_second_derivatives_agree_with_differences(name):
    x = gh.asarray([0.5, -1.5, 2.0, 0.0], gh.float64)

    def function(x):
        return gh.sum(gh.square(getattr(gh, name)(x)))

    exact = gh.hessian(function)(x).numpy()
    step = 1e-6
    columns = [
        (gh.grad(function)(x + step * e) - gh.grad(function)(x - step * e)) / (2 * step)
        for e in np.eye(4)
    ]
    np.testing.assert_allclose(exact, gh.stack(columns, 1).numpy(), atol=1e-6)


def test_sixteen_bit_floats_are_summed_in_float32():
    x = gh.ones((5000,), dtype=gh.float16) * 0.1
    exact = float(x[0]) * 5000
    assert gh.sum(x).dtype is gh.float16 and gh.sum(x).item() == pytest.approx(exact, rel=1e-3)
    assert gh.mean(x).item() == pytest.approx(float(x[0]), rel=1e-3)
    assert gh.var(gh.asarray([200.0, 300.0, 100.0], gh.float16)).item() == pytest.approx(
        6667, rel=1e-3
    )
    assert gh.logsumexp(gh.zeros(9000, dtype=gh.bfloat16)).dtype is gh.bfloat16


def test_integers_and_booleans():
    flags = gh.asarray([[True, False], [True, True]])
    assert gh.sum(flags).item() == 3 and gh.sum(flags).dtype is gh.int64
    assert gh.mean(flags).item() == 0.75 and gh.max(flags, axis=1).tolist() == [True, True]
    assert gh.min(flags, axis=1).tolist() == [False, True] and gh.argmax(flags, 1).tolist() == [
        0,
        0,
    ]
    assert gh.sum(gh.asarray([200, 100], gh.uint8)).dtype is gh.uint64
    assert (
        gh.mean([1, 2]).dtype is gh.float32 and gh.any([0, 2]).item() and not gh.all([0, 2]).item()
    )
    assert gh.diff([True, False, False]).tolist() == [True, False]


def test_complex_variance_is_real():
    z = np.random.default_rng(0).normal(size=(4, 2)).view(np.complex128)
    assert gh.var(z, correction=1).item() == pytest.approx(np.var(z, ddof=1))
    assert gh.std(z, axis=0).dtype is gh.float64 and gh.mean(z).dtype is gh.complex128


def test_axes_may_be_positional_and_lists():
    x = gh.reshape(gh.arange(24.0), (2, 3, 4))
    assert gh.sum(x, 0).shape == (3, 4) and gh.mean(x, [0, 2]).shape == (3,)
    assert gh.logsumexp(x, -1, keepdims=True).shape == (2, 3, 1)
    assert gh.cumulative_sum(x, 1).shape == (2, 3, 4) and gh.argmin(x, 2).shape == (2, 3)
    assert gh.std(x, (1, 2), keepdims=True).shape == (2, 1, 1)


def test_scans_of_any_length():
    for size in (0, 1, 2, 3, 7, 8, 9):
        x = np.random.default_rng(size).uniform(0.5, 1.5, (2, size))
        ours = gh.cumulative_prod(x, axis=1).numpy()
        np.testing.assert_allclose(ours, np.cumprod(x, 1), rtol=1e-13)
        with_first = gh.cumulative_prod(x, axis=1, include_initial=True)
        assert with_first.shape == (2, size + 1) and with_first[:, 0].tolist() == [1, 1]


def test_differences_with_ends():
    x = gh.asarray([[1, 4, 9]])
    assert gh.diff(x, prepend=0, append=gh.asarray([[16]])).tolist() == [[1, 3, 5, 7]]
    assert gh.diff(x, prepend=[[0.5]]).dtype is gh.float32 and gh.diff(x, 5).shape == (1, 0)


def test_empty_and_infinite_rows():
    assert math.isnan(gh.mean([]).item()) and gh.sum([]).item() == 0 and gh.prod([]).item() == 1
    assert gh.all([]).item() and not gh.any([]).item()
    assert gh.logsumexp(gh.zeros((2, 0)), 1).tolist() == [-inf, -inf]
    assert gh.logsumexp([inf, 0.0]).item() == inf and gh.logsumexp([-inf]).item() == -inf
    assert math.isnan(gh.logsumexp([nan, 0.0]).item())
    assert math.isnan(gh.var([1.0], correction=1).item())


ERRORS = [
    (lambda x: gh.sum(x, axis=2), gh.ShapeError, "sum: expected an axis from -2 to 1; got axis 2"),
    (lambda x: gh.sum(x, axis=2), IndexError, "got axis 2"),
    (lambda x: gh.sum(x, axis="x"), gh.DTypeError, "sum: expected an integer axis; got 'x'"),
    (lambda x: gh.mean(x, axis=(0, 0)), gh.ShapeError, "mean: expected distinct axes"),
    (lambda x: gh.sum(x, dtype=gh.bool), gh.DTypeError, "sum: expected a numeric dtype; got bool"),
    (lambda x: gh.max(gh.zeros((0, 2)), axis=0), gh.ShapeError, "at least one element"),
    (lambda x: gh.min(gh.zeros((0,), dtype=gh.bool)), gh.DTypeError, "min: expected a dtype"),
    (lambda x: gh.max(x * 1j), gh.DTypeError, "max: expected real values"),
    (lambda x: gh.argmax(x * 1j), gh.DTypeError, "argmax: expected real values"),
    (lambda x: gh.argmax(gh.zeros(0)), gh.ShapeError, "at least one element"),
    (lambda x: gh.logsumexp(x * 1j), gh.DTypeError, "logsumexp: expected real values"),
    (lambda x: gh.cumulative_sum(x), gh.ShapeError, "cumulative_sum: expected an axis for 2 axes"),
    (lambda x: gh.cumulative_prod(gh.ones(())), gh.ShapeError, "expected an axis"),
    (lambda x: gh.diff(x, n=-1), gh.OptionError, "n of 0 or more; got -1"),
    (lambda x: gh.diff(gh.ones(())), gh.ShapeError, "no axis"),
    (lambda x: gh.any("a"), gh.DTypeError, "any: expected numbers"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(gh.ones((2, 3)))
