"""Attention over a sequence that ranks share out: keys and values travel round a ring."""

import math
from typing import Any

from glasshouse.autograd import Function
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn.functional.attention import causal_mask
from glasshouse.nn.functional.multihead import batch_first_operands, finished, projected
from glasshouse.nn.linear import Embedding
from glasshouse.ops import collective
from glasshouse.ops.movement import permute
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, exp, log, matmul, maximum, stack, zeros_like
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


class RingAttention(Function):
    """softmax(scale · q kᵀ) v over all ranks' keys, by blocks with running maxima and sums;
    backward sends keys and values round once more, with their gradients. A rank also computes
    blocks that causal attention masks: the last rank has none of these, and all wait for it."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, options: Any) -> Any:
        group, is_causal, scale = ctx.options = options
        ring, pair = ring_of(group), stack([k, v])
        top: Any = None
        total = out = top
        for step in range(group.size):
            scores = scores_of(q, pair[0], scale, distance(group, step) if is_causal else None)
            higher = reduce.max(scores, axis=-1, keepdims=True)
            higher = higher if top is None else maximum(top, higher)
            e = exp(scores - higher)
            share, part = reduce.sum(e, axis=-1, keepdims=True), matmul(e, pair[1])
            if top is not None:
                factor = exp(top - higher)
                share, part = total * factor + share, out * factor + part
            top, total, out = higher, share, part
            if step + 1 < group.size:
                pair = collective.collective_permute(pair, group=group, pairs=ring)
        out = out / total
        ctx.save_for_backward(q, k, v, out, top + log(total))
        return out

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        q, k, v, out, logsum = ctx.saved_tensors
        group, is_causal, scale = ctx.options
        ring, pair = ring_of(group), stack([k, v])
        gradients, of_q = zeros_like(pair), zeros_like(q)
        inner = reduce.sum(g * out, axis=-1, keepdims=True)
        for step in range(group.size):
            scores = scores_of(q, pair[0], scale, distance(group, step) if is_causal else None)
            weights = exp(scores - logsum)
            of_scores = weights * (matmul(g, pair[1].mT) - inner) * scale
            of_q = of_q + matmul(of_scores, pair[0])
            gradients = gradients + stack([matmul(of_scores.mT, q), matmul(weights.mT, g)])
            if step + 1 < group.size:
                pair = collective.collective_permute(pair, group=group, pairs=ring)
            gradients = collective.collective_permute(gradients, group=group, pairs=ring)
        return of_q, gradients[0], gradients[1], None


def ring_of(group: ProcessGroup) -> tuple[Any, ...]:
    return tuple((i, (i + 1) % group.size) for i in range(group.size))


def distance(group: ProcessGroup, step: int) -> int:
    """By how many parts of the sequence the keys of a step precede this rank's queries."""
    return group.rank - (group.rank - step) % group.size


def scores_of(q: Tensor, k: Tensor, scale: float, parts_behind: int | None) -> Tensor:
    """Scores; with a distance, of causal attention: of the keys up to each query."""
    scores, length = matmul(q * scale, k.mT), q.shape[-2]
    if parts_behind is None:
        return scores
    return choose(causal_mask(length, length, parts_behind * length), scores, -math.inf)


def ring_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    group: ProcessGroup,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ) v, scale = 1 / √E unless given, where each rank has its part of the
    sequence, in the order of the ranks. A rank never has more than two parts' keys and values.

    Shapes: query (..., L, E), key (..., L, E), value (..., L, E), with L that of this rank's part,
        the same on all -> (..., L, E)
    Raises: ShapeError for other shapes
    Source: Liu, Zaharia, Abbeel 2023, arXiv:2310.01889; Milakov & Gimelshein 2018, arXiv:1805.02867
    """
    q, k, v = (as_value(x, where="ring_attention") for x in (query, key, value))
    if q.ndim < 2 or not q.shape == k.shape == v.shape:
        got = f"{q.shape}, {k.shape} and {v.shape}"
        raise ShapeError("ring_attention", "q, k and v of one shape (..., L, E)", got, "Project.")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return RingAttention.apply(q, k, v, (group, is_causal, scale))


def attend_in_ring(
    attention: Any, group: ProcessGroup, operands: Any, is_causal: bool, weights: Any
) -> Any:
    """Compute a MultiheadAttention for this rank's part of the sequence."""
    widths = (attention.embed_dim, attention.kdim, attention.vdim)
    where = "MultiheadAttention"
    single, operands = batch_first_operands(where, operands, widths, attention.batch_first)
    packed, separate, bias = weights
    q, k, v = projected(where, operands, packed, separate, bias, attention.num_heads)
    y = ring_attention(q, k, v, group=group, is_causal=is_causal)
    y = permute(y, axes=(0, 2, 1, 3))
    y = reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
    return finished(attention.out_proj(y), None, single, attention.batch_first, True)


def check_ring(where: str, attention: Any, masks: Any, need_weights: bool) -> None:
    rate = attention.dropout if attention.training else 0.0
    extra = attention.bias_k is not None or attention.add_zero_attn
    if any(mask is not None for mask in masks) or need_weights or rate or extra:
        raise OptionError(
            where,
            "attention without masks (is_causal is possible), dropout, bias_kv and weights",
            f"masks {[mask is not None for mask in masks]}, need_weights={need_weights}, "
            f"dropout={rate}",
            "Pass need_weights=False, is_causal=True, and dropout=0.",
        )


class PositionEmbedding(Embedding):
    """An Embedding of positions that are counted within this rank's part of a sequence."""

    def forward(self, input: Any) -> Any:
        index = as_value(input, where="Embedding")
        return super().forward(index + self.layout.group.rank * index.shape[-1])
