"""Blocks of layers: residual, squeeze-and-excitation, separable and asymmetric convolutions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import as_value
from glasshouse.nn.checks import check_ndim, check_positive, check_probability
from glasshouse.nn.containers import Sequential
from glasshouse.nn.conv import Conv, Conv1d, Conv2d, Conv3d
from glasshouse.nn.functional.padding import pad
from glasshouse.nn.layer import by_axes
from glasshouse.nn.layers import AdaptiveAvgPool2d, ReLU, Sigmoid
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor

__all__ = ["AsymmetricConv1d", "Residual", "SeparableConv1d", "SeparableConv2d", "SeparableConv3d",
           "SqueezeExcitation"]  # fmt: skip

CONVS: dict[int, Callable[..., Any]] = {1: Conv1d, 2: Conv2d, 3: Conv3d}


class Residual(Sequential):
    """Layers in a row with shortcuts between them.

    Without shortcuts of one's own the block is x + layers(x). `add_shortcut(i, j)` adds the result
    of the first i layers (0: the input) to that of the first j, before the next one takes it; a
    projection is a layer that the shortcut passes. `add_scale(j, s)` multiplies that sum by s.

    Shapes: as those of the layers.
    Raises: OptionError for a shortcut or scale between layers that there are not.
    Source: He et al. 2015, arXiv:1512.03385, eq. 1 and 2; shortcuts as in Flashlight.
    Example:
        >>> from glasshouse import nn
        >>> Residual(nn.ReLU())(gh.asarray([-1.0, 2.0])).tolist()
        [-1.0, 4.0]
    """

    count: int
    shortcuts: dict[Any, Any]
    scales: dict[Any, Any]

    def __init__(self, *layers: Module) -> None:
        super().__init__(*layers)
        self.shortcuts, self.scales, self.count = {}, {}, len(self._modules)

    def add_shortcut(self, start: int, stop: int, projection: Module | None = None) -> Self:
        """This block, with a shortcut over the layers from `start` to before `stop`."""
        if not 0 <= start < stop <= self.count or (start, stop) in self.shortcuts:
            expected = f"0 <= start < stop <= {self.count}, once each"
            got = f"start={start} and stop={stop}"
            fix = "Count the layers from 0; the result comes after the last one."
            raise OptionError("Residual.add_shortcut", expected, got, fix)
        if projection is not None:
            self.add_module(f"shortcut{start}to{stop}", projection)
        self.shortcuts[start, stop] = projection is not None
        return self

    def add_scale(self, stop: int, scale: float) -> Self:
        """This block, with the sum after the first `stop` layers multiplied by `scale`."""
        if not 0 <= stop <= self.count:
            fix = "Change it."
            raise OptionError("Residual.add_scale", f"a layer from 0 to {self.count}", stop, fix)
        self.scales[stop] = scale
        return self

    def forward(self, input: Tensor) -> Tensor:
        layers = list(self._modules.values())[: self.count]
        shortcuts = self.shortcuts or {(0, self.count): False}
        results: list[Any] = []
        x = as_value(input, where="Residual")
        for stop in range(self.count + 1):
            produced = x
            for (start, end), projected in shortcuts.items():
                if end == stop:
                    source = results[start]
                    name = f"shortcut{start}to{stop}"
                    x = x + (self._modules[name](source) if projected else source)
            results.append(produced)
            x = x * self.scales[stop] if stop in self.scales else x
            if stop < self.count:
                x = layers[stop](x)
        return x


class SqueezeExcitation(Module):
    """x times a gate for each channel: sigmoid(fc2(relu(fc1(mean of the channel)))).

    Shapes: (N, C, H, W) -> the same.
    Raises: ShapeError for another number of channels.
    Source: Hu et al. 2017, arXiv:1709.01507, eq. 3; names of torchvision.
    """

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable[..., Any] = ReLU,
        scale_activation: Callable[..., Any] = Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool: Any = AdaptiveAvgPool2d(1)
        self.fc1: Any = Conv2d(input_channels, squeeze_channels, 1)
        self.fc2: Any = Conv2d(squeeze_channels, input_channels, 1)
        self.activation: Any = activation()
        self.scale_activation: Any = scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where="SqueezeExcitation")
        check_ndim("SqueezeExcitation", x, (3, 4), "(C, H, W) or (N, C, H, W)")
        gate = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        return self.scale_activation(gate) * x


class SeparableConv(Module):
    """A convolution of each channel by itself (`depthwise`), then one of size 1 over the channels
    (`pointwise`); `depth_multiplier` filters for each channel of the input.

    Shapes: (N, C, {s}) or (C, {s}) -> (N, O, {t}).
    Raises: ShapeError for another number of channels.
    Source: Chollet 2016, arXiv:1610.02357.
    """

    n = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        depth_multiplier: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        check_positive(type(self).__name__, depth_multiplier=depth_multiplier)
        inner = in_channels * depth_multiplier
        conv = partial(CONVS[self.n], padding_mode=padding_mode, device=device, dtype=dtype)
        options = (kernel_size, stride, padding, dilation)
        self.depthwise: Any = conv(in_channels, inner, *options, groups=in_channels, bias=False)
        self.pointwise: Any = conv(inner, out_channels, 1, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(input))


SeparableConv3d: type[Any]
SeparableConv2d: type[Any]
SeparableConv1d: type[Any]
SeparableConv1d, SeparableConv2d, SeparableConv3d = by_axes(SeparableConv)


class AsymmetricConv1d(Conv1d):
    """Conv1d whose padding lies before or after the input, by `future_part`.

    0 pads in front alone, so that no output sees later inputs; 1 at the end; 0.5 is usual.

    Shapes: (N, C, L) or (C, L) -> (N, O, L'); for padding "same" L' = ⌈L / stride⌉.
    Raises: OptionError for a future_part outside [0, 1] or a padding other than 0 and "same".
    Source: Flashlight, AsymmetricConv1D.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        future_part: float = 0.5,
        dilation: int | Sequence[int] = 1,
        bias: bool = True,
        groups: int = 1,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_probability("AsymmetricConv1d", future_part)
        if padding not in (0, "same"):
            fix = "Change padding."
            raise OptionError("AsymmetricConv1d", "padding 0 or 'same'", repr(padding), fix)
        options = (stride, 0, dilation, groups, bias)
        super().__init__(in_channels, out_channels, kernel_size, *options, "zeros", device, dtype)
        total = self.dilation[0] * (self.kernel_size[0] - 1) if padding == "same" else 0
        half = total // 2
        less = half - int(abs(1 - 2 * future_part) * half)
        sides = (total - less, less) if future_part < 0.5 else (less, total - less)
        self.future_part = future_part
        self.sides = sides

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(pad(as_value(input, where="AsymmetricConv1d"), self.sides))

    def extra_repr(self) -> str:
        return f"{Conv.extra_repr(self)}, future_part={self.future_part}"
