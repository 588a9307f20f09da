"""Philox: the published test vectors, and what the layout of the key promises."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.value import as_value
from glasshouse.ops.random import philox, random_bits
from glasshouse.transforms.vmap import vmap

# Random123 1.14, tests/kat_vectors, "philox4x32 10": counter, key, words.
VECTORS = [
    (
        (0x00000000, 0x00000000, 0x00000000, 0x00000000), (0x00000000, 0x00000000),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


def words(*values):
    return [np.array([value], np.uint32) for value in values]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_published_vectors(counter, key, expected):
    got = philox(words(*counter), words(*key))
    assert tuple(int(word[0]) for word in got) == expected


def test_first_block_is_the_published_vector_of_zeros():
    bits = random_bits(as_value(np.zeros(4, np.uint32)), shape=(4,))
    assert tuple(bits.numpy().tolist()) == VECTORS[0][2]


def test_block_number_is_the_lower_half_of_the_counter():
    key = np.array([7, 8, 9, 10], np.uint32)
    bits = random_bits(as_value(key), shape=(3, 4)).numpy()
    for block in range(3):
        expected = philox(words(block, 0, 9, 10), words(7, 8))
        assert [int(w[0]) for w in expected] == bits[block].tolist()


def test_a_longer_draw_begins_with_the_shorter_one():
    key = as_value(np.array([1, 2, 3, 4], np.uint32))
    long = random_bits(key, shape=(103,)).numpy()
    np.testing.assert_array_equal(random_bits(key, shape=(5, 2)).numpy().ravel(), long[:10])


def test_vmap_over_keys_draws_for_each():
    keys = as_value(np.arange(12, dtype=np.uint32).reshape(3, 4))
    bits = vmap(lambda key: random_bits(key, shape=(2, 3)))(keys)
    assert bits.shape == (3, 2, 3)
    one = random_bits(as_value(np.arange(4, 8, dtype=np.uint32)), shape=(2, 3))
    np.testing.assert_array_equal(bits.numpy()[1], one.numpy())


def test_bits_are_balanced():
    bits = random_bits(as_value(np.array([3, 1, 4, 1], np.uint32)), shape=(1 << 14,)).numpy()
    share = [((bits >> np.uint32(i)) & np.uint32(1)).mean() for i in range(32)]
    assert np.abs(np.array(share) - 0.5).max() < 0.02  # 5 standard deviations
    assert len(np.unique(bits)) > bits.size - 3


@pytest.mark.sample(14)
@pytest.mark.parametrize("shape", [(100, 10), (7, 333), (64, 64), (3, 20_000), (100_001,), (9, 70)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_words_drawn_before_a_loop_are_those_drawn_one_by_one(shape, axis):
    """Rows that begin within a block, short ones, long ones; sums of rows, columns and parts."""
    key = np.array([1, 2, 3, 4], np.uint32)
    with gh.backends.use("numpy"):
        expected = random_bits(gh.asarray(key), shape=shape).numpy()
    with flags.override(compile="always"), gh.backends.use("lazy"):
        bits = random_bits(gh.asarray(key), shape=shape)
        odd = gh.bitwise_and(bits, 1).astype("int32")
        total = odd if axis is None else gh.sum(odd, axis=axis)
        gh.eval(bits, total)
        np.testing.assert_array_equal(bits.numpy(), expected)
    odd = (expected & 1).astype(np.int32)
    np.testing.assert_array_equal(total.numpy(), odd if axis is None else odd.sum(axis))
