"""Convolutions and windows of jax.lax."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import OptionError
from glasshouse.dispatch import as_value
from glasshouse.jax import functions as g
from glasshouse.jax.lax.primitives import pad, rev, transpose
from glasshouse.nn import functional as F
from glasshouse.tensor import Tensor

__all__ = ["ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated",
           "conv_general_dilated_patches", "conv_transpose", "conv_with_general_padding",
           "padtype_to_pads", "reduce_window"]  # fmt: skip


class ConvDimensionNumbers(NamedTuple):
    """The places of the batch, channels and other axes of inputs, filters and results."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(lhs_shape: Any, rhs_shape: Any, dimension_numbers: Any) -> Any:
    """The places of axes that letters such as ("NHWC", "HWIO", "NHWC") name."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if dimension_numbers is None:
        order = tuple(range(len(lhs_shape)))
        return ConvDimensionNumbers(order, order, order)
    lhs, rhs, out = dimension_numbers
    spatial = [c for c in rhs if c not in "OI"]
    return ConvDimensionNumbers(
        tuple(lhs.index(c) for c in ("N", "C", *spatial)),
        tuple(rhs.index(c) for c in ("O", "I", *spatial)),
        tuple(out.index(c) for c in ("N", "C", *spatial)),
    )


def padtype_to_pads(in_shape: Any, window_shape: Any, window_strides: Any, padding: Any) -> Any:
    """The zeros before and after each axis: "SAME", "SAME_LOWER" or "VALID"."""
    name = getattr(padding, "name", padding).upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        expected = "padding 'SAME', 'SAME_LOWER' or 'VALID'"
        raise OptionError("padtype_to_pads", expected, repr(padding), "Or give pairs.")
    pads = []
    for n, k, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        low = total // 2 if name == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    **options: Any,
) -> Tensor:
    """The cross-correlation of inputs with filters over 1 to 3 axes.

    Raises: OptionError for groups of batches.
    """
    if batch_group_count != 1:
        expected = "batch_group_count=1"
        raise OptionError("conv_general_dilated", expected, batch_group_count, "Leave it out.")
    places = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    x = transpose(lhs, places.lhs_spec)
    w = transpose(rhs, places.rhs_spec)
    n = x.ndim - 2
    ones = (1,) * n
    strides = tuple(window_strides)
    inner = ones if lhs_dilation is None else tuple(lhs_dilation)
    outer = ones if rhs_dilation is None else tuple(rhs_dilation)
    if isinstance(padding, str):
        sizes = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], outer, strict=True)]
        spread = [(k - 1) * d + 1 for k, d in zip(x.shape[2:], inner, strict=True)]
        padding = padtype_to_pads(spread, sizes, strides, padding)
    widths = [(int(a), int(b), d - 1) for (a, b), d in zip(padding, inner, strict=True)]
    is_even = all(a == b >= 0 and not d for a, b, d in widths)
    if not is_even:
        x = pad(x, as_value(0.0, x.dtype), [(0, 0, 0), (0, 0, 0), *widths])
    zeros = tuple(a for a, _, _ in widths) if is_even else (0,) * n
    y = CONVOLUTIONS[n](x, w, None, strides, zeros, outer, feature_group_count)
    return transpose(y, np.argsort(places.out_spec))


def conv(
    lhs: Any, rhs: Any, window_strides: Any, padding: str, precision: Any = None, **options: Any
) -> Tensor:
    """The cross-correlation of inputs (N, C, …) with filters (O, I, …)."""
    return conv_general_dilated(lhs, rhs, window_strides, padding)


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
    **options: Any,
) -> Tensor:  # fmt: skip
    """As conv, with pairs of zeros and dilations."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Any,
    padding: Any,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    **options: Any,
) -> Tensor:
    """The convolution with inputs spread by `strides`: without `transpose_kernel`, the filters stay
    as they are."""
    n = lhs.ndim - 2
    if dimension_numbers is None:
        letters = "HWD"[:n]
        dimension_numbers = ("N" + letters + "C", letters + "IO", "N" + letters + "C")
    places = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    sizes = [rhs.shape[i] for i in places.rhs_spec[2:]]
    dilation = [1] * n if rhs_dilation is None else list(rhs_dilation)
    sizes = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    if isinstance(padding, str):
        pads = []
        for k, s in zip(sizes, strides, strict=True):
            if padding == "SAME":
                total = k + s - 2
                low = k - 1 if s > k - 1 else math.ceil(total / 2)
            else:
                total = k + s - 2 + max(k - s, 0)
                low = k - 1
            pads.append((low, total - low))
        padding = pads
    if transpose_kernel:
        rhs = rev(rhs, places.rhs_spec[2:])
        order = list(range(rhs.ndim))
        out, into = places.rhs_spec[:2]
        order[out], order[into] = into, out
        rhs = transpose(rhs, order)
    return conv_general_dilated(lhs, rhs, (1,) * n, padding, strides, rhs_dilation, places)


def conv_general_dilated_patches(
    lhs: Any, filter_shape: Any, window_strides: Any, padding: Any, lhs_dilation: Any = None,
    rhs_dilation: Any = None, dimension_numbers: Any = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The patches that a filter would see, as channels: those of each input channel together."""
    places = conv_dimension_numbers(lhs.shape, filter_shape, dimension_numbers)
    channels, count = lhs.shape[places.lhs_spec[1]], math.prod(filter_shape)
    eye = np.tile(np.eye(count, dtype=np.float32), (channels, 1))
    filters = g.reshape(g.asarray(eye), (channels * count, 1, *filter_shape))
    rhs = transpose(filters, np.argsort(places.rhs_spec))
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, places, channels
    )


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any = None,
    window_dilation: Any = None,
) -> Tensor:
    """Reduce the elements of each window by a binary function (lax.add, lax.max …), starting
    from `init_value`, which also fills the padding."""
    x = as_value(operand)
    sizes, strides = list(window_dimensions), list(window_strides)
    ones = [1] * x.ndim
    spread = ones if base_dilation is None else list(base_dilation)
    gaps = ones if window_dilation is None else list(window_dilation)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, gaps, strict=True)]
    if isinstance(padding, str):
        wide = [(n - 1) * d + 1 for n, d in zip(x.shape, spread, strict=True)]
        padding = padtype_to_pads(wide, reach, strides, padding)
    start = as_value(init_value, x.dtype)
    x = pad(x, start, [(a, b, d - 1) for (a, b), d in zip(padding, spread, strict=True)])
    counts = [(n - r) // s + 1 for n, r, s in zip(x.shape, reach, strides, strict=True)]
    total = g.broadcast_to(start, tuple(counts))
    for place in np.ndindex(*sizes):
        keys = tuple(
            slice(p * d, p * d + (c - 1) * s + 1, s)
            for p, d, c, s in zip(place, gaps, counts, strides, strict=True)
        )
        total = computation(total, x[keys])
    return total
