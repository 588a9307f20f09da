"""Layers of images and signals: padding, resizing, shuffling, and pooling that is not the usual."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from glasshouse.dispatch.value import as_value
from glasshouse.nn import functional
from glasshouse.nn.checks import check_ndim, int_tuple
from glasshouse.nn.functional import unpool
from glasshouse.nn.functional.axes import AXES
from glasshouse.nn.layer import Layer, by_axes, layer
from glasshouse.nn.layers import PoolLayer
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor

__all__ = ["ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d",
           "ConstantPad2d", "ConstantPad3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
           "LPPool1d", "LPPool2d", "LPPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
           "PixelShuffle", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d",
           "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
           "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d",
           "ZeroPad3d"]  # fmt: skip


class PaddingLayer(Module):
    """Base of padding layers: `padding` has (low, high) of the last axis, then the one before …"""

    n: int = 0
    mode: str = "constant"
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        least = -(2**63)  # negative widths crop
        self.padding: tuple[int, ...] = int_tuple(
            type(self).__name__, "padding", padding, 2 * self.n, least
        )

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where=type(self).__name__)
        if self.mode != "constant":
            layout = f"(C, {AXES[self.n]}) or (N, C, {AXES[self.n]})"
            check_ndim(type(self).__name__, x, (self.n + 1, self.n + 2), layout)
        return functional.pad(x, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad(PaddingLayer):
    """`functional.pad` with a value: `padding` of {n} axes is one width, or a low and a high one
    for each, the last axis first.

    Shapes: (..., {s}) -> (..., {t}).
    Raises: OptionError for another number of widths.
    Source: standard.
    """

    _shown = ("padding", "value")
    extra_repr: Callable[..., str] = Module.extra_repr

    def __init__(self, padding: int | Sequence[int], value: int) -> None:
        super().__init__(padding)
        self.value: int = value


class ZeroPad(PaddingLayer):
    """`functional.pad` with zeros; see `ConstantPad{n}d`.

    Shapes: (..., {s}) -> (..., {t}).
    Source: standard.
    """


class ReflectionPad(PaddingLayer):
    """`functional.pad` with the input mirrored at its outermost elements; see `ConstantPad{n}d`.

    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}).
    Raises: ShapeError for widths as large as the axis, or another number of axes.
    Source: standard.
    """

    mode = "reflect"


class ReplicationPad(PaddingLayer):
    """`functional.pad` with the outermost elements repeated; see `ConstantPad{n}d`.

    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}).
    Raises: ShapeError for another number of axes.
    Source: standard.
    """

    mode = "replicate"


class CircularPad(PaddingLayer):
    """`functional.pad` from the other end of the input; see `ConstantPad{n}d`.

    Shapes: (N, C, {s}) or (C, {s}) -> (N, C, {t}).
    Raises: ShapeError for widths larger than the axis, or another number of axes.
    Source: standard.
    """

    mode = "circular"


ConstantPad3d: type[Any]
ConstantPad2d: type[Any]
ConstantPad1d: type[Any]
ConstantPad1d, ConstantPad2d, ConstantPad3d = by_axes(ConstantPad)
ZeroPad3d: type[Any]
ZeroPad2d: type[Any]
ZeroPad1d: type[Any]
ZeroPad1d, ZeroPad2d, ZeroPad3d = by_axes(ZeroPad)
ReflectionPad3d: type[Any]
ReflectionPad2d: type[Any]
ReflectionPad1d: type[Any]
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = by_axes(ReflectionPad)
ReplicationPad3d: type[Any]
ReplicationPad2d: type[Any]
ReplicationPad1d: type[Any]
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = by_axes(ReplicationPad)
CircularPad3d: type[Any]
CircularPad2d: type[Any]
CircularPad1d: type[Any]
CircularPad1d, CircularPad2d, CircularPad3d = by_axes(CircularPad)


class Resizing(Layer):
    """Base of resizing layers: keeps factors as floats, shows the size or scale_factor set."""

    mode = "nearest"

    def __init__(self, options: dict[Any, Any]) -> None:
        factor = options["scale_factor"]
        if isinstance(factor, Real):
            options["scale_factor"] = float(factor)
        elif factor is not None:
            options["scale_factor"] = tuple(map(float, factor))
        super().__init__(options)

    def extra_repr(self) -> str:
        option = "size" if self.scale_factor is None else "scale_factor"
        return f"{option}={getattr(self, option)}, mode={self.mode!r}"


class Upsample(
    layer(  # type: ignore[misc]  # layer makes a class
        "Upsample",
        functional.interpolate,
        "size scale_factor mode align_corners recompute_scale_factor",
        base=Resizing,
    )
):
    """`functional.interpolate` as a layer, by a factor or to a size.

    Shapes: (N, C, *S) with 1 to 3 spatial axes -> (N, C, *size).
    Source: Keys 1981; places and kernels as in PyTorch.
    """


class UpsamplingNearest2d(
    layer(  # type: ignore[misc]  # layer makes a class
        "UpsamplingNearest2d", functional.interpolate, "size scale_factor", base=Resizing
    )
):
    """`functional.interpolate` of images by mode "nearest".

    Shapes: (N, C, H, W) -> (N, C, H', W').
    Source: standard.
    """


class UpsamplingBilinear2d(
    layer(  # type: ignore[misc]  # layer makes a class
        "UpsamplingBilinear2d", functional.interpolate, "size scale_factor", base=Resizing
    )
):
    """`functional.interpolate` of images by mode "bilinear" with aligned corners.

    Shapes: (N, C, H, W) -> (N, C, H', W').
    Source: standard.
    """

    mode = "bilinear"
    argument_names: tuple[str, ...] = ("size", "scale_factor", "mode", "align_corners")
    align_corners = True


PixelShuffle: type[Any] = layer("PixelShuffle", functional.pixel_shuffle)
PixelUnshuffle: type[Any] = layer("PixelUnshuffle", functional.pixel_unshuffle)
ChannelShuffle: type[Any] = layer("ChannelShuffle", functional.channel_shuffle)


class LPPoolLayer(PoolLayer):
    """A PoolLayer whose stride stays as it was given."""

    def __init__(self, options: dict[Any, Any]) -> None:
        Layer.__init__(self, options)


DOC = "{n} spatial axes pooled. Shapes: (N, C, {s}) -> (N, C, {t})"
LPPool: type[Any] = layer(
    "LPPool",
    unpool.lp_pool,
    "norm_type kernel_size stride ceil_mode",
    base=LPPoolLayer,
    __doc__=DOC,
)
LPPool3d: type[Any]
LPPool2d: type[Any]
LPPool1d: type[Any]
LPPool1d, LPPool2d, LPPool3d = by_axes(LPPool)


class FractionalMaxPoolLayer(PoolLayer):
    """A PoolLayer that shows nothing."""

    shown: tuple[()] = ()


FractionalMaxPool: type[Any] = layer(
    "FractionalMaxPool",
    unpool.fractional_max_pool,
    "kernel_size output_size output_ratio return_indices _random_samples",
    base=FractionalMaxPoolLayer,
    tensors=("_random_samples",),
    __doc__=DOC,
)
FractionalMaxPool3d: type[Any]
FractionalMaxPool2d: type[Any]
_: type[Any]
_, FractionalMaxPool2d, FractionalMaxPool3d = by_axes(FractionalMaxPool)


class MaxUnpool(Module):
    """`functional.max_unpool{n}d` as a layer: undoes a MaxPool{n}d, but for lost elements.

    Shapes: (N, C, {s}) and indices of the same shape -> (N, C, {t}).
    Raises: ShapeError for indices of another shape; OptionError for an output_size that is a stride
        or more away.
    Source: Zeiler & Fergus 2013, arXiv:1311.2901, sec. 2.1.
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    n = 0
    _shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        options = (type(self).__name__, self.n, kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding = unpool.pool_options(*options)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        options = (self.kernel_size, self.stride, self.padding, output_size)
        return unpool.max_unpool(type(self).__name__, self.n, input, indices, *options)


MaxUnpool3d: type[Any]
MaxUnpool2d: type[Any]
MaxUnpool1d: type[Any]
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = by_axes(MaxUnpool)
