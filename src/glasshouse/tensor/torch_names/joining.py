"""Joining and cutting, under PyTorch's names: compositions of `concat`, `split` and gather."""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import OptionError, ShapeError, check_axis, check_shape
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike, adopt, as_value, broadcast_values, reshape
from glasshouse.ops.index import gather
from glasshouse.ops.movement import pad, section
from glasshouse.tensor.standard import manipulate

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod",
           "column_stack", "combinations", "dsplit", "dstack", "hsplit", "hstack", "narrow",
           "select", "split_with_sizes", "tensor_split", "vsplit",
           "vstack"]  # fmt: skip


# -- joining -----------------------------------------------------------------------------------


def at_least(ndim: int) -> Any:
    """A function that pads tensors to `ndim` axes: a vector is a row, a third axis comes last."""

    def one(where: str, x) -> "Tensor":
        x = as_value(x, where=where)
        while x.ndim < ndim:
            x = manipulate.expand_dims(x, 0 if x.ndim < 2 else 2)
        return x

    def function(*arrays):
        listed = len(arrays) == 1 and isinstance(arrays[0], (list, tuple))
        if len(arrays) == 1 and not listed:
            return one(function.__name__, arrays[0])
        return tuple(one(function.__name__, x) for x in (arrays[0] if listed else arrays))

    function.__name__ = function.__qualname__ = f"atleast_{ndim}d"
    function.__doc__ = f"""Each tensor with {ndim} axes or more; the missing ones get size 1.

    Shapes: (...) -> itself, or with axes of size 1.
    Source: NumPy, PyTorch.
    """
    return function


atleast_1d: Any = at_least(1)
atleast_2d: Any = at_least(2)
atleast_3d: Any = at_least(3)


def joined(
    where: str, arrays: "Sequence[Tensor]", prepare: Callable[..., Any], axis: Any
) -> "Tensor":
    arrays = [prepare(x) for x in manipulate.sequence(where, arrays)]
    return manipulate.concat(arrays, axis=axis(arrays[0]) if callable(axis) else axis)


def hstack(arrays: Sequence[Any], /) -> Any:
    """The tensors joined side by side: along axis 1, or along the only axis of vectors.

    Shapes: (n,), (m,), … -> (n + m + …,); (a, n, ...), (a, m, ...), … -> (a, n + m + …, ...).
    Raises: ShapeError if other axes differ.
    Source: NumPy, PyTorch.
    Example:
        >>> hstack([[1, 2], [3]]).tolist()
        [1, 2, 3]
    """
    return joined("hstack", arrays, atleast_1d, lambda x: min(1, x.ndim - 1))


def vstack(arrays: Sequence[Any], /) -> Any:
    """The tensors joined one below the other; vectors become rows.

    Shapes: (n,), (n,), … -> (number, n); (a, ...), (b, ...), … -> (a + b + …, ...).
    Raises: ShapeError if other axes differ.
    Source: NumPy, PyTorch.
    Example:
        >>> vstack([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    return joined("vstack", arrays, atleast_2d, 0)


def dstack(arrays: Sequence[Any], /) -> "Tensor":
    """The tensors joined along the third axis; vectors and matrices get one.

    Shapes: (n,), (n,), … -> (1, n, number); (a, b), (a, b), … -> (a, b, number).
    Raises: ShapeError if other axes differ.
    Source: NumPy, PyTorch.
    """
    return joined("dstack", arrays, atleast_3d, 2)


def column_stack(arrays: Sequence[Any], /) -> "Tensor":
    """The tensors side by side as columns of a matrix; vectors become columns.

    Shapes: (n,), (n,), … -> (n, number); (n, a), (n, b), … -> (n, a + b + …).
    Raises: ShapeError if other axes differ.
    Source: NumPy, PyTorch.
    """

    def columns(x: "Tensor") -> "Tensor":
        return reshape(x, (x.size, 1)) if x.ndim <= 1 else x

    return joined("column_stack", arrays, columns, 1)


def block_diag(*arrays: "Tensor") -> "Tensor":
    """A matrix with the given ones, as blocks, along its diagonal, and zeros elsewhere.

    Shapes: (a, b), (c, d), … -> (a + c + …, b + d + …); vectors are rows.
    Raises: ShapeError for more than two axes.
    Source: SciPy, PyTorch.
    Example:
        >>> block_diag([[1, 2]], [[3]]).tolist()
        [[1, 2, 0], [0, 0, 3]]
    """
    blocks = [atleast_2d(x) for x in manipulate.sequence("block_diag", arrays)]
    if any(x.ndim > 2 for x in blocks):
        shapes = [x.shape for x in blocks]
        raise ShapeError("block_diag", "matrices", shapes, "Reshape them to two axes.")
    columns, before, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        after = columns - before - x.shape[1]
        rows.append(pad(x, widths=((0, 0, 0), (before, after, 0)), value=0))
        before += x.shape[1]
    return manipulate.concat(rows, axis=0)


def cartesian_prod(*arrays: "Tensor") -> "Tensor":
    """All tuples of one element of each vector, the last changing fastest.

    Shapes: (a,), (b,), … -> (a · b · …, number); one vector is returned as it is.
    Raises: ShapeError for an array that is not a vector.
    Source: PyTorch.
    Example:
        >>> cartesian_prod([1, 2], [3, 4]).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    arrays = manipulate.sequence("cartesian_prod", arrays)
    if any(x.ndim != 1 for x in arrays):
        shapes = [x.shape for x in arrays]
        raise ShapeError("cartesian_prod", "vectors", shapes, "Flatten them.")
    if len(arrays) == 1:
        return arrays[0]
    count = len(arrays)
    apart = [
        reshape(x, tuple(x.size if i == j else 1 for j in range(count)))
        for i, x in enumerate(arrays)
    ]
    grid = [reshape(x, (x.size,)) for x in broadcast_values("cartesian_prod", *apart)]
    return manipulate.stack(grid, axis=1)


