"""The recomputation planner: budgets are met, values and gradients stay, plans can be read."""

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import MachineProfile, plan, step
from glasshouse.analyze.planner import planner as planner_module
from glasshouse.analyze.planner.blocks import (
    AppliedBlocks,
    Means,
    RematBlock,
    candidates_of,
    key_of,
)
from glasshouse.analyze.planner.chain import Option, Stage, cheapest
from glasshouse.analyze.planner.offload import HostLink
from glasshouse.analyze.planner.planner import ModelStep, Planner
from glasshouse.base.errors import OptionError
from glasshouse.base.flags import flags
from glasshouse.bench.cases import CASES


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


ROWS = 500  # from 512 on, matrices in a layout of oneDNN's own are part of the peak
DATA = [((ROWS, 32), "float32")] * 2
LOSS = gh.nn.functional.mse_loss
BUDGETS = int(os.environ.get("BUDGETS", "60"))  # on each model


def least_of(error) -> int:
    """The least budget that an error names."""
    return int(str(error).split("at least ")[1].split(" ")[0].replace(",", ""))


@pytest.mark.slow
def test_budgets_are_met_by_what_runs():
    with flags.override(compile="always"):
        model, opt = made()
        plain = step(model, LOSS, opt, DATA).peak_bytes
        peaks = []
        for part in (0.95, 0.8, 0.65, 0.55):
            choice = plan(model, LOSS, opt, DATA, part)
            assert choice.peak_bytes <= part * plain and choice.plain_bytes == plain
            with choice:
                assert step(model, LOSS, opt, DATA).peak_bytes == choice.peak_bytes
            assert step(model, LOSS, opt, DATA).peak_bytes == plain
            peaks.append(choice.peak_bytes)
        assert peaks == sorted(peaks, reverse=True)


