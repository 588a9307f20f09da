"""Order statistics and moments, under PyTorch's names."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base import DTypeError, OptionError, ShapeError, check_axis, int64
from glasshouse.base.dtype import DTypeLike, as_dtype, inexact_dtype
from glasshouse.dispatch import as_value, broadcast_to, cast, full, reshape
from glasshouse.dispatch import value as values
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.spelling import meanings
from glasshouse.dispatch.value import ArrayLike
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.ops import reduce as reductions
from glasshouse.ops import sort as sorting
from glasshouse.ops.checks import check_option
from glasshouse.ops.compare import where
from glasshouse.ops.index import gather_along, move_axes
from glasshouse.ops.movement import section
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.contract import matmul, matrix_transpose
from glasshouse.tensor.standard.elementary import choose, is_nan, join
from glasshouse.tensor.standard.manipulate import concat, squeeze
from glasshouse.tensor.torch_names.arrange import diagonal

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["amax", "amin", "aminmax", "corrcoef", "cov", "kthvalue", "median", "mode", "nanmean",
           "nanmedian", "nanquantile", "nansum", "quantile", "std_mean", "var_mean"]  # fmt: skip


class KthValue(NamedTuple):
    """The k-th smallest element along an axis, and where it is."""

    values: "Tensor"
    indices: "Tensor"


class Median(NamedTuple):
    """The lower median along an axis, and where it is."""

    values: "Tensor"
    indices: "Tensor"


class NanMedian(NamedTuple):
    """The lower median of the elements that are not NaN, and its index."""

    values: "Tensor"
    indices: "Tensor"


class ModeResult(NamedTuple):
    """The smallest of the most frequent elements along an axis, and where."""

    values: "Tensor"
    indices: "Tensor"


class AMinMax(NamedTuple):
    """The smallest and the largest element."""

    min: "Tensor"
    max: "Tensor"


amax: Callable[..., Any] = meanings["max"].standard
amin: Callable[..., Any] = meanings["min"].standard


@composed
def aminmax(
    x: "Tensor", /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> AMinMax:
    """(min, max) over an axis, or over all.

    Raises: DTypeError for complex values, ShapeError for an empty axis.
    Source: PyTorch.
    Example:
        >>> [y.item() for y in aminmax(as_value([3, 1, 2]))]
        [1, 3]
    """
    over = {"axis": axis, "keepdims": keepdims}
    return AMinMax(reduce.min(x, **over), reduce.max(x, **over))


# -- order statistics --------------------------------------------------------------------------


def ordered(where_: str, x: ArrayLike, axis: int) -> Any:
    """(x with an axis or more, the axis, the positions that sort x along it)."""
    x = as_value(x, where=where_)
    elementwise.check_real(where_, x)
    x = x if x.ndim else reshape(x, (1,))
    axis = check_axis(where_, axis, x.ndim)
    if not x.shape[axis]:
        raise ShapeError(where_, "at least one element", x.shape, "Choose another axis.")
    return x, axis, sorting.sort(x, axis=axis, descending=False)[1]


def picked(kind: Any, shape: Any, x: "Tensor", places: "Tensor", axis: int, keepdims: bool) -> Any:
    """(values, indices) at one place for each line, in the shape of a reduction."""
    both = gather_along(x, places, axis), places
    if not shape:
        return kind(*(reshape(y, ()) for y in both))
    return kind(*(both if keepdims else (squeeze(y, axis) for y in both)))


@composed
def kthvalue(x: ArrayLike, k: int, axis: int = -1, keepdims: bool = False) -> Any:
    """(values, indices): the k-th smallest elements along an axis, k from 1; NaN is largest.

    Shapes: (..., n, ...) -> (..., ...), twice.
    Raises: OptionError unless 1 ≤ k ≤ n, ShapeError for an empty axis.
    Source: PyTorch.
    Example:
        >>> kthvalue(as_value([5, 3, 4]), 2).values.item()
        4
    """
    shape = as_value(x, where="kthvalue").shape
    x, axis, order = ordered("kthvalue", x, axis)
    if not 1 <= k <= x.shape[axis]:
        raise OptionError("kthvalue", f"k from 1 to {x.shape[axis]}", k, "Count from 1.")
    return picked(KthValue, shape, x, section(order, axis, k - 1, k), axis, keepdims)


def middle(kind: Any, where_: str, x: ArrayLike, axis: Any, keepdims: bool, skips_nan: bool) -> Any:
    x = as_value(x, where=where_)
    if axis is None:
        return middle(kind, where_, reshape(x, (x.size,)), 0, False, skips_nan).values
    shape = x.shape
    x, axis, order = ordered(where_, x, axis)
    n = x.shape[axis]
    missing = elementwise.isnan(x.detach())
    count = reduce.count_nonzero(missing, axis=axis, keepdims=True)
    if skips_nan:
        rank = elementwise.clip((n - count - 1) // 2, 0)
    else:  # any NaN is the median: the first one in order
        rank = where(count > 0, n - count, full(count.shape, (n - 1) // 2, int64))
    places = gather_along(order, rank, axis)
    return picked(kind, shape, x, places, axis, keepdims)


@composed
def median(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The middle element, the lower one of two; NaN if there is one. Along an axis (values,
    indices).

    Shapes: (...) -> (); with an axis (..., n, ...) -> (..., ...), twice.
    Raises: ShapeError for none.
    Source: PyTorch.
    Example:
        >>> median(as_value([5, 3, 4, 9])).item()
        4
    """
    return middle(Median, "median", x, axis, keepdims, False)


