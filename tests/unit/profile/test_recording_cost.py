"""The cost of recording: measured, told, and no part of what advice promises."""

import time

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.profile import recording_cost
from glasshouse.profile.advice import advice
from glasshouse.profile.advice.evidence import Evidence
from glasshouse.profile.report import data_of
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.text import milliseconds

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
    assert list(first) == [""] and 0 <= first[""] < 1e6
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
    trace.call_costs = {"": 50.0}
    after = Breakdown(trace).ns
    cost = 50 * int(trace.is_op.sum())
    assert (
        after["profiler"] - before.get("profiler", 0) == cost == before["Python"] - after["Python"]
    )
    assert sum(after.values()) == trace.wall_ns
    result = Evidence(trace)
    assert result.wall_ns == result.plain.wall_ns - result.ns("profiler")
    assert data_of(trace)["call_costs"] == {"": 50.0}
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
    assert set(trace.call_costs) == {"torch"} and trace.call_costs["torch"] > 0
    trace = trace.plain_copy()
    trace.call_costs = {"torch": cost_ns}
    result = Evidence(trace)
    calls = [g for g in result.groups if g.name == "aten::tanh"]
    taken = sum(g.own_ns for g in result.groups) + sum(p.ns for p in result.pauses)
    assert sum(g.kernel_ns for g in calls) <= taken <= result.wall_ns
    if cost_ns == 1e9:
        assert all(g.own_ns == g.kernel_ns for g in calls)
    assert all(item.gain_ns <= item.step_ns for item in advice(trace))
