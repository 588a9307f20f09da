"""Linear algebra that PyTorch has beside the standard's: factors as they are packed, solutions with
an `info`, matrix functions, tensors as matrices."""

import math
from typing import TYPE_CHECKING, Any

from glasshouse.base import LinAlgError, OptionError, ShapeError, check_axis, int32, int64
from glasshouse.base.shape import broadcast_shapes
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, full, reshape
from glasshouse.ops import eigen
from glasshouse.ops import linalg as cards
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota
from glasshouse.ops.index import gather_along
from glasshouse.tensor.linalg import standard
from glasshouse.tensor.linalg.results import (
    CholeskyExResult,
    EigResult,
    InvExResult,
    LUFactorExResult,
    LUFactorResult,
    LUResult,
    SolveExResult,
)
from glasshouse.tensor.linalg.row_order import (
    order_of,
    packed_lu,
    swaps_of,
    transposed,
    unpacked_lu,
)
from glasshouse.tensor.linalg.standard import cholesky as cholesky_of
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.contract import matmul, promoted
from glasshouse.tensor.standard.creation import eye
from glasshouse.tensor.standard.manipulate import moveaxis, stack

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["cholesky_ex", "cond", "eig", "eigvals", "householder_product", "inv_ex", "lu",
           "lu_factor", "lu_factor_ex", "lu_solve", "matrix_exp", "multi_dot", "solve_ex",
           "tensorinv", "tensorsolve", "vander"]  # fmt: skip


def eig(x: ArrayLike, /) -> EigResult:
    """The eigenvalues and eigenvectors of square matrices, complex, in no particular order.

    Shapes: (..., n, n) -> (..., n), (..., n, n).
    Raises: ShapeError unless square, LinAlgError if the iteration does not converge.
    Source: NumPy, PyTorch.
    Example:
        >>> eig(as_value([[2.0]])).eigenvalues.tolist()
        [(2+0j)]
    """
    return EigResult(*eigen.eig(standard.matrices("eig", x, square=True)))


def eigvals(x: Any, /) -> Any:
    """The eigenvalues of square matrices, complex: (..., n, n) -> (..., n).

    Raises: as eig.
    """
    return eig(x).eigenvalues


