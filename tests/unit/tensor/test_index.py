"""Indexing against NumPy: random keys, reading and writing, gradients, errors."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError


def random_slice(rng, n):
    start, stop = (None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in "ab")
    return slice(start, stop, [None, 1, 2, 3, -1, -2][rng.integers(6)])


def random_key(rng, shape):
    """A key of slices, integers, None, ..., integer arrays and masks that fits `shape`."""
    key, axis, dots = [], 0, False
    together = [(3,), (2, 3), (1,), ()][rng.integers(4)]
    while axis < len(shape) and rng.random() < 0.9:
        n, kind = shape[axis], rng.integers(9)
        if kind == 3 and n:
            key.append(int(rng.integers(-n, n)))
        elif kind == 4:
            key.append(None)
            continue
        elif kind == 5 and not dots:
            key.append(Ellipsis)
            dots = True
            axis += int(rng.integers(0, len(shape) - axis + 1))
            continue
        elif kind == 6 and n:
            key.append(rng.integers(-n, n, together))
        elif kind == 7:
            key.append(rng.random(n) < 0.5)
        elif kind == 8 and axis + 1 < len(shape):
            key.append(rng.random(shape[axis : axis + 2]) < 0.5)
            axis += 1
        else:
            key.append(random_slice(rng, n))
        axis += 1
    return tuple(key)


def cases(seed, count):
    """(array, key, array[key]) for random keys that NumPy accepts."""
    rng = np.random.default_rng(seed)
    while count:
        x = rng.integers(0, 100, rng.integers(0, 5, rng.integers(0, 5))).astype(np.float32)
        key = random_key(rng, x.shape)
        try:
            expected = x[key]
        except IndexError:
            with pytest.raises((IndexError, ValueError)):
                gh.asarray(x)[key]
            continue
        count -= 1
        yield x, key, expected


@pytest.mark.parametrize("seed", range(4))
def test_reading_and_writing_as_numpy_does(seed):
    for x, key, expected in cases(seed, 250):
        got = gh.asarray(x)[key]
        np.testing.assert_array_equal(got.numpy(), expected, err_msg=repr(key))
        written, tensor = x.copy(), gh.asarray(x)
        written[key] = 7
        tensor[key] = 7
        np.testing.assert_array_equal(tensor.numpy(), written, err_msg=repr(key))
        repeats = any(isinstance(k, np.ndarray) and k.dtype != bool for k in key)
        if not repeats:
            values = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
            written[key] = values
            tensor[key] = values
            np.testing.assert_array_equal(tensor.numpy(), written, err_msg=repr(key))


def test_index_tensors_and_lists():
    x = gh.asarray(np.arange(12.0).reshape(3, 4))
    rows, columns = gh.asarray([0, -1]), gh.asarray([1, 2])
    assert x[rows].tolist() == x[[0, 2]].tolist() == x.numpy()[[0, 2]].tolist()
    assert x[rows, columns].tolist() == [1.0, 10.0]
    assert x[gh.asarray(1)].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert x[x > 9].tolist() == [10.0, 11.0]
    x[rows, columns] = gh.asarray([-1.0, -2.0])
    assert x[0, 1].item() == -1.0 and x[2, 2].item() == -2.0


@pytest.mark.parametrize(
    "key",
    [
        (slice(None, None, 2),), (1,), (slice(None), [2, 0, 0]), ([0, 2], [1, 1]),
        (None, slice(2, None, -1)), (..., 0), (np.array([True, False, True]),),
    ],
    ids=repr,
)  # fmt: skip
def test_gradients_of_reading_and_writing(key):
    x = np.random.default_rng(0).normal(size=(3, 4))
    weights = np.random.default_rng(1).normal(size=x[key].shape)

    def read(v):
        return gh.sum(v[key] * weights)

    expected = np.zeros_like(x)
    if any(k is None for k in key):
        expected[key] = weights
    else:
        np.add.at(expected, key, weights)
    np.testing.assert_allclose(gh.grad(read)(gh.asarray(x)).numpy(), expected)

    def write(v, new):
        v = v * 1
        v[key] = new
        return gh.sum(v * v)

    dx, dnew = gh.grad(write, argnums=(0, 1))(gh.asarray(x), gh.asarray(weights))
    left = 2 * x
    left[key] = 0
    np.testing.assert_allclose(dx.numpy(), left)
    stays = [1, 0, 1] if isinstance(key[-1], list) and len(key[-1]) == 3 else 1  # the last write
    np.testing.assert_allclose(dnew.numpy(), 2 * weights * stays)


def test_indexing_under_vmap():
    x = gh.asarray(np.arange(24.0).reshape(2, 3, 4))
    rows = gh.asarray([0, 2])
    assert gh.vmap(lambda v, i: v[i])(x, rows).tolist() == [x[0, 0].tolist(), x[1, 2].tolist()]
    assert gh.vmap(lambda v: v[:, 1:3].sum())(x).tolist() == [39.0 - 6.0, 33.0 + 72.0]


def test_take_put_and_add_along():
    x = np.random.default_rng(0).normal(size=(3, 4))
    order = np.argsort(x, axis=1)[:, :2]
    got = gh.take_along_axis(gh.asarray(x), order, axis=1)
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x, order, 1))
    expected = x.copy()
    np.put_along_axis(expected, order, 9.0, 1)
    got = gh.put_along_axis(gh.asarray(x), order, 9.0, axis=1)
    np.testing.assert_array_equal(got.numpy(), expected)
    counts = gh.add_at(gh.zeros(3), gh.asarray([0, 2, 0]), 1.0)
    assert counts.tolist() == [2.0, 0.0, 1.0]
    assert gh.take(gh.asarray(x), [2, 0], axis=1).tolist() == x[:, [2, 0]].tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side):
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 7, 16):
        x = np.sort(rng.integers(0, 6, n)).astype(np.float32)
        v = np.array([[-1, 0, 3], [5.5, 6, np.nan]], np.float32)
        got = gh.searchsorted(gh.asarray(x), gh.asarray(v), side=side)
        np.testing.assert_array_equal(got.numpy(), np.searchsorted(x, v, side=side))


def test_nonzero():
    x = np.array([[0, 1], [2, 0]])
    for got, expected in zip(gh.nonzero(gh.asarray(x)), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)


X = gh.zeros((3, 4))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: X[3], IndexOutOfRangeError, "from -3 to 2 for axis 0.*got 3"),
        (lambda: X[0, 0, 0], IndexOutOfRangeError, "at most 2 indices.*got 3"),
        (lambda: X[..., ...], IndexOutOfRangeError, "at most one"),
        (lambda: X[[0, 5]], IndexOutOfRangeError, "got 5"),
        (lambda: X[gh.asarray([-4])], IndexOutOfRangeError, "index: .*got -4"),
        (lambda: X[gh.asarray([0]), gh.asarray([4])], IndexOutOfRangeError, "got 4"),
        (lambda: X[1.5], DTypeError, "float 1.5"),
        (lambda: X["a"], DTypeError, "str"),
        (lambda: X[[0.5]], DTypeError, "float64"),
        (lambda: X[0.5:], DTypeError, "slice"),
        (lambda: X[np.array([True, False])], ShapeError, "size 3 on axis 0; got 2"),
        (lambda: X.__setitem__(0, gh.zeros(5)), ShapeError, r"\(5,\)"),
        (lambda: X.__setitem__(0, 1j), DTypeError, "complex64"),
        (lambda: gh.take(X, 0), ShapeError, "axis"),
        (lambda: gh.take(X, [0.5], axis=0), DTypeError, "integer"),
        (lambda: gh.take(X, [7], axis=0), IndexOutOfRangeError, "got 7"),
        (lambda: gh.take_along_axis(X, [0]), ShapeError, "as many axes"),
        (lambda: gh.take_along_axis(X, [[4]], axis=1), IndexOutOfRangeError, "got 4"),
        (lambda: gh.searchsorted(X, [1.0]), ShapeError, "one axis"),
        (lambda: gh.searchsorted(X[0], [1.0], side="top"), OptionError, "top"),
        (lambda: gh.nonzero(gh.asarray(1.0)), ShapeError, "0-d"),
    ],
)
def test_wrong_indices(call, error, text):
    with pytest.raises(error, match=text):
        call()
    assert (X == 0).all()
