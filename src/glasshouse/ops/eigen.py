"""The eigendecomposition of square matrices that need not be symmetric.

With A V = V diag(w) and P = V^-1 dA V: dw = diag P, dV = V (Q - diag Re(V^H V Q)), where
Q_ij = P_ij / (w_j - w_i) off the diagonal and 0 on it; the last term keeps columns of length 1.

Source: Giles 2008, Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation; Boeddeker et al. 2017, arXiv:1701.00392, for the columns' length
"""

from typing import Any

import numpy as np

from glasshouse.base import Spec
from glasshouse.base.dtype import complex_dtype
from glasshouse.dispatch import Arr, broadcast_to, card, cast, sample
from glasshouse.ops import linalg
from glasshouse.ops.cast import conj, real
from glasshouse.ops.contract import adjoint, matmul
from glasshouse.ops.index import gather_along


def solve(a: Any, b: Any) -> Any:
    """a^-1 b"""
    packed, order = linalg.lu(a)
    b = gather_along(b, broadcast_to(linalg.as_column(order), b.shape), b.ndim - 2)
    for lower in (True, False):
        b = linalg.triangular_solve(packed, b, lower=lower, transpose=False, unit_diagonal=lower)
    return b


def off_diagonal_quotient(x: Any, w: Any) -> Any:
    """x_ij / (w_j - w_i), and 0 on the diagonal."""
    return linalg.quotient(x - linalg.diagonal_part(x), linalg.as_row(w) - linalg.as_column(w))


def in_dtype(x: Any, a: Any) -> Any:
    return x if a.dtype.is_complex else real(x)


def eig_vjp(g: Any, y: Any, a: Any) -> Any:
    (gw, gv), (w, v) = g, y
    vh = adjoint(v)
    inner = matmul(vh, gv)
    length = cast(real(linalg.diagonal_of(inner)), v.dtype)
    inner = inner - matmul(vh, v * linalg.as_row(length))
    inner = off_diagonal_quotient(inner, conj(w)) + linalg.diagonal_matrix(gw, v.dtype)
    return in_dtype(solve(vh, matmul(inner, vh)), a)


def eig_jvp(t: Any, y: Any, _a: Any) -> Any:
    w, v = y
    inner = solve(v, matmul(cast(t, v.dtype), v))
    turned = matmul(v, off_diagonal_quotient(inner, w))
    length = cast(real(linalg.diagonal_of(matmul(adjoint(v), turned))), v.dtype)
    return linalg.diagonal_of(inner), turned - v * linalg.as_row(length)


def complex_specs(a: Spec) -> tuple[Spec, Spec]:
    dtype = complex_dtype(a.dtype)
    return Spec(a.shape[:-1], dtype), Spec(a.shape, dtype)


def complex_eig(a: np.ndarray) -> Any:
    pairs = np.linalg.eig(a)
    dtype = np.result_type(a.dtype, np.complex64)
    return pairs.eigenvalues.astype(dtype), pairs.eigenvectors.astype(dtype)


def skewed(rng: "np.random.Generator", shape: Any) -> Any:
    """Matrices with eigenvalues 0.5, 2, 3.5 … and oblique eigenvectors."""
    n = shape[-1]
    v = np.eye(n) + 0.3 * rng.uniform(-1, 1, shape)
    return v @ ((1.5 * np.arange(n) + 0.5)[:, None] * np.linalg.inv(v))


@card(
    "linalg",
    infer=linalg.of_square("eig", complex_specs),
    vjp=(eig_vjp,),
    jvp=(eig_jvp,),
    batch=linalg.batch_first(lambda: eig),
    flops=lambda a: 25 * a.size * a.shape[-1],
    samples=[sample(Arr(s, make=skewed)) for s in ((3, 3), (2, 1, 2, 2))],
    error_samples=[linalg.HALF, linalg.VECTOR, linalg.OBLONG],
    dtypes="linalg",
    traits=("unique_up_to_phase",),
    source="Giles 2008; Boeddeker et al. 2017, arXiv:1701.00392",
    num_outputs=2,
)
def eig(a: Any) -> Any:
    """(w, v): complex eigenvalues, in no particular order, and eigenvectors of length 1 as columns.
    The derivative of v needs distinct eigenvalues, and a use that its phases do not matter to.

    Why: an iteration of unknown length.

    Its FLOPs: Golub, Van Loan 2013, 7.5: about 25 n³ with vectors."""
    return linalg.factorise("eig", "finite matrices", complex_eig, a)
