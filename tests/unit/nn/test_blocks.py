"""Norms over channels, gates, in-place names and blocks: against PyTorch's, or closed forms."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn


def drawn(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


NORMS = [
    ("LocalResponseNorm", (3,), (2, 7, 4)),
    ("LocalResponseNorm", (4, 0.3, 0.5, 2.0), (2, 7, 4, 3)),
    ("LocalResponseNorm", (9,), (2, 5, 2, 3, 2)),
]


@pytest.mark.parametrize("name, options, shape", NORMS)
def test_norms_over_channels_equal_pytorchs(twin, name, options, shape):
    ours, theirs = (getattr(lib, name)(*options) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, drawn(*shape))


@pytest.mark.parametrize("options, channels", [((3,), 2), ((5, 0.3, 0.5, 2.0), 3)])
def test_cross_map_norm_has_pytorchs_values(twin, options, channels):
    """Those of the first channels; PyTorch's gradient is not that of its values."""
    ours, theirs = (lib.CrossMapLRN2d(*options) for lib in (nn, twin.torch.nn))
    assert repr(ours) == repr(theirs)
    x = drawn(2, channels, 4, 3)
    expected = theirs(twin.torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours(gh.asarray(x)).numpy(), expected, rtol=1e-9)


def test_windows_of_odd_size_are_the_same_in_both_norms():
    x, options = gh.asarray(drawn(2, 9, 3, 3)), (5, 0.3, 0.5, 2.0)
    assert (nn.CrossMapLRN2d(*options)(x) == nn.LocalResponseNorm(*options)(x)).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_bilinear_equals_pytorchs(twin, bias, lead):
    ours, theirs = (lib.Bilinear(3, 4, 2, bias) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, drawn(*lead, 3), drawn(*lead, 4, seed=1))


def test_bilinear_is_drawn_within_its_bound():
    weight = nn.Bilinear(16, 4, 50).weight
    assert 0.2 < weight.abs().max().item() <= 0.25


def test_conv_tbc_equals_pytorchs(twin):
    theirs = twin.torch.nn.functional.conv_tbc
    for pad in (0, 2):
        twin.function(
            lambda x, w, b: F.conv_tbc(x, w, b, pad),  # noqa: B023
            lambda x, w, b: theirs(x, w, b, pad),  # noqa: B023
            drawn(7, 2, 3),
            drawn(3, 3, 4, seed=1),
            drawn(4, seed=2),
        )


WRITTEN = {
    "celu_": {"alpha": 0.5},
    "elu_": {"alpha": 0.5},
    "hardtanh_": {"min_val": -0.5},
    "leaky_relu_": {"negative_slope": 0.1},
    "relu_": {},
    "rrelu_": {},
    "selu_": {},
    "threshold_": {"threshold": 0.1, "value": 0.3},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_names_with_underscore_write_into_their_input(twin, name):
    x = drawn(4, 5)
    mine, other = gh.asarray(x), twin.torch.tensor(x)
    result = getattr(F, name)(mine, **WRITTEN[name])
    getattr(twin.torch.nn.functional, name)(other, **WRITTEN[name])
    assert result is mine
    np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12)


def test_names_with_underscore_have_gradients():
    x = gh.tensor([-1.0, 2.0], requires_grad=True)
    y = x * 3
    F.relu_(y)
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 3.0]