@composed
def nanmedian(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The middle element of those that are not NaN; along an axis (values, indices).

    Shapes: as median.
    Raises: ShapeError for none.
    Source: PyTorch.
    """
    return middle(NanMedian, "nanmedian", x, axis, keepdims, True)


@composed
def mode(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    """(values, indices): the most frequent element along an axis, the smallest of equally frequent
    ones, and where it is last.

    Shapes: (..., n, ...) -> (..., ...), twice.
    Raises: ShapeError for an empty axis.
    Source: PyTorch.
    Example:
        >>> mode(as_value([2, 1, 2])).values.item()
        2
    """
    shape = as_value(x, where="mode").shape
    x, axis, order = ordered("mode", x, axis)
    lines = move_axes(gather_along(x, order, axis), (axis,), (x.ndim - 1,)).detach()
    n, last = x.shape[axis], x.ndim - 1
    one = full((*lines.shape[:-1], 1), 1, int64)
    starts = concat([one, cast(differs(lines, last), int64)], axis=last)
    run = reductions.cumsum(starts, axis=last, reverse=False) - 1  # which run each belongs to
    same = values.reshape(run, (*run.shape, 1)) == values.reshape(run, (*run.shape[:-1], 1, n))
    length = reduce.count_nonzero(same, axis=last)
    best = reduce.argmax(length, axis=last, keepdims=True)
    end = best + gather_along(length, best, last) - 1
    places = gather_along(order, move_axes(end, (last,), (axis,)), axis)
    return picked(ModeResult, shape, x, places, axis, keepdims)


def differs(x: "Tensor", axis: int) -> "Tensor":
    """Where an element differs from the one before: one less along the axis."""
    n = x.shape[axis]
    return section(x, axis, min(1, n), n) != section(x, axis, 0, max(n - 1, 0))


BETWEEN = ("linear", "lower", "higher", "midpoint", "nearest")


def quantiles(
    where_: str, x: ArrayLike, q: ArrayLike, axis: Any, keepdims: bool, interpolation: str
) -> Any:
    skips_nan = where_ == "nanquantile"
    check_option(where_, "interpolation", interpolation, BETWEEN)
    x = as_value(x, where=where_)
    if not x.dtype.is_floating:
        raise DTypeError(where_, "floating values", x.dtype.name, "Cast them.")
    dtype, x = x.dtype, widen(x)  # whose ranks are counted, and need more digits than 16 bits
    q = cast(as_value(q, where=where_), x.dtype)
    if q.ndim > 1:
        raise ShapeError(where_, "q of one axis at most", q.shape, "Flatten it.")
    full_shape = (1,) * x.ndim
    if axis is None or not x.ndim:
        x, axis = reshape(x, (x.size,)), 0
    else:
        axis = check_axis(where_, axis, x.ndim)
        full_shape = reduce.kept_shape(x.shape, (axis,))
    lines = sorting.sort(x, axis=axis, descending=False)[0]
    lines = move_axes(lines, (axis,), (x.ndim - 1,))  # (..., n)
    missing = reduce.count_nonzero(is_nan(lines), axis=-1, keepdims=True)
    count = lines.shape[-1] - missing if skips_nan else full(missing.shape, lines.shape[-1], int64)
    rank = reshape(q, (q.size,)) * cast(count - 1, x.dtype)  # (..., number of q)
    rank = elementwise.maximum(rank, full(rank.shape, 0, x.dtype))
    between_ranks = between(lines, rank, interpolation)
    if not skips_nan:
        between_ranks = choose(
            broadcast_to(missing > 0, between_ranks.shape), math.nan, between_ranks
        )
    between_ranks = move_axes(between_ranks, (between_ranks.ndim - 1,), (0,))
    shape = full_shape if keepdims else tuple(between_ranks.shape[1:])
    return cast(reshape(between_ranks, (*q.shape, *shape)), dtype)


def between(lines: "Tensor", rank: "Tensor", interpolation: str) -> "Tensor":
    """Values at fractional ranks (..., k) of sorted lines (..., n), interpolated."""
    below = elementwise.floor(rank)
    above = elementwise.ceil(rank)
    last = lines.ndim - 1
    low, high = (gather_along(lines, cast(at, int64), last) for at in (below, above))
    if interpolation in ("lower", "higher"):
        return low if interpolation == "lower" else high
    if interpolation == "nearest":
        return gather_along(lines, cast(elementwise.round(rank), int64), last)
    part = rank - below if interpolation == "linear" else 0.5
    same = below == above
    return where(same, low, low + (high - low) * part)


@composed
def quantile(
    x: Any,
    q: Any,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """Quantiles of the elements at the fractions q, from 0 to 1; NaN if an element is NaN.
    Between two by interpolation: linear, lower, higher, midpoint or nearest.

    Shapes: x (..., n, ...), q () or (k,) -> (..., ...) or (k, ..., ...).
    Dtypes: floating, kept.
    Raises: OptionError for another interpolation, DTypeError, ShapeError.
    Source: NumPy, PyTorch.
    Example:
        >>> quantile(as_value([1.0, 2.0, 4.0]), 0.75).item()
        3.0
    """
    return quantiles("quantile", x, q, axis, keepdims, interpolation)


@composed
def nanquantile(
    x: Any,
    q: Any,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """As quantile, of the elements that are not NaN.

    Shapes: x (..., n, ...), q () or (k,) -> (..., ...) or (k, ..., ...).
    Raises: OptionError for another interpolation, DTypeError, ShapeError.
    Source: NumPy, PyTorch.
    """
    return quantiles("nanquantile", x, q, axis, keepdims, interpolation)


# -- sums and moments ------------------------------------------------------------------------------


@composed
def nansum(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The sum over axes of the elements that are not NaN.

    Source: NumPy, PyTorch.
    Example:
        >>> nansum(as_value([1.0, math.nan])).item()
        1.0
    """
    x = as_value(x, where="nansum")
    x = choose(is_nan(x), 0.0, x) if x.dtype.is_inexact else x
    return reduce.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)


