"""Costs of operators that Programs never have: fused forms, and those of other devices.

A formula takes its operator's arguments, with values without contents in place of tensors, and
calls the cards that make up the cost. It may return a number instead: FLOPs outside of products."""

import math
from collections.abc import Callable
from typing import Any

import glasshouse as gh
from glasshouse.dispatch import Value, full, primitives
from glasshouse.nn.functional.recurrent import lstm_cell
from glasshouse.ops.contract import conv, matmul
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.convolution import convolution_backward, options_of
from glasshouse.torch.aten.matrix import flash_attention, flash_attention_backward, transposed
from glasshouse.torch.aten.norm import batch_norm_functional, batch_statistics
from glasshouse.torch.aten.shape import reshape

FORMULAS: dict[str, Callable[..., Any]] = {}


def cost_of(*names: str) -> Callable[..., Any]:
    """A decorator that enters a formula for these operators ("mm"; a dot leads to an overload)."""

    def enter(compute: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            whole = name if "." in name or "::" in name else f"{name}.default"
            FORMULAS[whole] = compute
        return compute

    return enter


def empty(x: Value, *shape: int) -> Value:
    """A value of this shape, of the dtype of x."""
    return full(shape, 0, x.dtype)


# -- products ---------------------------------------------------------------------------------


@cost_of("linear", "mkldnn_linear", "mkldnn::_linear_pointwise")
def linear(x: Any, w: Any, *_: Any, **__: Any) -> None:
    """x w' of (…, K) and (N, K)."""
    matmul(reshape(x, (-1, x.shape[-1])), transposed(w))


@cost_of("_addmm_activation")
def addmm_activation(x: Any, a: Any, b: Any, **_: Any) -> None:
    matmul(a, b)


@cost_of("_int_mm", "_scaled_mm", "_weight_int8pack_mm")
def plain_product(a: Any, b: Any, *_: Any, **__: Any) -> None:
    matmul(empty(a, *a.shape), empty(a, *b.shape))


@cost_of("mkldnn::_convolution_pointwise")
def convolution_pointwise(
    x: Any, w: Any, bias: Any, padding: Any, stride: Any, dilation: Any, groups: Any, *_: Any
) -> None:
    conv(x, w, **options_of(w, stride, padding, dilation, groups))


@cost_of("cudnn_convolution", "miopen_convolution", "mkldnn_convolution")
def convolution_without_bias(x: Any, w: Any, *rest: Any, **_: Any) -> None:
    padding, stride, dilation, groups = rest[-4:] if len(rest) == 4 else rest[:4]
    conv(x, w, **options_of(w, stride, padding, dilation, groups))


@cost_of("convolution_backward_overrideable")
def convolution_backward_by_mask(g: Any, x: Any, w: Any, *options: Any) -> None:
    convolution_backward(g, x, w, None, *options)


# -- attention --------------------------------------------------------------------------------


@cost_of(
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "higher_order::flex_attention",
)
def attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> None:
    """Scores and their product with the values; masked positions count too."""
    flash_attention(q, k, v)


@cost_of(
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)
def attention_backward(g: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> None:
    heads, queries = q.shape[-3], q.shape[-2]
    sums = empty(q, *q.shape[:-3], heads, queries)
    out = empty(q, *q.shape[:-1], v.shape[-1])
    flash_attention_backward(g, q, k, v, out, sums, 0.0, False)


def multi_head_attention(x: Any, keys: Any, values: Any, heads: int, w: Any, out_w: Any) -> Any:
    """Projections, attention with all its heads, and the projection of its result."""
    batch, length, width = x.shape
    for part in (x, keys, values):
        linear(part, empty(w, width, width))
    shapes = [(batch, heads, part.shape[1], width // heads) for part in (x, keys, values)]
    flash_attention(*(empty(x, *shape) for shape in shapes))
    linear(x, out_w)
    return empty(x, batch, length, width)


@cost_of("_native_multi_head_attention")
def native_multi_head_attention(
    q: Any,
    k: Any,
    v: Any,
    width: Any,
    heads: Any,
    w: Any,
    bias: Any,
    out_w: Any,
    *_: Any,
    **__: Any,
) -> None:
    multi_head_attention(q, k, v, heads, w, out_w)


@cost_of("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    x: Any, width: Any, heads: Any, w: Any, bias: Any, out_w: Any, *rest: Any, **_: Any
) -> None:
    """An encoder layer in one operator, as PyTorch has it for inference."""
    widen, narrow = rest[8], rest[10]
    multi_head_attention(x, x, x, heads, w, out_w)
    linear(x, widen)
    linear(empty(x, *x.shape[:-1], widen.shape[0]), narrow)


# -- recurrent layers -------------------------------------------------------------------------


@cost_of("mkldnn_rnn_layer")
def lstm_layer(
    x: Any, w: Any, recurrent: Any, bias: Any, recurrent_bias: Any, hidden: Any, *_: Any, **__: Any
) -> None:
    """One direction of a layer of an LSTM, x (T, N, I): gates = x w' + h r' + b, all steps."""
    steps, batch, width = x.shape
    rows = steps * batch
    gates = matmul(reshape(x, (rows, width)), transposed(w))
    gates = gates + matmul(empty(x, rows, recurrent.shape[1]), transposed(recurrent))
    cells = empty(gates, rows, gates.shape[-1] // 4)
    lstm_cell(gates + bias if bias is not None else gates, cells)


@cost_of("mkldnn_rnn_layer_backward")
def lstm_layer_backward(x: Any, w: Any, recurrent: Any, *_: Any, **__: Any) -> None:
    """Gradients of input, hidden states and both weights; oneDNN computes them all."""
    steps, batch, width = x.shape
    rows = steps * batch
    gates, hidden = empty(x, rows, w.shape[0]), empty(x, rows, recurrent.shape[1])
    matmul(gates, w)
    matmul(gates, recurrent)
    matmul(transposed(gates), reshape(x, (rows, width)))
    matmul(transposed(gates), hidden)


def rows_of(x: Any, batch_sizes: Any) -> int:
    """Steps times sequences, of a padded or packed batch."""
    return x.shape[0] if batch_sizes else x.shape[0] * x.shape[1]


@cost_of("_cudnn_rnn")
def recurrent_layers(x: Any, weights: Any, *rest: Any, **_: Any) -> None:
    """All layers: each row of each step meets each matrix once."""
    rows = rows_of(x, rest[-2])
    for w in (w for w in weights if w.ndim == 2):
        matmul(empty(x, rows, w.shape[1]), transposed(w))


@cost_of("_cudnn_rnn_backward")
def recurrent_layers_backward(x: Any, weights: Any, *rest: Any, **_: Any) -> None:
    rows = rows_of(x, rest[-4])
    for w in (w for w in weights if w.ndim == 2):
        matmul(empty(x, rows, w.shape[0]), w)
        matmul(empty(x, w.shape[0], rows), empty(x, rows, w.shape[1]))


# -- normalisation ----------------------------------------------------------------------------


@cost_of("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm")
def batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Any,
    mean: Tensor,
    var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> None:
    if mean is None:
        batch_statistics(x, weight, bias, eps)
    else:
        batch_norm_functional(x, weight, bias, mean, var, training, momentum, eps)


# -- linear algebra, transforms ---------------------------------------------------------------


@cost_of("linalg_cholesky_ex", "cholesky")
def cholesky(a: Any, *_: Any, **__: Any) -> None:
    primitives["cholesky"](a)


@cost_of("linalg_qr")
def qr(a: Any, mode: str = "reduced") -> None:
    primitives["qr"](a, mode="reduced" if mode == "r" else mode)


@cost_of("linalg_lu_factor_ex", "linalg_lu", "_linalg_det", "_linalg_slogdet")
def lu(a: Any, *_: Any, **__: Any) -> None:
    primitives["lu"](a)


@cost_of("_linalg_solve_ex")
def solve(a: Any, b: Any, *_: Any, **__: Any) -> None:
    """A factorization and two triangular systems."""
    columns = b if b.ndim == a.ndim else reshape(b, (*b.shape, 1))
    primitives["lu"](a)
    for lower in (True, False):
        options = {"lower": lower, "transpose": False, "unit_diagonal": lower}
        primitives["triangular_solve"](a, columns, **options)


@cost_of("linalg_inv_ex")
def inverse(a: Any, **_: Any) -> None:
    solve(a, a)


@cost_of("linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, **_: Any) -> None:
    options = {"lower": True, "transpose": False, "unit_diagonal": False}
    primitives["triangular_solve"](a, b, **options)


@cost_of("triangular_solve")
def triangular_solve(b: Any, a: Any, *_: Any, **__: Any) -> None:
    solve_triangular(a, b)


@cost_of("linalg_lu_solve")
def solve_by_factors(factors: Any, pivots: Any, b: Any, **_: Any) -> None:
    """Two triangular systems."""
    for _part in range(2):
        solve_triangular(factors, b)


@cost_of("cholesky_solve")
def solve_by_root(b: Any, root: Any, *_: Any, **__: Any) -> None:
    solve_by_factors(root, None, b)


@cost_of("_linalg_eigh")
def eigh(a: Any, *_: Any, **__: Any) -> None:
    primitives["eigh"](a)


@cost_of("_linalg_svd")
def svd(a: Any, full_matrices: bool = False, *_: Any, **__: Any) -> None:
    primitives["svd"](a, full_matrices=full_matrices)


@cost_of("_fft_c2c", "_fft_r2c", "_fft_c2r")
def fourier(x: Any, axes: Any, *_: Any) -> Any:
    """5 n log2(n) of each transform of n numbers, half of it where they are real.

    Source: Frigo & Johnson 2005, The design and implementation of FFTW3, sec. 2
    """
    points = math.prod(x.shape[axis] for axis in axes)
    return int((5 if x.dtype.is_complex else 2.5) * x.size * math.log2(max(2, points)))


# -- updates of parameters --------------------------------------------------------------------


@cost_of("_fused_adam", "_fused_adamw", "_fused_adam_", "_fused_adamw_")
def adam(parameters: Any, *_: Any, **__: Any) -> None:
    """Both means, the corrected quotient and the step, of each element."""
    for p in parameters:
        mean = p * 0.9 + p * 0.1
        square = p * 0.9 + p * p * 0.1
        p - mean / (gh.sqrt(square) / 0.9 + 1e-8) * 0.1


@cost_of("_fused_sgd", "_fused_sgd_")
def sgd(parameters: Any, gradients: Any, momenta: Any, *_: Any, **__: Any) -> None:
    for p in parameters:
        moved = p * 0.9 + p if momenta else p
        p - moved * 0.1