def cond(x: ArrayLike, /, p: Any = None) -> Any:
    """The condition number: the norm of x times that of its inverse. p is an `ord` of matrix_norm;
    None and 2 give the ratio of the extreme singular values.

    Shapes: (..., m, n) -> (...); square unless p is None or ±2.
    Raises: OptionError for another p, ShapeError.
    Source: NumPy, PyTorch.
    Example:
        >>> cond(as_value([[2.0, 0.0], [0.0, 1.0]])).item()
        2.0
    """
    if p in (None, 2, -2):
        s = standard.svdvals(standard.matrices("cond", x))
        largest, smallest = s[..., 0], s[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    x = standard.matrices("cond", x, square=True)
    return standard.matrix_norm(x, ord=p) * standard.matrix_norm(inv_ex(x).inverse, ord=p)


# -- factors with an info --------------------------------------------------------------------------


def info_of(packed: "Tensor") -> "Tensor":
    """The position, from 1, of the first pivot of 0, or 0."""
    zero = standard.diagonal(packed) == 0
    if not zero.shape[-1]:
        return full(packed.shape[:-2], 0, int32)
    first = reduce.argmax(zero, axis=-1) + 1
    return cast(elementwise.where(reduce.any(zero, axis=-1), first, 0), int32)


def checked(where_: str, info: "Tensor", check_errors: bool) -> "Tensor":
    if check_errors and info.numpy().any():
        fix = "Add to the diagonal, or leave check_errors at False."
        raise LinAlgError(where_, "matrices that can be factorised", "others", fix)
    return info


def cholesky_ex(
    x: ArrayLike, /, *, upper: bool = False, check_errors: bool = False
) -> CholeskyExResult:
    """The Cholesky factor, and an info instead of an error where there is none: NaN stands there.
    The matrices are read at once.

    Shapes: (..., n, n) -> (..., n, n), (...) int32.
    Raises: LinAlgError with check_errors, ShapeError unless square.
    Source: PyTorch.
    """
    x = standard.matrices("cholesky_ex", x, square=True)
    info = leading_failure(x.detach())
    good = cards.as_column(cards.as_column(info == 0))
    safe = elementwise.where(good, x, eye(x.shape[-1], dtype=x.dtype))
    factor = elementwise.where(good, cholesky_of(safe, upper=upper), math.nan)
    return CholeskyExResult(factor, checked("cholesky_ex", info, check_errors))


def leading_failure(x: "Tensor") -> "Tensor":
    """The order of the first leading part that is not positive definite, or 0: by elimination
    without pivots, all pivots of a positive definite matrix are positive."""
    n, solution = x.shape[-1], full(x.shape[:-2], 0, int64)
    for k in range(n):
        pivot = elementwise.real(x[..., k, k])
        fails = ~(pivot > 0)
        solution = where((solution == 0) & fails, full(solution.shape, k + 1, int64), solution)
        safe = elementwise.where(fails, 1, pivot)
        column = x[..., :, k : k + 1] / cards.as_column(cards.as_column(safe))
        x = x - column * elementwise.conj(cards.as_row(x[..., :, k]))
    return cast(solution, int32)


def inv_ex(x: ArrayLike, /, *, check_errors: bool = False) -> InvExResult:
    """The inverse, and an info instead of an error for singular matrices.

    Shapes: (..., n, n) -> (..., n, n), (...) int32.
    Raises: LinAlgError with check_errors, ShapeError unless square.
    Source: PyTorch.
    """
    x = standard.matrices("inv_ex", x, square=True)
    solution = solve_ex(x, broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape))
    return InvExResult(solution.result, checked("inv_ex", solution.info, check_errors))


def solve_ex(
    x1: Any, x2: Any, /, *, left: bool = True, check_errors: bool = False
) -> SolveExResult:
    """The y with x1 @ y = x2 (y @ x1 = x2 unless `left`), and an info for singular matrices.

    Shapes: (..., n, n), (..., n, k) or (n,) -> that of x2; and (...) int32.
    Raises: LinAlgError with check_errors, ShapeError.
    Source: PyTorch.
    """
    if not left:
        solution = solve_ex(transposed(x1), transposed(x2), check_errors=check_errors)
        return SolveExResult(transposed(solution.result), solution.info)
    x1, columns, vector = standard.system("solve_ex", x1, x2, square=True)
    packed, order = cards.lu(x1)
    info = checked("solve_ex", info_of(packed), check_errors)
    out = solve_packed(packed, order, columns)
    return SolveExResult(reshape(out, out.shape[:-1]) if vector else out, info)


def solve_packed(packed: "Tensor", order: "Tensor", columns: "Tensor") -> "Tensor":
    """The y with A @ y = columns, of A's packed factors and row order."""
    lead = broadcast_shapes("lu_solve", packed.shape[:-2], columns.shape[:-2])
    packed, columns = (broadcast_to(x, lead + x.shape[-2:]) for x in (packed, columns))
    order = broadcast_to(order, (*lead, order.shape[-1]))
    y = gather_along(columns, broadcast_to(cards.as_column(order), columns.shape), columns.ndim - 2)
    for lower in (True, False):
        y = cards.triangular_solve(packed, y, lower=lower, transpose=False, unit_diagonal=lower)
    return y


def lu_factor(x: Any, /, *, pivot: bool = True) -> LUFactorResult:
    """L and U in one matrix, L without its diagonal of ones, and the row swapped with each, from 1.

    Shapes: (..., m, n) -> (..., m, n), (..., min(m, n)) int32.
    Raises: LinAlgError for a singular matrix, OptionError without pivots, ShapeError unless square.
    Source: LAPACK, PyTorch.
    """
    solution = lu_factor_ex(x, pivot=pivot)
    standard.check_regular("lu_factor", solution.LU)
    return LUFactorResult(solution.LU, solution.pivots)


