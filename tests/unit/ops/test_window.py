"""Windows, their transpose and choice within them, against NumPy and PyTorch."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.value import as_value
from glasshouse.ops.window import fold, window_scatter, window_select, windows
from glasshouse.transforms.reverse import vjp

rng = np.random.default_rng(0)
PLAIN = {"padding": ((0, 0), (0, 0))}
OPTIONS = [
    {"size": (2, 2), "stride": (2, 2), "dilation": (1, 1)},
    {"size": (3, 2), "stride": (1, 2), "dilation": (1, 1)},
    {"size": (2, 3), "stride": (2, 1), "dilation": (3, 2)},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_windows_and_fold_match_torch(options):
    torch = pytest.importorskip("torch")
    x = rng.normal(size=(2, 3, 7, 8))
    w = windows(as_value(x), **options)
    size, stride, dilation = options["size"], options["stride"], options["dilation"]
    expected = torch.nn.functional.unfold(torch.tensor(x), size, dilation, 0, stride)
    flat = w.numpy().reshape(2, 3, -1, size[0] * size[1]).swapaxes(2, 3)  # (N, C, K, windows)
    np.testing.assert_array_equal(flat.reshape(expected.shape), expected.numpy())
    back = torch.nn.functional.fold(expected, (7, 8), size, dilation, 0, stride)
    folded = fold(w, shape=(7, 8), stride=stride, dilation=dilation)
    np.testing.assert_allclose(folded.numpy(), back.numpy(), rtol=1e-12)


def test_windows_share_memory_and_cannot_be_written():
    x = np.arange(6.0)
    view = windows.ref(x, size=(3,), stride=(1,), dilation=(1,))
    assert np.shares_memory(view, x) and not view.flags.writeable


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_window_select_is_max_pooling(options, dtype):
    torch = pytest.importorskip("torch")
    x = rng.integers(0, 4, (2, 3, 7, 8)).astype(dtype)  # with ties
    t = torch.tensor(x, requires_grad=True)
    size, stride, dilation = options["size"], options["stride"], options["dilation"]
    expected = torch.nn.functional.max_pool2d(t, size, stride, 0, dilation)
    y, back = vjp(lambda v: window_select(v, v, **options, **PLAIN), as_value(x))
    np.testing.assert_array_equal(y.numpy(), expected.detach().numpy())
    g = rng.normal(size=y.shape).astype(dtype)
    expected.backward(torch.tensor(g))
    (got,) = back(as_value(g))
    np.testing.assert_allclose(got.numpy(), t.grad.numpy(), rtol=1e-5)


def test_nan_is_chosen_before_all_others():
    keys = np.array([1.0, np.nan, np.inf, np.nan])
    x = np.arange(4.0)
    options = {"size": (2,), "stride": (1,), "dilation": (1,), "padding": ((0, 0),)}
    got = window_select(as_value(x), as_value(keys), **options)
    np.testing.assert_array_equal(got.numpy(), [1, 1, 3])


@pytest.mark.parametrize("options", OPTIONS)
def test_derivatives_of_every_order(check_derivatives, options):
    keys = as_value(rng.permutation(56).reshape(7, 8))
    x = rng.normal(size=(7, 8))
    stride, dilation = options["stride"], options["dilation"]
    w = windows(as_value(x), **options).numpy()
    check_derivatives(lambda x: windows(x, **options), x)
    check_derivatives(lambda w: fold(w, shape=(7, 8), stride=stride, dilation=dilation), w.copy())
    options = options | PLAIN
    check_derivatives(lambda x: window_select(x, keys, **options), x)
    g = window_select(as_value(x), keys, **options).numpy()
    check_derivatives(lambda g: window_scatter(g, keys, **options), g)


@pytest.mark.parametrize("rows", [4096, 10_001, pytest.param(3_000_000, marks=pytest.mark.slow)])
def test_gradients_of_many_rows_fit_on_the_stack(rows):
    values = np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32)
    with gh.backends.use("lazy"), flags.override(compile="always"):
        x = gh.tensor(values, requires_grad=True)
        gh.nn.functional.max_pool1d(x[None], 2).sum().backward()
        grad = x.grad.numpy()
    pairs = values.reshape(rows, 3, 2)
    wanted = (np.arange(2) == pairs.argmax(axis=2)[..., None]).reshape(rows, 6)
    assert np.array_equal(grad, wanted)
