"""Images read at places that are given as numbers: grid_sample, and the grids of affine maps."""

from itertools import product
from math import prod
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, cast, full, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import check_floating, check_ndim, int_tuple
from glasshouse.nn.functional.axes import AXES
from glasshouse.ops.checks import check_option
from glasshouse.ops.index import gather
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor, abs, arange, expand_dims, floor, round, stack
from glasshouse.tensor import where as choose

SAMPLE_MODES = ("bilinear", "nearest", "bicubic")
OUTSIDE = ("zeros", "border", "reflection")
CUBIC = -0.75  # the slope of PyTorch's cubic kernel at 1


@composed
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Any = None,
) -> Any:
    """Images read at the places of a grid, which are (x, y) or (x, y, z) in [-1, 1].

    -1 and 1 are the edges of the image, or with `align_corners` the middles of its outermost
    elements. Modes: "bilinear" (trilinear in volumes), "nearest", "bicubic" (images only). Outside
    are zeros, the border, or the image mirrored ("reflection").

    Shapes: input (N, C, H, W), grid (N, h, w, 2) -> (N, C, h, w);
        input (N, C, D, H, W), grid (N, d, h, w, 3) -> (N, C, d, h, w).
    Raises: ShapeError for a grid that does not fit; OptionError for an unknown mode.
    Source: Jaderberg et al. 2015, arXiv:1506.02025, eq. 3 to 5; Keys 1981 (bicubic).
    Example:
        >>> grid_sample([[[[1.0, 3.0]]]], [[[[0.0, 0.0]]]]).tolist()
        [[[[2.0]]]]
    """
    where = "grid_sample"
    x, grid = check_floating(where, input), check_floating(where, grid, "grid")
    check_ndim(where, x, (4, 5), f"(N, C, {AXES[2]}) or (N, C, {AXES[3]})")
    n = x.ndim - 2
    check_option(where, "mode", mode, SAMPLE_MODES)
    check_option(where, "padding_mode", padding_mode, OUTSIDE)
    if grid.ndim != x.ndim or grid.shape[-1] != n or grid.shape[0] != x.shape[0]:
        raise ShapeError(
            where,
            f"a grid ({x.shape[0]}, {', '.join('d h w'.split()[-n:])}, {n}) for input {x.shape}",
            grid.shape,
            "Its last axis holds x, y and, in volumes, z.",
        )
    if 0 in x.shape[1:]:
        raise ShapeError(where, "images with elements", x.shape, "Leave empty images out.")
    if mode == "bicubic" and n != 2:
        expected = "mode 'bilinear' or 'nearest' for volumes"
        fix = "Change the mode."
        raise OptionError(where, expected, f"mode 'bicubic' and input {x.shape}", fix)
    return cast(sampled(widen(x), widen(grid), mode, padding_mode, bool(align_corners)), x.dtype)


def sampled(x: Tensor, grid: Tensor, mode: str, outside: str, align_corners: bool) -> Tensor:
    image, n = SampledImage(x), x.ndim - 2
    # the grid's last axis names the columns first, the image's axes end with them
    axes = [(grid[..., n - 1 - i], image.sizes[i]) for i in range(n)]
    places = [place_in_image(at, size, align_corners) for at, size in axes]
    if mode == "bicubic":
        y = read_cubic(image, places, outside, align_corners)
    else:
        pairs = zip(places, image.sizes, strict=True)
        places = [within(place, size, outside, align_corners) for place, size in pairs]
        nearest = mode == "nearest"
        y = image.read([round(p) for p in places]) if nearest else read_linear(image, places)
    return permute(y, axes=(0, n + 1, *range(1, n + 1)))


def place_in_image(coordinate: Tensor, size: int, align_corners: bool) -> Tensor:
    """From [-1, 1] to places along an axis of `size` elements."""
    if align_corners:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) / 2


def within(place: Tensor, size: int, outside: str, align_corners: bool) -> Tensor:
    """The places to read, with those outside the image mapped by the mode `outside`."""
    if outside == "reflection":
        place = reflected(place, size, align_corners)
    return place if outside == "zeros" else bounded(place, 0.0, size - 1.0)


def bounded(place: Tensor, low: float, high: float) -> Tensor:
    """Places clamped to [low, high]; those at a bound have no gradient, as in PyTorch."""
    zero = full((), 0, place.dtype)
    inside = (place > low) & (place < high)
    return choose(inside, place, choose(place >= high, zero + high, zero + low))


