"""Products of matrices, and attention."""

import math
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.base import as_dtype, having
from glasshouse.dispatch import Value, cast, full, primitives, state
from glasshouse.dispatch.wide import widen as wide
from glasshouse.nn.functional.blocks import blocks_of, by_rows, rows_of_mask
from glasshouse.ops.contract import matmul
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import reshape
from glasshouse.torch.aten.table import aten

INT64 = as_dtype("int64")
PART = 128  # queries of causal attention in a part, which shares its keys
MOST_PARTS = 5  # longer texts go by blocks of rows, in a loop


@aten("mm", "bmm")
def product(a: Tensor, b: Tensor) -> Tensor:
    return matmul(a, b)


def combined(x: Value, product: Value, beta: int, alpha: int) -> Value:
    """beta · x + alpha · product, in the dtype of the product."""
    if beta == 1 and alpha == 1:
        return x + product
    dtype, product = product.dtype, wide(product)
    if dtype.is_integer:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    if beta != 0:
        product = (wide(x) if beta == 1 else wide(x) * beta) + product
    return cast(product, dtype)


@aten("addmm", "baddbmm")
def addmm(x: Tensor, a: Tensor, b: Tensor, beta: int = 1, alpha: int = 1) -> Value:
    return combined(x, matmul(a, b), beta, alpha)


@aten("addbmm")
def addbmm(x: Any, a: Any, b: Any, beta: int = 1, alpha: int = 1) -> Any:
    return combined(x, gh.sum(matmul(a, b), axis=0), beta, alpha)


@aten("mv")
def mv(a: Any, x: Any) -> Any:
    return reshape(matmul(a, reshape(x, (x.size, 1))), (a.shape[0],))


@aten("addmv")
def addmv(x: Any, a: Any, v: Any, beta: int = 1, alpha: int = 1) -> Any:
    return combined(x, mv(a, v), beta, alpha)


@aten("dot")
def dot(x: Any, y: Any) -> Any:
    return reshape(matmul(reshape(x, (1, x.size)), reshape(y, (y.size, 1))), ())


# -- distances --------------------------------------------------------------------------------


def norm_of(difference: Value, p: float) -> Value:
    """The p-norm along the last axis."""
    size = gh.abs(difference)
    if p == 0:
        return gh.sum(cast(size != 0, size.dtype), axis=-1)
    if p == 1:
        return gh.sum(size, axis=-1)
    if p == 2:
        return gh.sqrt(gh.sum(size * size, axis=-1))
    if p == math.inf:
        return gh.max(size, axis=-1)
    return gh.sum(size**p, axis=-1) ** (1 / p)


def norm_slope(difference: Value, norm: Value, p: float) -> Value:
    """The derivative of the p-norm by each difference; 0 where the norm is 0."""
    size, sign = gh.abs(difference), gh.sign(difference)
    norm = gh.expand_dims(norm, -1)
    zero = full((), 0, difference.dtype)
    if p == 0:
        return difference * 0
    if p == 1:
        return sign
    if p == math.inf:
        return gh.where(size == norm, sign, zero)
    slope = difference / norm if p == 2 else sign * (size / norm) ** (p - 1)
    return gh.where((norm == 0) | (size == 0), zero, slope)


def pairwise_difference(x: Value, y: Value) -> Value:
    """(…, P, R, M) of x (…, P, M) and y (…, R, M)."""
    return gh.expand_dims(x, -2) - gh.expand_dims(y, -3)


@aten("_cdist_forward")
def cdist(x: Any, y: Any, p: Any, mode: str) -> Any:
    if 0 in x.shape or 0 in y.shape:
        raise NotImplementedError
    return norm_of(pairwise_difference(x, y), p)


@aten("_cdist_backward")
def cdist_backward(g: Any, x: Any, y: Any, p: Any, distances: Any) -> Any:
    """The gradient of the first points."""
    if 0 in x.shape or 0 in y.shape:
        raise NotImplementedError
    slope = norm_slope(pairwise_difference(x, y), distances, p)
    return gh.sum(gh.expand_dims(g, -1) * slope, axis=-2)


def points_of_pairs(x: Value) -> tuple[Value, Value]:
    """The numbers of the points of each pair (i, j), i < j, in order."""
    first, second = np.triu_indices(x.shape[0], 1)
    return gh.asarray(first.astype(np.int64)), gh.asarray(second.astype(np.int64))


def difference_of_pairs(x: Value) -> Value:
    first, second = (primitives["gather"](x, at, axis=0) for at in points_of_pairs(x))
    return first - second


@aten("_pdist_forward")
def pdist(x: Any, p: int = 2) -> Any:
    if x.shape[0] < 2 or x.shape[1] == 0:
        raise NotImplementedError
    return norm_of(difference_of_pairs(x), p)


@aten("_pdist_backward")
def pdist_backward(g: Any, x: Any, p: Any, distances: Any) -> Any:
    if x.shape[0] < 2 or x.shape[1] == 0:
        raise NotImplementedError
    parts = gh.expand_dims(g, -1) * norm_slope(difference_of_pairs(x), distances, p)
    first, second = points_of_pairs(x)
    grad = primitives["scatter_add"](full(x.shape, 0, x.dtype), first, parts, axis=0)
    return primitives["scatter_add"](grad, second, -parts, axis=0)


# -- attention --------------------------------------------------------------------------------


def transposed(x: Value) -> Value:
    return gh.swapaxes(x, -1, -2)


def scaling_of(q: Value, scale: Any) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def scores_of(
    q: Value, k: Value, mask: Any, is_causal: bool, scale: float, start: int = 0
) -> Value:
    """q k' · scale, with masked scores at -inf, or a mask added: (..., L, S); `start` is the number
    of the first query. Scores are never narrow: rounding a score of 100 to bfloat16 changes its
    exponential by up to a quarter."""
    scores = matmul(wide(q) * scale, wide(transposed(k)))
    if mask is not None and mask.dtype.is_bool:
        scores = gh.where(mask, scores, full((), -math.inf, scores.dtype))
    elif mask is not None:
        scores = scores + mask
    if is_causal:
        rows, columns = scores.shape[-2:]
        row = reshape(gh.arange(rows, dtype=INT64), (rows, 1)) + start
        visible = gh.arange(columns, dtype=INT64) <= row
        scores = gh.where(visible, scores, full((), -math.inf, scores.dtype))
    return scores


def repeated_heads(q: Value, x: Value) -> Value:
    """Keys or values for each head of the queries, where several share one."""
    times = q.shape[-3] // x.shape[-3]
    return x if times == 1 else gh.repeat(x, times, axis=x.ndim - 3)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> Any:
    """(softmax(q k' · scale + mask) v, log of the sums of exponentials)."""
    k, v = repeated_heads(q, k), repeated_heads(q, v)
    scale, lead = scaling_of(q, scale), q.shape[:-2]
    blocks = blocks_of(lead, q.shape[-2], k.shape[-2], attn_mask)
    if blocks is None:
        out, sums = attend(q, k, v, attn_mask, is_causal, scale)
        return out, reshape(sums, sums.shape[:-1])

    parts = visible_parts(q, k) if is_causal and attn_mask is None else []

    def of_group(mask, q, k, v):
        def of_rows(carry, start, q, *row_masks):
            masks = row_masks[0] if row_masks else mask
            return carry, attend(q, k, v, masks, is_causal, scale, start)

        if parts:
            cut = ((cut_rows(q, a, b), cut_rows(k, 0, b), cut_rows(v, 0, b), a) for a, b in parts)
            results = [attend(q, k, v, None, True, scale, start) for q, k, v, start in cut]
            return tuple(gh.concat(list(x), axis=-2) for x in zip(*results, strict=True))
        return by_rows(of_rows, blocks.rows, (), q, *rows_of_mask(mask, q))[1]

    out, sums = blocks.each(of_group, *map(blocks.grouped, (q, k, v)))
    return reshape(out, (*lead, *out.shape[-2:])), reshape(sums, q.shape[:-1])


