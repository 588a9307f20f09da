"""Saved tensors go through hooks, and wait in the host's memory."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.autograd import saved_on_host, saved_tensors_hooks
from glasshouse.autograd.offload import Parked
from glasshouse.base.errors import GradError
from glasshouse.base.flags import flags


def made():
    gh.random.seed(0)
    model = gh.nn.Sequential(
        gh.nn.Linear(64, 256),
        gh.nn.BatchNorm1d(256),
        gh.nn.GELU(),
        gh.nn.Dropout(0.2),
        gh.nn.Linear(256, 64),
    )
    return model, gh.asarray(np.random.default_rng(0).standard_normal((256, 64)).astype("float32"))


def gradients(context) -> list:
    model, x = made()
    gh.random.seed(1)
    with context:
        y = model(x)
    (y * y).mean().backward()
    return [*(p.grad.numpy() for p in model.parameters()), *(b.numpy() for b in model.buffers())]


@pytest.mark.parametrize(
    "backend, host", [("numpy", "lazy"), ("lazy", "numpy"), ("numpy", "numpy")]
)
def test_gradients_stay_bit_for_bit(backend, host):
    with gh.backends.use(backend):
        plain = gradients(saved_tensors_hooks(lambda t: t, lambda t: t))
        parked = gradients(saved_on_host(host, smallest_bytes=1))
    with gh.backends.use("numpy"):
        true = gradients(gh.enable_grad())
    same = np.array_equal if backend == "numpy" else lambda a, b: np.allclose(a, b, 1e-4, 1e-6)
    assert all(map(same, plain, true)) and all(map(same, parked, true))
    if backend == "lazy":  # a program of the same parts: recorded and cut where it was
        assert all(map(np.array_equal, parked, gradients_again(backend, host)))


def gradients_again(backend, host):
    with gh.backends.use(backend):
        return gradients(saved_on_host(host, smallest_bytes=1))


def test_what_is_saved_moves_to_the_host(monkeypatch):
    moves, move = [], Parked.move
    monkeypatch.setattr(Parked, "move", lambda self, host: moves.append(self) or move(self, host))
    with gh.backends.use("lazy"):
        model, x = made()
        with saved_on_host("numpy"):
            y = model(x)
        assert moves and all(one.tensor.backend.name == "numpy" for one in moves)
        large = {one.tensor.shape for one in moves}
        assert (256, 256) in large and all(np.prod(s) * 4 >= 1 << 16 for s in large)
        parameters = [p.payload for p in model.parameters()]
        assert not any(one.tensor.payload is p for one in moves for p in parameters)
        assert len(moves) == len({id(one) for one in moves})
        y.sum().backward()
        assert all(p.grad.backend.name == "lazy" for p in model.parameters())


def test_memory_of_the_device_is_free_between_the_passes():
    """Values that only the tape holds are freed; the peak of the rest falls by it."""
    used = []
    for context in (gh.enable_grad(), saved_on_host()):
        x = gh.tensor(np.ones((512, 512), "float32"), requires_grad=True)
        with gh.backends.use("lazy"), flags.override(compile="always"), context:
            y = x * 1.0
            for _ in range(6):
                y = gh.exp(y * 0.1)
            total = y.sum()
            gh.eval(total)
        del y
        used.append(gh.memory.current().stats().allocated_bytes)
        total.backward()
        assert np.isfinite(x.grad.numpy()).all()
        del x, total
    assert used[1] <= used[0] - 5 * 512 * 512 * 4


def test_hooks_see_each_saved_tensor_and_nest():
    log, inner = [], []
    x = gh.tensor([2.0, 3.0], requires_grad=True)
    with saved_tensors_hooks(lambda t: log.append(t.shape) or t.numpy(), gh.asarray):
        y = gh.exp(x) * gh.sin(x * 1.0)
        with saved_tensors_hooks(lambda t: inner.append(1) or t, lambda t: t):
            y = gh.tanh(y)
    z = y * y
    assert log and inner and len(log) >= 2
    count = len(log)
    z.sum().backward(retain_graph=True)
    first = x.grad.numpy().copy()
    z.sum().backward()
    assert np.array_equal(x.grad.numpy(), 2 * first) and len(log) == count
    with pytest.raises(GradError):
        z.sum().backward()


def test_gradients_of_gradients_pass_hooks():
    x = gh.tensor(0.5, requires_grad=True)
    with saved_tensors_hooks(lambda t: t.numpy(), gh.asarray):
        (g,) = gh.autograd.grad(gh.sin(x) * x, x, create_graph=True)
    (h,) = gh.autograd.grad(g, x)
    assert h.item() == pytest.approx(2 * np.cos(0.5) - 0.5 * np.sin(0.5), rel=1e-5)
