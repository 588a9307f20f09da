"""Resizing along the last axes: every element of the result is a weighted sum of a few others.

Sizes are known when a call is made, so places and weights are tables: for each axis one of indices
(new size, taps) and one of weights. A call gathers and adds, one axis after the other."""

import math
from math import prod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import adopt, as_value, broadcast_to, cast, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import check_floating, int_tuple
from glasshouse.nn.functional.pool import adaptive_avg_pool
from glasshouse.ops.checks import check_option
from glasshouse.ops.index import gather
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard import reduce

NEAREST = ("nearest", "nearest-exact")
SPATIAL_AXES = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
MODES = (*NEAREST, "area", *SPATIAL_AXES)
FILTERED = ("bilinear", "bicubic")  # modes that antialias can go with
CUBIC = -0.75  # the slope of the cubic kernel at 1 …
CUBIC_ANTIALIAS = -0.5  # … and of the one that antialiases: both as PyTorch has them
MOST_UNROLLED = 4  # taps that are added one by one; more are a reduction


class Axis(NamedTuple):
    """One axis that is resized: its old and its new size, and the factor asked for or None."""

    size: int
    new: int
    factor: float | None = None

    def step(self, align_corners: bool) -> float:
        """How far apart two neighbours of the result lie in the input."""
        if align_corners:
            return (self.size - 1) / (self.new - 1) if self.new > 1 else 0.0
        return 1 / self.factor if self.factor else self.size / self.new

    def places(self, align_corners: bool) -> np.ndarray:
        """Where in the input the elements of the result lie."""
        to = np.arange(self.new)
        step = self.step(align_corners)
        return to * step if align_corners else (to + 0.5) * step - 0.5


@composed
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: Any = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Tensor:
    """The input resized to `size`, or by `scale_factor` (rounded down), along its spatial axes.

    Modes: "nearest" (the neighbour to the left), "nearest-exact", "linear" (1 axis), "bilinear" and
    "bicubic" (2), "trilinear" (3), "area" (means of bins). `align_corners` keeps the outermost
    elements in place. Elements are scale_factor apart, unless `recompute_scale_factor` has that
    reckoned from the sizes. `antialias` widens the kernel where the result is smaller.

    Shapes: (N, C, *S) with 1 to 3 spatial axes -> (N, C, *size).
    Raises: OptionError unless just one of size and scale_factor is given, or for options that do
        not go together; ShapeError for an input without spatial axes.
    Source: Keys 1981 (cubic convolution); places and kernels as in PyTorch.
    Example:
        >>> interpolate([[[1.0, 3.0]]], scale_factor=2, mode="linear").tolist()
        [[[1.0, 1.5, 2.5, 3.0]]]
    """
    where = "interpolate"
    check_option(where, "mode", mode, MODES)
    x = as_value(input, where=where) if mode in NEAREST else check_floating(where, input)
    n = x.ndim - 2
    if n not in SPATIAL_AXES.get(mode, (1, 2, 3)) or 0 in x.shape[2:]:
        layout: dict[Any, str] = {(1,): "(N, C, L)", (2,): "(N, C, H, W)", (3,): "(N, C, D, H, W)"}
        expected = layout.get(SPATIAL_AXES.get(mode), "(N, C, *S) with 1 to 3 spatial axes")
        expected = f"an input {expected} for mode {mode!r}, none of them empty"
        fix = "Add the axes that are missing, or choose another mode."
        raise ShapeError(where, expected, x.shape, fix)
    check_mode_options(mode, align_corners, antialias)
    sizes, factors = wanted_sizes(x.shape[2:], size, scale_factor, recompute_scale_factor, mode)
    if mode == "area":
        return adaptive_avg_pool(where, n, x, sizes)
    return resize(x, sizes, factors, mode, bool(align_corners), antialias)


def check_mode_options(mode: str, align_corners: bool | None, antialias: bool) -> None:
    if align_corners is not None and mode not in SPATIAL_AXES:
        expected = f"align_corners with one of {', '.join(SPATIAL_AXES)}"
        got = f"align_corners={align_corners} with mode={mode!r}"
        raise OptionError("interpolate", expected, got, "Leave align_corners out.")
    if antialias and mode not in FILTERED:
        expected = f"antialias with one of {', '.join(FILTERED)}"
        fix = "Change the mode."
        raise OptionError("interpolate", expected, f"antialias={antialias} with mode={mode!r}", fix)


def wanted_sizes(
    old: tuple[int, ...],
    size: Any,
    scale_factor: Any,
    recompute: Any,
    mode: str,
) -> Any:
    """(new sizes, factors or None for each) of the spatial axes of sizes `old`."""
    n = len(old)
    if (size is None) == (scale_factor is None):
        got = f"size={size} and scale_factor={scale_factor}"
        raise OptionError("interpolate", "one of size and scale_factor", got, "Pass one of them.")
    if size is not None:
        if recompute:
            expected = "recompute_scale_factor with a scale_factor"
            fix = "Leave recompute_scale_factor out."
            raise OptionError("interpolate", expected, f"size={size}", fix)
        return int_tuple("interpolate", "size", size, n, 1), (None,) * n
    factors = (scale_factor,) * n if isinstance(scale_factor, Real) else tuple(scale_factor)
    if len(factors) != n or not all(isinstance(f, Real) and float(f) > 0 for f in factors):
        expected = f"scale_factor to be a positive number, or {n} of them"
        raise OptionError("interpolate", expected, repr(scale_factor), "Change scale_factor.")
    sizes = tuple(math.floor(s * float(f)) for s, f in zip(old, factors, strict=True))
    if min(sizes) < 1:
        expected = f"sizes of 1 or more for axes of {tuple(old)}"
        fix = "Raise scale_factor."
        raise OptionError("interpolate", expected, f"scale_factor={scale_factor}", fix)
    whole = recompute or mode == "area"
    return sizes, (None,) * n if whole else tuple(map(float, factors))


