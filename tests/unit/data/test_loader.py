"""Prefetching threads and the DataLoader: order, errors, early stops, resuming."""

import threading
import time
import traceback

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import CheckpointError, DTypeError, OptionError
from glasshouse.data import DataLoader, IterableSource, ListDataset, TensorDataset


def our_threads():
    return [t for t in threading.enumerate() if t.name.startswith("glasshouse-data")]


def slow_for_some(x):
    time.sleep(0.002 * (x % 3))
    return x


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_prefetch_keeps_the_order(workers):
    data = ListDataset(range(20)).map(slow_for_some).prefetch(workers)
    assert list(data) == list(range(20))
    assert our_threads() == []


def test_prefetch_reads_at_most_depth_ahead():
    read = []
    data = ListDataset(range(20)).map(lambda x: read.append(x) or x).prefetch(1, depth=3)
    samples = iter(data)
    next(samples)
    time.sleep(0.05)
    assert len(read) == 4  # one given out, three waiting
    samples.close()


def fails_at_five(x):
    if x == 5:
        raise KeyError("sample five is broken")
    return x


@pytest.mark.parametrize("workers", [0, 2])
def test_a_workers_error_comes_at_its_place_with_its_traceback(workers):
    data = ListDataset(range(20)).map(fails_at_five).prefetch(workers)
    log = []
    with pytest.raises(KeyError, match="sample five") as caught:
        log.extend(data)
    assert log == [0, 1, 2, 3, 4]
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "fails_at_five" in frames
    assert our_threads() == []


def stops_at_five(x):
    if x == 5:
        raise StopIteration
    return x


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "threads": True}])
def test_a_stop_iteration_of_a_data_set_does_not_end_the_epoch(options):
    loader = DataLoader(ListDataset(range(20)).map(stops_at_five), 4, **options)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


def test_a_stream_without_a_length():
    with pytest.raises(DTypeError, match="a length; got .*IterableSource"):
        len(DataLoader(IterableSource([1]), 1))
    assert [b.tolist() for b in DataLoader(IterableSource([1]), 1)] == [[1]]


def test_stopping_early_ends_the_threads():
    data = ListDataset(range(1000)).map(slow_for_some).prefetch(3)
    for x in data:
        if x == 4:
            break
    assert our_threads() == []
    samples = iter(data)
    next(samples)
    assert our_threads() != []
    del samples
    assert our_threads() == []


def batches_of(loader):
    return [batch.tolist() for batch in loader]


def make(workers=0, seed=5, **options):
    options = {"batch_size": 3, "shuffle": True, **options}
    return DataLoader(range(10), num_workers=workers, seed=seed, **options)


def test_loader_gives_tensors():
    loader = DataLoader(TensorDataset(np.eye(4, dtype=np.float32), [0, 1, 2, 3]), batch_size=2)
    x, y = next(iter(loader))
    assert isinstance(x, gh.Tensor)
    assert (x.shape, x.dtype, y.dtype) == ((2, 4), gh.float32, gh.int64)


@pytest.mark.parametrize("drop_last", [True, False])
def test_loader_covers_each_epoch_once(drop_last):
    loader = make(drop_last=drop_last)
    assert len(loader) == (3 if drop_last else 4)
    epochs = [batches_of(loader) for _ in range(3)]
    for epoch in epochs:
        assert len(epoch) == len(loader)
        assert len(set(sum(epoch, []))) == (9 if drop_last else 10)
    assert epochs[0] != epochs[1] != epochs[2]


def test_batches_do_not_depend_on_the_number_of_workers():
    loaders = [make(workers) for workers in (0, 1, 3)]
    runs = [[batches_of(loader) for _ in range(2)] for loader in loaders]
    assert runs[0] == runs[1] == runs[2]
    assert batches_of(make(seed=6)) != runs[0][0]


def test_seeded_augmentation_does_not_depend_on_workers():
    runs = []
    for workers in (0, 3):
        data = ListDataset(range(10)).map(lambda x, rng: x + rng.random(), seed=2)
        loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
        runs.append([batches_of(loader) for _ in range(2)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_resuming_goes_on_where_the_state_was_taken(workers, stop):
    whole = make(workers)
    batches_of(whole)
    rest = batches_of(whole)[stop:] + batches_of(whole)
    first = make(workers)
    batches_of(first)
    running = iter(first)
    for _ in range(stop):
        next(running)
    state = first.state_dict()
    running.close()
    resumed = make(workers, seed=99)
    resumed.load_state_dict(state)
    assert batches_of(resumed) + batches_of(resumed) == rest


def test_breaking_off_starts_the_next_epoch():
    loader = make()
    next(iter(loader))
    second = batches_of(loader)
    other = make()
    other.set_epoch(1)
    assert batches_of(other) == second


def test_two_loops_at_once_keep_their_orders():
    loader = make()
    pairs = list(zip(loader, loader, strict=True))
    alone = make()
    assert [a.tolist() for a, _ in pairs] == batches_of(alone)
    assert [b.tolist() for _, b in pairs] == batches_of(alone)


def test_collate_fn():
    assert list(DataLoader(list("abcd"), batch_size=2, collate_fn="".join)) == ["ab", "cd"]


def test_bad_calls():
    with pytest.raises(DTypeError, match="length and an index; got generator"):
        DataLoader(x for x in range(3))
    with pytest.raises(OptionError, match="batch_size"):
        DataLoader([1], batch_size=0)
    with pytest.raises(OptionError, match="num_workers"):
        DataLoader([1], num_workers=-1)
    with pytest.raises(OptionError, match="seed"):
        DataLoader([1], seed=1.5)


@pytest.mark.parametrize("state", [{}, 3, {"seed": 0, "epoch": 0, "position": 5}])
def test_a_state_that_does_not_fit_changes_nothing(state):
    loader = make()
    before = loader.state_dict()
    with pytest.raises(CheckpointError, match="DataLoader"):
        loader.load_state_dict(state)
    assert loader.state_dict() == before
