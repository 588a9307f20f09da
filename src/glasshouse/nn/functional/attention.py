"""Scaled dot-product attention as a function."""

import math

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import Value, as_value, broadcast_to, reshape
from glasshouse.nn.checks import check_divides, check_floating
from glasshouse.nn.functional.dropout import dropout
from glasshouse.tensor import reduce
from glasshouse.tensor.contract import matmul, matrix_transpose
from glasshouse.tensor.creation import arange
from glasshouse.tensor.elementwise import exp
from glasshouse.tensor.elementwise import where as choose


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(scale · q kᵀ + mask) v, scale = 1 / √E unless given.

    A boolean mask is True where a query may attend; a floating one is added. A query that may
    attend nowhere gives 0. `is_causal` lets query i attend to keys 0 … i. `enable_gqa` lets groups
    of query heads (axis -3) share one key and value head.

    Shapes:  query (..., L, E), key (..., S, E), value (..., S, D), attn_mask broadcasting to
             (..., L, S) -> (..., L, D)
    Raises:  ShapeError for sizes that do not fit; OptionError for a mask beside is_causal
    Source:  Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Ainslie et al. 2023, arXiv:2305.13245
    """
    where = "scaled_dot_product_attention"
    q, k, v = (
        check_floating(where, x, n) for x, n in ((query, "query"), (key, "key"), (value, "value"))
    )
    if enable_gqa:
        check_divides(where, "query heads", q.shape[-3], "key heads", k.shape[-3])
        k, v = (repeat_heads(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    check_heads(where, q, k, v)
    if is_causal:
        if attn_mask is not None:
            raise OptionError(
                f"{where}: expected attn_mask or is_causal; got both. Put both into attn_mask."
            )
        attn_mask = causal_mask(q.shape[-2], k.shape[-2])
    weights = attention_weights(where, q, k, attn_mask, scale)
    return matmul(dropout(weights, dropout_p), v)


def check_heads(where: str, q: Value, k: Value, v: Value) -> None:
    fits = min(q.ndim, k.ndim, v.ndim) >= 2 and q.shape[-1] == k.shape[-1]
    if not fits or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{where}: expected query (..., L, E), key (..., S, E) and value (..., S, D); got "
            f"{q.shape}, {k.shape} and {v.shape}. Transpose or project them."
        )


def causal_mask(queries: int, keys: int) -> Value:
    """(L, S) booleans: True where key position <= query position."""
    return reshape(arange(queries), (queries, 1)) >= arange(keys)


def repeat_heads(x: Value, times: int) -> Value:
    """Each entry of axis -3 `times` times."""
    lead, (heads, length, size) = x.shape[:-3], x.shape[-3:]
    x = reshape(x, (*lead, heads, 1, length, size))
    x = broadcast_to(x, (*lead, heads, times, length, size))
    return reshape(x, (*lead, heads * times, length, size))


def attention_weights(where: str, q: Value, k: Value, mask, scale=None) -> Value:
    """softmax(scale · q kᵀ + mask) over the keys; all 0 where every key is masked."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q * scale, matrix_transpose(k))  # (..., L, S)
    if mask is not None:
        mask = as_value(mask, where=where)
        if mask.ndim > scores.ndim or any(
            m not in (1, s) for m, s in zip(mask.shape[::-1], scores.shape[::-1], strict=False)
        ):
            raise ShapeError(
                f"{where}: expected a mask that broadcasts to {scores.shape}; got {mask.shape}. "
                "Its last axes are queries and keys."
            )
        scores = choose(mask, scores, -math.inf) if mask.dtype.is_bool else scores + mask
    top = reduce.max(scores, axis=-1, keepdims=True).detach()
    e = exp(scores - choose(top == -math.inf, 0, top))
    total = reduce.sum(e, axis=-1, keepdims=True)
    return e / choose(total == 0, 1, total)
