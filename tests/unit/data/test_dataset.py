"""Data sets and their compositions: contents, order, batches, bad calls."""

from collections import namedtuple

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.data import (
    ConcatDataset,
    Dataset,
    ListDataset,
    MergeDataset,
    ResampleDataset,
    TensorDataset,
    collate,
)
from glasshouse.data.order import random_order

LETTERS = ListDataset(list("abcdefg"))


def test_tensor_dataset_reads_arrays_and_tensors_by_first_axis():
    images = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    data = TensorDataset(images, gh.asarray([5, 6, 7]))
    assert len(data) == 3
    image, label = data[-1]
    np.testing.assert_array_equal(image, images[2])
    assert label == 7
    assert TensorDataset([1, 2, 3])[0] == 1


def test_pieces_compose():
    data = LETTERS.map(str.upper).skip(1).take(4).concat(LETTERS.span(0, 1)).resample([4, 0, 0])
    assert list(data) == ["a", "B", "B"]
    assert data[-1] == "B"


def test_take_and_skip_stop_at_the_end():
    assert len(LETTERS.take(100)) == 7
    assert len(LETTERS.skip(100)) == 0


def test_concat_finds_every_part():
    data = ConcatDataset([1, 2], [], [3], [4, 5])
    assert list(data) == [1, 2, 3, 4, 5]
    assert [data[i] for i in range(-5, 0)] == [1, 2, 3, 4, 5]
    assert len(ConcatDataset()) == 0


def test_merge_joins_fields():
    data = MergeDataset(TensorDataset([1, 2], [3, 4]), ["x", "y"])
    assert data[1] == (2, 4, "y")
    assert LETTERS.merge(LETTERS)[0] == ("a", "a")


def test_shuffle_is_a_permutation_that_depends_on_seed_and_epoch():
    data = ListDataset(range(50)).shuffle(seed=3)
    first = list(data)
    assert sorted(first) == list(range(50))
    assert first != list(range(50))
    assert list(ListDataset(range(50)).shuffle(seed=3)) == first
    assert list(ListDataset(range(50)).shuffle(seed=4)) != first
    data.set_epoch(1)
    second = list(data)
    assert sorted(second) == list(range(50))
    assert second != first
    data.set_epoch(0)
    assert list(data) == first


def test_set_epoch_reaches_through_all_pieces():
    data = ListDataset(range(20)).shuffle(seed=0).map(lambda x: x).batch(4).take(2).prefetch(0)
    before = [b.tolist() for b in data]
    data.set_epoch(1)
    assert [b.tolist() for b in data] != before


def test_orders_are_fixed_for_all_time():
    assert random_order(8, 0, 0).tolist() == [3, 7, 2, 6, 1, 5, 4, 0]
    assert random_order(8, 0, 1).tolist() == [7, 0, 1, 3, 2, 4, 6, 5]


def test_orders_of_different_paths_differ():
    orders = {tuple(random_order(20, *path)) for path in [(0,), (0, 0), (1,), (2**32, 0), (0, 1)]}
    assert len(orders) == 5


def test_random_order_is_uniform():
    counts = np.zeros((5, 5))
    for seed in range(2000):
        counts[np.arange(5), random_order(5, seed)] += 1
    assert abs(counts / 2000 - 0.2).max() < 0.04


def test_seeded_map_depends_on_index_and_epoch_only():
    data = ListDataset([0.0] * 6).map(lambda x, rng: x + rng.random(), seed=1)
    values = list(data)
    assert len(set(values)) == 6
    assert [data[i] for i in reversed(range(6))] == values[::-1]
    data.set_epoch(1)
    assert set(data).isdisjoint(values)


def test_batches_are_tensors_of_the_sample_structure():
    samples = [
        {"x": np.ones((2,), np.float32) * i, "y": (i, float(i)), "s": str(i)} for i in range(5)
    ]
    batches = list(ListDataset(samples).batch(2))
    assert [b["s"] for b in batches] == [["0", "1"], ["2", "3"], ["4"]]
    assert isinstance(batches[0]["x"], gh.Tensor)
    assert batches[1]["x"].tolist() == [[2, 2], [3, 3]]
    integers, floats = batches[1]["y"]
    assert integers.dtype == gh.int64
    assert floats.dtype == gh.float32
    assert len(ListDataset(samples).batch(2, drop_last=True)) == 2