@pytest.mark.parametrize("name", ["max_pool", "adaptive_max_pool"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_with_indices_equal_pytorchs(twin, name, n):
    name = f"{name}{n}d_with_indices"
    ours, theirs = getattr(F, name), getattr(twin.torch.nn.functional, name)
    twin.function(lambda x: ours(x, 2), lambda x: theirs(x, 2), drawn(2, 3, *(4, 6, 5)[:n]))


@pytest.mark.parametrize("name, gate", [("GEGLU", "gelu"), ("ReGLU", "relu"), ("SwiGLU", "silu")])
@pytest.mark.parametrize("dim", [-1, 1])
def test_gates_are_products_of_halves(twin, name, gate, dim):
    function = getattr(twin.torch.nn.functional, gate)

    def theirs(x):
        a, b = x.chunk(2, dim)
        return a * function(b)

    twin.function(getattr(nn, name)(dim), theirs, drawn(2, 4, 6))


# -- random ------------------------------------------------------------------------------------


def test_feature_alpha_dropout_drops_channels():
    gh.random.seed(0)
    x = gh.ones((40, 50, 3, 2))
    y = nn.FeatureAlphaDropout(0.3)(x)
    per_channel = y.reshape(2000, 6)
    assert (per_channel == per_channel[:, :1]).all()
    assert np.unique(y.numpy()).size == 2
    normal = nn.FeatureAlphaDropout(0.3)(gh.random.normal((200, 300)))
    assert abs(normal.mean().item()) < 0.02 and abs(normal.std().item() - 1) < 0.02
    assert nn.FeatureAlphaDropout(0.3).eval()(x) is x


@pytest.mark.parametrize("mode, kinds", [("row", 2), ("batch", 1)])
def test_drop_path_drops_samples(mode, kinds):
    gh.random.seed(1)
    x = gh.ones((1000, 3))
    y = nn.DropPath(0.25, mode)(x).numpy()
    assert np.unique(y).size == kinds and (y == y[:, :1]).all()
    if mode == "row":
        assert abs(y.mean() - 1) < 0.05 and y.max() == np.float32(1 / 0.75)
    assert nn.DropPath(0.25, mode).eval()(x) is x


def test_gumbel_softmax_draws_by_the_logits():
    gh.random.seed(2)
    share = np.array([0.2, 0.3, 0.5], np.float32)
    logits = gh.asarray(np.tile(np.log(share), (4000, 1))).requires_grad_()
    y = F.gumbel_softmax(logits, tau=0.7, hard=True)
    assert set(np.unique(y.detach().numpy().round(6))) == {0.0, 1.0}
    np.testing.assert_allclose(y.detach().numpy().mean(0), share, atol=0.03)
    (y * gh.asarray([1.0, 2.0, 3.0])).sum().backward()
    np.testing.assert_allclose(logits.grad.numpy().sum(1), 0, atol=1e-4)
    soft = F.gumbel_softmax(logits.detach(), tau=2.0, dim=1)
    np.testing.assert_allclose(soft.numpy().sum(1), 1, rtol=1e-5)


# -- several processes -------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (3, 4, 2, 5), (2, 4, 2, 2, 3)])
def test_sync_batch_norm_is_batch_norm_in_one_process(twin, shape):
    theirs = getattr(twin.torch.nn, f"BatchNorm{max(len(shape) - 2, 1)}d")(4).double()
    ours = nn.SyncBatchNorm(4).double()
    assert repr(ours) == repr(twin.torch.nn.SyncBatchNorm(4))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    twin.function(ours, theirs, drawn(*shape), rtol=1e-8)
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-9)


def test_batch_norms_are_converted_with_their_state():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4)), nn.ReLU()).eval()
    net[1][0].running_mean += 1.0
    x = gh.random.normal((2, 3, 4, 4))
    before = net(x)
    weight = net[1][0].weight
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(net[1][0]) is nn.SyncBatchNorm and net[1][0].weight is weight
    assert (net(x) == before).all()


# -- blocks ------------------------------------------------------------------------------------


def test_residual_shortcuts_scales_and_projections():
    double, triple = nn.Transform(lambda x: x * 2), nn.Transform(lambda x: x * 3)
    x = gh.asarray(5.0)
    assert nn.Residual(double, triple)(x).item() == 5 + 30
    block = nn.Residual(double, triple).add_shortcut(0, 1).add_scale(1, 0.5)
    assert block(x).item() == 3 * 0.5 * (10 + 5)
    block = nn.Residual(double, triple).add_shortcut(1, 2).add_shortcut(0, 2, double)
    assert block(x).item() == 30 + 10 + 2 * 5
    linear = nn.Residual(nn.Linear(3, 4)).add_shortcut(0, 1, nn.Linear(3, 4))
    assert sorted(linear.state_dict()) == [
        "0.bias", "0.weight", "shortcut0to1.bias", "shortcut0to1.weight"]  # fmt: skip


def test_squeeze_excitation_gates_channels(twin):
    layer = nn.SqueezeExcitation(6, 2).double()
    assert list(layer.state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    torch = twin.torch
    a, b, c, d = (torch.tensor(p.numpy().copy()) for p in layer.state_dict().values())

    def theirs(x):
        hidden = torch.relu(x.mean((2, 3)) @ a[:, :, 0, 0].T + b)
        return torch.sigmoid(hidden @ c[:, :, 0, 0].T + d)[:, :, None, None] * x

    twin.function(layer, theirs, drawn(2, 6, 4, 3))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_separable_convolution_is_one_of_rank_one(twin, n):
    layer = getattr(nn, f"SeparableConv{n}d")(3, 5, 3, padding=1, depth_multiplier=2).double()
    point, depth = layer.pointwise.weight.numpy(), layer.depthwise.weight.numpy()
    point = point.reshape(5, 3, 2)  # filters of a channel lie together
    whole = np.einsum("ocm,cm...->oc...", point, depth.reshape(3, 2, *(3,) * n))
    conv = getattr(twin.torch.nn.functional, f"conv{n}d")
    bias = layer.pointwise.bias.numpy().copy()
    weight = twin.torch.tensor(whole)
    twin.function(
        lambda x: layer(x),
        lambda x: conv(x, weight, twin.torch.tensor(bias), padding=1),
        drawn(2, 3, *(5, 4, 6)[:n]),
    )


@pytest.mark.parametrize("part, ahead", [(0, 0), (0.25, 1), (0.5, 2), (0.75, 3), (1, 4)])
def test_asymmetric_convolution_sees_as_far_ahead_as_asked(part, ahead):
    layer = nn.AsymmetricConv1d(1, 1, 5, padding="same", future_part=part, bias=False)
    with gh.no_grad():
        layer.weight.copy_(gh.ones((1, 1, 5)))
    x = np.zeros((1, 1, 20), np.float32)
    x[0, 0, 10] = 1
    reached = np.nonzero(layer(gh.asarray(x)).detach().numpy()[0, 0])[0]
    assert reached[0] == 10 - ahead and reached[-1] == 14 - ahead
    strided = nn.AsymmetricConv1d(1, 2, 5, stride=3, padding="same", future_part=part)
    assert strided(gh.asarray(x)).shape == (1, 2, 7)


def test_time_depth_separable_block():
    """Against its definition in NumPy, one step after the other."""
    block = nn.TDSBlock(2, 3, 4, inner_linear_dim=5).double().eval()
    x = drawn(2, 2, 4, 6)
    weight, bias = (p.detach().numpy() for p in block.conv[1].parameters())
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1)))
    y = sum(
        np.einsum("oc,ncwt->nowt", weight[:, :, 0, k], padded[..., k : k + 6]) for k in range(3)
    )
    y = np.maximum(y + bias[:, None, None], 0) + x

    def normed(v):
        mean, var = v.mean((1, 2, 3), keepdims=True), v.var((1, 2, 3), keepdims=True)
        return (v - mean) / np.sqrt(var + 1e-5)

    y = normed(y)
    a, b, c, d = (p.detach().numpy() for p in block.fc.parameters())
    flat = y.transpose(0, 3, 2, 1).reshape(2, 6, 8)
    z = (np.maximum(flat @ a.T + b, 0) @ c.T + d).reshape(2, 6, 4, 2).transpose(0, 3, 2, 1)
    np.testing.assert_allclose(block(gh.asarray(x)).detach().numpy(), normed(z + y), rtol=1e-7)


