"""Layers that compute in integers: inputs and weights have 8 bits, sums 32.

    x ≈ scale · (code - zero),  w ≈ scale of its row · code
    Σ x w ≈ both scales · (Σ code · code - zero · Σ codes of the row)

Targets have kernels for these products of bytes (targets/cpu). The scale and the zero of inputs are
measured in each call, or were measured before (`calibration`)."""

from math import prod
from typing import Any

import numpy as np

from glasshouse.base.dtype import float32, int8, int32
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import adopt, as_value, cast, reshape
from glasshouse.nn.checks import check_floating
from glasshouse.nn.conv import Conv
from glasshouse.nn.functional.axes import spatial_input
from glasshouse.nn.functional.conv import check_extent, on_batch
from glasshouse.nn.functional.padding import pad
from glasshouse.nn.layer import by_axes
from glasshouse.nn.linear import Linear
from glasshouse.nn.module import Module
from glasshouse.nn.quantized.packed import fixed
from glasshouse.ops.contract import conv
from glasshouse.tensor import Tensor, clip, matmul, matrix_transpose, maximum, minimum, round
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["Int8Conv1d", "Int8Conv2d", "Int8Conv3d", "Int8Linear"]

LEAST, MOST = -128, 127  # codes of inputs
EDGE = 127  # codes of weights are within ±EDGE


def spread(low: Any, high: Any) -> tuple[Any, Any]:
    """(scale, zero) of codes for numbers from `low` to `high`, 0 among them; both in float32."""
    low, high = minimum(low, low * 0), maximum(high, high * 0)  # NaN stays
    scale = (high - low) / (MOST - LEAST)
    scale = choose(scale == 0, scale + 1, scale)
    return scale, round(LEAST - low / scale)


