"""matmul and the convolutions, against NumPy and PyTorch."""

import ml_dtypes
import numpy as np
import pytest

from glasshouse.base.dtype import as_dtype
from glasshouse.base.shape import Spec
from glasshouse.dispatch.value import as_value
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad, matmul
from glasshouse.transforms.reverse import vjp
from glasshouse.transforms.vmap import vmap

rng = np.random.default_rng(0)

CASES = {
    "plain": ((2, 3, 6), (4, 3, 3), {}),
    "2-d, stride and asymmetric padding": (
        (2, 4, 7, 5), (6, 4, 3, 2), {"stride": (2, 3), "padding": ((1, 0), (0, 2))},
    ),
    "dilation and groups": (
        (1, 4, 7, 6), (6, 2, 2, 3), {"dilation": (3, 2), "groups": 2, "padding": ((2, 2), (1, 1))},
    ),
    "depthwise": ((2, 3, 5, 5), (6, 1, 3, 3), {"groups": 3}),
    "3-d": ((1, 2, 4, 5, 3), (2, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": ((1, 1),) * 3}),
    "stride leaves elements over": ((1, 1, 8), (1, 1, 2), {"stride": (3,)}),
}  # fmt: skip


def options(ndim, stride=None, padding=None, dilation=None, groups=1):
    return {
        "stride": stride or (1,) * ndim,
        "padding": padding or ((0, 0),) * ndim,
        "dilation": dilation or (1,) * ndim,
        "groups": groups,
    }


def torch_conv(x, w, *, stride, padding, dilation, groups):
    """The same convolution in PyTorch, which pads asymmetrically in a step of its own."""
    torch = pytest.importorskip("torch")
    x, w = (torch.tensor(a, requires_grad=True) for a in (x, w))
    flat = [size for pair in reversed(padding) for size in pair]
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    y = function(torch.nn.functional.pad(x, flat), w, None, stride, 0, dilation, groups)
    return x, w, y


@pytest.mark.parametrize("case", CASES)
def test_conv_and_gradients_match_torch(case):
    x_shape, w_shape, inputs = CASES[case]
    attrs = options(len(x_shape) - 2, **inputs)
    x, w = rng.normal(size=x_shape), rng.normal(size=w_shape)
    tx, tw, ty = torch_conv(x, w, **attrs)
    y, back = vjp(lambda a, b: conv(a, b, **attrs), as_value(x), as_value(w))
    np.testing.assert_allclose(y.numpy(), ty.detach().numpy(), rtol=1e-10, atol=1e-12)
    g = rng.normal(size=y.shape)
    ty.backward(ty.new_tensor(g))
    for got, expected in zip(back(as_value(g)), (tx.grad, tw.grad), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_conv_derivatives_of_every_order(check_derivatives, dtype):
    attrs = options(2, stride=(2, 1), padding=((1, 0), (0, 2)), dilation=(1, 2), groups=2)
    x, w, g = (
        (rng.normal(size=s) + 1j * rng.normal(size=s)).astype(dtype)
        if dtype == "complex128"
        else rng.normal(size=s)
        for s in ((2, 4, 5, 4), (2, 2, 3, 2), (2, 2, 2, 4))
    )
    check_derivatives(lambda x, w: conv(x, w, **attrs), x, w)
    check_derivatives(lambda g, w: conv_data_grad(g, w, shape=(5, 4), **attrs), g, w)
    check_derivatives(lambda x, g: conv_weight_grad(x, g, shape=(3, 2), **attrs), x, g)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_are_carried_in_float32(dtype):
    np_dtype = as_dtype(dtype).np
    ones = np.ones((1, 4096), np_dtype)
    assert matmul(as_value(ones), as_value(ones.T)).numpy().item() == 4096
    x, w = np.ones((1, 1, 64, 64), np_dtype), np.ones((1, 1, 64, 64), np_dtype)
    y = conv(as_value(x), as_value(w), **options(2))
    assert y.dtype.name == dtype and y.numpy().item() == 4096
    assert np_dtype != ml_dtypes.bfloat16 or np.cumsum(ones[0], dtype=np_dtype)[-1] < 4096


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int32", "float32", "complex64"])
def test_matmul_matches_numpy(dtype):
    a = rng.integers(0, 9, (3, 2, 4, 5)).astype(dtype)
    b = rng.integers(0, 9, (3, 2, 5, 1)).astype(dtype)
    y = matmul(as_value(a), as_value(b))
    assert y.dtype.name == dtype
    np.testing.assert_array_equal(y.numpy(), a @ b)


def test_matmul_derivatives(check_derivatives):
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 2))
    check_derivatives(matmul, a, b)
    check_derivatives(matmul, a + 1j * a[::-1], b * 2j + 1)


def test_matmul_of_nothing_is_zero():
    y = matmul(as_value(np.ones((2, 0))), as_value(np.ones((0, 3))))
    np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_of_grouped_conv_is_a_loop(axes):
    attrs = options(2, stride=(2, 1), padding=((1, 1), (0, 1)), groups=2)
    operands = [rng.normal(size=(3, 2, 4, 5, 4)), rng.normal(size=(3, 6, 2, 3, 2))]
    operands = [x if axis == 0 else x[0] for x, axis in zip(operands, axes, strict=True)]
    y = vmap(lambda a, b: conv(a, b, **attrs), in_axes=axes)(*map(as_value, operands))
    for i in range(3):
        one = [x[i] if axis == 0 else x for x, axis in zip(operands, axes, strict=True)]
        expected = conv(*map(as_value, one), **attrs)
        np.testing.assert_allclose(y.numpy()[i], expected.numpy(), atol=1e-12)


def test_flops_count_a_multiply_add_as_two():
    float32 = as_dtype("float32")
    assert matmul.flops(Spec((7, 2, 3), float32), Spec((7, 3, 5), float32)) == 7 * 2 * 2 * 3 * 5
    x, w, g = (Spec(s, float32) for s in ((2, 4, 8, 8), (6, 2, 3, 3), (2, 6, 8, 8)))
    attrs = options(2, padding=((1, 1), (1, 1)), groups=2)
    expected = 2 * (2 * 6 * 8 * 8) * (2 * 3 * 3)
    assert conv.flops(x, w, **attrs) == expected
    assert conv_data_grad.flops(g, w, shape=(8, 8), **attrs) == expected
    assert conv_weight_grad.flops(x, g, shape=(3, 3), **attrs) == expected
