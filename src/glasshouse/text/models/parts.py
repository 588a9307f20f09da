"""Parts that the families share: configurations, masks, attention, positions, initial values."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from glasshouse import nn
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn import functional
from glasshouse.nn.checks import check_divides
from glasshouse.nn.functional.attention import attention_weights, repeat_heads
from glasshouse.nn.functional.positions import turned
from glasshouse.nn.generation.slots import states_at
from glasshouse.ops.checks import check_option, check_type
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor, arange, concat, minimum, ones

__all__ = ["Attention", "CachedModel", "CausalModel", "Configuration", "TextModel"]

GELU_TANH = partial(functional.gelu, approximate="tanh")
ACTIVATIONS = {"gelu": functional.gelu, "gelu_new": GELU_TANH, "gelu_pytorch_tanh": GELU_TANH,
               "relu": functional.relu, "silu": functional.silu, "swish": functional.silu,
               "tanh": functional.tanh}  # fmt: skip
QUERIES = 128  # of a chunk whose scores are made at once
Rotation = tuple[Tensor, Tensor]  # cosines and sines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """Base of the families' configurations, which have the names of transformers' config.json."""

    required: ClassVar[dict[str, Any]] = {}  # options of which only one value is supported

    model_type: str = ""

    def __post_init__(self) -> None:
        where, fix = type(self).__name__, "Correct config.json."
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            kinds = [get_origin(kind) or kind for kind in get_args(hint) or (hint,)]
            if get_origin(hint) is ClassVar:
                continue
            if type(value) not in kinds and not (float in kinds and type(value) is int):
                expected = f"{name} of type {' or '.join(kind.__name__ for kind in kinds)}"
                raise OptionError(where, expected, repr(value), fix)
            least = 0 if name.endswith(("_id", "max_window_layers")) else 1
            if type(value) is int and int in kinds and value < least:
                raise OptionError(where, f"{name} to be at least {least}", value, fix)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration with the values that it has names for, as config.json holds them;
        None stands for the default.

        Raises: OptionError for a value of another type, or an option that is not supported.
        """
        for name, only in cls.required.items():
            if values.get(name) not in (None, only):
                fix = "Convert the model, or write a class for it."
                raise OptionError(cls.__name__, f"{name}={only!r}", repr(values[name]), fix)
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{n: v for n, v in values.items() if n in names and v is not None})


class TextModel(nn.Module):
    """Base of the models: a configuration, and the checks of tokens. `base_name` is the child that
    holds the model below a head."""

    base_name: str | None = None
    config_class: type[Configuration] = Configuration

    def __init__(self, config: Any) -> None:
        super().__init__()
        fix = f"Pass a {self.config_class.__name__}."
        name = type(self).__name__
        check_type(name, config, self.config_class, "its configuration", fix)
        self.config = config

    def checked(self, tokens: Any, length: int | None = None) -> Tensor:
        """The tokens, if they are (N, L) with L at most `length`."""
        return checked_tokens(type(self).__name__, tokens, length)


def checked_tokens(where: str, tokens: Any, length: int | None) -> Tensor:
    tokens = as_value(tokens, where=where)
    if tokens.ndim != 2 or (length is not None and tokens.shape[1] > length):
        limit = "" if length is None else f" with L at most {length}"
        fix = "Cut the text, or raise max_len."
        raise ShapeError(where, f"tokens (N, L){limit}", tokens.shape, fix)
    return tokens


def check_activation(where: str, name: str) -> Any:
    return ACTIVATIONS[check_option(where, "activation", name, ACTIVATIONS)]


class CachedModel(nn.Generation, TextModel):
    """Base of models with a decoder, which takes a cache of the tokens before. Subclasses say how
    large it is."""

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        """The decoder's layers, heads of keys, and features of a head."""
        raise NotImplementedError(f"{type(self).__name__}: expected cache_sizes; got none.")

    def make_cache(
        self, batch_size: int, max_length: int, dtype: DTypeLike | None = None
    ) -> nn.ModuleList:
        """A cache of `max_length` positions for each layer of the decoder; see `nn.KVCache`."""
        layers, heads, features = self.cache_sizes
        sizes = (batch_size, heads, max_length, features)
        return nn.ModuleList(nn.KVCache(*sizes, dtype=dtype) for _ in range(layers))

    def make_slots(self, slots: int, capacity: int) -> nn.SlotCache:
        """A cache for `generate`: so many texts of at most `capacity - 1` tokens each."""
        layers, heads, features = self.cache_sizes
        dtype = next(p.dtype for p in self.parameters() if p.dtype.is_floating)
        return nn.SlotCache(layers, slots, heads, capacity, features, dtype)

    @property
    def context(self) -> int | None:  # type: ignore[override]
        """The most tokens of a text."""
        names = ("max_target_positions", "max_position_embeddings", "n_positions")
        return next((getattr(self.config, n) for n in names if hasattr(self.config, n)), None)

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """The number of tokens."""
        return self.config.vocab_size

    @property
    def end_token(self) -> int | list[int] | None:  # type: ignore[override]
        """The token, or each of several, that ends a text, if the configuration names it."""
        return getattr(self.config, "eos_token_id", None)


