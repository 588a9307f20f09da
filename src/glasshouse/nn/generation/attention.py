"""Attention for generation: shared key heads, windows, and caches of keys and values."""

import math
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn.checks import check_divides, check_floating, check_positive, check_probability
from glasshouse.nn.functional.attention import scaled_dot_product_attention
from glasshouse.nn.linear import Linear
from glasshouse.nn.module import Module
from glasshouse.ops.index import scatter_set
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor, arange, concat, zeros
from glasshouse.tensor import where as choose


class KVCache(Module):
    """Keys and values of at most `max_length` positions, in tensors of one size: each step of a
    generation runs the same Program. The kept values have no gradients.

    Shapes: keys and values (N, heads, max_length, D); length ().
    Example:
        >>> cache = KVCache(1, 2, 8, 4)
        >>> keys, values = cache.update(gh.ones((1, 2, 3, 4)), gh.ones((1, 2, 3, 4)))
        >>> keys.shape, cache.length.item()
        ((1, 2, 8, 4), 3)
    """

    _shown = ("batch_size", "num_heads", "max_length", "features")

    def __init__(
        self,
        batch_size: int,
        num_heads: int,
        max_length: int,
        features: int,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        sizes = {"batch_size": batch_size, "num_heads": num_heads}
        sizes |= {"max_length": max_length, "features": features}
        check_positive("KVCache", **sizes)
        self.__dict__.update(sizes)
        for name in ("keys", "values"):
            x = zeros(tuple(sizes.values()), dtype=dtype, device=device)
            self.register_buffer(name, x, persistent=False)
        self.register_buffer("length", zeros((), dtype="int64"), persistent=False)

    def reset(self) -> None:
        """Forget all positions."""
        with no_grad():
            self.length.copy_(0)

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """(keys, values) with those of the new positions appended.

        Shapes: key and value (N, heads, L, D) -> (N, heads, max_length, D).
        Raises: ShapeError for other sizes; IndexOutOfRangeError for more than max_length positions,
            where lengths are read.
        """
        fixed_sizes = (self.batch_size, self.num_heads, self.features)
        for x in (key, value):
            fits = x.ndim == 4 and (*x.shape[:2], x.shape[3]) == fixed_sizes
            if not fits or x.shape[2] > self.max_length:
                raise ShapeError(
                    "KVCache.update",
                    f"({self.batch_size}, {self.num_heads}, L, {self.features}) with L at most "
                    f"{self.max_length}",
                    x.shape,
                    "Make a cache of that size.",
                )
        at = arange(key.shape[2]) + self.length
        with no_grad():
            try:
                for buffer, x in ((self.keys, key), (self.values, value)):
                    buffer.copy_(scatter_set(buffer.detach(), at, x.detach(), axis=2))
            except IndexOutOfRangeError:
                expected = f"at most {self.max_length} positions"
                got = at[-1].item() + 1
                fix = "Raise max_length, or call reset()."
                raise IndexOutOfRangeError("KVCache.update", expected, got, fix) from None
            self.length.copy_(self.length + key.shape[2])
        return self.keys, self.values


class GrowingKVCache(Module):
    """Keys and values of all positions so far, in tensors that grow.

    Shapes: keys and values (N, heads, length, D).
    Example:
        >>> cache = GrowingKVCache()
        >>> keys, values = cache.update(gh.ones((1, 2, 3, 4)), gh.ones((1, 2, 3, 4)))
        >>> keys.shape, cache.length
        ((1, 2, 3, 4), 3)
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", None, persistent=False)
        self.register_buffer("values", None, persistent=False)

    @property
    def length(self) -> int:
        """How many positions there are."""
        return 0 if self.keys is None else self.keys.shape[2]

    def reset(self) -> None:
        """Forget all positions."""
        self.keys: Any = None
        self.values: Any = None

    def update(self, key: Any, value: Any) -> Any:
        """(keys, values) with those of the new positions appended.

        Shapes: key and value (N, heads, L, D) -> (N, heads, length, D).
        """
        key, value = key.detach(), value.detach()
        if self.keys is None:
            self.keys, self.values = key, value
        else:
            self.keys = concat([self.keys, key], axis=2)
            self.values = concat([self.values, value], axis=2)
        return self.keys, self.values


class GroupedQueryAttention(Module):
    """Self-attention in which groups of query heads share one head of keys and values; causal
    unless it is switched off, within a `window` of the last positions if given. `rotary`, a
    RotaryEmbedding, turns queries and keys. With a cache, the positions follow those that it has.

    Shapes: input (N, L, embed_dim) -> the same; attn_mask broadcasting to (N, heads, L, keys).
    Raises: OptionError unless num_kv_heads divides num_heads and those divide embed_dim, or for a
        window without causality.
    Source: Ainslie et al. 2023, arXiv:2305.13245; Beltagy et al. 2020, arXiv:2004.05150 (window).
    Example:
        >>> layer = GroupedQueryAttention(8, 4, 2)
        >>> layer(gh.ones((1, 3, 8))).shape
        (1, 3, 8)
    """

    _shown = ("embed_dim", "num_heads", "num_kv_heads", "is_causal", "window")

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        is_causal: bool = True,
        window: int | None = None,
        rotary: Module | None = None,
        head_dim: Any = None,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        where = "GroupedQueryAttention"
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_divides(where, "num_heads", num_heads, "num_kv_heads", num_kv_heads)
        if head_dim is None:
            check_divides(where, "embed_dim", embed_dim, "num_heads", num_heads)
        if window is not None:
            check_positive(where, window=window)
            if not is_causal:
                fix = "Pass an attn_mask."
                raise OptionError(where, "a window of causal attention", "is_causal=False", fix)
        self.dropout: float = check_probability(where, dropout)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim: int = embed_dim // num_heads if head_dim is None else head_dim
        self.is_causal = is_causal
        self.window = window
        self.rotary = rotary
        inner, shared = num_heads * self.head_dim, num_kv_heads * self.head_dim
        self.q_proj: Linear = Linear(embed_dim, inner, bias, device, dtype)
        self.k_proj: Linear = Linear(embed_dim, shared, bias, device, dtype)
        self.v_proj: Linear = Linear(embed_dim, shared, bias, device, dtype)
        self.o_proj: Linear = Linear(inner, embed_dim, bias, device, dtype)

    def forward(
        self, input: Tensor, cache: Module | None = None, attn_mask: Tensor | None = None
    ) -> Tensor:
        x = check_floating("GroupedQueryAttention", input)
        if x.ndim != 3:
            raise ShapeError("GroupedQueryAttention", "(N, L, embed_dim)", x.shape, "Reshape it.")
        q, k, v = (self.heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        offset = 0 if cache is None else as_value(cache.length).detach()
        if self.rotary is not None:
            q, k = self.rotary(q, offset), self.rotary(k, offset)
        if cache is not None:
            k, v = cache.update(k, v)
        plain = self.is_causal and self.window is None and cache is None and attn_mask is None
        mask = None if plain else self.mask(q.shape[2], k.shape[2], offset, cache, attn_mask)
        rate = self.dropout if self.training else 0.0
        has_groups = self.num_heads != self.num_kv_heads
        options = {"is_causal": plain, "enable_gqa": has_groups}
        y = scaled_dot_product_attention(q, k, v, mask, rate, **options)
        y = permute(y, axes=(0, 2, 1, 3))  # (N, L, heads, D)
        return self.o_proj(reshape(y, (*y.shape[:2], self.num_heads * self.head_dim)))

    def heads(self, x: Tensor) -> Tensor:
        """(N, L, heads · D) as (N, heads, L, D)."""
        count = x.shape[-1] // self.head_dim
        return permute(reshape(x, (*x.shape[:2], count, self.head_dim)), axes=(0, 2, 1, 3))

    def mask(
        self,
        queries: int,
        keys: int,
        offset: Tensor | float,
        cache: Module | None,
        attn_mask: Tensor | None,
    ) -> Any:
        """Where each query may attend to each key, with the user's mask; None for everywhere."""
        at, key = reshape(arange(queries) + offset, (queries, 1)), arange(keys)
        allowed = None
        if self.is_causal:
            allowed = key <= at
            allowed = allowed if self.window is None else allowed & (key > at - self.window)
        elif cache is not None:
            allowed = key < offset + queries
        if attn_mask is None or allowed is None:
            return attn_mask if allowed is None else allowed
        attn_mask = as_value(attn_mask, where="GroupedQueryAttention")
        if attn_mask.dtype.is_bool:
            return allowed & attn_mask
        return choose(allowed, attn_mask, -math.inf)
