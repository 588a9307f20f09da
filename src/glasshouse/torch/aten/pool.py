"""Pooling, resizing, and their gradients, which the tape derives from the forward forms."""

from glasshouse import nn
from glasshouse.dispatch.value import Value, full
from glasshouse.nn.functional import resize as resizing
from glasshouse.torch.aten.shape import spread
from glasshouse.torch.aten.table import aten
from glasshouse.transforms import vjp

functional = nn.functional


def pulled_back(function, x: Value, g: Value) -> Value:
    """The gradient of x for the gradient g of `function(x)`."""
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
    """g at the places of the largest elements, added up where windows overlap."""
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


def resize(x: Value, sizes, factors, mode: str, align_corners=False, antialias=False) -> Value:
    return resizing.resize(x, tuple(sizes), tuple(factors), mode, bool(align_corners), antialias)


def sizes_of(x: Value, count: int, sizes, factors) -> tuple[list[int], list]:
    """(new sizes, factors or None) of a resize, from PyTorch's arguments."""
    if sizes is not None:
        return list(sizes), [None] * count
    new_sizes = [int(n * f) for n, f in zip(x.shape[-count:], factors)]
    return new_sizes, list(factors)


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(x, sizes, factors):
    sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
    return resize(x, sizes, factors, "nearest")


@aten("upsample_nearest2d")
def upsample_nearest2d(x, sizes, scale_h=None, scale_w=None):
    return resize(x, sizes, (scale_h, scale_w), "nearest")


@aten("upsample_nearest2d_backward")
def upsample_nearest2d_backward(g, sizes, input_sizes, scale_h=None, scale_w=None):
    zeros = full(tuple(input_sizes), 0, g.dtype)
    return pulled_back(lambda x: resize(x, sizes, (scale_h, scale_w), "nearest"), zeros, g)


@aten("upsample_bilinear2d.vec", "upsample_linear1d.vec", "upsample_trilinear3d.vec")
def upsample_linear(x, sizes, align_corners, factors):
    sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
    return resize(x, sizes, factors, "bilinear", align_corners)


@aten("upsample_bilinear2d")
def upsample_bilinear2d(x, sizes, align_corners, scale_h=None, scale_w=None):
    return resize(x, sizes, (scale_h, scale_w), "bilinear", align_corners)


@aten("upsample_bilinear2d_backward")
def upsample_bilinear2d_backward(g, sizes, input_sizes, align_corners, scale_h=None, scale_w=None):
    zeros = full(tuple(input_sizes), 0, g.dtype)
    scales = (scale_h, scale_w)
    return pulled_back(lambda x: resize(x, sizes, scales, "bilinear", align_corners), zeros, g)


@aten("upsample_bicubic2d.vec")
def upsample_bicubic(x, sizes, align_corners, factors):
    sizes, factors = sizes_of(x, 2, sizes, factors)
    return resize(x, sizes, factors, "bicubic", align_corners)


@aten("_upsample_bilinear2d_aa.vec")
def upsample_bilinear_antialiased(x, sizes, align_corners, factors):
    sizes, factors = sizes_of(x, 2, sizes, factors)
    return resize(x, sizes, factors, "bilinear", align_corners, antialias=True)


@aten("_upsample_bicubic2d_aa.vec")
def upsample_bicubic_antialiased(x, sizes, align_corners, factors):
    sizes, factors = sizes_of(x, 2, sizes, factors)
    return resize(x, sizes, factors, "bicubic", align_corners, antialias=True)


# -- padding by mirroring and repeating -------------------------------------------------------


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x, widths):
    return functional.pad(x, tuple(widths), "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x, widths):
    return functional.pad(x, tuple(widths), "replicate")


@aten("reflection_pad1d_backward", "reflection_pad2d_backward")
def reflection_pad_backward(g, x, widths):
    return pulled_back(lambda x: reflection_pad(x, widths), x, g)


@aten("replication_pad1d_backward", "replication_pad2d_backward")
def replication_pad_backward(g, x, widths):
    return pulled_back(lambda x: replication_pad(x, widths), x, g)


@aten("im2col")
def im2col(x, kernel, dilation, padding, stride):
    """The windows of x as columns: (N, C · window, places)."""
    return functional.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@aten("col2im")
def col2im(x, size, kernel, dilation, padding, stride):
    """The images in which each column of x (N, C · window, places) is added at its place."""
    options = (tuple(v) for v in (size, kernel, dilation, padding, stride))
    return functional.fold(x, *options)
