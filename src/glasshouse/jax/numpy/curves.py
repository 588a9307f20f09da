"""Functions of jax.numpy of curves, counts, products and polynomials, where `gh` has none or
another."""

import builtins
import math
from typing import Any

import numpy as np

from glasshouse.base import check_axis
from glasshouse.dispatch import Value, as_value
from glasshouse.jax import functions as g
from glasshouse.jax.numpy import numbers
from glasshouse.jax.numpy.arrays import cast, ravel
from glasshouse.jax.numpy.numbers import as_float
from glasshouse.tensor import Tensor

__all__ = ["convolve", "correlate", "cross", "diff", "digitize", "dot", "ediff1d",
           "gradient", "histogram", "histogram2d", "histogramdd", "inner", "interp",
           "isin", "linspace", "logspace", "matvec", "outer", "pad", "poly",
           "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul",
           "polysub", "polyval", "searchsorted", "tensordot", "trapezoid", "unwrap",
           "vander", "vdot", "vecmat"]  # fmt: skip


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """Numbers with equal distances; with `retstep` also the distance."""
    low, high = as_float(start), as_float(stop)
    count = num - 1 if endpoint else num
    step = (high - low) / count if count else (high - low) * math.nan
    parts = g.reshape(g.arange(num, dtype=low.dtype), (num, *(1,) * (low - high).ndim))
    parts = parts / max(count, 1)
    result = low * (1 - parts) + high * parts
    result = (
        g.moveaxis(result, 0, axis) if dtype is None else cast(g.moveaxis(result, 0, axis), dtype)
    )
    return (result, step) if retstep else result


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Tensor:  # fmt: skip
    """The powers of `base` to numbers with equal distances."""
    result = g.pow(as_float(base), linspace(start, stop, num, endpoint, axis=axis))
    return result if dtype is None else cast(result, dtype)


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Tensor:
    """Where each element of v belongs in the sorted a."""
    return g.searchsorted(as_value(a), as_value(v), side=side, sorter=sorter)


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Tensor:
    """The number of the bin of each element, between edges that rise or fall."""
    edges = as_value(bins)
    side = "left" if right else "right"
    rising = g.searchsorted(edges, as_value(x), side=side)
    falling = edges.shape[0] - g.searchsorted(g.flip(edges), as_value(x), side=side)
    return g.where(edges[-1] >= edges[0], rising, falling) if edges.size else rising


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Tensor:
    """The piecewise linear curve through (xp, fp) at x; `left` and `right` beyond its ends."""
    x, xp, fp = as_float(x), as_float(xp), as_float(fp)
    if period is not None:
        x, xp = g.remainder(x, period), g.remainder(xp, period)
        order = g.argsort(xp)
        xp, fp = g.take(xp, order, axis=0), g.take(fp, order, axis=0)
        xp = g.concat([xp[-1:] - period, xp, xp[:1] + period])
        fp = g.concat([fp[-1:], fp, fp[:1]])
    at = g.clip(g.searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    x0, x1 = g.take(xp, at - 1, axis=0), g.take(xp, at, axis=0)
    f0, f1 = g.take(fp, at - 1, axis=0), g.take(fp, at, axis=0)
    width = x1 - x0
    slope = g.where(width == 0, 0.0, (f1 - f0) / g.where(width == 0, 1.0, width))
    result = f0 + slope * (x - x0)
    if period is None:
        result = g.where(x < xp[0], fp[0] if left is None else left, result)
        result = g.where(x > xp[-1], fp[-1] if right is None else right, result)
    return result


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """The integral of a curve, by trapezoids along an axis."""
    return g.trapezoid(as_float(y), None if x is None else as_float(x), dx=dx, axis=axis)


def gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: Any = None) -> Any:
    """The slopes along each axis, by differences: of both neighbours, at ends of one."""
    x = as_float(f)
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else [axis]
    steps = list(spacing) if len(spacing) > 1 else list(spacing or [1.0]) * len(list(axes))
    slopes = []
    for place, step in zip(axes, steps, strict=True):
        rows = g.moveaxis(x, place, 0)
        if np.ndim(step) == 0:
            inner = (rows[2:] - rows[:-2]) / 2 / step
            first, last = (rows[1:2] - rows[:1]) / step, (rows[-1:] - rows[-2:-1]) / step
        else:
            gaps = as_float(step)[1:] - as_float(step)[:-1]
            gaps = g.reshape(gaps, (-1, *(1,) * (rows.ndim - 1)))
            a, b = gaps[:-1], gaps[1:]
            inner = (a * a * rows[2:] + (b * b - a * a) * rows[1:-1] - b * b * rows[:-2]) / (
                a * b * (a + b)
            )
            first = (rows[1:2] - rows[:1]) / gaps[:1]
            last = (rows[-1:] - rows[-2:-1]) / gaps[-1:]
        slopes.append(g.moveaxis(g.concat([first, inner, last], axis=0), 0, place))
    is_single = len(slopes) == 1 and (x.ndim == 1 or axis is not None and np.ndim(axis) == 0)
    return slopes[0] if is_single else slopes


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The n-th differences along an axis."""
    x = as_value(a)
    before, after = (None if end is None else cast(end, x.dtype) for end in (prepend, append))
    return g.diff(x, n, axis, prepend=before, append=after)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """The differences of consecutive elements, between `to_begin` and `to_end`."""
    x = ravel(ary)
    parts = [x[1:] - x[:-1]]
    parts = parts if to_begin is None else [cast(ravel(to_begin), x.dtype), *parts]
    return g.concat(parts if to_end is None else [*parts, cast(ravel(to_end), x.dtype)])


def convolve(a: Any, v: Any, mode: str = "full", **options: Any) -> Tensor:
    """The convolution of two vectors: whole, as long as the longer, or where both lie inside."""
    x, y = as_float(a), as_float(v)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    n, m = x.shape[0], y.shape[0]
    padded = g.concat([g.zeros(m - 1, dtype=x.dtype), x, g.zeros(m - 1, dtype=x.dtype)])
    windows = g.take(padded, np.arange(n + m - 1)[:, None] + np.arange(m)[::-1], axis=0)
    whole = windows @ y
    low = {"full": 0, "same": (m - 1) // 2, "valid": m - 1}[mode]
    size = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    return whole[low : low + size]


def correlate(a: Any, v: Any, mode: str = "valid", **options: Any) -> Tensor:
    """The correlation of two vectors: the convolution with the second turned round."""
    x, y = as_float(a), g.conj(as_float(v))
    if x.shape[0] < y.shape[0]:
        return g.flip(convolve(g.flip(x), y, mode))
    return convolve(x, g.flip(y), mode)


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * math.pi) -> Tensor:
    """Angles without jumps of more than half a period."""
    x = as_float(p)
    step = diff(x, axis=axis)
    half = period / 2
    moved = g.remainder(step + half, period) - half
    moved = g.where((moved == -half) & (step > 0), half, moved)
    jump = g.where(g.abs(step) < (half if discont is None else discont), 0.0, moved - step)
    axis = check_axis("unwrap", axis, x.ndim)
    first = (*(slice(None),) * axis, slice(0, 1))
    rest = (*(slice(None),) * axis, slice(1, None))
    return g.concat([x[first], x[rest] + numbers.cumsum(jump, axis)], axis=axis)


def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    **options: Any,
) -> Tensor:
    """Whether each element is among the others."""
    return g.isin(as_value(element), as_value(test_elements), invert=invert)


# -- counts ----------------------------------------------------------------------------------------


def edges_for(x: Tensor, bins: Any, range_: Any) -> Tensor:
    """The edges of bins: given, or so many between the ends of the data."""
    if np.ndim(bins) == 1 or isinstance(bins, Value) and bins.ndim == 1:
        return as_float(bins)
    low, high = (numbers.min(x), numbers.max(x)) if range_ is None else map(as_float, range_)
    is_flat = low == high
    low, high = g.where(is_flat, low - 0.5, low), g.where(is_flat, high + 0.5, high)
    return linspace(low, high, int(bins) + 1)


def bin_of(x: Tensor, edges: Tensor) -> Tensor:
    """The number of the bin of each element; -1 outside of all."""
    place = g.searchsorted(edges, x, side="right") - 1
    place = g.where(x == edges[-1], edges.shape[0] - 2, place)
    return g.where((x < edges[0]) | (x > edges[-1]) | g.isnan(x), -1, place)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Tensor, Tensor]:
    """(how many elements lie in each bin, the edges of the bins)."""
    x = as_float(ravel(a))
    edges = edges_for(x, bins, range)
    weights = None if weights is None else ravel(weights)
    counts = as_float(numbers.bincount(bin_of(x, edges), weights, length=edges.shape[0] - 1))
    if density:
        counts = counts / diff(edges) / numbers.sum(counts)
    return counts, edges


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None,
    density: bool | None = None,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """(how many rows lie in each bin of several axes, the edges on each axis)."""
    x = as_float(sample)
    x = g.stack(list(sample), axis=1) if isinstance(sample, (list, tuple)) else x
    axes = x.shape[1]
    bins = list(bins) if isinstance(bins, (list, tuple)) else [bins] * axes
    ranges = [None] * axes if range is None else list(range)
    columns = [x[:, i] for i in builtins.range(axes)]
    edges = [edges_for(c, b, r) for c, b, r in zip(columns, bins, ranges, strict=True)]
    places = [bin_of(c, e) for c, e in zip(columns, edges, strict=True)]
    shape = tuple(e.shape[0] - 1 for e in edges)
    flat, outside = places[0] * 0, places[0] < 0
    for place, size in zip(places, shape, strict=True):
        flat, outside = flat * size + place, outside | (place < 0)
    flat = g.where(outside, -1, flat)
    counts = g.reshape(numbers.bincount(flat, weights, length=math.prod(shape)), shape)
    if density:
        total = numbers.sum(counts)
        for i, e in enumerate(edges):
            counts = counts / g.reshape(
                diff(e), tuple(-1 if k == i else 1 for k in builtins.range(axes))
            )
        counts = counts / total
    return counts, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None,
    density: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(how many pairs lie in each bin of a plane, the edges of x, the edges of y)."""
    counts, (first, second) = histogramdd([as_float(x), as_float(y)], bins, range, weights, density)
    return counts, first, second


