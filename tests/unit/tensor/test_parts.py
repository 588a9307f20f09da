"""Writes into parts of parts, compared with NumPy: eager, and captured."""

import numpy as np
import pytest

import glasshouse as gh


def one_by_one(x):
    x[1][2][3] = 1


def of_a_row(x):
    x[1][2] = 2


def of_slices(x):
    i = 2
    x[i][i - 1 : 3][0][1:4] = 3


def added(x):
    x[1][2][3] += 4


def with_an_axis_of_its_own(x):
    x[1:][0, 2][...] = 5


def in_loops(x):
    for i in range(3):
        for j in range(4):
            x[i][j][(i + j) % 5] = i + j if i else 7


def across(x):
    x[0][:, 1][2] = 9


def from_a_list(x):
    held = {"a": [x]}
    held["a"][0][0][1] = len(held) * 8


def of_copies(x):
    x[[0, 1]][0] = 4  # in NumPy too a write to a copy


WRITES = [one_by_one, of_a_row, of_slices, added, with_an_axis_of_its_own, in_loops, across,
          from_a_list, of_copies]  # fmt: skip


def arrays():
    array = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    return array, gh.asarray(array)


@pytest.mark.parametrize("write", WRITES)
def test_a_part_without_a_name_is_written_back(write):
    array, x = arrays()
    write(array)
    write(x)
    np.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize("write", WRITES)
def test_captured_writes_are_the_same(write):
    def doubled(x):
        x = x * 1.0
        write(x)
        return x

    array, x = arrays()
    captured = gh.optimize(doubled, nopython=True)
    write(array)
    for _ in range(3):
        np.testing.assert_array_equal(captured(x).numpy(), array)
    assert captured.hits == 2


def test_a_part_with_a_name_is_a_value_of_its_own():
    x = gh.zeros((2, 3))
    y = x[0]
    y[1] = 5.0
    y += 1.0
    assert x.tolist() == [[0.0] * 3] * 2 and y.tolist() == [1.0, 6.0, 1.0]


def test_gradients_pass_through_a_part_that_was_written():
    value = gh.tensor(3.0, requires_grad=True)
    x = gh.ones((2, 2))
    x[0][1] = value * 2.0
    (x * x).sum().backward()
    assert value.grad.item() == 24.0


def test_a_part_keeps_nothing_alive():
    x = gh.zeros(40)
    for _ in range(30):
        x = x[1:]
    assert len(x.cut_from) <= 4 and x.cut_from[0][0]() is None
