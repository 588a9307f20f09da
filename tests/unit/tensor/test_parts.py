"""Writes into parts of parts, compared with NumPy: eager, and captured."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.tensor.parts import links_at


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


def filled(x):
    x[0].fill_(1.0)
    x[1][2].fill_(2.0)


def multiplied(x):
    x[:, 1].mul_(2.0)


def added_with_a_factor(x):
    x[1][1:3].add_(x[0][0:2], alpha=-0.5)


def copied(x):
    x[2, 1:].copy_(x[0, :3])


def named_zero(x):
    for row in range(3):
        x[row][0].zero_()


def of_copies(x):
    x[[0, 1]][0] = 4  # in NumPy too a write to a copy


METHODS = [filled, multiplied, added_with_a_factor, copied, named_zero]
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


def of_torch(write):
    """The array after PyTorch has written, and a tensor like it before."""
    torch = pytest.importorskip("torch")
    array, x = arrays()
    expected = torch.from_numpy(array.copy())
    write(expected)
    return expected.numpy(), x


@pytest.mark.parametrize("write", METHODS)
def test_methods_that_write_reach_what_the_part_was_cut_from(write):
    expected, x = of_torch(write)
    write(x)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("write", METHODS)
def test_captured_methods_that_write_are_the_same(write):
    def doubled(x):
        x = x * 1.0
        write(x)
        return x

    expected, x = of_torch(write)
    captured = gh.optimize(doubled, nopython=True)
    for _ in range(3):
        np.testing.assert_array_equal(captured(x).numpy(), expected)
    assert captured.hits == 2


def test_contents_of_a_parameter_are_written_by_parts():
    weight = gh.nn.Parameter(gh.zeros((4, 2)))
    weight.data[1:3].fill_(1.0)
    weight.data[0][1] = 5.0
    with gh.no_grad():
        weight[3].add_(2.0)
    assert weight.tolist() == [[0.0, 5.0], [1.0, 1.0], [1.0, 1.0], [2.0, 2.0]]
    assert weight.is_leaf and weight.requires_grad


def test_a_named_part_of_a_named_part_stops_there():
    x = gh.zeros((2, 3))
    y = x[0]
    y[1:][0] = 7.0
    y[:1].fill_(3.0)
    assert x.tolist() == [[0.0] * 3] * 2 and y.tolist() == [3.0, 7.0, 0.0]


@pytest.mark.filterwarnings("ignore:glasshouse. this writes to a part")
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


def test_code_with_a_slice_among_its_constants_is_known_again():
    """As the code that capture writes has, before Python 3.14 without a hash."""

    def write(x):
        x[0][1] = 5

    code = write.__code__
    plain = [links_at(code, i) for i in range(0, len(code.co_code), 2)]
    odd = code.replace(co_consts=(*code.co_consts, slice(None, 1)))
    assert [links_at(odd, i) for i in range(0, len(odd.co_code), 2)] == plain
    assert max(plain) == 1
