"""Operators on images: resizing, sampling at places, boxes."""

import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.base.errors import OptionError, ShapeError, optional
from glasshouse.nn import functional
from glasshouse.onnx.table import as_array, integers, operator, places
from glasshouse.vision.boxes import nms

CUBIC = -0.75  # the usual sharpness of cubic interpolation


def positions(
    length: int, size: int, scale: float, mode: str, roi: tuple[float, float]
) -> np.ndarray:
    """Where the elements of the result lie in the source."""
    at = np.arange(size, dtype=np.float64)
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        exact = length * scale  # not rounded
        return at * (length - 1) / (exact - 1) if exact != 1 else np.zeros(size)
    if mode == "tf_crop_and_resize":
        if size > 1:
            step = (roi[1] - roi[0]) * (length - 1) / (size - 1)
            return roi[0] * (length - 1) + at * step
        return 0.5 * (roi[0] + roi[1]) * (length - 1) * np.ones(1)
    half = (at + 0.5) / scale - 0.5
    if mode == "half_pixel":
        return half
    if mode == "pytorch_half_pixel":
        return half if size > 1 else np.zeros(1)
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "half_pixel_symmetric":
        adjust = size / (scale * length)
        return length / 2 * (1 - adjust) + half
    raise OptionError("Resize", "a coordinate_transformation_mode of ONNX", mode, "Mend the node.")


