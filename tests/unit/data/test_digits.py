"""The digits data set and its split."""

import sys

import numpy as np
import pytest

from glasshouse.base.errors import BackendError, OptionError
from glasshouse.data import digits

sklearn_datasets = pytest.importorskip("sklearn.datasets")


def test_shapes_dtypes_and_sizes():
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1437, 360)
    images, labels = train.arrays
    assert (images.shape, images.dtype) == ((1437, 1, 8, 8), np.float32)
    assert (labels.shape, labels.dtype) == ((1437,), np.int64)
    assert (images.min(), images.max()) == (0.0, 1.0)


def test_the_two_parts_make_up_the_whole():
    parts = [part.arrays for part in (digits("train"), digits("test"))]
    rows = np.concatenate([np.c_[x.reshape(-1, 64) * 16, y] for x, y in parts])
    images, labels = sklearn_datasets.load_digits(return_X_y=True)
    whole = np.c_[images, labels]
    order = lambda a: a[np.lexsort(a.T)]  # noqa: E731
    np.testing.assert_array_equal(order(rows), order(whole))


def test_the_split_is_stratified():
    _, train = digits("train").arrays
    _, test = digits("test").arrays
    share = np.bincount(test) / (np.bincount(train) + np.bincount(test))
    assert abs(share - 360 / 1797).max() < 0.004


def test_the_split_is_fixed_and_depends_on_the_seed():
    labels = digits("test").arrays[1]
    assert labels[:12].tolist() == [1, 5, 1, 2, 3, 0, 5, 5, 3, 7, 8, 0]
    np.testing.assert_array_equal(labels, digits("test").arrays[1])
    other = digits("test", seed=1).arrays[0]
    assert not np.array_equal(digits("test").arrays[0], other)


def test_bad_calls():
    with pytest.raises(OptionError, match="Did you mean 'train'"):
        digits("trian")
    with pytest.raises(OptionError, match="seed"):
        digits("train", seed=-1)


def test_missing_scikit_learn_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(BackendError, match=r"pip install 'glasshouse\[vision\]'"):
        digits()
