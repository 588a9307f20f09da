"""The cost of recording: measured, told, and no part of what advice promises."""

import itertools
import time

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.call import NO_COST, Call, NamedPrimitive
from glasshouse.profile import record, recording_cost
from glasshouse.profile.advice import advice
from glasshouse.profile.advice.evidence import Evidence
from glasshouse.profile.report import data_of
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.text import milliseconds
from glasshouse.profile.traces.recording_data import StoredRecording, recording_data

STEPS = 3


def recorded():
    """Steps of an ordinary loop: calls that pass Python one by one."""
    x = gh.asarray(np.ones((4, 4), np.float32))
    with flags.override(compile="always"):
        for _ in range(2):
            step(x)
        with gh.profile() as prof:
            for _ in range(STEPS):
                step(x)
                prof.step()
    return prof.trace


def step(x):
    for _ in range(5):
        x = gh.tanh(x @ x) + x
    return x.numpy()


def test_the_cost_of_a_call_is_measured_once(monkeypatch):
    monkeypatch.setattr(recording_cost, "costs", {})
    first = recorded().call_costs
    sizes, costs_ns = zip(*first[""], strict=True)
    assert list(first) == [""] and sizes == recording_cost.SWEEPS
    assert all(0 <= a <= b < 1e9 for a, b in itertools.pairwise(costs_ns))
    assert recorded().call_costs == first and len(recording_cost.costs) == 1


def test_measuring_is_seen_by_nobody_else(monkeypatch):
    monkeypatch.setattr(recording_cost, "costs", {})
    with gh.FlopCounter() as alone:
        step(gh.asarray(np.ones((4, 4), np.float32)))
    calls = []
    with gh.FlopCounter() as around, gh.add_op_callback(calls.append), gh.profile():
        step(gh.asarray(np.ones((4, 4), np.float32)))
    assert around.total("all") == alone.total("all") > 0
    assert sum(call.primitive.name == "add" for call in calls) == 5


def test_the_cost_is_the_profilers_part_and_not_pythons():
    trace = recorded()
    trace.call_costs = {}
    before = Breakdown(trace).ns
    trace = trace.plain_copy()
    trace.call_costs = {"": [[0.0, 50.0]]}
    after = Breakdown(trace).ns
    cost = 50 * int(trace.is_op.sum())
    assert (
        after["profiler"] - before.get("profiler", 0) == cost == before["Python"] - after["Python"]
    )
    assert sum(after.values()) == trace.wall_ns
    result = Evidence(trace)
    assert result.wall_ns == result.plain.wall_ns - result.ns("profiler")
    assert data_of(trace)["call_costs"] == {"": [[0.0, 50.0]]}
    assert f"recording costs {milliseconds(50)} a call" in Breakdown(trace).table()


@pytest.mark.parametrize("cost_ns", [0, 2_000, 10_000, 50_000, 250_000, 1e9])
def test_no_gain_is_more_than_a_step_without_the_profilers_own(cost_ns):
    """A cost that was measured while the machine was slow is more than what lies between calls."""
    torch = pytest.importorskip("torch")
    x = torch.ones(64, 64)
    with gh.profile() as prof:
        for _ in range(STEPS):
            for _ in range(20):
                x = torch.tanh(x)
            time.sleep(0.001)
            prof.step()
    trace = prof.trace
    assert set(trace.call_costs) == {"torch"} and trace.call_costs["torch"][0][1] > 0
    trace = trace.plain_copy()
    trace.call_costs = {"torch": [[0.0, cost_ns]]}
    result = Evidence(trace)
    calls = [g for g in result.groups if g.name == "aten::tanh"]
    taken = sum(g.own_ns for g in result.groups) + sum(p.ns for p in result.pauses)
    assert sum(g.kernel_ns for g in calls) <= taken <= result.wall_ns
    if cost_ns == 1e9:
        assert all(g.own_ns == g.kernel_ns for g in calls)
    assert all(item.gain_ns <= item.step_ns for item in advice(trace))


def events_of(rng, sizes):
    """Random events of two threads, of PyTorch's calls that move so many bytes, and their calls."""
    calls = {}
    for number, size in enumerate(sizes):
        primitive = NamedPrimitive(f"op{number}", "operator", "torch" if number % 3 else "")
        calls[-1 - number] = Call(primitive, (), {}, ())
        calls[-1 - number].cached_cost = NO_COST._replace(bytes=size)
    events = np.zeros(60, record.EVENT)
    events["kind"] = rng.choice([record.RECORDED, *3 * [record.COMPUTED], record.PULL], 60)
    events["what"] = rng.choice(list(calls), 60)
    events["thread"] = rng.integers(0, 2, 60)
    return events, calls


@pytest.mark.parametrize("seed", range(10))
def test_a_call_costs_what_recording_costs_after_the_bytes_moved_before_it(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes = [0, 100, 4_000, 5_000, 20_000, 10**9]
    events, calls = events_of(rng, sizes)
    monkeypatch.setattr(record, "calls", record.calls | calls)
    costs = {"torch": [[0, 10], [1_000, 20], [9_000, 100]], "": [[0, 1]]}
    expected, moved = [], {0: 0, 1: 0}
    for event in events:
        thread, what = int(event["thread"]), int(event["what"])
        if event["kind"] > record.COMPUTED:
            expected.append(0)
            continue
        points = np.array(costs[calls[what].primitive.library])
        expected.append(np.interp(moved[thread], points[:, 0], points[:, 1]))
        moved[thread] = sizes[-1 - what] if event["kind"] == record.COMPUTED else 0
    np.testing.assert_allclose(recording_cost.costs_of_events(events, costs), expected)
    assert 100 in expected and 10 in expected and 0 in expected


def test_cold_caches_are_paid_by_the_calls_after_a_sweep(monkeypatch):
    """On a clock of its own: 12 calls, before 4 of which bytes are moved."""
    clock = [0]
    hot_ns, cold_ns = 7, dict(zip(recording_cost.SWEEPS, (0, 5, 40, 60), strict=True))
    monkeypatch.setattr(recording_cost, "thread_time_ns", lambda: clock[0])
    x = gh.asarray(np.ones(4, np.float32))

    def program(between):
        y = x
        for _ in range(4):
            between()
            clock[0] += 1_000_000  # the calls' own time
            for i in range(3):
                y = gh.abs(y)
                if state.watchers.all:
                    clock[0] += hot_ns + (i == 0) * cold_ns[between.data.nbytes]

    kind = record.RecordingKind(*5 * [False])
    points = recording_cost.measure(program, kind)
    assert points == [[size, hot_ns + more_ns] for size, more_ns in cold_ns.items()]


def test_costs_of_an_earlier_version_are_the_same_for_all_calls():
    trace = recorded()
    data = recording_data(trace)
    data["call_costs"] = {"": 35.0}
    assert StoredRecording(data).call_costs == {"": [[0.0, 35.0]]}


def test_calls_after_large_kernels_cost_more():
    torch = pytest.importorskip("torch")
    small, large = torch.ones(8), torch.ones(1 << 16)
    with gh.profile() as prof:
        for x in (small, large, small, large, large):  # the fourth and the last follow a large one
            torch.tanh(x)
    trace = prof.trace.plain_copy()
    trace.call_costs = {}
    before = Breakdown(trace).ns.get("profiler", 0)
    trace = trace.plain_copy()
    trace.call_costs = {"torch": [[0.0, 1.0], [64.0, 1.0], [1 << 19, 11.0]]}
    assert Breakdown(trace).ns["profiler"] - before == 3 * 1 + 2 * 11
