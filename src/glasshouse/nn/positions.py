"""Positions as layers: added to the input, turned into it, or as a bias of attention's scores.

`offset` is the position of the first element, a number or a tensor such as a cache's length."""

from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn import init
from glasshouse.nn.checks import check_floating, check_positive
from glasshouse.nn.functional import positions
from glasshouse.nn.linear import Embedding, add_parameters
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor, abs, arange, take

__all__ = ["ALiBi", "LearnedPositionEmbedding", "RelativePositionBias", "RotaryEmbedding",
           "SinusoidalPositionEmbedding"]  # fmt: skip


def places(where: str, x: Any, offset: Tensor | float) -> Tensor:
    """The positions along axis -2 of x."""
    if x.ndim < 2:
        raise ShapeError(where, "an input (..., L, E)", x.shape, "Add the axis.")
    return arange(x.shape[-2]) + offset


class SinusoidalPositionEmbedding(Module):
    """x + the sines and cosines of its positions; see `functional.sinusoids`.

    Shapes: (..., L, E) -> the same.
    Raises: ShapeError for an odd number of features.
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.5.
    Example:
        >>> SinusoidalPositionEmbedding()(gh.zeros((1, 2))).tolist()
        [[0.0, 1.0]]
    """

    _shown = ("base",)

    def __init__(self, base: float = positions.BASE) -> None:
        super().__init__()
        self.base = base

    def forward(self, input: Tensor, offset: int = 0) -> Any:
        x = check_floating("SinusoidalPositionEmbedding", input)
        at = positions.like_double(places("SinusoidalPositionEmbedding", x, offset), x)
        return x + cast(positions.sinusoids(at, x.shape[-1], self.base), x.dtype)


class LearnedPositionEmbedding(Module):
    """x + the row of a table, initially normal with a spread of 0.02, of each of its positions.

    Shapes: (..., L, E) -> the same; weight (max_length, E).
    Raises: ShapeError for more than max_length positions.
    Source: Gehring et al. 2017, arXiv:1705.03122, sec. 3.1.
    """

    _shown_first = ("max_length", "features")

    def __init__(
        self,
        max_length: int,
        features: int,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        check_positive("LearnedPositionEmbedding", max_length=max_length, features=features)
        self.max_length = max_length
        self.features = features
        add_parameters(self, device, dtype, weight=(max_length, features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        init.normal_(self.weight, std=0.02)

    def forward(self, input: Tensor, offset: int = 0) -> Any:
        where = "LearnedPositionEmbedding"
        x = check_floating(where, input)
        at = places(where, x, offset)
        first = offset if isinstance(offset, int) else 0
        if x.shape[-2] + first > self.max_length or x.shape[-1] != self.features:
            expected = f"(..., L, {self.features}) with L at most {self.max_length - first}"
            raise ShapeError(where, expected, x.shape, "Cut the input, or raise max_length.")
        return x + take(self.weight, at, axis=0)


class RotaryEmbedding(Module):
    """Queries or keys turned by their positions, so that products depend on distances alone; see
    `functional.rotate`.

    Shapes: (..., L, E) -> the same.
    Raises: ShapeError for an odd number of features.
    Source: Su et al. 2021, arXiv:2104.09864.
    Example:
        >>> rotary = RotaryEmbedding()
        >>> rotary(gh.ones((2, 3, 4))).shape
        (2, 3, 4)
    """

    _shown = ("base", "interleaved")

    def __init__(self, base: float = positions.BASE, interleaved: bool = False) -> None:
        super().__init__()
        self.base = base
        self.interleaved = interleaved

    def forward(self, input: Tensor, offset: Tensor | float = 0) -> Tensor:
        x = check_floating("RotaryEmbedding", input)
        at = places("RotaryEmbedding", x, offset)
        return positions.rotate(x, at, self.base, self.interleaved)


class RelativeBias(Module):
    """Base of ALiBi and T5's bias: a bias per head, from the distance between query and key.
    The result is added to scores as `attn_mask`; `score_mod` is for `flex_attention`."""

    def bias_at(self, head: Any, relative: Any) -> Any:
        """The bias of a head at relative positions (key - query)."""
        raise NotImplementedError(f"{type(self).__name__}: expected bias_at; got none. Define it.")

    def forward(self, queries: Any, keys: Any, offset: int = 0) -> Any:
        check_positive(type(self).__name__, queries=queries, keys=keys)
        at = reshape(arange(queries) + offset, (queries, 1))
        heads = reshape(arange(self.num_heads), (self.num_heads, 1, 1))
        return self.bias_at(heads, arange(keys) - at)

    def score_mod(self, score: Any, batch: Any, head: Any, q_index: Any, kv_index: Any) -> Any:
        """score + bias, for `flex_attention`."""
        return score + self.bias_at(head, kv_index - q_index)


class ALiBi(RelativeBias):
    """-slope · distance, with a fixed slope for each head; see `functional.alibi_slopes`.

    Shapes: numbers of queries and keys -> (num_heads, queries, keys).
    Source: Press, Smith & Lewis 2022, arXiv:2108.12409.
    Example:
        >>> ALiBi(1)(2, 2).tolist()
        [[[0.0, -0.00390625], [-0.00390625, 0.0]]]
    """

    _shown_first = ("num_heads",)

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.register_buffer("slopes", positions.alibi_slopes(num_heads), persistent=False)

    def bias_at(self, head: Any, relative: Any) -> Any:
        slopes = take(self.slopes, as_value(head), axis=0)
        return slopes * cast(0 - abs(relative), slopes.dtype)


class RelativePositionBias(RelativeBias):
    """T5's bias: for each head one trained number for each bucket of distances, initially normal;
    see `functional.relative_buckets`. Attention with it has scale=1.0 in T5.

    Shapes: numbers of queries and keys -> (num_heads, queries, keys).
    Raises: OptionError for no heads or fewer than 2 buckets.
    Source: Raffel et al. 2020, arXiv:1910.10683, sec. 2.1.
    Example:
        >>> RelativePositionBias(4)(3, 5).shape
        (4, 3, 5)
    """

    _shown = ("num_heads", "num_buckets", "max_distance", "bidirectional")

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        check_positive("RelativePositionBias", num_heads=num_heads, num_buckets=num_buckets // 2)
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.relative_attention_bias: Embedding = Embedding(
            num_buckets, num_heads, device=device, dtype=dtype
        )

    def bias_at(self, head: Any, relative: Any) -> Any:
        options = (self.num_buckets, self.max_distance, self.bidirectional)
        bucket = positions.relative_buckets(relative, *options)
        return self.relative_attention_bias.weight[bucket, head]
