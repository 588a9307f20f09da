"""A step's time: which steps are steady, and tables and advice of those alone."""

import json
import time

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.watch import COMPILING, tell
from glasshouse.profile.advice import advice
from glasshouse.profile.advice.evidence import Evidence
from glasshouse.profile.report import data_of
from glasshouse.profile.spans import Spans, covered, union
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.steps.steady import LoopSteps, excerpt

SLEEP_S, START_S = 0.01, 0.4


class Recording:
    """Steps of some lengths and what of each was compiling, as `LoopSteps` looks at them."""

    begin_ns = 0

    def __init__(self, times, compiling, is_marked=True):
        ends = np.cumsum(times)
        begins = ends - times
        self.steps = [(i, *pair) for i, pair in enumerate(zip(begins, ends, strict=True))]
        fields = np.dtype([("begin", "i8"), ("end", "i8")])
        self.compiling = np.array(list(zip(begins, begins + compiling, strict=True)), fields)
        self.none, self.marks = self.compiling[:0], self.steps if is_marked else []
        self.end_ns = int(ends[-1])

    def loop_steps(self):
        return self.steps

    def regions(self, name):
        return self.none


@pytest.mark.parametrize(
    ("times", "compiling", "is_marked", "steady"),
    [
        ([100, 100, 100], [0, 0, 0], True, [0, 1, 2]),
        ([900, 100, 100], [800, 0, 0], True, [1, 2]),  # the first compiles
        ([900, 100, 100], [0, 0, 0], False, [1, 2]),  # the first begins with the recording
        ([300, 200, 100, 100, 100], [0] * 5, True, [2, 3, 4]),  # the first ones are slow
        ([100, 100, 300, 100, 100], [0] * 5, True, [0, 1, 2, 3, 4]),  # a later one is a step
        ([50, 50, 900, 20, 20, 20], [0, 0, 850, 0, 0, 0], True, [3, 4, 5]),  # compiled since then
        ([20] * 8 + [900, 20], [0] * 8 + [850, 0], True, [*range(8), 9]),  # too few since then
        ([900, 900, 900], [800] * 3, True, [0, 1, 2]),  # none is steady: all of them
        ([900], [0], False, [0]),
    ],
)
def test_steps_that_compile_or_begin_slowly_are_not_steady(times, compiling, is_marked, steady):
    steps = LoopSteps(Recording(np.array(times), np.array(compiling), is_marked))
    assert np.flatnonzero(steps.is_steady).tolist() == steady
    assert steps.median_ns == np.median(np.array(times)[steady])


def test_steps_around_the_median_are_the_middle_third():
    steps = LoopSteps(Recording(np.array([100, 140, 110, 120, 130, 105]), np.zeros(6, int)))
    assert (steps.middle.ends - steps.middle.begins).tolist() == [110, 120]


def test_a_clock_stands_still_outside_of_its_spans():
    rng = np.random.default_rng(0)
    for _ in range(20):
        edges = np.sort(rng.choice(60, 8, replace=False))
        spans = Spans(edges[::2], edges[1::2])
        inside = np.array([(t >= spans.begins).any() and spans.contain(t) for t in range(70)])
        clock = spans.clock(np.arange(70))
        assert (clock - clock[0]).tolist() == [int(inside[:t].sum()) for t in range(70)]
        rest = spans.without(0, 70)
        assert rest.total_ns + spans.total_ns == 70 and not covered([spans], *rest).any()


def test_a_union_lies_apart():
    rng = np.random.default_rng(1)
    for _ in range(20):
        begins = rng.integers(0, 50, 7)
        spans = Spans(begins, begins + rng.integers(1, 9, 7))
        whole = union([spans, spans])
        assert (whole.begins[1:] > whole.ends[:-1]).all()
        inside = {t for b, e in zip(*spans, strict=True) for t in range(b, e)}
        assert inside == {t for b, e in zip(*whole, strict=True) for t in range(b, e)}


