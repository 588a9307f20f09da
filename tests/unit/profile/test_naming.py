"""Fused steps are named by what the user called."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.profile.naming import compositions, named, place_of

F = gh.nn.functional


def names_of(fn, *shape):
    """The names of the kernels of a function."""
    x = gh.asarray(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))
    with flags.override(compile="always"):
        fn(x).numpy()
        with gh.profile() as prof:
            fn(x).numpy()
    return [row.name for row in prof.kernels()]


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "hardswish"])
def test_a_function_of_elements_has_its_name(name):
    assert names_of(getattr(F, name), 4, 8) == [name]


def test_products_stand_first_then_functions():
    w = gh.asarray(np.ones((8, 8), np.float32))
    text = " ".join(names_of(lambda x: F.relu(x @ w + 1), 4, 8))
    assert "matmul" in text and "relu" in text and "bitwise_or" not in text


def test_a_backward_step_has_the_name_of_its_function():
    def fn(x):
        x = x.detach()
        x.requires_grad = True
        F.relu(x * 2).sum().backward()
        return x.grad

    assert any("relu" in name for name in names_of(fn, 4, 8))


def test_random_numbers_are_named_so():
    names = names_of(lambda x: F.relu(x) * gh.random.uniform(x.shape), 4, 8)
    text = " ".join(names)
    assert "random numbers" in text and "shift_right" not in text


def test_compositions_are_those_of_the_functions_themselves():
    table = {name: parts for parts, name in compositions().items()}
    assert table["relu"] == ("less", "equal", "bitwise_or", "where")
    assert {"softmax", "gelu", "silu", "softplus"} <= table.keys()
    for parts, name in compositions().items():
        assert named(tuple(parts)) == (name,)


def test_what_is_no_function_stays_as_it_is():
    assert named(("add", "mul")) == ("add", "mul")
    assert place_of(("add", "mul", "add"), ["add", "mul"]) == -1
