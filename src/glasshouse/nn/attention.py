"""Multi-head attention."""

from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.value import ArrayLike
from glasshouse.nn import init
from glasshouse.nn.checks import check_divides, check_positive, check_probability
from glasshouse.nn.functional.multihead import (
    attend_in_heads,
    batch_first_operands,
    finished,
)
from glasshouse.nn.linear import Linear, add_parameters
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor


class MultiheadAttention(Module):
    """Attention of `num_heads` heads: queries, keys and values are projected, each head attends in
    its part of the features, and the results are projected together.
    Masks: `attn_mask` (L, S) or (N · heads, L, S), `key_padding_mask` (N, S); boolean ones are True
    where a query may NOT attend, floating ones are added. `is_causal` without a mask makes one. A
    query that may attend nowhere gets the bias of the last projection.

    Shapes: query (L, N, E), key (S, N, kdim), value (S, N, vdim), or (N, L, E) … if batch_first, or
        without N -> result like query; weights (N, L, S), or (N, heads, L, S) if not averaged, or
        None if not needed.
    Raises: OptionError unless num_heads divides embed_dim; ShapeError for sizes that do not fit.
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.2.2.
    """

    embed_dim: int
    num_heads: int
    head_dim: int

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: Any = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        check_positive("MultiheadAttention", embed_dim=embed_dim)
        check_divides("MultiheadAttention", "embed_dim", embed_dim, "num_heads", num_heads)
        check_probability("MultiheadAttention", dropout)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim: int = kdim or embed_dim
        self.vdim: int = vdim or embed_dim
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn

        def add(is_needed: bool, name: str, *shape):
            add_parameters(self, device, dtype, **{name: shape if is_needed else None})

        packed = self.kdim == self.vdim == embed_dim
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        add(packed, "in_proj_weight", 3 * embed_dim, embed_dim)
        for name, width in widths.items():
            add(not packed, f"{name}_proj_weight", embed_dim, width)
        add(bias, "in_proj_bias", 3 * embed_dim)
        add(add_bias_kv, "bias_k", 1, 1, embed_dim)
        add(add_bias_kv, "bias_v", 1, 1, embed_dim)
        self.out_proj: Linear = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values again: Xavier's for the projections, biases 0."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: ArrayLike | None = None,
        need_weights: bool = True,
        attn_mask: ArrayLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        where = "MultiheadAttention"
        widths, packed = (self.embed_dim, self.kdim, self.vdim), self.in_proj_weight
        inputs = (query, key, value)
        single, operands = batch_first_operands(where, inputs, widths, self.batch_first)
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        y, weights = attend_in_heads(
            where,
            operands,
            (packed, separate, self.in_proj_bias, self.num_heads),
            masks=(attn_mask, key_padding_mask, is_causal),
            extra=(self.bias_k, self.bias_v, self.add_zero_attn),
            rate=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        return finished(self.out_proj(y), weights, single, self.batch_first, average_attn_weights)
