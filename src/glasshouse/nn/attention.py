"""Multi-head attention."""

import math

from glasshouse.base.errors import DTypeError, ShapeError
from glasshouse.dispatch.value import Value, as_value, broadcast_to, cast, reshape
from glasshouse.nn import init
from glasshouse.nn.checks import check_divides, check_floating, check_positive, check_probability
from glasshouse.nn.functional.activation import dropout
from glasshouse.nn.functional.attention import attend, attention_weights, causal_mask
from glasshouse.nn.functional.linear import linear
from glasshouse.nn.linear import Linear, add_parameters
from glasshouse.nn.module import Module
from glasshouse.ops.movement import pad, permute
from glasshouse.tensor import concat, reduce, zeros
from glasshouse.tensor import where as choose


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

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        check_positive("MultiheadAttention", embed_dim=embed_dim)
        check_divides("MultiheadAttention", "embed_dim", embed_dim, "num_heads", num_heads)
        check_probability("MultiheadAttention", dropout)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn

        def add(wanted: bool, name: str, *shape):
            add_parameters(self, device, dtype, **{name: shape if wanted else None})

        packed = self.kdim == self.vdim == embed_dim
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        add(packed, "in_proj_weight", 3 * embed_dim, embed_dim)
        for name, width in widths.items():
            add(not packed, f"{name}_proj_weight", embed_dim, width)
        add(bias, "in_proj_bias", 3 * embed_dim)
        add(add_bias_kv, "bias_k", 1, 1, embed_dim)
        add(add_bias_kv, "bias_v", 1, 1, embed_dim)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values anew: Xavier's for the projections, biases 0."""
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
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        single, operands = self.batch_first_operands(query, key, value)
        q, k, v = self.project(*operands)  # (N, H, L, D), (N, H, S, D) twice
        if is_causal and attn_mask is None:
            attn_mask = ~causal_mask(q.shape[2], k.shape[2])
        mask = self.merge_masks(attn_mask, key_padding_mask, q, k)
        k, v, mask = self.extend_keys(k, v, mask)
        where, rate = "MultiheadAttention", self.dropout if self.training else 0.0
        weights = dropout(attention_weights(where, q, k, mask), rate) if need_weights else None
        y = attend(where, q, k, v, mask, dropout_p=rate) if weights is None else weights @ v
        y = permute(y, axes=(0, 2, 1, 3))  # (N, L, H, D)
        y = self.out_proj(reshape(y, (*y.shape[:2], self.embed_dim)))
        if single:
            y = reshape(y, y.shape[1:])
        elif not self.batch_first:
            y = permute(y, axes=(1, 0, 2))
        if weights is None:
            return y, None
        weights = reduce.mean(weights, axis=1) if average_attn_weights else weights
        return y, reshape(weights, weights.shape[1:]) if single else weights

    def batch_first_operands(self, *inputs):
        """(whether there is no batch axis, query, key, value as (N, length, features))."""
        names = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        given = {id(x): check_floating("MultiheadAttention", x) for x in inputs}
        ndim = given[id(inputs[0])].ndim
        for x, (name, width) in zip(inputs, names.items(), strict=True):
            x = given[id(x)]
            if ndim not in (2, 3) or x.ndim != ndim or x.shape[-1] != width:
                raise ShapeError(
                    "MultiheadAttention",
                    f"{name} of {width} features and query, key and value of 2 or 3 axes each",
                    f"{name} {x.shape}",
                    "Change the input, or kdim and vdim.",
                )
        for key, x in given.items():
            if ndim == 2:
                given[key] = reshape(x, (1, *x.shape))
            elif not self.batch_first:
                given[key] = permute(x, axes=(1, 0, 2))
        q, k, v = operands = [given[id(x)] for x in inputs]
        if k.shape[:2] != v.shape[:2] or q.shape[0] != k.shape[0]:
            raise ShapeError(
                "MultiheadAttention",
                "key and value of one length and one batch size",
                f"(N, length) {q.shape[:2]}, {k.shape[:2]} and {v.shape[:2]}",
                f"Check batch_first={self.batch_first}.",
            )
        return ndim == 2, operands

    def project(self, query, key, value):
        size, weight, bias = self.embed_dim, self.in_proj_weight, self.in_proj_bias
        if weight is not None and query is key and key is value:
            return self.heads(query, weight, bias, 3)
        parts = [slice(i * size, (i + 1) * size) for i in range(3)]
        biases = [None if bias is None else bias[part] for part in parts]
        weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        if weight is not None:
            weights = [weight[part] for part in parts]
            if key is value:
                rest = None if bias is None else bias[size:]
                queries = self.heads(query, weights[0], biases[0], 1)
                return *queries, *self.heads(key, weight[size:], rest, 2)
        inputs = zip((query, key, value), weights, biases, strict=True)
        return [self.heads(x, w, b, 1)[0] for x, w, b in inputs]

    def heads(self, x: Value, weight, bias, count: int) -> list[Value]:
        """x projected by `count` stacked matrices, each result as (N, H, length, D)."""
        y = linear(x, weight, bias, _where="MultiheadAttention")
        y = reshape(y, (*x.shape[:2], count, self.num_heads, self.head_dim))
        y = permute(y, axes=(2, 0, 3, 1, 4))
        return [y[i] for i in range(count)]

    def merge_masks(self, attn_mask, key_padding_mask, q: Value, k: Value):
        """Both masks as one that broadcasts to (N, H, L, S): boolean, True where attention may go,
        or added to the scores; None without masks."""
        n, h, length, size = *q.shape[:3], k.shape[2]
        masks = []
        if attn_mask is not None:
            full = (length, size)
            shapes = {full: (1, 1, *full), (n * h, *full): (n, h, *full)}
            masks.append(check_mask("attn_mask", attn_mask, shapes))
        if key_padding_mask is not None:
            shapes = {(n, size): (n, 1, 1, size)} | ({(size,): (1, 1, 1, size)} if n == 1 else {})
            masks.append(check_mask("key_padding_mask", key_padding_mask, shapes))
        if not masks:
            return None
        if all(m.dtype.is_bool for m in masks):
            return ~(masks[0] | masks[-1])
        zero = zeros((), dtype=q.dtype)
        added = [choose(m, -math.inf, zero) if m.dtype.is_bool else m for m in masks]
        return cast(added[0] if len(added) == 1 else added[0] + added[1], q.dtype)

    def extend_keys(self, k: Value, v: Value, mask):
        """Keys, values and mask with the bias and the zero that every query may attend to."""
        extra = (self.bias_k is not None) + self.add_zero_attn
        if not extra:
            return k, v, mask
        n, h, _, d = k.shape
        if self.bias_k is not None:
            rows = (reshape(b, (1, h, 1, d)) for b in (self.bias_k, self.bias_v))
            rows = (broadcast_to(row, (n, h, 1, d)) for row in rows)
            k, v = (concat([x, row], axis=2) for x, row in zip((k, v), rows, strict=True))
        if self.add_zero_attn:
            widths = ((0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 0))
            k, v = (pad(x, widths=widths, value=0.0) for x in (k, v))
        if mask is not None:
            value = True if mask.dtype.is_bool else 0.0
            mask = pad(mask, widths=((0, 0, 0),) * 3 + ((0, extra, 0),), value=value)
        return k, v, mask


def check_mask(name: str, mask, shapes: dict) -> Value:
    mask = as_value(mask, where="MultiheadAttention")
    if mask.shape not in shapes:
        raise ShapeError(
            "MultiheadAttention",
            f"{name} of {' or '.join(map(str, shapes))}",
            mask.shape,
            "Check batch_first, heads and lengths.",
        )
    if not (mask.dtype.is_bool or mask.dtype.is_floating):
        raise DTypeError(
            "MultiheadAttention",
            f"a boolean or floating {name}",
            mask.dtype.name,
            "Compare it, e.g. mask != 0.",
        )
    return reshape(mask, shapes[mask.shape])
