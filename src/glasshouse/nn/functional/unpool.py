"""Pooling by powers, over random windows, and the inverse that puts pooled elements back."""

from collections.abc import Sequence
from math import prod
from numbers import Real
from typing import Any

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, broadcast_to, cast, reshape
from glasshouse.dispatch.wide import rounded_once
from glasshouse.nn.checks import check_floating, int_tuple
from glasshouse.nn.functional.activation import relu
from glasshouse.nn.functional.axes import by_axes, spatial_input
from glasshouse.nn.functional.pool import avg_pool, pool_options, with_indices
from glasshouse.ops.checks import check_integers
from glasshouse.tensor import (
    Tensor,
    abs,
    arange,
    concat,
    floor,
    put_along_axis,
    random,
    sign,
    take_along_axis,
    zeros,
)
from glasshouse.tensor.standard import reduce

__all__ = ["fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
           "fractional_max_pool3d_with_indices", "lp_pool1d", "lp_pool2d", "lp_pool3d",
           "max_unpool1d", "max_unpool2d", "max_unpool3d"]  # fmt: skip


@composed
@rounded_once
def lp_pool(
    where: str,
    n: int,
    input: Tensor,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-th root of the sum of the p-th powers of each window, p = norm_type.

    Raises: OptionError for a norm_type of 0; ShapeError for a kernel larger than the input.
    Source: Sermanet et al. 2012, arXiv:1204.3968; the sign of odd powers as in PyTorch.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}) as `max_pool2d`.
    """
    if not isinstance(norm_type, Real) or norm_type == 0:
        raise OptionError(where, "a norm_type other than 0", repr(norm_type), "Use e.g. 2.")
    x = spatial_input(where, n, input)
    kernel = int_tuple(where, "kernel_size", kernel_size, n, 1)
    mean = avg_pool(where, n, x**norm_type, kernel, stride, 0, ceil_mode)
    return (sign(mean) * relu(abs(mean)) * prod(kernel)) ** (1 / norm_type)


@composed
def max_unpool(
    where: Any,
    n: Any,
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Zeros, with each element of the input at the place from which `max_pool2d` took it.

    `indices` are those that pooling returned. output_size chooses among the sizes that pool alike.
    H' = (H - 1) · stride - 2 · padding + kernel, unless given.

    Raises: ShapeError for indices of another shape; OptionError for an output_size that is a stride
        or more away; IndexOutOfRangeError for indices outside the result.
    Source: Zeiler & Fergus 2013, arXiv:1311.2901, sec. 2.1.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}).
    """
    x, places = spatial_input(where, n, input), as_value(indices, where=where)
    check_integers(where, places, "Use the indices that max_pool returned.")
    if places.shape != x.shape:
        fix = "Use the indices that were returned with the input."
        raise ShapeError(where, f"indices of the input's shape {x.shape}", places.shape, fix)
    options = pool_options(where, n, kernel_size, stride, padding)
    sizes = unpooled_sizes(where, x.shape[-n:], *options, output_size)
    lead = x.shape[:-n]
    values, places = (reshape(v, (*lead, prod(x.shape[-n:]))) for v in (x, places))
    empty = zeros((*lead, prod(sizes)), dtype=x.dtype)
    return reshape(put_along_axis(empty, places, values, axis=-1), (*lead, *sizes))


def unpooled_sizes(
    where: str,
    old: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    output_size: Any,
) -> tuple[int, ...]:
    axes = zip(old, kernel, stride, padding, strict=True)
    usual = tuple((size - 1) * s - 2 * p + k for size, k, s, p in axes)
    if output_size is None:
        return usual
    sizes = int_tuple(where, "output_size", tuple(output_size)[-len(usual) :], len(usual), 1)
    if any(not u - s < size < u + s for size, u, s in zip(sizes, usual, stride, strict=True)):
        expected = f"an output_size less than a stride {stride} from {usual}"
        fix = "Pass the size of the input of max_pool."
        raise OptionError(where, expected, tuple(output_size), fix)
    return sizes


