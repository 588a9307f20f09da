"""PyTorch's functions of matrices outside `linalg`: older spellings of the same."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base import OptionError, as_dtype, check_known
from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, full
from glasshouse.ops import linalg as cards
from glasshouse.tensor import linalg, random
from glasshouse.tensor.linalg.more import (
    conj_transposed,
    reflected,
    reflector,
)
from glasshouse.tensor.linalg.results import LUResult
from glasshouse.tensor.linalg.row_order import order_of, unpacked_lu
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.contract import matmul, matrix_transpose
from glasshouse.tensor.standard.creation import eye, tril, triu
from glasshouse.tensor.standard.manipulate import concat
from glasshouse.tensor.torch_names.arrange import adjoint
from glasshouse.tensor.torch_names.products import power_norm

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor
    from glasshouse.tensor.linalg.results import SlogdetResult


__all__ = ["chain_matmul", "cholesky", "cholesky_inverse", "cholesky_solve", "det",
           "frobenius_norm", "geqrf", "inverse", "logdet", "lu", "lu_solve", "lu_unpack",
           "matrix_exp", "matrix_power", "norm", "nuclear_norm", "orgqr", "ormqr", "pca_lowrank",
           "pinverse", "qr", "slogdet", "svd", "svd_lowrank", "trace", "triangular_solve",
           "vander"]  # fmt: skip


class QR(NamedTuple):
    """An orthonormal Q and an upper triangular R."""

    Q: "Tensor"
    R: "Tensor"


class SVD(NamedTuple):
    """Left vectors, descending values, right vectors, as columns."""

    U: "Tensor"
    S: "Tensor"
    V: "Tensor"


class GeqrfResult(NamedTuple):
    """R, with reflectors below it, and their factors."""

    a: "Tensor"
    tau: "Tensor"


class TriangularSolveResult(NamedTuple):
    """The solution, and the triangle."""

    solution: "Tensor"
    cloned_coefficient: "Tensor"


det: "Callable[..., Tensor]" = linalg.det
slogdet: "Callable[..., SlogdetResult]" = linalg.slogdet
inverse: Callable[..., Any] = linalg.inv
matrix_power: Callable[..., Any] = linalg.matrix_power
matrix_exp: Any = linalg.matrix_exp
orgqr: Any = linalg.householder_product
trace: Callable[..., Any] = linalg.trace


def pinverse(x: Any, rcond: float = 1e-15) -> Any:
    """The Moore-Penrose inverse: singular values up to rcond · the largest count as 0.

    Shapes: (..., m, n) -> (..., n, m).
    Source: PyTorch.
    """
    return linalg.pinv(x, rtol=rcond)


def chain_matmul(*matrices: Any) -> Any:
    """The product of several matrices, in the order of fewest multiplications.

    Raises: ShapeError if the sizes do not follow each other.
    Source: PyTorch.
    """
    return matrices[0] if len(matrices) == 1 else linalg.multi_dot(matrices)


def logdet(x: Any) -> Any:
    """The logarithm of the determinant; NaN for negative ones.

    Shapes: (..., n, n) -> (...).
    Raises: ShapeError unless square.
    Source: PyTorch.
    """
    sign, logarithm = linalg.slogdet(x)
    return elementwise.where(sign < 0, math.nan, logarithm)


def cholesky(x: "Tensor", upper: bool = False) -> "Tensor":
    """The lower triangular L with x = L @ L^H, or the upper U = L^H.

    Shapes: (..., n, n) -> (..., n, n).
    Raises: LinAlgError unless x is positive definite, ShapeError unless square.
    Source: PyTorch.
    """
    return linalg.cholesky(x, upper=upper)


def cholesky_solve(B: "Tensor", L: ArrayLike, upper: bool = False) -> "Tensor":
    """The y with A @ y = B, of A's Cholesky factor L.

    Shapes: (..., n, k), (..., n, n) -> (..., n, k).
    Raises: ShapeError.
    Source: PyTorch.
    """
    lower = adjoint(L) if upper else as_value(L)
    y = linalg.solve_triangular(lower, B, lower=True)
    return linalg.solve_triangular(adjoint(lower), y, lower=False)


def cholesky_inverse(L: ArrayLike, upper: bool = False) -> "Tensor":
    """The inverse of A, of A's Cholesky factor L.

    Shapes: (..., n, n) -> (..., n, n).
    Raises: ShapeError.
    Source: PyTorch.
    """
    L = as_value(L)
    one = broadcast_to(eye(L.shape[-1], dtype=L.dtype), L.shape)
    return cholesky_solve(one, tril(L) if not upper else triu(L), upper)


def qr(x: Any, some: bool = True) -> QR:
    """An orthonormal Q and an upper triangular R with x = Q @ R; all of Q unless `some`.

    Shapes: (..., m, n) -> (..., m, k), (..., k, n).
    Source: PyTorch.
    """
    return QR(*linalg.qr(x, mode="reduced" if some else "complete"))


def svd(x: Any, some: bool = True, compute_uv: bool = True) -> SVD:
    """U, S and V with x = U @ diag(S) @ V^H, with all of U and V unless `some`.

    Shapes: (..., m, n) -> (..., m, k), (..., k), (..., n, k).
    Source: PyTorch.
    """
    u, s, vh = linalg.svd(x, full_matrices=not some)
    if not compute_uv:
        u, vh = (full(part.shape, 0, part.dtype) for part in linalg.svd(x, full_matrices=True)[::2])
    return SVD(u, s, adjoint(vh))


def triangular_solve(
    b: Any, A: ArrayLike, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """(solution, A): the y with A @ y = b, of which only one triangle of A is read.

    Shapes: (..., n, k), (..., n, n) -> (..., n, k).
    Raises: ShapeError.
    Source: PyTorch.
    """
    A = as_value(A)
    matrix = matrix_transpose(A) if transpose else A
    lower = upper == transpose
    out = linalg.solve_triangular(matrix, b, lower=lower, unit_diagonal=unitriangular)
    return TriangularSolveResult(out, A)


def lu(x: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    """(LU, pivots), with `get_infos` an info too: linalg.lu_factor in its older form.

    Shapes: (..., n, n) -> (..., n, n), (..., n) int32, (...) int32.
    Source: PyTorch.
    """
    factors = linalg.lu_factor_ex(x, pivot=pivot)
    return tuple(factors) if get_infos else tuple(factors[:2])


def lu_solve(b: Any, LU: Any, pivots: Any) -> Any:
    """The y with A @ y = b, from lu_factor's result for A.

    Shapes: (..., n, k), (..., n, n), (..., n) -> (..., n, k).
    Raises: ShapeError.
    Source: PyTorch.
    """
    return linalg.lu_solve(LU, pivots, b)


def lu_unpack(
    LU: ArrayLike, pivots: ArrayLike, unpack_data: bool = True, unpack_pivots: bool = True
) -> LUResult:
    """P, L and U with A = P @ L @ U, from lu_factor's result for A; empty ones if not unpacked.

    Shapes: (..., m, n), (..., k) -> (..., m, m), (..., m, k), (..., k, n); k = min(m, n).
    Source: PyTorch.
    """
    LU = as_value(LU)
    result = unpacked_lu(LU, order_of(as_value(pivots), LU.shape[-2]))
    none = full((0,), 0, LU.dtype)
    result = result if unpack_pivots else result._replace(P=none)
    return result if unpack_data else result._replace(L=none, U=none)


def geqrf(x: ArrayLike) -> GeqrfResult:
    """R, with Householder's reflectors below it, and their factors tau, as householder_product
    takes them.

    Shapes: (..., m, n) -> (..., m, n), (..., min(m, n)).
    Source: LAPACK; Golub, Van Loan 2013, Matrix Computations, 5.1.
    """
    x = linalg.standard.matrices("geqrf", x)
    m, n = x.shape[-2:]
    reflectors, taus = [], []
    for i in range(min(m, n)):
        column = x[..., i:, i : i + 1]
        head = column[..., :1, :]
        rest = reduce.sum(elementwise.square(elementwise.abs(column[..., 1:, :])), axis=-2)
        rest = cards.as_column(rest)
        first = elementwise.real(head)
        size = elementwise.sqrt(elementwise.square(elementwise.abs(head)) + rest)
        flat = (rest == 0) & (elementwise.imag(head) == 0)
        beta = elementwise.where(first >= 0, -size, size)
        safe = elementwise.where(flat, 1, beta)
        tau = elementwise.where(flat, 0, (safe - head) / safe)
        scale = elementwise.where(flat, 1, head - safe)
        below = elementwise.where(flat, 0, column[..., 1:, :] / scale)
        lead = full((*x.shape[:-2], i, 1), 0, x.dtype)
        one = full(head.shape, 1, x.dtype)
        v = concat([lead, one, cast(below, x.dtype)], axis=-2)
        factor = cast(tau, x.dtype)[..., 0, 0]
        x = reflected(v, elementwise.conj(factor), x)
        reflectors.append(v)
        taus.append(cards.as_column(factor))
    if not reflectors:
        return GeqrfResult(x, full((*x.shape[:-2], 0), 0, x.dtype))
    below = concat(reflectors, axis=-1)
    missing = full((*x.shape[:-1], n - below.shape[-1]), 0, x.dtype)
    packed = triu(x) + tril(concat([below, missing], axis=-1), k=-1)
    return GeqrfResult(packed, concat(taus, axis=-1))


def ormqr(x: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """Q @ other, or other @ Q unless `left`, where Q is the product of all reflectors that geqrf
    gives; with `transpose`, Q^H.

    Shapes: (..., m, n), (..., k), (..., m, p) or (..., p, m) -> that of other.
    Source: LAPACK, PyTorch.
    """
    if not left:
        return conj_transposed(ormqr(x, tau, conj_transposed(other), True, not transpose))
    x, tau, other = (as_value(v) for v in (x, tau, other))
    steps = range(tau.shape[-1])
    for i in steps if transpose else reversed(steps):
        factor = elementwise.conj(tau[..., i]) if transpose else tau[..., i]
        other = reflected(reflector(x, i), factor, other)
    return other


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """The powers of each element of a vector, the highest first unless `increasing`.

    Shapes: (m,) -> (m, N), N being m unless given.
    Source: NumPy, PyTorch.
    Example:
        >>> vander(as_value([2, 3]), 3).tolist()
        [[4, 2, 1], [9, 3, 1]]
    """
    powers = linalg.vander(x, N=N)
    return powers if increasing else powers.flip(-1)


# -- norms -----------------------------------------------------------------------------------------


@takes_names_of_pytorch
def norm(
    x: ArrayLike,
    p: str = "fro",
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
) -> Any:
    """The p-norm of the elements, or along axes; "fro" is 2, "nuc" the nuclear norm of matrices.

    Shapes: as a reduction over `axis`, by default of all elements.
    Raises: OptionError for another p.
    Source: PyTorch.
    Example:
        >>> norm(as_value([3.0, 4.0])).item()
        5.0
    """
    x = as_value(x, where="norm")
    x = x if dtype is None else cast(x, as_dtype(dtype))
    if p == "nuc":
        return nuclear_norm(x, (0, 1) if axis is None else axis, keepdims)
    if isinstance(p, str):
        check_known("norm", "a norm", p, ("fro", "nuc"))
    p = 2.0 if p in ("fro", None) else float(p)
    if p == -math.inf or p < 0:
        return linalg.vector_norm(x, axis=axis, ord=p, keepdims=keepdims)
    return power_norm(elementwise.inexact("norm", x)[0], p, axis, keepdims)


@takes_names_of_pytorch
def frobenius_norm(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The square root of the sum of squares over axes.

    Source: PyTorch.
    """
    return norm(x, 2, axis, keepdims)