@pytest.mark.slow
def test_random_budgets_are_never_exceeded():
    with flags.override(compile="always"):
        model, opt = made()
        plain = step(model, LOSS, opt, DATA).peak_bytes
        rng, least, met = np.random.default_rng(0), None, []
        first = plan(model, LOSS, opt, DATA, plain)
        for budget in rng.integers(plain // 3, plain, 12).tolist():
            try:
                result = first.at(budget)
            except OptionError as error:
                least = least_of(error)
                assert budget < least
                continue
            with result:
                assert step(model, LOSS, opt, DATA).peak_bytes == result.peak_bytes <= budget
            met.append(budget)
    assert least is not None and least <= min(met)


@pytest.mark.slow
def test_the_least_is_of_all_that_a_solver_may_choose():
    """Values that no block holds, as between the layers of a VGG, count as well."""
    inputs = [((8, 3, 64, 64), "float32"), ((8,), "int64")]
    with flags.override(compile="always"):
        gh.random.seed(0)
        model = gh.vision.models.vgg16(width=8, hidden=64, num_classes=100)
        opt = gh.optim.SGD(model.parameters(), lr=0.1)
        first = plan(model, gh.nn.functional.cross_entropy, opt, inputs, 1.0)
        with pytest.raises(OptionError) as caught:
            first.at(first.plain_bytes // 4)
        least = least_of(caught.value)
        by_blocks = first.planner.least.peak_bytes
        assert 0.99 * least < first.at(least).peak_bytes <= least < by_blocks


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_values_gradients_and_statistics_stay(backend):
    results = []
    with gh.backends.use(backend):
        x = gh.asarray(np.random.default_rng(0).standard_normal((ROWS, 32)).astype("float32"))
        for planned in (False, True):
            model, opt = made()
            with gh.backends.use("lazy"), flags.override(compile="always"):
                choice = plan(model, LOSS, opt, DATA, 0.7 if planned else 1.0)
            gh.random.seed(7)
            with choice:
                loss = LOSS(model(x), x)
                loss.backward()
                grads = [p.grad.numpy() for p in model.parameters()]
                results.append((loss.numpy(), grads, [b.numpy() for b in model.buffers()]))
    plain, planned = results
    assert np.array_equal(plain[0], planned[0])
    assert all(map(np.array_equal, plain[1] + plain[2], planned[1] + planned[2]))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["chain", "min-cut", "exact", "auto"])
def test_each_solver_meets_budgets_and_changes_no_bit(solver):
    if solver == "exact":
        pytest.importorskip("scipy")
    x = gh.asarray(np.random.default_rng(0).standard_normal((ROWS, 32)).astype("float32"))
    results = []
    with flags.override(compile="always"):
        for part in (1.0, 0.75, 0.6):
            model, opt = made()
            choice = plan(model, LOSS, opt, DATA, part, solver=solver)
            assert choice.peak_bytes <= part * choice.plain_bytes
            gh.random.seed(7)
            with choice:
                assert step(model, LOSS, opt, DATA).peak_bytes == choice.peak_bytes
                loss = LOSS(model(x), x)
                loss.backward()
            state = [loss, *(p.grad for p in model.parameters()), *model.buffers()]
            results.append([t.numpy() for t in state])
            names: dict = {"model": model}
            exec(choice.code(), names)
            assert step(model, LOSS, opt, DATA).peak_bytes == choice.peak_bytes
            names["applied"].undo()
            assert solver in ("chain", "auto") or part == 1.0 or choice.blocks[0].is_value
            assert "compute again" in str(choice) or part == 1.0
    for other in results[1:]:
        assert all(map(np.array_equal, results[0], other))


@pytest.mark.slow
def test_single_values_cost_less_than_blocks():
    """Analyse what the solvers over values choose in earnest: it takes no more time."""
    pytest.importorskip("scipy")
    with flags.override(compile="always"):
        model, opt = made()
        ns = {
            s: plan(model, LOSS, opt, DATA, 0.6, solver=s).extra_ns
            for s in ("chain", "min-cut", "exact", "auto")
        }
    assert ns["exact"] <= ns["min-cut"] <= ns["chain"] and ns["auto"] <= ns["chain"]


def test_unknown_solvers_are_refused():
    model, opt = made()
    with pytest.raises(OptionError, match="min-cut"):
        plan(model, LOSS, opt, DATA, 0.5, solver="mincut")


@pytest.mark.slow
def test_impossible_budgets_name_the_least_that_works():
    with flags.override(compile="always"):
        model, opt = made()
        with pytest.raises(OptionError, match="at least") as error:
            plan(model, LOSS, opt, DATA, 1000)
        least = least_of(error.value)
        assert plan(model, LOSS, opt, DATA, least).peak_bytes <= least
        for bad in (0.0, 1.5, -0.1):
            with pytest.raises(OptionError, match="above 0 and at most 1"):
                plan(model, LOSS, opt, DATA, bad)
        with pytest.raises(OptionError, match="got 1% of the peak: .* bytes"):
            plan(model, LOSS, opt, DATA, "1%")
        with pytest.raises(OptionError, match='got 4 bytes.* "4GiB"'):
            plan(model, LOSS, opt, DATA, "4")
        with pytest.raises(OptionError, match="paths of modules"):
            plan(model, LOSS, opt, DATA, 0.5, blocks=["7"])


@pytest.mark.slow
def test_plans_can_be_read_and_pasted():
    with flags.override(compile="always"):
        model, opt = made()
        choice = plan(model, LOSS, opt, DATA, 0.7)
        assert "compute again" in str(choice) and choice.extra_ns > 0
        names: dict = {"model": model}
        exec(choice.code(), names)
        assert step(model, LOSS, opt, DATA).peak_bytes == choice.peak_bytes
        names["applied"].undo()
        assert step(model, LOSS, opt, DATA).peak_bytes == choice.plain_bytes
        count = len(choice.planner.checked)
        assert choice.at(0.7).peak_bytes == choice.peak_bytes
        assert len(choice.planner.checked) == count and choice.at(1.0).blocks == []


def test_enough_memory_needs_no_plan():
    model, opt = made()
    assert plan(model, LOSS, opt, DATA, 1 << 40).blocks == []


@pytest.mark.parametrize("ways", [2, 3])
def test_the_choice_for_estimates_is_exact(ways):
    """Against all choices: what a block holds counts in those after it, and outside of them."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(40):
        options = [
            [
                Option(i, Stage(*rng.integers(1, 50, 2).tolist(), float(rng.integers(1, 50))))
                for i in range(ways)
            ]
            for _ in range(6)
        ]
        around = rng.integers(0, 40, 7).tolist()
        room = int(rng.integers(60, 220))
        costs = []
        for chosen in itertools.product(*options):
            before = [0, *itertools.accumulate(o.stage.held_bytes for o in chosen)]
            uses = [n + o.stage.used_bytes for n, o in zip(before, chosen, strict=False)]
            uses += [n + m for n, m in zip(before, around, strict=True)]
            if max(uses) <= room:
                costs.append(sum(o.stage.ns for o in chosen))
        result = cheapest(options, around, room)
        assert (result is None) == (not costs)
        if result is not None:
            pairs = zip(options, result, strict=True)
            assert sum(own[i].stage.ns for own, i in pairs) <= min(costs) + 0.5
        refused += result is None
    assert 0 < refused < 40
    assert cheapest([], [7], 7) == [] and cheapest([], [7], 6) is None


def test_candidates_are_the_blocks_that_repeat():
    resnet = gh.vision.models.resnet18(num_classes=10)
    assert candidates_of(resnet) == [f"layer{i}.{j}" for i in range(1, 5) for j in range(2)]
    vit = gh.vision.models.vit_b_16(num_layers=3)
    assert candidates_of(vit) == [f"encoder.layers.encoder_layer_{i}" for i in range(3)]


class Uneven(gh.nn.Module):
    """A block with a product that is worth its memory more or less."""

    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = gh.nn.Linear(256, width), gh.nn.Linear(width, 256)

    def forward(self, x):
        return x + self.outer(gh.nn.functional.gelu(self.inner(x)))


def uneven() -> Planner:
    gh.random.seed(0)
    model = gh.nn.Sequential(*(Uneven(width) for width in (384, 1024, 128, 640)))
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    training = ModelStep(model, LOSS, opt, [((384, 256), "float32")] * 2, None)
    return Planner(training, candidates_of(model), MachineProfile.load("cpu2"))


def test_a_chain_tells_what_mixtures_take():
    """Put together from analyses in which all blocks compute alike."""
    with flags.override(compile="always"):
        planner = uneven()
        outside = planner.plain.peak_bytes - planner.plain.arena_bytes
        messages, visited = [], set()
        for budget in np.linspace(planner.least.peak_bytes, planner.plain.peak_bytes, 12).tolist():
            choice = planner.choice(0, int(budget))
            if choice is not None:
                result = planner.check(choice.blocks)
                assert result.peak_bytes - outside <= 1.1 * (budget - outside)
                assert choice.ns == pytest.approx(result.ns, rel=0.03)
                visited.add(result.peak_bytes)
                messages.append(choice.ns)
        assert len(visited) > 4 and messages == sorted(messages, reverse=True)


WAYS = (None, "elementwise", "whole")


@pytest.mark.slow
def test_plans_are_near_the_optimum_that_all_choices_have():
    with flags.override(compile="always"):
        planner = uneven()
        every = [
            planner.check(
                [
                    RematBlock(path, means)
                    for path, means in zip(planner.paths, chosen, strict=True)
                    if means is not None
                ]
            )
            for chosen in itertools.product(
                (None, "elementwise", "whole"), repeat=len(planner.paths)
            )
        ]
        plain, least = planner.plain.peak_bytes, min(choice.peak_bytes for choice in every)
        for budget in np.linspace(least, plain, 7).astype(int).tolist():
            best = min(choice.ns for choice in every if choice.peak_bytes <= budget)
            planner = Planner(planner.step, planner.paths, planner.machine)
            result = planner.search(budget)
            assert result.peak_bytes <= budget and result.ns <= 1.03 * best
            assert len(planner.checked) < len(every) / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_budgets_of_the_models_are_met_or_refused(name):
    """60 random budgets on each model; BUDGETS=2000 is a long mode."""
    gh.random.seed(0)
    options, arrays = CASES[name].sizes(smoke=True)
    model = CASES[name].make(**options)
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    with flags.override(compile="always"):
        training = ModelStep(model, CASES[name].loss, opt, arrays, None)
        planner = Planner(training, candidates_of(model), MachineProfile.load("cpu2"))
        plain, outcomes, refused = planner.plain.peak_bytes, {}, []
        lowest = planner.least.peak_bytes
        rng = np.random.default_rng(1)
        budgets = [*rng.integers(9 * lowest // 10, plain + 1, BUDGETS - 1).tolist(), plain]
        for budget in budgets:
            try:
                result = planner.search(budget)
            except OptionError as error:
                refused.append((budget, least_of(error)))
                continue
            assert result.peak_bytes <= budget
            outcomes[key_of(result.blocks)] = result
        for result in outcomes.values():  # each plan once in earnest
            applied = AppliedBlocks(model, result.blocks)
            again = step(model, CASES[name].loss, opt, arrays).peak_bytes
            applied.undo()
            assert again == result.peak_bytes
        least = min(choice.peak_bytes for choice in planner.checked.values())
        assert all(budget < named == least for budget, named in refused)
        assert planner.search(least).peak_bytes == least
        peaks = [planner.search(b).peak_bytes for b in sorted(budgets) if b >= least]
    assert peaks == sorted(peaks) and outcomes and refused


OWN_MEMORY = replace(MachineProfile.load("cpu2"), host_bytes_per_s=5e9)


def wide() -> tuple:
    """A model whose blocks compute long for what they keep."""
    gh.random.seed(0)
    model = gh.nn.Sequential(*(Uneven(512) for _ in range(6)))
    return model, gh.optim.SGD(model.parameters(), lr=0.1), [((4096, 256), "float32")] * 2


@pytest.mark.slow
def test_blocks_are_offloaded_where_a_link_is_fast_enough():
    """Moving hides behind what the next block computes: no time is paid, and nothing computed
    again; a slow link, or none, is not used."""
    with flags.override(compile="always"):
        model, opt, data = wide()
        choice = plan(model, LOSS, opt, data, 0.6, machine=OWN_MEMORY, solver="chain")
        assert any(block.means == Means.OFFLOAD for block in choice.blocks) and "offload" in str(
            choice
        )
        assert choice.peak_bytes <= 0.6 * choice.plain_bytes
        assert "'offload')" in choice.code() and choice.extra_ns < 0.02 * choice.plain_ns
        slow = replace(OWN_MEMORY, host_bytes_per_s=1e6)
        for machine in (slow, "cpu2"):
            other = plan(model, LOSS, opt, data, 0.6, machine=machine, solver="chain")
            assert not any(block.means == Means.OFFLOAD for block in other.blocks)
            assert other.extra_ns > choice.extra_ns


def test_time_of_a_link_is_what_the_next_block_leaves():
    with flags.override(compile="always"):
        model, opt, data = wide()
        training = ModelStep(model, LOSS, opt, data, None)
        analysis = training.analyse(2, MachineProfile.load("cpu2"))
        paths = candidates_of(model)
        for rate in (1e6, 1e8, 1e12):
            link = HostLink(
                analysis, paths, "Sequential", replace(OWN_MEMORY, host_bytes_per_s=rate)
            )
            moving = 1e9 * link.block_bytes["1"] / rate
            next_ns = [
                sum(
                    k.ns
                    for k in analysis.kernels
                    if k.module.startswith("Sequential.2") and (k.phase == "forward") == way
                )
                for way in (True, False)
            ]
            expected = sum(max(0.0, moving - ns) for ns in next_ns)
            assert link.extra_ns("1") == pytest.approx(expected)
        assert link.extra_ns("1") == 0 and link.stage("5", Stage(1, 1, 1.0)) is None
        everything = link.peak_bytes(set(paths[:-1]))
        assert everything < link.peak_bytes({"0"}) < link.peak_bytes(set()) == analysis.peak_bytes
        # What is never away: what block 4 holds while block 5 runs, and block 5's own.
        assert analysis.peak_bytes - everything <= sum(link.block_bytes[p] for p in paths[:-1])


@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_offloaded_blocks_give_the_same_gradients(backend):
    results = []
    with gh.backends.use(backend):
        x = gh.asarray(np.random.default_rng(0).standard_normal((ROWS, 32)).astype("float32"))
        for chosen in ([], [RematBlock(str(i), "offload") for i in range(5)]):
            model, _ = made()
            gh.random.seed(7)
            applied = AppliedBlocks(model, chosen)
            loss = LOSS(model(x), x)
            loss.backward()
            applied.undo()
            state = [loss, *(p.grad for p in model.parameters()), *model.buffers()]
            results.append([t.numpy() for t in state])
    same = np.array_equal if backend == "numpy" else lambda a, b: np.allclose(a, b, 1e-4, 1e-6)
    assert all(map(same, *results))  # saving evaluates: that makes other Programs


class Contained(gh.nn.Module):
    """Blocks in containers, whose results are larger than what they keep inside."""

    def __init__(self):
        super().__init__()
        self.first, self.last = (gh.nn.Sequential(*(Block1() for _ in range(3))) for _ in range(2))

    def forward(self, x):
        return self.last(self.first(x))


def nested(model, *groups) -> list[RematBlock]:
    """The groups and all blocks in them."""
    inner = [path for path in candidates_of(model) if path.split(".")[0] in groups]
    return [RematBlock(path) for path in (*groups, *inner)]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_containers_are_checkpoints_of_checkpoints(backend):
    """Values, gradients and statistics stay, also where blocks run three times."""
    results = []
    with gh.backends.use(backend), flags.override(compile="always"):
        x = gh.asarray(np.random.default_rng(0).standard_normal((64, 32)).astype("float32"))
        for groups in ((), ("first", "last")):
            gh.random.seed(0)
            model = Contained()
            applied = AppliedBlocks(model, nested(model, *groups))
            LOSS(model(x), x).backward()
            applied.undo()
            state = [*(p.grad for p in model.parameters()), *model.buffers()]
            results.append([t.numpy() for t in state])
    assert all(map(np.array_equal, *results))


@pytest.mark.slow
def test_containers_keep_less_than_their_blocks():
    gh.random.seed(0)
    model = Contained()
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    with flags.override(compile="always"):
        training = ModelStep(model, LOSS, opt, [((8192, 32), "float32")] * 2, None)
        planner = Planner(training, candidates_of(model), MachineProfile.load("cpu2"))
        flat = planner.check([RematBlock(path) for path in planner.paths])
        deep = planner.check(nested(model, "first", "last"))
        assert deep.peak_bytes < flat.peak_bytes and deep.ns > flat.ns
        groups = planner.find_groups()
        assert {path: option.span for path, option in groups.items()} == {"first.0": 3, "last.0": 3}
        result = planner.search(deep.peak_bytes)
        assert result.peak_bytes <= deep.peak_bytes


@pytest.mark.slow
def test_few_of_many_equal_blocks_stand_for_all(monkeypatch):
    gh.random.seed(0)
    model = gh.nn.Sequential(*(Uneven(512) for _ in range(9)))
    opt = gh.optim.SGD(model.parameters(), lr=0.1)
    with flags.override(compile="always"):
        training = ModelStep(model, LOSS, opt, [((384, 256), "float32")] * 2, None)
        chains = []
        for least in (planner_module.MIN_ROW, 99):
            monkeypatch.setattr(planner_module, "MIN_ROW", least)
            planner = Planner(training, candidates_of(model), MachineProfile.load("cpu2"))
            chains.append(planner.chains)
            assert len(planner.checked) == (1 if least < 99 else 3)
    for short, whole in zip(*chains, strict=True):
        assert list(short.stages) == list(whole.stages)
        assert len(short.around) == len(whole.around)
        assert short.ns == pytest.approx(whole.ns, rel=0.01)
    for n in (0, -1):  # in between equal blocks differ by what stands before them
        assert chains[0][n].held_bytes == chains[1][n].held_bytes
