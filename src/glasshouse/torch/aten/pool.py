"""Pooling, resizing, and their gradients, which the tape makes of the forward forms."""

import glasshouse as gh
from glasshouse import nn
from glasshouse.base import as_dtype
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.value import Value, cast, full
from glasshouse.torch.aten.reduce import wide
from glasshouse.torch.aten.shape import reshape, spread
from glasshouse.torch.table import aten
from glasshouse.transforms import vjp

INT64 = as_dtype("int64")
functional = nn.functional


def pulled_back(function, x: Value, g: Value) -> Value:
    """The gradient of x, where `function` of it has the gradient g."""
    _, pull = vjp(function, x)
    (grad,) = pull(g)
    return grad


def window_options(n: int, kernel, stride, padding) -> tuple:
    kernel = spread(kernel, n)
    return kernel, spread(stride, n) if stride else kernel, spread(padding, n)


def max_pool(n: int, x, kernel, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
    """(largest elements, their places in the image)."""
    kernel, stride, padding = window_options(n, kernel, stride, padding)
    function = getattr(functional, f"max_pool{n}d")
    return function(x, kernel, stride, padding, spread(dilation, n), ceil_mode, True)


@aten("max_pool2d_with_indices")
def max_pool2d(x, *options):
    return max_pool(2, x, *options)


@aten("max_pool3d_with_indices")
def max_pool3d(x, *options):
    return max_pool(3, x, *options)


def max_pool_backward(n: int, g, x, kernel, stride, padding, dilation, ceil_mode, places):
    """g at the places that were chosen, added up where windows overlap."""
    kernel, stride, padding = window_options(n, kernel, stride, padding)
    function = getattr(functional, f"max_pool{n}d")
    dilation = spread(dilation, n)
    return pulled_back(lambda x: function(x, kernel, stride, padding, dilation, ceil_mode), x, g)


@aten("max_pool2d_with_indices_backward")
def max_pool2d_backward(g, x, *options):
    return max_pool_backward(2, g, x, *options)


@aten("max_pool3d_with_indices_backward")
def max_pool3d_backward(g, x, *options):
    return max_pool_backward(3, g, x, *options)


def avg_pool(n: int, x, kernel, stride=(), padding=(0,), ceil_mode=False, count=True, divisor=None):
    kernel, stride, padding = window_options(n, kernel, stride, padding)
    function = getattr(functional, f"avg_pool{n}d")
    return function(x, kernel, stride, padding, ceil_mode, count, divisor)


@aten("avg_pool1d")
def avg_pool1d(x, *options):
    return avg_pool(1, x, *options)


@aten("avg_pool2d")
def avg_pool2d(x, *options):
    return avg_pool(2, x, *options)


@aten("avg_pool3d")
def avg_pool3d(x, *options):
    return avg_pool(3, x, *options)


@aten("avg_pool2d_backward")
def avg_pool2d_backward(g, x, *options):
    return pulled_back(lambda x: avg_pool(2, x, *options), x, g)


@aten("avg_pool3d_backward")
def avg_pool3d_backward(g, x, *options):
    return pulled_back(lambda x: avg_pool(3, x, *options), x, g)


@aten("adaptive_avg_pool1d")
def adaptive_avg_pool1d(x, size):
    return functional.adaptive_avg_pool1d(x, tuple(size))


@aten("_adaptive_avg_pool2d")
def adaptive_avg_pool2d(x, size):
    return functional.adaptive_avg_pool2d(x, tuple(size))


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(g, x):
    return pulled_back(lambda x: adaptive_avg_pool2d(x, g.shape[-2:]), x, g)


@aten("_adaptive_avg_pool3d")
def adaptive_avg_pool3d(x, size):
    return functional.adaptive_avg_pool3d(x, tuple(size))


@aten("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(g, x):
    return pulled_back(lambda x: adaptive_avg_pool3d(x, g.shape[-3:]), x, g)


# -- resizing ---------------------------------------------------------------------------------


def nearest(x: Value, sizes, scales) -> Value:
    """The nearest element to the left of each place, along the last axes."""
    for axis, (size, scale) in enumerate(zip(sizes, scales), x.ndim - len(sizes)):
        step = 1 / scale if scale else x.shape[axis] / size
        place = gh.floor(gh.arange(size, dtype=as_dtype("float32")) * step)
        place = gh.minimum(cast(place, INT64), full((), x.shape[axis] - 1, INT64))
        x = primitives["gather"](x, place, axis=axis)
    return x


def sizes_of(x: Value, count: int, sizes, factors) -> tuple[list[int], list]:
    """(new sizes, factors or None) of a resize as PyTorch is asked for one."""
    if sizes is not None:
        return list(sizes), [None] * count
    new_sizes = [int(n * f) for n, f in zip(x.shape[-count:], factors)]
    return new_sizes, list(factors)


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(x, sizes, factors):
    sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
    return nearest(x, sizes, factors)


@aten("upsample_nearest2d")
def upsample_nearest2d(x, sizes, scale_h=None, scale_w=None):
    return nearest(x, sizes, (scale_h, scale_w))


@aten("upsample_nearest2d_backward")
def upsample_nearest2d_backward(g, sizes, input_sizes, scale_h=None, scale_w=None):
    zeros = full(tuple(input_sizes), 0, g.dtype)
    return pulled_back(lambda x: nearest(x, sizes, (scale_h, scale_w)), zeros, g)


def bilinear(x: Value, sizes, align_corners: bool, scales) -> Value:
    """Linear interpolation along each of the last axes in turn.

    Source: PyTorch's documentation of interpolate, align_corners
    """
    y = wide(x)
    for axis, (size, scale) in enumerate(zip(sizes, scales), x.ndim - len(sizes)):
        y = linear_along(y, axis, size, align_corners, scale)
    return cast(y, x.dtype)


def linear_along(y: Value, axis: int, size: int, align_corners: bool, scale) -> Value:
    old = y.shape[axis]
    to = gh.arange(size, dtype=as_dtype("float32"))
    if align_corners:
        place = to * ((old - 1) / (size - 1) if size > 1 else 0.0)
    else:
        step = 1 / scale if scale else old / size
        place = gh.maximum((to + 0.5) * step - 0.5, full((), 0.0, to.dtype))
    low = gh.minimum(cast(gh.floor(place), INT64), full((), old - 1, INT64))
    high = gh.minimum(low + 1, full((), old - 1, INT64))
    part = cast(place - cast(low, place.dtype), y.dtype)
    part = reshape(part, tuple(size if i == axis else 1 for i in range(y.ndim)))
    below, above = (primitives["gather"](y, at, axis=axis) for at in (low, high))
    return below * (1 - part) + above * part


@aten("upsample_bilinear2d.vec", "upsample_linear1d.vec", "upsample_trilinear3d.vec")
def upsample_linear(x, sizes, align_corners, factors):
    sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
    return bilinear(x, sizes, align_corners, factors)


@aten("upsample_bilinear2d")
def upsample_bilinear2d(x, sizes, align_corners, scale_h=None, scale_w=None):
    return bilinear(x, sizes, align_corners, (scale_h, scale_w))


@aten("upsample_bilinear2d_backward")
def upsample_bilinear2d_backward(g, sizes, input_sizes, align_corners, scale_h=None, scale_w=None):
    zeros = full(tuple(input_sizes), 0, g.dtype)
    scales = (scale_h, scale_w)
    return pulled_back(lambda x: bilinear(x, sizes, align_corners, scales), zeros, g)


# -- padding by mirroring and repeating -------------------------------------------------------


def padded_by(x: Value, widths, place_of) -> Value:
    """x grown along its last axes by elements of its own: `place_of(place, size)` says which."""
    for i in range(len(widths) // 2):
        axis, low, high = x.ndim - 1 - i, widths[2 * i], widths[2 * i + 1]
        size = x.shape[axis]
        place = gh.arange(-low, size + high, dtype=INT64)
        x = primitives["gather"](x, place_of(place, size), axis=axis)
    return x


def mirrored(place: Value, size: int) -> Value:
    last = full((), size - 1, INT64)
    return last - gh.abs(last - gh.abs(place))


def clamped(place: Value, size: int) -> Value:
    return gh.minimum(gh.maximum(place, full((), 0, INT64)), full((), size - 1, INT64))


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x, widths):
    return padded_by(x, widths, mirrored)


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x, widths):
    return padded_by(x, widths, clamped)


@aten("reflection_pad1d_backward", "reflection_pad2d_backward")
def reflection_pad_backward(g, x, widths):
    return pulled_back(lambda x: padded_by(x, widths, mirrored), x, g)


@aten("replication_pad1d_backward", "replication_pad2d_backward")
def replication_pad_backward(g, x, widths):
    return pulled_back(lambda x: padded_by(x, widths, clamped), x, g)


@aten("im2col")
def im2col(x, kernel, dilation, padding, stride):
    """The windows of x as columns: (N, C · window, places)."""
    return functional.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@aten("col2im")
def col2im(x, size, kernel, dilation, padding, stride):
    """The images in which each column of x (N, C · window, places) is added at its place."""
    options = (tuple(v) for v in (size, kernel, dilation, padding, stride))
    return functional.fold(x, *options)
