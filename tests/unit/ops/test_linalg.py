"""Factorisations against NumPy, SciPy and PyTorch; derivatives against central differences."""

import numpy as np
import pytest

from glasshouse.base.errors import GradError, LinAlgError
from glasshouse.dispatch.value import as_value
from glasshouse.ops import linalg
from glasshouse.ops.contract import adjoint, matmul
from glasshouse.ops.linalg import cholesky, eigh, lu, qr, svd, triangular_solve
from glasshouse.transforms.reverse import vjp

rng = np.random.default_rng(0)


def draw(*shape, dtype="complex128"):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape)) if dtype == "complex128" else x


def positive(n, dtype):
    x = draw(2, n, n, dtype=dtype)
    return x @ np.conj(x.mT) + n * np.eye(n)


def spectral(dtype, m, n):
    """A matrix with singular values 1, 2, …."""
    k = min(m, n)
    u, v = (np.linalg.qr(draw(size, k, dtype=dtype)).Q for size in (m, n))
    return (u * np.arange(1, k + 1)) @ np.conj(v.T)


dtypes = pytest.mark.parametrize("dtype", ["float64", "complex128"])


@dtypes
def test_cholesky(check_derivatives, dtype):
    a = positive(3, dtype)
    got = cholesky(as_value(a)).numpy()
    np.testing.assert_allclose(got, np.linalg.cholesky(a))
    check_derivatives(cholesky, a)


def test_cholesky_refuses_an_indefinite_matrix():
    with pytest.raises(LinAlgError, match="positive definite"):
        cholesky(as_value(np.diag([1.0, -2.0]))).numpy()


def test_svd_of_nan_is_refused():
    with pytest.raises(LinAlgError, match="finite"):
        svd(as_value(np.full((2, 2), np.nan)), full_matrices=False)[1].numpy()


