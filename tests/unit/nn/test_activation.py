"""Activations against PyTorch's, at ordinary points and at extremes."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.base.flags import flags

FUNCTIONS = [
    ("relu", {}),
    ("relu6", {}),
    ("hardtanh", {"min_val": -0.5, "max_val": 0.7}),
    ("leaky_relu", {"negative_slope": 0.2}),
    ("elu", {"alpha": 1.3}),
    ("selu", {}),
    ("celu", {"alpha": 0.7}),
    ("sigmoid", {}),
    ("logsigmoid", {}),
    ("softplus", {}),
    ("softplus", {"beta": 2.0, "threshold": 5.0}),
    ("silu", {}),
    ("mish", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("hardsigmoid", {}),
    ("hardswish", {}),
    ("softsign", {}),
    ("tanhshrink", {}),
    ("softshrink", {"lambd": 0.3}),
    ("hardshrink", {"lambd": 0.3}),
    ("threshold", {"threshold": 0.1, "value": -2.0}),
    ("rrelu", {}),
    ("tanh", {}),
]
LAYERS = [
    ("ReLU", {}),
    ("ReLU", {"inplace": True}),
    ("ReLU6", {}),
    ("SiLU", {}),
    ("Mish", {}),
    ("SELU", {}),
    ("Hardswish", {}),
    ("Hardsigmoid", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("LogSigmoid", {}),
    ("Softsign", {}),
    ("Tanhshrink", {}),
    ("LeakyReLU", {"negative_slope": 0.3}),
    ("ELU", {"alpha": 2.0}),
    ("CELU", {}),
    ("GELU", {}),
    ("GELU", {"approximate": "tanh"}),
    ("Softplus", {"beta": 3.0}),
    ("Hardtanh", {"min_val": -2.0, "max_val": 0.5}),
    ("Threshold", {"threshold": 0.1, "value": 20.0}),
    ("Softshrink", {}),
    ("Hardshrink", {}),
    ("GLU", {"dim": 1}),
    ("Softmax", {"dim": 1}),
    ("Softmin", {"dim": -1}),
    ("LogSoftmax", {"dim": 2}),
    ("Softmax2d", {}),
    ("PReLU", {}),
    ("PReLU", {"num_parameters": 4}),
]


def points():
    """Ordinary numbers, the kinks of the functions, and numbers far out."""
    special = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, 21.0, -21.0, 50.0, -50.0, 700.0, -700.0]
    return np.concatenate([np.random.default_rng(0).normal(size=30) * 2, special])


@pytest.mark.parametrize("name, options", FUNCTIONS)
def test_function_equals_pytorchs(twin, name, options):
    theirs = getattr(twin.torch.nn.functional, name)
    if name == "gelu":  # erf ends in 0 or 1 where PyTorch's asymptotics still differ by 1e-16
        x = points()[:36]
    else:
        x = points()
    # PyTorch computes the derivatives of these with constants in float32
    atol = 1e-7 if name in ("celu", "hardsigmoid") else 1e-11
    twin.function(
        lambda x: getattr(F, name)(x, **options), lambda x: theirs(x, **options), x, atol=atol
    )


@pytest.mark.parametrize("name, options", LAYERS)
def test_layer_equals_pytorchs(twin, name, options):
    x = np.random.default_rng(0).normal(size=(2, 4, 3, 2))
    theirs = getattr(twin.torch.nn, name)(**options)
    if options.get("inplace"):
        x = x[:1] * 0 + 1  # PyTorch cannot write into a leaf: compare repr and values only
        assert repr(nn.ReLU(inplace=True)) == repr(theirs)
        return
    atol = 1e-7 if name == "Hardsigmoid" else 1e-11
    twin.module(getattr(nn, name)(**options), theirs, x, atol=atol)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_equals_pytorchs(twin, name, dim):
    x = np.random.default_rng(0).normal(size=(3, 4, 2)) * 300
    theirs = getattr(twin.torch.nn.functional, name)
    twin.function(lambda x: getattr(F, name)(x, dim=dim), lambda x: theirs(x, dim=dim), x)


def test_softmax_of_minus_infinity_and_large_numbers():
    x = gh.asarray(np.array([[-np.inf, 1e30, 0.0]])).requires_grad_()
    y = F.softmax(x, axis=-1)
    y.sum().backward()
    assert y.tolist() == [[0.0, 1.0, 0.0]]
    assert x.grad.tolist() == [[0.0, 0.0, 0.0]]


def test_softmax_takes_a_dtype():
    assert F.softmax(gh.asarray([1, 2]), 0, dtype="float64").dtype.name == "float64"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "name", ["sigmoid", "softplus", "logsigmoid", "silu", "mish", "elu", "selu"]
)
def test_gradients_are_finite_in_small_dtypes(name, dtype):
    x = gh.asarray([-60000.0, -100.0, -1.0, 0.0, 1.0, 100.0, 60000.0], dtype=dtype).requires_grad_()
    y = getattr(F, name)(x)
    y.sum().backward()
    assert y.dtype is x.dtype
    assert np.isfinite(x.grad.numpy().astype("float64")).all()


def test_sigmoid_keeps_its_tails():
    x = gh.asarray(np.array([-80.0, -40.0], "float32")).requires_grad_()
    y = F.sigmoid(x)
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), np.exp([-80.0, -40.0]), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), np.exp([-80.0, -40.0]), rtol=1e-5)


def test_nan_stays_nan():
    for name in ("relu", "relu6", "hardtanh", "leaky_relu", "elu", "sigmoid", "softplus", "gelu"):
        assert np.isnan(getattr(F, name)(gh.asarray([np.nan])).item()), name


def test_second_derivatives_equal_pytorchs(twin):
    torch = twin.torch
    for name in ("sigmoid", "silu", "softplus", "gelu", "elu", "mish", "logsigmoid"):
        x = np.random.default_rng(0).normal(size=5)
        ours = gh.grad(lambda x, name=name: gh.grad(lambda x: getattr(F, name)(x).sum())(x).sum())(
            gh.asarray(x)
        )
        t = torch.tensor(x, requires_grad=True)
        (g,) = torch.autograd.grad(
            getattr(torch.nn.functional, name)(t).sum(), t, create_graph=True
        )
        (expected,) = torch.autograd.grad(g.sum(), t)
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-8, atol=1e-10)


def test_rrelu_draws_slopes_while_training():
    layer = nn.RReLU(0.1, 0.3)
    y = layer(gh.asarray([-1.0] * 100)).numpy()
    assert y.min() >= -0.3 and y.max() <= -0.1 and np.unique(y).size > 50
    np.testing.assert_allclose(layer.eval()(gh.asarray([-1.0])).numpy(), [-0.2], rtol=1e-6)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda x: F.gelu(x, approximate="tahn"), OptionError, "Did you mean 'tanh'?"),
        (lambda x: nn.GELU("erf"), OptionError, "GELU: expected approximate"),
        (lambda x: F.softmax(x), OptionError, "expected one of dim and axis"),
        (lambda x: F.softmax(x, 0, axis=0), OptionError, "expected one of dim and axis"),
        (lambda x: F.softmax(x, dim=2), ShapeError, "got axis 2"),
        (lambda x: F.glu(x, dim=0), ShapeError, "expected an even size on axis 0; got (3, 2)"),
        (lambda x: F.hardtanh(x, 1, -1), OptionError, "expected min_val <= max_val"),
        (lambda x: F.softshrink(x, -1), OptionError, "lambd of 0 or more"),
        (lambda x: F.prelu(x, gh.ones(3)), ShapeError, "expected a weight of 1 or 2 elements"),
        (lambda x: F.gelu(gh.asarray([1])), DTypeError, "expected a floating input; got int64"),
        (lambda x: nn.Softmax2d()(x), ShapeError, "Softmax2d: expected (N, C, H, W)"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call(gh.ones((3, 2)))
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", [0, 1, 3, 5])
def test_relu_after_a_product_or_convolution_keeps_nan(kernel, dtype):
    x = np.ones((2, 32, 8, 8), np.float32)
    x[1, 0, 0, 0] = np.nan
    x, bias = gh.asarray(x, dtype=dtype), gh.zeros(32, dtype=dtype)
    with flags.override(compile="always"):
        if kernel:
            weight = gh.ones((32, 32, kernel, kernel), dtype=dtype)
            y = F.relu(F.conv2d(x, weight, bias, padding=kernel // 2))
        else:
            y = F.relu(F.linear(x.permute(0, 2, 3, 1), gh.ones((32, 32), dtype=dtype), bias))
        y = y.astype("float32").numpy()
    assert np.isnan(y[1]).any()
    assert not np.isnan(y[0]).any()
