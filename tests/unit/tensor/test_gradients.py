"""Gradient clipping against PyTorch's."""

import math

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, GradError, OptionError
from glasshouse.optim import clip_grad_norm_, clip_grad_value_


def with_gradients(*arrays):
    params = []
    for array in arrays:
        p = gh.zeros(np.shape(array), dtype=gh.asarray(array).dtype).requires_grad_()
        p.grad = gh.asarray(array)
        params.append(p)
    return params


rng = np.random.default_rng(0)
GRADS = [rng.normal(size=(3, 4)), rng.normal(size=5), rng.normal(size=())]


@pytest.mark.parametrize("norm_type", [1, 2, 3.5, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 100.0, 0.0])
def test_norm_clipping_equals_pytorchs(norm_type, max_norm):
    torch = pytest.importorskip("torch")
    params = with_gradients(*GRADS)
    params.append(gh.zeros((2,)).requires_grad_())  # has no gradient
    twins = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in GRADS]
    for t, g in zip(twins, GRADS, strict=True):
        t.grad = torch.tensor(g)
    total = clip_grad_norm_(params, max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(twins, max_norm, norm_type)
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    for p, t in zip(params, twins, strict=False):
        np.testing.assert_allclose(p.grad.numpy(), t.grad.numpy(), rtol=1e-12)


def test_clipping_is_in_place():
    (p,) = with_gradients(np.array([3.0, 4.0], dtype=np.float32))
    g = p.grad
    assert clip_grad_norm_(p, 1.0).item() == 5.0
    assert g is p.grad
    np.testing.assert_allclose(g.numpy(), [0.6, 0.8], rtol=1e-6)


def test_float16_norms_do_not_overflow():
    (p,) = with_gradients(np.full(4, 300.0, dtype=np.float16))
    assert clip_grad_norm_([p], 1.0).item() == 600.0
    assert p.grad.dtype == gh.float16


def test_complex_gradients():
    (p,) = with_gradients(np.array([3 + 4j]))
    assert clip_grad_norm_([p], 2.5).item() == 5.0
    np.testing.assert_allclose(p.grad.numpy(), [1.5 + 2j], rtol=1e-6)


def test_value_clipping():
    (p,) = with_gradients(np.array([-3.0, 0.5, 3.0]))
    clip_grad_value_([p], 1.0)
    assert p.grad.tolist() == [-1.0, 0.5, 1.0]


def test_gradients_of_several_dtypes():
    params = with_gradients(np.float32([3.0]), np.float64([4.0]), np.float16([12.0]))
    for norm_type, expected in [(2, 13.0), (math.inf, 12.0)]:
        assert clip_grad_norm_(params, 100.0, norm_type).item() == expected
    assert [p.grad.dtype.name for p in params] == ["float32", "float64", "float16"]


def test_no_gradients_at_all():
    assert clip_grad_norm_([gh.zeros((2,))], 1.0).item() == 0.0
    clip_grad_value_([], 1.0)


def test_bad_calls_change_nothing():
    (p,) = with_gradients(np.array([1.0, math.inf]))
    with pytest.raises(GradError, match="finite gradient norm; got inf"):
        clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    with pytest.raises(OptionError, match="max_norm=-1"):
        clip_grad_norm_([p], -1)
    with pytest.raises(OptionError, match="norm_type=0"):
        clip_grad_norm_([p], 1, norm_type=0)
    with pytest.raises(OptionError, match="clip_value"):
        clip_grad_value_([p], -1)
    with pytest.raises(DTypeError, match="got int"):
        clip_grad_norm_([3], 1)
    assert p.grad.tolist() == [1.0, math.inf]
    (c,) = with_gradients(np.array([1j]))
    with pytest.raises(DTypeError, match="real gradients"):
        clip_grad_value_([c], 1.0)
