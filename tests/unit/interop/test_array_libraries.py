"""einops, SciPy and scikit-learn on our tensors, where they are installed."""

import os

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop

X = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize(
    ("function", "pattern", "options"),
    [
        ("rearrange", "a b -> (b a)", {}),
        ("rearrange", "(a c) b -> a b c", {"c": 4}),
        ("reduce", "(a c) b -> a b", {"c": 4, "reduction": "mean"}),
        ("reduce", "a b -> ", {"reduction": "max"}),
        ("repeat", "a b -> a c b", {"c": 2}),
    ],
)
def test_einops_takes_our_tensors(function, pattern, options):
    einops = pytest.importorskip("einops")
    interop.register_einops()
    interop.register_einops()
    call = getattr(einops, function)
    results = call(gh.asarray(X), pattern, **options)
    np.testing.assert_allclose(results.numpy(), call(X, pattern, **options), rtol=1e-12)


def test_einops_passes_gradients():
    einops = pytest.importorskip("einops")
    interop.register_einops()
    x = gh.tensor(X, requires_grad=True)
    (einops.rearrange(x, "a b -> b a") ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * X, rtol=1e-12)


SCIPY = [
    lambda scipy, x: scipy.special.logsumexp(x, axis=0),
    lambda scipy, x: scipy.stats.zscore(x),
    lambda scipy, x: scipy.stats.gmean(abs(x)),
    lambda scipy, x: scipy.stats.kurtosis(x),
    lambda scipy, x: scipy.integrate.trapezoid(x, axis=0),
    lambda scipy, x: scipy.fft.fft(x, axis=0),
]


@pytest.fixture
def scipy_with_dispatch():
    scipy = pytest.importorskip("scipy")
    for part in ("special", "stats", "integrate", "fft"):
        pytest.importorskip(f"scipy.{part}")
    config = pytest.importorskip("scipy._lib._array_api_override")
    before = config.SCIPY_ARRAY_API
    config.SCIPY_ARRAY_API = "1"
    yield scipy
    config.SCIPY_ARRAY_API = before


@pytest.mark.parametrize("call", SCIPY)
def test_scipy_computes_with_our_tensors(scipy_with_dispatch, call):
    results = call(scipy_with_dispatch, gh.asarray(X))
    assert isinstance(results, gh.Tensor)
    expected = call(scipy_with_dispatch, X)
    np.testing.assert_allclose(results.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda sklearn: sklearn.preprocessing.StandardScaler(),
        lambda sklearn: sklearn.preprocessing.MinMaxScaler(),
        lambda sklearn: sklearn.decomposition.PCA(2, svd_solver="full"),
    ],
)
def test_scikit_learn_transforms_our_tensors(monkeypatch, make):
    sklearn = pytest.importorskip("sklearn")
    pytest.importorskip("sklearn.preprocessing")
    pytest.importorskip("sklearn.decomposition")
    config = pytest.importorskip("scipy._lib._array_api_override")
    monkeypatch.setattr(config, "SCIPY_ARRAY_API", "1")
    monkeypatch.setitem(os.environ, "SCIPY_ARRAY_API", "1")
    expected = make(sklearn).fit_transform(X)
    with sklearn.config_context(array_api_dispatch=True):
        results = make(sklearn).fit_transform(gh.asarray(X))
    assert isinstance(results, gh.Tensor)
    np.testing.assert_allclose(results.numpy(), expected, rtol=1e-6, atol=1e-9)
