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


def enter_averages(n: int) -> None:
    """Enter the pools over n axes that take means."""

    @aten(f"avg_pool{n}d")
    def averages(x, *options):
        return avg_pool(n, x, *options)

    @aten("adaptive_avg_pool1d" if n == 1 else f"_adaptive_avg_pool{n}d")
    def adaptive(x, size):
        return getattr(functional, f"adaptive_avg_pool{n}d")(x, tuple(size))

    if n > 1:
        backward = aten(f"avg_pool{n}d_backward")
        backward(lambda g, x, *options: pulled_back(lambda x: averages(x, *options), x, g))
        backward = aten(f"_adaptive_avg_pool{n}d_backward")
        backward(lambda g, x: pulled_back(lambda x: adaptive(x, g.shape[-n:]), x, g))


def enter_largest(n: int) -> None:
    """Enter the pools over n axes that take largest elements."""
    name = f"max_pool{n}d_with_indices"
    aten(name)(lambda x, *options: max_pool(n, x, *options))
    aten(f"{name}_backward")(lambda g, x, *options: max_pool_backward(n, g, x, *options))


for n in (1, 2, 3):
    enter_averages(n)
for n in (2, 3):
    enter_largest(n)


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


def upsample(*names: str, mode: str, antialias: bool = False) -> None:
    """Enter operators that resize by sizes or by factors."""

    @aten(*names)
    def entry(x, sizes, align_corners, factors):
        sizes, factors = sizes_of(x, len(sizes or factors), sizes, factors)
        return resize(x, sizes, factors, mode, align_corners, antialias)


upsample("upsample_linear1d.vec", "upsample_trilinear3d.vec", mode="bilinear")
upsample("upsample_bilinear2d.vec", mode="bilinear")
upsample("upsample_bicubic2d.vec", mode="bicubic")
upsample("_upsample_bilinear2d_aa.vec", mode="bilinear", antialias=True)
upsample("_upsample_bicubic2d_aa.vec", mode="bicubic", antialias=True)


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


# -- padding by mirroring and repeating -------------------------------------------------------


def padding(name: str, mode: str) -> None:
    """Enter the operators of a kind of padding, and their gradients."""

    @aten(f"{name}1d", f"{name}2d", f"{name}3d")
    def pad(x, widths):
        return functional.pad(x, tuple(widths), mode)

    @aten(f"{name}1d_backward", f"{name}2d_backward")
    def backward(g, x, widths):
        return pulled_back(lambda x: pad(x, widths), x, g)


padding("reflection_pad", "reflect")
padding("replication_pad", "replicate")


@aten("im2col")
def im2col(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The windows of x as columns: (N, C · window, places)."""
    return functional.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@aten("col2im")
def col2im(x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The images in which each column of x (N, C · window, places) is added at its place."""
    options = (tuple(v) for v in (size, kernel, dilation, padding, stride))
    return functional.fold(x, *options)
