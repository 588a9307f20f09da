"""Whisper: an encoder of log-mel frames, and a decoder that writes the text."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import adopt, as_value, reshape
from glasshouse.interop import open_safetensors
from glasshouse.nn import functional
from glasshouse.ops.checks import check_path
from glasshouse.tensor import Tensor
from glasshouse.text.models import parts
from glasshouse.text.models.encoder_decoder import AttentionLayer, EncoderDecoderModel, TextStack
from glasshouse.text.models.pretrained import load_weights, read_config

__all__ = ["WhisperConfig", "WhisperForConditionalGeneration"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WhisperConfig(parts.Configuration):
    """Sizes and options, by transformers' names; as they stand, those of Whisper tiny."""

    model_type: str = "whisper"
    vocab_size: int = 51865
    num_mel_bins: int = 80
    d_model: int = 384
    encoder_layers: int = 4
    decoder_layers: int = 4
    encoder_attention_heads: int = 6
    decoder_attention_heads: int = 6
    encoder_ffn_dim: int = 1536
    decoder_ffn_dim: int = 1536
    max_source_positions: int = 1500
    max_target_positions: int = 448
    activation_function: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init_std: float = 0.02
    pad_token_id: int = 50256
    eos_token_id: int = 50256
    decoder_start_token_id: int = 50257


class KeyAttention(parts.Attention):
    """Attention whose keys have no bias.

    Shapes: as `text.models.Attention`.
    """

    def add_projections(self, dim: int, bias: bool, out_bias: bool) -> None:
        """Register the projections under their names."""
        for name in self.names:
            self.add_module(name, nn.Linear(dim, dim, bias=name != "k_proj"))


class WhisperLayer(AttentionLayer):
    """x + attention(norm(x)), in a decoder x + attention(norm(x), the encoder's states), then
    x + two linear maps(norm(x)).

    Shapes: (N, L, d_model) -> the same.
    """

    attention_class = KeyAttention

    def forward(
        self,
        x: Tensor,
        visible: dict[str, Any],
        memory: Any = None,
        visible_memory: Any = None,
        cache: Any = None,
    ) -> Tensor:
        x = x + self.dropout(self.self_attn(self.self_attn_layer_norm(x), visible, cache))
        if memory is not None:
            y = self.encoder_attn_layer_norm(x)
            x = x + self.dropout(self.encoder_attn(y, visible_memory, memory=memory))
        y = self.activation(self.fc1(self.final_layer_norm(x)))
        return x + self.dropout(self.fc2(self.inner_dropout(y)))


def waves_of(length: int, size: int) -> np.ndarray:
    """Sines of each position, then cosines, at rates that fall from 1 to 1 / 10000."""
    rates = np.exp(-np.log(10000) * np.arange(size // 2) / max(size // 2 - 1, 1))
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class WhisperEncoder(nn.Module):
    """Two convolutions over time, the second of stride 2, positions, layers and a norm.

    Shapes: features (N, num_mel_bins, T), T up to 2 · max_source_positions
        -> (N, ⌈T / 2⌉, d_model).
    Raises: ShapeError for other shapes.
    """

    config: WhisperConfig
    layer_norm: "nn.LayerNorm"
    dropout: Any

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.config, size = config, config.d_model
        self.conv1: Any = nn.Conv1d(config.num_mel_bins, size, 3, padding=1)
        self.conv2: Any = nn.Conv1d(size, size, 3, stride=2, padding=1)
        self.embed_positions: nn.Embedding = nn.Embedding(config.max_source_positions, size)
        self.embed_positions.weight = nn.Parameter(
            adopt(waves_of(config.max_source_positions, size)), requires_grad=False
        )
        self.layers: nn.ModuleList = nn.ModuleList(
            WhisperLayer(config, is_decoder=False) for _ in range(config.encoder_layers)
        )
        self.layer_norm, self.dropout = nn.LayerNorm(size), nn.Dropout(config.dropout)

    def forward(self, features: Any, attention_mask: Any = None) -> Tensor:
        x = as_value(features, where="WhisperEncoder")
        bins, longest = self.config.num_mel_bins, 2 * self.config.max_source_positions
        if x.ndim != 3 or x.shape[1] != bins or x.shape[2] > longest:
            expected = f"features (N, {bins}, T) with T at most {longest}"
            raise ShapeError("WhisperEncoder", expected, x.shape, "Cut the recording.")
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(x)))).transpose(1, 2)
        x = self.dropout(x + self.embed_positions.weight[: x.shape[1]])
        visible = parts.sight(attention_mask, x.shape[1], x.shape[1])
        for layer in self.layers:
            x = layer(x, visible)
        return self.layer_norm(x)


