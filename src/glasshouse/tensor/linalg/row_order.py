"""L and U in one with the order of their rows, as swaps or as a matrix."""

from typing import TYPE_CHECKING

from glasshouse.base import int32, int64
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, full
from glasshouse.ops import linalg as cards
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota
from glasshouse.ops.index import gather_along
from glasshouse.tensor.linalg.results import LUResult
from glasshouse.tensor.standard import reduce
from glasshouse.tensor.standard.creation import eye, tril, triu
from glasshouse.tensor.standard.manipulate import concat, moveaxis

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


def transposed(x: ArrayLike) -> "Tensor":
    return moveaxis(as_value(x), -1, -2)


def unpacked_lu(packed: "Tensor", order: "Tensor") -> LUResult:
    """P, L and U of L and U in one and the order of rows."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    rows = cards.as_column(iota(size=m, dtype=int64))
    permutation = cast(broadcast_to(rows, (*order.shape, m)) == cards.as_row(order), packed.dtype)
    lower = tril(packed[..., :k], -1) + eye(m, k, dtype=packed.dtype)
    return LUResult(permutation, lower, triu(packed[..., :k, :]))


def packed_lu(x: "Tensor") -> "tuple[Tensor, Tensor]":
    """(packed, order): L and U in one matrix (..., m, n), and the order of rows. A square block is
    factored first, and the remaining columns or rows are solved with it."""
    m, n = x.shape[-2:]
    k = min(m, n)
    if m <= n:
        packed, order = cards.lu(x[..., :k])
    else:  # the order that pivots of tall columns take
        square = concat([x.detach(), full((*x.shape[:-1], m - n), 0, x.dtype)], axis=-1)
        order = cards.lu(square)[1]
    rows = gather_along(x, broadcast_to(cards.as_column(order), x.shape), x.ndim - 2)
    if m == n:
        return packed, order
    if m < n:
        options = {"lower": True, "transpose": False, "unit_diagonal": True}
        right = cards.triangular_solve(packed, rows[..., k:], **options)
        return concat([packed, right], axis=-1), order
    packed, _ = cards.lu(rows[..., :k, :])
    options = {"lower": False, "transpose": True, "unit_diagonal": False}
    left = transposed(cards.triangular_solve(packed, transposed(rows[..., k:, :]), **options))
    return concat([packed, left], axis=-2), order


def swapped(order: "Tensor", k: int, place: "Tensor") -> "Tensor":
    """Rows (..., n) with those at k and at `place` (..., 1) exchanged."""
    at = broadcast_to(iota(size=order.shape[-1], dtype=int64), order.shape)
    here = order[..., k : k + 1]
    there = gather_along(order, place, order.ndim - 1)
    out = where(at == k, broadcast_to(there, order.shape), order)
    moved = (at == place) & (place != k)
    return where(moved, broadcast_to(here, order.shape), out)


def swaps_of(order: "Tensor", count: int) -> "Tensor":
    """The row that each step exchanged with its own, from 1, of the order that they lead to."""
    n = order.shape[-1]
    rows, swaps = broadcast_to(iota(size=n, dtype=int64), order.shape), []
    for k in range(count):
        place = reduce.argmax(rows == order[..., k : k + 1], axis=-1, keepdims=True)
        rows = swapped(rows, k, place)
        swaps.append(place + 1)
    return cast(concat(swaps, axis=-1) if swaps else rows, int32)


def order_of(swaps: "Tensor", count: int | None = None) -> "Tensor":
    """The order of `count` rows that swaps, counted from 1, lead to."""
    swaps = cast(swaps, int64)
    count = swaps.shape[-1] if count is None else count
    rows = broadcast_to(iota(size=count, dtype=int64), (*swaps.shape[:-1], count))
    for k in range(swaps.shape[-1]):
        rows = swapped(rows, k, swaps[..., k : k + 1] - 1)
    return rows