class CausalModel(CachedModel):
    """Base of decoders with scores of the next token: `body` under the child `base_name`, then
    `lm_head`, which may have the table's weights."""

    def add_parts(self, body: nn.Module, table: nn.Module, std: float) -> None:
        """Register the two parts."""
        self.add_module(str(self.base_name), body)
        self.lm_head: nn.Linear = nn.Linear(table.embedding_dim, table.num_embeddings, bias=False)
        draw_weights(self.lm_head, std)
        if self.config.tie_word_embeddings:
            self.lm_head.weight = table.weight

    def forward(
        self,
        tokens: Any,
        attention_mask: Any = None,
        position_ids: Any = None,
        cache: Any = None,
    ) -> Tensor:
        body = self._modules[self.base_name]
        return self.lm_head(body(tokens, attention_mask, position_ids, cache))

    def next_scores(self, tokens: Tensor, cache: Any, at: Tensor) -> Tensor:
        """Scores of the tokens that follow those at the places `at`; see `nn.Generation`."""
        states = self._modules[self.base_name](tokens, cache=cache)
        return self.lm_head(states_at(states, at))


def positions_of(cache: Any, length: int, limit: int | None = None) -> Tensor:
    """The positions of tokens that follow those in a cache of the layers. Where slots differ,
    padding may go beyond the `limit`: it has the last position.

    Shapes: -> (length,), or (slots, length).
    """
    if cache is None:
        return arange(length)
    offset = as_value(cache[0].length).detach()
    if offset.ndim == 0:
        return arange(length) + offset
    at = reshape(offset, (offset.shape[0], 1)) + arange(length)
    return at if limit is None else minimum(at, limit - 1)


def key_count(cache: Any, queries: int) -> int:
    """How many keys attention has with a cache: all that it has room for, or those so far."""
    if cache is None:
        return queries
    return getattr(cache[0], "max_length", None) or cache[0].length + queries


