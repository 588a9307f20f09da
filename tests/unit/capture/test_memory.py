"""Captured training steps take the memory of the plain loop in every call, as it is analysed."""

import gc
import weakref

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.capture.programs.bound_program import BoundProgram

F = nn.functional
MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)),
        (32, 64),
    ),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.Linear(16 * 8 * 8, 10),
        ),
        (16, 3, 16, 16),
    ),
}
OPTIMIZERS = {
    "adamw": lambda parameters: optim.AdamW(parameters, lr=1e-3),
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
}


class Training:
    """A model that is trained; `peaks` measures what its steps take."""

    def __init__(self, model: str, optimizer: str):
        make, shape = MODELS[model]
        gh.random.seed(0)
        self.model = make()
        self.opt = OPTIMIZERS[optimizer](self.model.parameters())
        rng = np.random.default_rng(0)
        self.x = gh.asarray(rng.normal(size=shape).astype("float32"))
        self.y = gh.asarray(rng.integers(0, 10, shape[0]))
        gh.eval(*self.model.parameters())

    def step(self, x, y):
        self.opt.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss

    def peaks(self, step, calls: int = 5) -> list[int]:
        gc.collect()
        manager, results = gh.memory.current(), []
        base = manager.stats().allocated_bytes - self.own_bytes()
        for _ in range(calls):
            manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
            loss = step(self.x, self.y)
            loss.item()
            results.append(manager.stats().peak_allocated_bytes - base)
        return results

    def own_bytes(self) -> int:
        before = gh.memory.current().simulate()
        kept = [before.alloc(p.nbytes) for p in self.model.parameters() if p.nbytes >= 1 << 12]
        allocated = before.stats().allocated_bytes
        del kept
        return allocated


@pytest.fixture
def compiled(monkeypatch):
    with gh.base.flags.having(gh.base.flags.flags, compile="always"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_every_captured_call_takes_what_the_plain_loop_takes(model, optimizer, compiled):
    plain = Training(model, optimizer)
    want = plain.peaks(plain.step)
    del plain
    captured = Training(model, optimizer)
    assert captured.peaks(gh.optimize(captured.step)) == want


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_the_analysis_predicts_the_captured_peak_to_the_byte(model, optimizer, compiled):
    training = Training(model, optimizer)
    inputs = [(training.x.shape, "float32"), (training.y.shape, "int64")]
    make = OPTIMIZERS[optimizer]
    costs = gh.analyze.step(training.model, F.cross_entropy, make, inputs, steps=3)
    assert training.peaks(gh.optimize(training.step), 3) == costs.peaks


def test_state_that_somebody_else_has_is_not_overwritten():
    training = Training("mlp", "sgd")
    fast = gh.optimize(training.step)
    for _ in range(3):
        fast(training.x, training.y)
    parameter = training.opt.param_groups[0]["params"][0]
    tensor = training.opt.state[parameter]["momentum_buffer"]
    state, values = training.opt.state[parameter], tensor.numpy().copy()
    fast(training.x, training.y)
    assert np.array_equal(tensor.numpy(), values)
    del tensor
    kept = training.opt.state[parameter]
    values = kept["momentum_buffer"].numpy().copy()
    fast(training.x, training.y)
    assert np.array_equal(kept["momentum_buffer"].numpy(), values) and state is not kept


def test_a_weak_reference_keeps_state_from_being_overwritten():
    class Cell:
        pass

    cell = Cell()
    cell.memory = gh.ones((64, 64)) * 2

    @gh.optimize
    def fn(x):
        cell.memory = cell.memory * 0.5 + x
        return x.sum()

    x = gh.ones((64, 64))
    for _ in range(3):
        fn(x)
    log = []
    link = weakref.ref(cell.memory, lambda _: log.append(1))
    values = link().numpy().copy()
    assert np.array_equal(link().numpy(), values)
    fn(x)
    assert log == [1]
    plain = 2.0
    for _ in range(4):
        plain = plain * 0.5 + 1
    assert np.all(cell.memory.numpy() == plain)


def test_what_a_run_returns_of_before_is_not_overwritten():
    parameter = nn.Parameter(gh.ones((64, 64)))

    @gh.optimize
    def fn(x):
        old = parameter.detach()
        with gh.no_grad():
            parameter.add_(x)
        return old

    x = gh.ones((64, 64))
    for n in range(1, 5):
        assert np.all(fn(x).numpy() == n)


def test_a_step_that_fails_on_its_first_run_leaves_tensors_that_can_be_read(monkeypatch):
    weight, cell = nn.Parameter(gh.ones((64, 64))), {}

    @gh.optimize
    def fn(x):
        with gh.no_grad():
            weight.add_(x)
        cell["sum"] = weight.detach() + x
        return x * 2

    def fail(*args, **kwargs):
        raise MemoryError("seeded")

    with monkeypatch.context() as patch, pytest.raises(MemoryError, match="seeded"):
        patch.setattr(BoundProgram, "run", fail)
        fn(gh.ones((64, 64)))
    assert np.all(weight.numpy() == 2.0) and np.all(cell["sum"].numpy() == 3.0)
    assert np.all(fn(gh.ones((64, 64))).numpy() == 2.0)
    assert np.all(weight.numpy() == 3.0)
