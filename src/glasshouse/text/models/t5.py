"""T5, an encoder and a decoder with a bias by distance; its first form and the gated one."""

import dataclasses
from typing import Any

from glasshouse import nn
from glasshouse.dispatch.value import reshape
from glasshouse.nn.functional.positions import relative_buckets
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor, arange
from glasshouse.tensor import where as choose
from glasshouse.text.models import parts
from glasshouse.text.models.encoder_decoder import EncoderDecoderModel, TextStack

__all__ = ["T5Config", "T5EncoderModel", "T5ForConditionalGeneration"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5Config(parts.Configuration):
    """Sizes and options of a T5; as it stands, T5 small's. `feed_forward_proj` is the name of an
    activation, or "gated-" and one."""

    model_type: str = "t5"
    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = 1.0
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0

    @property
    def is_gated(self) -> bool:
        """Whether one linear map is a gate of another."""
        return self.feed_forward_proj.startswith("gated-")

    @property
    def is_scaled(self) -> bool:
        """Whether the last states are scaled; if not said, where the table is the head's."""
        said = self.scale_decoder_outputs
        return self.tie_word_embeddings if said is None else said

    @property
    def activation(self) -> str:
        """The name of the activation."""
        is_old = self.feed_forward_proj == "gated-gelu"
        return "gelu_new" if is_old else self.feed_forward_proj.removeprefix("gated-")


class T5Block(nn.Module):
    """x + attention(norm(x)), in a decoder x + attention to the encoder's states, x + maps of
    norm(x).

    Shapes: (N, L, d_model) -> the same.
    """

    def __init__(self, config: T5Config, is_decoder: bool, has_bias: bool) -> None:
        super().__init__()
        size, inner = config.d_model, config.d_ff
        options: dict[str, Any] = {"head_dim": config.d_kv, "bias": False, "scale": 1.0}
        options["dropout"] = config.dropout_rate
        names = ("q", "k", "v", "o")

        def attention():
            return parts.Attention(size, config.num_heads, names, **options)

        own = attention()
        if has_bias:
            buckets = config.relative_attention_num_buckets
            own.relative_attention_bias = nn.Embedding(buckets, config.num_heads)
        first = ("wi_0", "wi_1") if config.is_gated else ("wi",)
        maps = {name: nn.Linear(size, inner, False) for name in first}
        maps["wo"] = nn.Linear(inner, size, False)
        members: list[dict[str, Any]] = [{"SelfAttention": own}]
        members += [{"EncDecAttention": attention()}] * is_decoder
        members += [{"DenseReluDense": nn.ModuleDict(maps)}]
        norm = (size, config.layer_norm_epsilon)
        self.layer: nn.ModuleList = nn.ModuleList(
            nn.ModuleDict({**member, "layer_norm": nn.RMSNorm(*norm)}) for member in members
        )
        self.dropout: nn.Module = nn.Dropout(config.dropout_rate)
        self.activation: Any = parts.check_activation("T5Config", config.activation)

    def forward(
        self,
        x: Tensor,
        visible: dict[str, Any],
        memory: Any = None,
        visible_memory: Any = None,
        cache: Any = None,
    ) -> Tensor:
        part = self.layer[0]
        x = x + self.dropout(part["SelfAttention"](part["layer_norm"](x), visible, cache))
        if memory is not None:
            part = self.layer[1]
            attention, y = part["EncDecAttention"], part["layer_norm"](x)
            x = x + self.dropout(attention(y, visible_memory, memory=memory))
        part = self.layer[-1]
        return x + self.dropout(self.feed(part["DenseReluDense"], part["layer_norm"](x)))

    def feed(self, maps: Any, x: Tensor) -> Tensor:
        """The linear maps, with the activation between them."""
        if "wi" in maps:
            return maps["wo"](self.dropout(self.activation(maps["wi"](x))))
        return maps["wo"](self.dropout(self.activation(maps["wi_0"](x)) * maps["wi_1"](x)))


class T5Stack(TextStack):
    """The encoder, or the decoder.

    Shapes: tokens (N, L) -> (N, L, d_model).
    """

    config_class: type[T5Config] = T5Config

    def __init__(self, config: T5Config, table: nn.Module, is_decoder: bool) -> None:
        super().__init__(config)
        count = (is_decoder and config.num_decoder_layers) or config.num_layers
        self.embed_tokens: nn.Module = table
        self.is_decoder = is_decoder
        self.block: nn.ModuleList
        self.block = nn.ModuleList(T5Block(config, is_decoder, i == 0) for i in range(count))
        self.final_layer_norm: nn.RMSNorm = nn.RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.dropout: nn.Module = nn.Dropout(config.dropout_rate)

    def embed(self, tokens: Tensor, at: Tensor) -> Tensor:
        """The tokens' vectors."""
        return self.dropout(self.embed_tokens(tokens))

    def layers_of(self) -> Any:
        """The blocks."""
        return self.block

    def last(self, x: Tensor) -> Tensor:
        """The states, normalised."""
        return self.dropout(self.final_layer_norm(x))

    def sight(self, padding: Any, queries: int, keys: int, cache: Any) -> dict[str, Any]:
        """The bias by distance, -∞ where a query may not attend."""
        config = self.config
        at = parts.positions_of(cache, queries)
        at = reshape(at, (*at.shape, 1))
        sizes = (config.relative_attention_num_buckets, config.relative_attention_max_distance)
        buckets = relative_buckets(arange(keys) - at, *sizes, not self.is_decoder)
        bias = self.block[0].layer[0]["SelfAttention"].relative_attention_bias(buckets)
        bias = bias if bias.ndim == 4 else reshape(bias, (1, *bias.shape))
        bias = permute(bias, axes=(0, 3, 1, 2))
        visible = parts.sight(padding, queries, keys, cache=cache, causal=self.is_decoder)
        allowed = visible["attn_mask"]
        if visible["is_causal"]:
            allowed = arange(keys) <= at
        bias = bias if allowed is None else choose(allowed, bias, -float("inf"))
        return {"attn_mask": bias, "is_causal": False}


def draw_t5_weights(model: nn.Module, config: T5Config) -> None:
    """Draw initial values whose spreads depend on the sizes; tables and heads get `factor`."""
    size, factor = config.d_model, config.initializer_factor
    inner = {"q": size * config.d_kv, "o": config.num_heads * config.d_kv, "wo": config.d_ff}
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Linear):
            std = factor * (1.0 if last == "lm_head" else inner.get(last, size) ** -0.5)
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, nn.Embedding):
            is_bias = last == "relative_attention_bias"
            nn.init.normal_(module.weight, std=factor * (size**-0.5 if is_bias else 1.0))


