"""gh.optimize(memory_budget=…): captured steps stay within a budget, and compute what they did."""

import gc

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.base.flags import flags

LOSS = gh.nn.functional.mse_loss
X = np.random.default_rng(0).standard_normal((1024, 32)).astype("float32")


@pytest.fixture(autouse=True)
def compiled():
    gc.collect()  # what other tests left in use would count
    with flags.override(compile="always"):
        yield


class Part(gh.nn.Module):
    """With statistics that a forward pass updates, and random numbers."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = gh.nn.Linear(32, 128), gh.nn.BatchNorm1d(128)
        self.outer, self.drop = gh.nn.Linear(128, 32), gh.nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.outer(gh.tanh(self.norm(self.inner(x)))))


class Training:
    """A training whose whole step is captured, or the model alone."""

    def __init__(self, kind: str, budget=None, parts: int = 4):
        gh.random.seed(0)
        self.model = gh.nn.Sequential(*(Part() for _ in range(parts)))
        self.opt = gh.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.x, self.forward, self.plans = gh.asarray(X), self.model, []
        self.train = self.step
        if kind == "model":
            self.forward = gh.optimize(self.model, memory_budget=budget)
            self.plans = self.forward.memory_plans
        elif kind == "step":
            result = gh.optimize(self.step, memory_budget=budget)
            self.train, self.plans = result, result.memory_plans

    def step(self):
        self.opt.zero_grad()
        loss = LOSS(self.forward(self.x), self.x)
        loss.backward()
        self.opt.step()
        return loss

    def peak(self) -> int:
        """The most bytes in use during a step."""
        gc.collect()
        manager = gh.memory.current()
        manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
        self.train().item()
        return manager.stats().peak_allocated_bytes

    def results(self, steps: int) -> list:
        losses = [self.train().numpy() for _ in range(steps)]
        tensors = (*self.model.parameters(), *self.model.buffers())
        grads = [p.grad.numpy() for p in self.model.parameters()]
        return [*losses, *grads, *(t.numpy() for t in tensors)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step", "model"])
@pytest.mark.parametrize("part", [0.8, 0.6])
def test_values_and_gradients_stay_bit_for_bit(kind, part):
    """Of a model alone both passes are one graph with a budget: it is compared with one that is met
    without computing anything again."""
    plain = Training(kind, None if kind == "step" else 1.0).results(3)
    planned = Training(kind, part)
    assert all(map(np.array_equal, plain, planned.results(3)))
    assert planned.plans and all(result.blocks for result in planned.plans)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step", "model"])
def test_later_steps_take_what_is_planned(kind):
    whole = Training(kind, 1.0)
    peaks = [whole.peak() for _ in range(3)]
    assert peaks[-1] == whole.plans[-1].peak_bytes and not whole.plans[-1].blocks
    del whole
    log = []
    for budget in np.linspace(0.65, 0.95, 3) * peaks[-1]:
        planned = Training(kind, int(budget))
        measured = [planned.peak() for _ in range(3)]
        assert measured[-1] == measured[-2] <= int(budget)
        assert kind == "model" or measured[-1] == planned.plans[-1].peak_bytes
        log.append(measured[-1])
        del planned
    assert log == sorted(log) and len(set(log)) > 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step", "model"])
def test_impossible_budgets_change_nothing_and_name_the_least_that_works(kind):
    training = Training(kind, 100_000)
    before = [p.numpy().copy() for p in training.model.parameters()]
    for _ in range(2):
        with pytest.raises(OptionError, match="at least") as error:
            training.train()
    after = [p.numpy() for p in training.model.parameters()]
    assert all(map(np.array_equal, before, after))
    least = int(str(error.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    del training, before, after, error  # whose frames hold the model
    gc.collect()
    result = Training(kind, least)
    result.train()
    assert result.plans[0].peak_bytes <= least


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["SGD", "AdamW"])
def test_budgets_hold_without_a_collection(rule):
    """Memory that capture leaves in cycles is neither planned for nor in use when a graph runs
    again."""
    peaks, budget = [], None
    for _ in range(2):
        training = Training("none")
        training.opt = getattr(gh.optim, rule)(training.model.parameters(), lr=0.1)
        train, manager = (
            gh.optimize(training.step, memory_budget=budget or 1.0),
            gh.memory.current(),
        )
        gc.collect()
        gc.disable()
        try:
            for _ in range(4):
                manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
                train()
                peaks.append(manager.stats().peak_allocated_bytes)
        finally:
            gc.enable()
        assert peaks[-2:] == [train.memory_plans[-1].peak_bytes] * 2
        assert budget is None or peaks[-1] <= budget
        budget = int(0.8 * peaks[-1])
        del training, train


@pytest.mark.slow
def test_calls_are_counted_once():
    """By who watches: those of a first run as they are recorded, of others as they were."""
    counts = []
    for budget in (None, 1.0):
        training = Training("model", budget)
        training.train()
        with gh.FlopCounter() as counter:
            training.train()
        counts.append(counter.total())
    assert counts[0] == counts[1] > 0


@pytest.mark.slow
def test_memory_outside_may_grow():
    """A module is planned again where its budget would be passed."""
    budget = 7_000_000
    training = Training("model", budget)
    training.train()
    spare = budget - training.plans[0].peak_bytes
    kept = gh.asarray(np.zeros(spare // 4 + 1, "float32")) * 2.0
    gh.eval(kept)
    for _ in range(2):
        training.train()
    assert len(training.plans) == 2 and training.plans[1].peak_bytes <= budget
    assert training.plans[1].plain_bytes > training.plans[0].plain_bytes
    del kept


@pytest.mark.slow
def test_plans_are_shown():
    training = Training("step", 0.6)
    training.train()
    shown = str(gh.explain(training.train))
    assert all(f"-> {result.peak_bytes:,} bytes" in shown for result in training.plans)
    assert "compute again" in shown and "Block(" in training.plans[0].code()


@pytest.mark.slow
def test_a_context_has_a_budget():
    training = Training("plain")
    captured = gh.optimize(memory_budget=0.7)

    def train():
        return training.step()

    with captured:
        losses = [train().item() for _ in range(2)]
    plain = Training("plain")
    assert losses == [plain.step().item() for _ in range(2)]
    assert all(plan.peak_bytes <= 0.7 * plan.plain_bytes for plan in captured.memory_plans)
    assert captured.memory_plans


def test_functions_without_modules_and_inference_run():
    @gh.optimize(memory_budget=1.0)
    def fn(x):
        y = (gh.exp(x @ x.T).sum(axis=1) * 1e-3).sum()
        y.backward()
        return y

    x = gh.tensor(X[:64] / 9, requires_grad=True)
    assert np.isfinite(fn(x).item()) and x.grad is not None
    model = gh.nn.Sequential(Part(), Part()).eval()
    with gh.no_grad():
        small = gh.optimize(model, memory_budget=1)  # nothing is kept for a backward pass
        assert np.array_equal(small(gh.asarray(X)).numpy(), model(gh.asarray(X)).numpy())
    assert small.memory_plans == []


@pytest.mark.parametrize("bad", [0, -1, 1.5, 0.0, True, "half"])
def test_bad_budgets_are_refused(bad):
    with pytest.raises(OptionError, match="memory_budget"):
        gh.optimize(memory_budget=bad)


def test_other_compilers_have_no_budget():
    with pytest.raises(OptionError, match="program"):
        gh.optimize("eager", memory_budget=0.5)
