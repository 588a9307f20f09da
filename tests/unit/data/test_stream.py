"""Data sets without an index: their pieces, workers, and going on in the middle."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import CheckpointError, DTypeError, OptionError
from glasshouse.data import (
    ChainDataset,
    DataLoader,
    IterableDataset,
    IterableSource,
    ShuffleStream,
    get_worker_info,
)


class Count(IterableDataset):
    def __init__(self, stop):
        self.stop = stop

    def __iter__(self):
        return iter(range(self.stop))


class OwnPart(IterableDataset):
    """Worker i gives i*100 … i*100 + 3i + 2: parts of unequal length."""

    def __iter__(self):
        info = get_worker_info()
        number = 0 if info is None else info.id
        return iter(range(number * 100, number * 100 + 3 * number + 3))


PIECES = {
    "map": (lambda s: s.map(lambda x: x + 1), range(1, 13)),
    "filter": (lambda s: s.filter(lambda x: x % 3 == 0), range(0, 12, 3)),
    "take": (lambda s: s.take(5), range(5)),
    "skip": (lambda s: s.skip(5), range(5, 12)),
    "span": (lambda s: s.skip(2).take(3), range(2, 5)),
    "shard": (lambda s: s.shard(3, 1), [1, 4, 7, 10]),
    "whole": (lambda s: s.shard(), range(12)),
    "chain": (lambda s: s + Count(2), [*range(12), 0, 1]),
    "prefetch": (lambda s: s.prefetch(3), range(12)),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces(name):
    make, expected = PIECES[name]
    data = make(Count(12))
    assert list(data) == list(data) == list(expected)
    for start in (0, 1, 4, 30):
        assert list(data.read_from(start)) == list(expected)[start:]


def test_batches():
    data = Count(5).batch(2)
    assert [b.tolist() for b in data] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in data.read_from(2)] == [[4]]
    assert len(list(Count(5).batch(2, drop_last=True))) == 2


def test_a_shuffle_buffer_gives_each_sample_once_in_an_order_of_seed_and_epoch():
    data = Count(40).shuffle(8, seed=1)
    first = list(data)
    assert sorted(first) == list(range(40)) and first != list(range(40))
    assert all(x < place + 8 for place, x in enumerate(first))
    assert list(data) == first
    assert list(Count(40).shuffle(8, seed=2)) != first
    data.map(lambda x: x).set_epoch(1)
    assert list(data) != first


def test_a_buffer_as_large_as_all_is_uniform():
    counts = np.zeros((4, 4))
    for seed in range(2000):
        counts[np.arange(4), list(ShuffleStream(range(4), 4, seed))] += 1
    assert abs(counts / 2000 - 0.25).max() < 0.04


def test_skipped_samples_are_not_mapped():
    mapped = []
    data = Count(10).shuffle(4).map(lambda x: mapped.append(x) or x)
    assert len(list(data.read_from(7))) == len(mapped) == 3


def test_seeded_maps_depend_on_the_position():
    data = IterableSource([0.0] * 4).map(lambda x, rng: rng.random(), seed=3)
    assert len(set(data)) == 4
    assert list(data.read_from(2)) == list(data)[2:]


def lists(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_batches_come_from_the_workers_in_turn_as_in_torch(workers, drop_last):
    data = pytest.importorskip("torch.utils.data")
    info = data.get_worker_info

    class Twin(data.IterableDataset):
        def __iter__(self):
            number = 0 if info() is None else info().id
            return iter(range(number * 100, number * 100 + 3 * number + 3))

    options = {"batch_size": 2, "num_workers": workers, "drop_last": drop_last}
    if workers > 2:  # torch warns where there are more workers than cores
        expected = [[0, 1], [100, 101], [200, 201], [2], [102, 103], [202, 203], [104, 105]]
        expected += [[204, 205], [206, 207], [208]]
        expected = [b for b in expected if len(b) == 2 or not drop_last]
    else:
        expected = lists(data.DataLoader(Twin(), **options))
    ours = DataLoader(OwnPart(), **options)
    assert lists(ours) == expected == lists(ours)


def test_parts_of_all_workers_are_all_samples():
    loader = DataLoader(Count(20).shard().shuffle(3), batch_size=3, num_workers=3)
    assert sorted(sum(lists(loader), [])) == list(range(20))


SOURCES = {
    "shuffled": lambda: Count(23).shard().shuffle(5, seed=2).map(lambda x, r: x + r.random(), 1),
    "unequal": OwnPart,
    "plain": lambda: IterableSource(range(23)),
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", SOURCES)
def test_resuming_goes_on_where_the_state_was_taken(name, workers):
    def make(**options):
        return DataLoader(SOURCES[name](), 3, num_workers=workers, **options)

    whole = make()
    first_epoch = lists(whole)
    later = lists(whole)
    for stop in range(0, len(first_epoch), 2):
        first = make()
        running = iter(first)
        list(itertools.islice(running, stop))
        state = first.state_dict()
        running.close()
        resumed = make()
        resumed.load_state_dict(state)
        assert lists(resumed) == first_epoch[stop:]
        assert lists(resumed) == later


class Stateful(IterableDataset):
    """Keeps its place itself, and counts what it has read."""

    def __init__(self):
        self.place, self.read = 0, []

    def __iter__(self):
        while self.place < 10:
            self.place += 1
            yield self.place
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_keeps_its_place_is_asked_for_it(workers):
    loader = DataLoader(Stateful(), 2, num_workers=workers)
    running = iter(loader)
    assert lists(itertools.islice(running, 2)) == [[1, 2], [3, 4]]
    state = loader.state_dict()
    running.close()
    assert state["states"] == [{"place": 4}]
    resumed = DataLoader(Stateful(), 2, num_workers=workers)
    resumed.load_state_dict(state)
    assert lists(resumed) == [[5, 6], [7, 8], [9, 10]]


def test_kept_workers_read_every_epoch():
    loader = DataLoader(Count(8).shard(), 2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert sorted(sum(lists(loader), [])) == list(range(8))
        next(iter(loader))  # left in the middle
    loader.close()


def test_samples_without_batches():
    assert list(DataLoader(Count(3), batch_size=None)) == [0, 1, 2]
    (x,) = DataLoader(IterableSource([np.ones(2)]), batch_size=None, num_workers=1)
    assert isinstance(x, gh.Tensor)


def test_lengths():
    assert len(ChainDataset([[1, 2], [3]])) == 3
    assert len(DataLoader(ChainDataset([[1, 2], [3]]), 2)) == 2
    with pytest.raises(TypeError):
        len(DataLoader(Count(3)))


BAD_CALLS = [
    (lambda: Count(3).shuffle(0), OptionError, "buffer_size"),
    (lambda: Count(3).map(1), DTypeError, "expected a function; got 1"),
    (lambda: Count(3).filter("x"), DTypeError, "expected a function"),
    (lambda: Count(3).batch(0), OptionError, "batch_size"),
    (lambda: Count(3).take(-1), OptionError, "count"),
    (lambda: Count(3).shard(2, 2), OptionError, "an index from 0 to 1; got 2"),
    (lambda: Count(3).shard(2), OptionError, "index"),
    (lambda: Count(3).prefetch(0), OptionError, "depth"),
    (lambda: IterableSource(iter([1])), DTypeError, "iterated over again; got list_iterator"),
    (lambda: ChainDataset([3]), DTypeError, "got int"),
    (lambda: DataLoader(Count(3), shuffle=True), OptionError, "without indices"),
    (lambda: DataLoader(Count(3), num_workers=1, threads=True), OptionError, "Use processes"),
    (
        lambda: DataLoader(Count(3), num_workers=2).load_state_dict(
            DataLoader(Count(3)).state_dict()
        ),
        CheckpointError,
        "a state of 2 readers; got one of 1",
    ),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
