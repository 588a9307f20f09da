"""Fused steps are named by what the user called, and by nothing that was not."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import ShapeError
from glasshouse.base.flags import flags
from glasshouse.compile.programs.replay import in_python
from glasshouse.dispatch import primitives

F = gh.nn.functional


def names_of(fn, *shape, times: int = 3):
    """The names of the kernels of a function."""
    x = gh.asarray(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))
    with flags.override(compile="always"):
        for _ in range(times):  # the first time in Python, later replayed
            fn(x).numpy()
        with gh.profile() as prof:
            fn(x).numpy()
    return [row.name for row in prof.kernels()]


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "hardswish", "silu", "softplus"])
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


def test_a_function_within_a_function_is_not_named():
    """silu calls sigmoid."""
    assert names_of(lambda x: F.silu(x) + F.sigmoid(x * 2), 4, 8) == ["silu + mul + sigmoid + add"]


def test_a_recording_by_python_has_the_same_names():
    with in_python():
        assert names_of(F.hardswish, 4, 8) == ["hardswish"]


def test_captured_functions_have_the_same_names():
    assert names_of(gh.optimize(lambda x: F.hardswish(x) * 2), 4, 8) == ["hardswish + mul"]


def test_a_function_that_raises_names_nothing_after_it():
    with pytest.raises(ShapeError):
        F.softmax(gh.ones(3), dim=7)
    assert names_of(lambda x: x * 2 + 1, 4, 8) == ["mul + add"]


HAND_WRITTEN = {
    "the primitives of relu": lambda x: gh.where((x < 3) | (x == 3), x * 0 + 1, x),
    "those of vander": lambda x: x * x * (x * 3) * (x * 5) * 7,
    "those of softsign": lambda x: (x.abs() + 2.0) / x,
    "those of logit": lambda x: gh.log((x - 3) / (x * 2)),
    "those of softmax": lambda x: gh.exp(x - x.max()) / 3 + x.sum(),
    "those of silu": lambda x: gh.where(x < 1, -x, gh.exp(x)) + x / 3,
}


@pytest.mark.parametrize("what", HAND_WRITTEN)
def test_no_function_is_named_that_was_not_called(what):
    words = {w for name in names_of(HAND_WRITTEN[what], 4, 8) for w in name.split(" + ")}
    assert words <= set(primitives), words


@pytest.mark.parametrize("seed", range(8))
def test_generated_expressions_are_named_by_what_is_in_them(seed):
    """Chains of elementwise operators and functions: each word of a name was written."""
    rng = np.random.default_rng(seed)
    called = rng.choice(["silu", "relu", "softplus", "hardswish", "leaky_relu", "mish"], 2)
    symbols = rng.choice(["maximum", "minimum"], 5)

    def fn(x):
        y = getattr(F, called[0])(x)
        for i, symbol in enumerate(symbols):
            y = getattr(gh, symbol)(y, x + i) if i % 2 else y * x + i
        return getattr(F, called[1])(y)

    words = {w for name in names_of(fn, 4, 8) for w in name.split(" + ")}
    assert words <= {*primitives, *called}, words
    assert set(called) <= words