def test_time_depth_separable_block_looks_ahead_as_asked():
    block = nn.TDSBlock(2, 5, 3, right_padding=1, norm_includes_time=False).double().eval()
    x = drawn(1, 2, 3, 12)
    changed = x.copy()
    changed[..., 6] += 1
    difference = block(gh.asarray(x)) - block(gh.asarray(changed))
    assert np.nonzero(np.abs(difference.detach().numpy()).sum((0, 1, 2)) > 1e-12)[0].tolist() == [
        5, 6, 7, 8, 9]  # fmt: skip


def test_conformer_scores_positions_by_distance():
    gh.random.seed(0)
    block = nn.Conformer(6, 4, 8, heads=2, pos_context=5, kernel_size=3).double().eval()
    q = gh.asarray(drawn(2, 2, 4, 4))
    got = block.scores_of_positions(q).detach().numpy()
    table = block.positions.detach().numpy()
    for i in range(4):
        for j in range(4):
            wanted = q.numpy()[:, :, i] @ table[4 + j - i] / 2
            np.testing.assert_allclose(got[:, :, i, j], wanted, rtol=1e-9)


@pytest.mark.slow
def test_conformer_does_not_attend_to_padding():
    block = nn.Conformer(6, 4, 8, heads=2, pos_context=9, kernel_size=1).double().eval()
    x = drawn(1, 7, 6)
    padding = gh.asarray(np.arange(7)[None] >= 5)
    changed = x.copy()
    changed[:, 5:] += 1
    a, b = (block(gh.asarray(v), padding).detach().numpy() for v in (x, changed))
    np.testing.assert_allclose(a[:, :5], b[:, :5], rtol=1e-9)
    np.testing.assert_allclose(a[:, :5], block(gh.asarray(x[:, :5])).detach().numpy(), rtol=1e-7)


@pytest.mark.slow
def test_conformer_trains_and_drops_whole_blocks():
    gh.random.seed(0)
    block = nn.Conformer(6, 4, 8, heads=2, pos_context=0, kernel_size=3, dropout=0.1)
    x = gh.asarray(drawn(2, 5, 6, dtype=np.float32))
    block(x).square().sum().backward()
    assert all(p.grad is not None for p in block.parameters())
    gone = nn.Conformer(6, 4, 8, heads=2, pos_context=0, kernel_size=3, layer_dropout=1.0)
    np.testing.assert_allclose(
        gone(x).detach().numpy(), gone.norm(x).detach().numpy(), rtol=1e-6, atol=1e-6
    )


def test_small_layers():
    x = gh.asarray([[1.0, -2.0, 3.0]])
    assert nn.ThresholdReLU(1.0)(x).tolist() == [[1.0, 0.0, 3.0]]
    assert nn.Reorder(1, 0)(x).shape == (3, 1) and nn.View((0, 3, 1))(x).shape == (1, 3, 1)
    assert nn.PrecisionCast("float16")(x).dtype == gh.float16
    np.testing.assert_allclose(nn.Log()(x.abs()).numpy(), np.log([[1, 2, 3]]), rtol=1e-6)
    np.testing.assert_allclose(nn.Swish(2.0)(x).numpy(), (x * F.sigmoid(2 * x)).numpy(), rtol=1e-6)
    whole = nn.Normalize((0, 1), p=1, value=2.0)(x)
    np.testing.assert_allclose(whole.numpy(), x.numpy() / 3, rtol=1e-6)
    assert repr(nn.Transform(np.abs)) == "Transform(absolute)"