# -- products --------------------------------------------------------------------------------------


def dot(a: Any, b: Any, **options: Any) -> Tensor:
    """The sum of products over the last axis of a and the last but one of b."""
    x, y = as_value(a), as_value(b)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return g.tensordot(x, y, axes=((x.ndim - 1,), (max(y.ndim - 2, 0),)))


def inner(a: Any, b: Any, **options: Any) -> Tensor:
    """The sum of products over the last axes."""
    x, y = as_value(a), as_value(b)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return g.tensordot(x, y, axes=((x.ndim - 1,), (y.ndim - 1,)))


def outer(a: Any, b: Any, out: None = None) -> Tensor:
    """All products of the elements of a with those of b."""
    return g.outer(ravel(a), ravel(b))


def vdot(a: Any, b: Any, **options: Any) -> Tensor:
    """The sum of products of all elements, those of a conjugate."""
    return g.vecdot(ravel(a), ravel(b))


def tensordot(a: Any, b: Any, axes: Any = 2, **options: Any) -> Tensor:
    """The sum of products over pairs of axes."""
    return g.tensordot(as_value(a), as_value(b), axes=axes)


def matvec(x1: Any, x2: Any, /) -> Tensor:
    """Matrices times vectors."""
    return g.squeeze(as_value(x1) @ g.expand_dims(as_value(x2), axis=-1), axis=-1)


