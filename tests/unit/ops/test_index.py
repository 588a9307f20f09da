"""gather and the scatters, against NumPy, and their gradients."""

import numpy as np
import pytest

from glasshouse.base.errors import IndexOutOfRangeError
from glasshouse.base.flags import flags
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.dispatch.value import as_value
from glasshouse.ops.index import (
    gather,
    gather_along,
    scatter_add,
    scatter_along,
    scatter_set,
)
from glasshouse.transforms.reverse import vjp
from glasshouse.transforms.vmap import vmap

rng = np.random.default_rng(0)
x = rng.normal(size=(2, 4, 3))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
def test_gather_is_numpy_take(axis, shape):
    indices = rng.integers(-2, 2, shape)
    got = gather(as_value(x), as_value(indices), axis=axis)
    np.testing.assert_array_equal(got.numpy(), np.take(x, indices, axis))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64", "int32"])
def test_every_integer_dtype_indexes(dtype):
    big = np.arange(200.0)
    indices = np.array([100, 3]).astype(dtype)
    assert gather(as_value(big), as_value(indices), axis=0).numpy().tolist() == [100, 3]


@pytest.mark.parametrize(("axis", "index"), [(0, 2), (1, -5), (2, 99)])
def test_an_index_out_of_range_is_named(axis, index):
    indices = as_value(np.array([[0, index]]))
    with pytest.raises(IndexOutOfRangeError, match=f"got {index}"):
        gather(as_value(x), indices, axis=axis)
    updates = as_value(np.zeros((*x.shape[:axis], 1, 2, *x.shape[axis + 1 :])))
    for scatter in (scatter_add, scatter_set):
        with pytest.raises(IndexOutOfRangeError, match=f"got {index}"):
            scatter(as_value(x), indices, updates, axis=axis)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 4), (0, 0), (0,)])
@pytest.mark.parametrize("number", [0, 2, 3, -1, -3, -4])
def test_an_index_that_only_a_run_can_check(shape, number, monkeypatch):
    """It is refused wherever NumPy refuses it, also of an axis without elements, and where the
    result has none."""
    monkeypatch.setattr(RecordingBackend, "checks_indices", False)
    x, indices = np.ones(shape), np.array([number, number])
    updates = np.zeros((2, *shape[1:]))
    inside = -shape[0] <= number < shape[0]
    for card, *operands in ((gather,), (scatter_add, updates), (scatter_set, updates)):
        result = card(*map(as_value, (x, indices, *operands)), axis=0)
        with flags.override(compile="always"):
            if inside:
                assert result.numpy().shape == (updates if card is gather else x).shape
            else:
                with pytest.raises(IndexOutOfRangeError, match=f"got {number}"):
                    result.numpy()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_add_adds_repeated_indices(axis):
    indices = rng.integers(-2, 2, (3, 2))
    updates = rng.normal(size=(*x.shape[:axis], 3, 2, *x.shape[axis + 1 :]))
    got = scatter_add(*map(as_value, (x, indices, updates)), axis=axis)
    expected = x.copy()
    moved = np.moveaxis(updates, (axis, axis + 1), (0, 1))
    np.add.at(np.moveaxis(expected, axis, 0), indices, moved)
    np.testing.assert_allclose(got.numpy(), expected)


def test_scatter_set_keeps_the_last_of_repeated_indices():
    indices, updates = np.array([[1, 3], [-3, 1]]), np.array([[1.0, 2], [3, 4]])
    got = scatter_set(*map(as_value, (np.zeros(4), indices, updates)), axis=0)
    assert got.numpy().tolist() == [0, 4, 0, 2]


def test_overwritten_updates_get_no_gradient():
    indices, updates = np.array([1, 3, -3, 1]), np.array([1.0, 2, 3, 4])
    _, back = vjp(
        lambda x, u: scatter_set(x, as_value(indices), u, axis=0),
        *map(as_value, (np.zeros(4), updates)),
    )
    into_x, into_updates = back(as_value(np.array([10.0, 20, 30, 40])))
    assert into_x.numpy().tolist() == [10, 0, 30, 0]
    assert into_updates.numpy().tolist() == [0, 40, 0, 20]


def test_16_bit_updates_are_summed_in_float32():
    ones = np.ones(4096, np.float16)
    got = scatter_add(*map(as_value, (ones[:1] * 0, np.zeros(4096, int), ones)), axis=0)
    assert got.dtype.name == "float16" and got.numpy().tolist() == [4096]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_derivatives_of_every_order(check_derivatives, axis):
    indices = as_value(rng.integers(-2, 2, (2, 3)))
    updates = rng.normal(size=(*x.shape[:axis], 2, 3, *x.shape[axis + 1 :]))
    check_derivatives(lambda x: gather(x, indices, axis=axis) ** 2, x)
    check_derivatives(lambda x, u: scatter_add(x, indices, u, axis=axis) ** 2, x, updates)
    check_derivatives(lambda x, u: scatter_set(x, indices, u, axis=axis) ** 2, x, updates)


def test_vmap_over_indices_still_names_what_is_out_of_range():
    indices = as_value(np.array([[0, 1], [4, 0], [0, -4]]))
    rows = as_value(rng.normal(size=(3, 4)))
    got = vmap(lambda r, i: gather(r, i, axis=0))(
        rows, indices - as_value(np.array([[0, 0], [1, 0], [0, 0]]))
    )
    expected = np.take_along_axis(rows.numpy(), np.array([[0, 1], [3, 0], [0, 0]]), 1)
    np.testing.assert_array_equal(got.numpy(), expected)
    with pytest.raises(IndexOutOfRangeError):
        vmap(lambda r, i: gather(r, i, axis=0))(rows, indices)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_along_and_its_transpose(axis):
    lines = rng.normal(size=(4, 5))
    places = np.argsort(lines, axis)[:3, :3]
    got = gather_along(as_value(lines[:, :3] if axis == 0 else lines[:3]), as_value(places), axis)
    expected = np.take_along_axis(lines[:, :3] if axis == 0 else lines[:3], places, axis)
    np.testing.assert_array_equal(got.numpy(), expected)
    back = scatter_along(got, as_value(places), axis, lines.shape[axis])
    target = np.zeros(back.shape)
    np.put_along_axis(target, places, expected, axis)
    np.testing.assert_array_equal(back.numpy(), target)
