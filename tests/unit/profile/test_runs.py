"""Results worked out on whole columns are those of a loop over events and runs."""

import time

import numpy as np
import pytest
from tests.unit.profile.test_profiler import make_step

import glasshouse as gh
from glasshouse.profile.advice.evidence import Evidence
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.report import folded
from glasshouse.profile.spans import nearest_around
from glasshouse.profile.steps.steady import Spans, excerpt


@pytest.fixture(scope="module", params=["lazy", "numpy", "captured"])
def trace(request):
    step = make_step()
    backend = "numpy" if request.param == "numpy" else "lazy"
    with gh.backends.use(backend):
        if request.param == "captured":
            step = gh.optimize(step)
            step()
        with gh.profile(with_stack=True) as prof:
            for _ in range(5):
                step()
                prof.step()
    return prof.trace


def enclosing(begin, end, thread) -> list[int]:
    """The twin of `nearest_around`: a stack of the spans that are open."""
    order = sorted(range(len(begin)), key=lambda i: (thread[i], begin[i], -end[i]))
    around, opened = [-1] * len(order), []
    for i in order:
        while opened and (thread[opened[-1]] != thread[i] or end[opened[-1]] < end[i]):
            opened.pop()
        around[i] = opened[-1] if opened else -1
        opened.append(i)
    return around


def spans_within(rng, begin: int, end: int, depth: int) -> list[tuple[int, int]]:
    cuts = np.sort(rng.integers(begin, end + 1, 2 * rng.integers(0, 5))).tolist()
    spans = list(zip(cuts[::2], cuts[1::2]))
    inner = [x for b, e in spans if depth for x in spans_within(rng, b, e, depth - 1)]
    return spans + inner


@pytest.mark.parametrize("seed", range(20))
def test_spans_around_are_those_that_a_stack_finds(seed):
    rng = np.random.default_rng(seed)
    rows = [(*s, t) for t in range(3) for s in spans_within(rng, 0, 10 ** rng.integers(1, 5), 5)]
    columns = np.array(rows, np.int64).reshape(-1, 3)[rng.permutation(len(rows))].T
    assert nearest_around(*columns).tolist() == enclosing(*columns.tolist())


def test_many_spans_side_by_side_take_few_rounds():
    begin = np.arange(100_000)
    around = nearest_around(
        np.append(0, begin), np.append(100_000, begin + 1), 0 * np.append(0, begin)
    )
    assert around[0] == -1 and (around[1:] == 0).all()


def test_self_times_are_those_that_a_stack_finds(trace):
    events, steps = trace.events, trace.steps
    columns = [
        [*events[name].tolist(), *getattr(steps, name)[steps.device < 0].tolist()]
        for name in ("begin", "end", "thread")
    ]
    own = [end - begin for begin, end in zip(*columns[:2])]
    for i, around in enumerate(enclosing(*columns)):
        if around >= 0:
            own[around] -= columns[1][i] - columns[0][i]
    assert trace.self_ns.tolist() == own[: len(events)]


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_the_sets_of_equal_rows(seed):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(-3, 1 << bits, 200) for bits in (1, 2, 40, 40)[: seed + 1]]
    columns.append(columns[0] * 3)
    first, group = groups_of(*columns)
    rows, numbers = list(zip(*(c.tolist() for c in columns))), {}
    assert group.tolist() == [numbers.setdefault(row, len(numbers)) for row in rows]
    assert [rows[i] for i in first] == list(numbers)
    assert [len(x) for x in groups_of(np.zeros(0, np.int64))] == [0, 0]


def test_steps_are_those_of_each_run(trace):
    rows = []
    for i, run in enumerate(trace.runs):
        number = trace.number_of[id(run.program)]
        times = zip(run.begins_ns.tolist(), run.ends_ns.tolist(), strict=True)
        rows += [(number, step, i, *own, run.thread) for step, own in enumerate(times)]
    assert list(zip(*(c.tolist() for c in trace.steps[:6]))) == rows


def kernel_times(trace):
    """The twin of `kernel_ns_of_calls`: run by run, share by share."""
    kernel_ns, unseen = np.zeros(len(trace.events)), {}
    for run in trace.runs:
        program = trace.number_of[id(run.program)]
        for share in trace.shares:
            if share.program == program and share.place >= 0:
                ns = (run.ends_ns[share.step] - run.begins_ns[share.step]) * share.part
                event = run.events[share.place]
                if event >= 0:
                    kernel_ns[event] += ns
                else:
                    key = program, share.place
                    total = unseen.setdefault(key, [0.0, set()])
                    total[0] += ns
                    total[1].add(id(run))
    for event, e in enumerate(trace.events):
        if e["kind"] == gh.profile.record.COMPUTED:
            kernel_ns[event] = e["end"] - e["begin"]
    return kernel_ns, {key: (ns, len(runs)) for key, (ns, runs) in unseen.items()}


