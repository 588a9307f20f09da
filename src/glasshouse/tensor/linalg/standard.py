"""The Array API's extension for linear algebra, on stacks of matrices."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glasshouse.base import DTypeError, LinAlgError, ShapeError, inexact_dtype
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.shape import broadcast_shapes, check_axes, check_axis, drop_axes
from glasshouse.dispatch import as_value, broadcast_to, cast, full, reshape
from glasshouse.dispatch import value as values
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops import linalg as cards
from glasshouse.ops.checks import check_matrices, check_option
from glasshouse.ops.compare import where
from glasshouse.ops.contract import adjoint
from glasshouse.ops.index import gather_along
from glasshouse.ops.movement import section
from glasshouse.tensor.linalg.results import (
    EighResult,
    LstsqResult,
    QRResult,
    SlogdetResult,
    SVDResult,
)
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.contract import (
    matmul,
    matrix_transpose,
    outer,
    promoted,
    tensordot,
    vecdot,
)
from glasshouse.tensor.standard.creation import eye, triu
from glasshouse.tensor.standard.manipulate import moveaxis, stack, unstack
from glasshouse.tensor.standard.namespace import finfo
from glasshouse.tensor.standard.search import argsort

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq",
           "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "norm",
           "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals",
           "tensordot", "trace", "vecdot", "vector_norm"]  # fmt: skip


def stacked(where_: str, x: ArrayLike, square: bool = False) -> "Tensor":
    x = as_value(x, where=where_)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices (..., n, n)" if square else "matrices (..., m, n)"
        raise ShapeError(where_, kind, f"shape {x.shape}", "Reshape it, or check the sizes.")
    return x


def matrices(where_: str, x: ArrayLike, square: bool = False) -> "Tensor":
    """`x` as a stack of matrices of a dtype that can be factorised; integers become float32."""
    x = stacked(where_, x, square)
    x = cast(x, inexact_dtype(x.dtype))
    cards.check_matrix(where_, x.spec)
    return x


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> "Tensor":
    """The lower triangular L with x = L @ L^H, or the upper U = L^H.

    Shapes: (..., n, n) -> (..., n, n).
    Raises: LinAlgError unless x is positive definite, ShapeError unless square.
    Example:
        >>> cholesky(as_value([[4.0]])).tolist()
        [[2.0]]
    """
    lower = cards.cholesky(matrices("cholesky", x, square=True))
    return adjoint(lower) if upper else lower


def qr(x: ArrayLike, /, *, mode: str = "reduced") -> QRResult:
    """An orthonormal Q and an upper triangular R with x = Q @ R.

    Shapes: (..., m, n) -> Q (..., m, k), R (..., k, n); k = min(m, n), or m for mode 'complete'.
    Raises: OptionError for another mode, ShapeError.
    """
    check_option("qr", "mode", mode, ("reduced", "complete"))
    return QRResult(*cards.qr(matrices("qr", x), mode=mode))


def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices.

    Shapes: (..., n, n) -> (..., n), (..., n, n).
    Raises: ShapeError unless square.
    Example:
        >>> eigh(as_value([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
        [1.0, 2.0]
    """
    return EighResult(*cards.eigh(matrices("eigh", x, square=True)))


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of Hermitian matrices, ascending: (..., n, n) -> (..., n).

    Raises: as eigh.
    """
    return eigh(x).eigenvalues


def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition x = U @ diag(S) @ Vh.

    Shapes: (..., m, n) -> U (..., m, m), S (..., k), Vh (..., n, n), k = min(m, n); without
        full_matrices U (..., m, k), Vh (..., k, n).
    Raises: ShapeError for fewer than two axes.
    """
    return SVDResult(*cards.svd(matrices("svd", x), full_matrices=bool(full_matrices)))


def svdvals(x: Any, /) -> Any:
    """The singular values, descending: (..., m, n) -> (..., min(m, n)).

    Raises: as svd.
    """
    return svd(x, full_matrices=False).S


