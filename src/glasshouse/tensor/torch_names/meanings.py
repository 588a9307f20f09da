"""Functions as PyTorch has them, by whose names the Array API means something else.

The rule, which dispatch/spelling.py applies: methods of Tensor, and arguments called `dim` and
`keepdim`, are PyTorch's; functions, and arguments called `axis` and `keepdims`, the standard's."""

import builtins
import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base import OptionError, ShapeError, check_axis
from glasshouse.dispatch import as_value, reshape
from glasshouse.dispatch import value as values
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.spelling import meaning_in_pytorch
from glasshouse.dispatch.value import ArrayLike, Value
from glasshouse.ops.index import gather_along
from glasshouse.tensor.standard import elementwise, manipulate, reduce, search
from glasshouse.tensor.standard import index as indexing

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


class Extreme(NamedTuple):
    """The largest or smallest elements along an axis, and where each is first."""

    values: "Tensor"
    indices: "Tensor"


class Sorted(NamedTuple):
    """The elements in order along an axis, and where each was."""

    values: "Tensor"
    indices: "Tensor"


PAIR = "Write dim= for values and indices, as PyTorch; axis= for the values, as the Array API."
SPREAD = "Write dim= to divide by n - 1, as PyTorch; axis= to divide by n, as the Array API."


def extreme(name: str, position: Any, between: Any) -> Any:
    """The function `name` as PyTorch has it: of two tensors, of all elements, or along an axis."""

    def along(x, axis: int, keepdims: bool):
        x = as_value(x, where=name)
        if not x.ndim:
            check_axis(name, axis, 1)
            return Extreme(x, position(x))
        places = position(x, axis=axis, keepdims=True)
        both = gather_along(x, places, check_axis(name, axis, x.ndim)), places
        return Extreme(*(y if keepdims else manipulate.squeeze(y, axis) for y in both))

    along.__name__ = along.__qualname__ = name
    along = composed(along)

    def function(x, dim=None, keepdim: bool = False, *, other=None) -> Any:
        other = dim if isinstance(dim, Value) else other
        if other is not None:
            return between(x, other)
        if isinstance(dim, (tuple, list)):
            fix = f"Write x.a{name}(dim=…) or axis=… for the values over several."
            raise OptionError(name, "one axis, for values and indices", dim, fix)
        if dim is None:
            return getattr(reduce, name)(x, axis=None, keepdims=keepdim)
        return along(x, operator.index(dim), bool(keepdim))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {name}imum of all elements; along an axis (values, indices) of the
    first one; of two tensors that of each pair.

    Source: PyTorch.
    """
    return meaning_in_pytorch(PAIR)(function)


max: Any = extreme("max", reduce.argmax, elementwise.maximum)
min: Any = extreme("min", reduce.argmin, elementwise.minimum)


@meaning_in_pytorch(PAIR)
def sort(x: "Tensor", dim: int = -1, descending: bool = False, *, stable: bool = True) -> Any:
    """(values, indices): the elements in order along an axis, and where each was. Always stable.

    Source: PyTorch.
    """
    x = as_value(x, where="sort")
    if not x.ndim:
        return Sorted(x, search.argsort(reshape(x, (1,))).reshape(()))
    return Sorted(*search.sorted_with_positions("sort", x, dim, descending))


def spread(name: str, about: str) -> Any:
    def function(x, dim=None, unbiased=None, keepdim: bool = False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None and correction is not None:
            got = f"unbiased={unbiased} and correction={correction}"
            raise OptionError(name, "unbiased or correction", got, "Give one.")
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        axis = None if dim == () or dim == [] else dim
        of_all = getattr(reduce, name)
        return of_all(x, axis=axis, correction=correction, keepdims=keepdim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {about} over axes, divided by n - 1 unless `correction` says
    otherwise.

    Source: PyTorch.
    """
    return meaning_in_pytorch(SPREAD)(function)


std: Any = spread("std", "standard deviation")
var: Any = spread("var", "variance")


@meaning_in_pytorch(
    "Write dim= for the size of parts, as PyTorch; axis= for their number, as NumPy."
)
def split(
    x: Any, split_size: Any = None, dim: int = 0, *, split_size_or_sections: Any = None
) -> "tuple[Tensor, ...]":
    """x cut along an axis into parts of `split_size`, or of the sizes that it lists.

    Raises: ShapeError unless the sizes add up to that of the axis.
    Source: PyTorch.
    """
    x = as_value(x, where="split")
    dim = check_axis("split", dim, x.ndim)
    sizes = split_size_or_sections if split_size is None else split_size
    return manipulate.split(x, cuts_of_sizes(sizes, x.shape[dim]), axis=dim)


def cuts_of_sizes(sizes: Any, size: int) -> list[int]:
    """Where to cut an axis of `size` into parts of the given sizes, or of one, but for the last."""
    if not isinstance(sizes, (tuple, list)):
        sizes = operator.index(sizes)
        if sizes < 1 and size:
            raise ShapeError("split", "parts of 1 element or more", sizes, "Use x.shape[dim].")
        return list(range(sizes, size, sizes)) if size else []
    if sum(sizes) != size:
        raise ShapeError("split", f"sizes that add up to {size}", sizes, "Check the last one.")
    return list(itertools.accumulate(sizes))[:-1]


@meaning_in_pytorch("Write dim= to leave longer axes, as PyTorch; axis= to refuse them.")
def squeeze(x: ArrayLike, dim: int | Sequence[int] | None = None) -> "Tensor":
    """x without those of the given axes, or of all, that have size 1.

    Source: PyTorch.
    """
    x = as_value(x, where="squeeze")
    axes = range(x.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    axes = [check_axis("squeeze", i, builtins.max(x.ndim, 1)) for i in axes]
    kept = (n for i, n in enumerate(x.shape) if n != 1 or i not in axes)
    return values.reshape(x, tuple(kept))


@meaning_in_pytorch("Write axis= for slices along it; take_along_dim takes from x flattened.")
def take(x: ArrayLike, index: ArrayLike) -> "Tensor":
    """The elements of x flattened at these positions.

    Shapes: x (...), index (*k) -> (*k).
    Source: PyTorch.
    """
    x = as_value(x, where="take")
    return indexing.take(reshape(x, (x.size,)), index, axis=0)


def nonzero(x: ArrayLike, *, as_tuple: bool = False) -> Any:
    """The positions of the elements that are not 0, as rows of a matrix.

    Source: PyTorch.
    """
    return indexing.nonzero(x, as_tuple=as_tuple)
