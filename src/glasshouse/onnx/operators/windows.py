"""Convolutions and pools: operators that read windows of an image."""

import math
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.nn import functional
from glasshouse.onnx.table import integers, operator

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
LARGEST = {
    1: functional.max_pool1d_with_indices,
    2: functional.max_pool2d_with_indices,
    3: functional.max_pool3d_with_indices,
}
MEANS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def spatial(x: Any, table: dict[int, Any]) -> int:
    """How many axes are the image's.

    Raises: ShapeError unless 1, 2 or 3
    """
    if x.ndim - 2 not in table:
        raise ShapeError("onnx", "an image of 1, 2 or 3 axes", x.shape, "Reshape it.")
    return x.ndim - 2


class ImageWindows:
    """Sizes, steps and borders of windows over an image, from a node's attributes."""

    def __init__(
        self,
        sizes: Any,
        kernel: Any,
        strides: Any = None,
        pads: Any = None,
        dilations: Any = None,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
    ) -> None:
        n = len(kernel)
        self.kernel: tuple[int, ...] = tuple(kernel)
        self.strides: tuple[int, ...] = tuple(strides or (1,) * n)
        self.dilations: tuple[int, ...] = tuple(dilations or (1,) * n)
        lengths = {len(sizes), len(self.strides), len(self.dilations), n}
        if len(lengths) > 1 or (pads and len(pads) != 2 * n):
            raise ShapeError("onnx", f"attributes for {len(sizes)} axes", kernel, "Mend the node.")
        if min(*self.kernel, *self.strides, *self.dilations, *sizes, 1) < 1:
            got = (self.kernel, self.strides, self.dilations, tuple(sizes))
            raise ShapeError("onnx", "windows and images of 1 or more", got, "Mend the node.")
        self.spans: list[int] = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        pads = tuple(pads or (0,) * 2 * n)
        self.borders: list[tuple[int, int]] = [(pads[i], pads[i + n]) for i in range(n)]
        if auto_pad.startswith("SAME"):
            self.borders = [
                same_border(size, span, step, auto_pad == "SAME_LOWER")
                for size, span, step in zip(sizes, self.spans, self.strides)
            ]
        elif auto_pad == "VALID":
            self.borders = [(0, 0)] * n
        elif auto_pad != "NOTSET":
            raise OptionError("onnx", "an auto_pad of ONNX", auto_pad, "Mend the node.")
        self.beyond: list[int]
        self.beyond = [0] * n  # what the last windows reach over the border, with ceil_mode
        if ceil_mode:
            for i, size in enumerate(sizes):
                self.beyond[i] = self.reach(i, size)

    def reach(self, i: int, size: int) -> int:
        before, after = self.borders[i]
        room = size + before + after - self.spans[i]
        count = -(-room // self.strides[i])
        if count * self.strides[i] >= size + before:  # it would begin beyond the image
            count -= 1
        return max(count * self.strides[i] - room, 0)

    def ends(self) -> list[tuple[int, int]]:
        return [(a, b + c) for (a, b), c in zip(self.borders, self.beyond)]

    def equal_borders(self) -> tuple[int, ...] | None:
        """One border for each axis, if both of its ends have the same."""
        ends = self.ends()
        return tuple(a for a, _ in ends) if all(a == b >= 0 for a, b in ends) else None


def same_border(size: int, span: int, step: int, lower: bool) -> tuple[int, int]:
    """The border with which there is one window for each step."""
    whole = max((-(-size // step) - 1) * step + span - size, 0)
    less = whole // 2
    return (whole - less, less) if lower else (less, whole - less)


def bordered(x: Any, ends: list[tuple[int, int]], value: float = 0) -> Any:
    if not any(a or b for a, b in ends):
        return x
    filling: Any = value
    return gh.pad(x, [(0, 0)] * (x.ndim - len(ends)) + ends, constant_values=filling)


@operator("Conv")
def convolve(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Any:
    n = spatial(x, CONVOLUTIONS)
    windows = ImageWindows(x.shape[2:], weight.shape[2:], strides, pads, dilations, auto_pad)
    border = windows.equal_borders()
    if border is None:
        x, border = bordered(x, windows.ends()), (0,) * n
    return CONVOLUTIONS[n](x, weight, bias, windows.strides, border, windows.dilations, group)


@operator("ConvTranspose")
def convolve_transposed(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Any:
    """The whole transposed convolution, cut at its borders or prolonged there."""
    n = spatial(x, TRANSPOSED)
    windows = ImageWindows(x.shape[2:], weight.shape[2:], strides, pads, dilations)
    more = tuple(output_padding or (0,) * n)
    ends = windows.borders
    steps = zip(x.shape[2:], windows.strides, windows.spans, more)
    sizes = [(size - 1) * step + span + extra for size, step, span, extra in steps]
    if auto_pad.startswith("SAME") and output_shape is None:
        output_shape = [size * step for size, step in zip(x.shape[2:], windows.strides)]
    if output_shape is not None:
        rest = [size - wanted for size, wanted in zip(sizes, output_shape[-n:])]
        ends = [(r // 2, r - r // 2) for r in rest]
        if auto_pad != "SAME_UPPER":
            ends = [(b, a) for a, b in ends]
    if not any(more) and all(a == b >= 0 for a, b in ends):
        border = tuple(a for a, _ in ends)
        return TRANSPOSED[n](x, weight, bias, windows.strides, border, 0, group, windows.dilations)
    y = TRANSPOSED[n](x, weight, None, windows.strides, 0, 0, group, windows.dilations)
    y = bordered(y, [(max(-a, 0), max(extra - b, 0)) for extra, (a, b) in zip(more, ends)])
    cut = [slice(max(a, 0), y.shape[2 + i] - max(b - more[i], 0)) for i, (a, b) in enumerate(ends)]
    y = y[(slice(None), slice(None), *cut)]
    return y if bias is None else y + bias.reshape((-1, *(1,) * n))


@operator("MaxPool")
def largest_of_windows(
    x: Any,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    outputs: int = 1,
) -> Any:
    n = spatial(x, LARGEST)
    kind = x.dtype
    windows = ImageWindows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    lowest = -math.inf if kind.is_floating else np.iinfo(kind.np).min
    y = bordered(x, windows.ends(), lowest)
    sizes = y.shape[2:]
    y, index = LARGEST[n](y, windows.kernel, windows.strides, 0, windows.dilations)
    if outputs == 1:
        return y
    return y, from_bordered(index, sizes, x.shape, windows, storage_order)


def from_bordered(
    index: Any, sizes: tuple[int, ...], shape: tuple[int, ...], windows: ImageWindows, order: int
) -> Any:
    """Positions in a bordered image, as positions in the whole tensor of images."""
    axes = []
    for i in reversed(range(len(sizes))):
        axes.append(index % sizes[i] - windows.borders[i][0])
        index = index // sizes[i]
    axes = axes[::-1]  # one for each axis of the image
    flat: Any = 0
    chosen = range(len(sizes))
    for i in reversed(chosen) if order else chosen:
        flat = flat * shape[2 + i] + axes[i]
    images = gh.arange(shape[0] * shape[1]).reshape((*shape[:2], *(1,) * len(sizes)))
    return flat + images * math.prod(shape[2:])


def means_of_windows(x: Any, windows: ImageWindows) -> Any:
    """Means over windows, without borders."""
    n = spatial(x, MEANS)
    if all(d == 1 for d in windows.dilations):
        return MEANS[n](x, windows.kernel, windows.strides)
    whole = x.reshape((-1, 1, *x.shape[2:]))
    weight = gh.full((1, 1, *windows.kernel), 1 / math.prod(windows.kernel), x.dtype)
    y = CONVOLUTIONS[n](whole, weight, None, windows.strides, 0, windows.dilations)
    return y.reshape((*x.shape[:2], *y.shape[2:]))


@operator("AveragePool")
def average_of_windows(
    x: Any,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Any:
    windows = ImageWindows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    means = means_of_windows(bordered(x, windows.ends()), windows)
    if not any(a or b for a, b in windows.ends()):
        return means
    ones = gh.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    beyond = [(0, c) for c in windows.beyond]
    inner = bordered(ones, windows.borders, 1.0 if count_include_pad else 0.0)
    return means / means_of_windows(bordered(inner, beyond), windows)


@operator("LpPool")
def norm_of_windows(
    x: Any,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    p: int = 2,
) -> Any:
    windows = ImageWindows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    powers = bordered(gh.abs(x) ** p, windows.ends())
    return (means_of_windows(powers, windows) * math.prod(windows.kernel)) ** (1 / p)


def whole(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def mean_of_image(x: Any) -> Any:
    return gh.mean(x, axis=whole(x), keepdims=True)


@operator("GlobalMaxPool")
def largest_of_image(x: Any) -> Any:
    return gh.amax(x, axis=whole(x), keepdims=True)


@operator("GlobalLpPool")
def norm_of_image(x: Any, *, p: int = 2) -> Any:
    return gh.sum(gh.abs(x) ** p, axis=whole(x), keepdims=True) ** (1 / p)


@operator("MaxUnpool", static=(2,))
def unpool(
    x: Any,
    indices: Any,
    sizes: Any = None,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
) -> Any:
    windows = ImageWindows(x.shape[2:], kernel_shape, strides, pads)
    steps = zip(x.shape[2:], windows.strides, windows.kernel, windows.borders)
    inner = [(size - 1) * step + k - a - b for size, step, k, (a, b) in steps]
    shape = (*x.shape[:2], *inner)
    flat = gh.zeros((math.prod(shape),), dtype=x.dtype)
    y = gh.scatter(flat, 0, indices.reshape((-1,)), x.reshape((-1,))).reshape(shape)
    if sizes is None:
        return y
    return bordered(y, [(0, w - s) for w, s in zip(integers(sizes)[2:], inner)])


@operator("LRN")
def local_response_norm(
    x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Any:
    before = (size - 1) // 2
    squares = bordered(x * x, [(before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    return x / (bias + alpha / size * total) ** beta


@operator("Col2Im", static=(1, 2))
def from_columns(
    x: Any, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Any:
    """The image whose windows are the columns; where they overlap, their sum."""
    image, block = integers(image), integers(block)
    windows = ImageWindows(image, block, strides, pads, dilations)
    channels = x.shape[1] // math.prod(block)
    padded = [size + a + b for size, (a, b) in zip(image, windows.borders)]
    flat = np.zeros((1, 1), np.int64)
    for i, size in enumerate(padded):
        count = (size - windows.spans[i]) // windows.strides[i] + 1
        rows = np.arange(block[i]) * windows.dilations[i]
        index = rows[:, None] + np.arange(count) * windows.strides[i]
        joined = flat[:, None, :, None] * size + index[None, :, None, :]
        flat = joined.reshape(flat.shape[0] * block[i], flat.shape[1] * count)
    shape = (x.shape[0], channels, math.prod(padded))
    index = gh.broadcast_to(gh.asarray(flat.ravel()), (*shape[:2], flat.size))
    values = x.reshape((*shape[:2], flat.size))
    y = gh.scatter_add(gh.zeros(shape, dtype=x.dtype), 2, index, values)
    cut = [slice(a, a + size) for size, (a, _) in zip(image, windows.borders)]
    return y.reshape((*shape[:2], *padded))[(slice(None), slice(None), *cut)]