@pytest.mark.sample(10)
@dtypes
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 4), (1, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(check_derivatives, dtype, shape, mode):
    a = draw(*shape, dtype=dtype)
    q, r = qr(as_value(a), mode=mode)
    expected = np.linalg.qr(a, mode)
    np.testing.assert_allclose(q.numpy(), expected.Q, atol=1e-12)
    np.testing.assert_allclose(r.numpy(), expected.R, atol=1e-12)
    if mode == "reduced" or shape[-2] <= shape[-1]:
        check_derivatives(lambda a: qr(a, mode=mode), a)


def test_gradients_of_vectors_that_are_not_unique_are_refused():
    a = as_value(draw(3, 2))
    (q, r), back = vjp(lambda a: qr(a, mode="complete"), a)
    with pytest.raises(GradError, match="'reduced'"):
        back((q, r))
    (u, s, vh), back = vjp(lambda a: svd(a, full_matrices=True), a)
    with pytest.raises(GradError, match="full_matrices=False"):
        back((u, s, vh))


@dtypes
def test_lu(check_derivatives, dtype):
    scipy_linalg = pytest.importorskip("scipy.linalg")
    a = draw(2, 4, 4, dtype=dtype)
    packed, perm = (y.numpy() for y in lu(as_value(a)))
    lower, upper = np.tril(packed, -1) + np.eye(4), np.triu(packed)
    np.testing.assert_allclose(np.take_along_axis(a, perm[..., None], -2), lower @ upper)
    if dtype == "float64":
        for i in range(2):
            np.testing.assert_allclose(packed[i], scipy_linalg.lu_factor(a[i])[0])
    check_derivatives(lambda a: lu(a)[0], a)


def test_lu_of_a_singular_matrix_is_finite():
    packed, perm = lu(as_value(np.array([[1.0, 2, 3], [2, 4, 6], [0, 0, 1]])))
    assert np.isfinite(packed.numpy()).all() and np.prod(np.diag(packed.numpy())) == 0
    assert sorted(perm.numpy().tolist()) == [0, 1, 2]


@dtypes
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(check_derivatives, dtype, lower, transpose, unit):
    scipy_linalg = pytest.importorskip("scipy.linalg")
    attrs = {"lower": lower, "transpose": transpose, "unit_diagonal": unit}
    a, b = draw(5, 5, dtype=dtype) + 3 * np.eye(5), draw(5, 3, dtype=dtype)
    expected = scipy_linalg.solve_triangular(a, b, int(transpose), lower, unit)
    got = triangular_solve(as_value(a), as_value(b), **attrs).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    check_derivatives(lambda a, b: triangular_solve(a, b, **attrs), a, b)


def projectors(v):
    """v_j v_j^H for every column: what does not depend on the phase of the columns."""
    columns = [linalg.columns(v, j, j + 1) for j in range(v.shape[-1])]
    return tuple(matmul(c, adjoint(c)) for c in columns)


@dtypes
def test_eigh(check_derivatives, dtype):
    a = draw(3, 3, dtype=dtype)
    hermitian = (a + np.conj(a.T)) / 2
    w, v = eigh(as_value(a))
    np.testing.assert_allclose(w.numpy(), np.linalg.eigvalsh(hermitian))
    np.testing.assert_allclose(hermitian @ v.numpy(), v.numpy() * w.numpy(), atol=1e-12)
    check_derivatives(lambda a: eigh(a)[0], a)
    check_derivatives(lambda a: projectors(eigh(a)[1]), a)


@pytest.mark.sample(4)
@dtypes
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_svd(check_derivatives, dtype, shape):
    a = spectral(dtype, *shape)

    def invariants(a):
        """s, and the rank-one parts u_j v_j^H: the phases of u and vh cancel."""
        u, s, vh = svd(a, full_matrices=False)
        pairs = zip(columns_of(u), columns_of(adjoint(vh)), strict=True)
        return (s, *(matmul(left, adjoint(right)) for left, right in pairs))

    u, s, vh = (y.numpy() for y in svd(as_value(a), full_matrices=False))
    np.testing.assert_allclose((u * s) @ vh, a, atol=1e-12)
    np.testing.assert_allclose(s, np.arange(min(shape), 0, -1))
    check_derivatives(invariants, a)


def columns_of(v):
    return [linalg.columns(v, j, j + 1) for j in range(v.shape[-1])]


@dtypes
@pytest.mark.parametrize("name", ["cholesky", "qr", "eigh", "svd"])
def test_gradients_match_torch(dtype, name):
    """A loss that phases do not matter to: |entries|² of every factor, weighted."""
    torch = pytest.importorskip("torch")
    a = positive(3, dtype)[0] if name == "cholesky" else spectral(dtype, 3, 3)
    options = {"qr": {"mode": "reduced"}, "svd": {"full_matrices": False}}.get(name, {})
    t = torch.tensor(a, requires_grad=True)
    symmetric = (t + t.mH) / 2 if name in ("cholesky", "eigh") else t
    theirs = getattr(torch.linalg, name)(symmetric, **options)
    theirs = (theirs,) if name == "cholesky" else tuple(theirs)
    weights = [rng.normal(size=tuple(y.shape)) for y in theirs]
    loss = sum((abs(y) ** 2 * torch.tensor(w)).sum() for y, w in zip(theirs, weights, strict=True))
    loss.backward()
    ours, back = vjp(lambda x: getattr(linalg, name)(x, **options), as_value(a))
    ours = ours if isinstance(ours, tuple) else (ours,)
    gs = tuple(as_value(2 * y.numpy() * w) for y, w in zip(ours, weights, strict=True))
    (got,) = back(gs[0] if len(gs) == 1 else gs)
    np.testing.assert_allclose(got.numpy(), t.grad.numpy(), rtol=1e-8, atol=1e-10)


def test_gradients_of_repeated_eigenvalues_alone_are_finite():
    """d sum(w) / dA = 1, though the eigenvectors of the identity have no derivative."""
    for fn, matrix in (
        (lambda a: eigh(a)[0], np.eye(3)),
        (lambda a: svd(a, full_matrices=False)[1], np.eye(3)),
        (lambda a: svd(a, full_matrices=False)[1], np.eye(3, 2)),
    ):
        y, back = vjp(fn, as_value(matrix))
        (got,) = back(as_value(np.ones(y.shape)))
        np.testing.assert_allclose(got.numpy(), matrix, atol=1e-12)


def test_gradient_of_a_repeated_eigenvector_is_not_silently_wrong():
    _, back = vjp(lambda a: eigh(a)[1], as_value(np.eye(2)))
    (got,) = back(as_value(np.ones((2, 2))))
    assert not np.isfinite(got.numpy()).all()