def test_time_of_kernels_is_shared_as_run_by_run(trace):
    kernel_ns, unseen = kernel_times(trace)
    assert np.allclose(trace.kernel_ns_of_events, kernel_ns, rtol=1e-12)
    results = {}
    for share, ns, runs in trace.unseen:
        key = share.program, share.place
        results[key] = results.get(key, (0.0, 0))[0] + ns, runs
    assert results.keys() == unseen.keys()
    for key, (ns, runs) in unseen.items():
        assert results[key] == (pytest.approx(ns), runs)


def test_calls_computed_at_once_are_a_kernel_each(trace):
    now = trace.events["kind"] == gh.profile.record.COMPUTED
    whole = with_kernels(trace)
    single = whole.steps.run < 0
    assert single.sum() == now.sum() and (np.diff(whole.steps.begin) >= 0).all()
    for row in np.flatnonzero(single).tolist():
        event, info = whole.steps.event[row], whole.info(whole.steps.program[row], 0)
        e = trace.events[event]
        assert info.name == trace.name_of(e) and whole.steps.begin[row] == e["begin"]
        assert info.origin.module == trace.scopes[e["scope"]]
    assert np.allclose(whole.kernel_ns_of_events, trace.kernel_ns_of_events)
    assert sum(ns for ns, _ in whole.time_of_steps.values()) == trace.kernel_ns


def test_runs_of_an_excerpt_are_moved_one_by_one(trace):
    _, (_, begin, _), _, (_, later, end), _ = trace.loop_steps()
    spans = Spans(np.array([begin, later]), np.array([(begin + later) // 2, end]))
    moved = excerpt(trace, spans).runs
    kept = [run for run in trace.runs if spans.contain(np.array([run.begin_ns]))[0]]
    assert len(moved) == len(kept)
    for run, was in zip(moved, kept):
        times = (run.begin_ns, run.end_ns), (was.begin_ns, was.end_ns)
        assert list(times[0]) == spans.clock(np.array(times[1])).tolist()
        assert run.ends_ns.tolist() == spans.clock(was.ends_ns).tolist()


@pytest.mark.parametrize("by", ["modules", "functions"])
@pytest.mark.parametrize("metric", ["kernel_ns", "self_ns"])
def test_folded_stacks_have_all_of_the_time(trace, metric, by):
    values = trace.kernel_ns_of_events if metric == "kernel_ns" else trace.self_ns
    whole = values[trace.is_op].sum() + (metric == "kernel_ns") * sum(x[1] for x in trace.unseen)
    stacks = folded(trace, metric, by)
    assert sum(ns for _, ns in stacks) == pytest.approx(whole, abs=len(stacks) + 1)


def forward_event(trace, event: int) -> int:
    e = trace.events[event]
    if trace.phases[e["phase"]] != "backward" or e["seq"] < 0:
        return event
    same = np.flatnonzero(trace.is_op & (trace.events["seq"] == e["seq"]))
    return int(same[0]) if len(same) else event


def test_the_forward_call_of_each_gradient_is_found(trace):
    places = np.arange(len(trace.events))
    assert trace.differentiated(places).tolist() == [forward_event(trace, i) for i in places]


def pauses_one_by_one(e: Evidence) -> dict:
    """The twin of `Evidence.pauses`: {(line before, line after, between steps): ns of each}."""

    def line(item) -> str:
        if item[2] >= 0:
            return e.line_at(int(item[2]))
        return e.line_of_stack(e.plain.program_runs[item[3]].stack) if item[3] >= 0 else ""

    gaps, marks = {}, e.spans.clock(e.spans.ends)
    for i in np.flatnonzero(e.is_pause).tolist():
        begin, end = e.items[i, 0] - e.gaps[i], e.items[i, 0]
        crossed = bool(((marks >= begin) & (marks <= end)).any()) or not i
        key = "" if crossed else line(e.items[i - 1]), line(e.items[i]), crossed
        gaps.setdefault(key, []).append(int(e.gaps[i]))
    return {key: own for key, own in gaps.items() if 2 * len(own) >= e.loop_steps}


@pytest.mark.parametrize("backend", ["lazy", "numpy"])
def test_pauses_are_those_of_a_loop_over_what_went_on(backend):
    with gh.backends.use(backend):
        step, x = make_step(), gh.ones(4)
        with gh.profile(with_stack=True) as prof:
            for _ in range(6):
                step()
                y = (x + 1).sum()
                time.sleep(0.02)
                y = (y * 2).numpy()
                prof.step()
    e = Evidence(prof.trace)
    own = pauses_one_by_one(e)
    assert {(p.before, p.after, p.between_steps): p.times for p in e.pauses} == {
        key: len(ns) for key, ns in own.items()
    }
    assert max(p.ns for p in e.pauses) >= 0.015e9 * e.loop_steps
    for p in e.pauses:
        ns = own[p.before, p.after, p.between_steps]
        assert p.ns == min(sum(ns), int(np.median(ns) * len(ns)))