@composed
@rounded_once
def nanmean(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The mean over axes of the elements that are not NaN; NaN over none.

    Source: NumPy, PyTorch.
    """
    x = as_value(x, where="nanmean")
    x = cast(x, inexact_dtype(x.dtype) if dtype is None else as_dtype(dtype))
    total = nansum(x, axis, keepdims)
    count = reduce.count_nonzero(~is_nan(x), axis=axis, keepdims=keepdims)
    return total / cast(count, x.dtype)


def with_mean(name: str, spread: Any, about: str) -> Any:
    def function(x, axis=None, *, unbiased=None, correction=None, keepdims: bool = False):
        if isinstance(axis, bool):
            axis, unbiased = None, axis
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        over = {"axis": axis, "keepdims": keepdims}
        return spread(x, correction=correction, **over), reduce.mean(x, **over)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""({about}, mean) over axes, divided by n - 1 as in PyTorch, unless
    `correction` says otherwise.

    Source: PyTorch.
    """
    return composed(function)


std_mean: Any = with_mean("std_mean", reduce.std, "standard deviation")
var_mean: Any = with_mean("var_mean", reduce.var, "variance")


@rounded_once
def cov(
    x: ArrayLike, /, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> "Tensor":
    """The covariances of variables, one in each row, over observations, one in each column.
    Σ w (x_i - mean_i) conj(x_j - mean_j) / (Σ w - correction)

    Shapes: (variables, n) or (n,), weights (n,) -> (variables, variables) or ().
    Raises: ShapeError for more than two axes.
    Source: NumPy, PyTorch.
    Example:
        >>> cov(as_value([1.0, 3.0])).item()
        2.0
    """
    x = as_value(x, where="cov")
    if x.ndim > 2:
        raise ShapeError("cov", "a matrix or a vector", x.shape, "Flatten the observations.")
    shape = x.shape
    x = reshape(x, (1, x.size)) if x.ndim < 2 else x
    x = cast(x, inexact_dtype(x.dtype))
    weights = full((x.shape[1],), 1, x.dtype)
    for extra_weights in (fweights, aweights):
        weights = weights if extra_weights is None else weights * as_value(extra_weights)
    total = reduce.sum(weights)
    away = x - reduce.sum(x * weights, axis=1, keepdims=True) / total
    divisor = total - correction
    if aweights is not None:
        divisor = total - correction * reduce.sum(weights * as_value(aweights)) / total
    divisor = elementwise.clip(elementwise.real(divisor), 0)
    out = matmul(away * weights, elementwise.conj(matrix_transpose(away))) / divisor
    return out if len(shape) == 2 else reshape(out, ())


@rounded_once
def corrcoef(x: "Tensor", /) -> "Tensor":
    """The correlations of variables, one in each row, over observations, one in each column.
    cov_ij / sqrt(cov_ii cov_jj), cut to the range from -1 to 1

    Shapes: (variables, n) or (n,) -> (variables, variables) or ().
    Raises: ShapeError for more than two axes.
    Source: NumPy, PyTorch.
    """
    covariances = cov(x)
    if covariances.size == 1:
        covariances = reshape(covariances, ())
        return covariances / covariances
    size = elementwise.sqrt(elementwise.real(diagonal(covariances)))
    out = covariances / reshape(size, (size.size, 1)) / size
    if not out.dtype.is_complex:
        return elementwise.clip(out, -1.0, 1.0)
    parts = (
        elementwise.clip(part(out), -1.0, 1.0) for part in (elementwise.real, elementwise.imag)
    )
    return join(*parts)