def vecmat(x1: Any, x2: Any, /) -> Tensor:
    """Vectors, conjugate, times matrices."""
    row = g.conj(g.expand_dims(as_value(x1), axis=-2))
    return g.squeeze(row @ as_value(x2), axis=-2)


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The vector product of vectors of three."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = g.moveaxis(as_value(a), axisa, -1), g.moveaxis(as_value(b), axisb, -1)
    return g.moveaxis(g.cross(x, y, axis=-1), -1, axisc)


# -- polynomials: coefficients of the highest power first ----------------------------------------


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Tensor:
    """A polynomial at x."""
    p, x = as_value(p), as_value(x)
    y = x * 0
    for i in range(p.shape[0]):
        y = y * x + p[i]
    return y


def levelled(a1: Any, a2: Any) -> tuple[Tensor, Tensor]:
    x, y = as_value(a1), as_value(a2)
    n = max(x.shape[0], y.shape[0])

    def longer(p):
        return g.concat([g.zeros(n - p.shape[0], dtype=p.dtype), p])

    return longer(x), longer(y)


def polyadd(a1: Any, a2: Any) -> Tensor:
    """The sum of two polynomials."""
    x, y = levelled(a1, a2)
    return x + y


def polysub(a1: Any, a2: Any) -> Tensor:
    """The difference of two polynomials."""
    x, y = levelled(a1, a2)
    return x - y


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Tensor:
    """The product of two polynomials."""
    return convolve(a1, a2)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Tensor, Tensor]:
    """(the quotient, the rest) of two polynomials."""
    rest, divisor = as_float(u), as_float(v)
    count = rest.shape[0] - divisor.shape[0] + 1
    factors = []
    for i in range(max(count, 0)):
        factor = rest[i] / divisor[0]
        factors.append(factor)
        rest = rest.at[i : i + divisor.shape[0]].add(-factor * divisor)
    quotient = g.stack(factors) if factors else g.zeros(1)
    return quotient, rest


