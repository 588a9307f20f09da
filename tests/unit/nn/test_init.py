"""Initial values: bounds, moments and structure of every scheme."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.nn import init


@pytest.fixture(autouse=True)
def seed():
    gh.random.seed(0)


def weight(*shape):
    return nn.Parameter(gh.zeros(shape or (64, 100, 3)))


FAN_IN, FAN_OUT = 300, 192


@pytest.mark.parametrize(
    "fill, std",
    [
        (lambda w: init.uniform_(w, -2, 4), 6 / 12**0.5),
        (lambda w: init.normal_(w, 1, 0.3), 0.3),
        (lambda w: init.xavier_uniform_(w, 2), 2 * (2 / (FAN_IN + FAN_OUT)) ** 0.5),
        (lambda w: init.xavier_normal_(w), (2 / (FAN_IN + FAN_OUT)) ** 0.5),
        (lambda w: init.kaiming_uniform_(w, nonlinearity="relu"), (2 / FAN_IN) ** 0.5),
        (lambda w: init.kaiming_uniform_(w, a=5**0.5), (1 / 3 / FAN_IN) ** 0.5),
        (
            lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="tanh"),
            5 / 3 / FAN_OUT**0.5,
        ),
        (lambda w: init.trunc_normal_(w, 0, 1, -1, 1), 0.5397),
        (lambda w: init.trunc_normal_(w, 1, 0.5, 0, 2), 0.5 * 0.8796),
    ],
)
def test_standard_deviation(fill, std):
    w = weight()
    assert fill(w) is w and w.requires_grad and w.is_leaf
    assert w.numpy().std() == pytest.approx(std, rel=0.03)


def test_bounds_and_means():
    assert np.abs(init.xavier_uniform_(weight()).numpy()).max() <= (6 / (FAN_IN + FAN_OUT)) ** 0.5
    assert init.normal_(weight(), 3.0).numpy().mean() == pytest.approx(3, abs=0.05)
    w = init.trunc_normal_(weight(), 1.0, 1.0, 0.0, 3.0).numpy()
    assert w.min() >= 0 and w.max() <= 3


def test_constants_and_identity():
    assert set(init.constant_(weight(2, 3), 0.5).numpy().ravel()) == {0.5}
    assert init.ones_(weight(3)).tolist() == [1.0] * 3
    assert init.zeros_(init.ones_(weight(3))).tolist() == [0.0] * 3
    np.testing.assert_array_equal(init.eye_(weight(3, 4)).numpy(), np.eye(3, 4))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(4, 2, 3), (6, 8, 2, 4), (2, 3, 1, 2, 3)])
def test_dirac_equals_pytorchs(twin, shape, groups):
    theirs = twin.torch.nn.init.dirac_(twin.torch.empty(shape), groups)
    np.testing.assert_array_equal(init.dirac_(weight(*shape), groups).numpy(), theirs.numpy())


@pytest.mark.parametrize("sparsity", [0, 0.25, 0.91, 1])
def test_sparse_columns_have_their_share_of_zeros(sparsity):
    w = init.sparse_(weight(40, 200), sparsity, std=0.5).numpy()
    zeros = (w == 0).sum(0)
    assert set(zeros) == {np.ceil(sparsity * 40)}
    if sparsity < 1:
        assert w[w != 0].std() == pytest.approx(0.5, rel=0.05)
    if 0 < sparsity < 1:
        assert len(np.unique(w == 0, axis=1).T) > 100  # rows are drawn for each column


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (4, 3, 2)])
def test_orthogonal(shape):
    w = init.orthogonal_(weight(*shape), gain=2).numpy().reshape(shape[0], -1)
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_seeds_and_generators():
    a = init.normal_(weight(), generator=gh.random.Generator(3)).numpy()
    b = init.normal_(weight(), generator=gh.random.Generator(3)).numpy()
    np.testing.assert_array_equal(a, b)


def test_gains_equal_pytorchs(twin):
    theirs = twin.torch.nn.init.calculate_gain
    for name in init.GAINS:
        assert init.calculate_gain(name) == theirs(name)
    assert init.calculate_gain("leaky_relu", 0.3) == theirs("leaky_relu", 0.3)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: init.calculate_gain("rleu"), OptionError, "Did you mean 'relu'?"),
        (lambda: init.kaiming_normal_(weight(2, 2), mode="fan_on"), OptionError, "expected mode"),
        (lambda: init.xavier_uniform_(weight(3)), ShapeError, "at least 2 axes; got (3,)"),
        (lambda: init.orthogonal_(weight(3)), ShapeError, "at least 2 axes"),
        (lambda: init.eye_(weight(3)), ShapeError, "expected a matrix"),
        (lambda: init.dirac_(weight(3, 3)), ShapeError, "got (3, 3). Use eye_"),
        (lambda: init.dirac_(weight(3, 3, 3), 2), OptionError, "groups=2"),
        (lambda: init.sparse_(weight(3), 0.5), ShapeError, "expected a matrix; got (3,)"),
        (lambda: init.sparse_(weight(3, 3), 2.0), OptionError, "got 2.0"),
        (lambda: init.ones_(np.zeros(3)), DTypeError, "ones_: expected a tensor to write into"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
