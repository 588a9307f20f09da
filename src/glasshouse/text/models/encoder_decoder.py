"""Base of T5 and Marian: an encoder, a decoder that attends to its output, and scores."""

from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.base.errors import OptionError
from glasshouse.nn.generation.rows import checked_rows, padded
from glasshouse.nn.generation.slots import states_at
from glasshouse.tensor import Tensor, asarray, concat, full
from glasshouse.tensor import where as choose
from glasshouse.text.models import parts

__all__ = ["EncoderDecoderModel", "shift_right"]

NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def shift_right(labels: Any, start: int, pad: int) -> Tensor:
    """Tokens for the decoder from its labels, shifted by one: `start` comes first, and negative
    labels (not counted in losses) become `pad`.

    Shapes: (N, L) -> the same.
    Example:
        >>> shift_right([[5, 6, -100]], 0, 1).tolist()
        [[0, 5, 6]]
    """
    labels = parts.checked_tokens("shift_right", asarray(labels), None)
    first = full((labels.shape[0], 1), start, dtype=labels.dtype)
    return concat([first, choose(labels < 0, pad, labels)[:, :-1]], axis=1)


class AttentionLayer(nn.Module):
    """Parts of a layer of Marian and Whisper: attention among its own states, in a decoder
    attention to the encoder's, and two linear maps. Subclasses define `forward`.

    Shapes: (N, L, d_model) -> the same.
    """

    attention_class = parts.Attention

    def __init__(self, config: Any, is_decoder: bool) -> None:
        super().__init__()
        size, side = config.d_model, "decoder" if is_decoder else "encoder"
        heads = getattr(config, f"{side}_attention_heads")
        inner = getattr(config, f"{side}_ffn_dim")
        for name in ("self_attn", "encoder_attn") if is_decoder else ("self_attn",):
            attention = self.attention_class(size, heads, NAMES, dropout=config.attention_dropout)
            self.add_module(name, attention)
            self.add_module(f"{name}_layer_norm", nn.LayerNorm(size))
        self.fc1: nn.Linear = nn.Linear(size, inner)
        self.fc2: nn.Linear = nn.Linear(inner, size)
        self.final_layer_norm: nn.LayerNorm = nn.LayerNorm(size)
        self.dropout: nn.Module = nn.Dropout(config.dropout)
        self.inner_dropout: nn.Module = nn.Dropout(config.activation_dropout)
        where = type(config).__name__
        self.activation: Any = parts.check_activation(where, config.activation_function)


class TextStack(parts.TextModel):
    """Base of encoders and decoders: subclasses define `embed`, `layers_of` and `last`, and maybe
    `sight`.

    Shapes: tokens (N, L) -> (N, L, d_model).
    """

    is_decoder = False

    def embed(self, tokens: Tensor, at: Tensor) -> Tensor:
        """The states before the layers of tokens at these positions."""
        raise NotImplementedError(f"{type(self).__name__}: expected embed; got none. Define it.")

    def layers_of(self) -> Any:
        """The layers, which take states, their mask, a memory, the memory's mask, and a cache."""
        raise NotImplementedError(f"{type(self).__name__}: expected layers_of; got none.")

    def last(self, x: Tensor) -> Tensor:
        """The states after the layers."""
        return x

    def sight(self, padding: Any, queries: int, keys: int, cache: Any) -> dict[str, Any]:
        """Where queries may attend among the stack's own keys."""
        return parts.sight(padding, queries, keys, cache=cache, causal=self.is_decoder)

    def forward(
        self,
        tokens: Any,
        attention_mask: Any = None,
        memory: Any = None,
        memory_mask: Any = None,
        cache: Any = None,
    ) -> Tensor:
        tokens = self.checked(tokens, getattr(self.config, "max_position_embeddings", None))
        length = tokens.shape[1]
        visible = self.sight(attention_mask, length, parts.key_count(cache, length), cache)
        is_ready = isinstance(memory, list)  # keys and values of each layer
        far = None
        if memory is not None:
            keys = memory[0][0].shape[2] if is_ready else memory.shape[1]
            far = parts.sight(memory_mask, length, keys)
        limit = getattr(self.config, "max_position_embeddings", None)
        limit = getattr(self.config, "max_target_positions", limit)
        x = self.embed(tokens, parts.positions_of(cache, length, limit))
        for i, layer in enumerate(self.layers_of()):
            own = None if cache is None else cache[i]
            x = layer(x, visible, memory[i] if is_ready else memory, far, own)
        return self.last(x)


class EncoderDecoderModel(parts.CachedModel):
    """Base of models that give one text for another. Subclasses define `stacks`, `attentions` and
    `scores`.

    For generation: `memory = model.memory_of(model.encode(tokens, attention_mask))` once, then
    `model(None, token, attention_mask, cache=cache, memory=memory)` for each token.

    Shapes: tokens (N, S), decoder_tokens (N, L) -> (N, L, vocab_size).
    """

    def stacks(self) -> tuple[Any, Any]:
        """The encoder and the decoder."""
        return self.encoder, self.decoder

    def attentions(self) -> list[parts.Attention]:
        """The decoder's attentions to the encoder's states, by layer."""
        raise NotImplementedError(f"{type(self).__name__}: expected attentions; got none.")

    def scores(self, states: Tensor) -> Tensor:
        """The scores of the next token."""
        return self.lm_head(states)

    def encode(self, tokens: Any, attention_mask: Any = None) -> Tensor:
        """The states of the encoder."""
        return self.stacks()[0](tokens, attention_mask)

    def memory_of(self, states: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the encoder's states for each layer, computed once for all steps."""
        return [attention.memory(states) for attention in self.attentions()]

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        """The decoder's layers, heads and features of a head."""
        attentions = self.attentions()
        return len(attentions), attentions[0].heads, attentions[0].head_dim

    @property
    def start_token(self) -> int:  # type: ignore[override]
        """The token that a text begins with."""
        return self.config.decoder_start_token_id

    def read(self, tokens: Any, attention_mask: Any = None) -> tuple[Any, Tensor | None, bool]:
        """The decoder's memory: keys and values of each layer, a mask, and whether it is of one
        text without a batch's axis. Texts are padded to a few sizes, each a Program."""
        rows, is_single = checked_rows(tokens, attention_mask, self.vocabulary)
        size = -(-max(map(len, rows)) // 16) * 16
        if self.context is not None:
            size = max(min(size, self.context), max(map(len, rows)))
        batch, counts = padded(rows, size)
        mask = asarray(np.arange(size) < counts[:, None])
        return self.memory_of(self.encode(asarray(batch), mask)), mask, is_single

    def next_scores(self, tokens: Tensor, cache: Any, at: Tensor) -> Tensor:
        """Scores of the tokens that follow those at the places `at`; see `nn.Generation`."""
        states = self.stacks()[1](tokens, None, cache.memory, cache.memory_mask, cache)
        return self.scores(states_at(states, at))

    def forward(
        self,
        tokens: Any,
        decoder_tokens: Any = None,
        attention_mask: Any = None,
        decoder_attention_mask: Any = None,
        cache: Any = None,
        memory: Any = None,
    ) -> Tensor:
        if decoder_tokens is None or (tokens is None and memory is None):
            fix = "Pass shift_right(labels, …) as the decoder's."
            expected = "tokens of the encoder, or its memory, and tokens of the decoder"
            raise OptionError(type(self).__name__, expected, "None", fix)
        memory = self.encode(tokens, attention_mask) if memory is None else memory
        decoder = self.stacks()[1]
        args = (decoder_tokens, decoder_attention_mask, memory, attention_mask, cache)
        return self.scores(decoder(*args))