class T5EncoderModel(parts.TextModel):
    """The encoder of a T5 alone.

    Shapes: tokens (N, L), attention_mask (N, L) -> (N, L, d_model).
    Source: as T5ForConditionalGeneration's.
    """

    config_class: type[T5Config] = T5Config

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.shared: nn.Embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder: T5Stack = T5Stack(config, self.shared, is_decoder=False)
        draw_t5_weights(self, config)

    def forward(self, tokens: Any, attention_mask: Any = None) -> Tensor:
        return self.encoder(tokens, attention_mask)


class T5ForConditionalGeneration(EncoderDecoderModel):
    """T5 with scores of the next token.

    Shapes: tokens (N, S), decoder_tokens (N, L) -> (N, L, vocab_size).
    Raises: ShapeError for other shapes, IndexOutOfRangeError for tokens outside the vocabulary,
        OptionError where a text is missing.
    Source: Raffel et al. 2020, arXiv:1910.10683; Shazeer 2020, arXiv:2002.05202 (gates); names as
        in transformers.
    Example:
        >>> config = T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
        >>> T5ForConditionalGeneration(config)(gh.asarray([[4, 5, 6]]), gh.asarray([[0, 7]])).shape
        (1, 2, 20)
    """

    config_class: type[T5Config] = T5Config

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.shared: nn.Embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder: T5Stack = T5Stack(config, self.shared, is_decoder=False)
        self.decoder: T5Stack = T5Stack(config, self.shared, is_decoder=True)
        self.lm_head: nn.Linear = nn.Linear(config.d_model, config.vocab_size, bias=False)
        draw_t5_weights(self, config)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.shared.weight

    def attentions(self) -> list[parts.Attention]:
        """The decoder's attentions to the encoder's states."""
        return [block.layer[1]["EncDecAttention"] for block in self.decoder.block]

    def scores(self, states: Tensor) -> Tensor:
        """The scores of the next token."""
        config = self.config
        return self.lm_head(states * config.d_model**-0.5 if config.is_scaled else states)
