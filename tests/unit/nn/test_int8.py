"""Layers that compute in integers: what they compute, measure, hold and refuse."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.nn.quantized.integers import weight_codes

SCHEMES = ["int8_dynamic", "int8_static"]


def make_net():
    gh.random.seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding="same", groups=4, bias=False),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 10),
    )


def inputs(count=5):
    gh.random.seed(1)
    return gh.random.normal((count, 3, 8, 8))


def quantized(net, scheme, batches=None):
    more = {"calibrate": [inputs()] if batches is None else batches}
    return nn.quantize(net, scheme, **(more if scheme == "int8_static" else {}))


def codes_of(x, low, high):
    """Codes of x in float64: (code, scale, zero), as the definition reads."""
    low, high = np.minimum(low, 0).astype("f4"), np.maximum(high, 0).astype("f4")
    scale = ((high - low) / np.float32(255)).astype("f4")
    scale = np.where(scale == 0, np.float32(1), scale)
    zero = np.round(-128 - low / scale)
    return np.clip(np.round(x / scale) + zero, -128, 127).astype("i4"), scale, zero.astype("i4")


def twin_linear(layer, x, axis):
    """x Wᵀ + b of a layer in NumPy's integers."""
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    codes, scale, zero = codes_of(x, low, high)
    whole = (codes - zero) @ layer.codes.numpy().astype("i4").T
    return whole * scale.astype("f8") * layer.scale.numpy() + layer.bias.numpy()


@pytest.mark.parametrize("per_row", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_dynamic_layer_computes_as_its_definition(rows, per_row):
    gh.random.seed(0)
    net = nn.quantize(nn.Sequential(nn.Linear(37, 11)), "int8_dynamic", per_row=per_row)
    x = gh.random.normal((rows, 37)) + gh.arange(rows).reshape((rows, 1))
    expected = twin_linear(net[0], x.numpy(), 1 if per_row else (0, 1))
    np.testing.assert_allclose(net(x).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_results_are_near_those_of_floats(scheme):
    net, x = make_net(), inputs()
    before = net(x).numpy()
    after = quantized(net, scheme)(x).numpy()
    assert [type(m).__name__ for m in net][::2] == ["Int8Conv2d", "Int8Conv2d", "Flatten"]
    assert type(net[5]) is nn.Int8Linear
    assert 0 < np.abs(after - before).max() < 0.03 * np.abs(before).max()


@pytest.mark.parametrize("cls", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_convolutions_equal_those_of_rounded_numbers(cls, mode):
    gh.random.seed(0)
    layer = cls(2, 4, 3, padding=1, padding_mode=mode)
    net = nn.Sequential(layer)
    x = gh.random.normal((2, 2, *(5,) * layer.n)) + 0.5
    axes = tuple(range(1, x.ndim))
    array = x.numpy()
    low, high = array.min(axes, keepdims=True), array.max(axes, keepdims=True)
    codes, scale, zero = codes_of(array, low, high)
    nn.quantize(net, "int8_dynamic")
    layer.weight.data = net[0].weight
    expected = layer(gh.asarray(((codes - zero) * scale).astype("f4"))).numpy()
    np.testing.assert_allclose(net(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(net(x[0]).numpy(), net(x).numpy()[0])  # without a batch axis


def test_weights_are_off_by_half_a_step_of_their_row():
    w = np.random.default_rng(0).normal(size=(5, 3, 2)).astype("f4")
    w[2] = 0
    codes, scale = weight_codes(w)
    assert codes.dtype == np.int8 and codes.min() >= -127
    error = np.abs(codes * scale[:, None, None] - w)
    assert (error <= scale[:, None, None] * 0.5001).all()


def test_a_turned_layer_keeps_its_map():
    gh.random.seed(0)
    net, x = nn.Sequential(nn.TransposedLinear(64, 5)), gh.random.normal((3, 64))
    before = net(x).numpy()
    np.testing.assert_allclose(nn.quantize(net, "int8_dynamic")(x).numpy(), before, atol=0.1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_zeros_and_constants_are_exact(scheme):
    net = nn.Sequential(nn.Linear(8, 3))
    quantized(net, scheme, [gh.zeros((2, 8))])
    np.testing.assert_array_equal(net(gh.zeros((2, 8))).numpy(), [net[0].bias.numpy()] * 2)


def test_a_static_layer_limits_what_lies_outside():
    net = nn.Sequential(nn.Linear(1, 1, bias=False))
    net[0].weight.data = gh.ones((1, 1))
    quantized(net, "int8_static", [gh.asarray([[-1.0]]), gh.asarray([[3.0]])])
    result = net(gh.asarray([[-9.0], [-1.0], [3.0], [50.0]])).numpy()[:, 0]
    np.testing.assert_allclose(result, [-1, -1, 3, 3], atol=0.02)


def test_nan_is_seen_in_a_dynamic_result():
    net = nn.quantize(nn.Sequential(nn.Linear(4, 2)), "int8_dynamic")
    x = gh.ones((2, 4)).numpy().copy()
    x[0, 1] = np.nan
    result = net(gh.asarray(x)).numpy()
    assert np.isnan(result[0]).all() and np.isfinite(result[1]).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bfloat16_inputs_give_bfloat16(scheme):
    net = quantized(make_net(), scheme)
    x = inputs()
    result = net[0](x.to("bfloat16"))
    assert result.dtype == "bfloat16"
    expected = net[0](x).numpy()
    np.testing.assert_allclose(result.to("float32").numpy(), expected, atol=0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_state_is_saved_and_loaded(scheme, tmp_path):
    net, x = quantized(make_net(), scheme), inputs()
    expected = net(x).numpy()
    gh.random.seed(5)
    other = quantized(make_net(), scheme, [inputs(2) * 3])
    gh.save(net.state_dict(), tmp_path / "state.safetensors")
    other.load_state_dict(gh.load(tmp_path / "state.safetensors"))
    np.testing.assert_array_equal(other(x).numpy(), expected)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(twin(x).numpy(), expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_captured_calls_give_the_same(scheme):
    net, x = quantized(make_net(), scheme).eval(), inputs()
    expected = net(x).numpy()
    step = gh.optimize(lambda x: net(x))
    with gh.no_grad():
        for _ in range(4):
            result = step(x).numpy()
    assert step.hits > 0
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_products_are_counted(scheme):
    def total(net):
        with gh.FlopCounter() as counter:
            gh.eval(net(inputs()))
        return counter.total()

    before = total(make_net())
    assert before <= total(quantized(make_net(), scheme)) <= 1.6 * before


def test_analysis_sees_the_integers():
    net = quantized(make_net(), "int8_static")
    net.append(nn.Linear(10, 3))
    optimizer = gh.optim.SGD(net[6].parameters(), lr=0.1)
    batch = inputs(4), gh.zeros((4,), dtype="int64")
    costs = gh.analyze.step(net, nn.functional.cross_entropy, optimizer, batch)
    assert "conv in Sequential.2" in str(costs)
    assert costs.counter.total() >= 2 * 4 * 128 * 10


def test_layers_that_are_skipped_stay_and_shared_ones_are_one():
    shared = nn.Linear(4, 4)
    net = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2))
    nn.quantize(net, "int8_dynamic", skip=["3"])
    assert net[0] is net[2] and type(net[3]) is nn.Linear


def test_calibration_leaves_modes_and_hooks_alone():
    net = make_net().train()
    net.append(nn.Dropout(0.5))
    net[3].eval()
    quantized(net, "int8_static")
    assert [m.training for m in net] == [True, True, True, False, True, True, True]
    assert net[0].training


@pytest.mark.parametrize(
    "batch", [(gh.ones((2, 3)), gh.ones((2, 3))), {"a": gh.ones((2, 3)), "b": gh.ones((2, 3))}]
)
def test_batches_have_several_inputs(batch):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(3, 2)

        def forward(self, a, b):
            return self.map(a + b)

    net = nn.quantize(Two(), "int8_static", calibrate=[batch])
    np.testing.assert_allclose(net.map.input_scale.item() * 255, 2.0, rtol=1e-5)


def test_wrong_calls_are_refused():
    net = make_net()

    def refused(match, *args, **more):
        with pytest.raises(OptionError, match=match):
            nn.quantize(net, *args, **more)
        assert type(net[0]) is nn.Conv2d and not net[0]._forward_pre_hooks

    refused("int8_dynamic", "int8_dynamik")
    refused("with calibrate=batches", "int8_static")
    refused("no batches for 'int8_dynamic'", "int8_dynamic", calibrate=[inputs()])
    refused("at least one batch", "int8_static", calibrate=[])
    refused("an iterable of batches", "int8_static", calibrate=inputs())
    refused("an iterable of batches", "int8_static", calibrate=3)
    refused("a list of patterns", "int8_static", calibrate=[inputs()], skip="0")
    refused("finite inputs of layer '0'", "int8_static", calibrate=[inputs() * np.nan])
    refused("finite inputs of layer '0'", "int8_static", calibrate=[inputs(), inputs() * np.inf])
    with pytest.raises(ShapeError):  # of the model itself
        nn.quantize(net, "int8_static", calibrate=[gh.ones((2, 5, 8, 8))])
    assert type(net[0]) is nn.Conv2d and not net[0]._forward_pre_hooks
    unused = nn.Sequential(nn.Linear(2, 2))
    unused.other = nn.Linear(2, 2)
    unused.forward = lambda x: unused[0](x)
    with pytest.raises(OptionError, match="inputs of layer 'other'"):
        nn.quantize(unused, "int8_static", calibrate=[gh.ones((1, 2))])
    net[5].weight.data[0, 0] = np.inf
    refused("weights that are finite", "int8_dynamic")
    layer = nn.quantize(make_net(), "int8_dynamic")[5]
    with pytest.raises(ShapeError, match="128 features"):
        layer(gh.ones((2, 3)))
    with pytest.raises(DTypeError):
        layer(gh.ones((2, 128), dtype="int32"))
    with pytest.raises(OptionError, match="trained"):
        layer.reset_parameters()
    with pytest.raises(OptionError, match="gradients pass"):
        nn.lora.attach(nn.quantize(make_net(), "int8_dynamic"), "5")
    with pytest.raises(ShapeError, match="3 input channels"):
        nn.quantize(make_net(), "int8_dynamic")[0](gh.ones((2, 4, 8, 8)))