class WhisperDecoder(TextStack):
    """Tokens and learned positions, layers and a norm.

    Shapes: tokens (N, L) -> (N, L, d_model).
    """

    layer_norm: "nn.LayerNorm"
    dropout: Any

    config_class: type[WhisperConfig] = WhisperConfig
    is_decoder: bool = True

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        self.embed_tokens: nn.Embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.embed_positions: nn.Embedding = nn.Embedding(
            config.max_target_positions, config.d_model
        )
        self.layers: nn.ModuleList = nn.ModuleList(
            WhisperLayer(config, is_decoder=True) for _ in range(config.decoder_layers)
        )
        self.layer_norm, self.dropout = nn.LayerNorm(config.d_model), nn.Dropout(config.dropout)

    def embed(self, tokens: Tensor, at: Tensor) -> Tensor:
        """The tokens' vectors and those of their positions."""
        tokens = self.checked(tokens, self.config.max_target_positions)
        return self.dropout(self.embed_tokens(tokens) + self.embed_positions(at))

    def layers_of(self) -> Any:
        """The layers."""
        return self.layers

    def last(self, x: Tensor) -> Tensor:
        """The states after the layers."""
        return self.layer_norm(x)


class WhisperForConditionalGeneration(EncoderDecoderModel):
    """Scores of the next token of a text, for the log-mel features of a recording and the tokens so
    far; with caches and `memory_of` as the encoder-decoders of `gh.text`.

    Shapes: features (N, num_mel_bins, T), decoder_tokens (N, L) -> (N, L, vocab_size).
    Raises: ShapeError for other shapes, IndexOutOfRangeError for tokens outside the vocabulary.
    Source: Radford et al. 2022, arXiv:2212.04356; names as in transformers.
    Example:
        >>> sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        >>> sizes |= {"encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 10}
        >>> model = WhisperForConditionalGeneration(WhisperConfig(vocab_size=9, **sizes))
        >>> model(gh.zeros((1, 80, 20)), gh.asarray([[1, 2, 3]])).shape
        (1, 3, 9)
    """

    config_class: type[WhisperConfig] = WhisperConfig
    base_name: str = "model"

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        self.model: nn.Module = nn.Module()
        self.model.encoder, self.model.decoder = WhisperEncoder(config), WhisperDecoder(config)
        self.proj_out: nn.Linear = nn.Linear(config.d_model, config.vocab_size, bias=False)
        parts.draw_weights(self.model.decoder, config.init_std)
        parts.draw_weights(self.model.encoder.layers, config.init_std)
        self.proj_out.weight = self.model.decoder.embed_tokens.weight

    def stacks(self) -> tuple[Any, Any]:
        """The encoder and the decoder."""
        return self.model.encoder, self.model.decoder

    def attentions(self) -> list[parts.Attention]:
        """The decoder's attentions to the encoder's states."""
        return [layer.encoder_attn for layer in self.model.decoder.layers]

    def scores(self, states: Tensor) -> Tensor:
        """The scores of the next token."""
        return self.proj_out(states)

    def read(self, tokens: Any, attention_mask: Any = None) -> tuple[Any, Tensor | None, bool]:
        """The decoder's memory of features (N, num_mel_bins, T), or of those of one recording; see
        `EncoderDecoderModel`."""
        x = as_value(tokens, where="generate")
        is_single = x.ndim == 2
        x = reshape(x, (1, *x.shape)) if is_single else x
        mask = None if attention_mask is None else as_value(attention_mask)
        return self.memory_of(self.encode(x, mask)), mask, is_single

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "WhisperForConditionalGeneration":
        """The model of a folder with config.json and safetensors, as transformers saves them.

        Raises: CheckpointError for missing, damaged or misshapen files.
        """
        folder = check_path("WhisperForConditionalGeneration", folder)
        model = cls(WhisperConfig.from_dict(read_config(folder)))
        load_weights(model, open_safetensors(folder))
        model.eval()
        return model