@composed
def resize(
    x: Tensor,
    sizes: tuple[int, ...],
    factors: tuple[float, ...],
    mode: str,
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """x with its last axes resized: `interpolate` with checked arguments."""
    first = x.ndim - len(sizes)
    axes = [Axis(*a) for a in zip(x.shape[first:], sizes, factors, strict=True)]
    order = list(enumerate(axes, first))
    if prod(sizes) > prod(x.shape[first:]):
        order.reverse()  # the last axis first while there is little to read, rows of them later
    y = x if mode in NEAREST else widen(x)
    for place, axis in order:
        if mode in NEAREST:
            y = taken_along(y, place, axis, nearest_places(axis, mode, len(axes)))
        elif axis.new != axis.size or mode == "bicubic" or antialias:
            y = weighted_along(y, place, *taps(axis, mode == "bicubic", align_corners, antialias))
    return cast(y, x.dtype)


def nearest_places(axis: Axis, mode: str, spatial_ndim: int) -> np.ndarray:
    """The places read, reckoned in float32 as PyTorch does: rounding decides at the borders. In
    images it takes axes that stay, or double, as such, whatever the factor."""
    to = np.arange(axis.new, dtype=np.float32)
    if mode == "nearest" and spatial_ndim == 2 and axis.new in (axis.size, 2 * axis.size):
        return np.arange(axis.new) // (axis.new // axis.size)
    step = np.float32(axis.step(align_corners=False))
    place = to * step if mode == "nearest" else (to + np.float32(0.5)) * step
    return np.minimum(np.floor(place).astype(np.int64), axis.size - 1)


def taken_along(x: Tensor, place: int, axis: Axis, places: np.ndarray) -> Tensor:
    times = axis.new // axis.size
    if not np.array_equal(places, np.repeat(np.arange(axis.size), max(times, 1))):
        return gather(x, adopt(places), axis=place)
    lead, rest = x.shape[: place + 1], x.shape[place + 1 :]
    x = broadcast_to(reshape(x, (*lead, 1, *rest)), (*lead, times, *rest))
    return reshape(x, (*lead[:-1], axis.new, *rest))


def taps(axis: Axis, cubic: bool, align_corners: bool, antialias: bool) -> tuple[np.ndarray, ...]:
    """(indices, weights) of the elements that each place of the result sums."""
    if antialias:
        return filter_taps(axis, cubic, align_corners)
    place = axis.places(align_corners)
    if not cubic:
        place = np.maximum(place, 0.0)
    low = np.minimum(np.floor(place), axis.size - 1)
    part = np.clip(place - low, 0.0, 1.0)
    if cubic:
        offsets = np.arange(-1, 3)
        weights = cubic_kernel(np.abs(part[:, None] - offsets), CUBIC)
    else:
        offsets = np.arange(2)
        weights = np.stack([1 - part, part], axis=1)
    indices = np.clip(low[:, None].astype(np.int64) + offsets, 0, axis.size - 1)
    return indices, weights


def cubic_kernel(t: Any, slope: float) -> Any:
    """Keys' kernel at the distance t; `slope` is its derivative at 1.

    Source: Keys 1981, Cubic convolution interpolation for digital image processing, eq. 4
    """
    near = ((slope + 2) * t - (slope + 3)) * t * t + 1
    far = ((slope * t - 5 * slope) * t + 8 * slope) * t - 4 * slope
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def filter_taps(axis: Axis, cubic: bool, align_corners: bool) -> Any:
    """Taps of a kernel that is as wide as the elements of the result lie apart, weights made to sum
    to 1; shorter rows repeat their last index, with weight 0."""
    step = axis.step(align_corners)
    width = max(step, 1.0)
    reach = width * (2 if cubic else 1)
    centre = step * (np.arange(axis.new) + 0.5)
    start = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + reach + 0.5).astype(np.int64), axis.size)
    count = np.maximum(stop - start, 1)
    steps = np.arange(count.max())
    indices = start[:, None] + np.minimum(steps, count[:, None] - 1)
    distance = np.abs(start[:, None] + steps - centre[:, None] + 0.5) / width
    weights = cubic_kernel(distance, CUBIC_ANTIALIAS) if cubic else np.maximum(1 - distance, 0.0)
    weights = np.where(steps < count[:, None], weights, 0.0)
    return np.minimum(indices, axis.size - 1), weights / weights.sum(axis=1, keepdims=True)


def weighted_along(x: Tensor, place: int, indices: np.ndarray, weights: np.ndarray) -> Tensor:
    """Σₖ weights[:, k] · x[indices[:, k]] along the axis at `place`."""
    count = indices.shape[1]
    later_axes = (1,) * (x.ndim - place - 1)
    if count > MOST_UNROLLED:
        samples = gather(x, as_value(indices), axis=place)  # (…, new, taps, …)
        return reduce.sum(samples * table(weights, x, later_axes), axis=place + 1)
    parts = [
        gather(x, adopt(indices[:, k].copy()), axis=place) * table(weights[:, k], x, later_axes)
        for k in range(count)
    ]
    return sum(parts[1:], parts[0])


def table(weights: np.ndarray, x: Tensor, later_axes: tuple[int, ...]) -> Tensor:
    """Weights in the dtype of x, followed by axes of the sizes `later_axes`."""
    return as_value(np.ascontiguousarray(weights.reshape(*weights.shape, *later_axes)), x.dtype)