@takes_names_of_pytorch
def nuclear_norm(x: Any, axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    """The sum of the singular values of matrices in two axes.

    Source: PyTorch.
    """
    return linalg.norm(x, ord="nuc", axis=tuple(axis), keepdims=keepdims)


# -- of low rank -----------------------------------------------------------------------------------


def svd_lowrank(A: ArrayLike, q: int = 6, niter: int = 2, M: Any = None) -> SVD:
    """U, S and V of the q largest singular values of A (of A - M), by a random projection and
    `niter` power iterations.

    Shapes: (..., m, n) -> (..., m, q), (..., q), (..., n, q).
    Raises: OptionError unless q is at most m and n.
    Source: Halko, Martinsson, Tropp 2009, arXiv:0909.4061, algorithms 4.4 and 5.1.
    """
    A = as_value(A, where="svd_lowrank")
    A = A if M is None else A - M
    if not 0 < q <= min(A.shape[-2:]):
        raise OptionError("svd_lowrank", f"q from 1 to {min(A.shape[-2:])}", q, "Choose less.")
    start = cast(random.normal((*A.shape[:-2], A.shape[-1], q)), A.dtype)
    basis = linalg.qr(matmul(A, start)).Q
    for _ in range(niter):
        other = linalg.qr(matmul(adjoint(A), basis)).Q
        basis = linalg.qr(matmul(A, other)).Q
    u, s, v = svd(matmul(adjoint(basis), A))
    return SVD(matmul(basis, u), s, v)


def pca_lowrank(A: ArrayLike, q: Any = None, center: bool = True, niter: int = 2) -> SVD:
    """The first q principal components of the rows of A, its columns centred: U, S and V.

    Shapes: (..., m, n) -> (..., m, q), (..., q), (..., n, q); q is at most 6 unless given.
    Raises: OptionError unless q is at most m and n.
    Source: Halko, Martinsson, Tropp 2009, arXiv:0909.4061.
    """
    A = as_value(A, where="pca_lowrank")
    q = min(6, *A.shape[-2:]) if q is None else q
    A = A - reduce.mean(A, axis=-2, keepdims=True) if center else A
    return svd_lowrank(A, q, niter)
