"""Products of matrices, and attention."""

import math

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.dispatch.value import Value, cast, full
from glasshouse.ops.contract import matmul
from glasshouse.torch.aten.reduce import wide
from glasshouse.torch.aten.shape import reshape
from glasshouse.torch.table import aten

INT64 = as_dtype("int64")


@aten("mm", "bmm")
def product(a, b):
    return matmul(a, b)


def combined(x: Value, product: Value, beta, alpha) -> Value:
    """beta · x + alpha · product, in the dtype of the product."""
    if product.dtype.is_integer:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return (x if beta == 1 else x * beta) + product


@aten("addmm")
def addmm(x, a, b, beta=1, alpha=1):
    return combined(x, matmul(a, b), beta, alpha)


@aten("baddbmm")
def baddbmm(x, a, b, beta=1, alpha=1):
    return combined(x, matmul(a, b), beta, alpha)


@aten("addbmm")
def addbmm(x, a, b, beta=1, alpha=1):
    return combined(x, gh.sum(matmul(a, b), axis=0), beta, alpha)


@aten("mv")
def mv(a, x):
    return reshape(matmul(a, reshape(x, (x.size, 1))), (a.shape[0],))


@aten("addmv")
def addmv(x, a, v, beta=1, alpha=1):
    return combined(x, mv(a, v), beta, alpha)


@aten("dot")
def dot(x, y):
    return reshape(matmul(reshape(x, (1, x.size)), reshape(y, (y.size, 1))), ())


# -- attention --------------------------------------------------------------------------------


def transposed(x: Value) -> Value:
    return gh.swapaxes(x, -1, -2)


def scaling_of(q: Value, scale) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def scores_of(q: Value, k: Value, mask, is_causal: bool, scale: float) -> Value:
    """q k' · scale, with what is masked at -inf or added to: (..., L, S)."""
    scores = wide(matmul(q * scale, transposed(k)))
    if mask is not None and mask.dtype.is_bool:
        scores = gh.where(mask, scores, full((), -math.inf, scores.dtype))
    elif mask is not None:
        scores = scores + mask
    if is_causal:
        rows, columns = scores.shape[-2:]
        row = reshape(gh.arange(rows, dtype=INT64), (rows, 1))
        visible = gh.arange(columns, dtype=INT64) <= row
        scores = gh.where(visible, scores, full((), -math.inf, scores.dtype))
    return scores


def repeated_heads(q: Value, x: Value) -> Value:
    """Keys or values for each head of the queries, where several share one."""
    times = q.shape[-3] // x.shape[-3]
    return x if times == 1 else gh.repeat(x, times, axis=x.ndim - 3)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """(softmax(q k' · scale + mask) v, log of the sums of exponentials)."""
    k, v = repeated_heads(q, k), repeated_heads(q, v)
    scores = scores_of(q, k, attn_mask, is_causal, scaling_of(q, scale))
    largest = gh.max(scores, axis=-1, keepdims=True)
    largest = gh.where(largest == -math.inf, full((), 0, largest.dtype), largest)
    e = gh.exp(scores - largest)
    total = gh.sum(e, axis=-1, keepdims=True)
    weights = cast(e / total, v.dtype)
    logsumexp = reshape(largest + gh.log(total), total.shape[:-1])
    return matmul(weights, v), logsumexp


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    g, q, k, v, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    """The gradients of queries, keys and values.

    Source: Dao et al. 2022, arXiv:2205.14135, algorithm 4
    """
    heads, shared = q.shape[-3], k.shape[-3]
    keys, values, scale = repeated_heads(q, k), repeated_heads(q, v), scaling_of(q, scale)
    scores = scores_of(q, keys, attn_mask, is_causal, scale)
    sums = gh.expand_dims(logsumexp, -1)
    weights = gh.exp(scores - sums)
    narrow = cast(weights, q.dtype)
    grad_v = matmul(transposed(narrow), g)
    grad_weights = wide(matmul(g, transposed(values)))
    inner = gh.sum(wide(g) * wide(out), axis=-1, keepdims=True)
    grad_scores = cast(weights * (grad_weights - inner) * scale, q.dtype)
    grad_q, grad_k = matmul(grad_scores, keys), matmul(transposed(grad_scores), q)
    if heads != shared:
        grad_k, grad_v = (summed_heads(x, shared) for x in (grad_k, grad_v))
    return grad_q, grad_k, grad_v


def summed_heads(x: Value, shared: int) -> Value:
    """The sum over the heads that share keys or values."""
    lead, (heads, *rest) = x.shape[:-3], x.shape[-3:]
    parts = reshape(x, (*lead, shared, heads // shared, *rest))
    return gh.sum(parts, axis=len(lead) + 1)
