"""Order: sorting, the largest elements, and the distinct elements of a tensor."""

from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base import OptionError, check_axis, int64
from glasshouse.dispatch.spelling import has_two_meanings, takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike, as_value, cast, full, reshape
from glasshouse.ops import create
from glasshouse.ops import index as indexing
from glasshouse.ops import reduce as reductions
from glasshouse.ops import sort as sorting
from glasshouse.tensor.standard import index
from glasshouse.tensor.standard.elementary import split
from glasshouse.tensor.standard.elementwise import check_real
from glasshouse.tensor.standard.manipulate import concat, moveaxis, part

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["argsort", "sort", "topk", "unique_all", "unique_counts", "unique_inverse",
           "unique_values"]  # fmt: skip


def sorted_with_positions(
    where: str, x: ArrayLike, axis: int, descending: bool
) -> "tuple[Tensor, ...]":
    x = as_value(x, where=where)
    check_real(where, x)
    axis = check_axis(where, axis, x.ndim)
    return sorting.sort(x, axis=axis, descending=bool(descending))


@has_two_meanings()
@takes_names_of_pytorch
def sort(
    x: "Tensor", /, axis: int = -1, descending: bool = False, *, stable: bool = True
) -> "Tensor":
    """x sorted along an axis, smallest first; NaN is the largest. Always stable.

    Shapes: x (...) -> (...).
    Dtypes: real or bool, kept.
    Raises: DTypeError for complex values, ShapeError for an axis out of range.
    Source: standard.
    Example:
        >>> sort([3, 1, 2], descending=True).tolist()
        [3, 2, 1]
    """
    return sorted_with_positions("sort", x, axis, descending)[0]


@takes_names_of_pytorch
def argsort(
    x: "Tensor", /, axis: int = -1, descending: bool = False, *, stable: bool = True
) -> "Tensor":
    """The positions that sort x along an axis; equal elements keep their order.

    Shapes: x (...) -> (...).
    Dtypes: real or bool -> int64.
    Raises: DTypeError for complex values, ShapeError for an axis out of range.
    Source: standard.
    """
    return sorted_with_positions("argsort", x, axis, descending)[1]


class TopKResult(NamedTuple):
    """The k extreme elements along an axis, their positions."""

    values: "Tensor"
    indices: "Tensor"


@takes_names_of_pytorch
def topk(
    x: ArrayLike, k: int, /, axis: int = -1, largest: bool = True, sorted: bool = True
) -> TopKResult:
    """(values, indices): the k largest or smallest elements along an axis, the extreme one first.
    NaN is the largest.

    Shapes: x (..., n, ...) -> (..., k, ...), (..., k, ...).
    Dtypes: real or bool, kept; indices int64.
    Raises: OptionError unless 0 <= k <= n.
    Source: PyTorch.
    Example:
        >>> topk([3, 1, 2], 2).indices.tolist()
        [0, 2]
    """
    x = as_value(x, where="topk")
    check_real("topk", x)
    axis = check_axis("topk", axis, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        got = f"{k} for shape {x.shape} and axis {axis}"
        raise OptionError("topk", f"k from 0 to {x.shape[axis]}", got, "Choose a smaller k.")
    if largest:
        return TopKResult(
            *(moveaxis(y, -1, axis) for y in sorting.top_k(moveaxis(x, axis, -1), k=k))
        )
    return TopKResult(*(part(y, axis, 0, k) for y in sorting.sort(x, axis=axis, descending=False)))


class UniqueAll(NamedTuple):
    """Distinct elements, where each is first, where x has which, and how often each occurs."""

    values: "Tensor"
    indices: "Tensor"
    inverse_indices: "Tensor"
    counts: "Tensor"


class UniqueCounts(NamedTuple):
    """Distinct elements, how often each occurs."""

    values: "Tensor"
    counts: "Tensor"


class UniqueInverse(NamedTuple):
    """Distinct elements, and which each element of x is."""

    values: "Tensor"
    inverse_indices: "Tensor"


def sorting_positions(x: "Tensor") -> "Tensor":
    """The stable order of a 1-d value; complex numbers go by real, then imaginary part."""
    if not x.dtype.is_complex:
        return argsort(x)
    re, im = split(x)
    by_imag = argsort(im)
    return indexing.gather(by_imag, argsort(indexing.gather(re, by_imag, axis=0)), axis=0)


def runs(where: str, x: ArrayLike) -> Any:
    """(x flattened, its sorting positions, where a new value starts in the sorted sequence)."""
    x = as_value(x, where=where)
    x = reshape(x, (x.size,))
    order = sorting_positions(x)
    if x.size == 0:
        return x, order, x != x
    ordered = indexing.gather(x, order, axis=0)
    differs = part(ordered, 0, 1, x.size) != part(ordered, 0, 0, x.size - 1)
    return x, order, concat([full((1,), True, differs.dtype), differs])


def unique_all(x: Any, /) -> UniqueAll:
    """(values, indices, inverse_indices, counts) of the distinct elements of x, in order.
    `indices` is where each is first in x flattened; values[inverse_indices] is x. Each NaN counts
    as distinct. The tensor is read at once, since the results' shapes depend on it.

    Shapes: x (...) -> (k,), (k,), (...), (k,).
    Dtypes: any, kept; the others int64.
    Raises: DTypeError for non-numeric input.
    Source: standard.
    Example:
        >>> unique_all([7, 5, 7]).counts.tolist()
        [1, 2]
    """
    return distinct("unique_all", x)


def distinct(where: str, x: ArrayLike) -> UniqueAll:
    shape = as_value(x, where=where).shape
    x, order, new = runs(where, x)
    (starts,) = index.nonzero(new)
    first = indexing.gather(order, starts, axis=0)
    ends = concat([part(starts, 0, min(1, starts.size), starts.size), [x.size]])
    counts = part(ends, 0, 0, starts.size) - starts
    rank = reductions.cumsum(cast(new, int64), axis=0, reverse=False) - 1
    inverse = indexing.scatter_set(create.iota(size=x.size, dtype=rank.dtype), order, rank, axis=0)
    return UniqueAll(indexing.gather(x, first, axis=0), first, reshape(inverse, shape), counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """(values, counts): the distinct elements of x, in order, and how often each occurs.

    Shapes: x (...) -> (k,), (k,).
    Dtypes: any, kept; counts int64.
    Raises: DTypeError for non-numeric input.
    Source: standard.
    Example:
        >>> unique_counts([7, 5, 7]).counts.tolist()
        [1, 2]
    """
    elements = distinct("unique_counts", x)
    return UniqueCounts(elements.values, elements.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """(values, inverse_indices): the distinct elements of x, in order, and which each element is.

    Shapes: x (...) -> (k,), (...).
    Dtypes: any, kept; inverse_indices int64.
    Raises: DTypeError for non-numeric input.
    Source: standard.
    """
    elements = distinct("unique_inverse", x)
    return UniqueInverse(elements.values, elements.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """The distinct elements of x, in order.

    Shapes: x (...) -> (k,).
    Dtypes: any, kept.
    Raises: DTypeError for non-numeric input.
    Source: standard.
    """
    return distinct("unique_values", x).values