def lu_factor_ex(
    x: ArrayLike, /, *, pivot: bool = True, check_errors: bool = False
) -> LUFactorExResult:
    """As lu_factor, with an info instead of an error for singular matrices.

    Shapes: (..., m, n) -> (..., m, n), (..., min(m, n)) int32, (...) int32.
    Raises: LinAlgError with check_errors, OptionError without pivots, ShapeError unless square.
    Source: LAPACK, PyTorch.
    """
    if not pivot:
        raise OptionError("lu_factor", "pivot=True", False, "Row swaps keep it accurate.")
    x = standard.matrices("lu_factor", x)
    packed, order = packed_lu(x)
    info = checked("lu_factor_ex", info_of(packed), check_errors)
    return LUFactorExResult(packed, swaps_of(order, min(x.shape[-2:])), info)


def lu(x: ArrayLike, /, *, pivot: bool = True) -> LUResult:
    """P, L and U with x = P @ L @ U: a permutation matrix, a unit lower and an upper triangle.

    Shapes: (..., m, n) -> (..., m, m), (..., m, k), (..., k, n); k = min(m, n).
    Raises: OptionError without pivots, ShapeError for vectors.
    Source: PyTorch.
    Example:
        >>> lu(as_value([[0.0, 1.0], [2.0, 0.0]])).P.tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    if not pivot:
        raise OptionError("lu", "pivot=True", False, "Row swaps keep it accurate.")
    return unpacked_lu(*packed_lu(standard.matrices("lu", x)))


def lu_solve(
    LU: ArrayLike, pivots: ArrayLike, B: ArrayLike, /, *, left: bool = True, adjoint: bool = False
) -> Any:
    """The y with A @ y = B (y @ A = B unless `left`), from lu_factor's result for A; with `adjoint`
    of A's conjugate transpose.

    Shapes: (..., n, n), (..., n), (..., n, k) -> (..., n, k).
    Raises: ShapeError.
    Source: LAPACK, PyTorch.
    """
    packed, B = promoted("lu_solve", LU, B)
    n = packed.shape[-1]
    if B.ndim < 2 or B.shape[-2 if left else -1] != n:
        expected = f"B with {n} {'rows' if left else 'columns'}, as LU has"
        raise ShapeError("lu_solve", expected, B.shape, "Check the sizes.")
    order = order_of(as_value(pivots))
    if left and not adjoint:
        return solve_packed(packed, order, B)
    if not left:  # y A = B is A^H y^H = B^H
        flipped = lu_solve(LU, pivots, conj_transposed(B), adjoint=not adjoint)
        return conj_transposed(flipped)
    lead = broadcast_shapes("lu_solve", packed.shape[:-2], B.shape[:-2])
    packed, y = (broadcast_to(x, lead + x.shape[-2:]) for x in (packed, B))
    flipped = conj_transposed(packed)
    for lower in (True, False):  # U^H, then L^H
        y = cards.triangular_solve(
            flipped, y, lower=lower, transpose=False, unit_diagonal=not lower
        )
    rows = broadcast_to(cards.as_column(inverse_order(order)), y.shape)
    return gather_along(y, rows, y.ndim - 2)


def inverse_order(order: "Tensor") -> "Tensor":
    n = order.shape[-1]
    hits = cards.as_row(order) == cards.as_column(iota(size=n, dtype=int64))
    return reduce.argmax(hits, axis=-1)


def conj_transposed(x: "Tensor") -> "Tensor":
    return elementwise.conj(transposed(x))


# -- matrix functions ------------------------------------------------------------------------------

SMALL = 0.8  # the norm up to which 17 terms are exact in float64: 0.8^17 / 17! < 2^-53
DOUBLINGS = 26


@composed
def matrix_exp(x: ArrayLike, /) -> Any:
    """The exponential Σ x^k / k! of square matrices, by scaling and squaring.

    Shapes: (..., n, n) -> (..., n, n).
    Raises: ShapeError unless square.
    Source: Moler, Van Loan 2003, Nineteen dubious ways to compute the exponential of a matrix,
        method 3; Paterson, Stockmeyer 1973 for the polynomial.
    Example:
        >>> matrix_exp(as_value([[0.0, 1.0], [0.0, 0.0]])).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    x = standard.matrices("matrix_exp", x, square=True)
    if not x.size:
        return x
    norm = standard.matrix_norm(elementwise.abs(x.detach()), ord=1, keepdims=True)
    limits = [SMALL * 2.0**k for k in range(DOUBLINGS)]
    scale = full(norm.shape, 1, norm.dtype)
    for limit in limits:
        scale = where(norm > limit, scale * 0.5, scale)
    y = exponential_series(x * cast(scale, x.dtype))
    for limit in limits:
        y = where(broadcast_to(norm > limit, y.shape), matmul(y, y), y)
    return y


