"""Functions of jax.numpy of numbers, statistics and polynomials, where `gh` has none or another."""

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.base import check_axis
from glasshouse.dispatch import Value, as_value
from glasshouse.jax import functions as g
from glasshouse.jax.numpy.arrays import cast, ravel
from glasshouse.tensor import Tensor

__all__ = ["amax", "amin", "average", "bincount", "bitwise_count", "cbrt", "clip",
           "corrcoef", "count_nonzero", "cov", "cumprod", "cumsum", "divmod",
           "euler_gamma", "fabs", "heaviside", "max", "mean", "median", "min", "modf",
           "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
           "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd",
           "nansum", "nanvar", "percentile", "power", "prod", "ptp", "quantile",
           "rint", "sinc", "spacing", "std", "sum", "var"]  # fmt: skip

euler_gamma: float = 0.57721566490153286  # of Euler and Mascheroni


def as_float(x: Any) -> Tensor:
    """A tensor of floating numbers: integers become float32."""
    x = as_value(x)
    return x if x.dtype.is_inexact else cast(x, "float32")


def fabs(x: Any) -> Tensor:
    """The absolute value, as a floating number."""
    return g.abs(as_float(x))


def rint(x: Any) -> Tensor:
    """The nearest integer, halves to even, as a floating number."""
    return g.round(as_float(x))


def power(x1: Any, x2: Any) -> Tensor:
    """x1 to the power x2."""
    return g.pow(x1 if isinstance(x1, Value) else as_value(x1), x2)


def cbrt(x: Any) -> Tensor:
    """The real cube root."""
    x = as_float(x)
    y = g.pow(g.abs(x), 1 / 3)
    # One step of Newton's method brings it within rounding.
    near = g.where((y == 0) | ~g.isfinite(y), y, y - (y - g.abs(x) / (y * y)) / 3)
    return g.copysign(near, x)


def divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """(the quotient rounded down, the remainder)."""
    x, y = as_value(x1), as_value(x2)
    return g.floor_divide(x, y), g.remainder(x, y)


def modf(x: Any) -> tuple[Tensor, Tensor]:
    """(the fraction, the whole part), both with the sign of x."""
    x = as_float(x)
    whole = g.trunc(x)
    rest = g.where(g.isinf(x), 0.0, x - whole)
    return g.copysign(rest, x), whole


def heaviside(x1: Any, x2: Any) -> Tensor:
    """0 below zero, x2 at zero, 1 above."""
    x, y = as_float(x1), as_float(x2)
    return g.where(x < 0, 0.0, g.where(x > 0, 1.0, y))


def sinc(x: Any) -> Tensor:
    """sin(pi x) / (pi x), and 1 at zero."""
    x = as_float(x) * math.pi
    is_zero = x == 0
    safe = g.where(is_zero, 1.0, x)
    return g.where(is_zero, 1.0, g.sin(safe) / safe)


def spacing(x: Any) -> Tensor:
    """The distance to the next number away from zero."""
    x = as_float(x)
    return g.copysign(g.nextafter(g.abs(x), as_value(math.inf)) - g.abs(x), x)


def bitwise_count(x: Any) -> Tensor:
    """The number of ones among the bits of |x|."""
    x = as_value(x)
    words = cast(g.abs(x), "int64")
    count = words * 0
    for i in range(8 * x.dtype.itemsize):
        count = count + ((words >> i) & 1)
    return cast(count, "uint8")


def clip(arr: Any = None, min: Any = None, max: Any = None, **old: Any) -> Tensor:
    """arr held within min and max."""
    x = as_value(arr)
    x = x if min is None else g.maximum(x, min)
    return x if max is None else g.minimum(x, max)


# -- reductions ------------------------------------------------------------------------------------


def reduction(name: str, compute: Callable[..., Any], about: str) -> Any:
    """A function of NumPy's arguments: axis, dtype, keepdims, initial, where."""

    def function(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
        **options: Any,
    ) -> Tensor:
        x = as_value(a) if dtype is None else cast(as_value(a), dtype)
        if where is not None:
            x = g.where(as_value(where), x, as_value(NEUTRAL[name](x), x.dtype))
        result = compute(x, axis=axis, keepdims=keepdims)
        return result if initial is None else JOIN[name](result, as_value(initial, result.dtype))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {about} over an axis, several, or all; of those that `where` names."
    return function


def lowest(x: Tensor) -> Any:
    return -math.inf if x.dtype.is_inexact else np.iinfo(x.dtype.np).min


def highest(x: Tensor) -> Any:
    return math.inf if x.dtype.is_inexact else np.iinfo(x.dtype.np).max


NEUTRAL: dict[str, Callable[..., Any]] = {"sum": lambda x: 0, "prod": lambda x: 1, "max": lowest}
NEUTRAL |= {"min": highest, "amax": lowest, "amin": highest}
JOIN = {"sum": g.add, "prod": g.multiply, "max": g.maximum, "min": g.minimum}
JOIN |= {"amax": g.maximum, "amin": g.minimum}


