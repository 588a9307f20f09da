"""Marian's encoder and decoder, which translate."""

import dataclasses
import math
from typing import Any, ClassVar

from glasshouse import nn
from glasshouse.autograd import no_grad
from glasshouse.nn.functional.positions import sinusoids
from glasshouse.tensor import Tensor, arange, concat, take, zeros
from glasshouse.text.models import parts
from glasshouse.text.models.encoder_decoder import AttentionLayer, EncoderDecoderModel, TextStack

__all__ = ["MarianConfig", "MarianMTModel"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarianConfig(parts.Configuration):
    """Sizes and options of a translator; as it stands, those of Vaswani et al.'s base model, with a
    vocabulary of 8,000 for both languages."""

    required: ClassVar[dict[str, Any]] = {"share_encoder_decoder_embeddings": True}

    model_type: str = "marian"
    vocab_size: int = 8000
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    max_position_embeddings: int = 1024
    activation_function: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init_std: float = 0.02
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 0
    decoder_start_token_id: int = 0


class SinusoidTable(nn.Module):
    """A table of positions: sines in its first half, cosines in the second; never trained."""

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        both = sinusoids(arange(length), features)
        self.register_buffer("weight", concat([both[:, ::2], both[:, 1::2]], axis=1))

    def forward(self, at: Tensor) -> Tensor:
        return take(self.weight, at, axis=0)


class MarianLayer(AttentionLayer):
    """norm(x + attention(x)), in a decoder norm(x + attention to the encoder's states), then
    norm(x + two linear maps).

    Shapes: (N, L, d_model) -> the same.
    """

    def forward(
        self,
        x: Tensor,
        visible: dict[str, Any],
        memory: Any = None,
        visible_memory: Any = None,
        cache: Any = None,
    ) -> Tensor:
        y = self.self_attn(x, visible, cache)
        x = self.self_attn_layer_norm(x + self.dropout(y))
        if memory is not None:
            y = self.encoder_attn(x, visible_memory, memory=memory)
            x = self.encoder_attn_layer_norm(x + self.dropout(y))
        y = self.inner_dropout(self.activation(self.fc1(x)))
        return self.final_layer_norm(x + self.dropout(self.fc2(y)))


class MarianStack(TextStack):
    """The encoder, or the decoder.

    Shapes: tokens (N, L) -> (N, L, d_model).
    """

    config_class: type[MarianConfig] = MarianConfig

    def __init__(self, config: MarianConfig, table: nn.Module, is_decoder: bool) -> None:
        super().__init__(config)
        self.is_decoder = is_decoder
        length = config.max_position_embeddings
        self.embed_tokens: nn.Module = table
        self.embed_positions: SinusoidTable = SinusoidTable(length, config.d_model)
        count = config.decoder_layers if is_decoder else config.encoder_layers
        self.layers: nn.ModuleList
        self.layers = nn.ModuleList(MarianLayer(config, is_decoder) for _ in range(count))
        self.scale: float = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.dropout: nn.Module = nn.Dropout(config.dropout)

    def embed(self, tokens: Tensor, at: Tensor) -> Tensor:
        """The tokens' vectors and those of their positions."""
        return self.dropout(self.embed_tokens(tokens) * self.scale + self.embed_positions(at))

    def layers_of(self) -> Any:
        """The layers."""
        return self.layers


class MarianMTModel(EncoderDecoderModel):
    """An encoder and a decoder of post-norm layers with one table of tokens, and scores of the
    next token.

    Shapes: tokens (N, S), decoder_tokens (N, L) -> (N, L, vocab_size).
    Raises: ShapeError for other shapes or too long texts, IndexOutOfRangeError for tokens outside
        the vocabulary, OptionError where a text is missing.
    Source: Vaswani et al. 2017, arXiv:1706.03762; Junczys-Dowmunt et al. 2018, arXiv:1804.00344;
        names as in transformers.
    Example:
        >>> sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        >>> config = MarianConfig(vocab_size=20, encoder_layers=1, decoder_layers=1, **sizes)
        >>> MarianMTModel(config)(gh.asarray([[4, 5, 6]]), gh.asarray([[0, 7]])).shape
        (1, 2, 20)
    """

    config_class: type[MarianConfig] = MarianConfig
    base_name: str | None = "model"

    def __init__(self, config: MarianConfig) -> None:
        super().__init__(config)
        self.model: nn.Module = nn.Module()
        self.model.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.model.encoder = MarianStack(config, self.model.shared, is_decoder=False)
        self.model.decoder = MarianStack(config, self.model.shared, is_decoder=True)
        self.register_buffer("final_logits_bias", zeros((1, config.vocab_size)))
        self.lm_head: nn.Linear = nn.Linear(config.d_model, config.vocab_size, bias=False)
        parts.draw_weights(self, config.init_std)
        with no_grad():
            self.model.shared.weight[config.pad_token_id] = 0.0
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.shared.weight

    def stacks(self) -> tuple[Any, Any]:
        """The encoder and the decoder."""
        return self.model.encoder, self.model.decoder

    def attentions(self) -> list[parts.Attention]:
        """The decoder's attentions to the encoder's states."""
        return [layer.encoder_attn for layer in self.model.decoder.layers]

    def scores(self, states: Tensor) -> Tensor:
        """The scores of the next token."""
        return self.lm_head(states) + self.final_logits_bias
