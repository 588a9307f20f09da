"""Channels moved into space and back, and mixed between groups."""

from math import prod

from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn.checks import check_divides, check_positive
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor


@composed
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels spread over space: y[c, h·r + i, w·r + j] = x[c·r² + i·r + j, h, w].

    Shapes: (..., C·r², H, W) -> (..., C, H·r, W·r).
    Raises: OptionError unless r² divides the channels; ShapeError for fewer than three axes.
    Source: Shi et al. 2016, arXiv:1609.05158, eq. 4.
    Example:
        >>> pixel_shuffle([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], 2).tolist()
        [[[1.0, 2.0], [3.0, 4.0]]]
    """
    x, r = image_operand("pixel_shuffle", input), upscale_factor
    check_positive("pixel_shuffle", upscale_factor=r)
    *lead, channels, height, width = x.shape
    check_divides("pixel_shuffle", "channels", channels, "upscale_factor²", r * r)
    x = reshape(x, (*lead, channels // (r * r), r, r, height, width))
    order = tuple(len(lead) + i for i in (0, 3, 1, 4, 2))
    x = permute(x, axes=(*range(len(lead)), *order))
    return reshape(x, (*lead, channels // (r * r), height * r, width * r))


@composed
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of `pixel_shuffle`: blocks of r × r elements become channels.

    Shapes: (..., C, H·r, W·r) -> (..., C·r², H, W).
    Raises: OptionError unless r divides both spatial axes; ShapeError for fewer than three axes.
    Source: Shi et al. 2016, arXiv:1609.05158.
    """
    x, r = image_operand("pixel_unshuffle", input), downscale_factor
    check_positive("pixel_unshuffle", downscale_factor=r)
    *lead, channels, height, width = x.shape
    check_divides("pixel_unshuffle", "height", height, "downscale_factor", r)
    check_divides("pixel_unshuffle", "width", width, "downscale_factor", r)
    x = reshape(x, (*lead, channels, height // r, r, width // r, r))
    order = tuple(len(lead) + i for i in (0, 2, 4, 1, 3))
    x = permute(x, axes=(*range(len(lead)), *order))
    return reshape(x, (*lead, channels * r * r, height // r, width // r))


def image_operand(where: str, input: Tensor) -> Tensor:
    x = as_value(input, where=where)
    if x.ndim < 3:
        raise ShapeError(where, "an input (..., C, H, W)", x.shape, "Add the missing axes.")
    return x


@composed
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of all groups in turn: y[:, c·groups + g] = x[:, g·(C / groups) + c].

    Shapes: (N, C, *S) -> the same.
    Raises: OptionError unless groups divides the channels; ShapeError for fewer than three axes.
    Source: Zhang et al. 2017, arXiv:1707.01083, sec. 3.1.
    Example:
        >>> channel_shuffle([[[1.0], [2.0], [3.0], [4.0]]], 2).tolist()
        [[[1.0], [3.0], [2.0], [4.0]]]
    """
    x = as_value(input, where="channel_shuffle")
    if x.ndim < 3:
        raise ShapeError("channel_shuffle", "an input (N, C, *S)", x.shape, "Add an axis.")
    n, channels, *sizes = x.shape
    check_divides("channel_shuffle", "channels", channels, "groups", groups)
    parts = reshape(x, (n, groups, channels // groups, prod(sizes)))
    return reshape(permute(parts, axes=(0, 2, 1, 3)), x.shape)
