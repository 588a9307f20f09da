"""Python's part of a step: what is counted, and what it is said to take."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import MachineProfile, calibration, step
from glasshouse.analyze.calibration import HostCalibration, costs_that_explain
from glasshouse.analyze.host import CallCounter, HostWork
from glasshouse.analyze.machine import HOST_COSTS, KERNEL_COSTS, SWEPT_BYTES
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import no_collection
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.watch import Watcher
from glasshouse.nn import functional as F

EACH = {"call_ns": 1.0, "node_ns": 1e3, "program_ns": 1e6, "array_ns": 1e9, "check_ns": 1e12}


class Classifier(gh.nn.Module):
    """An embedding, a normalisation and two layers."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = gh.nn.Embedding(11, 6), gh.nn.LayerNorm(6)
        self.inner, self.head = gh.nn.Linear(6, 7), gh.nn.Linear(7, 3)

    def forward(self, tokens):
        return self.head(F.gelu(self.inner(self.norm(self.embed(tokens))))).mean(1)


def regression():
    rng = np.random.default_rng(0)
    model = gh.nn.Sequential(gh.nn.Linear(5, 8), gh.nn.Tanh(), gh.nn.Linear(8, 5))
    inputs = [gh.asarray(rng.standard_normal((4, 5), np.float32)) for _ in range(2)]
    return model, F.mse_loss, gh.optim.AdamW(model.parameters(), lr=1e-3), inputs


def classification():
    rng = np.random.default_rng(0)
    model = Classifier()
    inputs = [gh.asarray(rng.integers(0, 3, shape)) for shape in ((4, 6), (4,))]
    return model, F.cross_entropy, gh.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), inputs


CASES = {"regression": regression, "classification": classification}


class Runs(Watcher):
    """Counts Programs' runs, the nodes that were recorded for them, and their arrays."""

    nodes = programs = arrays = 0

    def program(self, run):
        self.programs += 1
        self.nodes += len(run.events)
        self.arrays += run.program.run_table.count - 1  # but for the arena


def real_work(model, loss, optimizer, inputs) -> HostWork:
    """Measure the work of Python in a step that runs, once all is compiled."""

    def train():
        optimizer.zero_grad()
        value = loss(model(inputs[0]), *inputs[1:])  # which a loop holds until it has read it
        value.backward()
        optimizer.step()

    with flags.override(compile="always"), no_collection():
        for _ in range(3):
            train()
        runs = Runs()
        runs.watch()
        try:
            train()
        finally:
            runs.unwatch()
        with CallCounter(backends.current()) as counter:
            train()
    return HostWork(counter.calls, runs.nodes, runs.programs, runs.arrays)


def test_the_time_of_python_is_what_it_does_at_the_machines_costs():
    machine = replace(MachineProfile.load("cpu2"), **EACH)
    costs = step(*classification(), machine=machine)
    work = costs.host_work
    assert min(work[:5]) > 0
    assert costs.host_ns == pytest.approx(
        work.calls + 1e3 * work.nodes + 1e6 * work.programs + 1e9 * work.arrays + 1e12 * work.checks
    )
    assert costs.predicted_ns == costs.kernel_ns + costs.host_ns
    assert costs.device_ns == costs.kernel_ns


@pytest.mark.parametrize("name", CASES)
def test_what_is_counted_is_what_a_real_step_does(name):
    with flags.override(compile="always"):
        predicted = step(*CASES[name]()).host_work
    real = real_work(*CASES[name]())
    assert predicted[1:4] == real[1:4]
    # The analysis also asks for what waits; a real one computes indices that it checks.
    assert real.calls - 15 * predicted.checks <= predicted.calls <= real.calls + 5


@pytest.mark.parametrize("name", CASES)
def test_one_step_tells_what_the_steady_state_does(name):
    assert step(*CASES[name](), steps=1).host_work == step(*CASES[name](), steps=3).host_work


def test_each_parameter_adds_the_same():
    def work(count):
        layers = [gh.nn.Linear(4, 4, bias=False) for _ in range(count)]
        model = gh.nn.Sequential(*layers)
        opt = gh.optim.SGD(model.parameters(), lr=0.1)
        return np.array(step(model, F.mse_loss, opt, [((2, 4), "float32")] * 2).host_work)

    two, three, four = map(work, (2, 3, 4))
    assert (three - two == four - three).all() and (three - two)[:2].min() > 0
    assert (three - two)[3] == 3  # read, updated, and its gradient


def test_counting_leaves_peaks_and_kernels_alone():
    with_counts = step(*regression())
    costs = gh.analyze.sweep(*regression()[:3], lambda n: [((n, 5), "float32")] * 2, dtypes=())(4)
    assert costs.peaks == with_counts.peaks and costs.predicted_ns == with_counts.device_ns


def test_the_text_shows_kernels_and_python_apart():
    costs = step(*regression())
    assert costs.host_ns > 0 and " of Python on cpu2" in str(costs)
    assert costs.to_dict()["host_ns"] == costs.host_ns
    assert "of Python" not in str(step(*regression(), machine="h200"))


def test_a_profile_that_knows_nothing_of_python_says_nothing_of_it():
    costs = step(*regression(), machine="h200")
    assert costs.host_ns == 0 and costs.predicted_ns == costs.kernel_ns