def reflected(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """Places mirrored into the image at its outermost elements, or at its edges."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span <= 0:
        return place * 0
    away = abs(place - low)
    turns = floor(away / span)
    rest = away - turns * span
    return choose(turns % 2 == 0, rest + low, span - rest + low)


class SampledImage:
    """Images (N, C, *S) as rows of channels, read at whole places."""

    images: int
    channels: int
    sizes: list[int]

    def __init__(self, x: Tensor) -> None:
        self.images, self.channels, *self.sizes = x.shape
        last = permute(x, axes=(0, *range(2, x.ndim), 1))
        self.rows: Any = reshape(last, (self.images * prod(self.sizes), self.channels))

    def read(self, places: list[Tensor]) -> Tensor:
        """(N, *s, C) at whole places given as floats (N, *s), one for each axis; zeros outside."""
        inside: Any = None
        for place, size in zip(places, self.sizes, strict=True):
            fits = (place >= 0) & (place <= size - 1)
            inside = fits if inside is None else inside & fits
        at = reshape(arange(self.images), (self.images,) + (1,) * (inside.ndim - 1))
        for place, size in zip(places, self.sizes, strict=True):
            at = at * size + cast(choose(inside, place, full((), 0, place.dtype)), at.dtype)
        pixels = gather(self.rows, reshape(at, (at.size,)), axis=0)
        pixels = reshape(pixels, (*at.shape, self.channels))
        return choose(expand_dims(inside, -1), pixels, full((), 0, pixels.dtype))


def read_linear(image: SampledImage, places: list[Tensor]) -> Tensor:
    """Weighted by nearness, the elements at the corners of the cell that each place lies in."""
    lows = [floor(place) for place in places]
    total: Any = None
    for corner in product((0, 1), repeat=len(places)):
        shares = [
            place - low if side else low + 1 - place
            for place, low, side in zip(places, lows, corner, strict=True)
        ]
        at = [low + side for low, side in zip(lows, corner, strict=True)]
        part = expand_dims(prod(shares[1:], start=shares[0]), -1) * image.read(at)
        total = part if total is None else total + part
    return total


def cubic_weights(part: Tensor) -> list[Tensor]:
    """The weights of the four neighbours of a place, `part` of the way from the second on.

    Source: Keys 1981, cubic convolution interpolation, equation 4
    """

    def near(t):
        return ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1

    def far(t):
        return ((CUBIC * t - 5 * CUBIC) * t + 8 * CUBIC) * t - 4 * CUBIC

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def read_cubic(
    image: SampledImage, places: list[Tensor], outside: str, align_corners: Any
) -> Tensor:
    top, left = (floor(place) for place in places)
    heights, widths = (cubic_weights(p - low) for p, low in zip(places, (top, left), strict=True))
    total: Any = None
    for i, height in enumerate(heights):
        y = within(top + (i - 1), image.sizes[0], outside, align_corners)
        for j, width in enumerate(widths):
            x = within(left + (j - 1), image.sizes[1], outside, align_corners)
            part = expand_dims(height * width, -1) * image.read([floor(y), floor(x)])
            total = part if total is None else total + part
    return total


@composed
def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: Any = None) -> Any:
    """The grid for `grid_sample` that shows an image through the affine map θ.

    grid[n, i, j] = θₙ · (xⱼ, yᵢ, 1), x and y from -1 to 1 over the axes of the result: its edges,
    or with `align_corners` the middles of its outermost elements.

    Shapes: theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2);
        theta (N, 3, 4), size (N, C, D, H, W) -> (N, D, H, W, 3).
    Raises: ShapeError for a theta of another shape; OptionError for another size.
    Source: Jaderberg et al. 2015, arXiv:1506.02025, eq. 1.
    Example:
        >>> affine_grid([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], (1, 1, 1, 2)).tolist()
        [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    where = "affine_grid"
    theta = check_floating(where, theta, "theta")
    sizes = int_tuple(where, "size", size, 5 if len(size) == 5 else 4, 1)
    n = len(sizes) - 2
    if theta.shape != (sizes[0], n, n + 1):
        expected = f"a theta {(sizes[0], n, n + 1)} for size {sizes}"
        raise ShapeError(where, expected, theta.shape, "Give an affine map for each image.")
    wide = widen(theta)
    coordinates = []
    for i in range(n):  # x, y, …: from the last axis on
        at = as_value(from_edge_to_edge(sizes[-1 - i], align_corners), wide.dtype)
        coordinates.append(reshape(at, (sizes[-1 - i],) + (1,) * i))
    rows = []
    for i in range(n):
        factor = reshape(wide[:, i], (sizes[0], n + 1) + (1,) * n)
        terms = [factor[:, j] * at for j, at in enumerate(coordinates)]
        rows.append(sum(terms, factor[:, n]))
    return cast(stack(rows, axis=-1), theta.dtype)


def from_edge_to_edge(size: int, align_corners: Any) -> np.ndarray:
    if size == 1:
        return np.zeros(1)
    at = np.linspace(-1.0, 1.0, size)
    return at if align_corners else at * ((size - 1) / size)
