"""Reductions, and functions along one axis: cumulative sums and products, differences.

`axis` is None (all axes), an integer or a tuple of integers; `keepdims` leaves reduced axes in
place with size 1."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import DType, DTypeError, OptionError, ShapeError, check_axes, check_axis
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import DTypeLike, as_dtype, inexact_dtype, int64, real_dtype, uint64
from glasshouse.dispatch import Primitive, as_value, broadcast_to, cast, full, reshape
from glasshouse.dispatch import value as values
from glasshouse.dispatch.spelling import has_two_meanings, takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops import elementwise as cards
from glasshouse.ops import movement
from glasshouse.ops import reduce as reductions
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.elementary import choose, is_infinite, split

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum",
           "diff", "logsumexp", "max", "mean", "min", "prod", "std", "sum", "var"]  # fmt: skip


def kept_shape(shape: Any, axes: Any) -> tuple[int, ...]:
    return tuple(1 if i in axes else size for i, size in enumerate(shape))


def reduced(
    card: Primitive, where: str, x: "Tensor", axis: int | Sequence[int] | None, keepdims: bool
) -> "Tensor":
    axes = check_axes(where, axis, x.ndim)
    if not isinstance(keepdims, (bool, np.bool_)):
        fix = "Put several axes into a tuple."
        raise OptionError(where, "keepdims of True or False", repr(keepdims), fix)
    out = card(x, axes=axes)
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out


def summed_dtype(where: str, dtype: Any, override: Any) -> DType:
    if override is None:
        return {"bool": int64, "int": int64, "uint": uint64}.get(dtype.kind, dtype)
    override = as_dtype(override)
    if override.is_bool:
        raise DTypeError(where, "a numeric dtype", "bool", "Use gh.any or gh.all.")
    return override


def reduction(
    dtypes: str, example: str, result: str, errors: str = "an axis out of range", axes: Any = "axes"
) -> Any:
    def decorate(function):
        name, about = function.__name__, function.__doc__
        shapes = f"x (...) -> without the {axes}, or with 1 there"
        refused, call = f"ShapeError for {errors}", f"{name}({example}).tolist()"
        return elementwise.named(function, name, about, shapes, dtypes, refused, call, result)

    return decorate


SUMMED = "numeric or bool; booleans and integers become int64 (unsigned: uint64)"
FLOATING = "floating or complex, kept; integers and booleans become float32"
SPREAD = "floating, kept; complex becomes real; integers and booleans become float32"
NO_EXTREME = "an empty axis, DTypeError for complex values"


@reduction(SUMMED, "[[1, 2], [3, 4]], axis=0", "[4, 6]")
def sum(
    x: ArrayLike,
    /,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
) -> "Tensor":
    """The sum over axes."""
    x = as_value(x, where="sum")
    x = cast(x, summed_dtype("sum", x.dtype, dtype))
    return reduced(reductions.sum_, "sum", x, axis, keepdims)


@reduction(SUMMED, "[[1, 2], [3, 4]], axis=0", "[3, 8]")
def prod(
    x: ArrayLike,
    /,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
) -> "Tensor":
    """The product over axes."""
    x = as_value(x, where="prod")
    x = cast(x, summed_dtype("prod", x.dtype, dtype))
    return reduced(reductions.prod, "prod", x, axis, keepdims)


def extreme(
    card: Primitive, of_bools: Primitive, where: str, x: ArrayLike, axis: Any, keepdims: bool
) -> "Tensor":
    x = as_value(x, where=where)
    if x.dtype.is_bool and 0 not in x.shape:
        return reduced(of_bools, where, x, axis, keepdims)
    elementwise.check_real(where, x)
    return reduced(card, where, x, axis, keepdims)


@has_two_meanings()
@reduction("real or bool, kept", "[[1, 2], [3, 4]], axis=0", "[3, 4]", NO_EXTREME)
def max(
    x: "Tensor", /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """The largest element over axes; NaN if there is one. Equal ones share the derivative."""
    return extreme(reductions.max_, reductions.any_, "max", x, axis, keepdims)


@has_two_meanings()
@reduction("real or bool, kept", "[[1, 2], [3, 4]], axis=0", "[1, 2]", NO_EXTREME)
def min(
    x: "Tensor", /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """The smallest element over axes; NaN if there is one. Equal ones share the derivative."""
    return extreme(reductions.min_, reductions.all_, "min", x, axis, keepdims)


@reduction("any -> bool", "[[0, 0], [0, 2]], axis=0", "[False, True]")
def any(
    x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """True where some element over the axes is true (not 0); false for none."""
    x = elementwise.truth(as_value(x, where="any"))
    return reduced(reductions.any_, "any", x, axis, keepdims)


@reduction("any -> bool", "[[0, 1], [0, 2]], axis=0", "[False, True]")
def all(
    x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """True where every element over the axes is true (not 0); true for none."""
    x = elementwise.truth(as_value(x, where="all"))
    return reduced(reductions.all_, "all", x, axis, keepdims)


@reduction("any -> int64", "[[0, 1], [0, 2]], axis=1", "[1, 1]")
def count_nonzero(
    x: ArrayLike, /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """The number of elements over the axes that are not 0."""
    x = cast(elementwise.truth(as_value(x, where="count_nonzero")), int64)
    return reduced(reductions.sum_, "count_nonzero", x, axis, keepdims)


def position(
    card: Primitive, where: str, x: ArrayLike, axis: int | Sequence[int] | None, keepdims: bool
) -> "Tensor":
    x = as_value(x, where=where)
    elementwise.check_real(where, x)
    if axis is None:
        out, shape = card(reshape(x, (x.size,)), axis=0), (1,) * x.ndim
    else:
        axis = check_axis(where, axis, x.ndim)
        out, shape = card(x, axis=axis), kept_shape(x.shape, (axis,))
    return reshape(out, shape) if keepdims else out


@reduction("real or bool -> int64", "[[1, 5, 5], [7, 0, 2]], axis=1", "[1, 0]", NO_EXTREME, "axis")
def argmax(
    x: "Tensor", /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """The first position of the largest element along `axis`, or in x flattened."""
    return position(reductions.argmax, "argmax", x, axis, keepdims)


@reduction("real or bool -> int64", "[[1, 5, 5], [7, 0, 2]], axis=1", "[0, 1]", NO_EXTREME, "axis")
def argmin(
    x: "Tensor", /, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> "Tensor":
    """The first position of the smallest element along `axis`, or in x flattened."""
    return position(reductions.argmin, "argmin", x, axis, keepdims)


def widen_argument(where: str, x: ArrayLike) -> "tuple[Tensor, Any]":
    """(x in the dtype that sums are carried in, the dtype of the result)."""
    x = as_value(x, where=where)
    dtype = inexact_dtype(x.dtype)
    return cast(x, dtypes.accumulation_dtype(dtype)), dtype


@reduction(FLOATING, "[[1.0, 2.0], [3.0, 4.0]], axis=0", "[2.0, 3.0]")
def mean(x: "Tensor", /, axis: Any = None, keepdims: bool = False) -> "Tensor":
    """The arithmetic mean over axes, sum(x) / n; NaN over none."""
    x, dtype = widen_argument("mean", x)
    axes = check_axes("mean", axis, x.ndim)
    total = reduced(reductions.sum_, "mean", x, axes, keepdims)
    count = math.prod(x.shape[i] for i in axes)
    return cast(cards.div(total, full(total.shape, float(count), total.dtype)), dtype)


@has_two_meanings(refuses=True)
@reduction(SPREAD, "[1.0, 2.0, 3.0], correction=1", "1.0")
def var(
    x: "Tensor", /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False
) -> "Tensor":
    """The variance over axes, sum(|x - mean(x)|²) / (n - correction); NaN where that is 0."""
    x, dtype = widen_argument("var", x)
    axes = check_axes("var", axis, x.ndim)
    away = x - mean(x, axis=axes, keepdims=True)
    squares = away * away
    if x.dtype.is_complex:
        re, im = split(away)
        squares = re * re + im * im
    total = reduced(reductions.sum_, "var", squares, axes, keepdims)
    freedom = math.prod(x.shape[i] for i in axes) - correction
    return cast(total / (freedom if freedom > 0 else 0.0), real_dtype(dtype))


@has_two_meanings(refuses=True)
@reduction(SPREAD, "[1.0, 2.0, 3.0], correction=1", "1.0")
def std(
    x: "Tensor", /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False
) -> "Tensor":
    """The standard deviation over axes, sqrt(var(x)); its derivative where it is 0 is 0."""
    x, dtype = widen_argument("std", x)
    spread = var(x, axis=axis, correction=correction, keepdims=keepdims)
    flat = spread == 0
    return cast(choose(flat, 0.0, cards.sqrt(choose(flat, 1.0, spread))), real_dtype(dtype))


@takes_names_of_pytorch
def logsumexp(x: "Tensor", /, axis: Any = None, keepdims: bool = False) -> "Tensor":
    """The logarithm of the sum of exponentials over axes, without overflow on the way.
    m + log(sum(exp(x - m))) with m = max(x)

    Shapes: x (...) -> without the axes, or with 1 there.
    Dtypes: floating, kept; integers and booleans become float32.
    Raises: DTypeError for complex values.
    Source: SciPy.
    Example:
        >>> logsumexp([1000.0, 1000.0]).tolist()
        1000.6931762695312
    """
    x, dtype = widen_argument("logsumexp", x)
    elementwise.check_real("logsumexp", x)
    axes = check_axes("logsumexp", axis, x.ndim)
    shape = kept_shape(x.shape, axes)
    top = full(shape, 0, x.dtype)
    if 0 not in x.shape:
        top = reshape(reductions.max_(x, axes=axes), shape)
        top = choose(is_infinite(top), 0.0, top)  # exp of ±∞ itself is right; ∞ - ∞ is not
    total = reductions.sum_(cards.exp(x - broadcast_to(top, x.shape)), axes=axes)
    nothing = total == 0  # all are -∞: the derivative is 0, not 0 · ∞
    out = choose(nothing, -math.inf, cards.log(choose(nothing, 1.0, total)))
    out = out + reshape(top, total.shape)
    return cast(reshape(out, shape) if keepdims else out, dtype)


def along(
    where: str, x: ArrayLike, axis: int | Sequence[int] | None, dtype: DTypeLike | None
) -> "tuple[Tensor, int]":
    x = as_value(x, where=where)
    if axis is None and x.ndim != 1:
        raise ShapeError(where, f"an axis for {x.ndim} axes", f"None for {x.shape}", "Name one.")
    return cast(x, summed_dtype(where, x.dtype, dtype)), check_axis(where, axis or 0, x.ndim)


def with_first(x: "Tensor", axis: int, value: Any) -> "Tensor":
    return movement.pad(x, widths=tuple((int(i == axis), 0, 0) for i in range(x.ndim)), value=value)


def cumulative(name: str, scan: Any, first: int, about: str, result: Any) -> Any:
    def function(x, /, axis=None, *, dtype=None, include_initial: bool = False):
        x, axis = along(name, x, axis, dtype)
        out = scan(x, axis)
        return with_first(out, axis, first) if include_initial else out

    about = f"{about}; {first}, that of none, comes in front if include_initial."
    shapes = "x (..., n, ...) -> (..., n, ...), or n + 1"
    errors = "ShapeError without an axis unless x has just one"
    example = f"{name}([1, 2, 3]).tolist()"
    return elementwise.named(function, name, about, shapes, SUMMED, errors, example, result)


cumulative_sum: Any = cumulative(
    "cumulative_sum",
    lambda x, axis: reductions.cumsum(x, axis=axis, reverse=False),
    0,
    "Running sums along an axis, y[i] = x[0] + … + x[i]",
    [1, 3, 6],
)
cumulative_prod: Any = cumulative(
    "cumulative_prod",
    rounded_once(reductions.scan_prod),
    1,
    "Running products along an axis, y[i] = x[0] · … · x[i], in log2(n) passes",
    [1, 2, 6],
)


@takes_names_of_pytorch
def diff(
    x: ArrayLike, /, n: int = 1, axis: int = -1, *, prepend: Any = None, append: Any = None
) -> "Tensor":
    """The n-th differences of neighbours along an axis; of booleans, where they change.
    y[i] = x[i + 1] - x[i], n times

    Shapes: x (..., m, ...) -> (..., m - n, ...), m counting `prepend` and `append`.
    Dtypes: any, promoted with those of `prepend` and `append`.
    Raises: OptionError for negative n, ShapeError for an axis out of range.
    Source: standard.
    Example:
        >>> diff([1, 4, 9, 16], n=2).tolist()
        [2, 2]
    """
    x = as_value(x, where="diff")
    axis = check_axis("diff", axis, x.ndim)
    if n < 0:
        raise OptionError("diff", "n of 0 or more", n, "Use 1 for first differences.")
    if not n:
        return x
    pieces = [piece(p, x, axis) for p in (prepend, x, append) if p is not None]
    if len(pieces) > 1:
        dtype = values.common_dtype("diff", pieces)
        x = movement.concatenate(*(cast(p, dtype) for p in pieces), axis=axis)
    for _ in range(n):
        later, earlier = shifted(x, axis, 1), shifted(x, axis, -1)
        x = later ^ earlier if x.dtype is dtypes.bool_ else later - earlier
    return x


def piece(p: ArrayLike, x: "Tensor", axis: int) -> "Tensor":
    """`p` as values to put before or after x along `axis`; a scalar gets size 1 there."""
    p = as_value(p, where="diff")
    return p if p.ndim else broadcast_to(p, kept_shape(x.shape, (axis,)))


def shifted(x: "Tensor", axis: int, by: int) -> "Tensor":
    size = x.shape[axis]
    one = int(size > 0)
    return movement.section(x, axis, *((one, size) if by > 0 else (0, size - one)))
