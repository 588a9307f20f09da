"""GPT-2, a decoder."""

import dataclasses
from typing import Any, ClassVar

from glasshouse import nn
from glasshouse.tensor import Tensor, split
from glasshouse.text.models import parts

__all__ = ["GPT2Config", "GPT2LMHeadModel", "GPT2Model"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPT2Config(parts.Configuration):
    """Sizes and options of a GPT-2; as it stands, GPT-2 small's."""

    model_type: str = "gpt2"
    required: ClassVar[dict[str, Any]] = {
        "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    }  # fmt: skip

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    eos_token_id: int | list[int] | None = None


class GPT2Attention(parts.Attention):
    """Attention whose queries, keys and values come of one product.

    Shapes: (N, L, n_embd) -> the same.
    """

    def add_projections(self, dim: int, bias: bool, out_bias: bool) -> None:
        """Register the two projections."""
        self.c_attn: nn.TransposedLinear = nn.TransposedLinear(dim, 3 * dim, bias)
        self.add_module(self.names[3], nn.TransposedLinear(dim, dim, out_bias))

    def operands(self, x: Tensor, memory: Any, rotation: Any) -> Any:
        """The heads of queries, keys and values."""
        return map(self.split, split(self.c_attn(x), 3, axis=-1))


class GPT2Block(nn.Module):
    """x + attention(norm(x)), then x + two linear maps of norm(x).

    Shapes: (N, L, n_embd) -> the same.
    """

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        size, eps = config.n_embd, config.layer_norm_epsilon
        inner = 4 * size if config.n_inner is None else config.n_inner
        names = ("c_attn", "c_attn", "c_attn", "c_proj")
        self.ln_1: nn.LayerNorm = nn.LayerNorm(size, eps)
        self.ln_2: nn.LayerNorm = nn.LayerNorm(size, eps)
        self.attn: GPT2Attention
        self.attn = GPT2Attention(size, config.n_head, names, dropout=config.attn_pdrop)
        first, second = nn.TransposedLinear(size, inner), nn.TransposedLinear(inner, size)
        self.mlp: nn.ModuleDict = nn.ModuleDict({"c_fc": first, "c_proj": second})
        self.dropout: nn.Module = nn.Dropout(config.resid_pdrop)
        self.activation: Any = parts.check_activation("GPT2Config", config.activation_function)

    def forward(self, x: Tensor, visible: dict[str, Any], cache: Any = None) -> Tensor:
        x = x + self.dropout(self.attn(self.ln_1(x), visible, cache))
        y = self.activation(self.mlp["c_fc"](self.ln_2(x)))
        return x + self.dropout(self.mlp["c_proj"](y))


class GPT2Model(parts.TextModel):
    """The decoder's states; see GPT2LMHeadModel.

    Shapes: tokens (N, L) -> (N, L, n_embd).
    Source: as GPT2LMHeadModel's.
    """

    config_class: type[GPT2Config] = GPT2Config

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        size = config.n_embd
        self.wte: nn.Embedding = nn.Embedding(config.vocab_size, size)
        self.wpe: nn.Embedding = nn.Embedding(config.n_positions, size)
        self.drop: nn.Module = nn.Dropout(config.embd_pdrop)
        self.h: nn.ModuleList = nn.ModuleList(GPT2Block(config) for _ in range(config.n_layer))
        self.ln_f: nn.LayerNorm = nn.LayerNorm(size, config.layer_norm_epsilon)
        parts.draw_weights(self, config.initializer_range)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Any = None,
        position_ids: Any = None,
        cache: Any = None,
    ) -> Tensor:
        tokens = self.checked(tokens, self.config.n_positions)
        length = tokens.shape[1]
        at = position_ids
        if at is None:
            at = parts.positions_of(cache, length, self.config.n_positions)
        keys = parts.key_count(cache, length)
        visible = parts.sight(attention_mask, length, keys, cache=cache, causal=True)
        x = self.drop(self.wte(tokens) + self.wpe(at))
        for i, block in enumerate(self.h):
            x = block(x, visible, None if cache is None else cache[i])
        return self.ln_f(x)


class GPT2LMHeadModel(parts.CausalModel):
    """GPT-2 and scores of the next token, with the table of the tokens as weights. `cache`, of
    `make_cache`, holds the keys and values of the tokens before.

    Shapes: tokens (N, L), attention_mask (N, keys) -> (N, L, vocab_size).
    Raises: ShapeError for other shapes or too long texts, IndexOutOfRangeError for tokens outside
        the vocabulary.
    Source: Radford et al. 2019, Language models are unsupervised multitask learners; names as in
        transformers.
    Example:
        >>> config = GPT2Config(vocab_size=20, n_embd=8, n_head=2, n_layer=1)
        >>> GPT2LMHeadModel(config)(gh.asarray([[1, 2, 3]])).shape
        (1, 3, 20)
    """

    config_class: type[GPT2Config] = GPT2Config
    base_name: str | None = "transformer"

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        body = GPT2Model(config)
        self.add_parts(body, body.wte, config.initializer_range)

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        """Layers, heads and features of a head."""
        config = self.config
        return config.n_layer, config.n_head, config.n_embd // config.n_head
