"""Whose memory the tensors of a batch lie in: the loader's, without a further copy."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.data import (
    DataLoader,
    Dataset,
    ImageCollate,
    ListDataset,
    PadCollate,
    TensorDataset,
    collate,
    shared,
)
from glasshouse.data.collate import BatchArrays


@pytest.fixture
def stacked(monkeypatch):
    """The arrays that batches were stacked into."""
    arrays, empty = [], BatchArrays.empty

    def noting(self, shape, dtype):
        arrays.append(empty(self, shape, dtype))
        return arrays[-1]

    monkeypatch.setattr(BatchArrays, "empty", noting)
    return arrays


IMAGES = np.zeros((6, 4, 5, 3), np.uint8)
LOADERS = {
    "arrays": lambda: DataLoader(TensorDataset(np.ones((6, 2)), np.arange(6)), 3),
    "samples": lambda: DataLoader(ListDataset(list(np.ones((6, 2)))), 3),
    "threads": lambda: DataLoader(list(np.ones((6, 2))), 3, num_workers=2, threads=True),
    "padding": lambda: DataLoader([np.ones(1), np.ones(2)], 2, collate_fn=PadCollate()),
    "images": lambda: DataLoader(list(IMAGES), 3, collate_fn=ImageCollate()),
    "batch": lambda: TensorDataset(np.ones((6, 2))).batch(3),
    "collate": lambda: [collate([np.ones(2), np.ones(2)])],
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=list(LOADERS))
def test_tensors_lie_where_the_batch_was_stacked(make, stacked):
    for batch in make():
        for x in batch if isinstance(batch, tuple) else (batch,):
            assert any(np.shares_memory(x.numpy(), array) for array in stacked)


def test_tensors_of_workers_lie_in_the_memory_that_processes_share(monkeypatch):
    results, array_at = [], shared.array_at

    def noting(lease, place, copy):
        out = array_at(lease, place, copy)
        results.append((lease, copy, out))
        return out

    monkeypatch.setattr(shared, "array_at", noting)
    batches = list(DataLoader(TensorDataset(np.ones((6, 2)), np.arange(6)), 3, num_workers=1))
    uncopied = [(lease, x) for lease, copy, x in results if not copy]
    assert len(results) == 2 * len(batches) and uncopied
    assert all(np.shares_memory(x.numpy(), lease) for lease, x in uncopied)


class Reused(Dataset):
    """Every sample is in one buffer, and every batch too."""

    def __init__(self):
        self.sample, self.batch = np.empty(2), np.empty((2, 2))

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.sample[:] = index
        return self.sample


class ReusedBatches(Reused):
    def __getitem__(self, index):
        return super().__getitem__(index).copy()

    def read_batch(self, indices, empty=np.empty):
        self.batch[:] = np.asarray(indices)[:, None]
        return self.batch


def test_arrays_of_a_data_set_are_copied():
    rows = [[float(i)] * 2 for i in range(4)]
    assert [x.tolist() for x in list(DataLoader(Reused(), batch_size=None))] == rows
    assert [x.tolist() for x in list(DataLoader(ReusedBatches(), 2))] == [rows[:2], rows[2:]]
    doubled = [x * 2 for x in DataLoader(Reused(), batch_size=None)]
    assert [x.tolist() for x in doubled] == (np.array(rows) * 2).tolist()


def test_arrays_of_another_byte_order_become_tensors():
    (x,) = DataLoader([np.ones(2, ">f4")] * 2, 2)
    assert x.dtype is gh.float32 and x.tolist() == [[1.0, 1.0]] * 2
