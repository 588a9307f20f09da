"""sort and top_k, against NumPy and PyTorch."""

import numpy as np
import pytest

from glasshouse.base.dtype import as_dtype
from glasshouse.base.flags import flags
from glasshouse.dispatch.value import as_value
from glasshouse.ops.reduce import argmax
from glasshouse.ops.sort import sort, top_k
from glasshouse.transforms.reverse import vjp

rng = np.random.default_rng(0)
DTYPES = ["bool", "int8", "uint8", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_sort_is_stable(dtype, descending, axis):
    x = rng.integers(0, 4, (6, 5)).astype(as_dtype(dtype).np)  # with ties
    values, indices = sort(as_value(x), axis=axis, descending=descending)
    key = -x.astype(int) if descending else x.astype(int)
    expected = np.argsort(key, axis, kind="stable")
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, axis))
    assert (values.dtype.name, indices.dtype.name) == (dtype, "int64")


@pytest.mark.quick
def test_sort_orders_extreme_integers():
    x = np.array([-128, 127, 0, -127], np.int8)
    values, _ = sort(as_value(x), axis=0, descending=True)
    assert values.numpy().tolist() == [127, 0, -127, -128]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_nan_is_the_largest(dtype, descending, compile):
    torch = pytest.importorskip("torch")
    x = np.array([np.nan, 1, -np.inf, np.inf, -np.nan, 0, -0.0, *range(30)])
    theirs = torch.sort(torch.tensor(x), descending=descending, stable=True)
    with flags.override(compile=compile):
        x = as_value(x.astype(as_dtype(dtype).np))
        values, indices = sort(x, axis=0, descending=descending)
        np.testing.assert_array_equal(indices.numpy(), theirs.indices.numpy())
        np.testing.assert_array_equal(values.numpy().astype(float), theirs.values.numpy())
        if descending:
            assert top_k(x, k=5)[1].numpy().tolist() == theirs.indices[:5].tolist()
            assert top_k(x, k=1)[1].numpy().tolist() == [argmax(x, axis=0).item()]


def test_top_k_matches_torch():
    torch = pytest.importorskip("torch")
    x = rng.permutation(24).reshape(2, 3, 4) / 7
    t = torch.tensor(x, requires_grad=True)
    expected = torch.topk(t, 2)
    (values, indices), back = vjp(lambda v: top_k(v, k=2), as_value(x))
    np.testing.assert_array_equal(values.numpy(), expected.values.detach().numpy())
    np.testing.assert_array_equal(indices.numpy(), expected.indices.numpy())
    g = rng.normal(size=values.shape)
    expected.values.backward(torch.tensor(g))
    (got,) = back((as_value(g), as_value(np.zeros(indices.shape, np.int64))))
    np.testing.assert_array_equal(got.numpy(), t.grad.numpy())


@pytest.mark.quick
def test_top_k_takes_the_first_of_equal_elements():
    _, indices = top_k(as_value(np.array([1.0, 2, 2, 1, 2])), k=4)
    assert indices.numpy().tolist() == [1, 2, 4, 0]


@pytest.mark.parametrize("descending", [False, True])
def test_derivatives_of_every_order(check_derivatives, descending):
    x = rng.permutation(24).reshape(4, 3, 2) / 4
    check_derivatives(lambda x: sort(x, axis=1, descending=descending)[0] ** 2, x)
    check_derivatives(lambda x: top_k(x, k=1)[0] ** 2, x)