def test_costs_are_those_that_explain_the_times():
    rng = np.random.default_rng(0)
    works = [HostWork(*row) for row in rng.integers(1, 100, (9, 7)).tolist()]
    each = (3.0, 50.0, 900.0, 7.0, 20.0, 800.0, 9.0)
    times = [float(np.dot(each, work)) for work in works]
    assert costs_that_explain(works, times, times) == pytest.approx(each)


def test_no_cost_is_negative():
    works = [HostWork(*row) for row in ([1, 0], [1, 1], [2, 1])]
    costs = costs_that_explain(works, [10.0, 5.0, 20.0], [1.0] * 3)
    assert min(costs) == 0 and costs[0] > 0


@pytest.mark.slow
def test_calibration_counts_synthetic_steps_and_finds_their_costs():
    host = HostCalibration(smoke=True)
    for _ in range(host.rounds):
        host.measure()
    captured = [own.work for own in host.steps if own.work.captured]
    assert all(min(own.work[:4]) > 0 for own in host.steps if not own.work.captured)
    assert captured and all(work.calls > 0 and work.handed > 0 == work.nodes for work in captured)
    kernels = MachineProfile.load("cpu2")
    counts = np.array([own.kernel_starts(kernels)[0] for own in host.steps])
    assert counts[:, 0].min() > 0 and (counts[:, :2].max(axis=0) > 0).all()
    assert (counts[:, 2] > 0).sum() == 2  # the recurrent layers' loops
    complete = host.complete(kernels)
    assert min(getattr(complete, name) for name in KERNEL_COSTS) >= 0 < complete.overhead_ns
    costs = host.costs()
    assert 0 < costs.pop("warm") <= 1
    assert set(costs) == set(HOST_COSTS) and min(costs.values()) >= 0 < sum(costs.values())


def test_products_in_a_loop_have_the_rate_of_their_own_size():
    free = {"overhead_ns": 0.0, "bandwidth": [(1.0, 1e30)], "elementwise": 1e30}
    machine = replace(MachineProfile.load("cpu2"), **free)
    machine.matrix = {"matmul float32": [(1.0, 1e6), (1e9, 1e15)]}  # faster if taken as one product
    few, many = (loops_ns(machine, length) for length in (10, 100))
    assert few > 0 and many == pytest.approx(10 * few)
    turns = replace(machine, loop_ns=50.0)
    more = [loops_ns(turns, length) - loops_ns(machine, length) for length in (10, 100)]
    assert more[0] > 0 and more[1] == pytest.approx(10 * more[0])


def loops_ns(machine, length):
    """The ns of the compiled loops in a recurrent layer's step."""
    rnn = gh.nn.RNN(8, 8, batch_first=True)
    inputs = [((4, length, 8), "float32"), ((4, length, 8), "float32")]
    costs = step(rnn, lambda out, y: F.mse_loss(out[0], y), gh.optim.SGD, inputs)
    infos = [info for run in costs.runs for info in run.plan.step_infos()]
    return sum(machine.ns(info) for info in infos if info.name == "scan")


def test_small_products_take_as_long_as_the_smallest_measured_and_a_start_each():
    machine = MachineProfile.load("cpu2")
    size, rate = machine.rates("matmul", "float32")[0]
    tiny, smallest = (machine.computing_s(0, [("matmul float32", n)]) for n in (2, size))
    assert tiny == smallest == size / rate
    started = replace(machine, product_ns=3_000.0).computing_s(0, [("matmul float32", 2)])
    assert started == pytest.approx(tiny + 3e-6)
    draws = [("random_bits uint32", n) for n in (10, 20)]  # of which one rate is known
    few, many = (machine.computing_s(0, [x]) for x in draws)
    assert many == pytest.approx(2 * few)


def test_python_takes_less_beside_kernels_that_leave_its_data_in_the_caches():
    machine = replace(MachineProfile.load("cpu2"), **EACH, warm=0.5)
    work = HostWork(calls=1000)
    times = [machine.host_ns(work, nbytes) for nbytes in (0, SWEPT_BYTES / 2, SWEPT_BYTES, 1e12)]
    assert times == pytest.approx([500, 750, 1000, 1000])
    small = step(*regression(), machine=machine)
    assert small.host_ns < 0.51 * machine.host_ns(small.host_work)


def test_nested_profilers_go_on_after_the_count():
    events = []
    sys.setprofile(lambda *event: events.append(event[1]))
    try:
        with CallCounter(backends.current()) as counter:
            len("abc")
        before = len(events)
        len("abc")
    finally:
        sys.setprofile(None)
    assert counter.calls >= 1 and len(events) > before


def test_timed_steps_follow_others_of_their_kind(monkeypatch):
    """On a clock of its own, on which a step takes 100 ns less each time, and 7 more if swept."""
    own = calibration.synthetic_steps(smoke=True)[0]
    clock, runs, swept = [0], [0], np.zeros(1, np.uint8)

    def train():
        clock[0] += max(0, 100 * (calibration.IN_A_ROW - runs[0])) + 7 * (swept[0] == 0)
        runs[0], swept[0] = runs[0] + 1, 1

    swept[0] = 1
    monkeypatch.setattr(calibration, "thread_time_ns", lambda: clock[0])
    monkeypatch.setattr(calibration, "SWEPT", swept)
    monkeypatch.setattr(own, "train", train)
    own.measure()
    assert (own.warm_times, own.times) == ([0], [7])