def combinations(x: ArrayLike, /, r: int = 2, with_replacement: bool = False) -> "Tensor":
    """All combinations of r elements of a vector, in the order of their positions.

    Shapes: (n,) -> (number of combinations, r).
    Raises: ShapeError unless x is a vector.
    Source: PyTorch.
    Example:
        >>> combinations([1, 2, 3]).tolist()
        [[1, 2], [1, 3], [2, 3]]
    """
    x = as_value(x, where="combinations")
    if x.ndim != 1:
        raise ShapeError("combinations", "a vector", x.shape, "Flatten it.")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(choose(range(x.size), operator.index(r))), np.int64)
    return gather(x, adopt(places.reshape(-1, r)), axis=0)


# -- cutting -----------------------------------------------------------------------------------


@composed
def tensor_split(x: ArrayLike, indices_or_sections: Any, /, axis: int = 0) -> "tuple[Tensor, ...]":
    """x cut along an axis into n parts, whose sizes differ by 1 at most, or before given indices.

    Shapes: (..., n, ...) -> (..., n_1, ...), (..., n_2, ...), …
    Raises: OptionError for less than one part.
    Source: PyTorch.
    Example:
        >>> [part.tolist() for part in tensor_split([1, 2, 3], 2)]
        [[1, 2], [3]]
    """
    x = as_value(x, where="tensor_split")
    axis = check_axis("tensor_split", axis, x.ndim)
    if getattr(indices_or_sections, "ndim", 0):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, (tuple, list)):
        return manipulate.split(x, list(indices_or_sections), axis=axis)
    count = operator.index(indices_or_sections)
    if count < 1:
        raise OptionError("tensor_split", "1 or more parts", count, "Use 1 for one part.")
    size, larger = divmod(x.shape[axis], count)
    sizes = [size + 1] * larger + [size] * (count - larger)
    return manipulate.split(x, list(itertools.accumulate(sizes))[:-1], axis=axis)


