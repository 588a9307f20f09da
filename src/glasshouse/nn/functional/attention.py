"""Scaled dot-product attention as a function."""

import math

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import Value, as_value, broadcast_to, reshape
from glasshouse.nn.checks import check_divides, check_floating
from glasshouse.nn.functional.activation import dropout
from glasshouse.tensor import arange, concat, exp, matmul, matrix_transpose, reduce
from glasshouse.tensor import where as choose
from glasshouse.transforms.checkpoint import checkpoint

LONG = 1 << 21  # scores of one head from which on they are computed in blocks …
BLOCK = 1 << 18  # … of about this many: 1 MiB of float32, the size of a core's cache


@composed
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
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
    given = ((query, "query"), (key, "key"), (value, "value"))
    q, k, v = (check_floating(where, x, name) for x, name in given)
    if enable_gqa:
        check_divides(where, "query heads", q.shape[-3], "key heads", k.shape[-3])
        k, v = (repeat_heads(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    fits = min(q.ndim, k.ndim, v.ndim) >= 2 and q.shape[-1] == k.shape[-1]
    if not fits or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            where,
            "query (..., L, E), key (..., S, E) and value (..., S, D)",
            f"{q.shape}, {k.shape} and {v.shape}",
            "Transpose or project them.",
        )
    if is_causal:
        if attn_mask is not None:
            raise OptionError(where, "attn_mask or is_causal", "both", "Put both into attn_mask.")
        attn_mask = causal_mask(q.shape[-2], k.shape[-2])
    return attend(where, q, k, v, attn_mask, scale, dropout_p)


def attend(where: str, q: Value, k: Value, v: Value, mask, scale=None, dropout_p=0.0) -> Value:
    """Attention without its weights. For long sequences blocks of queries are done one after the
    other, each computed again in the backward pass, so that (L, S) scores never exist at once.

    Source: Rabe & Staats 2021, Self-attention does not need O(n²) memory, arXiv:2112.05682.
    """
    queries, keys = q.shape[-2], k.shape[-2]

    def block(q, k, v, mask):
        return matmul(dropout(attention_weights(where, q, k, mask, scale), dropout_p), v)

    if queries * keys <= LONG:
        return block(q, k, v, mask)
    mask = None if mask is None else as_value(mask, where=where)
    rows, region = max(16, BLOCK // keys), checkpoint(block)
    done = []
    for start in range(0, queries, rows):
        part = slice(start, min(start + rows, queries))
        moves = mask is not None and mask.ndim > 1 and mask.shape[-2] == queries
        done.append(region(q[..., part, :], k, v, mask[..., part, :] if moves else mask))
    return concat(done, axis=-2)


def causal_mask(queries: int, keys: int) -> Value:
    """(L, S) booleans: True where key position <= query position."""
    return reshape(arange(queries), (queries, 1)) >= arange(keys)


@composed
def repeat_heads(x: Value, times: int) -> Value:
    lead, (heads, length, size) = x.shape[:-3], x.shape[-3:]
    x = reshape(x, (*lead, heads, 1, length, size))
    x = broadcast_to(x, (*lead, heads, times, length, size))
    return reshape(x, (*lead, heads * times, length, size))


@composed
def attention_weights(where: str, q: Value, k: Value, mask, scale=None) -> Value:
    """softmax(scale · q kᵀ + mask) over the keys; all 0 where every key is masked."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = matmul(q * scale, matrix_transpose(k))  # (..., L, S)
    if mask is not None:
        mask = as_value(mask, where=where)
        sizes = zip(mask.shape[::-1], scores.shape[::-1], strict=False)
        if mask.ndim > scores.ndim or any(m not in (1, s) for m, s in sizes):
            raise ShapeError(
                where,
                f"a mask that broadcasts to {scores.shape}",
                mask.shape,
                "Its last axes are queries and keys.",
            )
        scores = choose(mask, scores, -math.inf) if mask.dtype.is_bool else scores + mask
    top = reduce.max(scores, axis=-1, keepdims=True).detach()
    e = exp(scores - choose(top == -math.inf, 0, top))
    total = reduce.sum(e, axis=-1, keepdims=True)
    return e / choose(total == 0, 1, total)
