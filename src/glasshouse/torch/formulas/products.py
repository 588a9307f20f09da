"""Costs of products that Programs never have: of sparse, packed and quantised matrices, of groups,
and forms of convolutions for other devices.

Entries as in `fused.py`. A sparse matrix is a `Stored`; its entry is under "sparse NAME"."""

from math import prod
from typing import Any, NamedTuple

import torch

from glasshouse.dispatch import Value
from glasshouse.ops.contract import conv, matmul
from glasshouse.torch.aten.convolution import convolution, options_of
from glasshouse.torch.aten.matrix import transposed
from glasshouse.torch.formulas.fused import cost_of, empty, linear, plain_product
from glasshouse.torch.patches.tensors import stored_values

# -- sparse -----------------------------------------------------------------------------------

SPARSE = "sparse "  # in front of the names of operators that have a sparse operand
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class Stored(NamedTuple):
    """A sparse tensor: its shape, and the number of its stored elements."""

    shape: tuple[int, ...]
    elements: int


def stored(x: torch.Tensor) -> Stored | None:
    """A sparse tensor as formulas take it; None for a dense one."""
    if x.layout is torch.sparse_coo:
        return Stored(tuple(x.shape), stored_values(x).numel())
    return Stored(tuple(x.shape), x.values().numel()) if x.layout in COMPRESSED else None


@cost_of("sparse mm", "sparse mv", "sparse bmm", "sparse hspmm", "sparse _sparse_mm_reduce_impl")
def sparse_product(a: Any, b: Any, *_: Any, **__: Any) -> None:
    """Each stored element meets a row, or a column, of the dense operand.

    Raises: LookupError for two sparse operands: it depends on where they store elements
    """
    if isinstance(a, Stored) and isinstance(b, Stored):
        raise LookupError("a product of two sparse matrices")
    if isinstance(a, Stored):
        columns = b.shape[-1] if len(b.shape) == len(a.shape) else 1
        matmul(empty(b, a.elements, 1), empty(b, 1, columns))
    else:
        matmul(empty(a, b.elements, 1), empty(a, 1, a.shape[-2]))


@cost_of("sparse addmm", "sparse addmv", "sparse _sparse_addmm", "sparse sspaddmm")
def sparse_sum_and_product(x: Any, a: Any, b: Any, *_: Any, **__: Any) -> None:
    sparse_product(a, b)


@cost_of("sparse sparse_sampled_addmm")
def sampled_product(x: Any, a: Any, b: Any, *_: Any, **__: Any) -> None:
    """The elements of a product that x stores."""
    matmul(empty(a, x.elements, a.shape[-1]), empty(a, a.shape[-1], 1))


# -- quantised and packed weights -------------------------------------------------------------


def unpacked(x: Value, packed: Any, ndim: int) -> Value:
    """The weight in a packed one, with as many axes as x has."""
    shape = list(packed.unpack()[0].shape)
    if len(shape) > ndim:  # a weight with one axis is packed as one with two
        del shape[2]
    return empty(x, *shape)


@cost_of(
    *(f"quantized::linear{form}" for form in ("", "_relu", "_leaky_relu", "_tanh", "_dynamic")),
    *(f"quantized::linear{form}" for form in ("_relu_dynamic", "_dynamic_fp16")),
    "quantized::linear_relu_dynamic_fp16",
)
def packed_linear(x: Any, packed: Any, *_: Any, **__: Any) -> None:
    linear(x, unpacked(x, packed, 2))


@cost_of(
    *(f"quantized::conv{n}d{form}" for n in (1, 2, 3) for form in ("", "_relu", "_dynamic")),
    *(f"quantized::conv{n}d{form}.new" for n in (2, 3) for form in ("", "_relu")),
    *(f"quantized::conv_transpose{n}d{form}" for n in (1, 2, 3) for form in ("", "_dynamic")),
    "quantized::conv2d_add",
    "quantized::conv2d_add_relu",
)
def packed_convolution(x: Any, packed: Any, *rest: Any, **_: Any) -> None:
    if isinstance(rest[0], torch.ScriptObject):  # of the sum of a convolution and another value
        packed = rest[0]
    w, count = unpacked(x, packed, x.ndim), x.ndim - 2
    read = packed.stride, packed.padding, packed.dilation, packed.output_padding
    stride, padding, dilation, more = (tuple(each())[-count:] for each in read)
    turned = bool(packed.transpose())
    convolution(x, w, None, stride, padding, dilation, turned, more, packed.groups())


