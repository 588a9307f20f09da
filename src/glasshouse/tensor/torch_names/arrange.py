"""Turning, reshaping, repeating and diagonals, under PyTorch's names."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import ShapeError, check_axis, check_shape, int64
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike, adopt, as_value, broadcast_to, cast, full, reshape
from glasshouse.ops import linalg as cards
from glasshouse.ops.compare import where
from glasshouse.ops.index import gather, move_axes
from glasshouse.ops.movement import pad, section
from glasshouse.tensor.standard.contract import matrix_transpose
from glasshouse.tensor.standard.elementwise import conj
from glasshouse.tensor.standard.manipulate import expand_dims, flip, permute_dims, swapaxes
from glasshouse.tensor.standard.reduce import sum as sum_of
from glasshouse.tensor.standard.search import sort

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["adjoint", "argwhere", "diag", "diag_embed", "diagflat", "diagonal", "fliplr", "flipud",
           "msort", "nonzero_static", "ravel", "repeat_interleave", "rot90", "t", "tril_indices",
           "triu_indices", "unflatten", "unravel_index"]  # fmt: skip


# -- turning -----------------------------------------------------------------------------------


@composed
def rot90(x: ArrayLike, k: int = 1, axes: Any = (0, 1)) -> Any:
    """x turned k times by 90 degrees, from the first of two axes towards the second.

    Shapes: (..., m, n, ...) -> itself, or with both sizes swapped for odd k.
    Raises: ShapeError unless there are two axes.
    Source: NumPy, PyTorch.
    Example:
        >>> rot90([[1, 2], [3, 4]]).tolist()
        [[2, 4], [1, 3]]
    """
    x = as_value(x, where="rot90")
    if len(axes) != 2:
        raise ShapeError("rot90", "two axes", tuple(axes), "Name two.")
    first, second = (check_axis("rot90", axis, x.ndim) for axis in axes)
    if k % 4 == 2:
        return flip(x, (first, second))
    if k % 2 == 0:
        return x
    turned = swapaxes(x, first, second)
    return flip(turned, first if k % 4 == 1 else second)


def mirrored(name: str, axis: int, least: int, about: str) -> Any:
    def function(x, /):
        x = as_value(x, where=name)
        if x.ndim < least:
            raise ShapeError(name, f"{least} axes or more", x.shape, "Reshape it.")
        return flip(x, axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{about}\n\nShapes: (...) -> (...).\nRaises: ShapeError.\nSource: NumPy."
    return composed(function)


fliplr: Any = mirrored("fliplr", 1, 2, "x with its columns in reversed order.")
flipud: Any = mirrored("flipud", 0, 1, "x with its rows in reversed order.")


@composed
def t(x: ArrayLike, /) -> Any:
    """A matrix with its axes swapped; vectors and numbers as they are.

    Raises: ShapeError for more than two axes.
    Source: PyTorch.
    """
    x = as_value(x, where="t")
    if x.ndim > 2:
        raise ShapeError("t", "two axes at most", x.shape, "Use gh.matrix_transpose.")
    return permute_dims(x, tuple(reversed(range(x.ndim))))


@composed
def adjoint(x: "Tensor", /) -> "Tensor":
    """The conjugate transpose of matrices: (..., m, n) -> (..., n, m).

    Raises: ShapeError for fewer than two axes.
    Source: PyTorch.
    """
    return conj(matrix_transpose(x))


# -- shapes ------------------------------------------------------------------------------------


@composed
def ravel(x: ArrayLike, /) -> "Tensor":
    """The elements of x in row-major order: (...) -> (size,).

    Source: NumPy, PyTorch.
    """
    x = as_value(x, where="ravel")
    return reshape(x, (x.size,))


@composed
def unflatten(x: Any, axis: int, sizes: Any) -> Any:
    """x with one axis split into several; one size of -1 is worked out.

    Shapes: (..., a · b · …, ...) -> (..., a, b, …, ...).
    Raises: ShapeError if the sizes do not multiply to that of the axis.
    Source: PyTorch.
    Example:
        >>> unflatten([1, 2, 3, 4], 0, (2, -1)).tolist()
        [[1, 2], [3, 4]]
    """
    x = as_value(x, where="unflatten")
    axis = check_axis("unflatten", axis, x.ndim)
    sizes = list(sizes)
    rest = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) == 1 and rest:
        sizes[sizes.index(-1)] = x.shape[axis] // rest
    if math.prod(sizes) != x.shape[axis] or -1 in sizes:
        expected = f"sizes whose product is {x.shape[axis]}"
        raise ShapeError("unflatten", expected, tuple(sizes), "Check the sizes.")
    return reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


@composed
def expand_as(x: ArrayLike, other: Any, /) -> Any:
    """x broadcast to the shape of `other`.

    Raises: ShapeError if it does not broadcast.
    Source: PyTorch.
    """
    return broadcast_to(as_value(x), other.shape, "expand_as")


@composed
def reshape_as(x: ArrayLike, other: Any, /) -> Any:
    """The elements of x in the shape of `other`, of as many elements.

    Raises: ShapeError for another number of elements.
    Source: PyTorch.
    """
    x = as_value(x)
    if x.size != other.size:
        raise ShapeError("reshape_as", f"{x.size} elements", other.shape, "Check the shapes.")
    return reshape(x, other.shape)


def sum_to_size(x: ArrayLike, /, *size: Any) -> Any:
    """x summed over those axes along which it was broadcast from `size`.

    Shapes: (...) -> size.
    Raises: ShapeError if `size` does not broadcast to the shape of x.
    Source: PyTorch.
    """
    x = as_value(x, where="sum_to_size")
    size = check_shape("sum_to_size", size[0] if len(size) == 1 else size)
    lead = x.ndim - len(size)
    wrong = lead < 0 or any(a not in (1, b) for a, b in zip(size, x.shape[lead:], strict=True))
    if wrong:
        expected = f"a size that broadcasts to {x.shape}"
        raise ShapeError("sum_to_size", expected, size, "Use 1 where to sum.")
    axes = [i + lead for i, n in enumerate(size) if n == 1 != x.shape[i + lead]]
    summed = sum_of(x, axis=(*range(lead), *axes), dtype=x.dtype, keepdims=True)
    return reshape(summed, size)


@composed
def repeat_interleave_all(x: Any, repeats: int, axis: int) -> Any:
    x = expand_dims(x, axis + 1)
    spread = broadcast_to(x, (*x.shape[: axis + 1], repeats, *x.shape[axis + 2 :]))
    return reshape(spread, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 2 :]))


@takes_names_of_pytorch
def repeat_interleave(
    x: ArrayLike, repeats: Any = None, axis: int | None = None, *, output_size: Any = None
) -> Any:
    """x with each element repeated along an axis, or, of x flattened, where none is given. Counts
    alone give each position as often as its count says.

    Shapes: (..., n, ...) -> (..., sum of repeats, ...).
    Raises: ShapeError for counts that do not fit.
    Source: PyTorch.
    Example:
        >>> repeat_interleave([1, 2], 2).tolist()
        [1, 1, 2, 2]
    """
    x = as_value(x, where="repeat_interleave")
    if repeats is None:
        return repeated(adopt(np.arange(x.size)), x, 0)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = check_axis("repeat_interleave", axis, x.ndim)
    if isinstance(repeats, int):
        return repeat_interleave_all(x, repeats, axis)
    return repeated(x, repeats, axis)


def repeated(x: "Tensor", repeats: ArrayLike, axis: int) -> "Tensor":
    counts = np.asarray(as_value(repeats).numpy()).reshape(-1)
    if counts.size not in (1, x.shape[axis]) or (counts < 0).any():
        expected = f"one count of 0 or more for each of {x.shape[axis]}"
        raise ShapeError("repeat_interleave", expected, counts.tolist(), "Give one each.")
    counts = np.broadcast_to(counts, x.shape[axis])
    return gather(x, adopt(np.repeat(np.arange(x.shape[axis]), counts)), axis=axis)


@composed
def msort(x: Any, /) -> Any:
    """x sorted along its first axis, smallest first.

    Source: PyTorch.
    """
    return sort(x, axis=0)


def argwhere(x: ArrayLike, /) -> "Tensor":
    """The positions of the elements that are not 0, as rows.

    Shapes: (...) -> (count, number of axes) int64.
    Source: NumPy, PyTorch.
    Example:
        >>> argwhere([0, 3, 5]).tolist()
        [[1], [2]]
    """
    return adopt(np.argwhere(as_value(x, where="argwhere").numpy()))


def nonzero_static(x: Any, /, *, size: int, fill_value: int = -1) -> Any:
    """The positions of the first `size` elements that are not 0, as rows, `fill_value` where there
    are fewer.

    Shapes: (...) -> (size, number of axes) int64.
    Source: PyTorch.
    """
    rows = argwhere(x)
    rows = section(rows, 0, 0, min(size, rows.shape[0]))
    missing = size - rows.shape[0]
    return pad(rows, widths=((0, missing, 0), (0, 0, 0)), value=fill_value)


def unravel_index(indices: ArrayLike, shape: Any) -> Any:
    """The coordinates, one tensor for each axis, of positions in x flattened of this shape.

    Source: NumPy, PyTorch.
    Example:
        >>> [i.item() for i in unravel_index(as_value(5), (2, 3))]
        [1, 2]
    """
    indices, shape = as_value(indices), check_shape("unravel_index", shape)
    coordinates = []
    for size in reversed(shape):
        coordinates.append(indices % size)
        indices = indices // size
    return tuple(reversed(coordinates))


# -- diagonals ---------------------------------------------------------------------------------


def diagonal_places(shape: Any, offset: int, axis1: int, axis2: int) -> tuple[int, ...]:
    """(axis1, axis2, row, column and length of the diagonal)."""
    axis1, axis2 = (check_axis("diagonal", axis, len(shape)) for axis in (axis1, axis2))
    if axis1 == axis2:
        raise ShapeError("diagonal", "two different axes", (axis1, axis2), "Name two.")
    row, column = max(0, -offset), max(0, offset)
    return axis1, axis2, row, column, max(0, min(shape[axis1] - row, shape[axis2] - column))


def diagonal(x: ArrayLike, offset: int = 0, dim1: int = 0, dim2: int = 1) -> "Tensor":
    """The diagonal of two axes, `offset` places right of the main one, on a new last axis.

    Shapes: (..., m, ..., n, ...) -> (..., k).
    Raises: ShapeError for axes out of range or equal.
    Source: PyTorch.
    Example:
        >>> diagonal([[1, 2], [3, 4]], 1).tolist()
        [2]
    """
    x = as_value(x, where="diagonal")
    axis1, axis2, row, column, count = diagonal_places(x.shape, offset, dim1, dim2)
    moved = move_axes(x, (axis1, axis2), (x.ndim - 2, x.ndim - 1))
    m, n = moved.shape[-2:]
    flat = reshape(moved, (*moved.shape[:-2], m * n))
    start = row * n + column if count else 0
    stop = start + (count - 1) * (n + 1) + 1 if count else 0
    return section(flat, flat.ndim - 1, start, stop, n + 1)


def diag_embed(x: ArrayLike, offset: int = 0, dim1: int = -2, dim2: int = -1) -> "Tensor":
    """Matrices, in two new axes, with the last axis of x on a diagonal and zeros elsewhere.

    Shapes: (..., n) -> (..., n + |offset|, n + |offset|).
    Raises: ShapeError for axes out of range or equal.
    Source: PyTorch.
    Example:
        >>> diag_embed([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    x = as_value(x, where="diag_embed")
    ndim, size = x.ndim + 1, x.shape[-1] + abs(offset)
    axis1, axis2 = (check_axis("diag_embed", axis, ndim) for axis in (dim1, dim2))
    if axis1 == axis2:
        raise ShapeError("diag_embed", "two different axes", (dim1, dim2), "Name two.")
    widths = ((0, 0, 0),) * (x.ndim - 1)
    row = pad(x, widths=(*widths, (max(0, offset), max(0, -offset), 0)), value=0)
    filled = broadcast_to(cards.as_row(row), (*x.shape[:-1], size, size))
    on = broadcast_to(cards.diagonals(size, size) == offset, filled.shape)
    out = where(on, filled, full(filled.shape, 0, x.dtype))
    return move_axes(out, (ndim - 2, ndim - 1), (axis1, axis2))


@takes_names_of_pytorch
def diag(x: ArrayLike, k: int = 0) -> "Tensor":
    """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix.

    Shapes: (n,) -> (n + |k|, n + |k|); (m, n) -> (k,).
    Raises: ShapeError for another number of axes.
    Source: NumPy, PyTorch.
    Example:
        >>> diag([[1, 2], [3, 4]]).tolist()
        [1, 4]
    """
    x = as_value(x, where="diag")
    if x.ndim not in (1, 2):
        raise ShapeError("diag", "a vector or a matrix", x.shape, "Use gh.diag_embed.")
    return diag_embed(x, k) if x.ndim == 1 else diagonal(x, k)


def diagflat(x: "Tensor", offset: int = 0) -> "Tensor":
    """A matrix with the elements of x on a diagonal.

    Source: NumPy, PyTorch.
    """
    return diag_embed(ravel(x), offset)


def triangle_indices(name: str, of_numpy: Any, about: str) -> Any:
    def function(row: int, col: int, offset: int = 0, *, dtype=int64, device=None):
        positions = np.stack(of_numpy(row, offset, col))
        return cast(as_value(positions), dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{about}\n\nShapes: -> (2, number of places) int64.\nSource: PyTorch."
    return function


tril_indices: Any = triangle_indices(
    "tril_indices", np.tril_indices, "Rows and columns of a lower triangle."
)
triu_indices: Any = triangle_indices(
    "triu_indices", np.triu_indices, "Rows and columns of an upper triangle."
)
