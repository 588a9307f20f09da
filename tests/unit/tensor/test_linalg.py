"""gh.linalg against NumPy; gradients against differences."""

import math

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, LinAlgError, OptionError, ShapeError

rng = np.random.default_rng(0)
L = gh.linalg
X = rng.normal(size=(3, 4, 4))
B = rng.normal(size=(3, 4, 2))
Z = X + 1j * rng.normal(size=X.shape)
SPD = X @ np.swapaxes(X, -1, -2) + np.eye(4)


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("det", (X,), {}),
        ("det", (Z,), {}),
        ("inv", (X,), {}),
        ("inv", (Z,), {}),
        ("solve", (X, B), {}),
        ("solve", (X, B[0]), {}),
        ("solve", (X, B[0, :, 0]), {}),
        ("pinv", (X[:, :, :2],), {}),
        ("matrix_rank", (X,), {}),
        ("cholesky", (SPD,), {}),
        ("matrix_power", (X, 3), {}),
        ("matrix_power", (X, -2), {}),
        ("matrix_power", (X, 0), {}),
        ("eigvalsh", (SPD,), {}),
        ("svdvals", (B,), {}),
        ("trace", (X,), {"offset": 1}),
        ("diagonal", (B,), {"offset": -1}),
        ("cross", (X[:, :3], X[:, 1:]), {"axis": 1}),
        *[
            ("matrix_norm", (B,), {"ord": o, "keepdims": True})
            for o in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
        ],
        *[
            ("vector_norm", (B,), {"ord": o, "axis": 1})
            for o in (0, 1, 2, 3, 0.5, -1, math.inf, -math.inf)
        ],
        ("vector_norm", (Z,), {"axis": (0, 2), "keepdims": True}),
    ],
)
def test_values_are_numpys(name, args, options):
    ours = [gh.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    got = getattr(L, name)(*ours, **options)
    expected = getattr(np.linalg, name)(*args, **options)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-8, atol=1e-10)


def test_factors_multiply_to_the_matrix():
    a = gh.asarray(X)
    q, r = L.qr(a)
    np.testing.assert_allclose((q @ r).numpy(), X)
    u, s, vh = L.svd(gh.asarray(B), full_matrices=False)
    np.testing.assert_allclose((u * s[:, None, :] @ vh).numpy(), B, atol=1e-12)
    w, v = L.eigh(gh.asarray(SPD))
    np.testing.assert_allclose((v * w[:, None, :] @ v.mT).numpy(), SPD)
    p, lower, upper = L.lu(a)
    np.testing.assert_allclose((p @ lower @ upper).numpy(), X)
    up = L.cholesky(gh.asarray(SPD), upper=True)
    np.testing.assert_allclose((up.mT @ up).numpy(), SPD)


def test_slogdet_and_lstsq():
    for got, expected in zip(L.slogdet(gh.asarray(X)), np.linalg.slogdet(X), strict=True):
        np.testing.assert_allclose(got.numpy(), expected)
    got = L.lstsq(gh.asarray(X[0, :, :2]), gh.asarray(B[0]))
    expected = np.linalg.lstsq(X[0, :, :2], B[0])
    np.testing.assert_allclose(got.solution.numpy(), expected[0])
    np.testing.assert_allclose(got.residuals.numpy(), expected[1])
    assert got.rank.item() == expected[2]


FUNCTIONS = {
    "det": L.det,
    "inv": lambda a: gh.sum(L.inv(a)),
    "slogdet": lambda a: L.slogdet(a).logabsdet,
    "solve": lambda a: gh.sum(L.solve(a, gh.asarray(B[0])) ** 2),
    "pinv": lambda a: gh.sum(L.pinv(a[:, :2]) ** 2),
    "fro": L.matrix_norm,
    "nuc": lambda a: L.matrix_norm(a, ord="nuc"),
    "qr": lambda a: gh.sum(L.qr(a).R ** 2 * np.arange(4.0)),
    "eigh": lambda a: gh.sum(L.eigvalsh(a + a.mT) * np.arange(4.0)),
    "norm3": lambda a: L.vector_norm(a, ord=3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_the_differences(name):
    fn, x, eps = FUNCTIONS[name], X[0], 1e-6
    numeric = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = eps
        numeric[i] = (fn(gh.asarray(x + step)).item() - fn(gh.asarray(x - step)).item()) / 2 / eps
    np.testing.assert_allclose(gh.grad(fn)(gh.asarray(x)).numpy(), numeric, rtol=1e-5, atol=1e-6)


def cofactors(a):
    def minor(i, j):
        return (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1))

    return np.array([[minor(i, j) for j in range(len(a))] for i in range(len(a))])


@pytest.mark.parametrize(
    "a",
    [
        np.diag([1.0, 0.0, 3.0]),
        np.diag([0.0, 2.0, 0.0]),
        np.ones((3, 3)),
        np.zeros((2, 2)),
        X[0],
        np.array([[1.0, 2.0], [2.0, 4.0]]),
    ],
)
def test_the_gradient_of_det_holds_the_cofactors_even_if_singular(a):
    x = gh.tensor(a, requires_grad=True)
    out = L.det(x)
    out.backward()
    assert out.item() == pytest.approx(np.linalg.det(a), abs=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), cofactors(a), atol=1e-6)
    np.testing.assert_allclose(gh.vmap(gh.grad(L.det))(x[None])[0].numpy(), x.grad.numpy())


def test_norm_neither_overflows_nor_has_a_bad_gradient_at_zero():
    assert L.vector_norm(gh.asarray([3e30, 4e30])).item() == pytest.approx(5e30)
    assert gh.grad(L.vector_norm)(gh.zeros(2)).tolist() == [0.0, 0.0]


def test_transforms_reach_inside():
    a = gh.asarray(X)
    per_matrix = gh.vmap(gh.grad(L.det))(a).numpy()
    inverse = np.linalg.inv(X).swapaxes(-1, -2)
    np.testing.assert_allclose(per_matrix, np.linalg.det(X)[:, None, None] * inverse, rtol=1e-8)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: L.inv(gh.zeros((2, 2))), LinAlgError, "pivot of 0"),
        (lambda: L.cholesky(gh.asarray([[-1.0]])), LinAlgError, "positive definite"),
        (lambda: L.det(gh.ones((2, 3))), ShapeError, r"\(2, 3\)"),
        (lambda: L.qr(gh.ones((2, 2)), mode="full"), OptionError, "full"),
        (lambda: L.solve(gh.ones((2, 2)), gh.ones(3)), ShapeError, "2 rows"),
        (lambda: L.matrix_norm(gh.ones((2, 2)), ord=3), OptionError, "got 3"),
        (lambda: L.vector_norm(gh.ones(2), ord="fro"), DTypeError, "'fro'"),
        (lambda: L.cross(gh.ones(2), gh.ones(2)), ShapeError, "size 3"),
        (lambda: L.matrix_power(gh.ones((2, 2)), 0.5), DTypeError, "0.5"),
        (lambda: L.eigh(gh.ones((2, 2), dtype=gh.float16)), DTypeError, "eigh: .*float16"),
    ],
)
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        result = call()
        result.numpy()  # what is wrong with contents shows when they are read
