"""Wrong calls of gh.fft, gh.special and gh.linalg: each error says what was expected, what
came, and the fix."""

import pytest
from wrong_calls import check_refused

import glasshouse as gh

NAMES = {
    "gh": gh,
    "X": gh.ones((3, 4)),
    "V": gh.ones(3),
    "B": gh.asarray([True, False]),
    "C": gh.asarray([1j, 2]),
}

TABLE = {
    # transforms
    "gh.fft.fft(X, n=0)": (gh.OptionError, "got 0"),
    "gh.fft.fft(X, n=-3)": (gh.OptionError, "got -3"),
    "gh.fft.fft(X, n=2.5)": (gh.OptionError, "got 2.5"),
    "gh.fft.fft(X, n='4')": (gh.OptionError, "got '4'"),
    "gh.fft.fft(X, axis=2)": (gh.AxisError, "got axis 2"),
    "gh.fft.fft(X, axis='a')": (gh.DTypeError, "got 'a' (str)"),
    "gh.fft.fft(X, norm='orto')": (gh.OptionError, "got 'orto'"),
    "gh.fft.fft(gh.asarray(1.0))": (gh.AxisError, "got axis -1"),
    "gh.fft.fft('abc')": (gh.DTypeError, "got str 'abc'"),
    "gh.fft.fft(None)": (gh.DTypeError, "got NoneType 'None'"),
    "gh.fft.rfft(C)": (gh.DTypeError, "got complex64"),
    "gh.fft.irfft(X, n=0)": (gh.OptionError, "got 0"),
    "gh.fft.fftn(X, s=(2, 2, 2))": (gh.OptionError, "got s=(2, 2, 2), axes=(1, 0, 1"),
    "gh.fft.fftn(X, s=(2,), axes=(0, 1))": (gh.OptionError, "got s=(2,), axes=(0, 1)"),
    "gh.fft.fftn(X, axes=(0, 0))": (gh.OptionError, "got s=None, axes=(0, 0)"),
    "gh.fft.fftn(X, axes=(0, 5))": (gh.AxisError, "got axis 5"),
    "gh.fft.fft2(V)": (gh.AxisError, "got axis -2"),
    "gh.fft.fftfreq(0)": (gh.OptionError, "got 0"),
    "gh.fft.fftfreq(4.5)": (gh.OptionError, "got 4.5"),
    "gh.fft.fftfreq(-2)": (gh.OptionError, "got -2"),
    "gh.fft.fftfreq(4, d='x')": (gh.OptionError, "got 'x'"),
    "gh.fft.fftfreq(4, d=0.0)": (gh.OptionError, "got 0.0"),
    "gh.fft.fftfreq(4, dtype=gh.int32)": (gh.DTypeError, "got int32"),
    "gh.fft.fftshift(X, axes=4)": (gh.AxisError, "got axis 4"),
    # special functions
    "gh.special.erf('x')": (gh.DTypeError, "got str 'x'"),
    "gh.special.gammaln(C)": (gh.DTypeError, "got complex64"),
    "gh.special.zeta(X, gh.ones((2, 2)))": (gh.ShapeError, "got (3, 4) and (2, 2)"),
    "gh.special.polygamma(-1, X)": (gh.OptionError, "got -1"),
    "gh.special.polygamma(1.5, X)": (gh.OptionError, "got 1.5"),
    "gh.special.multigammaln(X, 0)": (gh.OptionError, "got 0"),
    "gh.special.logit(X, eps='a')": (gh.OptionError, "got 'a'"),
    "gh.special.i0(C)": (gh.DTypeError, "got complex64"),
    "gh.special.bessel_j0(C)": (gh.DTypeError, "got complex64"),
    "gh.special.xlogy(X, gh.ones((2, 2)))": (gh.ShapeError, "got (3, 4) and (2, 2)"),
    "gh.special.chebyshev_polynomial_t(X, C)": (gh.DTypeError, "got int64"),
    "gh.special.logsumexp(X, 4)": (gh.AxisError, "got axis 4"),
    "gh.special.expit(None)": (gh.DTypeError, "got NoneType 'None'"),
    "gh.special.ndtri('x')": (gh.DTypeError, "got str 'x'"),
    "gh.special.gammainc(X, V)": (gh.ShapeError, "got (3, 4) and (3,)"),
    # linear algebra
    "gh.linalg.eig(X)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.eigh(X)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.svd(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.svdvals(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.lu(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.lu_factor(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.solve_triangular(X, X, upper=True)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.matrix_exp(X)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.matrix_power(X, 2)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.matrix_power(gh.eye(2), 1.5)": (gh.DTypeError, "got 1.5"),
    "gh.linalg.matrix_power(gh.zeros((2, 2)), -1)": (gh.LinAlgError, "got one with a pivot of 0"),
    "gh.linalg.multi_dot([X])": (gh.ShapeError, "got 1"),
    "gh.linalg.multi_dot([X, X])": (gh.ShapeError, "got (3, 4) and (3, 4)"),
    "gh.linalg.tensorsolve(X, V)": (gh.ShapeError, "got (3, 4) and (3,)"),
    "gh.linalg.tensorinv(X, 3)": (gh.ShapeError, "got (3, 4)"),
    "gh.linalg.cond(X, p='max')": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.norm(X, ord='foo')": (gh.OptionError, "got 'foo'"),
    "gh.linalg.norm(X, ord=2, axis=(0, 1, 2))": (gh.ShapeError, "got (0, 1, 2)"),
    "gh.linalg.vector_norm(X, axis=3)": (gh.AxisError, "got axis 3"),
    "gh.linalg.vector_norm(X, ord='a')": (gh.DTypeError, "got 'a'"),
    "gh.linalg.matrix_norm(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.pinv(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.lstsq(V, V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.lstsq(X, gh.ones((2, 2)))": (gh.ShapeError, "got x1 (3, 4) and x2 (2, 2)"),
    "gh.linalg.slogdet(X)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.matrix_rank(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.cross(X, X)": (gh.ShapeError, "got (3, 4) and (3, 4)"),
    "gh.linalg.cross(V, X)": (gh.ShapeError, "got (3,) and (3, 4)"),
    "gh.linalg.diagonal(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.trace(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.vecdot(X, V)": (gh.ShapeError, "got (3, 4) and (3,)"),
    "gh.linalg.householder_product(V, V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.cholesky(C)": (gh.ShapeError, "got shape (2,)"),
    "gh.linalg.cholesky(X)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.inv_ex(X)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.qr(V)": (gh.ShapeError, "got shape (3,)"),
    "gh.linalg.solve(gh.zeros((2, 2)), gh.ones(2))": (gh.LinAlgError, "got one with a pivot of 0"),
    "gh.linalg.solve(X, V)": (gh.ShapeError, "got shape (3, 4)"),
    "gh.linalg.inv('x')": (gh.DTypeError, "got str 'x'"),
}


@pytest.mark.parametrize("call", TABLE)
def test_wrong_call(call):
    check_refused(lambda: eval(call, NAMES), *TABLE[call])
