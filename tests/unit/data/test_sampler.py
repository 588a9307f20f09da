"""Samplers against torch's where orders are fixed, and against their definitions where random."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.data import (
    BatchSampler,
    BucketBatchSampler,
    DataLoader,
    DistributedSampler,
    ListDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    TransformDataset,
    WeightedRandomSampler,
    random_split,
)

pytestmark = pytest.mark.quick

LETTERS = "abcdefghij"


def epochs(sampler, count=2):
    orders = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
        assert list(sampler) == orders[-1]
        assert len(orders[-1]) == len(sampler)
    return orders


RANDOM = {
    "all": lambda seed: RandomSampler(LETTERS, seed=seed),
    "fewer": lambda seed: RandomSampler(LETTERS, num_samples=6, seed=seed),
    "more": lambda seed: RandomSampler(LETTERS, num_samples=25, seed=seed),
    "replaced": lambda seed: RandomSampler(LETTERS, True, 20, seed=seed),
    "subset": lambda seed: SubsetRandomSampler([9, 3, 5, 1, 7, 8], seed=seed),
    "weighted": lambda seed: WeightedRandomSampler(np.arange(10), 12, seed=seed),
    "weighted-once": lambda seed: WeightedRandomSampler(np.arange(10), 7, False, seed=seed),
    "distributed": lambda seed: DistributedSampler(LETTERS, 2, 1, seed=seed),
    "bucketed": lambda seed: BucketBatchSampler(np.arange(40) % 7, 4, window=2, seed=seed),
}


@pytest.mark.parametrize("name", RANDOM)
def test_orders_depend_on_seed_and_epoch(name):
    first, second = epochs(RANDOM[name](1))
    assert first != second
    assert epochs(RANDOM[name](1)) == [first, second] != epochs(RANDOM[name](2))


def test_what_random_orders_hold():
    def order(name):
        return list(RANDOM[name](0))

    assert sorted(order("all")) == list(range(10))
    assert len(set(order("fewer"))) == 6
    assert sorted(order("more")[:20]) == sorted([*range(10)] * 2)
    assert sorted(order("subset")) == [1, 3, 5, 7, 8, 9]
    assert 0 not in order("weighted") and 0 not in order("weighted-once")
    assert len(set(order("weighted-once"))) == 7


@pytest.mark.parametrize("replacement", [True, False])
def test_weights_are_shares(replacement):
    weights = np.array([1.0, 2.0, 5.0])
    counts = np.zeros(3)
    for seed in range(500 if not replacement else 1):
        draws = WeightedRandomSampler(
            weights, 1 if not replacement else 20_000, replacement, seed=seed
        )
        counts += np.bincount(list(draws), minlength=3)
    assert abs(counts / counts.sum() - weights / 8).max() < 0.07


def test_a_generator_gives_another_order_each_time():
    sampler = RandomSampler(LETTERS, generator=gh.random.Generator(3))
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler = RandomSampler(LETTERS, generator=gh.random.Generator(3))
    assert [list(sampler), list(sampler)] == [first, second]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 10])
def test_fixed_orders_are_torchs(count, drop_last):
    torch = pytest.importorskip("torch.utils.data")
    data = list(range(count))
    for replicas in (1, 3, 4):
        options = {"num_replicas": replicas, "shuffle": False, "drop_last": drop_last}
        for rank in range(replicas):
            theirs = torch.DistributedSampler(data, rank=rank, **options)
            ours = DistributedSampler(data, rank=rank, **options)
            assert list(ours) == list(theirs) and len(ours) == len(theirs)
    for size in (1, 3):
        ours = BatchSampler(SequentialSampler(data), size, drop_last)
        theirs = torch.BatchSampler(torch.SequentialSampler(data), size, drop_last)
        assert list(ours) == list(theirs) and len(ours) == len(theirs)


def test_replicas_share_the_epoch():
    parts = [epochs(DistributedSampler(range(11), 3, rank, drop_last=False)) for rank in range(3)]
    for epoch in range(2):
        assert set(sum((part[epoch] for part in parts), [])) == set(range(11))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_the_same_sampler_gives_torchs_batches(kind, workers):
    torch = pytest.importorskip("torch")
    x = np.arange(36, dtype=np.float32).reshape(12, 3)
    order = torch.utils.data.RandomSampler(range(12), generator=torch.Generator().manual_seed(3))
    order = list(order)
    options = {"batch_sampler": [order[:5], order[5:6], order[6:]]}
    if kind == "sampler":
        options = {"sampler": order, "batch_size": 5}
    y = np.arange(12)
    theirs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    theirs = torch.utils.data.DataLoader(theirs, num_workers=workers, **options)
    ours = DataLoader(TensorDataset(x, y), num_workers=workers, **options)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for a, b in zip(mine, other, strict=True):
            assert a.dtype.name == str(b.dtype).removeprefix("torch.")
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_our_samplers_serve_torchs_loader():
    data = pytest.importorskip("torch.utils.data")
    sampler = BatchSampler(RandomSampler(LETTERS, seed=4), 4, False)
    theirs = data.DataLoader(LETTERS, batch_sampler=sampler)
    assert [len(batch) for batch in theirs] == [4, 4, 2]


def test_bucketed_batches_are_of_like_length_and_hold_each_sample_once():
    lengths = np.random.default_rng(0).integers(1, 100, 200)
    sampler = BucketBatchSampler(lengths, max_tokens=300, batch_size=16, window=100)
    batches = list(sampler)
    assert sorted(sum(batches, [])) == list(range(200))
    assert all(len(b) * lengths[b].max() <= 300 for b in batches)
    padded = sum(len(b) * lengths[b].max() for b in batches)
    assert padded < 1.2 * lengths.sum()
    assert len(list(BucketBatchSampler([3, 1, 2], 2, drop_last=True))) == 1


class Doubled(TensorDataset):
    def __getitem__(self, index):
        return super().__getitem__(index) * 2


class Backwards(RandomSampler):
    def __iter__(self):
        return reversed(range(len(self.data_source)))


class Torchlike:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise AssertionError("read at once")

    def __getitems__(self, indices):
        return [index * 10 for index in indices]


def lists(batches):
    return [batch.tolist() for batch in batches]


def test_what_a_subclass_overrides_is_used():
    assert lists(DataLoader(Doubled([1, 2, 3]), 2)) == [[2, 4], [6]]
    assert lists(DataLoader(Subset(Doubled([1, 2, 3]), [2]), 1)) == [[6]]
    assert lists(DataLoader([1, 2, 3], 2, sampler=Backwards("abc"))) == [[3, 2], [1]]
    assert lists(DataLoader(Torchlike(), 3)) == [[0, 10, 20], [30]]


def test_whole_batches_are_those_of_samples():
    x, y = np.arange(24.0).reshape(8, 3), np.arange(8, dtype=np.uint8)
    data = StackDataset(x=TensorDataset(x, y), y=TensorDataset(y)).shuffle(2).skip(1)
    whole = list(data.batch(3))
    single = list(data.map(lambda sample: sample).batch(3))
    for a, b in zip(whole, single, strict=True):
        assert a["x"][0].tolist() == b["x"][0].tolist() and a["x"][1].dtype == b["x"][1].dtype
        assert (a["y"].tolist(), a["y"].dtype) == (b["y"].tolist(), b["y"].dtype)


def test_negative_indices_count_from_the_end():
    assert lists(DataLoader(TensorDataset([5, 6, 7]), 3, sampler=[-1, 0, -3])) == [[7, 5, 5]]


def test_split_is_torchs_for_fixed_lengths():
    data = pytest.importorskip("torch.utils.data")
    for lengths in ([3, 7], [0.5, 0.25, 0.25], [0.33, 0.33, 0.34], [10], [10, 0]):
        ours = random_split(LETTERS, lengths, seed=1)
        theirs = data.random_split(LETTERS, lengths)
        assert [len(part) for part in ours] == [len(part) for part in theirs]
        assert sorted("".join("".join(part) for part in ours)) == list(LETTERS)
    assert list(random_split(LETTERS, [5, 5], gh.random.Generator(1))[0]) == list(
        random_split(LETTERS, [5, 5], gh.random.Generator(1))[0]
    )


def test_fields_are_transformed_by_position_or_name():
    assert TransformDataset([(1, 2)], None, str)[0] == (1, "2")
    assert TransformDataset([3], str)[0] == "3"
    data = ListDataset([{"a": 1, "b": 2}]).transform(b=lambda x, rng: x + rng.random(), seed=1)
    assert data[0]["a"] == 1 and 2 <= data[0]["b"] < 3
    assert data[0] == data[0]


def test_batches_of_listed_sizes_and_indices_of_a_function():
    assert lists(TensorDataset([1, 2, 3, 4]).batch([1, 3])) == [[1], [2, 3, 4]]
    assert list(ListDataset(LETTERS).resample(lambda i: 2 * i, 3)) == ["a", "c", "e"]


class NoOrder(Sampler):
    pass


BAD_CALLS = [
    (lambda: RandomSampler(3), DTypeError, "with a length; got int"),
    (lambda: RandomSampler(LETTERS, 3), DTypeError, "replacement True or False; got 3"),
    (lambda: RandomSampler(LETTERS, num_samples=0), OptionError, "num_samples"),
    (lambda: RandomSampler(LETTERS, generator=3), DTypeError, "Generator; got int"),
    (lambda: WeightedRandomSampler([[1.0]], 1), ShapeError, r"\(1, 1\)"),
    (lambda: WeightedRandomSampler([1.0, -1.0], 1), OptionError, "-1"),
    (lambda: WeightedRandomSampler([0.0], 1), OptionError, "not all 0"),
    (lambda: WeightedRandomSampler([1.0, 0.0], 2, False), OptionError, "at most 1"),
    (lambda: DistributedSampler(LETTERS), OptionError, "num_replicas"),
    (lambda: DistributedSampler(LETTERS, 2, 2), OptionError, "rank from 0 to 1; got 2"),
    (lambda: BatchSampler(3, 2, False), DTypeError, "a sampler to iterate over; got int"),
    (lambda: BatchSampler([1], 0, False), OptionError, "batch_size"),
    (lambda: BatchSampler([1], 1, 1), DTypeError, "drop_last"),
    (lambda: BucketBatchSampler([1, 2]), OptionError, "batch_size or max_tokens; got neither"),
    (lambda: BucketBatchSampler([1, 9], max_tokens=8), OptionError, "at least 9; got 8"),
    (lambda: BucketBatchSampler([0.5], 2), DTypeError, "integer lengths"),
    (lambda: random_split(LETTERS, [3, 3]), OptionError, "sum to 10.*sum to 6"),
    (lambda: random_split(LETTERS, [1.5, -0.5]), OptionError, "each length .*-0.5"),
    (lambda: StackDataset([1], a=[1]), OptionError, "by position or by name; got both"),
    (lambda: StackDataset([1], [1, 2]), ShapeError, "lengths"),
    (lambda: Subset(LETTERS, [10]), IndexError, "got 10"),
    (
        lambda: DataLoader(TensorDataset([1]), sampler=[0.5]).__iter__().__next__(),
        DTypeError,
        "float",
    ),
    (
        lambda: DataLoader(TensorDataset([1]), sampler=[3]).__iter__().__next__(),
        IndexError,
        "got 3",
    ),
    (lambda: TensorDataset([1, 2]).batch([1]), ShapeError, "sum to 2"),
    (lambda: DataLoader([1], sampler=3), DTypeError, "a sampler to iterate over; got int"),
    (lambda: DataLoader([1], collate_fn=3), DTypeError, "collate_fn to be a function"),
    (lambda: list(NoOrder()), NotImplementedError, "NoOrder"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
