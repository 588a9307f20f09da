"""Fusion of batch norms, modules without initial values, parameters as vectors."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn import utils

rng = np.random.default_rng(0)
LAYERS = {
    "conv": (lambda nn: nn.Conv2d(3, 4, 2), lambda nn: nn.BatchNorm2d(4), (2, 3, 5, 5)),
    "no bias": (
        lambda nn: nn.Conv1d(3, 4, 2, bias=False),
        lambda nn: nn.BatchNorm1d(4, affine=False),
        (2, 3, 5),
    ),
    "transposed": (
        lambda nn: nn.ConvTranspose2d(3, 4, 2),
        lambda nn: nn.BatchNorm2d(4),
        (2, 3, 5, 5),
    ),
    "linear": (lambda nn: nn.Linear(3, 4), lambda nn: nn.BatchNorm1d(4), (2, 3)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_fused_layers_compute_both(kind):
    make, norm, shape = LAYERS[kind]
    layer, norm = make(nn).double(), norm(nn).double()
    x = gh.asarray(rng.normal(size=shape))
    for _ in range(3):
        norm(layer(x))
    if norm.affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    layer.eval(), norm.eval()
    if kind == "linear":
        fused = utils.fuse_linear_bn_eval(layer, norm)
    else:
        fused = utils.fuse_conv_bn_eval(layer, norm, transpose=kind == "transposed")
    assert type(fused) is type(layer) and fused is not layer
    np.testing.assert_allclose(fused(x).numpy(), norm(layer(x)).numpy(), rtol=1e-9, atol=1e-10)


def test_fused_weights_equal_pytorchs(twin):
    arrays = [rng.normal(size=s) for s in ((4, 3, 2), 4, 4)]
    arrays += [rng.uniform(0.5, 2, size=4), rng.normal(size=4), rng.normal(size=4)]
    w, b, mean, var, scale, shift = arrays
    ours = utils.fuse_conv_bn_weights(w, b, mean, var, 1e-5, scale, shift)
    torch = twin.torch
    inputs = [torch.tensor(x) for x in arrays]
    expected = torch.nn.utils.fuse_conv_bn_weights(*inputs[:4], 1e-5, *inputs[4:])
    for g, e in zip(ours, expected, strict=True):
        np.testing.assert_allclose(g.numpy(), e.detach().numpy(), rtol=1e-9)


def test_skipped_initial_values_draw_nothing():
    before = gh.random.default_generator().state()
    layer = utils.skip_init(nn.Linear, 5, 2, dtype="float64")
    assert gh.random.default_generator().state() == before
    assert layer.weight.shape == (2, 5) and layer.weight.dtype is gh.float64
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    assert layer(gh.ones(5, dtype="float64")).tolist() == [5.0, 5.0]


def test_values_that_nobody_wants_are_not_drawn(monkeypatch):
    monkeypatch.setattr(gh.random, "uniform", None)
    assert utils.skip_init(nn.Linear, 5, 2).weight.shape == (2, 5)
    with pytest.raises(TypeError):
        nn.Linear(5, 2)


def test_parameters_as_a_vector():
    layer = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,) and vector.requires_grad
    weight = layer.weight
    utils.vector_to_parameters(vector.detach() * 0 + gh.arange(9), layer.parameters())
    assert layer.weight is weight
    assert weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert layer.bias.tolist() == [6.0, 7.0, 8.0]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_total_norms_equal_pytorchs(twin, norm_type):
    arrays = [rng.normal(size=s) for s in ((3, 2), 4)]
    torch = twin.torch.nn.utils
    tensors = [twin.torch.tensor(a) for a in arrays]
    total = utils.get_total_norm([gh.asarray(a) for a in arrays], norm_type)
    assert total.item() == pytest.approx(torch.get_total_norm(tensors, norm_type).item())
    p = nn.Parameter(gh.zeros(2))
    p.grad = gh.asarray([3.0, 4.0])
    utils.clip_grads_with_norm_([p], 1.0, gh.asarray(5.0))
    np.testing.assert_allclose(p.grad.numpy(), [0.6, 0.8], rtol=1e-6)


def test_stateless_calls():
    layer = nn.Linear(2, 1)
    zero = {"weight": gh.zeros((1, 2)), "bias": gh.ones(1)}
    assert utils.stateless.functional_call(layer, zero, gh.ones(2)).tolist() == [1.0]