def test_collate_keeps_dtypes_and_named_tuples():
    Point = namedtuple("Point", "a b")
    batch = collate([Point(np.float64(1), np.uint8(2)), Point(np.float64(3), np.uint8(4))])
    assert isinstance(batch, Point)
    assert (batch.a.dtype, batch.b.dtype) == (gh.float64, gh.uint8)
    assert collate([True, False]).dtype == gh.bool
    assert collate([gh.ones((2,)), gh.zeros((2,))]).tolist() == [[1, 1], [0, 0]]
    assert collate([None, None]) is None
    assert collate([np.zeros((0, 3))] * 2).shape == (2, 0, 3)


def test_custom_collate():
    assert LETTERS.batch(3, collate="".join)[0] == "abc"


def test_user_defined_data_set_composes():
    class Squares(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index**2

    assert [b.tolist() for b in Squares().shuffle(0).batch(4)] == [
        [i**2 for i in random_order(4, 0, 0)]
    ]


def test_repr_shows_the_composition():
    text = repr(TensorDataset(np.zeros((4, 2)), [1, 2, 3, 4]).shuffle(seed=7).batch(2))
    assert text == (
        "BatchDataset(ShuffleDataset(TensorDataset(float64[4, 2], int64[4]), seed=7), "
        "batch_size=2, drop_last=False)"
    )


BAD_CALLS = [
    (lambda: TensorDataset(), ShapeError, "got shapes none"),
    (lambda: TensorDataset([1, 2], [1, 2, 3]), ShapeError, r"\(2,\), \(3,\)"),
    (lambda: TensorDataset(3.0), ShapeError, r"\(\)"),
    (lambda: TensorDataset(["a"]), DTypeError, "arrays of numbers"),
    (lambda: ListDataset(iter([1])), DTypeError, "list_iterator"),
    (lambda: LETTERS[7], IndexOutOfRangeError, "from -7 to 6; got 7"),
    (lambda: LETTERS[-8], IndexOutOfRangeError, "got -8"),
    (lambda: LETTERS[1.5], DTypeError, "integer index"),
    (lambda: LETTERS.batch(2)[4], IndexOutOfRangeError, "batch"),
    (lambda: LETTERS[1:3], DTypeError, "span"),
    (lambda: LETTERS.batch(0), OptionError, "batch_size to be an integer >= 1; got 0"),
    (lambda: LETTERS.batch(2.0), OptionError, "got 2.0"),
    (lambda: LETTERS.batch(True), OptionError, "got True"),
    (lambda: LETTERS.batch(2, collate=3), DTypeError, "collate to be a function"),
    (lambda: LETTERS.map(3), DTypeError, "expected a function; got 3"),
    (lambda: LETTERS.shuffle(-1), OptionError, "seed"),
    (lambda: LETTERS.shuffle("x"), OptionError, "got 'x'"),
    (lambda: LETTERS.shuffle().set_epoch(-1), OptionError, "epoch"),
    (lambda: LETTERS.take(-1), OptionError, "count"),
    (lambda: LETTERS.span(3, 9), IndexOutOfRangeError, "start=3, stop=9"),
    (lambda: LETTERS.span(5, 3), IndexOutOfRangeError, "start=5, stop=3"),
    (lambda: LETTERS.resample([0, 7]), IndexOutOfRangeError, "got 7"),
    (lambda: LETTERS.resample([0.5]), DTypeError, "list of integers"),
    (lambda: LETTERS.resample([True, False]), DTypeError, "nonzero"),
    (lambda: LETTERS.prefetch(-1), OptionError, "workers"),
    (lambda: LETTERS.prefetch(1, 0), OptionError, "depth"),
    (lambda: LETTERS.merge([1]), ShapeError, r"lengths \[7, 1\]"),
    (lambda: MergeDataset(), ShapeError, "merge"),
    (lambda: collate([]), ShapeError, "at least one sample"),
    (lambda: collate([np.ones(2), np.ones(3)]), ShapeError, r"\(2,\) at 0 and \(3,\) at 1"),
    (lambda: collate([(1, 2), (1,)]), ShapeError, "one structure"),
    (lambda: collate([{"a": 1}, {"b": 1}]), ShapeError, "one structure"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()


def test_empty_resample_is_allowed():
    assert list(ResampleDataset(LETTERS, [])) == []
