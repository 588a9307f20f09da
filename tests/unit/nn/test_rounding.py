"""Training with rounding: values are those of 8 bits, gradients those of none."""

import copy

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError
from glasshouse.nn.quantized.training import rounded_through
from glasshouse.nn.utils import parametrize


def make_net():
    gh.random.seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)
    )


def inputs(count=8):
    gh.random.seed(1)
    return gh.random.normal((count, 1, 4, 4))


def test_rounding_is_exact_and_passes_gradients():
    x = gh.asarray([-2.5, -0.5, 0.49, 0.5, 1.5, 127.4, 100000.3]).requires_grad_()
    y = rounded_through(x)
    np.testing.assert_array_equal(y.numpy(), np.round(x.numpy()))
    (y * gh.arange(7)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.arange(7))


@pytest.mark.parametrize("scheme", ["int8_static", "int8_dynamic"])
def test_what_is_trained_is_what_is_quantised(scheme):
    """The network with rounding and the one of integers give the same, but for float32's errors."""
    net, x = nn.round_in_training(make_net(), scheme), inputs()
    for _ in range(3):
        net(x)
    net.eval()
    expected = net(x).numpy()
    result = nn.quantize(net, scheme)
    assert type(result[0]) is nn.Int8Conv2d and type(result[3]) is nn.Int8Linear
    step = np.abs(expected).max() / 100  # a code more or less where a sum is rounded otherwise
    np.testing.assert_allclose(result(x).numpy(), expected, atol=step)


def test_weights_alone_are_rounded_for_packed_ones():
    net, x = nn.round_in_training(nn.Sequential(nn.Linear(64, 5)), "int8"), gh.ones((2, 64))
    expected = net(x).numpy()
    assert not hasattr(net[0], "input_rounding")
    np.testing.assert_allclose(nn.quantize(net, "int8")(x).numpy(), expected, atol=1e-5)


def test_training_moves_the_originals_and_ranges():
    net = nn.round_in_training(make_net())
    optimizer = gh.optim.Adam(net.parameters(), lr=0.02)
    x, y = inputs(), gh.asarray([0, 1, 2, 0, 1, 2, 0, 1])
    losses = []
    for _ in range(25):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    rounding = net[0].input_rounding
    np.testing.assert_allclose(rounding.low.item(), x.numpy().min(), rtol=1e-5)
    before = rounding.low.item()
    net.eval()(x * 9)
    assert rounding.low.item() == before  # evaluation moves nothing
    net.train()(x * 9)
    expected = before + 0.1 * (9 * x.numpy().min() - before)
    np.testing.assert_allclose(rounding.low.item(), expected, rtol=1e-5)


def test_a_captured_step_trains_the_same():
    def trained(wrap):
        net = nn.round_in_training(make_net())
        optimizer = gh.optim.SGD(net.parameters(), lr=0.1)
        x, y = inputs(), gh.asarray([0, 1, 2, 0, 1, 2, 0, 1])

        def step(x, y):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        losses = [step(x, y).item() for _ in range(6)]
        return losses, net[0].input_rounding.high.item()

    np.testing.assert_allclose(*(trained(w)[0] for w in (lambda f: f, gh.optimize)), rtol=1e-4)


def test_state_is_saved_loaded_and_copied():
    net, x = nn.round_in_training(make_net()), inputs()
    net(x)
    other = nn.round_in_training(make_net())
    other.load_state_dict(net.state_dict())
    expected = net.eval()(x).numpy()
    for twin in (other.eval(), copy.deepcopy(net)):
        np.testing.assert_allclose(twin(x).numpy(), expected, atol=1e-6)


def test_wrong_calls_are_refused():
    with pytest.raises(OptionError, match="int8_static"):
        nn.round_in_training(make_net(), "int4")
    with pytest.raises(DTypeError, match="Module"):
        nn.round_in_training(3)
    with pytest.raises(OptionError, match="Sequential"):
        nn.round_in_training(nn.Linear(2, 3))
    net = nn.round_in_training(make_net())
    with pytest.raises(OptionError, match="weights that are parameters"):
        nn.round_in_training(net)
    with pytest.raises(OptionError, match="inputs of layer '0'"):
        nn.quantize(net, "int8_static")  # it never ran
    assert parametrize.is_parametrized(net[0], "weight")