def kernel_of(distance: np.ndarray, mode: str, sharpness: float) -> np.ndarray:
    """Weights by the distance of source elements."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    a = sharpness
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def matrix_of(
    length: int, at: np.ndarray, scale: float, mode: str, options: dict[str, Any]
) -> np.ndarray:
    """The matrix that makes the elements at places from those of the source."""
    reach = 2 if mode == "cubic" else 1
    stretch = max(1 / scale, 1.0) if options["antialias"] else 1.0
    first = int(np.floor(at.min() - reach * stretch)) - 1
    last = int(np.ceil(at.max() + reach * stretch)) + 1
    source = np.arange(min(first, 0), max(last, length - 1) + 1)
    weights = kernel_of((source - at[:, None]) / stretch, mode, options["sharpness"])
    inside = (source >= 0) & (source < length)
    if options["exclude_outside"]:
        weights = weights * inside
    if options["exclude_outside"] or stretch > 1:
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((len(at), length))
    np.add.at(matrix.T, np.clip(source, 0, length - 1), weights.T)
    return matrix


def resize_axis(x: Any, axis: int, matrix: np.ndarray) -> Any:
    weights = gh.asarray(matrix.astype(np.float32)).astype(x.dtype)
    return gh.moveaxis(gh.moveaxis(x, axis, -1) @ weights.mT, -1, axis)


def sizes_by(
    x: Any, axes: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[int], list[float]]:
    """New sizes and factors of the axes."""
    old = [x.shape[axis] for axis in axes]
    if sizes is None:
        factors = [float(s) for s in as_array(scales).ravel()]
        return [math.floor(n * s) for n, s in zip(old, factors, strict=True)], factors
    wanted = integers(sizes)
    if policy != "stretch":
        choose = min if policy == "not_larger" else max
        factor = choose(w / n for w, n in zip(wanted, old))
        wanted = [math.floor(n * factor + 0.5) for n in old]
        return wanted, [factor] * len(axes)
    return wanted, [w / n for w, n in zip(wanted, old, strict=True)]


@operator("Resize", since=11, static=(1, 2, 3))
def resize(
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = CUBIC,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: Any = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Any:
    sizes = None if sizes is None or not len(integers(sizes)) else sizes
    chosen = places(axes, x.ndim)
    wanted, factors = sizes_by(x, chosen, scales, sizes, keep_aspect_ratio_policy)
    if min(wanted, default=1) < 0 or (min(wanted, default=1) > 0 and not x.size):
        raise ShapeError("Resize", "sizes of 0 or more, of some image", wanted, "Mend the node.")
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    ends = as_array(roi).ravel().tolist() if crops else [0.0] * len(chosen) + [1.0] * len(chosen)
    options = {"antialias": antialias, "exclude_outside": exclude_outside}
    kind, old = x.dtype, x.shape
    x = x if mode == "nearest" or kind.is_floating else x.astype("float32")
    outside = np.zeros((1,) * x.ndim, bool)
    for i, (axis, size, scale) in enumerate(zip(chosen, wanted, factors)):
        if size == old[axis] and scale == 1 and not crops:
            continue
        part = ends[i], ends[i + len(chosen)]
        at = positions(old[axis], size, scale, coordinate_transformation_mode, part)
        beyond = (at < 0) | (at > old[axis] - 1)
        outside = outside | np.moveaxis(beyond.reshape((-1, *(1,) * (x.ndim - 1))), 0, axis)
        if mode == "nearest":
            index = np.clip(ROUNDINGS[nearest_mode](at), 0, old[axis] - 1).astype(np.int64)
            x = gh.take(x, gh.asarray(index), axis=axis)
        else:
            matrix = matrix_of(old[axis], at, scale, mode, {**options, "sharpness": cubic_coeff_a})
            x = resize_axis(x, axis, matrix)
    if crops and outside.any():
        x = gh.where(gh.asarray(outside), extrapolation_value, x)
    return x if x.dtype is kind else gh.round(x).astype(kind)


@operator("Resize", "Upsample", static=(1,))
def resize_by_scales(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    way = {
        "mode": "linear" if mode in ("bilinear", "linear") else mode,
        "coordinate_transformation_mode": "asymmetric",
    }
    return resize(x, None, scales, nearest_mode="floor", **way)


@operator("Upsample", since=7)
def upsample(x: Any, *, scales: Any, mode: str = "nearest") -> Any:
    return resize_by_scales(x, np.asarray(scales), mode=mode)


@operator("Upsample", since=9, static=(1,))
def upsample_by_input(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return resize_by_scales(x, scales, mode=mode)


@operator("GridSample")
def grid_sample(
    x: Any,
    grid: Any,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Any:
    ways = {"linear": "bilinear", "cubic": "bicubic"}
    return functional.grid_sample(x, grid, ways.get(mode, mode), padding_mode, bool(align_corners))


def sampled(image: Any, ys: Any, xs: Any) -> Any:
    """Elements of images between their pixels, 0 outside.

    Shapes: image (N, C, H, W), ys and xs (N, P) -> (N, C, P)
    """
    h, w = image.shape[2:]
    top, left = gh.floor(ys), gh.floor(xs)
    flat = image.reshape((*image.shape[:2], h * w))
    total: Any = 0
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = top + dy, left + dx
            weight = (1 - gh.abs(ys - y)) * (1 - gh.abs(xs - x))
            inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
            index = (gh.clip(y, 0, h - 1) * w + gh.clip(x, 0, w - 1)).astype("int64")
            shape = (*image.shape[:2], index.shape[1])
            index = gh.broadcast_to(gh.expand_dims(index, axis=1), shape)
            weight = gh.where(inside, weight, gh.zeros_like(weight))
            total = total + gh.gather(flat, 2, index) * gh.expand_dims(weight, axis=1)
    return total


@operator("DeformConv")
def deformable_convolution(
    x: Any,
    weight: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    group: int = 1,
    offset_group: int = 1,
) -> Any:
    """A convolution whose windows read at places moved by `offset`, weighed by `mask`."""
    (n, c), (kh, kw) = x.shape[:2], weight.shape[2:]
    oh, ow = offset.shape[2:]
    strides, pads, dilations = strides or (1, 1), pads or (0, 0), dilations or (1, 1)
    rows = gh.arange(kh).reshape((kh, 1, 1, 1)) * dilations[0] - pads[0]
    rows = rows + gh.arange(oh).reshape((1, 1, oh, 1)) * strides[0]
    columns = gh.arange(kw).reshape((1, kw, 1, 1)) * dilations[1] - pads[1]
    columns = columns + gh.arange(ow).reshape((1, 1, 1, ow)) * strides[1]
    moved = offset.reshape((n * offset_group, kh, kw, 2, oh, ow))
    points = (n * offset_group, kh * kw * oh * ow)
    ys = (moved[:, :, :, 0] + rows.astype(x.dtype)).reshape(points)
    xs = (moved[:, :, :, 1] + columns.astype(x.dtype)).reshape(points)
    image = x.reshape((n * offset_group, c // offset_group, *x.shape[2:]))
    read = sampled(image, ys, xs).reshape((n, offset_group, -1, kh * kw, oh * ow))
    if mask is not None:
        read = read * mask.reshape((n, offset_group, 1, kh * kw, oh * ow))
    read = read.reshape((n, group, c // group * kh * kw, oh * ow))
    matrix = weight.reshape((group, weight.shape[0] // group, -1))
    y = (matrix @ read).reshape((n, weight.shape[0], oh, ow))
    return y if bias is None else y + bias.reshape((-1, 1, 1))


@operator("RoiAlign", static=(1, 2))
def roi_align(
    x: Any,
    rois: Any,
    batch: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    """Boxes of images, each as a grid of averages over bilinear samples."""
    half = coordinate_transformation_mode == "half_pixel"
    boxes = as_array(rois) * spatial_scale - (0.5 if half else 0.0)
    results = []
    for (x1, y1, x2, y2), index in zip(boxes.tolist(), integers(batch), strict=True):
        axes = []
        for low, high, cells, length in (
            (y1, y2, output_height, x.shape[2]),
            (x1, x2, output_width, x.shape[3]),
        ):
            extent = high - low if half else max(high - low, 1.0)
            count = sampling_ratio or max(math.ceil(extent / cells), 1)
            at = low + (np.arange(cells * count) + 0.5) * extent / (cells * count)
            axes.append((roi_weights(at, length), count))
        (rows, down), (columns, across) = axes
        image = x[index]
        if mode == "max":
            results.append(largest_sample(image, rows, columns, down, across))
            continue
        rows = rows.reshape(output_height, down, -1).mean(1)
        columns = columns.reshape(output_width, across, -1).mean(1)
        weights = [gh.asarray(m.astype(np.float32)).astype(x.dtype) for m in (rows, columns)]
        results.append(weights[0] @ image @ weights[1].mT)
    return gh.stack(results, axis=0)


def roi_weights(at: np.ndarray, length: int) -> np.ndarray:
    """The matrix of linear interpolation at places; 0 more than a pixel outside."""
    weights = np.maximum(1 - np.abs(np.clip(at, 0, length - 1)[:, None] - np.arange(length)), 0)
    return weights * ((at >= -1) & (at <= length))[:, None]


def largest_sample(
    image: Any, rows: np.ndarray, columns: np.ndarray, down: int, across: int
) -> Any:
    """For each cell the largest weighed corner of its samples, as ONNX defines it."""
    h, w = rows.shape[0] // down, columns.shape[0] // across
    best: Any = None
    for row in split_weights(rows):
        for column in split_weights(columns):
            a, b = (gh.asarray(m.astype(np.float32)).astype(image.dtype) for m in (row, column))
            values = a @ image @ b.mT
            best = values if best is None else gh.maximum(best, values)
    cells = best.reshape((image.shape[0], h, down, w, across))
    return gh.amax(cells, axis=(2, 4))


def split_weights(matrix: np.ndarray) -> list[np.ndarray]:
    """The two elements that each row reads, apart."""
    first = np.zeros_like(matrix)
    at = matrix.argmax(1) if matrix.size else np.zeros(0, np.int64)
    first[np.arange(len(matrix)), at] = matrix[np.arange(len(matrix)), at]
    return [first, matrix - first]


@operator("NonMaxSuppression", static=(0, 1, 2, 3, 4))
def suppress(
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    least: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """(image, class, box) of the boxes that remain, best first in each class."""
    most = 0 if most is None else integers(most)[0]
    overlap = 0.0 if overlap is None else float(np.ravel(overlap)[0])
    least = None if least is None else float(np.ravel(least)[0])
    rows = []
    for image, corners in enumerate(boxes):
        if center_point_box:
            middle, extent = corners[:, :2], corners[:, 2:]
            corners = np.concatenate([middle - extent / 2, middle + extent / 2], axis=1)
        pairs = corners[:, :2], corners[:, 2:]
        corners = np.concatenate([np.minimum(*pairs), np.maximum(*pairs)], axis=1)
        for kind, values in enumerate(scores[image]):
            alive = np.arange(len(values)) if least is None else np.flatnonzero(values > least)
            chosen = alive[nms(corners[alive], values[alive], overlap)] if len(alive) else alive
            rows += [(image, kind, int(box)) for box in chosen[:most]]
    return np.array(rows, np.int64).reshape(-1, 3)


@operator("ImageDecoder", static=(0,))
def decode(x: Any, *, pixel_format: str = "RGB") -> Any:
    """The pixels of an encoded image, (H, W, C)."""
    pillow = optional("ImageDecoder", "the package pillow", "PIL.Image", "vision")
    picture = pillow.open(BytesIO(as_array(x).tobytes()))
    if pixel_format == "Grayscale":
        return np.asarray(picture.convert("L"))[:, :, None]
    pixels = np.asarray(picture.convert("RGB"))
    return pixels[:, :, ::-1].copy() if pixel_format == "BGR" else pixels
