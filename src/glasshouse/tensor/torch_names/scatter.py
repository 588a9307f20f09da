"""Reading and writing places that index tensors or masks name, under PyTorch's names.

All become places in x flattened, and one gather or scatter there."""

import math
import operator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import OptionError, ShapeError, bool_, check_axis, int64
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import (
    SCALARS,
    ArrayLike,
    adopt,
    as_value,
    broadcast_to,
    broadcast_values,
    cast,
    full,
    reshape,
    zeros,
)
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops import elementwise as arithmetic
from glasshouse.ops import index as cards
from glasshouse.ops import movement
from glasshouse.ops import reduce as reductions
from glasshouse.ops import sort as sorting
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota
from glasshouse.ops.movement import section
from glasshouse.tensor.standard import index as indexing
from glasshouse.tensor.standard.arithmetic import multiply_by
from glasshouse.tensor.standard.index import contents, explained, places_in
from glasshouse.tensor.torch_names.arrange import diagonal_places
from glasshouse.tensor.torch_names.joining import strided_places

if TYPE_CHECKING:
    from glasshouse.base.shape import Shape
    from glasshouse.tensor.handle import Tensor


__all__ = ["as_strided_scatter", "diagonal_scatter", "gather", "index_add", "index_copy",
           "index_fill", "index_put", "index_reduce", "index_select", "masked_fill",
           "masked_scatter", "masked_select", "put", "scatter", "scatter_add", "scatter_reduce",
           "select_scatter", "slice_scatter", "take_along_dim"]  # fmt: skip


def flat(x: "Tensor") -> "Tensor":
    return reshape(x, (x.size,))


def index_of(where_: str, x: "Tensor", indices: ArrayLike) -> "Tensor":
    indices = as_value(indices, where=where_)
    return cast(check_integers(where_, indices), int64)


class Lines:
    """Places along one axis of x that `indices` name, element by element, in x flattened. On the
    other axes the indices may be smaller than x: x's elements past them are left alone."""

    where: str
    shape: "Shape"
    named: list[tuple[Any, int, int]]
    index_shape: Any

    def __init__(self, where_: str, x: "Tensor", axis: int, indices: Any) -> None:
        self.where, self.shape, size = where_, x.shape, x.size
        x, indices = (reshape(v, v.shape or (1,)) for v in (x, index_of(where_, x, indices)))
        axis = check_axis(where_, axis, x.ndim)
        beside = zip(indices.shape, x.shape, strict=False)
        fits = indices.ndim == x.ndim and all(
            n <= m for i, (n, m) in enumerate(beside) if i != axis
        )
        if indices.size and not fits:
            expected = f"an index no larger than {x.shape} but for axis {axis}"
            raise ShapeError(where_, expected, indices.shape, "Slice it, or broadcast x.")
        self.named, self.index_shape = [(indices, axis, x.shape[axis])], indices.shape
        places = places_in(indices, x.shape[axis], size)
        inside = places < size
        total, step = full(places.shape, 0, int64), 1
        for i in reversed(range(x.ndim if indices.size else 0)):
            at = places if i == axis else along_axis(indices.shape, i)
            total, step = total + at * step, step * x.shape[i]
        self.places: Any = where(inside, total, full(total.shape, size, int64))

    def explained(self, run: Any) -> Any:
        return explained(self.where, run, self.named)

    def updates_from(self, source: ArrayLike, x: "Tensor") -> "Tensor":
        """`source`, a number or a tensor at least as large as the index, as updates."""
        if type(source) in SCALARS:
            return full((math.prod(self.index_shape),), source, x.dtype, self.where)
        source = as_value(source, where=self.where)
        source = reshape(source, source.shape or (1,))
        wrong = source.ndim != len(self.index_shape) or any(
            n > m for n, m in zip(self.index_shape, source.shape, strict=True)
        )
        if wrong:
            expected = f"a source at least as large as the index, {self.index_shape}"
            raise ShapeError(self.where, expected, source.shape, "Slice the index.")
        for axis, n in enumerate(self.index_shape):
            source = section(source, axis, 0, n)
        return flat(cast(source, x.dtype))


