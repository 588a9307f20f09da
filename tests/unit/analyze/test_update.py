"""Another optimizer or dtype: told from a step with plain descent, and what an analysis says."""

import pytest

import glasshouse as gh
from glasshouse.analyze import step, sweep
from glasshouse.analyze.step import TrainingStep, with_batch
from glasshouse.base.flags import flags
from glasshouse.bench.cases import CASES

OPTIMIZERS = {
    "SGD": {}, "momentum": {"momentum": 0.9}, "decay": {"momentum": 0.9, "weight_decay": 0.1},
    "Adam": {}, "AdamW": {}, "RMSprop": {}, "Adagrad": {},
}  # fmt: skip


def made(name: str, model):
    kind = getattr(gh.optim, name, gh.optim.SGD)
    return kind(model.parameters(), lr=1e-3, **OPTIMIZERS[name])


def check(costs, result):
    """Equal: the peaks to the byte, FLOPs to the integer, and the time of the same kernels."""
    assert costs.peaks == result.peaks and costs.peak_bytes == result.peak_bytes
    assert costs.flops == result.counter.total()
    assert costs.predicted_ns == pytest.approx(result.device_ns, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("autocast", [None, "bfloat16"])
@pytest.mark.parametrize("name", list(CASES))
def test_optimizers_of_the_models(name, autocast, monkeypatch):
    gh.random.seed(0)
    options, arrays = CASES[name].sizes(smoke=True)
    model = CASES[name].make(**options)
    inputs = [gh.asarray(a) for a in arrays]
    arguments = model, CASES[name].loss
    with flags.override(compile="always"):
        costs = sweep(*arguments, made("SGD", model), lambda n: with_batch(inputs, n))
        n = inputs[0].shape[0]
        costs.prepare((n,), (autocast,))
        whole = {o: step(*arguments, made(o, model), inputs, autocast=autocast) for o in OPTIMIZERS}
        monkeypatch.setattr(TrainingStep, "analyse", None)  # from here on nothing is analysed whole
        for optimizer, result in whole.items():
            check(costs(n, made(optimizer, model), autocast), result)


class Tied(gh.nn.Module):
    """Two parameters whose gradients are one value, and so is their state."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (gh.nn.Parameter(gh.ones((64, 64))) for _ in range(2))
        self.inner = gh.nn.Linear(64, 64)

    def forward(self, x):
        return self.inner(x) @ (self.a + self.b)


DATA = [((128, 64), "float32")] * 2
LOSS = gh.nn.functional.mse_loss


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_state_that_is_shared_is_seen(name):
    model = Tied()
    with flags.override(compile="always"):
        costs = sweep(model, LOSS, made("SGD", model), lambda n: with_batch(DATA, n))
        check(costs(128, made(name, model)), step(model, LOSS, made(name, model), DATA))


def test_state_that_is_there_counts():
    model = gh.nn.Sequential(gh.nn.Linear(64, 256), gh.nn.Tanh(), gh.nn.Linear(256, 64))
    adam, sgd = made("AdamW", model), made("SGD", model)
    x = gh.ones((128, 64))
    LOSS(model(x), x).backward()
    adam.step()
    with flags.override(compile="always"):
        costs = sweep(model, LOSS, sgd, lambda n: with_batch(DATA, n))
        check(costs(128, adam), step(model, LOSS, adam, DATA))
    assert len(adam.state) == 4 and all(p.grad is not None for p in model.parameters())


def test_batches_and_dtypes_come_with_it():
    model = gh.nn.Sequential(gh.nn.Linear(64, 256), gh.nn.Tanh(), gh.nn.Linear(256, 64))
    with flags.override(compile="always"):
        costs = sweep(model, LOSS, made("SGD", model), lambda n: with_batch(DATA, n))
        for autocast in (None, "bfloat16"):
            for n in (64, 96, 128):
                costs(n, autocast=autocast)
            predicted = step(
                model, LOSS, made("AdamW", model), with_batch(DATA, 112), autocast=autocast
            )
            check(costs(112, made("AdamW", model), autocast), predicted)


@pytest.mark.slow
@pytest.mark.parametrize("own", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", ["resnet50", "vit_b_16"])
def test_optimizers_and_dtypes_are_known_after_the_first_question(name, own, monkeypatch):
    gh.random.seed(0)
    options, arrays = CASES[name].sizes(smoke=True)
    model = CASES[name].make(**options)
    inputs = [gh.asarray(a) for a in arrays]
    arguments, n = (model, CASES[name].loss), inputs[0].shape[0]
    with flags.override(compile="always"):
        whole = {
            (kind, autocast): step(*arguments, made(kind, model), inputs, autocast=autocast)
            for kind in (own, "RMSprop")
            for autocast in (None, "bfloat16")
        }
        costs = sweep(*arguments, made(own, model), lambda n: with_batch(inputs, n))
        check(costs(n), whole[own, None])
        monkeypatch.setattr(TrainingStep, "analyse", None)  # from here on nothing is analysed whole
        check(costs(n, autocast="bfloat16"), whole[own, "bfloat16"])
        for (kind, autocast), result in whole.items():
            check(costs(n, made(kind, model), autocast), result)


class Global(gh.optim.SGD):
    """Updates that look at all gradients."""

    def step(self, closure=None):
        norm = sum((p.grad * p.grad).sum() for p in self.parameters())
        for p in self.parameters():
            p.grad = p.grad / norm
        return super().step(closure)


def test_an_optimizer_that_looks_at_all_gradients_is_analysed_whole():
    model = gh.nn.Sequential(gh.nn.Linear(64, 256), gh.nn.Tanh(), gh.nn.Linear(256, 64))
    with flags.override(compile="always"):
        costs = sweep(model, LOSS, made("SGD", model), lambda n: with_batch(DATA, n))
        optimizer = Global(model.parameters(), lr=0.1)
        check(costs(128, optimizer), step(model, LOSS, optimizer, DATA))