def exponential_series(x: "Tensor") -> "Tensor":
    """Σ x^k / k! up to k = 16, in powers of x^4."""
    one = broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape)
    square = matmul(x, x)
    powers = [one, x, square, matmul(square, x)]
    fourth = matmul(square, square)
    out = one * (1 / math.factorial(16))
    for block in (12, 8, 4, 0):
        terms = [power * (1 / math.factorial(block + i)) for i, power in enumerate(powers)]
        out = matmul(out, fourth) + terms[0] + terms[1] + terms[2] + terms[3]
    return out


def multi_dot(tensors: Any, /) -> Any:
    """The product of several matrices, in the order of fewest multiplications; the first and the
    last may be vectors.

    Shapes: (a, b), (b, c), …, (y, z) -> (a, z).
    Raises: ShapeError for fewer than two, or sizes that do not follow each other.
    Source: Cormen et al. 2009, Introduction to Algorithms, 15.2.
    Example:
        >>> multi_dot([as_value([[1, 2]]), as_value([[1], [1]]), as_value([[2]])]).tolist()
        [[6]]
    """
    tensors = promoted("multi_dot", *tensors)
    if len(tensors) < 2:
        raise ShapeError("multi_dot", "two matrices or more", len(tensors), "Add one.")
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    chain = [cards.as_row(tensors[0])] if row else [tensors[0]]
    chain += tensors[1:-1]
    chain.append(cards.as_column(tensors[-1]) if column else tensors[-1])
    sizes = [x.shape[0] for x in chain] + [chain[-1].shape[1]]
    out = product(chain, cheapest_splits(sizes), 0, len(chain) - 1)
    shape = (() if row else out.shape[:1]) + (() if column else out.shape[1:])
    return reshape(out, shape)


