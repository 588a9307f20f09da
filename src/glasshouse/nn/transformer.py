"""Transformer layers: encoder and decoder, and stacks of them."""

import copy
import math
from collections.abc import Callable
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import ArrayLike
from glasshouse.nn import init
from glasshouse.nn.attention import MultiheadAttention
from glasshouse.nn.checks import check_floating, check_positive, check_probability
from glasshouse.nn.containers import ModuleList, Sequential
from glasshouse.nn.functional.activation import gelu, relu
from glasshouse.nn.layers import Dropout
from glasshouse.nn.linear import Linear
from glasshouse.nn.module import Module
from glasshouse.nn.norm import LayerNorm
from glasshouse.ops.checks import check_option, check_type
from glasshouse.tensor import Tensor, full, random, triu
from glasshouse.tensor import where as choose

__all__ = ["LayerDrop", "LayerDropSequential", "TransformerDecoder", "TransformerDecoderLayer",
           "TransformerEncoder", "TransformerEncoderLayer"]  # fmt: skip

ACTIVATIONS = {"relu": relu, "gelu": gelu}


class TransformerLayer(Module):
    """Base of encoder and decoder layers: attentions and two linear maps, each of these parts
    with a LayerNorm and a residual connection.
    x + part(norm(x)) if norm_first, else norm(x + part(x)). `activation`: a name or a function."""

    attentions: tuple[str, ...] = ()

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: Any = 0.1,
        activation: Any = "relu",
        layer_norm_eps: Any = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not callable(activation):
            check_option(type(self).__name__, "activation", activation, ACTIVATIONS)
        factory = {"device": device, "dtype": dtype}
        for name in self.attentions:
            options = {"batch_first": batch_first, **factory}
            self.add_module(name, MultiheadAttention(d_model, nhead, dropout, bias, **options))
        self.linear1: Linear = Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout: Any = Dropout(dropout)
        self.linear2: Linear = Linear(dim_feedforward, d_model, bias, **factory)
        self.norm_first = norm_first
        parts = range(1, len(self.attentions) + 2)
        for i in parts:
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **factory))
        for i in parts:
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation: Any = activation if callable(activation) else ACTIVATIONS[activation]

    def attend(
        self,
        i: int,
        x: Tensor,
        memory: Tensor | None,
        mask: ArrayLike | None,
        padding_mask: ArrayLike | None,
        is_causal: bool,
    ) -> Tensor:
        """x after its i-th part, an attention to `memory` (None: to itself)."""
        attention = self.get_submodule(self.attentions[i - 1])

        def part(x):
            keys = x if memory is None else memory
            return attention(x, keys, keys, padding_mask, False, mask, is_causal=is_causal)[0]

        return self.add(i, x, part)

    def feed(self, i: int, x: Tensor) -> Tensor:
        inner = self.linear1
        return self.add(i, x, lambda x: self.linear2(self.dropout(self.activation(inner(x)))))

    def add(self, i: int, x: Tensor, part: Callable[..., Any]) -> Tensor:
        norm, dropout = self.get_submodule(f"norm{i}"), self.get_submodule(f"dropout{i}")
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then two linear maps with an activation between.

    Shapes: src (L, N, E), or (N, L, E) if batch_first -> the same; masks as MultiheadAttention's.
    Raises: OptionError for an unknown activation, or heads that do not divide d_model.
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.1; Xiong et al. 2020, arXiv:2002.04745
        (norm_first).
    """

    attentions: tuple[str, ...] = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: ArrayLike | None = None,
        src_key_padding_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        return self.feed(2, self.attend(1, src, None, src_mask, src_key_padding_mask, is_causal))


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's result (memory), two linear maps.

    Shapes: tgt (L, N, E), memory (S, N, E), or batch first -> as tgt.
    Source: as TransformerEncoderLayer's.
    """

    attentions: tuple[str, ...] = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = self.attend(1, tgt, None, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self.attend(2, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self.feed(3, x)


class Stack(Module):
    """Copies of one layer, which start with equal weights, and a last norm."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        check_positive(name, num_layers=num_layers)
        check_type(name, layer, Module, "a layer to copy", "Pass a Module.")
        self.layers: ModuleList = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, x: Tensor, *options: Any, **named: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *options, **named)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(Stack):
    """num_layers copies of an encoder layer, then `norm` if given. `enable_nested_tensor` and
    `mask_check` are taken because PyTorch takes them, and have no effect.

    Shapes: as the layer's.
    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: ArrayLike | None = None,
        src_key_padding_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        return super().forward(src, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(Stack):
    """num_layers copies of a decoder layer, then `norm` if given.

    Shapes: as the layer's.
    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return super().forward(tgt, memory, *masks, tgt_is_causal, memory_is_causal)


class EncoderDecoder(Module):
    """An encoder, and a decoder that attends to its output; weights start as Xavier's.

    Shapes: src (S, N, E), tgt (T, N, E), or batch first, or without N -> as tgt; masks as
        MultiheadAttention's.
    Raises: ShapeError for other features than d_model, or unequal batch sizes; OptionError for
        heads that do not divide d_model.
    Source: Vaswani et al. 2017, arXiv:1706.03762.
    Example:
        >>> model = EncoderDecoder(8, 2, 1, 1, 16, batch_first=True)
        >>> model(gh.ones((2, 5, 8)), gh.ones((2, 3, 8))).shape
        (2, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        options += (batch_first, norm_first, bias, device, dtype)
        norm = (d_model, layer_norm_eps, True, bias, device, dtype)
        encoder, decoder = custom_encoder, custom_decoder
        if encoder is None:
            layer = TransformerEncoderLayer(*options)
            encoder = TransformerEncoder(layer, num_encoder_layers, LayerNorm(*norm))
        if decoder is None:
            layer = TransformerDecoderLayer(*options)
            decoder = TransformerDecoder(layer, num_decoder_layers, LayerNorm(*norm))
        self.encoder = encoder
        self.decoder = decoder
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values of matrices again."""
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: Any = None,
        tgt_is_causal: Any = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        src, tgt = (check_floating("Transformer", x, n) for x, n in ((src, "src"), (tgt, "tgt")))
        for x in (src, tgt):
            if x.ndim not in (2, 3) or x.shape[-1] != self.d_model:
                expected = f"inputs of {self.d_model} features and 2 or 3 axes"
                raise ShapeError("Transformer", expected, x.shape, "Change d_model, or the input.")
        batch = 0 if self.batch_first else 1
        if src.ndim != tgt.ndim or (src.ndim == 3 and src.shape[batch] != tgt.shape[batch]):
            got = f"{src.shape} and {tgt.shape}"
            fix = f"Check batch_first={self.batch_first}."
            raise ShapeError("Transformer", "src and tgt of one batch size", got, fix)
        masks = {"mask": src_mask, "src_key_padding_mask": src_key_padding_mask}
        memory = self.encoder(src, **masks, is_causal=bool(src_is_causal))
        masks = {"tgt_mask": tgt_mask, "memory_mask": memory_mask}
        masks["tgt_key_padding_mask"] = tgt_key_padding_mask
        masks["memory_key_padding_mask"] = memory_key_padding_mask
        causal = {"tgt_is_causal": bool(tgt_is_causal), "memory_is_causal": memory_is_causal}
        return self.decoder(tgt, memory, **masks, **causal)

    @staticmethod
    def generate_square_subsequent_mask(
        sz: Any, device: str | None = None, dtype: DTypeLike | None = None
    ) -> Any:
        """The causal mask that is added to scores: 0 up to the diagonal, -∞ above.

        Shapes: -> (sz, sz).
        Example:
            >>> EncoderDecoder.generate_square_subsequent_mask(2).tolist()
            [[0.0, -inf], [0.0, 0.0]]
        """
        check_positive("generate_square_subsequent_mask", sz=sz)
        return triu(full((sz, sz), -math.inf, dtype=dtype, device=device), k=1)


EncoderDecoder.__name__ = "Transformer"  # as PyTorch's; ir has another class of that name


class LayerDrop(Module):
    """`module` of the input, or with probability p, while training, the input itself. Which of them
    is drawn for the whole batch; both are computed, so that one Program serves all steps.

    Shapes: as the module's, whose result has the shape of its first input.
    Raises: OptionError for p outside [0, 1].
    Source: Fan, Grave & Joulin 2020, arXiv:1909.11556.
    Example:
        >>> LayerDrop(Linear(2, 2), p=1.0)(gh.ones((1, 2))).tolist()
        [[1.0, 1.0]]
    """

    _shown = ("p",)

    def __init__(self, module: Module, p: float = 0.1) -> None:
        super().__init__()
        check_type("LayerDrop", module, Module, "a layer", "Pass a Module.")
        self.module = module
        self.p: float = check_probability("LayerDrop", p)

    def forward(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        y = self.module(input, *args, **kwargs)
        if not self.training or self.p == 0:
            return y
        return choose(random.uniform(()) < self.p, input, y)


class LayerDropSequential(Sequential):
    """Layers called one after the other, each left out with probability p while training; see
    LayerDrop. Further arguments go to every layer.

    Shapes: as the layers', whose results have the shape of their input.
    Raises: OptionError for p outside [0, 1].
    Source: Fan, Grave & Joulin 2020, arXiv:1909.11556.
    """

    def __init__(self, *modules: Any, p: float = 0.1) -> None:
        super().__init__(*modules)
        self.p: float = check_probability("LayerDropSequential", p)

    def _like(self, values):
        return type(self)(*values, p=self.p)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        draws = random.uniform((len(self),)) if self.training and self.p else None
        for i, module in enumerate(self._modules.values()):
            y = module(input, *args, **kwargs)
            input = y if draws is None else choose(draws[i] < self.p, input, y)
        return input
