"""Scaled dot-product attention as a function."""

import math
from typing import Any

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, reshape
from glasshouse.nn.checks import check_divides, check_floating
from glasshouse.nn.functional.activation import dropout
from glasshouse.nn.functional.blocks import blocks_of, by_rows, rows_of_mask
from glasshouse.tensor import Tensor, arange, exp, matmul, matrix_transpose
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

FEW_QUERIES = 16  # up to so many, key heads that several query heads share are not repeated


@composed
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(scale · q kᵀ + mask) v, scale = 1 / √E unless given.
    A boolean mask is True where a query may attend; a floating one is added. A query that may
    attend nowhere gives 0. `is_causal` lets query i attend to keys 0 … i. `enable_gqa` lets groups
    of query heads (axis -3) share one key and value head.

    Shapes: query (..., L, E), key (..., S, E), value (..., S, D), attn_mask broadcasting to
        (..., L, S) -> (..., L, D).
    Raises: ShapeError for sizes that do not fit; OptionError for a mask beside is_causal.
    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Ainslie et al. 2023, arXiv:2305.13245.
    """
    where = "scaled_dot_product_attention"
    named_inputs = ((query, "query"), (key, "key"), (value, "value"))
    q, k, v = (check_floating(where, x, name) for x, name in named_inputs)
    attn_mask = None if attn_mask is None else as_value(attn_mask, where=where)
    is_grouped = enable_gqa and q.ndim > 2 and q.shape[-2] <= FEW_QUERIES and not dropout_p
    is_grouped = is_grouped and (attn_mask is None or is_shared(attn_mask, q.ndim))
    if enable_gqa:
        check_divides(where, "query heads", q.shape[-3], "key heads", k.shape[-3])
        if not is_grouped:
            k, v = (repeat_heads(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    fits = min(q.ndim, k.ndim, v.ndim) >= 2 and q.shape[-1] == k.shape[-1]
    if not fits or k.shape[-2] != v.shape[-2]:
        expected = "query (..., L, E), key (..., S, E) and value (..., S, D)"
        fix = "Transpose or project them."
        raise ShapeError(where, expected, f"{q.shape}, {k.shape} and {v.shape}", fix)
    if is_causal and attn_mask is not None:
        raise OptionError(where, "attn_mask or is_causal", "both", "Put both into attn_mask.")
    if is_grouped:
        mask = causal_mask(q.shape[-2], k.shape[-2]) if is_causal else attn_mask
        return attend_grouped(where, q, k, v, mask, scale)
    return attend(where, q, k, v, attn_mask, scale, dropout_p, is_causal)


def is_shared(mask: Tensor, ndim: int) -> bool:
    """Whether all heads have one mask."""
    return mask.ndim < 3 or (mask.ndim == ndim and mask.shape[-3] == 1)


def attend_grouped(
    where: str, q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float | None
) -> Tensor:
    """Attention of few queries: those of the heads that share a key head lie below each other, so
    that keys and values are read once.

    Shapes: q (..., H, L, E), k (..., K, S, E), v (..., K, S, D) -> (..., H, L, D).
    """
    (*lead, heads, queries, size), few = q.shape, k.shape[-3]
    q = reshape(q, (*lead, few, heads // few * queries, size))
    if mask is not None:
        check_mask(where, mask, (*lead, heads, queries, k.shape[-2]))
        outer = (*mask.shape[:-3], 1) if mask.ndim > 3 else ()
        mask = broadcast_to(mask, (*mask.shape[:-2], queries, mask.shape[-1]))
        mask = reshape(mask, (*outer, 1, queries, mask.shape[-1]))
        mask = broadcast_to(mask, (*outer, heads // few, *mask.shape[-2:]))
        mask = reshape(mask, (*outer, heads // few * queries, mask.shape[-1]))
    y = matmul(attention_weights(where, q, k, mask, scale), v)
    return reshape(y, (*lead, heads, queries, v.shape[-1]))


def attend(
    where: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """Attention without its weights. Where there are many scores, blocks of heads and queries are
    done one after the other, and computed again in the backward pass: (L, S) scores never exist at
    once.
    """
    mask = None if mask is None else as_value(mask, where=where)
    lead, queries, keys = q.shape[:-2], q.shape[-2], k.shape[-2]
    shared = lead == k.shape[:-2] == v.shape[:-2]
    if mask is not None:
        check_mask(where, mask, (*lead, queries, keys))
    blocks = blocks_of(lead, queries, keys, mask) if shared else None
    if blocks is None:
        if is_causal:
            mask = causal_mask(queries, keys)
        return matmul(dropout(attention_weights(where, q, k, mask, scale), dropout_p), v)

    def of_group(mask, q, k, v):
        def of_rows(carry, start, q, *mask_rows):
            visible = mask_rows[0] if mask_rows else mask
            if is_causal:
                visible = causal_mask(q.shape[-2], keys, start)
            weights = attention_weights(where, q, k, visible, scale)
            return carry, (matmul(dropout(weights, dropout_p), v),)

        return by_rows(of_rows, blocks.rows, (), q, *rows_of_mask(mask, q))[1]

    (out,) = blocks.each(of_group, *map(blocks.grouped, (q, k, v)))
    return reshape(out, (*lead, queries, v.shape[-1]))


def causal_mask(queries: int, keys: int, start: int = 0) -> Tensor:
    """(L, S) booleans: True where key position <= query position, which begins at `start`."""
    return reshape(arange(queries), (queries, 1)) + start >= arange(keys)


def check_mask(where: str, mask: Tensor, shape: Any) -> None:
    sizes = zip(mask.shape[::-1], shape[::-1], strict=False)
    if mask.ndim > len(shape) or any(m not in (1, s) for m, s in sizes):
        fix = "Its last axes are queries and keys."
        raise ShapeError(where, f"a mask that broadcasts to {shape}", mask.shape, fix)


@composed
def repeat_heads(x: Tensor, times: int) -> Tensor:
    lead, (heads, length, size) = x.shape[:-3], x.shape[-3:]
    x = reshape(x, (*lead, heads, 1, length, size))
    x = broadcast_to(x, (*lead, heads, times, length, size))
    return reshape(x, (*lead, heads * times, length, size))


@composed
def attention_weights(
    where: str, q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None = None
) -> Tensor:
    """softmax(scale · q kᵀ + mask) over the keys; all 0 where every key is masked."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q * scale, matrix_transpose(k))  # (..., L, S)
    if mask is not None:
        mask = as_value(mask, where=where)
        check_mask(where, mask, scores.shape)
        scores = choose(mask, scores, -math.inf) if mask.dtype.is_bool else scores + mask
    top = reduce.max(scores, axis=-1, keepdims=True).detach()
    e = exp(scores - choose(top == -math.inf, 0, top))
    total = reduce.sum(e, axis=-1, keepdims=True)
    return e / choose(total == 0, 1, total)