def fractional_max_pool(
    where: str,
    n: int,
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest element of each window, where the windows' places are drawn at random.

    Along an axis of S elements, O windows of k begin at ⌊α (i + u)⌋ - ⌊α u⌋ with
    α = (S - k) / (O - 1) and u uniform in [0, 1), drawn for each sample, channel and axis; the last
    one ends with the axis. With `return_indices`, also the row-major places of the elements.

    Raises: OptionError unless just one of output_size and output_ratio is given; ShapeError for
        windows that do not fit.
    Source: Graham 2014, arXiv:1412.6071, sec. 2.1.
    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}).
    """
    x = spatial_input(where, n, input)
    kernel = int_tuple(where, "kernel_size", kernel_size, n, 1)
    sizes = fractional_sizes(where, x.shape[-n:], kernel, output_size, output_ratio)
    shape = (*((1,) * (n + 2 - x.ndim)), *x.shape[:-n], n)  # (N, C, n)
    if _random_samples is None:
        samples = random.uniform(shape, dtype=x.dtype)
    else:
        samples = check_floating(where, _random_samples, "_random_samples")
        if samples.shape != shape:
            raise ShapeError(where, f"_random_samples {shape}", samples.shape, "Draw them so.")
    y, places = largest_in(x, kernel, sizes, reshape(samples, (*x.shape[:-n], n)))
    return (y, places) if return_indices else y


def fractional_sizes(
    where: str,
    old: Any,
    kernel: tuple[int, ...],
    output_size: Any,
    output_ratio: Any,
) -> tuple[int, ...]:
    n = len(old)
    if (output_size is None) == (output_ratio is None):
        got = f"output_size={output_size} and output_ratio={output_ratio}"
        raise OptionError(where, "one of output_size and output_ratio", got, "Pass one of them.")
    if output_ratio is not None:
        ratios = (output_ratio,) * n if isinstance(output_ratio, Real) else tuple(output_ratio)
        if len(ratios) != n or not all(isinstance(r, Real) and 0 < float(r) < 1 for r in ratios):
            expected = f"output_ratio between 0 and 1, or {n} of them"
            raise OptionError(where, expected, repr(output_ratio), "Change output_ratio.")
        output_size = tuple(int(size * r) for size, r in zip(old, ratios, strict=True))
    sizes = int_tuple(where, "output_size", output_size, n, 1)
    if any(size + k - 1 > s for size, k, s in zip(sizes, kernel, old, strict=True)):
        raise ShapeError(
            where,
            f"axes of at least {tuple(o + k - 1 for o, k in zip(sizes, kernel, strict=True))} for "
            f"output_size {sizes} and kernel_size {kernel}",
            tuple(old),
            "Lower output_size or kernel_size.",
        )
    return sizes


@composed
def largest_in(
    x: Tensor, kernel: tuple[int, ...], sizes: tuple[int, ...], samples: Tensor
) -> tuple[Tensor, ...]:
    """(the largest element of each window, its row-major place), windows placed by `samples`."""
    n = len(kernel)
    lead, spatial = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
    places = as_value(0)
    for i, (k, new, old) in enumerate(zip(kernel, sizes, spatial, strict=True)):
        # PyTorch's first sample is that of the last axis in images, of the first one in volumes
        sample = samples[..., n - 1 - i if n == 2 else i]
        start = window_starts(sample, old, new, k)  # (…, new)
        at = reshape(start, (*lead, new, 1)) + arange(k)
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = new, k
        places = places * old + reshape(at, (*lead, *shape))  # (…, *sizes, *kernel)
    places = reshape(places, (*lead, prod(sizes) * prod(kernel)))
    elements = take_along_axis(reshape(x, (*lead, prod(spatial))), places, axis=-1)
    elements, places = (reshape(v, (*lead, *sizes, prod(kernel))) for v in (elements, places))
    best = reduce.argmax(elements.detach(), axis=-1, keepdims=True)
    chosen = (take_along_axis(v, best, axis=-1) for v in (elements, places))
    return tuple(reshape(v, (*lead, *sizes)) for v in chosen)


def window_starts(sample: Tensor, old: int, new: int, k: int) -> Tensor:
    """Where `new` windows of k begin on an axis of `old` elements."""
    integer = arange(new).dtype
    last = broadcast_to(as_value(old - k, integer), (*sample.shape, 1))
    if new == 1:
        return last
    alpha = (old - k) / (new - 1)
    shift = reshape(sample, (*sample.shape, 1))
    steps = cast(arange(new - 1), sample.dtype)
    start = floor((steps + shift) * alpha) - floor(shift * alpha)
    return concat([cast(start, integer), last], axis=-1)


lp_pool3d: Any
lp_pool2d: Any
lp_pool1d: Any
lp_pool1d, lp_pool2d, lp_pool3d = by_axes(lp_pool)
max_unpool3d: Any
max_unpool2d: Any
max_unpool1d: Any
max_unpool1d, max_unpool2d, max_unpool3d = by_axes(max_unpool)
fractional_max_pool3d: Any
fractional_max_pool2d: Any
_: Any
_, fractional_max_pool2d, fractional_max_pool3d = by_axes(fractional_max_pool)
fractional_max_pool3d_with_indices: Any
fractional_max_pool2d_with_indices: Any
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = map(
    with_indices, (fractional_max_pool2d, fractional_max_pool3d)
)
