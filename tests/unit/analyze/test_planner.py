"""The recomputation planner: budgets are met, values and gradients stay, plans can be read."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import plan, step
from glasshouse.analyze.planner import Block, candidates_of, choose, choose_by_ratio
from glasshouse.base.errors import OptionError
from glasshouse.base.flags import flags


class Block1(gh.nn.Module):
    def __init__(self, p=0.1):
        super().__init__()
        self.inner, self.norm = gh.nn.Linear(32, 128), gh.nn.BatchNorm1d(128)
        self.outer, self.drop = gh.nn.Linear(128, 32), gh.nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.outer(gh.tanh(self.norm(self.inner(x)))))


def made():
    gh.random.seed(0)
    model = gh.nn.Sequential(*(Block1() for _ in range(6)))
    return model, gh.optim.SGD(model.parameters(), lr=0.1)


DATA = [((512, 32), "float32")] * 2
LOSS = gh.nn.functional.mse_loss


def test_budgets_are_met_by_what_runs():
    with flags.override(compile="always"):
        model, opt = made()
        plain = step(model, LOSS, opt, DATA).peak_bytes
        peaks = []
        for part in (0.95, 0.8, 0.65, 0.55):
            found = plan(model, LOSS, opt, DATA, part)
            assert found.peak_bytes <= part * plain and found.plain_bytes == plain
            with found:
                assert step(model, LOSS, opt, DATA).peak_bytes == found.peak_bytes
            assert step(model, LOSS, opt, DATA).peak_bytes == plain
            peaks.append(found.peak_bytes)
        assert peaks == sorted(peaks, reverse=True)


def test_random_budgets_are_never_exceeded():
    with flags.override(compile="always"):
        model, opt = made()
        plain = step(model, LOSS, opt, DATA).peak_bytes
        rng, least = np.random.default_rng(0), None
        for budget in rng.integers(plain // 3, plain, 12).tolist():
            try:
                found = plan(model, LOSS, opt, DATA, budget)
            except OptionError as error:
                least = int(str(error).split("at least ")[1].split(" ")[0].replace(",", ""))
                assert budget < least
                continue
            with found:
                assert step(model, LOSS, opt, DATA).peak_bytes == found.peak_bytes <= budget
    assert least is not None


@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_values_gradients_and_statistics_stay(backend):
    results = []
    with gh.backends.use(backend):
        x = gh.asarray(np.random.default_rng(0).standard_normal((512, 32)).astype("float32"))
        for planned in (False, True):
            model, opt = made()
            if planned:
                with gh.backends.use("lazy"), flags.override(compile="always"):
                    plan(model, LOSS, opt, DATA, 0.7).apply()
            gh.random.seed(7)
            loss = LOSS(model(x), x)
            loss.backward()
            grads = [p.grad.numpy() for p in model.parameters()]
            results.append((loss.numpy(), grads, [b.numpy() for b in model.buffers()]))
    plain, planned = results
    same = np.array_equal if backend == "numpy" else lambda a, b: np.allclose(a, b, 1e-4, 1e-6)
    assert same(plain[0], planned[0])
    assert all(map(same, plain[1], planned[1])) and all(map(same, plain[2], planned[2]))


def test_impossible_budgets_name_the_least_that_works():
    with flags.override(compile="always"):
        model, opt = made()
        with pytest.raises(OptionError, match="at least") as error:
            plan(model, LOSS, opt, DATA, 1000)
        least = int(str(error.value).split("at least ")[1].split(" ")[0].replace(",", ""))
        assert plan(model, LOSS, opt, DATA, least).peak_bytes <= least
        for bad in (0.0, 1.5, -0.1):
            with pytest.raises(OptionError, match="above 0 and at most 1"):
                plan(model, LOSS, opt, DATA, bad)
        with pytest.raises(OptionError, match="paths of modules"):
            plan(model, LOSS, opt, DATA, 0.5, blocks=["7"])


def test_plans_can_be_read_and_pasted():
    with flags.override(compile="always"):
        model, opt = made()
        found = plan(model, LOSS, opt, DATA, 0.7)
        assert "compute again" in str(found) and found.extra_ns > 0
        names: dict = {"model": model}
        exec(found.code().replace("Applied(", "applied = Applied("), names)
        assert step(model, LOSS, opt, DATA).peak_bytes == found.peak_bytes
        names["applied"].undo()
        assert step(model, LOSS, opt, DATA).peak_bytes == found.plain_bytes


def test_enough_memory_needs_no_plan():
    model, opt = made()
    assert plan(model, LOSS, opt, DATA, 1 << 40).blocks == []


def test_choice_is_exact_and_greedy_one_is_enough():
    rng = np.random.default_rng(0)
    for _ in range(30):
        blocks = [
            Block(str(i), int(rng.integers(1, 50)), float(rng.integers(1, 50))) for i in range(10)
        ]
        wanted = int(rng.integers(1, sum(b.saved_bytes for b in blocks)))
        best = min(
            sum(b.extra_ns for i, b in enumerate(blocks) if mask >> i & 1)
            for mask in range(1 << 10)
            if sum(b.saved_bytes for i, b in enumerate(blocks) if mask >> i & 1) >= wanted
        )
        found = choose(blocks, wanted)
        assert sum(b.saved_bytes for b in found) >= wanted
        assert sum(b.extra_ns for b in found) <= best + 10
        greedy = choose_by_ratio(blocks, wanted)
        assert sum(b.saved_bytes for b in greedy) >= wanted


def test_candidates_are_the_blocks_that_repeat():
    resnet = gh.vision.models.resnet18(num_classes=10)
    assert candidates_of(resnet) == [f"layer{i}.{j}" for i in range(1, 5) for j in range(2)]
    vit = gh.vision.models.vit_b_16(num_layers=3)
    assert candidates_of(vit) == [f"encoder.layers.encoder_layer_{i}" for i in range(3)]
