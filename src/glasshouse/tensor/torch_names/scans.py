"""Scans along an axis: running extremes, running logarithms of sums, integrals, differences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base import OptionError, ShapeError, check_axis, int64
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, full
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops import elementwise as cards
from glasshouse.ops import movement
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota
from glasshouse.ops.index import gather_along
from glasshouse.ops.movement import section
from glasshouse.tensor.standard import elementwise, reduce
from glasshouse.tensor.standard.elementary import is_nan

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["cummax", "cummin", "cumulative_trapezoid", "gradient", "logcumsumexp",
           "trapezoid"]  # fmt: skip


class CumMax(NamedTuple):
    """The largest element so far, and where."""

    values: "Tensor"
    indices: "Tensor"


class CumMin(NamedTuple):
    """The smallest element so far, and where."""

    values: "Tensor"
    indices: "Tensor"


def scan(x: "Tensor", axis: int, join: Any) -> "Tensor":
    """y[i] = x[0] joined with … x[i], in log2(n) doubling steps.

    Source: Hillis & Steele 1986, Data parallel algorithms.
    """
    step, size = 1, x.shape[axis]
    while step < size:
        late, early = section(x, axis, step, size), section(x, axis, 0, size - step)
        x = movement.concatenate(section(x, axis, 0, step), join(early, late), axis=axis)
        step *= 2
    return x


def line(where_: str, x: ArrayLike, axis: int) -> "tuple[Tensor, int]":
    x = as_value(x, where=where_)
    return x, check_axis(where_, axis, max(x.ndim, 1))


def extreme_so_far(name: str, kind: Any, join: Any, about: str) -> Any:
    def function(x, axis: int):
        x, axis = line(name, x, axis)
        elementwise.check_real(name, x)
        if not x.size or not x.ndim:
            return kind(x, full(x.shape, 0, int64))
        data = x.detach()
        data = cast(data, int64) if data.dtype.is_bool else data
        best = scan(data, axis, join)
        shape = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
        at = broadcast_to(place_along(shape, axis), x.shape)
        records = where((data == best) | is_nan(data), at, full(x.shape, 0, int64))
        indices = scan(records, axis, cards.maximum)
        return kind(gather_along(x, indices, axis), indices)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""(values, indices): {about} so far along an axis, and where it is
    last; NaN from the first one on.

    Shapes: (..., n, ...) -> (..., n, ...), (..., n, ...).
    Raises: DTypeError for complex values, ShapeError for an axis out of range.
    Source: PyTorch.
    Example:
        >>> {name}(as_value([1, 3, 3]), 0).indices.tolist()
        {[0, 1, 2] if name == "cummax" else [0, 0, 0]}
    """
    return composed(function)


def place_along(shape: Any, axis: int) -> "Tensor":
    return movement.reshape(iota(size=shape[axis], dtype=int64), shape=shape)


cummax: Any = extreme_so_far("cummax", CumMax, cards.maximum, "the largest element")
cummin: Any = extreme_so_far("cummin", CumMin, cards.minimum, "the smallest element")


@composed
@rounded_once
def logcumsumexp(x: Any, axis: int) -> Any:
    """The logarithms of running sums of exponentials along an axis, without overflow on the way.
    y[i] = log(e^x[0] + … + e^x[i])

    Shapes: (..., n, ...) -> (..., n, ...).
    Dtypes: floating, kept; integers become float32.
    Raises: DTypeError for complex values.
    Source: PyTorch.
    """
    x, axis = line("logcumsumexp", x, axis)
    (x,) = elementwise.floats("logcumsumexp", x)
    return scan(x, axis, elementwise.logaddexp) if x.ndim else x


def widths(where_: str, y: "Tensor", x: ArrayLike, dx: float, axis: int) -> "Tensor":
    """The distances between neighbours along the axis, as they multiply y's neighbours."""
    if x is None:
        return dx
    x = as_value(x, where=where_)
    steps = reduce.diff(x, axis=-1 if x.ndim == 1 else axis)
    if x.ndim == 1:
        return steps.reshape((-1, *(1,) * (y.ndim - 1 - axis)))
    return steps


