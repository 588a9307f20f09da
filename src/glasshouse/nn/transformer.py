"""Transformer layers: encoder and decoder, and stacks of them."""

import copy

from glasshouse.nn.attention import MultiheadAttention
from glasshouse.nn.checks import check_positive
from glasshouse.nn.containers import ModuleList
from glasshouse.nn.functional.activation import gelu, relu
from glasshouse.nn.layers import Dropout
from glasshouse.nn.linear import Linear
from glasshouse.nn.module import Module
from glasshouse.nn.norm import LayerNorm
from glasshouse.ops.checks import check_option, check_type

ACTIVATIONS = {"relu": relu, "gelu": gelu}


class TransformerLayer(Module):
    """What encoder and decoder layers share: attentions, two linear maps, and for each of these
    parts a LayerNorm and a residual connection.
    x + part(norm(x)) if norm_first, else norm(x + part(x)). `activation`: a name or a function."""

    attentions: tuple[str, ...] = ()

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if not callable(activation):
            check_option(type(self).__name__, "activation", activation, ACTIVATIONS)
        factory = {"device": device, "dtype": dtype}
        for name in self.attentions:
            options = {"batch_first": batch_first, **factory}
            self.add_module(name, MultiheadAttention(d_model, nhead, dropout, bias, **options))
        self.linear1 = Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **factory)
        self.norm_first = norm_first
        parts = range(1, len(self.attentions) + 2)
        for i in parts:
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **factory))
        for i in parts:
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = activation if callable(activation) else ACTIVATIONS[activation]

    def attend(self, i: int, x, memory, mask, padding_mask, is_causal):
        """x after its i-th part, an attention to `memory` (None: to itself)."""
        attention = self.get_submodule(self.attentions[i - 1])

        def part(x):
            keys = x if memory is None else memory
            return attention(x, keys, keys, padding_mask, False, mask, is_causal=is_causal)[0]

        return self.add(i, x, part)

    def feed(self, i: int, x):
        inner = self.linear1
        return self.add(i, x, lambda x: self.linear2(self.dropout(self.activation(inner(x)))))

    def add(self, i: int, x, part):
        norm, dropout = self.get_submodule(f"norm{i}"), self.get_submodule(f"dropout{i}")
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then two linear maps with an activation between.

    Shapes: src (L, N, E), or (N, L, E) if batch_first -> the same; masks as MultiheadAttention's.
    Raises: OptionError for an unknown activation, or heads that do not divide d_model.
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.1; Xiong et al. 2020, arXiv:2002.04745
        (norm_first).
    """

    attentions = ("self_attn",)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        return self.feed(2, self.attend(1, src, None, src_mask, src_key_padding_mask, is_causal))


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's result (memory), two linear maps.

    Shapes: tgt (L, N, E), memory (S, N, E), or batch first -> as tgt.
    Source: as TransformerEncoderLayer's.
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        x = self.attend(1, tgt, None, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self.attend(2, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self.feed(3, x)


class Stack(Module):
    """Copies of one layer, which start with equal weights, and a last norm."""

    def __init__(self, layer, num_layers, norm=None):
        super().__init__()
        name = type(self).__name__
        check_positive(name, num_layers=num_layers)
        check_type(name, layer, Module, "a layer to copy", "Pass a Module.")
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, x, *options, **named):
        for layer in self.layers:
            x = layer(x, *options, **named)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(Stack):
    """num_layers copies of an encoder layer, then `norm` if given.

    Shapes: as the layer's.
    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=False):
        return super().forward(src, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(Stack):
    """num_layers copies of a decoder layer, then `norm` if given.

    Shapes: as the layer's.
    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        return super().forward(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )
