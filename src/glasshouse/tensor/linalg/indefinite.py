"""Symmetric and Hermitian matrices that need not be positive definite: factors L @ D @ L^H with
blocks of 1 and 2 on the diagonal of D."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import broadcast_shapes, int64
from glasshouse.dispatch.value import ArrayLike, adopt, as_value, broadcast_to, cast
from glasshouse.ops import linalg as cards
from glasshouse.ops.index import gather_along
from glasshouse.tensor.linalg.more import checked, conj_transposed, transposed
from glasshouse.tensor.linalg.results import LDLExResult, LDLResult
from glasshouse.tensor.linalg.standard import matrices, solve
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.contract import promoted
from glasshouse.tensor.standard.creation import asarray, tril

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


GROWTH = (1 + math.sqrt(17)) / 8  # a block of 2 is taken where one of 1 would let L grow more


def ldl_factor(x: Any, /, *, hermitian: bool = False) -> LDLResult:
    """L and D in one lower triangle, with x = L @ D @ L^T (L^H if `hermitian`), and pivots: row k
    was exchanged with pivots[k], from 1; two equal negative ones belong to a block of 2, whose
    second row was exchanged with minus that. The matrices are read at once.

    Shapes: (..., n, n), of which the lower triangle is read -> (..., n, n), (..., n) int32.
    Raises: LinAlgError for a singular D, ShapeError unless square.
    Source: Bunch, Kaufman 1977, Some stable methods for calculating inertia and solving symmetric
        linear systems, algorithm A; packed as LAPACK does.
    """
    solution = ldl_factor_ex(x, hermitian=hermitian, check_errors=True)
    return LDLResult(solution.LD, solution.pivots)


def ldl_factor_ex(
    x: ArrayLike, /, *, hermitian: bool = False, check_errors: bool = False
) -> LDLExResult:
    """As ldl_factor, with an info instead of an error for a singular D.

    Shapes: (..., n, n) -> (..., n, n), (..., n) int32, (...) int32.
    Raises: LinAlgError with check_errors, ShapeError unless square.
    Source: as ldl_factor.
    """
    x = matrices("ldl_factor_ex", x, square=True)
    whole = x.detach().numpy()
    packed, lead = np.tril(whole), x.shape[:-2]
    pivots, info = np.zeros(x.shape[:-1], np.int32), np.zeros(lead, np.int32)
    for at in np.ndindex(*lead):
        packed[at], pivots[at], info[at] = factorise(packed[at], hermitian)
    info = checked("ldl_factor_ex", adopt(info), check_errors)
    return LDLExResult(adopt(packed), adopt(pivots), info)


def factorise(lower: np.ndarray, hermitian: bool) -> Any:
    """(L and D packed, pivots, info) of one matrix, given by its lower triangle."""
    flipped = np.conj if hermitian else np.array
    x = lower + flipped(np.tril(lower, -1)).T
    if hermitian:
        np.fill_diagonal(x, np.diagonal(lower).real)
    n, k, info = len(x), 0, 0
    pivots = np.zeros(n, np.int32)
    while k < n:
        size, place = block_at(np.abs(x.real) + np.abs(x.imag), k)
        last = k + size - 1
        x[[last, place], k:] = x[[place, last], k:]
        x[k:, [last, place]] = x[k:, [place, last]]
        pivots[k : k + size] = place + 1 if size == 1 else -(place + 1)
        block = x[k : k + size, k : k + size]
        below = x[k + size :, k : k + size].copy()
        if not block.any():
            info = info or k + 1
        else:
            left = np.linalg.solve(block.T, below.T).T
            x[k + size :, k + size :] -= left @ flipped(below).T
            x[k + size :, k : k + size] = left
        k += size
    return np.tril(x), pivots, info


def block_at(sizes: np.ndarray, k: int) -> tuple[int, int]:
    """(1 or 2, the row to exchange with the last of the block), of the elements' sizes; complex
    ones have that which LAPACK gives them, |real| + |imag|."""
    column = sizes[k + 1 :, k]
    if not column.size or not max(sizes[k, k], column.max()):
        return 1, k
    largest = k + 1 + int(column.argmax())
    most = column.max()
    if sizes[k, k] >= GROWTH * most:
        return 1, k
    row = np.delete(sizes[largest, k:], largest - k).max()
    if sizes[k, k] * row >= GROWTH * most * most:
        return 1, k
    if sizes[largest, largest] >= GROWTH * row:
        return 1, largest
    return 2, largest


def order_and_rows(pivots: np.ndarray) -> Any:
    """(the order of rows that the exchanges lead to, which row of packed factors stands at each
    place of L, which places below the diagonal belong to D)."""
    n, k = len(pivots), 0
    order, rows = np.arange(n), np.repeat(np.arange(n)[:, None], n, axis=1)
    joined = np.zeros((n, n), bool)
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        last, place = k + size - 1, abs(pivots[k]) - 1
        order[[last, place]] = order[[place, last]]
        rows[[last, place], :k] = rows[[place, last], :k]
        joined[k + 1 : k + size, k] = True
        k += size
    return order, rows, joined


def ldl_solve(LD: ArrayLike, pivots: ArrayLike, B: ArrayLike, /, *, hermitian: bool = False) -> Any:
    """The y with A @ y = B, from ldl_factor's result for A. The pivots are read at once.

    Shapes: (..., n, n), (..., n), (..., n, k) -> (..., n, k).
    Raises: LinAlgError for a singular D, ShapeError.
    Source: LAPACK, PyTorch.
    """
    packed, B = promoted("ldl_solve", LD, B)
    lead = broadcast_shapes("ldl_solve", packed.shape[:-2], B.shape[:-2])
    packed, y = (broadcast_to(x, lead + x.shape[-2:]) for x in (packed, B))
    rows = np.broadcast_to(as_value(pivots).numpy(), packed.shape[:-1]).reshape(-1, y.shape[-2])
    places = [order_and_rows(row) for row in rows]
    order, rows, joined = (
        asarray(np.array(part).reshape(*lead, *np.shape(part)[1:]))
        for part in zip(*places, strict=True)
    )
    flipped = conj_transposed if hermitian else transposed
    below = elementwise.where(joined, 0, tril(packed, k=-1))
    left = gather_along(below, cast(rows, int64), packed.ndim - 2)
    middle = elementwise.where(joined, packed, 0)
    middle = middle + flipped(middle) + (tril(packed) - tril(packed, k=-1))
    y = gather_along(y, by_rows(order, y), y.ndim - 2)
    options = {"transpose": False, "unit_diagonal": True}
    y = cards.triangular_solve(left, y, lower=True, **options)
    y = solve(middle, y)
    y = cards.triangular_solve(flipped(left), y, lower=False, **options)
    return gather_along(y, by_rows(asarray(np.argsort(order.numpy(), axis=-1)), y), y.ndim - 2)


def by_rows(order: "Tensor", y: "Tensor") -> "Tensor":
    return broadcast_to(cards.as_column(cast(order, int64)), y.shape)
