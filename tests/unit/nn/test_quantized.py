"""Layers with weights of few bits: what they hold, compute and refuse."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.nn import lora

KINDS = [("int8", 32), ("int4", 32), ("int4", 64)]


def make_net():
    gh.random.seed(0)
    return nn.Sequential(nn.Embedding(7, 128), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 3))


def errors_of(kind, group):
    """The largest error of a weight of the second layer, in steps of its row or group."""
    net = make_net()
    w = net[1].weight.numpy().copy()
    nn.quantize(net, kind, group=group)
    size = 128 if kind == "int8" else group
    x = w.reshape(64, -1, size)
    span = np.abs(x).max(-1) / 127 if kind == "int8" else (x.max(-1) - x.min(-1)) / 15
    error = np.abs(net[1].weight.numpy() - w).reshape(x.shape)
    return (error / span[..., None]).max()


@pytest.mark.parametrize(("kind", "group"), KINDS)
def test_a_weight_is_off_by_half_a_step(kind, group):
    most = 0.5 if kind == "int8" else 0.53  # the shift is rounded to float16
    assert errors_of(kind, group) <= most + 1e-4


@pytest.mark.parametrize(("kind", "group"), KINDS)
def test_a_layer_computes_with_its_unpacked_weight(kind, group):
    net = nn.quantize(make_net(), kind, group=group)
    layer, x = net[1], gh.random.normal((2, 5, 128))
    expected = x.numpy() @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), expected, atol=1e-5)
    tokens = gh.asarray([[6, 0]])
    np.testing.assert_array_equal(net[0](tokens).numpy(), net[0].weight.numpy()[[[6, 0]]])


def test_tables_have_8_bits_and_share_them_with_a_head():
    net = make_net()
    net[3] = nn.Linear(128, 7, bias=False)
    net[3].weight = net[0].weight
    nn.quantize(net, "int4")
    assert (net[0].form.name, net[1].format, net[3].format) == ("int8:128", "int4:32", "int8:128")
    assert net[3].packed is net[0].packed


def test_a_turned_layer_keeps_its_map():
    net, x = nn.Sequential(nn.TransposedLinear(64, 5)), gh.random.normal((3, 64))
    before = net(x).numpy()
    np.testing.assert_allclose(nn.quantize(net)(x).numpy(), before, atol=0.05)
    assert net[0].packed.shape == (5, 1, 68)


def test_layers_that_are_skipped_stay():
    net = nn.quantize(make_net(), "int4", skip=["0", "3"])
    assert [type(layer).__name__ for layer in net] == [
        "Embedding",
        "QuantizedLinear",
        "ReLU",
        "Linear",
    ]


def test_state_is_saved_and_loaded():
    net, other = nn.quantize(make_net()), nn.quantize(make_net())
    other[1].packed.copy_(gh.zeros_like(other[1].packed))
    other.load_state_dict(net.state_dict())
    x = gh.asarray([1, 2])
    np.testing.assert_array_equal(net(x).numpy(), other(x).numpy())


def test_adapters_beside_packed_weights_are_trained():
    net = nn.quantize(make_net(), "int4")
    lora.attach(net, ["0", "1"], rank=2)
    optimizer = gh.optim.Adam(lora.parameters(net), lr=0.05)
    tokens, goal = gh.asarray([0, 1, 2]), gh.asarray([2, 0, 1])
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(net(tokens), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    with pytest.raises(OptionError, match="packed numbers"):
        lora.merge(net)


def test_gradients_pass_through_packed_weights():
    layer = nn.quantize(nn.Sequential(nn.Linear(64, 4)), "int4")[0]
    x = gh.random.normal((2, 64)).requires_grad_()
    (layer(x) * gh.arange(4)).sum().backward()
    expected = np.broadcast_to(np.arange(4) @ layer.weight.numpy(), (2, 64))
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-5)


def test_products_are_counted():
    net = nn.quantize(nn.Sequential(nn.Linear(64, 32)))
    with gh.FlopCounter() as counter:
        gh.eval(net(gh.ones((3, 64))))
    assert counter.total() >= 2 * 3 * 64 * 32


def test_wrong_calls_are_refused():
    net = make_net()
    with pytest.raises(OptionError, match="int8"):
        nn.quantize(net, "int3")
    with pytest.raises(OptionError, match="whole groups of 96"):
        nn.quantize(net, "int4", group=96)
    with pytest.raises(OptionError, match="even"):
        nn.quantize(net, "int4", group=7)
    with pytest.raises(DTypeError, match="Module"):
        nn.quantize(3)
    with pytest.raises(OptionError, match="Sequential"):
        nn.quantize(nn.Linear(2, 3))
    assert type(net[1]) is nn.Linear  # nothing is half-changed
    net[1].weight.data[0, 0] = np.inf
    with pytest.raises(OptionError, match="weights within"):
        nn.quantize(net)
    table = nn.quantize(make_net())[0]
    with pytest.raises(IndexOutOfRangeError, match="7"):
        table(gh.asarray([7]))
    with pytest.raises(DTypeError):
        table(gh.asarray([1.0]))
    with pytest.raises(ShapeError, match="uint8"):
        nn.QuantizedLinear(gh.zeros((3, 2, 20), dtype="uint8"), 65, "Q4_1")
    with pytest.raises(OptionError, match="a format"):
        nn.QuantizedLinear(gh.zeros((3, 2, 20), dtype="uint8"), 64, "Q9")
    with pytest.raises(OptionError, match="trained"):
        table.reset_parameters()
