"""Llama, a decoder with grouped queries and rotary positions; by options Mistral, Qwen2, Qwen3."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from glasshouse import nn
from glasshouse.base.dtype import float32
from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor, asarray, cos, sin
from glasshouse.text.models import parts

__all__ = ["LlamaConfig", "LlamaForCausalLM", "LlamaModel", "rotary_frequencies"]

FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = ("llama", "mistral", "qwen2", "qwen3")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LlamaConfig(parts.Configuration):
    """Sizes and options of a Llama; as it stands, Llama 7B's. `model_type` decides over biases,
    norms of the heads and windows: "llama", "mistral", "qwen2" or "qwen3". Positions are given by
    `rope_parameters`, or by rope_theta and rope_scaling; see `rotary_frequencies`."""

    required: ClassVar[dict[str, Any]] = {"partial_rotary_factor": 1.0}

    model_type: str = "llama"
    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float = 0.0
    sliding_window: int | None = None
    use_sliding_window: bool = False
    max_window_layers: int | None = None
    layer_types: list[str] | None = None
    eos_token_id: int | list[int] | None = None
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("LlamaConfig", "model_type", self.model_type, TYPES)
        types, count = self.layer_types or [], self.num_hidden_layers
        for kind in types:
            check_option("LlamaConfig", "a layer's type", kind, (FULL, SLIDING))
        if self.layer_types is not None and len(types) != count:
            fix = "Correct config.json."
            raise OptionError("LlamaConfig", f"{count} layer_types", len(types), fix)
        rotary_frequencies(self.rope, self.width, self.max_position_embeddings)

    @property
    def width(self) -> int:
        """The features of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def rope(self) -> dict[str, Any]:
        """The values of the positions' angles, and their kind."""
        values = {"rope_theta": self.rope_theta} | (self.rope_scaling or {})
        values |= self.rope_parameters or {}
        return values | {"rope_type": values.get("rope_type", values.get("type", "default"))}

    @property
    def windows(self) -> list[int | None]:
        """For each layer how far back it sees; None for everything."""
        count = self.num_hidden_layers
        types = self.layer_types
        if self.model_type == "mistral":
            types = [SLIDING] * count
        elif types is None:
            first = count if self.max_window_layers is None else self.max_window_layers
            first = first if self.use_sliding_window else count
            types = [SLIDING if i >= first else FULL for i in range(count)]
        return [self.sliding_window if kind == SLIDING else None for kind in types]


