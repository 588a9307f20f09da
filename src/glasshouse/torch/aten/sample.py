"""Images read at places that are given as numbers, and the gradients of that."""

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.value import Value, cast, full
from glasshouse.ops.movement import permute
from glasshouse.torch.aten.reduce import wide
from glasshouse.torch.aten.shape import reshape
from glasshouse.torch.table import aten
from glasshouse.transforms import vjp

INT64 = as_dtype("int64")
BILINEAR, NEAREST, BICUBIC = 0, 1, 2  # how places between elements are read
ZEROS, BORDER, REFLECTION = 0, 1, 2  # what lies outside of the image
CUBIC = -0.75  # the constant of PyTorch's cubic convolution


def bounded(place: Value, low: float, high: float) -> Value:
    """Places within [low, high]; what was outside has no gradient, as in PyTorch."""
    zero = full((), 0, place.dtype)
    inside = (place > low) & (place < high)
    return gh.where(inside, place, gh.where(place >= high, zero + high, zero + low))


def reflected(place: Value, size: int, align_corners: bool) -> Value:
    """Places mirrored into the image at its outermost elements, or at its edges."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span <= 0:
        return place * 0
    away = gh.abs(place - low)
    turns = gh.floor(away / span)
    rest = away - turns * span
    return gh.where(turns % 2 == 0, rest + low, span - rest + low)


def within(place: Value, size: int, padding: int, align_corners: bool) -> Value:
    """The places that are read for these, by what lies outside of the image."""
    if padding == REFLECTION:
        place = reflected(place, size, align_corners)
    return place if padding == ZEROS else bounded(place, 0.0, size - 1.0)


def place_in_image(coordinate: Value, size: int, align_corners: bool) -> Value:
    """From [-1, 1] to places along an axis of `size` elements."""
    if align_corners:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) / 2


class SampledImage:
    """Images (N, C, H, W) as rows of channels, read at whole places."""

    def __init__(self, x: Value):
        self.images, self.channels, self.height, self.width = x.shape
        pixels = self.images * self.height * self.width
        self.rows = reshape(permute(x, axes=(0, 2, 3, 1)), (pixels, self.channels))

    def read(self, row: Value, column: Value) -> Value:
        """(N, h, w, C) at whole places given as floats (N, h, w); zeros outside."""
        inside = (row >= 0) & (row <= self.height - 1)
        inside = inside & (column >= 0) & (column <= self.width - 1)
        zero = full((), 0, row.dtype)
        row, column = (cast(gh.where(inside, p, zero), INT64) for p in (row, column))
        first = gh.arange(self.images, dtype=INT64) * (self.height * self.width)
        place = reshape(first, (self.images, 1, 1)) + row * self.width + column
        taken = primitives["gather"](self.rows, reshape(place, (place.size,)), axis=0)
        taken = reshape(taken, (*place.shape, self.channels))
        return gh.where(gh.expand_dims(inside, -1), taken, full((), 0, taken.dtype))


def weighted(weight: Value, pixels: Value) -> Value:
    """Pixels (N, h, w, C) times a weight (N, h, w) each."""
    return gh.expand_dims(weight, -1) * pixels


def read_linear(image: SampledImage, row: Value, column: Value) -> Value:
    top, left = gh.floor(row), gh.floor(column)
    total = None
    for below in (0, 1):
        for right in (0, 1):
            height = row - top if below else top + 1 - row
            width = column - left if right else left + 1 - column
            part = weighted(height * width, image.read(top + below, left + right))
            total = part if total is None else total + part
    return total


def cubic_weights(part: Value) -> list[Value]:
    """The weights of the four neighbours of a place, `part` of the way from the second on.

    Source: Keys 1981, cubic convolution interpolation, equation 4
    """

    def near(t):
        return ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1

    def far(t):
        return ((CUBIC * t - 5 * CUBIC) * t + 8 * CUBIC) * t - 4 * CUBIC

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def read_cubic(image: SampledImage, row, column, padding: int, align_corners: bool) -> Value:
    top, left = gh.floor(row), gh.floor(column)
    heights, widths = cubic_weights(row - top), cubic_weights(column - left)
    total = None
    for i, height in enumerate(heights):
        y = within(top + (i - 1), image.height, padding, align_corners)
        for j, width in enumerate(widths):
            x = within(left + (j - 1), image.width, padding, align_corners)
            part = weighted(height * width, image.read(gh.floor(y), gh.floor(x)))
            total = part if total is None else total + part
    return total


@aten("grid_sampler_2d")
def grid_sampler(x, grid, interpolation, padding, align_corners):
    """(N, C, h, w): images (N, C, H, W) at the places (column, row) of a grid (N, h, w, 2)."""
    if 0 in x.shape or 0 in grid.shape:
        raise NotImplementedError
    image, grid = SampledImage(wide(x)), wide(grid)
    column = place_in_image(grid[..., 0], x.shape[3], align_corners)
    row = place_in_image(grid[..., 1], x.shape[2], align_corners)
    if interpolation == BICUBIC:
        y = read_cubic(image, row, column, padding, align_corners)
    else:
        column = within(column, x.shape[3], padding, align_corners)
        row = within(row, x.shape[2], padding, align_corners)
        if interpolation == NEAREST:
            y = image.read(gh.round(row), gh.round(column))
        else:
            y = read_linear(image, row, column)
    return cast(permute(y, axes=(0, 3, 1, 2)), x.dtype)


@aten("grid_sampler_2d_backward")
def grid_sampler_backward(g, x, grid, interpolation, padding, align_corners, mask):
    """The gradients of images and grid."""

    def sampled(x, grid):
        return grid_sampler(x, grid, interpolation, padding, align_corners)

    _, pull = vjp(sampled, x, grid)
    return [grad if wanted else None for grad, wanted in zip(pull(g), mask)]