@cost_of("quantized::matmul")
def quantised_product(a: Any, b: Any, *_: Any, **__: Any) -> None:
    plain_product(a, b)


@cost_of("onednn::qlinear_pointwise", "onednn::qlinear_pointwise.tensor")
def quantised_linear(x: Any, x_scale: Any, x_zero: Any, w: Any, *_: Any, **__: Any) -> None:
    """x w of (…, K) and (K, N): oneDNN packs the weight transposed."""
    matmul(empty(x, prod(x.shape[:-1]), x.shape[-1]), empty(x, x.shape[-1], w.shape[-1]))


@cost_of("onednn::qconv_pointwise", "onednn::qconv2d_pointwise", "onednn::qconv_pointwise.tensor")
def quantised_convolution(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    bias: Any,
    *rest: Any,
    **_: Any,
) -> None:
    stride, padding, dilation, groups = rest[:4]
    conv(x, empty(x, *w.shape), **options_of(w, stride, padding, dilation, groups))


# -- other names of products ------------------------------------------------------------------


@cost_of("mm.dtype", "bmm.dtype", "_scaled_mm_v2", "_grouped_mm", "_scaled_grouped_mm")
def product_of_groups(a: Any, b: Any, *_: Any, **__: Any) -> None:
    """Grouped products: the rows of a matrix (of a, of its columns or b's) are divided among the
    groups, so that each row meets one matrix."""
    if a.ndim == 2 and b.ndim == 3:
        b = empty(b, *b.shape[1:])
    elif a.ndim == 3 and b.ndim == 2:
        a = empty(a, *a.shape[1:])
    plain_product(a, b)


@cost_of("_trilinear")
def trilinear(
    a: Any,
    b: Any,
    c: Any,
    expand_a: Any,
    expand_b: Any,
    expand_c: Any,
    summed: Any,
    *_: Any,
    **__: Any,
) -> None:
    """Sums of a b c over some axes, as of nn.Bilinear and its gradients; each operand gets axes of
    1 where `expand_…` says. First a meets b, summed where c has no such axis, then both meet c."""
    shapes: list[Any] = []
    for x, missing in ((a, expand_a), (b, expand_b), (c, expand_c)):
        rest = iter(x.shape)
        axes = range(x.ndim + len(missing))
        shapes.append([1 if axis in missing else next(rest) for axis in axes])
    first = set(summed) & set(expand_c)
    pair = multiply_and_sum(a, shapes[0], shapes[1], first)
    multiply_and_sum(c, pair, shapes[2], set(summed) - first)


def multiply_and_sum(x: Value, left: list[int], right: list[int], over: set[int]) -> list[int]:
    """Multiply operands of these shapes and sum over some axes; returns the result's shape. It is a
    matrix product where the second has an extra axis and one is summed; else elementwise."""
    whole = [n if m == 1 else m for n, m in zip(left, right)]
    result = [1 if axis in over else n for axis, n in enumerate(whole)]
    inner = prod(whole) // max(1, prod(result))
    if inner == 1 or left == whole:
        rows = empty(x, *whole)
        rows * rows + rows if inner > 1 else rows * rows
    else:
        matmul(empty(x, prod(result), inner), empty(x, inner, 1))
    return result


@cost_of("linear_backward", "mkldnn_linear_backward")
def linear_backward(x: Any, g: Any, w: Any, mask: Any, *_: Any, **__: Any) -> None:
    """Gradients of x (…, K), of w (N, K) and of the bias, for g (…, N)."""
    rows, columns = prod(x.shape[:-1]), x.shape[-1]
    flat, g = empty(x, rows, columns), empty(g, rows, g.shape[-1])
    if mask[0]:
        matmul(g, w)
    if mask[1]:
        matmul(transposed(g), flat)


