"""Padding of tensors, and patches: unfold, and its transpose fold."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn.checks import check_floating, check_ndim, int_tuple
from glasshouse.nn.functional.conv import check_extent
from glasshouse.ops import movement, window
from glasshouse.ops.checks import check_option, check_type
from glasshouse.ops.index import gather
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard.manipulate import permute_dims

PAD_MODES = ("constant", "reflect", "replicate", "circular")


def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """input with `pad` = (low, high) of the last axis, then of the one before it, and so on.
    Negative widths crop. Modes: "constant" (value, default 0), "reflect" (mirror without the edge),
    "replicate" (the edge), "circular" (from the other end).

    Shapes: (..., W) -> (..., low+W+high).
    Raises: OptionError for an unknown mode or an odd number of widths; ShapeError for more pairs
        than axes, or widths larger than reflect and circular can fill.
    Source: standard.
    Example:
        >>> pad([[1.0, 2.0]], (1, 0)).tolist()
        [[0.0, 1.0, 2.0]]
    """
    x = as_value(input, where="pad")
    check_option("pad", "mode", mode, PAD_MODES)
    check_type("pad", pad, Iterable, "a pair of widths for each axis", "Pass e.g. (1, 1).")
    widths = tuple(pad)
    if len(widths) % 2 or not all(isinstance(w, int) for w in widths):
        fix = "Give the pair of the last axis first."
        raise OptionError("pad", "an even number of integers, (low, high) per axis", repr(pad), fix)
    if len(widths) > 2 * x.ndim:
        expected = f"at most {x.ndim} pairs for input {x.shape}"
        raise ShapeError("pad", expected, len(widths) // 2, "Remove pairs.")
    pairs = {x.ndim - 1 - i: widths[2 * i : 2 * i + 2] for i in range(len(widths) // 2)}
    if mode == "constant":
        return pad_constant(x, pairs, 0 if value is None else value)
    for axis, (low, high) in pairs.items():
        if low or high:
            x = gather(x, as_value(source_indices(mode, x.shape, axis, low, high)), axis=axis)
    return x


def pad_constant(x: Tensor, pairs: dict[Any, Any], value: float) -> Tensor:
    widths = [pairs.get(axis, (0, 0)) for axis in range(x.ndim)]
    if not any(map(any, widths)):
        return x
    for axis, (low, high) in pairs.items():
        if low + high + x.shape[axis] < 0:
            expected = f"to crop at most the size of axis {axis} of {x.shape}"
            raise ShapeError("pad", expected, (low, high), "Crop less.")
    if any(w < 0 for pair in widths for w in pair):
        x = crop(x, widths)
    grown = tuple((max(low, 0), max(high, 0), 0) for low, high in widths)
    return movement.pad(x, widths=grown, value=value)


def crop(x: Tensor, widths: Any) -> Tensor:
    """x without -low elements at the start and -high at the end, where those are negative."""
    starts = tuple(max(-low, 0) for low, _ in widths)
    stops = tuple(size - max(-high, 0) for size, (_, high) in zip(x.shape, widths, strict=True))
    return movement.slice_(x, starts=starts, stops=stops, steps=(1,) * x.ndim)


def source_indices(mode: str, shape: Any, axis: int, low: int, high: int) -> np.ndarray:
    """The position of x that each place of the padded axis shows; "circular" crops first."""
    size = shape[axis]
    limits = {"reflect": size - 1, "replicate": max(low, high) if size else 0, "circular": size}
    if max(low, high) > limits[mode] or size + low + high < 1:
        expected = f"widths of at most {limits[mode]} for mode {mode!r} on axis {axis} of {shape}"
        raise ShapeError("pad", expected, (low, high), "Pad less or choose mode='constant'.")
    grown, inside = (max(low, 0), max(high, 0)), slice(max(-low, 0), -max(-high, 0) or None)
    if mode == "circular":
        return np.pad(np.arange(size)[inside], grown, "wrap")
    return np.pad(np.arange(size), grown, "reflect" if mode == "reflect" else "edge")[inside]


def unfold(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The patches of the images, each as a column.

    Shapes: input (N, C, H, W) or (C, H, W) -> (N, C · kh · kw, L), L patches in row-major order.
    Raises: ShapeError for another number of axes or a kernel larger than the padded input.
    Source: Chellapilla et al. 2006 (im2col).
    """
    x = check_floating("unfold", input)
    check_ndim("unfold", x, (3, 4), "(C, H, W) or (N, C, H, W)")
    options = (kernel_size, dilation, padding, stride)
    kernel, dilation, padding, stride = patch_options("unfold", *options)
    check_extent("unfold", x.shape[-2:], kernel, dilation, tuple((p, p) for p in padding))
    x = pad(x, (padding[1], padding[1], padding[0], padding[0]))
    options = {"stride": stride, "dilation": dilation}
    patches = window.windows(x, size=kernel, **options)  # (…, C, h, w, kh, kw)
    lead = x.ndim - 3
    order = (*range(lead), lead, lead + 3, lead + 4, lead + 1, lead + 2)
    columns, places = prod(kernel) * x.shape[lead], prod(patches.shape[lead + 1 : lead + 3])
    return reshape(permute_dims(patches, order), (*x.shape[:lead], columns, places))


def fold(
    input: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The images in which each patch is added at its place: the transpose of `unfold`.

    Shapes: input (N, C · kh · kw, L) or (C · kh · kw, L) -> (N, C, *output_size).
    Raises: ShapeError if the sizes of input do not fit the patches.
    Source: standard (col2im).
    """
    x = check_floating("fold", input)
    check_ndim("fold", x, (2, 3), "(C·kh·kw, L) or (N, C·kh·kw, L)")
    sizes = int_tuple("fold", "output_size", output_size, 2, 1)
    options = (kernel_size, dilation, padding, stride)
    kernel, dilation, padding, stride = patch_options("fold", *options)
    check_extent("fold", sizes, kernel, dilation, tuple((p, p) for p in padding))
    padded = tuple(s + 2 * p for s, p in zip(sizes, padding, strict=True))
    axes = zip(padded, kernel, dilation, stride, strict=True)
    places = tuple((size - d * (k - 1) - 1) // s + 1 for size, k, d, s in axes)
    if x.shape[-2] % prod(kernel) or x.shape[-1] != prod(places):
        expected = f"(…, C · {prod(kernel)}, {prod(places)}) for output_size {sizes}"
        raise ShapeError("fold", expected, x.shape, "Use the options that made the patches.")
    lead, channels = x.ndim - 2, x.shape[-2] // prod(kernel)
    x = reshape(x, (*x.shape[:lead], channels, *kernel, *places))
    x = permute_dims(x, (*range(lead + 1), lead + 3, lead + 4, lead + 1, lead + 2))
    y = window.fold(x, shape=padded, stride=stride, dilation=dilation)
    return pad(y, (-padding[1], -padding[1], -padding[0], -padding[0]))


def patch_options(
    where: str,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int],
    padding: int | Sequence[int],
    stride: int | Sequence[int],
) -> list[tuple[int, ...]]:
    sizes = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    return [int_tuple(where, n, x, 2, 0 if n == "padding" else 1) for n, x in sizes.items()]
