"""Linear, Embedding, Dropout, Flatten and Identity."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.base.flags import flags

pytestmark = pytest.mark.quick

rng = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3), (0, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_equals_pytorchs(twin, shape, bias):
    twin.module(nn.Linear(3, 4, bias), twin.torch.nn.Linear(3, 4, bias), rng.normal(size=shape))


def test_linear_is_one_product_and_one_addition():
    layer, x = nn.Linear(3, 4), gh.ones((2, 5, 3))
    log = []

    class Log(gh.dispatch.Mode):
        def process(self, primitive, args, attrs, below):
            log.append(primitive.name)
            return below(primitive, args, attrs)

    with Log():
        layer(x)
    assert log.count("matmul") == 1 and log.count("add") == 1
    assert set(log) <= {"matmul", "add", "reshape", "permute", "expand"}


def test_initial_values_follow_pytorch():
    gh.random.seed(0)
    layer = nn.Linear(64, 200)
    for p in (layer.weight, layer.bias):
        assert np.abs(p.numpy()).max() <= 1 / 8
    assert layer.weight.numpy().std() == pytest.approx(1 / 8 / 3**0.5, rel=0.05)
    before = layer.weight.numpy().copy()
    layer.reset_parameters()
    assert (layer.weight.numpy() != before).any()
    gh.random.seed(0)
    np.testing.assert_array_equal(nn.Linear(64, 200).weight.numpy(), before)


def test_dtype_of_new_layers():
    assert nn.Linear(2, 2, dtype="float64").weight.dtype is gh.float64
    assert nn.Conv2d(2, 2, 1, dtype=gh.float16).bias.dtype is gh.float16


@pytest.mark.parametrize("options", [{}, {"start_dim": 0}, {"start_dim": 1, "end_dim": 2}])
def test_flatten_equals_pytorchs(twin, options):
    twin.module(
        nn.Flatten(**options), twin.torch.nn.Flatten(**options), rng.normal(size=(2, 3, 4, 5))
    )


def test_unflatten_and_identity(twin):
    torch = twin.torch.nn
    assert nn.Unflatten(1, (2, 3))(gh.ones((4, 6, 1))).shape == (4, 2, 3, 1)
    assert repr(nn.Unflatten(1, (2, 3))) == repr(torch.Unflatten(1, (2, 3)))
    x = gh.ones(1)
    assert nn.Identity(3, unused=True)(x) is x


@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True}]
)
def test_embedding_equals_pytorchs(twin, options):
    ours, theirs = (lib.Embedding(5, 3, **options) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, np.array([[0, 2, 2], [4, 1, 2]]))


@pytest.mark.parametrize("norm_type", [2.0, 1.0])
def test_embedding_max_norm_equals_pytorchs(twin, norm_type):
    ours, theirs = (
        lib.Embedding(5, 3, max_norm=0.7, norm_type=norm_type) for lib in (nn, twin.torch.nn)
    )
    twin.module(ours, theirs, np.array([1, 3, 3]))
    np.testing.assert_allclose(ours.weight.numpy(), theirs.weight.detach().numpy())


def test_embedding_initial_values_and_pretrained():
    layer = nn.Embedding(300, 20, padding_idx=1)
    assert not layer.weight.numpy()[1].any()
    assert layer.weight.numpy().std() == pytest.approx(1, rel=0.05)
    table = rng.normal(size=(4, 2))
    frozen = nn.Embedding.from_pretrained(table)
    assert not frozen.weight.requires_grad
    np.testing.assert_array_equal(frozen(gh.asarray([3])).numpy(), table[3:])
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_one_hot_equals_pytorchs(twin):
    torch = twin.torch
    index = np.array([[0, 2], [1, 1]])
    for classes in (-1, 5):
        expected = torch.nn.functional.one_hot(torch.tensor(index), classes).numpy()
        got = F.one_hot(gh.asarray(index), classes).numpy()
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


@pytest.mark.parametrize(
    "n, shape", [(0, (400, 500)), (1, (400, 50, 3)), (2, (200, 100, 2, 2)), (3, (200, 50, 2, 1, 2))]
)
def test_dropout(n, shape):
    gh.random.seed(0)
    layer = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)[n](0.3)
    x = gh.ones(shape).requires_grad_()
    y = layer(x)
    y.sum().backward()
    values = y.numpy()
    assert sorted(set(values.ravel().tolist())) == pytest.approx([0.0, 1 / 0.7])
    assert values.mean() == pytest.approx(1, abs=0.03)
    np.testing.assert_array_equal(x.grad.numpy(), values)
    if n:  # whole channels
        channels = values.reshape(*shape[:2], -1)
        assert (channels == channels[..., :1]).all()
    assert layer.eval()(x) is x


def test_dropout_at_its_limits():
    x = gh.ones(3)
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 1.0).tolist() == [0.0] * 3


def test_alpha_dropout_keeps_mean_and_variance():
    gh.random.seed(0)
    y = nn.AlphaDropout(0.3)(gh.random.normal((200000,))).numpy()
    assert y.mean() == pytest.approx(0, abs=0.02) and y.std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: nn.Linear(3, 2)(gh.ones((2, 4))),
            ShapeError,
            "Linear: expected 3 features on the last axis of the input; got (2, 4)",
        ),
        (lambda: nn.Linear(3, 2)(gh.ones(())), ShapeError, "Linear: expected 3 features"),
        (
            lambda: nn.Linear(3, 2)(gh.ones(3, dtype="float64")),
            DTypeError,
            "weight's dtype float32; got float64",
        ),
        (
            lambda: nn.Linear(3, 2)(gh.asarray([1, 2, 3])),
            DTypeError,
            "Linear: expected a floating input; got int64",
        ),
        (lambda: nn.Linear(3, 0), OptionError, "Linear: expected out_features"),
        (lambda: nn.Linear(2.5, 1), OptionError, "Linear: expected in_features"),
        (lambda: nn.Linear(3, 2)("text"), DTypeError, "Linear: expected numbers"),
        (
            lambda: F.linear(gh.ones(3), gh.ones(3)),
            ShapeError,
            "linear: expected a weight (out, in)",
        ),
        (
            lambda: nn.Flatten(2, 1)(gh.ones((1, 2, 3))),
            ShapeError,
            "flatten: expected start_axis <= end_axis",
        ),
        (
            lambda: nn.Unflatten(1, (2, 3))(gh.ones((1, 5))),
            ShapeError,
            "expected axis 1 of 6 elements",
        ),
        (
            lambda: nn.Embedding(3, 2)(gh.asarray([0, 3])),
            IndexOutOfRangeError,
            "Embedding: expected indices from 0 to 2; got indices from 0 to 3",
        ),
        (
            lambda: nn.Embedding(3, 2)(gh.asarray([-1])),
            IndexOutOfRangeError,
            "got indices from -1 to -1",
        ),
        (
            lambda: nn.Embedding(3, 2)(gh.ones(1)),
            DTypeError,
            "expected integer indices; got float32",
        ),
        (lambda: nn.Embedding(3, 2, padding_idx=3), OptionError, "padding_idx from -3 to 2"),
        (lambda: nn.Embedding.from_pretrained(gh.ones(3)), ShapeError, "expected a table (V, D)"),
        (
            lambda: nn.Dropout(1.5),
            OptionError,
            "Dropout: expected a probability p in [0, 1]; got 1.5",
        ),
        (lambda: F.dropout(gh.ones(1), -0.1), OptionError, "dropout: expected a probability"),
        (
            lambda: nn.Dropout2d()(gh.ones(3)),
            ShapeError,
            "dropout2d: expected an input of 3 or 4 axes",
        ),
        (
            lambda: F.one_hot(gh.asarray([3]), 3),
            IndexOutOfRangeError,
            "one_hot: expected indices from 0 to 2",
        ),
        (lambda: F.one_hot(gh.ones(2)), DTypeError, "one_hot: expected integer indices"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


def test_a_torch_tensor_is_refused_by_name(twin):
    with pytest.raises(DTypeError, match=r"Linear: expected .* got torch\.Tensor"):
        nn.Linear(3, 2)(twin.torch.ones(3))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_compiled_products_with_turned_operands(dtype):
    a, b = (gh.asarray(rng.normal(size=s), dtype=dtype) for s in ((5, 7), (7, 3)))
    gh.eval(a, b)
    with flags.override(compile="always"):
        results = [y.astype("float32").numpy() for y in (a @ b, F.linear(a, b.mT + 0), b.mT @ a.mT)]
    expected = a.astype("float64").numpy() @ b.astype("float64").numpy()
    for y, z in zip(results, (expected, expected, expected.T), strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=0.02)


def test_sizes_may_be_numbers_of_numpy():
    assert nn.Linear(np.prod((2, 3)), 4)(gh.ones((2, 6))).shape == (2, 4)
    assert nn.Conv2d(np.int64(3), 4, np.int32(3))(gh.ones((1, 3, 5, 5))).shape == (1, 4, 3, 3)
    assert nn.Dropout(np.float32(0.5)).p == 0.5
