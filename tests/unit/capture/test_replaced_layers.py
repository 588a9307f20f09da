"""A layer without tensors that another takes the place of may change: its graph does not."""

import inspect

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.nn import Module

X = gh.asarray(np.linspace(-3, 4, 2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6))


def made(cls):
    """A layer of a class with the simplest arguments that it takes, in eval mode; None if it has
    tensors, or cannot be called with one."""
    for args in ((), (2,), (1,), (0.5,)):
        try:
            layer = cls(*args).eval()
            layer(X).numpy()
        except Exception:
            continue
        return layer if not [*layer.parameters(), *layer.buffers()] else None
    return None


LAYERS = {
    name: cls
    for name, cls in vars(gh.nn).items()
    if inspect.isclass(cls) and issubclass(cls, Module) and made(cls) is not None
}


class Net(Module):
    """A model with one layer."""

    def __init__(self, cls):
        super().__init__()
        self.inner = made(cls)

    def forward(self, x):
        return self.inner(x)


def other(value):
    """Another value that the same attribute may have."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else value


def test_layers_are_found():
    assert len(LAYERS) > 20 and {"ReLU", "LeakyReLU", "MaxPool2d"} <= set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_was_replaced_may_change(name):
    nets = [Net(LAYERS[name])]
    captured = gh.optimize("eager")(lambda x: nets[0](x))
    right = nets[0](X).numpy()
    captured(X)
    first = nets[0].inner
    numbers = {k: v for k, v in vars(first).items() if isinstance(v, (bool, int, float))}
    changes = [*numbers, "forward"]
    for change in changes:
        if change == "forward":
            first.forward = lambda x: x * 5
        else:
            vars(first)[change] = other(numbers[change])
        nets[0] = Net(LAYERS[name])
        np.testing.assert_array_equal(captured(X).numpy(), right, err_msg=change)
        vars(first).update(numbers)
    nets[0].inner.forward = lambda x: x * 7
    np.testing.assert_array_equal(captured(X).numpy(), (X * 7).numpy())


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_the_function_changes_is_as_it_has_changed(name):
    layers = [made(LAYERS[name]) for _ in range(2)]
    numbers = {k: v for k, v in vars(layers[0]).items() if type(v) in (int, float)}

    def outcome(fn, layer, value):
        try:
            return fn(X, layer, value).numpy()
        except Exception as error:
            return type(error).__name__

    for change, value in numbers.items():

        def fn(x, layer, value, change=change):
            setattr(layer, change, value)
            return layer(x)

        captured = gh.optimize("eager")(fn)
        for new in (other(value), value, other(value), value):
            expected, got = outcome(fn, layers[0], new), outcome(captured, layers[1], new)
            np.testing.assert_array_equal(got, expected, err_msg=f"{change} = {new}")


def test_the_graphs_copy_has_the_name_of_the_layer():
    net = Net(gh.nn.GELU)
    captured = gh.optimize("eager")(net)
    captured(X)
    with gh.FlopCounter() as counter:
        captured(X).numpy()
    assert "Net.inner" in counter.by_module(view="all")