def attend(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float, start: int = 0) -> Any:
    """Attention of queries to all keys, and the logarithms of the sums, a column."""
    scores = scores_of(q, k, mask, is_causal, scale, start)
    largest = gh.max(scores, axis=-1, keepdims=True)
    largest = gh.where(largest == -math.inf, full((), 0, largest.dtype), largest)
    e = gh.exp(scores - largest)
    total = gh.sum(e, axis=-1, keepdims=True)
    if mask is not None:  # a row that sees no key gives zeros
        total = gh.where(total == 0, full((), 1, total.dtype), total)
    sums = largest + gh.log(total)
    if v.dtype.itemsize < scores.dtype.itemsize:  # weights are rounded once, to the narrow dtype
        return matmul(cast(e / total, v.dtype), v), sums
    return matmul(e, v) / total, sums


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: Any,
    is_causal: Any,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> Any:
    """The gradients of queries, keys and values.

    Source: Dao et al. 2022, arXiv:2205.14135, algorithm 4
    """
    heads, shared, lead = q.shape[-3], k.shape[-3], q.shape[:-2]
    keys, values, scale = repeated_heads(q, k), repeated_heads(q, v), scaling_of(q, scale)
    sums = gh.expand_dims(logsumexp, -1)
    inner = gh.sum(wide(g) * wide(out), axis=-1, keepdims=True)
    blocks = blocks_of(lead, q.shape[-2], k.shape[-2], attn_mask)
    if blocks is None:
        rows = (g, q, sums, inner)
        grad_q, grad_k, grad_v = pull_back(*rows, keys, values, attn_mask, is_causal, scale)
    else:
        parts = visible_parts(q, k) if is_causal and attn_mask is None else []

        def of_group(mask, k, v, *rows):
            if parts:
                return pull_back_by_parts(parts, rows, k, v, scale)

            def of_rows(carry, start, g, q, sums, inner, *row_masks):
                masks = row_masks[0] if row_masks else mask
                grads = pull_back(g, q, sums, inner, k, v, masks, is_causal, scale, start)
                totals = (total + wide(x) for total, x in zip(carry, grads[1:], strict=True))
                return tuple(totals), grads[:1]

            begin = tuple(full(x.shape, 0, wide(x).dtype) for x in (k, v))
            totals, (grad_q,) = by_rows(of_rows, blocks.rows, begin, *rows, *rows_of_mask(mask, q))
            return grad_q, *(cast(x, k.dtype) for x in totals)

        operands = (keys, values, g, q, sums, inner)
        grads = blocks.each(of_group, *map(blocks.grouped, operands))
        grad_q, grad_k, grad_v = (reshape(x, (*lead, *x.shape[-2:])) for x in grads)
    if heads != shared:
        grad_k, grad_v = (summed_heads(x, shared) for x in (grad_k, grad_v))
    return grad_q, grad_k, grad_v


def visible_parts(q: Value, k: Value) -> list[tuple[int, int]]:
    """The (start, stop) of parts of the queries, each of which sees keys up to its last query: up
    to half of the scores are not computed. Empty unless there are as many keys, and two parts or
    more, but not too many."""
    count = q.shape[-2]
    if k.shape[-2] != count or not 2 <= count // PART <= MOST_PARTS:
        return []
    bounds = [*range(0, count - PART + 1, PART), count]
    return list(pairwise(bounds))


def cut_rows(x: Value, start: int, stop: int) -> Value:
    """(..., L, E) -> (..., stop - start, E)."""
    return x if x.shape[-2] == stop - start else x[..., start:stop, :]


def pull_back_by_parts(parts: Any, rows: Any, k: Any, v: Any, scale: float) -> Any:
    """The gradients of queries, keys and values, from those of each part with its keys."""
    results: list[Any] = []
    sums: Any
    for start, stop in parts:
        g, q, sums, inner = (cut_rows(x, start, stop) for x in rows)
        visible = (cut_rows(k, 0, stop), cut_rows(v, 0, stop))
        results.append(pull_back(g, q, sums, inner, *visible, None, True, scale, start))
    grad_q, *key_grads = zip(*results, strict=True)
    totals = []
    for grads in key_grads:
        sums = []
        for i, (start, stop) in enumerate(parts):
            sums.append(reduce(add, (cut_rows(x, start, stop) for x in grads[i:])))
        totals.append(gh.concat(sums, axis=-2))
    return gh.concat(list(grad_q), axis=-2), *totals


def pull_back(
    g: Any,
    q: Any,
    sums: Any,
    inner: Any,
    k: Any,
    v: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
    start: int = 0,
) -> Any:
    """The gradients of queries, and their terms in the gradients of keys and values."""
    with having(state, phase="recompute"):  # the forward pass saved none
        scores = scores_of(q, k, mask, is_causal, scale, start)
    weights = gh.exp(scores - sums)
    grad_v = matmul(transposed(cast(weights, q.dtype)), g)
    grad_weights = matmul(wide(g), wide(transposed(v)))  # nearly as large as `inner`
    grad_scores = cast(weights * (grad_weights - inner) * scale, q.dtype)
    return matmul(grad_scores, k), matmul(transposed(grad_scores), q), grad_v


def summed_heads(x: Value, shared: int) -> Value:
    """The sum over the heads that share keys or values."""
    lead, (heads, *rest) = x.shape[:-3], x.shape[-3:]
    parts = reshape(x, (*lead, shared, heads // shared, *rest))
    return gh.sum(parts, axis=len(lead) + 1)