def splitting(name: str, least: int, axis_of: Any, about: str) -> Any:
    def function(x, indices_or_sections, /):
        x = as_value(x, where=name)
        if x.ndim < least:
            raise ShapeError(name, f"{least} axes or more", x.shape, "Reshape it.")
        axis = axis_of(x)
        lone = not isinstance(indices_or_sections, (tuple, list))
        if lone and x.shape[axis] % operator.index(indices_or_sections):
            got = f"{indices_or_sections} for shape {x.shape}, axis {axis}"
            fix = "Use gh.tensor_split for unequal parts."
            raise ShapeError(name, "a number that divides the axis", got, fix)
        return tensor_split(x, indices_or_sections, axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{about}

    Shapes: (..., n, ...) -> (..., n_1, ...), (..., n_2, ...), …
    Raises: ShapeError for fewer than {least} axes, or a number that does not divide the axis.
    Source: NumPy, PyTorch.
    """
    return function


hsplit: Any = splitting(
    "hsplit", 1, lambda x: min(1, x.ndim - 1), "x cut along axis 1, or its only axis."
)
vsplit: Any = splitting("vsplit", 2, lambda x: 0, "x cut along axis 0.")
dsplit: Any = splitting("dsplit", 3, lambda x: 2, "x cut along axis 2.")


@composed
def split_with_sizes(x: Any, sizes: Any, /, axis: int = 0) -> Any:
    """x cut along an axis into parts of the given sizes, as PyTorch's `split` does with a list.

    Shapes: (..., n, ...) -> (..., sizes[0], ...), (..., sizes[1], ...), …
    Raises: ShapeError unless the sizes add up to n.
    Source: PyTorch.
    Example:
        >>> [part.tolist() for part in split_with_sizes([1, 2, 3], [1, 2])]
        [[1], [2, 3]]
    """
    return manipulate.split(x, list(sizes), dim=axis)


@composed
def narrow(x: ArrayLike, axis: int, start: int, length: int) -> Any:
    """`length` slices of x along an axis, from `start` on.

    Shapes: (..., n, ...) -> (..., length, ...).
    Raises: ShapeError unless they lie within x.
    Source: PyTorch.
    Example:
        >>> narrow([1, 2, 3], 0, 1, 2).tolist()
        [2, 3]
    """
    x = as_value(x, where="narrow")
    axis = check_axis("narrow", axis, x.ndim)
    size = x.shape[axis]
    first = start + size if start < 0 else start
    if not 0 <= first <= first + length <= size:
        got = f"start {start} and length {length}"
        raise ShapeError("narrow", f"a range within the {size} of axis {axis}", got, "Shorten it.")
    return section(x, axis, first, first + length)


@composed
def select(x: ArrayLike, axis: int, index: int) -> Any:
    """The slice of x at one position of an axis, which disappears.

    Shapes: (..., n, ...) -> (..., ...).
    Raises: ShapeError for a position out of range.
    Source: PyTorch.
    Example:
        >>> select([[1, 2], [3, 4]], 1, 0).tolist()
        [1, 3]
    """
    x = as_value(x, where="select")
    axis = check_axis("select", axis, x.ndim)
    return manipulate.squeeze(narrow(x, axis, operator.index(index), 1), axis=axis)


@composed
def unfold(x: ArrayLike, axis: int, size: int, step: int) -> Any:
    """All slices of `size` along an axis, `step` apart, on a new last axis.

    Shapes: (..., n, ...) -> (..., (n - size) // step + 1, ..., size).
    Raises: OptionError for a size or step that does not fit.
    Source: PyTorch.
    Example:
        >>> unfold(as_value([1, 2, 3]), 0, 2, 1).tolist()
        [[1, 2], [2, 3]]
    """
    x = as_value(x, where="unfold")
    if not x.ndim:
        return unfold(reshape(x, (1,)), axis, size, step)[0]
    axis = check_axis("unfold", axis, x.ndim)
    if not 0 <= size <= x.shape[axis] or step < 1:
        expected = f"a size up to {x.shape[axis]} and a step of 1 or more"
        raise OptionError("unfold", expected, f"size {size} and step {step}", "Shrink the size.")
    starts = np.arange(0, x.shape[axis] - size + 1, step)
    windows = gather(x, adopt(starts[:, None] + np.arange(size)), axis=axis)
    return manipulate.moveaxis(windows, axis + 1, -1)


@composed
def as_strided(x: ArrayLike, size: Any, stride: Any, storage_offset: int = 0) -> Any:
    """The elements of x, read in row-major order, at offset + Σ i_k · stride_k; a copy.

    Shapes: (...) -> size.
    Raises: IndexOutOfRangeError for places beyond x, ShapeError for as many strides as sizes.
    Source: PyTorch.
    Example:
        >>> as_strided(as_value([1, 2, 3]), (2, 2), (1, 1)).tolist()
        [[1, 2], [2, 3]]
    """
    x = as_value(x, where="as_strided")
    places = strided_places(size, stride, storage_offset)
    return gather(reshape(x, (x.size,)), adopt(places), axis=0)


def strided_places(size: Any, stride: Any, offset: int) -> np.ndarray:
    size, stride = check_shape("as_strided", size), check_shape("as_strided", stride)
    if len(size) != len(stride):
        raise ShapeError("as_strided", "a stride for each size", f"{size} and {stride}", "Add one.")
    places = np.full(size, offset, np.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * step).reshape(n, *(1,) * (len(size) - axis - 1))
    return places
