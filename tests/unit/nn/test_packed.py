"""Packed and padded sequences against PyTorch's."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.nn.utils import rnn

LENGTHS = [[4, 4, 2, 1], [1, 3, 2, 4], [2], [3, 3]]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("total", [None, 6])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_packing_and_padding_equal_pytorchs(twin, lengths, batch_first, total, as_tensor):
    torch = twin.torch
    shape = (len(lengths), 5, 3) if batch_first else (5, len(lengths), 3)
    x = np.random.default_rng(0).normal(size=shape)
    options = {"batch_first": batch_first, "enforce_sorted": False}
    ours = gh.asarray(lengths) if as_tensor else lengths
    mine = rnn.pack_padded_sequence(gh.asarray(x), ours, **options)
    other = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), **options
    )
    np.testing.assert_array_equal(mine.batch_sizes.numpy(), other.batch_sizes.numpy())
    back = {"batch_first": batch_first, "padding_value": -1.0, "total_length": total}

    def padded(lib, x):
        packed = lib.pack_padded_sequence(x, lengths, **options)
        return packed.data, *lib.pad_packed_sequence(packed._replace(data=packed.data * 2), **back)

    twin.function(
        lambda x: padded(rnn, x),
        lambda x: padded_by_torch(torch.nn.utils.rnn, x, lengths, options, back),
        x,
    )


def padded_by_torch(lib, x, lengths, options, back):
    packed = lib.pack_padded_sequence(x, lengths, **options)
    doubled = lib.PackedSequence(
        packed.data * 2, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
    )
    return packed.data, *lib.pad_packed_sequence(doubled, **back)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_pad_sequence_equals_pytorchs(twin, side, batch_first):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 2)) for n in (2, 4, 1)]
    options = {"batch_first": batch_first, "padding_value": 0.5, "padding_side": side}
    twin.function(
        lambda *xs: rnn.pad_sequence(xs, **options),
        lambda *xs: twin.torch.nn.utils.rnn.pad_sequence(list(xs), **options),
        *xs,
    )


def test_sequences_come_back():
    xs = [gh.asarray([1.0, 2.0]), gh.asarray([3.0, 4.0, 5.0]), gh.asarray([6.0])]
    packed = rnn.pack_sequence(xs, enforce_sorted=False)
    assert [x.tolist() for x in rnn.unpack_sequence(packed)] == [x.tolist() for x in xs]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.unsorted_indices.tolist() == [1, 0, 2]
    assert packed.double().data.dtype is gh.float64
    assert rnn.PackedSequence(*packed[:3]).unsorted_indices.tolist() == [1, 0, 2]
    padded = rnn.pad_sequence(xs, batch_first=True)
    cut = rnn.unpad_sequence(padded, [2, 3, 1], batch_first=True)
    assert [x.tolist() for x in cut] == [x.tolist() for x in xs]