def whole(x: Tensor, compute: Callable[..., Any], **options: Any) -> Tensor:
    """A reduction of booleans as numbers."""
    return compute(cast(x, "int32") if x.dtype.is_bool else x, **options)


sum: Any = reduction("sum", lambda x, **o: whole(x, g.sum, **o), "sum")
prod: Any = reduction("prod", lambda x, **o: whole(x, g.prod, **o), "product")


def extreme(name: str, compute: Callable[..., Any], about: str) -> Any:
    """A maximum or minimum, with NumPy's arguments in their order."""
    inner = reduction(name, compute, about)

    def function(
        a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None,
    ) -> Tensor:  # fmt: skip
        return inner(a, axis, keepdims=keepdims, initial=initial, where=where)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = inner.__doc__
    return function


max: Any = extreme("max", lambda x, **o: g.max(x, **o), "largest element")
min: Any = extreme("min", lambda x, **o: g.min(x, **o), "smallest element")
amax: Any = max
amin: Any = min


def counted(x: Tensor, axis: Any, keepdims: bool, where: Any) -> Any:
    """How many elements count over the axes."""
    if where is None:
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        return math.prod(x.shape[i] for i in axes)
    flags = g.broadcast_to(as_value(where), x.shape)
    return g.sum(cast(flags, x.dtype), axis=axis, keepdims=keepdims)


def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Tensor:
    """The mean over an axis, several, or all; of the elements that `where` names."""
    x = as_float(a) if dtype is None else cast(as_value(a), dtype)
    return sum(x, axis, keepdims=keepdims, where=where) / counted(x, axis, keepdims, where)


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Tensor:
    """The mean square of the distances to the mean; the sum is divided by the count less `ddof`."""
    x = as_float(a) if dtype is None else cast(as_value(a), dtype)
    count = counted(x, axis, keepdims, where)
    centre = MEAN(x, axis, keepdims=True, where=where) if mean is None else mean
    distance = g.abs(x - centre)
    total = sum(distance * distance, axis, keepdims=keepdims, where=where)
    return total / (count - (ddof if correction is None else correction))


MEAN = mean


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    keepdims: bool = False, **options: Any,
) -> Tensor:  # fmt: skip
    """The square root of `var`."""
    return g.sqrt(var(a, axis, dtype, out, ddof, keepdims, **options))