def along_axis(shape: Any, axis: int) -> "Tensor":
    """The position along one axis of each element of a tensor of this shape."""
    line = iota(size=shape[axis], dtype=int64)
    apart = reshape(line, tuple(n if i == axis else 1 for i, n in enumerate(shape)))
    return broadcast_to(apart, shape)


@takes_names_of_pytorch
def gather(x: ArrayLike, axis: int, index: ArrayLike, *, sparse_grad: bool = False) -> Any:
    """The elements of x that `index` names along an axis, element by element.

    Shapes: x (..., n, ...), index of as many axes, no larger but for `axis` -> that of index.
    Raises: IndexOutOfRangeError, ShapeError, DTypeError unless index holds integers.
    Source: PyTorch.
    Example:
        >>> gather(as_value([[1, 2], [3, 4]]), 1, as_value([[1], [0]])).tolist()
        [[2], [3]]
    """
    x = as_value(x, where="gather")
    lines = Lines("gather", x, axis, index)
    shape = as_value(index).shape
    run = partial(cards.gather, flat(x), flat(lines.places), axis=0)
    return reshape(lines.explained(run), shape)


def scattered(where_: str, card: Any, x: "Tensor", axis: int, index: Any, source: Any) -> "Tensor":
    lines = Lines(where_, x, axis, index)
    updates = lines.updates_from(source, x)
    run = partial(card, flat(x), flat(lines.places), updates, axis=0)
    return reshape(lines.explained(run), x.shape)


