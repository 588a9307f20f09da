"""Convolution layers in 1, 2 and 3 spatial axes, and their transposes."""

from collections.abc import Sequence
from math import prod
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import as_value
from glasshouse.nn.checks import check_divides, check_positive, int_tuple
from glasshouse.nn.functional.conv import conv_padding, convolve, convolve_transposed
from glasshouse.nn.functional.padding import pad
from glasshouse.nn.layer import by_axes, with_unusual
from glasshouse.nn.linear import add_parameters, reset_uniform
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

# nn's names of padding modes → functional.pad's
PADDING_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}


class Conv(Module):
    """`functional.conv{n}d` with weight and bias, initially uniform in ±1/√(C/groups · prod(K)).

    `padding` may be "same" or "valid"; `padding_mode` selects the values around the input: "zeros",
    "reflect", "replicate" or "circular".

    Shapes: (N, C, {s}) or (C, {s}) -> (N, O, {t}).
    Raises: ShapeError for another number of channels, OptionError for options that do not fit.
    Source: LeCun et al. 1989.
    """

    n = 0  # spatial axes

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        name, n = type(self).__name__, self.n
        check_positive(name, in_channels=in_channels, out_channels=out_channels)
        check_divides(name, "in_channels", in_channels, "groups", groups)
        check_divides(name, "out_channels", out_channels, "groups", groups)
        check_option(name, "padding_mode", padding_mode, PADDING_MODES)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.groups = groups
        self.kernel_size: tuple[int, ...] = int_tuple(name, "kernel_size", kernel_size, n, 1)
        self.stride: tuple[int, ...] = int_tuple(name, "stride", stride, n, 1)
        self.dilation: tuple[int, ...] = int_tuple(name, "dilation", dilation, n, 1)
        self.padding_mode = padding_mode
        self.widths: tuple[tuple[int, int], ...] = conv_padding(
            name, padding, self.kernel_size, self.stride, self.dilation
        )
        self.padding: str | tuple[int, ...] = (
            padding if isinstance(padding, str) else tuple(p for p, _ in self.widths)
        )
        shapes = {"weight": self.weight_shape(), "bias": (out_channels,) if bias else None}
        add_parameters(self, device, dtype, **shapes)
        self.reset_parameters()

    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        reset_uniform(self, prod(self.weight.shape[1:]))

    def forward(self, input: Tensor) -> Tensor:
        x, padding = self.padded(input)
        options = (self.stride, padding, self.dilation, self.groups)
        return convolve(type(self).__name__, self.n, x, self.weight, self.bias, *options)

    def padded(self, x: Tensor) -> tuple[Tensor, Any]:
        """(the input, the zeros that the convolution is to add around it)."""
        if self.padding_mode == "zeros":
            return x, self.padding
        widths = [w for pair in reversed(self.widths) for w in pair]
        return pad(as_value(x), widths, mode=PADDING_MODES[self.padding_mode]), 0

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        zeros, ones = (0,) * self.n, (1,) * self.n
        defaults = {
            "stride": None,
            "padding": zeros,
            "dilation": ones,
            "output_padding": zeros,
            "groups": 1,
            "bias": True,
            "padding_mode": "zeros",
        }
        return with_unusual(shown, vars(self) | {"bias": self.bias is not None}, defaults)


Conv3d: type[Any]
Conv2d: type[Any]
Conv1d: type[Any]
Conv1d, Conv2d, Conv3d = by_axes(Conv)


class ConvTranspose(Conv):
    """`functional.conv_transpose{n}d` with weight and bias.

    They are initially uniform in ±1/√(O/groups · prod(K)). `forward(x, output_size=…)` chooses the
    output_padding that gives it.

    Shapes: (N, C, {s}) or (C, {s}) -> (N, O, {t}).
    Source: Zeiler et al. 2010.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode != "zeros" or isinstance(padding, str):
            got = f"padding={padding!r}, padding_mode={padding_mode!r}"
            fix = "Pad the result by functional.pad."
            raise OptionError(name, "padding as numbers, of zeros", got, fix)
        options = (stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *options)
        self.output_padding: tuple[int, ...] = int_tuple(
            name, "output_padding", output_padding, self.n
        )

    def weight_shape(self) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self.output_padding
        if output_size is not None:
            extra = self.padding_for(as_value(input).shape, tuple(output_size)[-self.n :])
        options = (self.stride, self.padding, extra, self.groups, self.dilation)
        parameters = (self.weight, self.bias)
        return convolve_transposed(type(self).__name__, self.n, input, *parameters, *options)

    def padding_for(self, shape: Any, output_size: Any) -> tuple[int, ...]:
        """The output_padding with which an input of `shape` gives `output_size`."""
        per_axis = (shape[-self.n :], self.kernel_size, self.stride, self.padding, self.dilation)
        options: Any = zip(*per_axis, strict=True)
        least = [(i - 1) * s - 2 * p + d * (k - 1) + 1 for i, k, s, p, d in options]
        extra = tuple(size - low for size, low in zip(output_size, least, strict=True))
        if any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            expected = f"an output_size from {tuple(least)}, less than a stride {self.stride} above"
            raise OptionError(type(self).__name__, expected, output_size, "Change output_size.")
        return extra


ConvTranspose3d: type[Any]
ConvTranspose2d: type[Any]
ConvTranspose1d: type[Any]
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = by_axes(ConvTranspose)
