"""Random bits: the one source of randomness, a function of a key alone.

Philox4x32-10 turns a counter and a key into four 32-bit words. Here the operand is a key of four
words, (key 0, key 1, counter 2, counter 3): the first two are Philox's key, the last two the upper
half of its counter, and the number of the block of four words is the lower half. So equal keys give
equal bits on every machine, and a longer draw begins with the shorter one."""

import math
from collections.abc import Sequence

import numpy as np

from glasshouse.base import DTypeError, ShapeError, Spec, check_shape, uint32
from glasshouse.dispatch.primitive import Arr, card, refusal, sample

# Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC11), sec. 3.3
# and its library Random123: multipliers, and the key's increments (golden ratio, sqrt(3) - 1).
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
INCREMENTS = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
ROUNDS = 10
WORD = np.uint64(32)


def high_low(product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (product >> WORD).astype(np.uint32), product.astype(np.uint32)


def philox(counter: Sequence[np.ndarray], key: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Philox4x32-10: four uint32 arrays, from four of a counter and two of a key.

    Example:
        >>> zero = np.zeros(1, np.uint32)
        >>> [hex(int(word[0])) for word in philox((zero,) * 4, (zero,) * 2)]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = high_low(c0 * MULTIPLIERS[0])
        high1, low1 = high_low(c2 * MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + INCREMENTS[0], k1 + INCREMENTS[1]
    return c0, c1, c2, c3


def infer_bits(key: Spec, *, shape: tuple[int, ...]) -> Spec:
    if key.dtype is not uint32:
        fix = "Take one from gh.random.Generator."
        raise DTypeError("random_bits", "a key of dtype uint32", key.dtype.name, fix)
    if key.shape[-1:] != (4,):
        fix = "Take one from gh.random.Generator."
        raise ShapeError("random_bits", "a key of shape (..., 4)", key.shape, fix)
    return Spec((*key.shape[:-1], *check_shape("random_bits", shape)), uint32)


@card(
    "random",
    infer=infer_bits,
    batch=lambda batched, key, *, shape: random_bits(key, shape=shape),
    flops=lambda key, **_: 0,
    samples=[
        sample(Arr((4,), 0, 2**31), shape=(3, 2)),
        sample(Arr((2, 3, 4), 0, 2**31), shape=(5,)),
        sample(Arr((4,), 0, 2**31), shape=()),
        sample(Arr((4,), 0, 2**31), shape=(0, 2)),
    ],
    error_samples=[
        refusal(DTypeError, "uint32", (4,), on="int32", shape=(2,)),
        refusal(ShapeError, "(..., 4)", Arr((3,), dtype="uint32"), shape=(2,)),
        refusal(ShapeError, "0 or more", Arr((4,), dtype="uint32"), shape=(-1,)),
    ],
    source="Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as easy as 1, 2, 3",
    dtypes=(uint32,),
)
def random_bits(key: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """uint32 (..., *shape): words that look random, a function of the key uint32 (..., 4) alone.

    Why: its composite form takes 100 passes of integer arithmetic.

    Blocks of four words, one Philox call for all of them, cut to the size asked for.

    Integer arithmetic only, so no FLOPs."""
    size = math.prod(shape)
    block = np.arange(-(-size // 4), dtype=np.uint64)
    low, high = block.astype(np.uint32), (block >> WORD).astype(np.uint32)
    k0, k1, c2, c3 = (key[..., i, None] for i in range(4))
    words = np.stack(philox((low, high, c2, c3), (k0, k1)), axis=-1)  # (..., blocks, 4)
    words = words.reshape((*key.shape[:-1], 4 * block.size))
    return words[..., :size].reshape((*key.shape[:-1], *shape))