def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
    """The distance between the largest element and the smallest."""
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The number of elements that are not zero."""
    flags = g.not_equal(as_value(a), 0) if not as_value(a).dtype.is_bool else as_value(a)
    return g.sum(cast(flags, "int32"), axis=axis, keepdims=keepdims)


def cumulated(name: str, compute: Callable[..., Any], about: str) -> Any:
    """A running sum or product; along all elements without an axis."""

    def function(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
        x = ravel(a) if axis is None else as_value(a)
        x = x if dtype is None else cast(x, dtype)
        return compute(x, axis=0 if axis is None else axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The running {about} along an axis; along all elements without one."
    return function


cumsum: Any = cumulated("cumsum", lambda x, axis: g.cumulative_sum(x, axis=axis), "sum")
cumprod: Any = cumulated("cumprod", lambda x, axis: g.cumulative_prod(x, axis=axis), "product")


def filled(x: Any, value: Any) -> Tensor:
    """x with a value in place of NaNs."""
    x = as_value(x)
    return g.where(g.isnan(x), as_value(value, x.dtype), x) if x.dtype.is_inexact else x


def missing(x: Any) -> Tensor:
    x = as_value(x)
    return g.isnan(x) if x.dtype.is_inexact else g.zeros(x.shape, dtype="bool")


def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
) -> Tensor:
    """The sum of the numbers among the elements."""
    return sum(filled(a, 0), axis, dtype, keepdims=keepdims)


def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
) -> Tensor:
    """The product of the numbers among the elements."""
    return prod(filled(a, 1), axis, dtype, keepdims=keepdims)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
    """The running sum of the numbers among the elements."""
    return cumsum(filled(a, 0), axis, dtype)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
    """The running product of the numbers among the elements."""
    return cumprod(filled(a, 1), axis, dtype)


def nanmax(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
    """The largest number among the elements; NaN where there is none."""
    none = g.all(missing(a), axis=axis, keepdims=keepdims)
    result = max(filled(a, -math.inf), axis, keepdims=keepdims)
    return g.where(none, math.nan, result) if result.dtype.is_inexact else result


def nanmin(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
    """The smallest number among the elements; NaN where there is none."""
    none = g.all(missing(a), axis=axis, keepdims=keepdims)
    result = min(filled(a, math.inf), axis, keepdims=keepdims)
    return g.where(none, math.nan, result) if result.dtype.is_inexact else result


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
) -> Tensor:
    """The mean of the numbers among the elements."""
    return mean(filled(as_float(a), 0), axis, dtype, keepdims=keepdims, where=~missing(a))


def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """The variance of the numbers among the elements."""
    x = filled(as_float(a), 0)
    return var(x, axis, dtype, None, ddof, keepdims, where=~missing(a))


def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """The square root of `nanvar`."""
    return g.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims))


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Tensor:
    """The place of the largest number; -1 where there is none."""
    places = g.argmax(filled(a, -math.inf), axis=axis, keepdims=keepdims)
    return g.where(g.all(missing(a), axis=axis, keepdims=keepdims), -1, places)


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Tensor:
    """The place of the smallest number; -1 where there is none."""
    places = g.argmin(filled(a, math.inf), axis=axis, keepdims=keepdims)
    return g.where(g.all(missing(a), axis=axis, keepdims=keepdims), -1, places)


def gathered(x: Tensor, axis: Any) -> tuple[Tensor, tuple[int, ...]]:
    """(x with the axes of a reduction as one last axis, the sizes of the result with them)."""
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = sorted(check_axis("quantile", i, x.ndim) for i in axes)
    rest = [i for i in range(x.ndim) if i not in axes]
    turned = g.permute_dims(x, (*rest, *axes)) if x.ndim else x
    flat = g.reshape(turned, (*(x.shape[i] for i in rest), -1))
    return flat, tuple(1 if i in axes else n for i, n in enumerate(x.shape))


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    skips: bool = False,
) -> Tensor:
    """The elements below which a part q of all lies; `method` says how it goes between two.
    With `skips`, NaNs do not count."""
    q = as_value(q)
    rows, kept = gathered(as_float(a), axis)
    compute = g.nanquantile if skips else g.quantile
    result = compute(rows, ravel(q), axis=-1, interpolation=method)
    return g.reshape(result, (*q.shape, *(kept if keepdims else rows.shape[:-1])))


def percentile(a: Any, q: Any, axis: Any = None, *args: Any, **options: Any) -> Tensor:
    """As quantile, of q per cent."""
    return quantile(a, as_float(q) / 100.0, axis, *args, **options)


def nanquantile(a: Any, q: Any, axis: Any = None, *args: Any, **options: Any) -> Tensor:
    """As quantile, without NaNs."""
    return quantile(a, q, axis, *args, skips=True, **options)


def nanpercentile(a: Any, q: Any, axis: Any = None, *args: Any, **options: Any) -> Tensor:
    """As percentile, without NaNs."""
    return nanquantile(a, as_float(q) / 100.0, axis, *args, **options)


def median(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Tensor:
    """The middle element, or the mean of both."""
    return quantile(a, 0.5, axis, keepdims=keepdims)


def nanmedian(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Tensor:
    """The middle of the numbers among the elements."""
    return nanquantile(a, 0.5, axis, keepdims=keepdims)


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """The weighted mean; with `returned` also the sum of the weights."""
    x = as_float(a)
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        total = g.broadcast_to(as_value(x.size / result.size, x.dtype), result.shape)
    else:
        w = as_float(weights)
        if w.shape != x.shape:
            place = check_axis("average", axis, x.ndim)
            w = g.reshape(w, tuple(n if i == place else 1 for i, n in enumerate(x.shape)))
        w = g.broadcast_to(w, x.shape)
        total = sum(w, axis, keepdims=keepdims)
        result = sum(x * w, axis, keepdims=keepdims) / total
    return (result, total) if returned else result


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Tensor:  # fmt: skip
    """The covariances of the rows (columns without `rowvar`)."""
    rows = observed(m, rowvar)
    if y is not None:
        rows = g.concat([rows, observed(y, rowvar)], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None if fweights is None else as_float(fweights)
    if aweights is not None:
        weights = as_float(aweights) if weights is None else weights * as_float(aweights)
    if weights is None:
        rows = rows - mean(rows, 1, keepdims=True)
        result = rows @ g.conj(rows.mT) / (rows.shape[1] - ddof)
    else:
        total = sum(weights)
        rows = rows - sum(rows * weights, 1, keepdims=True) / total
        less = ddof if aweights is None else ddof * sum(weights * as_float(aweights)) / total
        result = (rows * weights) @ g.conj(rows.mT) / (total - less)
    return g.squeeze(result, axis=(0, 1)) if result.shape == (1, 1) else result


def observed(x: Any, rowvar: bool) -> Tensor:
    x = as_float(x)
    x = g.reshape(x, (1, *x.shape)) if x.ndim < 2 else x
    return x if rowvar or x.shape[0] == 1 else x.mT


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Tensor:
    """The correlations of the rows (columns without `rowvar`)."""
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    scale = g.sqrt(g.diagonal(c))
    return g.clip(c / scale[:, None] / scale[None, :], -1.0, 1.0)


# -- counts ----------------------------------------------------------------------------------------


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None
) -> Tensor:
    """How often each number occurs, or the sum of its weights. With `length` contents need not be
    known."""
    x = as_value(x)
    size = (
        length
        if length is not None
        else builtins.max(minlength, int(x.numpy().max(initial=-1)) + 1)
    )
    ones = g.ones(x.shape, dtype="int32") if weights is None else as_value(weights)
    inside = (x >= 0) & (x < size)
    ones = g.where(inside, ones, as_value(0, ones.dtype))
    return g.zeros(size, dtype=ones.dtype).at[g.where(inside, x, 0)].add(ones)