def polyder(p: Any, m: int = 1) -> Tensor:
    """The m-th derivative of a polynomial."""
    p = as_float(p)
    for _ in range(m):
        n = p.shape[0] - 1
        p = p[:-1] * g.asarray(np.arange(n, 0, -1, dtype=np.float32))
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """The m-th integral of a polynomial, with constants k."""
    p = as_float(p)
    constants = g.broadcast_to(as_float(0.0 if k is None else k), (m,))
    for i in range(m):
        n = p.shape[0]
        p = g.concat([p / g.asarray(np.arange(n, 0, -1, dtype=np.float32)), constants[i : i + 1]])
    return p


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of x as columns, the highest first."""
    x = as_value(x)
    count = x.shape[0] if N is None else N
    powers = np.arange(count) if increasing else np.arange(count)[::-1]
    columns = [x ** int(k) if k else x * 0 + 1 for k in powers]
    return g.stack(columns, axis=1)


def polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Tensor:
    """The polynomial of degree `deg` nearest to points, in the sum of squares."""
    matrix, right = vander(as_float(x), deg + 1), as_float(y)
    if w is not None:
        matrix = matrix * g.expand_dims(as_float(w), axis=-1)
        right = right * (as_float(w) if right.ndim == 1 else g.expand_dims(as_float(w), axis=-1))
    return solve_least(matrix, right)


def solve_least(matrix: Tensor, right: Tensor) -> Tensor:
    """The solution of least squares, by a QR factorisation of scaled columns."""
    scale = g.sqrt(numbers.sum(matrix * matrix, 0))
    q, r = g.qr(matrix / scale)
    columns = right if right.ndim > 1 else g.expand_dims(right, axis=-1)
    solution = g.solve_triangular(r, q.mT @ columns, upper=True)
    solution = solution / g.expand_dims(scale, axis=-1)
    return solution if right.ndim > 1 else solution[:, 0]


def poly(seq_of_zeros: Any) -> Tensor:
    """The polynomial with these zeros, or with the eigenvalues of a matrix as zeros."""
    x = as_float(seq_of_zeros)
    if x.ndim == 2:
        return poly(g.eigvals(x))
    result = g.ones(1, dtype=x.dtype)
    for i in range(x.shape[0]):
        result = with_zero(result, x[i])
    return result


def with_zero(p: Tensor, zero: Tensor) -> Tensor:
    """p(x) (x - zero)."""
    one = g.zeros(1, dtype=p.dtype)
    return g.concat([p, one]) - zero * g.concat([one, p])


# -- borders ---------------------------------------------------------------------------------------


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Tensor:
    """array with borders, of NumPy's modes: constant, edge, reflect, symmetric, wrap, linear_ramp,
    maximum, mean, median, minimum, empty."""
    x = as_value(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    if mode == "constant":
        values = options.get("constant_values", 0)
        if np.ndim(values) == 0 and not isinstance(values, Value):
            values = as_value(values)
        if getattr(values, "ndim", 0) == 0:
            inside = g.zeros(
                tuple(n + int(a) + int(b) for n, (a, b) in zip(x.shape, widths)), dtype=x.dtype
            )
            keys = tuple(slice(int(a), int(a) + n) for n, (a, _) in zip(x.shape, widths))
            return (inside + cast(as_value(values), x.dtype)).at[keys].set(x)
    for axis, (low, high) in enumerate(widths):
        size = x.shape[axis]
        places = np.pad(np.arange(size), (int(low), int(high)), mode=mode, **options)
        x = g.take(x, places, axis=axis)
    return x
