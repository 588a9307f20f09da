"""Pooling over the last 1, 2 or 3 axes of inputs (C, *S) or (N, C, *S)."""

import functools
import operator
from collections.abc import Sequence
from inspect import signature
from itertools import product
from math import prod
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, broadcast_to, cast, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import check_number, int_tuple
from glasshouse.nn.functional.axes import by_axes, spatial_input
from glasshouse.nn.functional.conv import check_extent
from glasshouse.ops import movement
from glasshouse.ops.index import gather
from glasshouse.ops.window import window_select
from glasshouse.tensor import Tensor, arange, take_along_axis
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
           "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
           "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d",
           "adaptive_max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
           "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices",
           "max_pool3d", "max_pool3d_with_indices"]  # fmt: skip


LONG_WINDOW = 8  # elements; windows that are longer are not added up one by one


@composed
def max_pool(
    where: str,
    n: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window, the first where several are equal; NaN wins, and padding
    never. A window of padding alone gives -∞ (the least integer), without a gradient, and place 0.

    With `return_indices`, also its place: the row-major index into the spatial axes. `stride` is
    the kernel size unless given; `ceil_mode` adds a last window that reaches over the edge.
    H' = (H + 2·padding - dilation·(kernel - 1) - 1) // stride + 1

    Raises: OptionError for a padding above half the kernel; ShapeError for a kernel larger than the
        padded input.
    Source: Zhou & Chellappa 1988.
    Dtypes: floats and integers.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}).
    """
    x = spatial_input(where, n, input, check_number)
    kernel, stride, padding = pool_options(where, n, kernel_size, stride, padding)
    dilation = int_tuple(where, "dilation", dilation, n, 1)
    widths = pool_widths(where, x.shape[-n:], kernel, stride, padding, dilation, ceil_mode)
    least = int(np.iinfo(x.dtype.np).min) if x.dtype.is_integer else -float("inf")
    keys = grow(x, widths, least)
    options = {"size": kernel, "stride": stride, "dilation": dilation, "padding": widths}
    y = window_select(keys, keys, **options)
    if not return_indices:
        return y
    places = reshape(arange(prod(x.shape[-n:])), x.shape[-n:])
    places = broadcast_to(grow(places, widths, 0), keys.shape)
    return y, window_select(places, keys.detach(), **options)


def pool_options(
    where: str,
    n: int,
    kernel: Any,
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    kernel = int_tuple(where, "kernel_size", kernel, n, 1)
    stride = kernel if stride is None else int_tuple(where, "stride", stride, n, 1)
    padding = int_tuple(where, "padding", padding, n)
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        got = f"padding {padding} and kernel_size {kernel}"
        raise OptionError(where, "padding of at most half the kernel", got, "Pad less.")
    return kernel, stride, padding


def pool_widths(
    where: str,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> tuple[tuple[int, ...], ...]:
    """(low, high) widths per axis; ceil_mode adds the rest of a window that starts inside."""
    widths = tuple((p, p) for p in padding)
    check_extent(where, sizes, kernel, dilation, widths)
    if not ceil_mode:
        return widths
    padded = []
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        count = -((size + 2 * p - reach) // -s) + 1
        if (count - 1) * s >= size + p:
            count -= 1
        padded.append((p, max(p, (count - 1) * s + reach - size - p)))
    return tuple(padded)


def grow(x: Tensor, widths: tuple[tuple[int, ...], ...], value: float) -> Tensor:
    if not any(low or high for low, high in widths):
        return x
    lead = ((0, 0, 0),) * (x.ndim - len(widths))
    return movement.pad(x, widths=lead + tuple((*pair, 0) for pair in widths), value=value)


@composed
def avg_pool(
    where: str,
    n: int,
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Tensor:
    """The sum of each window, divided by its number of elements or by `divisor_override`.

    `count_include_pad=False` leaves the zeros of the padding out of that number; elements that
    ceil_mode adds never count.

    Raises: OptionError for a padding above half the kernel or a divisor of 0.
    Source: LeCun et al. 1990.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}) as `max_pool2d`.
    """
    x = spatial_input(where, n, input)
    kernel, stride, padding = pool_options(where, n, kernel_size, stride, padding)
    if divisor_override == 0:
        raise OptionError(where, "a divisor_override other than 0", "0", "Change it.")
    widths = pool_widths(where, x.shape[-n:], kernel, stride, padding, (1,) * n, ceil_mode)
    total = grow(widen(x), widths, 0.0)
    for axis, k, s in zip(range(x.ndim - n, x.ndim), kernel, stride, strict=True):
        total = sum_windows(total, axis, k, s)
    if divisor_override is not None:
        return cast(total / divisor_override, x.dtype)
    axes = zip(x.shape[-n:], kernel, stride, padding, total.shape[-n:], strict=True)
    per_axis = [window_counts(*axis, count_include_pad) for axis in axes]
    return cast(total / element_counts(per_axis, total), x.dtype)


def sum_windows(x: Tensor, axis: int, k: int, stride: int) -> Tensor:
    """Sums of windows of k elements along one axis; no window is written. Short ones are added
    element by element, long ones by a reduction, or by doubling where they overlap."""
    count = (x.shape[axis] - k) // stride + 1
    if k > LONG_WINDOW and (count == 1 or stride >= k):
        return sum_blocks(x, axis, k, k if count == 1 else stride, count)
    reach = (count - 1) * stride + 1
    if k <= LONG_WINDOW:
        starts = [(x, first) for first in range(k)]
    else:
        starts = powers_of_two(x, axis, k)
    parts = [movement.section(y, axis, first, first + reach, stride) for y, first in starts]
    return functools.reduce(operator.add, parts)


def sum_blocks(x: Tensor, axis: int, k: int, stride: int, count: int) -> Tensor:
    """Sums of the first k elements in each of `count` blocks of `stride` along one axis."""
    lacking = max(0, count * stride - x.shape[axis])
    x = grow(x, ((0, lacking), *((0, 0),) * (x.ndim - axis - 1)), 0)
    x = movement.section(x, axis, 0, count * stride)
    x = reshape(x, (*x.shape[:axis], count, stride, *x.shape[axis + 1 :]))
    return reduce.sum(movement.section(x, axis + 1, 0, k), axis=axis + 1)


def powers_of_two(x: Tensor, axis: int, k: int) -> list[tuple[Tensor, int]]:
    """(sums of windows of a power of two, which of them counts first): windows of k elements are
    theirs one after another. Each power is two of the one before."""
    parts, first, length = [], 0, 1
    while length <= k:
        if k & length:
            parts.append((x, first))
            first += length
        n = x.shape[axis]
        if 2 * length <= k:
            x = movement.section(x, axis, 0, n - length) + movement.section(x, axis, length, n)
        length *= 2
    return parts


def window_counts(size: int, k: int, s: int, p: int, count: int, include_pad: bool) -> list[int]:
    """How many elements (padding included or not) each window along one axis holds."""
    low, high = (-p, size + p) if include_pad else (0, size)
    starts = [i * s - p for i in range(count)]
    return [min(start + k, high) - max(start, low) for start in starts]


def element_counts(per_axis: list[list[int]], like: Tensor) -> int:
    """The product of the counts along the axes: a number if all are equal, else a value."""
    if all(len(set(counts)) == 1 for counts in per_axis):
        return prod(counts[0] for counts in per_axis)
    table = [prod(c) for c in product(*per_axis)]
    return reshape(as_value(table, like.dtype), tuple(map(len, per_axis)))


@composed
def adaptive_avg_pool(
    where: str, n: int, input: Tensor, output_size: int | Sequence[int]
) -> Tensor:
    """The means over output_size bins along each axis; None keeps the axis.

    Bin i of O over S elements holds those from floor(i S / O) to ceil((i + 1) S / O).

    Source: He et al. 2014, arXiv:1406.4729; the bins as in PyTorch.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, *output_size).
    """
    x, sizes = adaptive_operands(where, n, input, output_size)
    y, count = widen(x), 1
    for axis, size in enumerate(sizes, x.ndim - n):
        y, count = sum_bins(y, axis, size), count * bin_counts(x, axis, size)
    return cast(y / count, x.dtype)


def adaptive_operands(
    where: str, n: int, input: Tensor, output_size: int | Sequence[int]
) -> tuple[Tensor, tuple[int, ...]]:
    x = spatial_input(where, n, input)
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    full_sizes = tuple(x.shape[i - n] if s is None else s for i, s in enumerate(sizes))
    return x, int_tuple(where, "output_size", full_sizes, n, 1)


def bins(size: int, count: int) -> list[range]:
    """The positions that each of `count` bins over `size` elements holds."""
    return [range(i * size // count, -((i + 1) * size // -count)) for i in range(count)]


def bin_indices(size: int, count: int) -> list[list[int]]:
    """The positions of each bin, its last one repeated so that all bins have one length."""
    all_bins = bins(size, count)
    return [[*b, *[b[-1]] * (max(map(len, all_bins)) - len(b))] for b in all_bins]


def sum_bins(x: Tensor, axis: int, count: int) -> Tensor:
    size = x.shape[axis]
    if size == count:
        return x
    if size % count == 0:
        split = reshape(x, (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]))
        return reduce.sum(split, axis=axis + 1)
    all_bins = bins(size, count)
    in_bin = as_value([[i < len(b) for i in range(max(map(len, all_bins)))] for b in all_bins])
    elements = gather(x, as_value(bin_indices(size, count)), axis=axis)  # (…, count, longest, …)
    in_bin = reshape(in_bin, in_bin.shape + (1,) * (elements.ndim - axis - 2))
    return reduce.sum(choose(in_bin, elements, 0), axis=axis + 1)


def bin_counts(x: Tensor, axis: int, count: int) -> Any:
    counts = [len(b) for b in bins(x.shape[axis], count)]
    if len(set(counts)) == 1:
        return counts[0]
    return reshape(as_value(counts, widen(x).dtype), (count,) + (1,) * (x.ndim - axis - 1))


def adaptive_max_pool(
    where: str,
    n: int,
    input: Tensor,
    output_size: int | Sequence[int],
    return_indices: bool = False,
) -> Any:
    """The largest element of each bin (see `adaptive_avg_pool2d`), the first of equal ones.

    With `return_indices`, also its place: the row-major index into the spatial axes.

    Source: He et al. 2014, arXiv:1406.4729; the bins as in PyTorch.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, *output_size).
    """
    x, sizes = adaptive_operands(where, n, input, output_size)
    lead, spatial = x.ndim - n, x.shape[-n:]
    places = flat_bins(spatial, sizes)  # (prod(sizes), elements of a bin)
    elements = gather(reshape(x, (*x.shape[:lead], prod(spatial))), places, axis=lead)
    best = reduce.argmax(elements.detach(), axis=-1, keepdims=True)
    y = reshape(take_along_axis(elements, best, axis=-1), (*x.shape[:lead], *sizes))
    if not return_indices:
        return y
    places = broadcast_to(places, elements.shape)
    return y, reshape(take_along_axis(places, best, axis=-1), y.shape)


def flat_bins(spatial: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """For each bin, in row-major order, the row-major indices of its elements."""
    per_axis = [bin_indices(size, count) for size, count in zip(spatial, sizes, strict=True)]
    strides = [prod(spatial[i + 1 :]) for i in range(len(spatial))]

    def place(position) -> int:
        return sum(i * stride for i, stride in zip(position, strides, strict=True))

    return as_value([[place(p) for p in product(*bins)] for bins in product(*per_axis)])


max_pool3d: Any
max_pool2d: Any
max_pool1d: Any
max_pool1d, max_pool2d, max_pool3d = by_axes(max_pool)
avg_pool3d: Any
avg_pool2d: Any
avg_pool1d: Any
avg_pool1d, avg_pool2d, avg_pool3d = by_axes(avg_pool)
adaptive_avg_pool3d: Any
adaptive_avg_pool2d: Any
adaptive_avg_pool1d: Any
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = by_axes(adaptive_avg_pool)
adaptive_max_pool3d: Any
adaptive_max_pool2d: Any
adaptive_max_pool1d: Any
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = by_axes(adaptive_max_pool)


def with_indices(function: Any) -> Any:
    """A pooling function that returns its indices too."""

    def call(*args, **named):
        return function(*args, **named | {"return_indices": True})

    original = signature(function)
    parameters = [p for p in original.parameters.values() if p.name != "return_indices"]
    call.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = f"{function.__name__}_with_indices"
    call.__module__ = function.__module__
    shapes = function.__doc__.partition("Shapes: ")[2]
    call.__doc__ = f"`{function.__name__}` and its indices.\n\n    Shapes: {shapes}, twice"
    return call


max_pool3d_with_indices: Any
max_pool2d_with_indices: Any
max_pool1d_with_indices: Any
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(
    with_indices, (max_pool1d, max_pool2d, max_pool3d)
)
adaptive_max_pool3d_with_indices: Any
adaptive_max_pool2d_with_indices: Any
adaptive_max_pool1d_with_indices: Any
(
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
) = map(with_indices, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d))
