"""Convolutions and transposed convolutions in 1, 2 and 3 spatial axes.

Layout: input (N, C, *S) or (C, *S), weight (O, C / groups, *K)."""

from collections.abc import Callable, Sequence
from typing import Any

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import reshape
from glasshouse.nn import checks
from glasshouse.nn.checks import check_divides, check_floating, int_tuple
from glasshouse.nn.functional.axes import by_axes, spatial_input
from glasshouse.ops import movement
from glasshouse.ops.checks import check_like, check_option
from glasshouse.ops.contract import conv, conv_data_grad
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
           "conv_transpose3d"]  # fmt: skip


@composed
def convolve(
    where: str,
    n: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """The cross-correlation of input with each filter, plus bias.

    y[n, o, i, j] = bias[o] + Σ_{c,u,v} x[n, c, i·stride + u·dilation - padding, …] · w[o, c, u, v]
    H' = (H + 2·padding - dilation·(K-1) - 1) // stride + 1

    Raises: ShapeError for another number of channels or a kernel larger than the padded input;
        OptionError for stride, dilation or groups that do not fit.
    Source: Dumoulin & Visin 2016, arXiv:1603.07285.
    Shapes: input (N, C, {s}) or (C, {s}), weight (O, C/groups, *K), bias (O,) -> (N, O, {t}).
    """
    x, weight, stride, dilation = check_operands(where, n, input, weight, stride, dilation)
    check_divides(where, "out_channels", weight.shape[0], "groups", groups)
    check_channels(where, x, n, weight.shape[1] * groups)
    kernel = weight.shape[2:]
    widths = conv_padding(where, padding, kernel, stride, dilation)
    check_extent(where, x.shape[-n:], kernel, dilation, widths)
    options = {"stride": stride, "padding": widths, "dilation": dilation, "groups": groups}
    return on_batch(x, n, lambda x: add_channels(where, conv(x, weight, **options), bias))


def on_batch(x: Tensor, n: int, compute: Callable[..., Any]) -> Tensor:
    """compute(x), where x without a batch axis gets one for the time."""
    if x.ndim == n + 2:
        return compute(x)
    y = compute(reshape(x, (1, *x.shape)))
    return reshape(y, y.shape[1:])


def check_operands(
    where: str,
    n: int,
    input: Tensor,
    weight: Tensor,
    stride: int | Sequence[int],
    dilation: int | Sequence[int],
) -> Any:
    x, weight = spatial_input(where, n, input), check_floating(where, weight, "weight")
    if weight.ndim != n + 2:
        raise ShapeError(where, f"a weight of {n + 2} axes", weight.shape, "Reshape the weight.")
    checks.check_same_dtype(where, x, weight)
    stride = int_tuple(where, "stride", stride, n, 1)
    return x, weight, stride, int_tuple(where, "dilation", dilation, n, 1)


def check_channels(where: str, x: Tensor, n: int, channels: int) -> None:
    if x.shape[-n - 1] != channels:
        expected = f"{channels} input channels on axis {x.ndim - n - 1}"
        fix = "Change in_channels, or move the channels with permute."
        raise ShapeError(where, expected, f"input {x.shape}", fix)


def check_extent(
    where: str,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    dilation: Any,
    widths: tuple[tuple[int, ...], ...],
) -> None:
    for size, k, d, (low, high) in zip(sizes, kernel, dilation, widths, strict=True):
        if size + low + high < d * (k - 1) + 1:
            raise ShapeError(
                where,
                "a padded input of at least the kernel's size",
                f"input {tuple(sizes)}, kernel {tuple(kernel)}, padding "
                f"{tuple(widths)}, dilation {tuple(dilation)}",
                "Use a larger input, a smaller kernel or more padding.",
            )


def conv_padding(
    where: str,
    padding: Any,
    kernel: tuple[int, ...],
    stride: Any,
    dilation: Any,
) -> tuple[tuple[int, int], ...]:
    """(low, high) zeros per spatial axis; "same" puts the odd one at the end."""
    if not isinstance(padding, str):
        return tuple((p, p) for p in int_tuple(where, "padding", padding, len(kernel)))
    check_option(where, "padding", padding, ("same", "valid"))
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if any(s != 1 for s in stride):
        fix = "Give the padding as numbers."
        raise OptionError(where, "stride 1 with padding='same'", f"stride {stride}", fix)
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


def add_channels(where: str, y: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return y
    check_like(where, "a bias", bias, y.shape[1:2], "Give one number for each output channel.")
    return y + reshape(checks.bias_like(y, bias), (bias.size,) + (1,) * (y.ndim - 2))


@composed
def convolve_transposed(
    where: str,
    n: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """The transpose of `conv2d`: its gradient with respect to its input, plus bias.

    H' = (H-1)·stride - 2·padding + dilation·(K-1) + output_padding + 1

    Raises: ShapeError for another number of channels; OptionError if output_padding is not smaller
        than stride or dilation.
    Source: Dumoulin & Visin 2016, arXiv:1603.07285, ch. 4.
    Shapes: input (N, C, {s}) or (C, {s}), weight (C, O/groups, *K), bias (O,) -> (N, O, {t}).
    """
    x, weight, stride, dilation = check_operands(where, n, input, weight, stride, dilation)
    padding = int_tuple(where, "padding", padding, n)
    extra = int_tuple(where, "output_padding", output_padding, n)
    checks.check_positive(where, groups=groups)
    check_channels(where, x, n, weight.shape[0])
    check_divides(where, "in_channels", weight.shape[0], "groups", groups)
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        expected = "output_padding smaller than stride or dilation"
        fix = "Lower output_padding."
        raise OptionError(where, expected, f"{extra}, stride {stride} and dilation {dilation}", fix)
    options = (stride, padding, extra, dilation)
    sizes, missing = transposed_sizes(x.shape[-n:], weight.shape[2:], *options)
    if min(sizes) < 1:
        raise ShapeError(where, "sizes of 1 or more", sizes, "Lower padding.")

    def compute(x: Tensor) -> Tensor:
        if any(missing):
            x = movement.pad(
                x, widths=((0, 0, 0),) * 2 + tuple((0, m, 0) for m in missing), value=0.0
            )
        pairs = tuple((p, p) for p in padding)
        y = conv_data_grad(
            x, weight, shape=sizes, stride=stride, padding=pairs, dilation=dilation, groups=groups
        )
        return add_channels(where, y, bias)

    return on_batch(x, n, compute)


def transposed_sizes(
    inputs: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    extra: tuple[int, ...],
    dilation: Any,
) -> tuple[tuple[int, ...], ...]:
    """(output sizes, zeros to append to the input for windows beyond it), per spatial axis."""
    axes = zip(inputs, kernel, stride, padding, extra, dilation, strict=True)
    sizes = tuple((i - 1) * s - 2 * p + d * (k - 1) + 1 + e for i, k, s, p, e, d in axes)
    return sizes, tuple(e // s for e, s in zip(extra, stride, strict=True))


conv3d: Any
conv2d: Any
conv1d: Any
conv1d, conv2d, conv3d = by_axes(convolve, "conv")
conv_transpose3d: Any
conv_transpose2d: Any
conv_transpose1d: Any
conv_transpose1d, conv_transpose2d, conv_transpose3d = by_axes(
    convolve_transposed, "conv_transpose"
)


@composed
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """`conv1d` of sequences whose axes are time, batch and channels.

    y[t, b, o] = bias[o] + Σ_{k,c} x[t + k - pad, b, c] · w[k, c, o]

    Shapes: input (T, B, C), weight (K, C, O), bias (O,) -> (T + 2·pad - K + 1, B, O).
    Raises: ShapeError for other shapes.
    Source: Gehring et al. 2017, arXiv:1705.03122 (fairseq's layout).
    """
    where = "conv_tbc"
    x, weight = check_floating(where, input), check_floating(where, weight, "weight")
    if x.ndim != 3 or weight.ndim != 3:
        expected = "an input (T, B, C) and a weight (K, C, O)"
        fix = "Permute them, or use conv1d."
        raise ShapeError(where, expected, f"{x.shape} and {weight.shape}", fix)
    x, weight = permute(x, axes=(1, 2, 0)), permute(weight, axes=(2, 1, 0))
    return permute(convolve(where, 1, x, weight, bias, padding=pad), axes=(2, 0, 1))