class Slept:
    """A data set that takes a while for an item, as a step does beside it."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        time.sleep(SLEEP_S)
        return np.ones(4, np.float32)


@pytest.fixture(scope="module")
def script():
    """A script without `step()`: a long start, a first step that compiles, then a loop that waits
    for its data half of the time."""
    w = gh.nn.Parameter(np.ones(4, np.float32))
    optimizer = gh.optim.SGD([w], lr=0.1)
    with flags.override(compile="always"), gh.profile(with_stack=True) as prof:
        time.sleep(START_S)
        for i, x in enumerate(gh.data.DataLoader(Slept(), batch_size=1)):
            optimizer.zero_grad()
            (w * x).sum().backward()
            if not i:
                begin_ns = time.perf_counter_ns()
                time.sleep(START_S)
                tell("region", COMPILING, begin_ns)
            optimizer.step()
            w.numpy()
            time.sleep(SLEEP_S)
    return prof


def test_the_parts_of_a_step_add_up_to_the_median_steady_step(script):
    parts, steps = Breakdown(script.trace), LoopSteps(script.trace)
    assert len(steps) == 8 and not steps.is_steady[0]
    assert sum(parts.step.values()) == round(steps.median_ns)
    assert parts.step["waiting for data"] >= 0.95e9 * SLEEP_S
    assert "compiling" not in parts.step
    lines = parts.table().splitlines()
    assert any("median of" in line and "steady steps of 8" in line for line in lines)


def test_start_and_compiling_are_parts_of_the_recording_and_of_no_step(script):
    parts = Breakdown(script.trace).recording
    assert sum(parts.values()) == script.trace.wall_ns
    assert parts["start-up"] >= 0.95e9 * START_S and parts["compiling"] >= 0.95e9 * START_S
    assert parts["steady steps"] == Breakdown(script.trace).steps.steady.total_ns
    assert data_of(script.trace)["recording"] == parts


def test_advice_is_of_a_steady_step(script):
    result = Evidence(script.trace)
    steps = result.steps
    own_ns = result.recording_ns.sum() / result.loop_steps
    assert result.step_ns + own_ns == pytest.approx(steps.time_ns[steps.is_steady].mean())
    assert result.loop_steps == steps.is_steady.sum() < len(steps)
    waiting = next(item for item in advice(script.trace) if item.cause == "waiting for data")
    assert 0.95e9 * SLEEP_S <= waiting.cost_ns <= waiting.step_ns == result.step_ns


def test_an_excerpt_of_all_steps_has_the_same_kernels():
    w = gh.asarray(np.ones((8, 8), np.float32))
    with flags.override(compile="always"), gh.profile(with_stack=True) as prof:
        for _ in range(4):
            gh.tanh(w @ w).numpy()
            prof.step()
    trace, steps = prof.trace, LoopSteps(prof.trace)
    part = excerpt(trace, steps.spans)
    assert part.kernel_ns == trace.kernel_ns and part.is_op.sum() == trace.is_op.sum()
    assert part.kernel_ns_of_events.sum() == trace.kernel_ns_of_events.sum() > 0
    half = excerpt(trace, Spans(steps.spans.begins[::2], steps.spans.ends[::2]))
    assert half.wall_ns == steps.time_ns[::2].sum() and half.is_op.sum() * 2 == trace.is_op.sum()
    assert not half.unseen and len(half.loop_steps()) == 2


def test_a_recording_without_steps_is_one(tmp_path):
    with gh.profile() as prof:
        gh.ones(3).numpy()
    parts = Breakdown(prof.trace)
    assert sum(parts.step.values()) == prof.trace.wall_ns and not parts.recording
    prof.report(tmp_path / "r.html")


def test_the_page_has_the_advice_of_the_trace(script, tmp_path):
    """Of calls that were computed at once too, whose time is not Python's."""
    torch = pytest.importorskip("torch")
    w, x = torch.ones(256, 256), torch.ones(256, 256)
    with gh.profile() as prof:
        for _ in range(4):
            torch.tanh(x @ w).sum()
            prof.step()
    for recorded in (script, prof):
        page = recorded.report(tmp_path / "r.html").read_text(encoding="utf-8")
        data = json.loads(page.split("const D = ", 1)[1].split(";\nconst", 1)[0])
        costs = {item.cause: item.cost_ns for item in advice(recorded.trace)}
        assert {item["cause"]: item["cost_ns"] for item in data["advice"]} == costs


def test_lasting_steps_begin_with_the_first_that_compiles_nothing():
    def of(compiling):
        steps = LoopSteps(Recording(np.full(len(compiling), 100), np.array(compiling)))
        return len(steps.lasting.begins)

    assert of([90, 90, 0, 90, 0]) == 3 and of([0, 0]) == 2
    assert of([90, 90, 90]) == 3  # none: all of them