@takes_names_of_pytorch
def scatter(
    x: ArrayLike, axis: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """x with the elements of `src`, or one number, written where `index` names places along an
    axis; of places named twice, the last. With `reduce`, "add" or "multiply", joined to x instead.

    Shapes: x (..., n, ...); index no larger than x but for `axis`, nor than src.
    Raises: IndexOutOfRangeError, ShapeError, OptionError for another `reduce`.
    Source: PyTorch.
    Example:
        >>> scatter(as_value([0, 0, 0]), 0, as_value([2]), 7).tolist()
        [0, 0, 7]
    """
    x, source = as_value(x, where="scatter"), value if src is None else src
    if reduce is None:
        return scattered("scatter", cards.scatter_set, x, axis, index, source)
    check_option("scatter", "reduce", reduce, ("add", "multiply"))
    if reduce == "add":
        return scattered("scatter", cards.scatter_add, x, axis, index, source)
    return scatter_reduce(x, axis, index, source, "prod")


@takes_names_of_pytorch
def scatter_add(x: ArrayLike, axis: int, index: Any, src: Any) -> Any:
    """x with the elements of `src` added where `index` names places along an axis.

    Shapes: x (..., n, ...); index no larger than x but for `axis`, nor than src.
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    Example:
        >>> scatter_add(as_value([0, 0]), 0, as_value([1, 1]), as_value([2, 3])).tolist()
        [0, 5]
    """
    return scattered("scatter_add", cards.scatter_add, as_value(x), axis, index, src)


JOINS = {"prod": arithmetic.mul, "amax": arithmetic.maximum, "amin": arithmetic.minimum}
REDUCTIONS = ("sum", "mean", *JOINS)


def joined_by_place(join: Any, places: "Tensor", values: "Tensor", size: int) -> Any:
    """(at each place the values that name it joined, how many they are). Sorted by place, runs are
    joined by doubling steps; the last of each holds its whole.

    Source: Hillis & Steele 1986, Data parallel algorithms.
    """
    ordered, order = sorting.sort(places, axis=0, descending=False)
    values, step = cards.gather(values, order, axis=0), 1
    while step < values.size:
        head = section(values, 0, 0, step)
        late, early = moved_on(values, step)
        same = operator.eq(*moved_on(ordered, step))
        values = movement.concatenate(head, where(same, join(early, late), late), axis=0)
        step *= 2
    joined = cards.scatter_set(full((size,), 0, values.dtype), ordered, values, axis=0)
    return joined, counted(places, size)


def moved_on(x: "Tensor", step: int) -> "tuple[Tensor, Tensor]":
    """(all but the first `step` elements, all but the last)."""
    return section(x, 0, step, x.size), section(x, 0, 0, x.size - step)


def counted(places: "Tensor", size: int) -> "Tensor":
    ones = full(places.shape, 1, int64)
    return cards.scatter_add(full((size,), 0, int64), places, ones, axis=0)


@rounded_once
def reduced_at(
    where_: str, x: "Tensor", places: "Tensor", updates: "Tensor", reduce: str, with_x: bool
) -> Any:
    """x (n,) with updates joined at places; `with_x`: x's own elements there count too."""
    check_option(where_, "reduce", reduce, REDUCTIONS)
    size = x.size
    if reduce in JOINS:
        joined, count = joined_by_place(JOINS[reduce], places, updates, size)
        together = JOINS[reduce](x, joined) if with_x else joined
        return where(count > 0, together, x)
    count = counted(places, size)
    start = x if with_x else where(count > 0, zeros(x), x)
    total = cards.scatter_add(start, places, updates, axis=0)
    if reduce == "sum":
        return total
    count = cast(where(count > 0, count + int(with_x), full((size,), 1, int64)), x.dtype)
    return total // count if x.dtype.is_integer else total / count


@takes_names_of_pytorch
def scatter_reduce(
    x: ArrayLike, axis: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """x with the elements of `src` joined to it where `index` names places along an axis: by "sum",
    "prod", "mean", "amax" or "amin". Without `include_self` x's own elements there do not count.

    Shapes: x (..., n, ...); index no larger than x but for `axis`, nor than src.
    Raises: IndexOutOfRangeError, ShapeError, OptionError for another `reduce`.
    Source: PyTorch.
    """
    x = as_value(x, where="scatter_reduce")
    lines = Lines("scatter_reduce", x, axis, index)
    updates, places = lines.updates_from(src, x), flat(lines.places)
    run = partial(reduced_at, "scatter_reduce", flat(x), places, updates, reduce, include_self)
    return reshape(lines.explained(run), x.shape)


# -- along one axis, whole slices ------------------------------------------------------------------


def slices(where_: str, x: ArrayLike, axis: int, index: Any) -> Any:
    """(x, with an axis or more, the axis, the index as a vector)."""
    x = as_value(x, where=where_)
    index = index_of(where_, x, index)
    if index.ndim > 1:
        raise ShapeError(where_, "an index of one axis", index.shape, "Flatten it.")
    return reshape(x, x.shape or (1,)), check_axis(where_, axis, max(x.ndim, 1)), flat(index)


@takes_names_of_pytorch
def index_select(x: ArrayLike, axis: int, index: Any) -> Any:
    """The slices of x that `index` names along an axis.

    Shapes: x (..., n, ...), index (k,) -> (..., k, ...).
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    Example:
        >>> index_select(as_value([1, 2, 3]), 0, as_value([2, 0])).tolist()
        [3, 1]
    """
    shape = as_value(x, where="index_select").shape
    x, axis, index = slices("index_select", x, axis, index)
    run = partial(cards.gather, x, index, axis=axis)
    out = explained("index_select", run, [(index, axis, x.shape[axis])])
    return out if shape else reshape(out, ())


def written_slices(
    where_: str, card: Any, x: ArrayLike, axis: int, index: Any, source: Any
) -> "Tensor":
    shape = as_value(x, where=where_).shape
    x, axis, index = slices(where_, x, axis, index)
    expected = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    if not (type(source) in SCALARS or as_value(source).ndim <= len(expected)):
        raise ShapeError(where_, f"a source of shape {expected}", source.shape, "Reshape it.")
    source = contents(where_, source, x, expected)
    run = partial(card, x, index, source, axis=axis)
    return reshape(explained(where_, run, [(index, axis, x.shape[axis])]), shape)


@takes_names_of_pytorch
def index_add(x: ArrayLike, axis: int, index: Any, source: ArrayLike, *, alpha: int = 1) -> Any:
    """x with alpha times the slices of `source` added to those that `index` names along an axis.

    Shapes: x (..., n, ...), index (k,), source (..., k, ...).
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    Example:
        >>> index_add(as_value([0, 0]), 0, as_value([1, 1]), as_value([2, 3])).tolist()
        [0, 5]
    """
    source = cast(multiply_by(as_value(source), alpha), as_value(x).dtype)
    return written_slices("index_add", cards.scatter_add, x, axis, index, source)


@takes_names_of_pytorch
def index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    """x with its slices that `index` names along an axis replaced by those of `source`.

    Shapes: x (..., n, ...), index (k,), source (..., k, ...).
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    """
    return written_slices("index_copy", cards.scatter_set, x, axis, index, source)


@takes_names_of_pytorch
def index_fill(x: Any, axis: int, index: Any, value: Any) -> Any:
    """x with one number in all slices that `index` names along an axis.

    Shapes: x (..., n, ...), index (k,), value a number or ().
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    """
    return written_slices("index_fill", cards.scatter_set, x, axis, index, value)


@takes_names_of_pytorch
def index_reduce(
    x: ArrayLike,
    axis: int,
    index: Any,
    source: ArrayLike,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """x with the slices of `source` joined to those that `index` names along an axis: by "prod",
    "mean", "amax" or "amin".

    Shapes: x (..., n, ...), index (k,), source (..., k, ...).
    Raises: IndexOutOfRangeError, ShapeError, OptionError for another `reduce`.
    Source: PyTorch.
    """
    full_shape = as_value(x, where="index_reduce").shape
    x, axis, index = slices("index_reduce", x, axis, index)
    shape = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    apart = reshape(index, (*(1,) * axis, index.size, *(1,) * (x.ndim - axis - 1)))
    spread = broadcast_to(apart, shape)
    source = broadcast_to(as_value(source), shape) if not as_value(source).ndim else source
    reduced = scatter_reduce(x, axis, spread, source, reduce, include_self=include_self)
    return reshape(reduced, full_shape)


def index_put(x: ArrayLike, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """x with `values` at x[indices], written, or added if they accumulate.

    Shapes: values broadcast to x[indices].
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    Example:
        >>> index_put(as_value([0, 0]), (as_value([1]),), as_value(5)).tolist()
        [0, 5]
    """
    write = indexing.add_at if accumulate else indexing.setitem
    return write(as_value(x, where="index_put"), tuple(indices), values)


def put(x: ArrayLike, index: Any, source: ArrayLike, accumulate: bool = False) -> Any:
    """x with the elements of `source` at positions of x flattened, written, or added.

    Shapes: index and source of as many elements.
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    """
    x, source = as_value(x, where="put"), as_value(source, where="put")
    index = flat(index_of("put", x, index))
    card = cards.scatter_add if accumulate else cards.scatter_set
    updates = flat(cast(source, x.dtype))
    run = partial(card, flat(x), index, updates, axis=0)
    return reshape(explained("put", run, [(index, 0, x.size)]), x.shape)


@takes_names_of_pytorch
def take_along_dim(x: ArrayLike, indices: ArrayLike, axis: int | None = None) -> Any:
    """The elements of x that `indices` name along an axis, line by line; without an axis, of x
    flattened.

    Shapes: x (*a, n, *b), indices (*a, k, *b), which broadcast -> (*a, k, *b).
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    """
    x, indices = as_value(x, where="take_along_dim"), as_value(indices)
    if axis is None:
        x, indices, axis = flat(x), flat(indices), 0
    return indexing.take_along_axis(x, indices, axis=axis)


# -- masks -----------------------------------------------------------------------------------------


def check_mask(where_: str, mask: ArrayLike) -> "Tensor":
    mask = as_value(mask, where=where_)
    if mask.dtype is not bool_:
        raise OptionError(where_, "a mask of booleans", mask.dtype.name, "Compare it with 0.")
    return mask


@composed
def masked_fill(x: ArrayLike, mask: Any, value: Any) -> Any:
    """x with one number wherever the mask is true.

    Shapes: x (...), mask (...) -> their common broadcast shape.
    Raises: OptionError unless the mask is boolean, ShapeError.
    Source: PyTorch.
    Example:
        >>> masked_fill(as_value([1, 2]), as_value([True, False]), 0).tolist()
        [0, 2]
    """
    x, mask = as_value(x, where="masked_fill"), check_mask("masked_fill", mask)
    mask, x = broadcast_values("masked_fill", mask, x)
    return where(mask, contents("masked_fill", value, x, x.shape), x)


def masked_scatter(x: ArrayLike, mask: Any, source: ArrayLike) -> Any:
    """x with the places where the mask is true filled, in order, with the elements of `source`.

    Shapes: x (...), mask (...), which broadcasts to x; source of enough elements.
    Raises: OptionError unless the mask is boolean, ShapeError for too few elements.
    Source: PyTorch.
    Example:
        >>> masked_scatter(as_value([1, 2]), as_value([False, True]), as_value([9])).tolist()
        [1, 9]
    """
    x, mask = as_value(x, where="masked_scatter"), check_mask("masked_scatter", mask)
    mask, x = broadcast_values("masked_scatter", mask, x)
    source = flat(cast(as_value(source, where="masked_scatter"), x.dtype))
    if not x.size:
        return x
    rank = reductions.cumsum(cast(flat(mask), int64), axis=0, reverse=False) - 1
    rank = where(flat(mask), rank, zeros(rank))
    run = partial(cards.gather, source, rank, axis=0)
    elements = explained("masked_scatter", run, [(rank, 0, source.size)])
    return where(mask, reshape(elements, x.shape), x)


def masked_select(x: ArrayLike, mask: Any) -> Any:
    """The elements of x where the mask is true, as a vector. The mask is read at once.

    Shapes: x (...), mask (...), which broadcast -> (count,).
    Raises: OptionError unless the mask is boolean, ShapeError.
    Source: PyTorch.
    Example:
        >>> masked_select(as_value([1, 2]), as_value([False, True])).tolist()
        [2]
    """
    mask, x = broadcast_values(
        "masked_select", check_mask("masked_select", mask), as_value(x, where="masked_select")
    )
    places = np.flatnonzero(mask.numpy())
    return cards.gather(flat(x), adopt(places), axis=0)


# -- parts replaced --------------------------------------------------------------------------------


def at_places(where_: str, x: "Tensor", places: np.ndarray, source: Any) -> "Tensor":
    """x with `source` written at these positions of x flattened."""
    source = contents(where_, source, x, places.shape)
    out = cards.scatter_set(flat(x), adopt(places.reshape(-1)), flat(source), axis=0)
    return reshape(out, x.shape)


@composed
def select_scatter(x: ArrayLike, source: Any, axis: int, index: int) -> Any:
    """x with the slice at one position of an axis replaced by `source`.

    Shapes: x (..., n, ...), source (..., ...).
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    """
    x = as_value(x, where="select_scatter")
    key = (slice(None),) * check_axis("select_scatter", axis, x.ndim)
    return indexing.setitem(x, (*key, operator.index(index)), source)


@composed
def slice_scatter(
    x: ArrayLike, source: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """x with the slices from `start` to `end` of an axis replaced by `source`.

    Shapes: x (..., n, ...), source (..., k, ...).
    Raises: ShapeError.
    Source: PyTorch.
    """
    x = as_value(x, where="slice_scatter")
    key = (slice(None),) * check_axis("slice_scatter", axis, x.ndim)
    return indexing.setitem(x, (*key, slice(start, end, step)), source)


def diagonal_scatter(
    x: ArrayLike, source: "Tensor", offset: int = 0, dim1: int = 0, dim2: int = 1
) -> "Tensor":
    """x with a diagonal of two axes replaced by `source`.

    Shapes: x (..., m, ..., n, ...), source (..., k).
    Raises: ShapeError.
    Source: PyTorch.
    """
    x = as_value(x, where="diagonal_scatter")
    axis1, axis2, row, column, count = diagonal_places(x.shape, offset, dim1, dim2)
    places = np.moveaxis(np.arange(x.size).reshape(x.shape), (axis1, axis2), (-2, -1))
    line = np.arange(count)
    return at_places("diagonal_scatter", x, places[..., row + line, column + line], source)


def as_strided_scatter(
    x: ArrayLike, source: Any, size: Any, stride: Any, storage_offset: int = 0
) -> Any:
    """x with the elements at offset + Σ i_k · stride_k, in row-major order, replaced by `source`.

    Shapes: x (...), source of shape `size`.
    Raises: IndexOutOfRangeError, ShapeError.
    Source: PyTorch.
    """
    x = as_value(x, where="as_strided_scatter")
    return at_places("as_strided_scatter", x, strided_places(size, stride, storage_offset), source)
