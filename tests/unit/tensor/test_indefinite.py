"""Factors of symmetric matrices and a few of their eigenvalues, beside PyTorch's and SciPy's."""

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")


def stack(is_complex: bool):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 6, 6)) + (1j * rng.normal(size=(3, 6, 6)) if is_complex else 0)
    x[0] *= 1 - np.eye(6)  # blocks of 2
    return x


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_ldl_is_packed_and_solves_as_pytorchs(is_complex, hermitian):
    x = stack(is_complex)
    ours = gh.linalg.ldl_factor_ex(gh.tensor(x), hermitian=hermitian)
    theirs = torch.linalg.ldl_factor_ex(torch.tensor(x), hermitian=hermitian)
    np.testing.assert_array_equal(ours.pivots.numpy(), theirs.pivots.numpy())
    np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), atol=1e-10)
    b = x[:, :, :2]
    y = gh.linalg.ldl_solve(ours.LD, ours.pivots, gh.tensor(b), hermitian=hermitian)
    z = torch.linalg.ldl_solve(theirs.LD, theirs.pivots, torch.tensor(b), hermitian=hermitian)
    np.testing.assert_allclose(y.numpy(), z.numpy(), atol=1e-9)


def test_a_singular_block_is_told():
    assert gh.linalg.ldl_factor_ex(gh.zeros((2, 2))).info.item() == 1
    with pytest.raises(gh.LinAlgError):
        gh.linalg.ldl_factor(gh.zeros((2, 2)))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("general", [True, False])
def test_lobpcg_finds_the_eigenvalues_that_eigh_finds(largest, general):
    rng = np.random.default_rng(0)
    a, b = (m @ m.T + 5 * np.eye(20) for m in rng.normal(size=(2, 20, 20)))
    gh.random.seed(0)
    B = gh.tensor(b) if general else None
    values, vectors = gh.lobpcg(gh.tensor(a), 3, B=B, largest=largest, tol=1e-10)
    root = np.linalg.inv(np.linalg.cholesky(b)) if general else np.eye(20)
    expected = np.linalg.eigvalsh(root @ a @ root.T)
    expected = expected[::-1][:3] if largest else expected[:3]
    np.testing.assert_allclose(values.numpy(), expected, rtol=1e-8)
    left = a @ vectors.numpy()
    right = (b if general else np.eye(20)) @ vectors.numpy() * values.numpy()
    np.testing.assert_allclose(left, right, atol=1e-5 * np.abs(a).max())


def test_eigenvalues_of_lobpcg_have_a_gradient():
    a = np.diag([5.0, 3, 2, 1, 0.5, 0.1])
    x = gh.tensor(a, requires_grad=True)
    gh.random.seed(0)
    gh.lobpcg(x, 2)[0][1].backward()
    expected = np.zeros((6, 6))
    expected[1, 1] = 1
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-6)


def test_lobpcg_refuses_too_many():
    with pytest.raises(gh.ShapeError, match="6 rows or more"):
        gh.lobpcg(gh.eye(5), 2)


def test_airy_ai_equals_scipys():
    """PyTorch's own is off by 3e-6 around -2.6."""
    special = pytest.importorskip("scipy.special")
    x = np.linspace(-12, 10, 101)
    expected = special.airy(x)
    y = gh.special.airy_ai(gh.tensor(x)).numpy()
    np.testing.assert_allclose(y, expected[0], rtol=1e-11, atol=1e-13)
    slope = gh.grad(lambda x: gh.special.airy_ai(x).sum())(gh.tensor(x)).numpy()
    np.testing.assert_allclose(slope, expected[1], rtol=1e-10, atol=1e-12)