def measured(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """(scale, zero) of codes for x, over these axes, which stay with size 1."""
    low = reduce.min(x, axis=axes, keepdims=True)
    return spread(low, reduce.max(x, axis=axes, keepdims=True))


def coded(x: Any, scale: Any, zero: Any) -> Any:
    """Codes of x in int8, the nearest ones."""
    return cast(clip(round(x / scale) + zero, LEAST, MOST), int8)


@composed
def integer_linear(
    input: Any, codes: Any, factor: Any, sums: Any, bias: Any, scale: Any, zero: Any, axes: Any
) -> Any:
    """The linear map of `Int8Linear`: (..., in) -> (..., out)."""
    x = cast(input, float32).detach()
    x = reshape(x, (prod(x.shape[:-1]), x.shape[-1]))
    if scale is None:
        scale, zero = measured(x, axes)
    y = matmul(cast(coded(x, scale, zero), int32), cast(matrix_transpose(codes), int32))
    y = cast(y - cast(zero, int32) * sums, float32) * (scale * factor)
    y = y if bias is None else y + cast(bias, float32)
    return reshape(cast(y, input.dtype), (*input.shape[:-1], codes.shape[0]))


@composed
def integer_convolution(
    input: Any,
    codes: Any,
    factor: Any,
    sums: Any,
    bias: Any,
    scale: Any,
    zero: Any,
    widths: Any,
    options: Any,
) -> Any:
    """The convolution of `Int8Conv2d`: (N, C, *S) -> (N, O, *windows). The padding is the code of
    0: `pad` runs on codes minus that code, in 8 bits that wrap around."""
    x, n = cast(input, float32).detach(), input.ndim - 2
    if scale is None:
        scale, zero = measured(x, tuple(range(1, n + 2)))
    x = coded(x, scale, zero)
    if any(map(any, widths)):
        start = cast(zero, int8)
        x = pad(x - start, [w for pair in reversed(widths) for w in pair]) + start
    stride, dilation, groups = options
    attrs = {"stride": stride, "dilation": dilation, "groups": groups, "padding": ((0, 0),) * n}
    y = conv(cast(x, int32), cast(codes, int32), **attrs)
    factor, sums, bias = (each_channel(v, n) for v in (factor, sums, bias))
    y = cast(y - cast(zero, int32) * sums, float32) * (scale * factor)
    return cast(y if bias is None else y + cast(bias, float32), input.dtype)


def each_channel(x: Any, n: int) -> Any:
    return None if x is None else reshape(x, (x.size, *(1,) * n))


def weight_codes(weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """(codes in int8, the scale of each row in float32) of a weight (O, ...).

    Raises: OptionError for numbers that are not finite.
    """
    w = np.asarray(weight, np.float32)
    if not np.isfinite(w).all():
        raise OptionError("quantize", "weights that are finite", "others", "Check the model.")
    scale = np.abs(w).max(axis=tuple(range(1, w.ndim)), keepdims=True, initial=0) / EDGE
    codes = np.rint(w / np.where(scale == 0, 1, scale)).astype(np.int8)
    return codes, scale.reshape(-1).astype(np.float32)


class IntegerLayer(Module):
    """A layer of bytes: `codes` and `scale` of the weight, the sums of the codes, and
    `input_scale` and `input_zero`, which are None where each call measures its own."""

    def set_codes(self, weight: Any, bias: Any, inputs: Any) -> None:
        """Register the weight's codes and scales; `inputs`: (low, high) of the inputs, or None."""
        Module.__init__(self)
        codes, scale = weight_codes(weight)
        self.register_buffer("codes", adopt(codes))
        self.register_buffer("scale", adopt(scale))
        sums = codes.sum(axis=tuple(range(1, codes.ndim)), dtype=np.int32)
        self.register_buffer("sums", adopt(sums))
        fixed_scale = fixed_zero = None
        if inputs is not None:
            ends = (adopt(np.asarray(end, np.float32)) for end in inputs)
            fixed_scale, fixed_zero = spread(*ends)
        self.register_buffer("input_scale", fixed_scale)
        self.register_buffer("input_zero", fixed_zero)
        self.register_parameter("bias", bias)

    @property
    def weight(self) -> Tensor:
        """The weight in float32: codes times the scales of their rows."""
        return cast(self.codes, float32) * each_channel(self.scale, self.codes.ndim - 1)

    @property
    def is_dynamic(self) -> bool:
        """Whether each call measures the scale of its inputs."""
        return self.input_scale is None

    def reset_parameters(self) -> None:
        """Refuse to draw values."""
        raise fixed(f"{type(self).__name__}.reset_parameters")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {'dynamic' if self.is_dynamic else 'static'}"


class Int8Linear(IntegerLayer, Linear):
    """x Wᵀ + b with inputs and weights of 8 bits and sums of 32. A row of inputs has a scale and a
    zero, or all rows of a call (`per_row=False`), or all calls: those of `inputs`, (low, high).
    No gradient passes.

    Shapes: (..., in_features) -> (..., out_features); weight (out_features, in_features).
    Raises: ShapeError for another number of features, OptionError for a weight that is not finite.
    Source: Jacob et al. 2018, arXiv:1712.05877, sec. 2; Dettmers et al. 2022, arXiv:2208.07339
        (rows).
    Example:
        >>> layer = gh.nn.Int8Linear(gh.ones((3, 64)))
        >>> layer(gh.ones((2, 64))).tolist()
        [[64.0, 64.0, 64.0], [64.0, 64.0, 64.0]]
    """

    _shown = ("in_features", "out_features", "bias")

    def __init__(
        self, weight: Any, bias: Any = None, inputs: Any = None, *, per_row: bool = True
    ) -> None:
        self.set_codes(weight, bias, inputs)
        if self.codes.ndim != 2:
            got = self.codes.shape
            raise ShapeError("Int8Linear", "a weight (out, in)", got, "Reshape it.")
        self.out_features: int
        self.in_features: int
        self.out_features, self.in_features = self.codes.shape
        self.per_row = per_row

    def forward(self, input: Any) -> Tensor:
        x = check_floating("Int8Linear", as_value(input, where="Int8Linear"))
        if not x.ndim or x.shape[-1] != self.in_features:
            expected = f"{self.in_features} features on the last axis of the input"
            raise ShapeError("Int8Linear", expected, x.shape, "Change the model or the input.")
        tensors = (self.codes, self.scale, self.sums, self.bias, self.input_scale, self.input_zero)
        return integer_linear(x, *tensors, (1,) if self.per_row else (0, 1))


class Int8Conv(IntegerLayer, Conv):
    """`Conv{n}d` with inputs and weights of 8 bits and sums of 32: `like` has the options, the
    weight and the bias. A sample has a scale and a zero, or all calls: those of `inputs`,
    (low, high). No gradient passes.

    Shapes: (N, C, {s}) or (C, {s}) -> (N, O, {t}).
    Raises: ShapeError for another number of channels, OptionError for a weight that is not finite.
    Source: Jacob et al. 2018, arXiv:1712.05877, sec. 2.
    Example:
        >>> layer = gh.nn.Int8Conv2d(gh.nn.Conv2d(1, 2, 1))
        >>> layer.codes.dtype
        glasshouse.int8
    """

    def __init__(self, like: Any, inputs: Any = None) -> None:
        self.set_codes(like.weight.detach().numpy(), like.bias, inputs)
        names = ("in_channels", "out_channels", "groups", "kernel_size", "stride", "dilation",
                 "padding_mode", "widths", "padding")  # fmt: skip
        for name in names:
            setattr(self, name, getattr(like, name))

    def forward(self, input: Any) -> Tensor:
        where = type(self).__name__
        x, _ = self.padded(spatial_input(where, self.n, input))
        if x.shape[-self.n - 1] != self.in_channels:
            expected = f"{self.in_channels} input channels"
            raise ShapeError(where, expected, f"input {x.shape}", "Move the channels there.")
        widths = self.widths if self.padding_mode == "zeros" else ((0, 0),) * self.n
        check_extent(where, x.shape[-self.n :], self.kernel_size, self.dilation, widths)
        tensors = (self.codes, self.scale, self.sums, self.bias, self.input_scale, self.input_zero)
        options = (self.stride, self.dilation, self.groups)
        return on_batch(x, self.n, lambda x: integer_convolution(x, *tensors, widths, options))


Int8Conv1d, Int8Conv2d, Int8Conv3d = by_axes(Int8Conv)