def rotary_frequencies(
    rope: Mapping[str, Any], features: int, max_length: int, length: int | None = None
) -> tuple[np.ndarray, float]:
    """(the angle of each pair of features at position 1, a factor of queries and keys). `rope` has
    rope_theta and rope_type: "default", "linear", "dynamic", "llama3", "yarn" or "longrope", with
    their further values; `length` is that of the text, where it matters.

    Raises: OptionError for another type, or where a value is missing.
    Source: Su et al. 2021, arXiv:2104.09864; Chen et al. 2023, arXiv:2306.15595 (linear); Peng et
        al. 2023, arXiv:2309.00071 (dynamic, yarn); Ding et al. 2024, arXiv:2402.13753 (longrope);
        Llama 3.1's code (llama3).
    Example:
        >>> rotary_frequencies({"rope_type": "default", "rope_theta": 100.0}, 4, 8)[0].tolist()
        [1.0, 0.10000000149011612]
    """
    check_option("rotary_frequencies", "rope_type", rope["rope_type"], SCALINGS)
    length, fix = max_length if length is None else length, "Correct config.json."
    try:
        frequencies, factor = SCALINGS[rope["rope_type"]](dict(rope), features, max_length, length)
        frequencies = frequencies.astype(np.float32)
    except KeyError as error:
        expected = f"{error.args[0]} beside rope_type {rope['rope_type']!r}"
        raise OptionError("rotary_frequencies", expected, dict(rope), fix) from None
    except (TypeError, ValueError, ArithmeticError):
        frequencies = np.full(1, np.nan)
    if frequencies.shape != (features // 2,) or not np.isfinite(frequencies).all():
        expected = f"positive numbers for heads of an even number of features, {features}"
        raise OptionError("rotary_frequencies", expected, dict(rope), fix)
    return frequencies, factor


def plain_frequencies(theta: float, features: int) -> np.ndarray:
    if features % 2 or theta <= 0:
        raise ValueError
    return theta ** (-np.arange(0, features, 2) / features)


def default_rope(rope: Any, features: int, max_length: int, length: int) -> Any:
    return plain_frequencies(rope["rope_theta"], features), 1.0


def linear_rope(rope: Any, features: int, max_length: int, length: int) -> Any:
    return plain_frequencies(rope["rope_theta"], features) / rope["factor"], 1.0


def dynamic_rope(rope: Any, features: int, max_length: int, length: int) -> Any:
    factor, ratio = rope["factor"], max(length, max_length) / max_length
    growth = (factor * ratio - (factor - 1)) ** (features / (features - 2))
    return plain_frequencies(rope["rope_theta"] * growth, features), 1.0


def llama3_rope(rope: Any, features: int, max_length: int, length: int) -> Any:
    plain = plain_frequencies(rope["rope_theta"], features)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (smooth + (1 - smooth) / rope["factor"]), 1.0


def yarn_rope(rope: Any, features: int, max_length: int, length: int) -> Any:
    theta, original = rope["rope_theta"], rope["original_max_position_embeddings"]
    factor = rope.get("factor") or max_length / original
    both = rope.get("mscale"), rope.get("mscale_all_dim")
    attention = rope.get("attention_factor")
    if attention is None:
        first, second = both if all(both) else (1.0, 0.0)
        attention = yarn_scale(factor, first) / yarn_scale(factor, second)
    turns = (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1)
    ends = [
        features * math.log(original / (t * 2 * math.pi)) / (2 * math.log(theta)) for t in turns
    ]
    if rope.get("truncate", True):
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], features - 1)
    high = high + 0.001 if low == high else high
    ramp = np.clip((np.arange(features // 2) - low) / (high - low), 0, 1)
    return plain_frequencies(theta, features) * (1 - ramp + ramp / factor), attention


def yarn_scale(factor: float, strength: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * strength * math.log(factor) + 1.0


def longrope(rope: Any, features: int, max_length: int, length: int) -> Any:
    original = rope["original_max_position_embeddings"]
    factor = rope.get("factor") or max_length / original
    attention = rope.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1 + math.log(max(factor, 1)) / math.log(original))
    divisors = rope["long_factor"] if length > original else rope["short_factor"]
    return plain_frequencies(rope["rope_theta"], features) / np.asarray(divisors), attention


SCALINGS = {"default": default_rope, "linear": linear_rope, "dynamic": dynamic_rope,
            "llama3": llama3_rope, "yarn": yarn_rope, "longrope": longrope}  # fmt: skip


class LlamaLayer(nn.Module):
    """x + attention(norm(x)), then x + down(activation(gate(norm(x))) · up(norm(x))).

    Shapes: (N, L, hidden_size) -> the same.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        is_qwen2 = config.model_type == "qwen2"
        self.self_attn: parts.Attention = parts.Attention(
            size,
            config.num_attention_heads,
            ("q_proj", "k_proj", "v_proj", "o_proj"),
            kv_heads=config.num_key_value_heads,
            head_dim=config.width,
            bias=is_qwen2 or config.attention_bias,
            out_bias=not is_qwen2 and config.attention_bias,
            dropout=config.attention_dropout,
            norm_eps=eps if config.model_type == "qwen3" else None,
        )
        sizes = {"gate_proj": (size, inner), "up_proj": (size, inner), "down_proj": (inner, size)}
        maps = {name: nn.Linear(*both, config.mlp_bias) for name, both in sizes.items()}
        self.mlp: nn.ModuleDict = nn.ModuleDict(maps)
        self.input_layernorm: nn.RMSNorm = nn.RMSNorm(size, eps)
        self.post_attention_layernorm: nn.RMSNorm = nn.RMSNorm(size, eps)
        self.activation: Any = parts.check_activation("LlamaConfig", config.hidden_act)

    def forward(
        self, x: Tensor, visible: dict[str, Any], cache: Any, rotation: parts.Rotation
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), visible, cache, rotation=rotation)
        y, mlp = self.post_attention_layernorm(x), self.mlp
        return x + mlp["down_proj"](self.activation(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class LlamaModel(parts.TextModel):
    """The decoder's states; see LlamaForCausalLM.

    Shapes: tokens (N, L) -> (N, L, hidden_size).
    Source: as LlamaForCausalLM's.
    """

    config_class: type[LlamaConfig] = LlamaConfig

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.embed_tokens: nn.Embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers: nn.ModuleList
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config.num_hidden_layers))
        self.norm: nn.RMSNorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.known_frequencies: dict[int, tuple[Tensor, float]] = {}
        self.has_frequencies_of_length: bool = config.rope["rope_type"] in ("dynamic", "longrope")
        if not self.has_frequencies_of_length:
            self.frequencies(0)  # now, so that a captured step finds them
        parts.draw_weights(self, config.initializer_range)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Any = None,
        position_ids: Any = None,
        cache: Any = None,
    ) -> Tensor:
        tokens, config = self.checked(tokens), self.config
        length = tokens.shape[1]
        keys = parts.key_count(cache, length)
        windows = config.windows
        options = {"cache": cache, "causal": True}
        visible = {
            window: parts.sight(attention_mask, length, keys, window=window, **options)
            for window in set(windows)
        }
        x = self.embed_tokens(tokens)
        at = parts.positions_of(cache, length) if position_ids is None else position_ids
        rotation = self.rotation(at, keys, x)
        for i, (layer, window) in enumerate(zip(self.layers, windows, strict=True)):
            x = layer(x, visible[window], None if cache is None else cache[i], rotation)
        return self.norm(x)

    def frequencies(self, keys: int) -> tuple[Tensor, float]:
        """The angles at position 1 and a factor, computed once for each number of keys that
        matters."""
        if keys not in self.known_frequencies:
            config = self.config
            options = (config.width, config.max_position_embeddings, keys)
            frequencies, factor = rotary_frequencies(config.rope, *options)
            self.known_frequencies[keys] = asarray(frequencies), factor
        return self.known_frequencies[keys]

    def rotation(self, positions: Any, keys: int, x: Tensor) -> parts.Rotation:
        """Cosines and sines of the angles at the positions (L,) or (N, L)."""
        at = cast(as_value(positions), float32)
        frequencies, factor = self.frequencies(keys if self.has_frequencies_of_length else 0)
        at = reshape(at, (*at.shape, 1)) * frequencies
        at = at if at.ndim == 2 else reshape(at, (at.shape[0], 1, *at.shape[1:]))
        return cast(cos(at) * factor, x.dtype), cast(sin(at) * factor, x.dtype)


class LlamaForCausalLM(parts.CausalModel):
    """Llama and scores of the next token. `cache`, of `make_cache`, holds the keys and values of
    the tokens before.

    Shapes: tokens (N, L), attention_mask (N, keys) -> (N, L, vocab_size).
    Raises: ShapeError for other shapes, IndexOutOfRangeError for tokens outside the vocabulary.
    Source: Touvron et al. 2023, arXiv:2302.13971; Yang et al. 2024, arXiv:2407.10671 (Qwen2); 2025,
        arXiv:2505.09388 (Qwen3); names as in transformers.
    Example:
        >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
        >>> config = LlamaConfig(vocab_size=20, num_hidden_layers=1, **sizes)
        >>> LlamaForCausalLM(config)(gh.asarray([[1, 2, 3]])).shape
        (1, 3, 20)
    """

    config_class: type[LlamaConfig] = LlamaConfig
    base_name: str | None = "model"

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        body = LlamaModel(config)
        self.add_parts(body, body.embed_tokens, config.initializer_range)

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        """Layers, heads of keys, and features of a head."""
        config = self.config
        heads = config.num_key_value_heads or config.num_attention_heads
        return config.num_hidden_layers, heads, config.width