def cheapest_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each part of a chain of matrices of these sizes."""
    count = len(sizes) - 1
    costs, splits = {(i, i): 0 for i in range(count)}, {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            solution = [
                (costs[i, k] + costs[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            costs[i, j], splits[i, j] = min(solution)
    return splits


def product(chain: Any, splits: Any, i: int, j: int) -> "Tensor":
    if i == j:
        return chain[i]
    k = splits[i, j]
    return matmul(product(chain, splits, i, k), product(chain, splits, k + 1, j))


@composed
def vander(x: ArrayLike, /, *, N: Any = None) -> Any:
    """The powers 1, x, x², … of each element, N of them.

    Shapes: (..., n) -> (..., n, N), N being n unless given.
    Dtypes: floating or complex, kept; integers become int64.
    Source: PyTorch.
    Example:
        >>> vander(as_value([2, 3]), N=3).tolist()
        [[1, 2, 4], [1, 3, 9]]
    """
    x = as_value(x, where="vander")
    x = reshape(x, (1,)) if not x.ndim else x
    x = x if x.dtype.is_inexact else cast(x, int64)
    power, powers = full(x.shape, 1, x.dtype), []
    for _ in range(x.shape[-1] if N is None else N):
        powers.append(power)
        power = power * x
    return stack(powers, axis=-1)


@composed
def householder_product(x: ArrayLike, tau: ArrayLike, /) -> Any:
    """The first columns of H_1 · H_2 · …, where H_i = 1 - tau_i · v_i · v_i^H and v_i is column i
    of x below its diagonal, with 1 on it.

    Shapes: (..., m, n), (..., k) -> (..., m, n), k ≤ n ≤ m.
    Raises: ShapeError.
    Source: LAPACK, PyTorch.
    """
    x, tau = promoted("householder_product", x, tau)
    m, n = standard.stacked("householder_product", x).shape[-2:]
    if not tau.shape[-1:] or tau.shape[-1] > n or n > m:
        got = f"{x.shape} and {tau.shape}"
        raise ShapeError("householder_product", "(..., m, n), (..., k), k ≤ n ≤ m", got, "Check.")
    out = broadcast_to(eye(m, n, dtype=x.dtype), x.shape)
    for i in reversed(range(tau.shape[-1])):
        out = reflected(reflector(x, i), tau[..., i], out)
    return out


def reflector(x: "Tensor", i: int) -> "Tensor":
    """Column i of x below row i, with 1 in row i and zeros above: (..., m, 1)."""
    rows = cards.as_column(iota(size=x.shape[-2], dtype=int64))
    column = x[..., :, i : i + 1]
    rows = broadcast_to(rows, column.shape)
    below = where(rows > i, column, full(column.shape, 0, x.dtype))
    return where(rows == i, full(column.shape, 1, x.dtype), below)


def reflected(v: "Tensor", tau: "Tensor", x: "Tensor") -> "Tensor":
    """(1 - tau · v · v^H) @ x"""
    scale = cards.as_column(cards.as_column(tau))
    return x - scale * matmul(v, matmul(conj_transposed(v), x))


@takes_names_of_pytorch
def tensorinv(x: ArrayLike, /, ind: int = 2) -> Any:
    """The tensor y with tensordot(y, x, ind) the identity, the first `ind` axes being rows.

    Shapes: (*a, *b), as many elements in a as in b -> (*b, *a).
    Raises: ShapeError, LinAlgError if singular.
    Source: NumPy, PyTorch.
    """
    x = as_value(x, where="tensorinv")
    rows, columns = x.shape[:ind], x.shape[ind:]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise ShapeError("tensorinv", "as many rows as columns", x.shape, "Check ind.")
    n = math.prod(rows)
    square = standard.matrices("tensorinv", reshape(x, (n, n)), square=True)
    return reshape(
        standard.solve_stack("tensorinv", square, eye(n, dtype=square.dtype)), columns + rows
    )


def tensorsolve(x1: ArrayLike, x2: ArrayLike, /, dims: Any = None) -> Any:
    """The tensor y with tensordot(x1, y, y.ndim) = x2; `dims` of x1 are moved to its end first.

    Shapes: (*x2.shape, *b) and x2 -> b.
    Raises: ShapeError, LinAlgError if singular.
    Source: NumPy, PyTorch.
    """
    x1, x2 = promoted("tensorsolve", x1, x2)
    if dims is not None:
        places = [check_axis("tensorsolve", axis, x1.ndim) for axis in dims]
        x1 = moveaxis(x1, places, list(range(x1.ndim - len(places), x1.ndim)))
    shape = x1.shape[x2.ndim :]
    if x2.size != math.prod(shape):
        got = f"{x1.shape} and {x2.shape}"
        raise ShapeError("tensorsolve", "as many unknowns as equations", got, "Check the axes.")
    square = standard.matrices("tensorsolve", reshape(x1, (x2.size, x2.size)), square=True)
    right = reshape(cast(x2, square.dtype), (x2.size, 1))
    return reshape(standard.solve_stack("tensorsolve", square, right), shape)