def sight(
    padding: Any, queries: int, keys: int, *, cache: Any = None, causal: bool = False,
    window: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Where queries may attend, as options of `scaled_dot_product_attention`: to keys for which
    `padding` (N, keys) is not 0 (further keys count as 1), if `causal` to those before them, and
    within the last `window`. The mask broadcasts to (N, heads, queries, keys)."""
    if causal and cache is None and padding is None and (window is None or window >= keys):
        return {"attn_mask": None, "is_causal": True}
    allowed: Any = None
    if causal:
        at, key = positions_of(cache, queries), arange(keys)
        at = reshape(at, (queries, 1) if at.ndim == 1 else (at.shape[0], 1, queries, 1))
        allowed = key <= at if window is None else (key <= at) & (key > at - window)
    if padding is not None:
        mask = as_value(padding, where="attention_mask")
        if mask.ndim != 2 or mask.shape[1] > keys:
            fix = "Pass one number for each token."
            raise ShapeError("attention_mask", f"(N, L), L at most {keys}", mask.shape, fix)
        mask = mask != 0
        if mask.shape[1] < keys:
            more = ones((mask.shape[0], keys - mask.shape[1]), dtype="bool")
            mask = concat([mask, more], axis=1)
        mask = reshape(mask, (mask.shape[0], 1, 1, keys))
        allowed = mask if allowed is None else allowed & mask
    return {"attn_mask": allowed, "is_causal": False}


class Attention(nn.Module):
    """Attention of query heads to as many, or fewer, heads of keys and values. The `names` of the
    three projections, and of the last one if there is one, are the family's.

    Shapes: x (N, L, dim) -> (N, L, dim), or (N, L, heads · head_dim) without a last projection;
        `memory` (N, S, dim), or (keys, values), each (N, heads, S, head_dim).
    Raises: OptionError unless kv_heads divides heads, and heads dim where head_dim is not given.
    Source: Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        names: Sequence[str],
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        norm_eps: float | None = None,
    ) -> None:
        super().__init__()
        if head_dim is None:
            check_divides("Attention", "the features", dim, "heads", heads)
        self.heads = heads
        self.kv_heads: int = heads if kv_heads is None else kv_heads
        check_divides("Attention", "heads", heads, "kv_heads", self.kv_heads)
        self.head_dim: int = dim // heads if head_dim is None else head_dim
        self.names: tuple[str, ...] = tuple(names)
        self.scale = scale
        self.dropout = dropout
        self.add_projections(dim, bias, bias if out_bias is None else out_bias)
        self.is_normed: bool = norm_eps is not None
        if self.is_normed:  # Qwen3's
            self.q_norm: nn.RMSNorm = nn.RMSNorm(self.head_dim, norm_eps)
            self.k_norm: nn.RMSNorm = nn.RMSNorm(self.head_dim, norm_eps)

    def add_projections(self, dim: int, bias: bool, out_bias: bool) -> None:
        """Register the projections under their names."""
        inner, shared = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for name, size in zip(self.names[:3], (inner, shared, shared), strict=True):
            self.add_module(name, nn.Linear(dim, size, bias))
        for name in self.names[3:]:
            self.add_module(name, nn.Linear(inner, dim, out_bias))

    def split(self, x: Tensor) -> Tensor:
        """(N, L, heads · D) as (N, heads, L, D)."""
        heads = x.shape[-1] // self.head_dim
        return permute(reshape(x, (*x.shape[:2], heads, self.head_dim)), axes=(0, 2, 1, 3))

    def queries(self, x: Tensor) -> Tensor:
        """The heads of queries."""
        q = self.split(self._modules[self.names[0]](x))
        return self.q_norm(q) if self.is_normed else q

    def memory(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The heads of keys and values, which attention takes as `memory`."""
        k, v = (self.split(self._modules[name](x)) for name in self.names[1:3])
        return (self.k_norm(k) if self.is_normed else k), v

    def operands(self, x: Tensor, memory: Any, rotation: Rotation | None) -> Any:
        """The heads of queries, keys and values."""
        q = self.queries(x)
        k, v = memory if isinstance(memory, tuple) else self.memory(x if memory is None else memory)
        if rotation is not None:
            q, k = turned(q, *rotation), turned(k, *rotation)
        return q, k, v

    def forward(
        self,
        x: Tensor,
        visible: dict[str, Any],
        cache: Any = None,
        memory: Any = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        q, k, v = self.operands(x, memory, rotation)
        options = {"dropout_p": self.dropout if self.training else 0.0, "scale": self.scale}
        options["enable_gqa"] = self.heads != self.kv_heads
        if cache is not None:
            k, v = cache.update(k, v)
        if hasattr(cache, "reach"):
            y = attend_chunk(q, k, v, visible["attn_mask"], options)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, **visible, **options)
        y = reshape(permute(y, axes=(0, 2, 1, 3)), (*x.shape[:2], self.heads * self.head_dim))
        return self._modules[self.names[3]](y) if len(self.names) > 3 else y

    def weights(self, x: Tensor, visible: dict[str, Any], memory: Any = None) -> Tensor:
        """How much each query attends to each key, as pictures of attention show it.

        Shapes: as forward's -> (N, heads, L, S).
        """
        q, k, _ = self.operands(x, memory, None)
        k = repeat_heads(k, self.heads // self.kv_heads)
        return attention_weights("Attention.weights", q, k, visible["attn_mask"], self.scale)


def attend_chunk(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, options: Any) -> Tensor:
    """Causal attention of a chunk whose last token may be at the last key: some of its tokens at a
    time, each time with the keys up to where the last of them may be.

    Shapes: q (N, heads, L, D), k and v (N, kv_heads, S, D), mask (N, 1, L, S) -> as q.
    """
    length, later = q.shape[2], k.shape[2] - q.shape[2]
    if length <= QUERIES:
        return functional.scaled_dot_product_attention(q, k, v, mask, **options)
    parts = []
    for start in range(0, length, QUERIES):
        end = min(start + QUERIES, length)
        keys = min(-(-(later + end) // 16) * 16, k.shape[2])  # in whole vectors
        operands = q[:, :, start:end], k[:, :, :keys], v[:, :, :keys], mask[:, :, start:end, :keys]
        parts.append(functional.scaled_dot_product_attention(*operands, **options))
    return concat(parts, axis=2)


def draw_weights(model: nn.Module, std: float) -> None:
    """Draw the weights of linear layers and tables from a normal distribution; biases are 0."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.TransposedLinear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
