"""Positions in attention: rotations, tables and biases."""

import math
from typing import Any

from glasshouse.base import ShapeError, float32, float64
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.dispatch.wide import rounded_once
from glasshouse.nn.checks import check_floating, check_positive
from glasshouse.ops.checks import check_integer
from glasshouse.tensor import (
    Tensor,
    abs,
    arange,
    asarray,
    concat,
    cos,
    exp,
    log,
    minimum,
    sin,
    stack,
)
from glasshouse.tensor import where as choose

__all__ = ["alibi_slopes", "relative_buckets", "rotate", "sinusoids"]

BASE = 10000.0  # of the wavelengths, as in both sources


def check_even(where: str, features: int) -> None:
    if features % 2:
        raise ShapeError(where, "an even number of features", features, "Change it.")


def angles(positions: Tensor, features: int, base: float) -> Tensor:
    """position / base^(2i / features) for i = 0 … features/2 - 1.

    Shapes: positions (...) -> (..., features / 2).
    Dtypes: float64 for positions in float64, else float32.
    """
    at = as_value(positions)
    at = at if at.dtype is float64 else cast(at, float32)
    steps = arange(features // 2, dtype=at.dtype) * (-2 * math.log(base) / features)
    return reshape(at, (*at.shape, 1)) * exp(steps)


def like_double(positions: Any, x: Tensor) -> Tensor:
    """The positions, in float64 where x is: float32 angles would cost half of its digits."""
    return cast(as_value(positions), float64) if x.dtype is float64 else as_value(positions)


def sinusoids(positions: Any, features: int, base: float = BASE) -> Tensor:
    """sin and cos of position / base^(2i / features), in turn.

    Shapes: positions (...) -> (..., features).
    Dtypes: float64 for positions in float64, else float32.
    Raises: ShapeError for an odd number of features.
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.5.
    Example:
        >>> sinusoids([0], 4).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    check_even("sinusoids", features)
    at = angles(positions, features, base)
    both = stack([sin(at), cos(at)], axis=-1)
    return reshape(both, (*at.shape[:-1], features))


@rounded_once
def rotate(
    input: Tensor, positions: Tensor, base: float = BASE, interleaved: bool = False
) -> Tensor:
    """Pairs of features turned by the angles position / base^(2i / E).
    Feature i is paired with i + E/2, or, if `interleaved`, with the one beside it.

    Shapes: input (..., L, E), positions (L,) or broadcasting to (..., L) -> as input.
    Raises: ShapeError for an odd number of features.
    Source: Su et al. 2021, arXiv:2104.09864, eq. 34.
    Example:
        >>> rotate([[1.0, 0.0]], [0]).tolist()
        [[1.0, 0.0]]
    """
    x = check_floating("rotate", input)
    features = x.shape[-1]
    check_even("rotate", features)
    at = angles(like_double(positions, x), features, base)
    return turned(x, cast(cos(at), x.dtype), cast(sin(at), x.dtype), interleaved)


def turned(x: Tensor, c: Tensor, s: Tensor, interleaved: bool = False) -> Tensor:
    """Pairs of features turned by angles with these cosines and sines.

    Shapes: x (..., L, E), c and s broadcasting to (..., L, E / 2) -> as x.
    """
    features = x.shape[-1]
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return reshape(stack([a * c - b * s, a * s + b * c], axis=-1), x.shape)
    a, b = x[..., : features // 2], x[..., features // 2 :]
    return concat([a * c - b * s, a * s + b * c], axis=-1)


def alibi_slopes(num_heads: int) -> Tensor:
    """The slope of each head: 2^(-8k / n) for k = 1 … n, n being a power of two; otherwise those of
    the power below, then every second one of the power above.

    Shapes: -> (num_heads,).
    Source: Press, Smith & Lewis 2022, arXiv:2108.12409, sec. 3.
    Example:
        >>> alibi_slopes(4).tolist()
        [0.25, 0.0625, 0.015625, 0.00390625]
    """
    check_positive("alibi_slopes", num_heads=num_heads)
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * k / below) for k in range(1, below + 1)]
    above = [2.0 ** (-4 * k / below) for k in range(1, 2 * below + 1)]
    return asarray([*slopes, *above[::2]][:num_heads], dtype=float32)


def relative_buckets(
    relative: Any, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Tensor:
    """The bucket of each relative position (key - query): one each for near ones, logarithmic ones
    up to max_distance, and the last for all beyond.

    Shapes: relative (...) of integers -> (...).
    Raises: OptionError for fewer than 2 buckets, or than 4 of both directions.
    Source: Raffel et al. 2020, arXiv:1910.10683, sec. 2.1; buckets as in its code.
    Example:
        >>> relative_buckets([-200, -1, 0, 1]).tolist()
        [15, 1, 0, 17]
    """
    check_integer("relative_buckets", "num_buckets", num_buckets, 4 if bidirectional else 2)
    at = as_value(relative, where="relative_buckets")
    zero = at * 0
    first = zero
    if bidirectional:
        num_buckets //= 2
        first = choose(at > 0, zero + num_buckets, zero)
        distance = abs(at)
    else:
        distance = choose(at > 0, zero, -at)
    exact = num_buckets // 2
    ratio = cast(choose(distance < exact, zero + exact, distance), float32) / exact
    far = log(ratio) * ((num_buckets - exact) / math.log(max_distance / exact))
    far = minimum(exact + cast(far, at.dtype), num_buckets - 1)
    return first + choose(distance < exact, distance, far)
