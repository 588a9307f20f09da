"""NumPy's arrays and numbers beside tensors in captured code, as environments of reinforcement
learning give them."""

import random
import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.capture import explain

W = gh.asarray(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))


def arrays(shape=(2, 4), dtype=np.float64, seed=0):
    return (10 * np.random.default_rng(seed).random(shape)).astype(dtype)


FUNCTIONS = {
    "asarray": lambda x: gh.asarray(x) * 2,
    "asarray of a dtype": lambda x: gh.asarray(x, dtype=gh.float32) @ W,
    "tensor": lambda x: gh.tensor(x, dtype=gh.float32) @ W,
    "from_numpy": lambda x: gh.from_numpy(x).float() @ W,
    "from_numpy alone": lambda x: gh.from_numpy(x),
    "operand on the right": lambda x: W[0, 0] * x,
    "operand on the left": lambda x: x - W[0, 0],
    "compared": lambda x: gh.asarray([5.0]) < x,
    "function": lambda x: gh.sin(x) + gh.cos(x),
    "twice": lambda x: gh.asarray(x) - gh.from_numpy(x) * gh.asarray(x),
    "stacked": lambda x: gh.where(gh.asarray(x) > 5, x, 0.0),
    "in place": lambda x: gh.zeros((2, 4), dtype=gh.float64).add_(x),
}


@pytest.mark.sample(32)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_are_inputs_of_the_graph(name, dtype):
    fn = FUNCTIONS[name]
    fast = gh.optimize(fn)
    for seed in range(4):
        x = arrays(dtype=dtype, seed=seed)
        try:
            expected = fn(x)
        except gh.DTypeError:
            with pytest.raises(gh.DTypeError):
                fast(x)
            return
        result = fast(x)
        assert result.dtype is expected.dtype
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6, strict=True)
        if seed:
            assert fast.hits == seed
    assert not explain(fn, arrays(dtype=dtype)).breaks


def test_another_layout_is_captured_again_and_each_is_answered():
    fn = FUNCTIONS["asarray"]
    fast = gh.optimize(fn)
    for _ in range(2):
        for shape in ((2, 4), (3,), ()):
            for dtype in (np.float32, np.int64):
                x = np.asarray(arrays(shape, dtype))
                assert (fast(x).numpy() == fn(x).numpy()).all()
                assert fast(x).dtype is fn(x).dtype
    assert len(fast.capture.entries) == 6


def test_what_python_writes_between_and_after_calls_is_seen():
    def fn(x):
        return gh.asarray(x) + 1.0

    fast, x = gh.optimize(fn), np.zeros(3)
    first = fast(x)
    x[0] = 5.0
    assert fast(x).tolist() == [6.0, 1.0, 1.0]
    x[1] = 7.0
    result = fast(x)
    x[:] = 100.0
    assert result.tolist() == [6.0, 8.0, 1.0] and first.tolist() == [1.0, 1.0, 1.0]


def test_a_copy_is_no_longer_that_array_and_a_view_is():
    copies, shares = gh.optimize(lambda x: gh.asarray(x)), gh.optimize(lambda x: gh.from_numpy(x))
    for _ in range(3):
        x = np.zeros(3)
        copied, shared = copies(x), shares(x)
        x[0] = 1.0
        assert copied.tolist() == [0.0, 0.0, 0.0] and shared.tolist() == [1.0, 0.0, 0.0]


def test_the_array_in_an_attribute_and_in_a_closure():
    class Holder:
        state = np.ones(4, np.float32)

    holder = Holder()

    def fn(x):
        return (x * holder.state).sum()

    fast = gh.optimize(fn)
    for k in range(4):
        holder.state = np.full(4, k, np.float32)
        assert fast(gh.ones(4)).item() == 4 * k
    assert fast.hits == 3


def test_gradients_through_products_with_arrays():
    w = gh.asarray(np.ones(4, np.float32)).requires_grad_()

    def fn(x):
        return (gh.from_numpy(x) * w).sum()

    fast = gh.optimize(fn)
    for seed in range(3):
        x = arrays((4,), np.float32, seed)
        w.grad = None
        fast(x).backward()
        np.testing.assert_array_equal(w.grad.numpy(), x)


def test_a_subclass_is_left_to_python():
    class Units(np.ndarray):
        pass

    fn = FUNCTIONS["asarray"]
    x = arrays().view(Units)
    assert (gh.optimize(fn)(x).numpy() == fn(x).numpy()).all()


# -- numbers ----------------------------------------------------------------------------------


def chosen(x, a, b):
    return x * int(a < b) + gh.asarray([int(b >= a)])


def test_a_comparison_of_numbers_that_differ_is_made_in_each_call():
    draws, fast, x = random.Random(0), gh.optimize(chosen), gh.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            a, b = draws.random(), draws.random()
            assert fast(x, a, b).tolist() == chosen(x, a, b).tolist()
    assert len(fast.capture.entries) <= 4


def branched(x, a, b):
    y = x * 2.0
    return y + 1.0 if a < b else y - 1.0


def test_a_branch_on_numbers_that_differ_breaks_the_graph():
    draws, fast, x = random.Random(0), gh.optimize(branched), gh.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            a, b = draws.random(), draws.random()
            assert fast(x, a, b).tolist() == branched(x, a, b).tolist()
    assert len(fast.capture.entries) <= 8
    assert any("numbers that differ" in reason for _, reason, _ in fast.capture.breaks)


def test_numbers_that_stay_fix_the_branch():
    fast, x = gh.optimize(branched), gh.ones(2)
    for _ in range(5):
        fast(x, 1.0, 2.0)
    assert fast.hits == 4 and len(fast.capture.entries) == 1


class Walk:
    """An environment whose step works on no tensors."""

    def __init__(self):
        self.state = np.zeros(2)

    def step(self, push):
        place, speed = self.state
        self.state = self.state + 0.1 * np.array([speed, push - np.sin(place)])
        return self.state, bool(abs(self.state[0]) > 2.4)


def test_code_without_tensors_is_left_to_python_and_the_rest_is_captured():
    net = gh.nn.Linear(2, 1)

    def episode(steps):
        walk, values = Walk(), []
        state = walk.state
        for _ in range(steps):
            value = net(gh.from_numpy(state).float())
            state, done = walk.step(value.item())
            values.append(value)
            if done:
                break
        return gh.cat(values).sum()

    fast = gh.optimize(episode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            np.testing.assert_allclose(fast(40).item(), episode(40).item(), rtol=1e-5)
    with_graph = [entry for entry in fast.capture.entries if entry.operations]
    assert with_graph and len(fast.capture.entries) < 40
    assert any("has no operation" in reason for _, reason, _ in fast.capture.breaks)
