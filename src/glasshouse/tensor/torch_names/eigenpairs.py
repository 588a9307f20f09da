"""A few extreme eigenvalues and eigenvectors of large symmetric matrices."""

from typing import TYPE_CHECKING, Any

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, ShapeError
from glasshouse.dispatch.value import ArrayLike, as_value, cast, full
from glasshouse.tensor import linalg, random
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.contract import matmul
from glasshouse.tensor.standard.creation import eye
from glasshouse.tensor.standard.manipulate import concat, flip

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["lobpcg"]

METHODS = ("ortho", "basic")


def lobpcg(
    A: ArrayLike,
    k: int | None = None,
    B: Any = None,
    X: Any = None,
    n: int | None = None,
    iK: Any = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool = True,
    method: str | None = None,
) -> Any:
    """The k largest (or smallest) eigenvalues and their vectors, A @ x = λ · B @ x, A and B being
    symmetric, B positive definite, by default 1. Each step chooses the best n vectors among the
    ones before, their residuals (times `iK`, which is to be near A's inverse) and the last
    directions, until the residuals are below `tol` · |A|, √eps by default, or for `niter` steps,
    1,000 by default. Both of PyTorch's methods are this one, with an orthogonal basis.
    Eigenvalues are differentiable, vectors are not. The residuals are read at each step.

    Shapes: A, B, iK (..., m, m), X (..., m, n) to begin with -> (..., k), (..., m, k).
    Raises: ShapeError unless 3 n is at most m, OptionError for k above n or another method.
    Source: Knyazev 2001, Toward the optimal preconditioned eigensolver.
    Example:
        >>> lobpcg(as_value([[2.0, 0, 0], [0, 5, 0], [0, 0, 1]]))[0].tolist()
        [5.0]
    """
    A, B = linalg.standard.matrices("lobpcg", A, square=True), None if B is None else as_value(B)
    if method not in (None, *METHODS):
        raise OptionError("lobpcg", f"method of {METHODS}", method, "Leave it at None.")
    n = X.shape[-1] if X is not None else k or 1 if n is None else n
    k, rows = n if k is None else k, A.shape[-1]
    if not 0 < k <= n:
        raise OptionError("lobpcg", f"k from 1 to n = {n}", k, "Raise n.")
    if 3 * n > rows:
        raise ShapeError("lobpcg", f"{3 * n} rows or more for n = {n}", A.shape, "Use eigh.")
    with no_grad():
        if X is None:
            X = cast(random.normal((*A.shape[:-1], n)), A.dtype)
        tol = 2.0 ** {"float32": -11.5, "float64": -26}[A.dtype.name] if tol is None else tol
        options = iK, 1000 if niter is None else niter, tol, largest
        pencil = A.detach(), B if B is None else B.detach()
        vectors = improve(pencil, as_value(X), *options)
        vectors = vectors[..., :k]
    values = quotients(A, vectors)
    return (values if B is None else values / quotients(B, vectors)), vectors


def quotients(A: "Tensor", vectors: "Tensor") -> "Tensor":
    """x^T A x of each column."""
    return reduce.sum(vectors * matmul(A, vectors), axis=-2)


def improve(pencil: Any, X: Any, iK: Any, niter: int, tol: float, largest: bool) -> "Tensor":
    """The eigenvectors of a pencil (A, B), the first of them for the most extreme eigenvalue."""
    A, B = pencil

    def times(C, x):
        return x if C is None else matmul(C, x)

    n, size, directions = X.shape[-1], linalg.matrix_norm(A, ord="fro", keepdims=True), None
    values, X, _ = chosen(A, B, X, n, largest)
    for _ in range(niter):
        residual = matmul(A, X) - times(B, X) * values[..., None, :]
        if reduce.max(linalg.matrix_norm(residual, keepdims=True) / size).item() <= tol:
            break
        parts = [X, times(iK, residual)] + ([] if directions is None else [directions])
        values, X, directions = chosen(A, B, concat(parts, axis=-1), n, largest)
    return X


def chosen(A: Any, B: Any, basis: Any, n: int, largest: bool) -> Any:
    """(the n extreme Ritz values of the space that columns span, their vectors, those without the
    part of the first n columns). Directions that the basis has twice are left out."""
    basis = basis / linalg.vector_norm(basis, axis=-2, keepdims=True).clip(1e-30)
    product = basis if B is None else matmul(B, basis)
    weights, axes = linalg.eigh(matmul(basis.mT, product))
    limit = weights[..., -1:] * (1e-6 if weights.dtype.itemsize == 4 else 1e-13)
    valid = weights > limit
    scale = elementwise.where(valid, elementwise.rsqrt(elementwise.maximum(weights, limit)), 0)
    axes = axes * scale[..., None, :]
    inner = matmul(axes.mT, matmul(basis.mT, matmul(A, matmul(basis, axes))))
    far = linalg.matrix_norm(inner, ord="fro", keepdims=True)[..., 0] * 4 + 1
    missing = elementwise.where(valid, 0, -far if largest else far)
    values, turned = linalg.eigh(
        inner + missing[..., None] * eye(valid.shape[-1], dtype=inner.dtype)
    )
    if largest:
        values, turned = flip(values, axis=-1), flip(turned, axis=-1)
    mixed = matmul(axes, turned[..., :n])
    others = concat([full((*mixed.shape[:-2], n, n), 0, mixed.dtype), mixed[..., n:, :]], axis=-2)
    return values[..., :n], matmul(basis, mixed), matmul(basis, others)
