"""Attention, where it is the usual one; ONNX's own definition composes the rest."""

from typing import Any

import glasshouse as gh
from glasshouse.nn import functional


def usual_attention(values: list[Any], attributes: dict[str, Any], outputs: int) -> Any | None:
    """Attention of heads without caches, windows, caps; None for another kind."""
    plain = {"scale", "is_causal", "q_num_heads", "kv_num_heads"}
    if outputs > 1 or not set(attributes) <= plain or any(x is not None for x in values[4:]):
        return None
    mask = values[3] if len(values) > 3 else None
    q, k, v = values[:3]
    causal = bool(attributes.get("is_causal"))
    if mask is not None or (causal and q.shape[-2] != k.shape[-2]):
        return None
    flat = q.ndim == 3
    if flat:
        heads = [attributes["q_num_heads"], *[attributes["kv_num_heads"]] * 2]
        q, k, v = (apart(x, n) for x, n in zip((q, k, v), heads))
    y = functional.scaled_dot_product_attention(
        q, k, v, None, 0.0, causal, attributes.get("scale"), q.shape[1] != k.shape[1]
    )
    return gh.swapaxes(y, 1, 2).reshape((y.shape[0], y.shape[2], -1)) if flat else y


def apart(x: Any, heads: int) -> Any:
    """(B, T, H * D) -> (B, H, T, D)"""
    return gh.swapaxes(x.reshape((*x.shape[:2], heads, -1)), 1, 2)
