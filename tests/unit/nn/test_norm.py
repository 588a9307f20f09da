"""Normalisation layers against PyTorch's."""

import copy

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import OptionError, ShapeError, TransformError

SHAPES = {1: (4, 6, 5), 2: (3, 6, 4, 2), 3: (2, 6, 2, 3, 2)}


def batch(shape, seed=0):
    return np.random.default_rng(seed).normal(2.0, 3.0, size=shape)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"affine": False, "momentum": 0.3},
        {"track_running_stats": False, "eps": 1e-2},
        {"momentum": None},
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_equals_pytorchs(twin, n, options, training):
    ours, theirs = (getattr(lib, f"BatchNorm{n}d")(6, **options) for lib in (nn, twin.torch.nn))
    for i in range(3):
        twin.module(ours.train(), theirs.train(), batch(SHAPES[n], i))
    twin.module(ours.train(training), theirs.train(training), batch(SHAPES[n], 9), rtol=1e-8)


def test_batch_norm_of_vectors(twin):
    twin.module(nn.BatchNorm1d(6), twin.torch.nn.BatchNorm1d(6), batch((5, 6)))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"track_running_stats": True},
                                     {"track_running_stats": True, "momentum": None}])  # fmt: skip
@pytest.mark.parametrize("training", [True, False])
def test_instance_norm_equals_pytorchs(twin, n, options, training):
    ours, theirs = (getattr(lib, f"InstanceNorm{n}d")(6, **options) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, batch(SHAPES[n]))
    twin.module(ours.train(training), theirs.train(training), batch(SHAPES[n], 1))
    twin.module(ours, theirs, batch(SHAPES[n][1:], 2))


@pytest.mark.parametrize(
    "shape, options",
    [(5, {}), ((4, 5), {"eps": 0.1}), ((5,), {"bias": False}), (5, {"elementwise_affine": False})],
)
def test_layer_norm_equals_pytorchs(twin, shape, options):
    ours, theirs = nn.LayerNorm(shape, **options), twin.torch.nn.LayerNorm(shape, **options)
    twin.module(ours, theirs, batch((3, 4, 5)))


@pytest.mark.parametrize("options", [{}, {"eps": 0.1}, {"elementwise_affine": False}])
def test_rms_norm_equals_pytorchs(twin, options):
    twin.module(nn.RMSNorm(5, **options), twin.torch.nn.RMSNorm(5, **options), batch((3, 4, 5)))


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 3), (2, 6, 3, 2)])
def test_group_norm_equals_pytorchs(twin, groups, shape):
    if shape == (4, 6) and groups == 6:
        return  # one element per group: PyTorch refuses
    twin.module(nn.GroupNorm(groups, 6), twin.torch.nn.GroupNorm(groups, 6), batch(shape))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_statistics_of_16_bit_inputs_are_carried_in_32(dtype):
    x = gh.asarray(batch((64, 4), 0) * 300, dtype=dtype)  # squares overflow float16
    for layer in (nn.LayerNorm(4), nn.RMSNorm(4), nn.BatchNorm1d(4), nn.GroupNorm(2, 4)):
        expected = copy.deepcopy(layer)(x.float()).numpy()
        y = layer.to(dtype)(x)
        assert y.dtype.name == dtype
        np.testing.assert_allclose(y.float().numpy(), expected, atol=0.03)


def test_running_statistics_keep_their_handles_and_no_graph():
    layer = nn.BatchNorm1d(3)
    handle = layer.running_mean
    layer(gh.ones((4, 3)).requires_grad_())
    assert layer.running_mean is handle
    assert not handle.requires_grad
    np.testing.assert_allclose(handle.numpy(), 0.1, rtol=1e-6)
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_trains_under_a_functional_gradient():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double()
    x = gh.asarray(batch((5, 3)))

    def loss(weights):
        return (nn.functional_call(net, weights, x) ** 3).sum()

    other = copy.deepcopy(net)
    gradient = gh.grad(loss)(dict(net.named_parameters()))
    (other(x) ** 3).sum().backward()
    for name, p in other.named_parameters():
        np.testing.assert_allclose(gradient[name].numpy(), p.grad.numpy(), atol=1e-12)
    assert net[1].num_batches_tracked.item() == 1
    np.testing.assert_allclose(net[1].running_mean.numpy(), other[1].running_mean.numpy())
    assert net[1].running_var.mode is None
    with pytest.raises(TransformError, match="vmap"):
        gh.vmap(net)(x[None])


def test_normalize_and_cosine_similarity_equal_pytorchs(twin):
    theirs = twin.torch.nn.functional
    x, y = batch((3, 4)), batch((3, 4), 1)
    x[0] = 0.0
    for p in (1, 2, 3, float("inf")):
        twin.function(
            lambda x, p=p: F.normalize(x, p=p, dim=1),
            lambda x, p=p: theirs.normalize(x, p=p, dim=1),
            x[1:],
        )
    assert not F.normalize(gh.asarray(x)).numpy()[0].any()
    for dim in (0, 1):
        twin.function(
            lambda x, y: F.cosine_similarity(x, y, dim=dim),  # noqa: B023
            lambda x, y: theirs.cosine_similarity(x, y, dim=dim),  # noqa: B023
            x[1:],
            y[1:],
        )


def test_normalize_of_zero_has_a_finite_gradient():
    for p in (1, 2, 3):
        x = gh.zeros((1, 3)).requires_grad_()
        F.normalize(x, p=p).sum().backward()
        assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: nn.BatchNorm2d(3)(gh.ones((1, 4, 2, 2))),
            ShapeError,
            "BatchNorm2d: expected 3 channels on axis 1",
        ),
        (
            lambda: nn.BatchNorm2d(3)(gh.ones((2, 3, 2))),
            ShapeError,
            "BatchNorm2d: expected an input of 4 axes",
        ),
        (lambda: nn.BatchNorm1d(3)(gh.ones((1, 3))), ShapeError, "more than 1 value per channel"),
        (
            lambda: nn.InstanceNorm1d(3)(gh.ones((2, 3, 1))),
            ShapeError,
            "more than 1 spatial element",
        ),
        (
            lambda: nn.LayerNorm(3)(gh.ones((3, 4))),
            ShapeError,
            "LayerNorm: expected an input that ends in (3,)",
        ),
        (
            lambda: nn.RMSNorm((2, 3))(gh.ones(3)),
            ShapeError,
            "RMSNorm: expected an input that ends in (2, 3)",
        ),
        (
            lambda: nn.GroupNorm(4, 6),
            OptionError,
            "GroupNorm: expected num_groups to divide num_channels",
        ),
        (lambda: nn.GroupNorm(2, 6)(gh.ones((2, 4))), ShapeError, "GroupNorm: expected 6 channels"),
        (
            lambda: F.group_norm(gh.ones((2, 5)), 2),
            OptionError,
            "expected num_groups to divide channels",
        ),
        (
            lambda: F.batch_norm(gh.ones((2, 3)), None, None),
            OptionError,
            "expected running_mean and running_var",
        ),
        (
            lambda: F.layer_norm(gh.ones((2, 3)), (3,), gh.ones(2)),
            ShapeError,
            "weight and bias of (3,)",
        ),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
