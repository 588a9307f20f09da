"""Indexing against NumPy: random keys, reading and writing, gradients, errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glasshouse as gh
from glasshouse.base.errors import (
    DTypeError,
    IndexOutOfRangeError,
    OptionError,
    ShapeError,
    TransformError,
)


@st.composite
def slices(draw, n):
    bound = st.none() | st.integers(-n - 2, n + 2)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


def arrays(draw, shape, elements, dtype):
    size = math.prod(shape)
    samples = draw(st.lists(elements, min_size=size, max_size=size))
    return np.array(samples, dtype).reshape(shape)


@st.composite
def arrays_and_keys(draw):
    """An array, and a key of slices, integers, None, ..., index arrays and masks that fits it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    together = draw(st.sampled_from([(3,), (2, 3), (1,), ()]))  # index arrays broadcast
    key, axis = [], 0
    while axis < len(shape) and draw(st.integers(0, 9)):
        n = shape[axis]
        kind = draw(st.sampled_from(["slice", "integer", "new", "rest", "array", "mask", "mask2"]))
        if kind == "new":
            key.append(None)
            continue
        if kind == "rest" and not any(k is ... for k in key):
            key.append(...)
            axis += draw(st.integers(0, len(shape) - axis))
            continue
        if kind == "integer" and n:
            key.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and n:
            key.append(arrays(draw, together, st.integers(-n, n - 1), np.int64))
        elif kind == "mask":
            key.append(arrays(draw, (n,), st.booleans(), bool))
        elif kind == "mask2" and axis + 1 < len(shape):
            key.append(arrays(draw, shape[axis : axis + 2], st.booleans(), bool))
            axis += 1
        else:
            key.append(draw(slices(n)))
        axis += 1
    return np.arange(float(math.prod(shape)), dtype=np.float32).reshape(shape), tuple(key)


def has_repeats(key) -> bool:
    return any(isinstance(k, np.ndarray) and k.dtype != bool for k in key)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(arrays_and_keys())
def test_reading_and_writing_as_numpy_does(pair):
    x, key = pair
    try:
        expected = x[key]
    except IndexError:
        with pytest.raises((IndexError, ValueError)):
            gh.asarray(x)[key]
        return
    try:
        got = gh.asarray(x)[key]
    except IndexError:  # NumPy lets an empty result excuse a mask of a wrong size
        assert not expected.size
        return
    np.testing.assert_array_equal(got.numpy(), expected)
    new = -1 - np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    for value in (7,) if has_repeats(key) else (7, new):
        written, tensor = x.copy(), gh.asarray(x)
        written[key] = value
        tensor[key] = value
        np.testing.assert_array_equal(tensor.numpy(), written)
    if not any(k is None for k in key):
        written = x.copy()
        np.add.at(written, key, new)
        np.testing.assert_array_equal(gh.add_at(gh.asarray(x), key, new).numpy(), written)


def test_index_tensors_and_lists():
    x = gh.asarray(np.arange(12.0).reshape(3, 4))
    rows, columns = gh.asarray([0, -1]), gh.asarray([1, 2])
    assert x[rows].tolist() == x[[0, 2]].tolist() == x.numpy()[[0, 2]].tolist()
    assert x[rows, columns].tolist() == [1.0, 10.0]
    assert x[gh.asarray(1)].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert x[x > 9].tolist() == [10.0, 11.0]
    assert x[range(2)].shape == x[(0, 1),].shape == (2, 4)
    x[rows, columns] = gh.asarray([-1.0, -2.0])
    assert x[0, 1].item() == -1.0 and x[2, 2].item() == -2.0


@pytest.mark.parametrize(
    "key",
    [
        (slice(None, None, 2),),
        (1,),
        (slice(None), [2, 0, 0]),
        ([0, 2], [1, 1]),
        (None, slice(2, None, -1)),
        (..., 0),
        (np.array([True, False, True]),),
    ],
    ids=repr,
)
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
    both = gh.vmap(lambda v, i: v[[i, i * 0]])(x, rows)
    assert both.tolist() == [x[0, [0, 0]].tolist(), x[1, [2, 0]].tolist()]
    with pytest.raises(IndexOutOfRangeError, match="axis 0 of size 3; got 5"):
        gh.vmap(lambda v, i: v[i])(x, rows + 5)
    with pytest.raises(TransformError, match="a mask as index"):
        gh.vmap(lambda v: v[v > 2])(x)


def test_a_number_is_written_through_a_mask_that_nobody_reads():
    def positive(v):
        v = v * 1
        v[v < 0] = 0.0
        return v

    x = gh.asarray([[-1.0, 2.0], [3.0, -4.0]])
    assert gh.vmap(positive)(x).tolist() == [[0.0, 2.0], [3.0, 0.0]]


def test_writing_a_run_copies_once_and_makes_no_indices():
    names = []

    class Names(gh.Mode):
        def process(self, primitive, args, attrs, below):
            names.append(primitive.name)
            return below(primitive, args, attrs)

    x = gh.zeros((3, 4, 5))
    with Names():
        x[1, 2, 1:3] = gh.ones(2)
        x[:, 1:3] = 2.0
    assert set(names) == {"reshape", "slice", "concatenate", "full"}
    assert x.sum().item() == 2 * 3 * 2 * 5


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
        (lambda: X[[0, 5]], IndexOutOfRangeError, "axis 0 of size 3; got 5"),
        (lambda: X[:, gh.asarray([-5])], IndexOutOfRangeError, "axis 1 of size 4; got -5"),
        (lambda: X[[[0], [1, 2]]], ShapeError, "ragged"),
        (lambda: X[gh.asarray([0]), gh.asarray([4])], IndexOutOfRangeError, "got 4"),
        (lambda: X[1.5], DTypeError, "float 1.5"),
        (lambda: X["a"], DTypeError, "str"),
        (lambda: X[[0.5]], DTypeError, "float64"),
        (lambda: X[0.5:], DTypeError, "slice"),
        (lambda: X[np.array([True, False])], IndexOutOfRangeError, "size 3 on axis 0; got 2"),
        (lambda: X.__setitem__(0, gh.zeros(5)), ShapeError, r"\(5,\)"),
        (lambda: X.__setitem__(0, 1j), DTypeError, "complex64"),
        (lambda: gh.add_at(X, [3], 1.0), IndexOutOfRangeError, "axis 0 of size 3; got 3"),
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