def diagonal(x: Any, /, *, offset: int = 0) -> "Tensor":
    """The diagonal `offset` places right of the main one.

    Shapes: (..., m, n) -> (..., k).
    Raises: ShapeError for fewer than two axes.
    Example:
        >>> diagonal(as_value([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    x = check_matrices("diagonal", as_value(x, where="diagonal"))
    m, n = x.shape[-2:]
    row, column = max(0, -offset), max(0, offset)
    count = max(0, min(m - row, n - column))
    start = row * n + column if count else 0
    stop = start + (count - 1) * (n + 1) + 1 if count else 0
    return section(reshape(x, (*x.shape[:-2], m * n)), x.ndim - 2, start, stop, n + 1)


def trace(x: Any, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Any:
    """The sum over a diagonal: (..., m, n) -> (...).

    Raises: ShapeError for fewer than two axes.
    """
    return reduce.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def pivot_sign(order: "Tensor") -> "Tensor":
    """1 or -1 (int64): whether a permutation swaps an even or odd number of pairs."""
    later = cards.as_column(order) > cards.as_row(order)
    return 1 - 2 * (reduce.sum(triu(cast(later, order.dtype), k=1), axis=(-2, -1)) % 2)


def det(x: ArrayLike, /) -> "Tensor":
    """The determinant. Its gradient is right for singular matrices too.

    Shapes: (..., n, n) -> (...).
    Raises: ShapeError unless square.
    """
    x = matrices("det", x, square=True)
    if x.mode is None and not x.requires_grad:
        return signed_product(*cards.lu(x))
    shift = regular_shift(x.detach())
    out = signed_product(*cards.lu(x + shift))
    return where(reduce.any(shift != 0, axis=(-2, -1)), out - out.detach(), out)


def signed_product(packed: "Tensor", order: "Tensor") -> "Tensor":
    return reduce.prod(diagonal(packed), axis=-1) * cast(pivot_sign(order), packed.dtype)


def regular_shift(x: "Tensor") -> "Tensor":
    """A term to add to singular matrices: each pivot of 0, by which derivatives divide, becomes
    a small one. With sqrt(eps) the determinant's derivative is right up to sqrt(eps)."""
    if not x.size:
        return x
    packed, order = cards.lu(x)
    size = reduce.max(elementwise.abs(x), axis=(-2, -1), keepdims=True)
    small = where(size == 0, size + 1, size) * finfo(x.dtype).eps ** 0.5
    missing = cards.as_row(diagonal(packed) == 0)
    lower, _ = cards.unpacked(packed)
    rows = lower * cast(cast(missing, small.dtype) * small, x.dtype)
    back = broadcast_to(cards.as_column(argsort(order)), rows.shape)
    return gather_along(rows, back, rows.ndim - 2)


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of the determinant.

    Shapes: (..., n, n) -> (...), (...).
    Raises: ShapeError unless square.
    """
    packed, order = cards.lu(matrices("slogdet", x, square=True))
    pivots = diagonal(packed)
    sign = reduce.prod(elementwise.sign(pivots), axis=-1) * cast(pivot_sign(order), packed.dtype)
    return SlogdetResult(sign, reduce.sum(elementwise.log(elementwise.abs(pivots)), axis=-1))


def solve(x1: Any, x2: Any, /) -> Any:
    """The y with x1 @ y = x2; x2 is one vector where it has one axis, else a stack of matrices.

    Shapes: (..., n, n), (..., n, k) -> (..., n, k); (..., n, n), (n,) -> (..., n).
    Raises: LinAlgError for a singular x1, ShapeError.
    Example:
        >>> solve(as_value([[2.0]]), as_value([4.0])).tolist()
        [2.0]
    """
    x1, columns, vector = system("solve", x1, x2, square=True)
    out = solve_stack("solve", x1, columns)
    return reshape(out, out.shape[:-1]) if vector else out


def system(where_: str, x1: ArrayLike, x2: ArrayLike, square: bool = False) -> Any:
    """(x1 as a stack of matrices, x2 as one with as many rows, whether x2 is one vector)."""
    x1, x2 = promoted(where_, x1, x2)
    x1 = matrices(where_, x1, square)
    columns = cards.as_column(x2) if x2.ndim == 1 else x2
    if columns.shape[-2:-1] != x1.shape[-2:-1]:
        expected = f"x2 with {x1.shape[-2]} rows, as x1 has"
        raise ShapeError(where_, expected, f"x1 {x1.shape} and x2 {x2.shape}", "Check the sizes.")
    return x1, cast(columns, x1.dtype), x2.ndim == 1


def solve_stack(where_: str, x1: "Tensor", x2: "Tensor") -> "Tensor":
    lead = broadcast_shapes(where_, x1.shape[:-2], x2.shape[:-2])
    x1, x2 = (broadcast_to(x, lead + x.shape[-2:]) for x in (x1, x2))
    packed, order = cards.lu(x1)
    check_regular(where_, packed)
    rows = broadcast_to(cards.as_column(order), x2.shape)
    y = gather_along(x2, rows, x2.ndim - 2)
    for lower in (True, False):
        y = cards.triangular_solve(packed, y, lower=lower, transpose=False, unit_diagonal=lower)
    return y


def check_regular(where_: str, packed: "Tensor") -> None:
    if any(level.mode is not None and level.mode.hides for level in values.levels(packed)):
        return
    if packed.size and (diagonal(values.ordinary(packed).detach()).numpy() == 0).any():
        fix = "It has no inverse: use pinv or lstsq, or add to its diagonal."
        raise LinAlgError(where_, "a regular matrix", "one with a pivot of 0", fix)


def inv(x: ArrayLike, /) -> Any:
    """The inverse of (..., n, n).

    Raises: LinAlgError if singular, ShapeError unless square.
    """
    x = matrices("inv", x, square=True)
    return solve_stack("inv", x, eye(x.shape[-1], dtype=x.dtype))


def solve_triangular(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    lower: bool = True,
    unit_diagonal: bool = False,
    upper: bool | None = None,
    left: bool = True,
    unitriangular: bool = False,
) -> "Tensor":
    """The y with x1 @ y = x2 (y @ x1 = x2 unless `left`), of which only one triangle of x1 is read.
    `upper` and `unitriangular` are PyTorch's words.

    Shapes: (..., n, n), (..., n, k) -> (..., n, k).
    Raises: ShapeError.
    """
    x1, x2 = promoted("solve_triangular", x1, x2)
    x1 = matrices("solve_triangular", x1, square=True)
    x2 = matrices("solve_triangular", cast(x2, x1.dtype))
    lower = bool(lower if upper is None else not upper)
    if not left:
        x1, x2, lower = matrix_transpose(x1), matrix_transpose(x2), not lower
    lead = broadcast_shapes("solve_triangular", x1.shape[:-2], x2.shape[:-2])
    x1, x2 = (broadcast_to(x, lead + x.shape[-2:]) for x in (x1, x2))
    options = {"lower": lower, "unit_diagonal": bool(unit_diagonal or unitriangular)}
    y = cards.triangular_solve(x1, x2, transpose=False, **options)
    return y if left else matrix_transpose(y)


def cutoff(s: "Tensor", shape: Any, rtol: ArrayLike) -> "Tensor":
    """The threshold up to which singular values count as 0: rtol · the largest, (..., 1)."""
    if not s.shape[-1]:
        return full((*s.shape[:-1], 1), 0, s.dtype)
    if rtol is None:
        rtol = max(shape[-2:]) * finfo(s.dtype).eps
    rtol = cast(as_value(rtol), s.dtype)
    largest = reduce.max(s, axis=-1, keepdims=True)
    return largest * (reshape(rtol, (*rtol.shape, 1)) if rtol.ndim else rtol)


def pinv(x: ArrayLike, /, *, rtol: Any = None) -> Any:
    """The Moore-Penrose inverse: singular values up to rtol · the largest count as 0.

    Shapes: (..., m, n) -> (..., n, m); rtol (...), max(m, n) · eps by default.
    Raises: as matrix_rank.
    Example:
        >>> pinv(as_value([[2.0], [0.0]])).tolist()
        [[0.5, 0.0]]
    """
    x = matrices("pinv", x)
    if not x.size:
        return matrix_transpose(x)
    u, s, vh = svd(x, full_matrices=False)
    return matmul(adjoint(vh) * inverse_row(s, x, rtol), adjoint(u))


def inverse_row(s: "Tensor", x: "Tensor", rtol: Any) -> "Tensor":
    """1 / s for the singular values of x that count, else 0, in the dtype of x: (..., 1, k)."""
    keep = s > cutoff(s, x.shape, rtol)
    inverse = where(keep, 1 / where(keep, s, full(s.shape, 1, s.dtype)), full(s.shape, 0, s.dtype))
    return cast(cards.as_row(inverse), x.dtype)


def matrix_rank(x: ArrayLike, /, *, rtol: Any = None) -> Any:
    """How many singular values exceed rtol · the largest.

    Shapes: (..., m, n) -> (...) int64; rtol (...), max(m, n) · eps by default.
    Raises: ShapeError for fewer than two axes.
    """
    x = matrices("matrix_rank", x)
    s = svdvals(x)
    return reduce.count_nonzero(s > cutoff(s, x.shape, rtol), axis=-1)


def matrix_power(x: Any, n: int, /) -> Any:
    """x multiplied with itself n times; for negative n its inverse.

    Shapes: (..., m, m) -> the same.
    Raises: ShapeError unless square, DTypeError unless n is an integer, LinAlgError.
    Example:
        >>> matrix_power(as_value([[2.0]]), 3).tolist()
        [[8.0]]
    """
    if not isinstance(n, int):
        raise DTypeError("matrix_power", "an integer power", repr(n), "Use eigh instead.")
    x = stacked("matrix_power", x, square=True)
    x = inv(x) if n < 0 else x
    n, result = abs(n), None
    while n:
        if n % 2:
            result = x if result is None else matmul(result, x)
        n //= 2
        x = matmul(x, x) if n else x
    return broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape) if result is None else result


@takes_names_of_pytorch
@rounded_once
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Any:
    """The cross product of vectors along `axis`.

    Shapes: (*a, 3, *b), (*a, 3, *b), broadcast -> (*a, 3, *b).
    Raises: ShapeError unless both have size 3 along the axis.
    """
    x1, x2 = promoted("cross", x1, x2)
    axis = check_axis("cross", axis, min(x1.ndim, x2.ndim)) - min(x1.ndim, x2.ndim)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        fix = "Choose the axis of the vectors."
        raise ShapeError("cross", f"size 3 along axis {axis}", f"{x1.shape} and {x2.shape}", fix)
    both = values.broadcast_values("cross", x1, x2)
    a, b = (unstack(x, axis) for x in both)
    return stack([a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)], axis=axis)


@takes_names_of_pytorch
@rounded_once
def vector_norm(
    x: ArrayLike, /, ord: float = 2, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """The norm (Σ |x|^ord)^(1/ord); inf and -inf give the extremes, 0 counts nonzero elements.

    Shapes: as a reduction over `axis` (all axes by default).
    Raises: DTypeError for an ord that is no number, ShapeError for a wrong axis.
    Example:
        >>> vector_norm(as_value([3.0, 4.0])).item()
        5.0
    """
    x = as_value(x, where="vector_norm")
    x = cast(x, inexact_dtype(x.dtype))
    if not isinstance(ord, (int, float)):
        raise DTypeError("vector_norm", "a number as ord", repr(ord), "Use e.g. ord=2.")
    over = {"axis": axis, "keepdims": keepdims}
    if ord == 2:
        return scaled_norm(x, axis, keepdims)
    size = elementwise.abs(x)
    if ord == 0:
        return reduce.sum(cast(size != 0, size.dtype), **over)
    if ord == 1 or (ord == math.inf and not x.size):
        return reduce.sum(size, **over)
    if abs(ord) == math.inf:
        return (reduce.max if ord > 0 else reduce.min)(size, **over)
    return reduce.sum(size**ord, **over) ** (1 / ord)


def scaled_norm(x: "Tensor", axis: int | Sequence[int] | None, keepdims: bool) -> "Tensor":
    """The Euclidean norm, scaled so that no square over- or underflows; its gradient at 0 is 0."""
    axes = check_axes("vector_norm", axis, x.ndim)
    size = elementwise.abs(x)
    if not x.size or not axes:
        return reduce.sum(size, axis=axes, keepdims=keepdims) if axes else size
    peak = reduce.max(size.detach(), axis=axes, keepdims=True)
    peak = where((peak > 0) & elementwise.isfinite(peak), peak, full(peak.shape, 1, peak.dtype))
    total = reduce.sum(elementwise.square(size / peak), axis=axes, keepdims=True)
    zero = total == 0
    root = elementwise.sqrt(where(zero, full(total.shape, 1, total.dtype), total))
    out = where(zero, full(total.shape, 0, total.dtype), root * peak)
    return out if keepdims else reshape(out, drop_axes(out.shape, axes))


@takes_names_of_pytorch
def matrix_norm(x: Any, /, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    """The norm of matrices: 'fro', 'nuc', ±1 (columns), ±inf (rows), ±2 (singular values).

    Shapes: (..., m, n) -> (...) or (..., 1, 1).
    Raises: OptionError for another ord, ShapeError.
    """
    x = as_value(x, where="matrix_norm")
    if x.ndim >= 2 and tuple(axis) != (-2, -1):
        places = tuple(check_axis("matrix_norm", i, x.ndim) for i in axis)
        out = matrix_norm(moveaxis(x, places, (-2, -1)), ord)
        return reshape(out, reduce.kept_shape(x.shape, places)) if keepdims else out
    x = stacked("matrix_norm", x)
    x = cast(x, inexact_dtype(x.dtype))
    orders = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
    check_option("matrix_norm", "ord", ord, orders)
    if ord == "fro":
        out = vector_norm(x, axis=(-2, -1))
    elif ord == "nuc":
        out = reduce.sum(svdvals(x), axis=-1)
    elif abs(ord) == 2:
        out = extreme(svdvals(x), ord)
    else:
        out = largest_line(x, ord)
    return reshape(out, (*out.shape, 1, 1)) if keepdims else out


@rounded_once
def largest_line(x: "Tensor", ord: Any) -> "Tensor":
    """The largest (or smallest) sum of magnitudes of a column or a row."""
    return extreme(reduce.sum(elementwise.abs(x), axis=-2 if abs(ord) == 1 else -1), ord)


def extreme(x: "Tensor", ord: Any) -> "Tensor":
    if not x.shape[-1]:
        return reduce.sum(x, axis=-1)
    return (reduce.max if ord > 0 else reduce.min)(x, axis=-1)


@takes_names_of_pytorch
def norm(
    x: ArrayLike,
    /,
    ord: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Any:
    """NumPy's norm: of vectors along one axis, of matrices along two, of all elements by default.

    Raises: ShapeError, OptionError as vector_norm and matrix_norm.
    """
    x = as_value(x, where="norm")
    if axis is None and (ord is None or x.ndim == 1):
        return vector_norm(x, ord=2 if ord is None else ord, keepdims=keepdims)
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(axes) not in (1, 2):
        raise ShapeError("norm", "one axis, or two", axes, "Pass axis.")
    axes = tuple(check_axis("norm", i, x.ndim) for i in axes)
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], ord=2 if ord is None else ord, keepdims=keepdims)
    out = matrix_norm(moveaxis(x, axes, (-2, -1)), ord="fro" if ord is None else ord)
    return reshape(out, reduce.kept_shape(x.shape, axes)) if keepdims else out


def lstsq(x1: Any, x2: Any, /, *, rtol: Any = None) -> LstsqResult:
    """The y of least norm that minimises |x1 @ y - x2|, by the singular value decomposition.

    Shapes: (..., m, n), (..., m, k) or (m,) -> (..., n, k) or (..., n).
    Raises: ShapeError.
    """
    x1, columns, vector = system("lstsq", x1, x2)
    u, s, vh = svd(x1, full_matrices=False)
    weights = matmul(adjoint(u), columns) * matrix_transpose(inverse_row(s, x1, rtol))
    solution = matmul(adjoint(vh), weights)
    residual = elementwise.abs(matmul(x1, solution) - columns)
    squares = reduce.sum(elementwise.square(residual), axis=-2)
    if vector:
        solution, squares = (reshape(v, v.shape[:-1]) for v in (solution, squares))
    rank = reduce.count_nonzero(s > cutoff(s, x1.shape, rtol), axis=-1)
    return LstsqResult(solution, squares, rank, s)
