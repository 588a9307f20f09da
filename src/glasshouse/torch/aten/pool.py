"""Pooling, resizing, and their gradients, which the tape derives from the forward forms."""

from collections.abc import Callable
from typing import Any

from glasshouse import nn
from glasshouse.dispatch.value import Value, full
from glasshouse.nn.functional import resize as resizing
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import spread
from glasshouse.torch.aten.table import aten
from glasshouse.transforms import vjp

functional = nn.functional


def pulled_back(function: Callable[..., Any], x: Value, g: Value) -> Value:
    """The gradient of x for the gradient g of `function(x)`."""
    _, pull = vjp(function, x)
    (grad,) = pull(g)
    return grad


def window_options(n: int, kernel: Any, stride: Any, padding: Any) -> tuple[Any, ...]:
    kernel = spread(kernel, n)
    return kernel, spread(stride, n) if stride else kernel, spread(padding, n)


def max_pool(
    n: int,
    x: Tensor,
    kernel: Any,
    stride: tuple[Any, ...] = (),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, ...]:
    """(largest elements, their places in the image)."""
    kernel, stride, padding = window_options(n, kernel, stride, padding)
    function = getattr(functional, f"max_pool{n}d")
    return function(x, kernel, stride, padding, spread(dilation, n), ceil_mode, True)


@aten("max_pool2d_with_indices")
def max_pool2d(x: Tensor, *options: Any) -> tuple[Tensor, ...]:
    return max_pool(2, x, *options)


@aten("max_pool3d_with_indices")
def max_pool3d(x: Any, *options: Any) -> Any:
    return max_pool(3, x, *options)


def max_pool_backward(
    n: int,
    g: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    places: Tensor,
) -> Any:
    """g at the places of the largest elements, added up where windows overlap."""
    kernel, stride, padding = window_options(n, kernel, stride, padding)
    function = getattr(functional, f"max_pool{n}d")
    dilation = spread(dilation, n)
    return pulled_back(lambda x: function(x, kernel, stride, padding, dilation, ceil_mode), x, g)


@aten("max_pool2d_with_indices_backward")
def max_pool2d_backward(g: Tensor, x: Tensor, *options: Any) -> Tensor:
    return max_pool_backward(2, g, x, *options)


@aten("max_pool3d_with_indices_backward")
def max_pool3d_backward(g: Any, x: Any, *options: Any) -> Any:
    return max_pool_backward(3, g, x, *options)


def avg_pool(
    n: int,
    x: Any,
    kernel: Any,
    stride: tuple[Any, ...] = (),
    padding: tuple[int, ...] = (0,),
    ceil_mode: bool = False,
    count: bool = True,
    divisor: Any = None,
) -> Any:
    kernel, stride, padding = window_options(n, kernel, stride, padding)
    function = getattr(functional, f"avg_pool{n}d")
    return function(x, kernel, stride, padding, ceil_mode, count, divisor)


@aten("avg_pool1d")
def avg_pool1d(x: Any, *options: Any) -> Any:
    return avg_pool(1, x, *options)


@aten("avg_pool2d")
def avg_pool2d(x: Any, *options: Any) -> Any:
    return avg_pool(2, x, *options)


@aten("avg_pool3d")
def avg_pool3d(x: Any, *options: Any) -> Any:
    return avg_pool(3, x, *options)


@aten("avg_pool2d_backward")
def avg_pool2d_backward(g: Any, x: Any, *options: Any) -> Any:
    return pulled_back(lambda x: avg_pool(2, x, *options), x, g)


@aten("avg_pool3d_backward")
def avg_pool3d_backward(g: Any, x: Any, *options: Any) -> Any:
    return pulled_back(lambda x: avg_pool(3, x, *options), x, g)


