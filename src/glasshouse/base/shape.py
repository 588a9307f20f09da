"""Shapes: the spec of a value, broadcasting, and checks of axes and sizes."""

import operator
from math import prod
from typing import Any, Self

from glasshouse.base.dtype import DType
from glasshouse.base.errors import AxisError, DTypeError, ShapeError, type_name

Shape = tuple[int, ...]


class Spec:
    """The `shape` and `dtype` of a value, known without computing it. Equal ones are one
    object, so that they are compared and hashed by identity.

    Example:
        >>> Spec((2, 3), gh.float32).nbytes
        24
    """

    __slots__ = ("shape", "dtype")
    shape: Shape
    dtype: DType

    def __new__(cls, shape: Shape, dtype: DType) -> Self:
        spec = dtype.specs.get(shape)
        if spec is None:
            spec = object.__new__(cls)
            spec.shape = tuple([size if size is None else int(size) for size in shape])
            spec.dtype = dtype
            spec = dtype.specs.setdefault(spec.shape, spec)
        return spec

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def __reduce__(self) -> tuple[type[Any], tuple[tuple[Any, ...], DType]]:
        return Spec, (self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


def check_shape(where: str, shape: Any) -> Shape:
    """`shape` as a tuple of non-negative Python integers; a lone integer becomes one axis.

    Raises: ShapeError for negative sizes, DTypeError for sizes that are not integers.
    """
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    try:
        sizes = tuple(map(operator.index, sizes))
    except TypeError:
        fix = "Pass a tuple of integers."
        raise DTypeError(where, "a shape of integers", repr(shape), fix) from None
    if any(size < 0 for size in sizes):
        raise ShapeError(where, "sizes of 0 or more", sizes, "Compute the missing size first.")
    return sizes


def check_axis(where: str, axis: Any, ndim: int) -> int:
    """`axis` counted from the front, as a Python integer in [0, ndim).

    Raises: AxisError if it lies outside [-ndim, ndim), DTypeError if it is no integer.
    """
    try:
        index = operator.index(axis)
    except TypeError:
        fix = "Pass an int."
        raise DTypeError(where, "an integer axis", f"{axis!r} ({type_name(axis)})", fix) from None
    if not -ndim <= index < ndim:
        allowed = f"an axis from {-ndim} to {ndim - 1}" if ndim else "no axis (a 0-d value)"
        raise AxisError(where, allowed, f"axis {index}", "Count the axes of the shape.")
    return index + ndim if index < 0 else index


def check_axes(where: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """`axes` (None = all) as sorted, distinct axes in [0, ndim).

    Raises: ShapeError.
    """
    if axes is None:
        return tuple(range(ndim))
    if not isinstance(axes, (tuple, list)):
        return (check_axis(where, axes, ndim),)
    sorted_axes = tuple(sorted(check_axis(where, axis, ndim) for axis in axes))
    if len(set(sorted_axes)) != len(sorted_axes):
        raise ShapeError(where, "distinct axes", tuple(axes), "Remove the repeated axis.")
    return sorted_axes


def broadcast_shapes(where: str, *shapes: Shape) -> Shape:
    """The common shape that all `shapes` broadcast to, by NumPy's rules.

    Raises: ShapeError if two sizes on one axis differ and neither is 1.
    Example:
        >>> broadcast_shapes("add", (2, 1), (3,))
        (2, 3)
    """
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, size in enumerate(shape, ndim - len(shape)):
            if size != 1 and result[i] != size:
                if result[i] != 1:
                    listed = " and ".join(map(str, shapes))
                    fix = "Sizes on one axis must be equal or 1; reshape one of the operands."
                    raise ShapeError(where, "shapes that broadcast together", listed, fix)
                result[i] = size
    return tuple(result)


def drop_axes(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(size for i, size in enumerate(shape) if i not in axes)