@cost_of("matmul_backward")
def matmul_backward(g: Any, a: Any, b: Any, mask: Any) -> None:
    """Gradients of both operands of (…, M, K) and (…, K, N)."""
    for _ in range(sum(mask)):
        matmul(empty(g, prod(g.shape), 1), empty(g, 1, a.shape[-1]))


@cost_of("mkl::_mkl_linear", "mkldnn::_linear_pointwise.binary")
def linear_with_other(x: Any, other: Any, w: Any, *_: Any, **__: Any) -> None:
    """A linear layer whose other operand is the packed weight, or is added to the result."""
    linear(x, w)


@cost_of("_weight_int4pack_mm_for_cpu")
def product_of_four_bits(x: Any, w: Any, *_: Any, **__: Any) -> None:
    linear(x, empty(x, w.shape[0], x.shape[-1]))


@cost_of("conv_tbc")
def convolution_of_times(x: Any, w: Any, bias: Any, pad: int = 0) -> None:
    """x (T, B, I) and w (S, I, O): a convolution along T."""
    signal, weight = empty(x, x.shape[1], x.shape[2], x.shape[0]), empty(w, *w.shape[::-1])
    conv(signal, weight, **options_of(weight, [1], [pad], [1], 1))


@cost_of("_convolution", "convolution_overrideable")
def convolution_in_full(
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    turned: Any,
    more: Any,
    groups: Any,
    *_: Any,
    **__: Any,
) -> None:
    convolution(x, w, bias, stride, padding, dilation, turned, more, groups)


@cost_of(
    "_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d"
)
def slow_convolution(
    x: Any, w: Any, kernel: Any, bias: Any, stride: Any, padding: Any, dilation: int = 1
) -> None:
    convolution(x, w, None, stride, padding, dilation, False, 0, 1)


@cost_of("slow_conv_transpose2d", "slow_conv_transpose3d")
def slow_transposed_convolution(
    x: Any,
    w: Any,
    kernel: Any,
    bias: Any = None,
    stride: int = 1,
    padding: int = 0,
    more: int = 0,
    dilation: int = 1,
) -> None:
    convolution(x, w, None, stride, padding, dilation, True, more, 1)


@cost_of("_conv_depthwise2d", "conv_depthwise3d")
def depthwise_convolution(
    x: Any, w: Any, kernel: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> None:
    convolution(x, w, None, stride, padding, dilation, False, 0, x.shape[1])


@cost_of("mkldnn::_convolution_pointwise.binary")
def convolution_with_other(
    x: Any,
    other: Any,
    w: Any,
    bias: Any,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: Any,
    *_: Any,
    **__: Any,
) -> None:
    convolution(x, w, None, stride, padding, dilation, False, 0, groups)


@cost_of("mkldnn::_convolution_pointwise_.binary")
def convolution_onto_other(other: Any, x: Any, w: Any, *options: Any, **_: Any) -> None:
    convolution_with_other(x, other, w, *options)


@cost_of("miopen_depthwise_convolution")
def depthwise_convolution_in_full(
    x: Any,
    w: Any,
    bias: Any,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: Any,
    *_: Any,
    **__: Any,
) -> None:
    convolution(x, w, None, stride, padding, dilation, False, 0, groups)


@cost_of("cudnn_convolution_transpose")
def transposed_convolution(
    x: Any,
    w: Any,
    padding: Any,
    more: Any,
    stride: Any,
    dilation: Any,
    groups: Any,
    *_: Any,
    **__: Any,
) -> None:
    convolution(x, w, None, stride, padding, dilation, True, more, groups)


@cost_of("miopen_convolution_transpose", "mkldnn::_convolution_transpose_pointwise")
def transposed_convolution_with_bias(x: Any, w: Any, bias: Any, *options: Any, **_: Any) -> None:
    transposed_convolution(x, w, *options)


@cost_of("cudnn_convolution_relu", "miopen_convolution_relu")
def convolution_with_relu(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> None:
    convolution(x, w, None, stride, padding, dilation, False, 0, groups)


@cost_of("cudnn_convolution_add_relu", "miopen_convolution_add_relu")
def convolution_with_sum(
    x: Any,
    w: Any,
    z: Any,
    alpha: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> None:
    convolution(x, w, None, stride, padding, dilation, False, 0, groups)