@aten("adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Any, size: Any) -> Any:
    return functional.adaptive_avg_pool1d(x, tuple(size))


@aten("_adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Any, size: Any) -> Any:
    return functional.adaptive_avg_pool2d(x, tuple(size))


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(g: Any, x: Any) -> Any:
    return pulled_back(lambda x: adaptive_avg_pool2d(x, g.shape[-2:]), x, g)


@aten("_adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Any, size: Any) -> Any:
    return functional.adaptive_avg_pool3d(x, tuple(size))


@aten("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(g: Any, x: Any) -> Any:
    return pulled_back(lambda x: adaptive_avg_pool3d(x, g.shape[-3:]), x, g)


# -- resizing ---------------------------------------------------------------------------------


def resize(
    x: Value,
    sizes: Any,
    factors: Any,
    mode: str,
    align_corners: bool = False,
    antialias: bool = False,
) -> Value:
    return resizing.resize(x, tuple(sizes), tuple(factors), mode, bool(align_corners), antialias)


def sizes_of(x: Value, count: int, sizes: Any, factors: Any) -> tuple[list[int], list[Any]]:
    """(new sizes, factors or None) of a resize, from PyTorch's arguments."""
    if sizes is not None:
        return list(sizes), [None] * count
    new_sizes = [int(n * f) for n, f in zip(x.shape[-count:], factors)]
    return new_sizes, list(factors)


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(x: Any, sizes: Any, factors: Any) -> Any:
    sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
    return resize(x, sizes, factors, "nearest")


@aten("upsample_nearest2d")
def upsample_nearest2d(x: Any, sizes: Any, scale_h: Any = None, scale_w: Any = None) -> Any:
    return resize(x, sizes, (scale_h, scale_w), "nearest")


@aten("upsample_nearest2d_backward")
def upsample_nearest2d_backward(
    g: Any, sizes: Any, input_sizes: Any, scale_h: Any = None, scale_w: Any = None
) -> Any:
    zeros = full(tuple(input_sizes), 0, g.dtype)
    return pulled_back(lambda x: resize(x, sizes, (scale_h, scale_w), "nearest"), zeros, g)


@aten("upsample_bilinear2d.vec", "upsample_linear1d.vec", "upsample_trilinear3d.vec")
def upsample_linear(x: Any, sizes: Any, align_corners: Any, factors: Any) -> Any:
    sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
    return resize(x, sizes, factors, "bilinear", align_corners)


@aten("upsample_bilinear2d")
def upsample_bilinear2d(
    x: Any, sizes: Any, align_corners: Any, scale_h: Any = None, scale_w: Any = None
) -> Any:
    return resize(x, sizes, (scale_h, scale_w), "bilinear", align_corners)


@aten("upsample_bilinear2d_backward")
def upsample_bilinear2d_backward(
    g: Any,
    sizes: Any,
    input_sizes: Any,
    align_corners: Any,
    scale_h: Any = None,
    scale_w: Any = None,
) -> Any:
    zeros = full(tuple(input_sizes), 0, g.dtype)
    scales = (scale_h, scale_w)
    return pulled_back(lambda x: resize(x, sizes, scales, "bilinear", align_corners), zeros, g)


@aten("upsample_bicubic2d.vec")
def upsample_bicubic(x: Any, sizes: Any, align_corners: Any, factors: Any) -> Any:
    sizes, factors = sizes_of(x, 2, sizes, factors)
    return resize(x, sizes, factors, "bicubic", align_corners)


@aten("_upsample_bilinear2d_aa.vec")
def upsample_bilinear_antialiased(x: Any, sizes: Any, align_corners: Any, factors: Any) -> Any:
    sizes, factors = sizes_of(x, 2, sizes, factors)
    return resize(x, sizes, factors, "bilinear", align_corners, antialias=True)


@aten("_upsample_bicubic2d_aa.vec")
def upsample_bicubic_antialiased(x: Any, sizes: Any, align_corners: Any, factors: Any) -> Any:
    sizes, factors = sizes_of(x, 2, sizes, factors)
    return resize(x, sizes, factors, "bicubic", align_corners, antialias=True)


# -- padding by mirroring and repeating -------------------------------------------------------


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: Any, widths: Any) -> Any:
    return functional.pad(x, tuple(widths), "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: Any, widths: Any) -> Any:
    return functional.pad(x, tuple(widths), "replicate")


@aten("reflection_pad1d_backward", "reflection_pad2d_backward")
def reflection_pad_backward(g: Any, x: Any, widths: Any) -> Any:
    return pulled_back(lambda x: reflection_pad(x, widths), x, g)


@aten("replication_pad1d_backward", "replication_pad2d_backward")
def replication_pad_backward(g: Any, x: Any, widths: Any) -> Any:
    return pulled_back(lambda x: replication_pad(x, widths), x, g)


@aten("im2col")
def im2col(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The windows of x as columns: (N, C · window, places)."""
    return functional.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@aten("col2im")
def col2im(x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The images in which each column of x (N, C · window, places) is added at its place."""
    options = (tuple(v) for v in (size, kernel, dilation, padding, stride))
    return functional.fold(x, *options)