def trapezoids(where_: str, y: "Tensor", x: Any, dx: float, axis: int) -> "tuple[Tensor, int]":
    y, axis = line(where_, y, axis)
    if not y.ndim:
        raise ShapeError(where_, "an axis or more", y.shape, "Reshape it.")
    n = y.shape[axis]
    pairs = section(y, axis, min(1, n), n) + section(y, axis, 0, max(n - 1, 0))
    return pairs * widths(where_, y, x, dx, axis) / 2, axis


@composed
@rounded_once
def trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral of y along an axis by the trapezoidal rule, at points x, or dx apart.
    Σ (y[i] + y[i + 1]) / 2 · (x[i + 1] - x[i])

    Shapes: y (..., n, ...), x (n,) or as y -> (..., ...).
    Raises: ShapeError.
    Source: NumPy, PyTorch.
    Example:
        >>> trapezoid(as_value([1.0, 2.0, 3.0])).item()
        4.0
    """
    areas, axis = trapezoids("trapezoid", y, x, dx, axis)
    return reduce.sum(areas, axis=axis)


@composed
@rounded_once
def cumulative_trapezoid(
    y: "Tensor", x: "Tensor | None" = None, *, dx: float = 1.0, axis: int = -1
) -> "Tensor":
    """The integral of y from its first point to each later one, by the trapezoidal rule.

    Shapes: y (..., n, ...), x (n,) or as y -> (..., n - 1, ...).
    Raises: ShapeError.
    Source: PyTorch.
    """
    areas, axis = trapezoids("cumulative_trapezoid", y, x, dx, axis)
    return reduce.cumulative_sum(areas, axis=axis)


@composed
@rounded_once
def gradient(
    x: ArrayLike,
    *,
    spacing: float = 1.0,
    axis: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> Any:
    """The slope of x along each axis: by central differences inside, by one-sided ones at the ends,
    which are exact for straight lines, or with edge_order 2 for parabolas. `spacing` is a distance,
    one for each axis, or the coordinates along each.

    Shapes: (...) -> (...), a tuple of one for each axis.
    Raises: OptionError for another edge_order, ShapeError for an axis that is too short.
    Source: NumPy; Fornberg 1988, Generation of finite difference formulas on arbitrarily spaced
        grids.
    """
    x = as_value(x, where="gradient")
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [check_axis("gradient", i, x.ndim) for i in axes]
    spacing = 1.0 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    if edge_order not in (1, 2):
        raise OptionError("gradient", "edge_order 1 or 2", edge_order, "Use 1.")
    if len(spacings) != len(axes):
        raise ShapeError("gradient", "a spacing for each axis", len(spacings), "Give as many.")
    return tuple(slope(x, i, step, edge_order) for i, step in zip(axes, spacings, strict=True))


def slope(x: "Tensor", axis: int, spacing: Any, edge_order: int) -> "Tensor":
    n = x.shape[axis]
    if n <= edge_order:
        expected = f"{edge_order + 1} elements or more along axis {axis}"
        raise ShapeError("gradient", expected, x.shape, "Leave that axis out.")
    x = cast(x, elementwise.inexact_dtype(x.dtype))
    steps = spacing
    if getattr(spacing, "ndim", 0):  # coordinates
        steps = reduce.diff(spacing).reshape((-1, *(1,) * (x.ndim - 1 - axis)))
    else:
        steps = full((n - 1, *(1,) * (x.ndim - 1 - axis)), 1, x.dtype) * spacing
    at = steps.ndim - 1 - (x.ndim - 1 - axis)
    rises = reduce.diff(x, axis=axis) / steps  # between neighbours
    first, last = section(rises, axis, 0, 1), section(rises, axis, n - 2, n - 1)
    if n == 2:
        return movement.concatenate(first, last, axis=axis)
    before, after = section(rises, axis, 0, n - 2), section(rises, axis, 1, n - 1)
    left, right = section(steps, at, 0, n - 2), section(steps, at, 1, n - 1)
    inside = (before * right + after * left) / (left + right)
    if edge_order == 2:
        bend = (after - before) / (left + right)
        first = first - section(bend, axis, 0, 1) * section(steps, at, 0, 1)
        last = last + section(bend, axis, n - 3, n - 2) * section(steps, at, n - 2, n - 1)
    return movement.concatenate(first, inside, last, axis=axis)
