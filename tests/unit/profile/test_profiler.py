"""The profiler: schedules, events of both sides, tables, memory, threads, bad input."""

import gc
import json
import resource
import runpy
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program
from glasshouse.dispatch.watch import ProgramRun
from glasshouse.profile import Comparison, ProfilerAction, schedule
from glasshouse.profile.report import data_of
from glasshouse.profile.stacks import MAX_FRAMES, fast_stack_key, stack_key
from glasshouse.profile.text import milliseconds, shortened
from glasshouse.profile.traces import chrome


class Net(gh.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = gh.nn.Conv2d(3, 8, 3), gh.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(gh.nn.functional.relu(self.conv(x)).mean((2, 3)))


def make_step(seed=0):
    gh.random.seed(seed)
    model = Net()
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = gh.random.normal((4, 3, 10, 10)), gh.asarray([0, 1, 2, 3])

    def step():
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@pytest.fixture(scope="module")
def prof():
    with flags.override(compile="always"):
        step = make_step()
        step(), step()
        with gh.profile(record_shapes=True, with_stack=True, profile_memory=True) as prof:
            for _ in range(3):
                with gh.record_function("my step"):
                    step()
                prof.step()
    return prof


def test_schedule_gives_actions():
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    names = [plan(i).name for i in range(10)]
    cycle = ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
    assert names == ["NONE", *cycle, *cycle, "NONE"]


def test_schedule_records_the_active_steps():
    step, ready = make_step(), []
    plan = gh.profile.schedule(wait=1, warmup=1, active=2, repeat=2)
    with gh.profile(schedule=plan, on_trace_ready=lambda p: ready.append(p.trace)) as p:
        for _ in range(9):
            step()
            p.step()
    assert [[n for n, *_ in t.loop_steps()] for t in ready] == [[2, 3], [6, 7]]
    assert all(t.is_op.sum() > 50 for t in ready)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system tells no memory")
def test_a_schedule_bounds_the_memory_of_a_long_run():
    x, y = gh.ones(4), gh.ones(4)

    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def step():
        ((x + y) * 2 - x).sum().numpy()

    counts, old, grown = [], [], 0
    plan = schedule(skip_first=10, wait=80, warmup=10, active=10)

    def ready(p):
        counts.append(len(p.trace.events))
        old.append(weakref.ref(p.trace))
        p.modules().table()

    def run(steps):
        nonlocal grown
        with gh.profile(schedule=plan, on_trace_ready=ready) as p:
            for _ in range(steps):
                step()
                p.step()
                grown = max(grown, resident_bytes() - before)
        return p

    before = resident_bytes()
    run(110)  # memory that other tests gave back to the system comes again
    counts, old, grown, before = [], [], 0, resident_bytes()
    profile = run(3_010)
    assert len(counts) == 30 and len(set(counts)) == 1  # all of a cycle, no more
    gc.collect()
    assert [x() is profile.trace for x in old] == [False] * 29 + [True]
    assert grown < 64e6


def test_what_waited_before_a_recording_is_not_taken_for_its_events():
    recorded, go_on = threading.Event(), threading.Event()

    def work():
        y = x = gh.ones((4, 4))
        for _ in range(20):
            y = y @ x
        recorded.set()
        go_on.wait()
        y.numpy()

    thread = threading.Thread(target=work)
    with gh.profile():
        thread.start()
        recorded.wait()
    with gh.profile() as p:
        (gh.ones((4, 4)) * 3).numpy()
        go_on.set()
        thread.join()
    assert p.key_averages().find("mul").calls == 1
    assert all(e.kernel_ns == 0 for e in p.events() if e.name == "matmul")
    assert "matmul" in p.key_averages().table()  # as a call that was not told


def test_a_recording_computes_what_its_steps_recorded():
    ready = []
    plan = gh.profile.schedule(wait=1, active=1, repeat=1)
    with gh.profile(schedule=plan, on_trace_ready=lambda p: ready.append(p.key_averages())) as p:
        for _ in range(3):
            y = gh.ones((8, 8)) @ gh.ones((8, 8))
            p.step()
    assert ready[0].find("matmul").kernel_ns > 0 and y.shape == (8, 8)


def test_steps_without_marks_have_the_kernels_that_they_recorded():
    with flags.override(compile="always"):
        step = make_step()
        step(), step()
        with gh.profile() as p:
            step()
    ((_, begin, end),) = p.trace.loop_steps()
    assert all(begin <= run.begin_ns and run.end_ns <= end for run in p.trace.runs)


def test_every_operator_call_is_recorded(prof):
    with gh.FlopCounter() as fc:
        make_step()()
    calls = {row.name: row.calls for row in prof.key_averages() if row.kind == "op"}
    counted = {}
    for row in fc.rows("all"):
        counted[row.primitive] = counted.get(row.primitive, 0) + row.calls
    for name in ("conv", "conv_weight_grad", "matmul", "max"):
        assert calls[name] == 3 * counted[name]
    rows = {r.name: r for r in prof.key_averages()}
    assert rows["matmul"].flops == 3 * fc.total(primitive="matmul")


def test_backward_carries_the_number_of_its_forward(prof):
    events = prof.events()
    forward = next(e for e in events if e.name == "conv")
    backward = [e for e in events if e.sequence == forward.sequence and e is not forward]
    assert {e.name for e in backward} == {"conv_backward", "conv_weight_grad"}
    assert all(e.module == forward.module == "Net.conv" for e in backward)
    assert forward.shapes == [(4, 3, 10, 10), (8, 3, 3, 3)]
    assert any("test_profiler.py" in frame and "make_step" not in frame for frame in forward.stack)


def test_kernels_print_as_a_table_whose_times_add_up(prof):
    rows = prof.kernels()
    heading, _, *lines = str(rows).splitlines()
    assert heading.split()[:3] == ["kernel", "module", "pass"] and len(lines) == len(rows)
    first = rows.table(row_limit=2).splitlines()[2:]
    others = sum(r.time_ns for r in rows[2:])
    assert first[2].startswith(f"others ({len(rows) - 2})") and milliseconds(others) in first[2]


def test_tables_that_are_narrow_keep_the_ends_of_paths():
    assert shortened("GPT.blocks.3.attention.qkv", 12) == "…tention.qkv"
    assert shortened("  blocks.3.attention.qkv", 12) == "…tention.qkv"
    assert shortened("mul + add + exp", 9) == "mul…+ exp"
    assert shortened("Net.conv", 8) == "Net.conv"


def test_kernels_add_up_and_know_their_modules(prof):
    trace = prof.trace
    rows = prof.kernels()
    assert sum(r.time_ns for r in rows) == trace.kernel_ns == trace.steps.time_ns.sum()
    assert {r.runs for r in rows} == {3}
    result = next(r for r in rows if r.name.startswith("conv") and r.phase == "forward")
    assert result.module.startswith("Net") and result.kind == "onednn"
    shared = sum(r.kernel_ns for r in prof.key_averages())
    assert shared == pytest.approx(trace.kernel_ns, rel=0.02)
    tree = {(r.module, r.phase): r for r in prof.modules().rows()}
    whole = tree["Net", ""].kernel_ns + tree["(no module)", ""].kernel_ns
    assert whole == pytest.approx(trace.kernel_ns)
    assert tree["Net", ""].calls == 3
    for module in ("Net", "Net.conv"):
        parts = [r.kernel_ns for (m, p), r in tree.items() if m == module and p]
        assert tree[module, ""].kernel_ns == pytest.approx(sum(parts))


def test_kernel_flops_are_those_of_the_calls(prof):
    with gh.FlopCounter() as fc:
        make_step()()
    matrix = sum(
        source.call.cost.matrix_flops
        for info in prof.trace.programs[0].step_infos()
        for source in info.sources
    )
    assert matrix == fc.total()


def test_tables_can_be_read(prof):
    text = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=5)
    assert "others (" in text and "kernel runs" in text and "without FLOPs: " in text
    one = next(r for r in prof.key_averages() if r.kind == "op" and not r.flops and r.kernel_ns)
    assert f"{one.name} {one.calls:,} calls" in prof.key_averages().uncounted()
    text = prof.key_averages(group_by_input_shape=True, group_by_stack_n=2).table()
    assert "[4, 3, 10, 10]" in text and "test_profiler.py" in text
    assert "conv" in str(prof.modules()) and "optimizer" in str(prof.modules())
    assert "Net" in str(prof)
    with pytest.raises(OptionError, match="Did you mean 'cpu_time_total'"):
        prof.key_averages().table(sort_by="cpu_time_totl")
    with pytest.raises(OptionError, match="name of a group"):
        prof.key_averages().find("matmull")


def test_annotations_and_passes_are_regions(prof):
    kinds = {(e.name, e.kind) for e in prof.events()}
    assert {("my step", "annotation"), ("backward", "region"), ("optimizer", "region")} <= kinds
    assert {("Net", "module"), ("conv", "module"), ("ProfilerStep#0", "step")} <= kinds

    @gh.record_function("decorated")
    def work():
        return gh.ones(3) + 1

    with gh.profile() as p:
        work()
    assert p.key_averages().find("decorated").calls == 1
    work()  # nothing records: nothing happens


def test_memory_counters_are_those_of_the_manager(prof):
    log = []
    manager = gh.memory.current()
    subscription = manager.subscribe(log.append)
    try:
        with gh.profile(profile_memory=True) as p:
            step = make_step()
            step()
    finally:
        subscription.remove()
    timeline = p.memory()
    assert timeline.allocated[1:].tolist() == [e.allocated_bytes for e in log]
    assert timeline.reserved[1:].tolist() == [e.reserved_bytes for e in log]
    assert timeline.peak_bytes == max(timeline.allocated)
    listed = sum(a.nbytes for a in timeline.alive)
    assert listed <= timeline.peak_bytes
    assert "alive at the peak" in str(timeline)
    with pytest.raises(OptionError, match="profile_memory=True"):
        with gh.profile() as p:
            pass
        p.memory()


def test_backends_that_compute_at_once_time_their_calls():
    with gh.backends.use("numpy"):
        step = make_step()
        with gh.profile() as p:
            step()
    assert {r.kind for r in p.kernels()} == {"op"} and p.trace.kernel_ns > 0
    assert sum(r.time_ns for r in p.kernels()) == p.trace.kernel_ns
    assert p.key_averages().find("conv").kernel_ns > 0
    tree = {r.module: r for r in p.modules().rows() if not r.phase}
    assert tree["Net.conv"].kernel_ns > 0 and tree["Net.conv"].flops > 0


def test_recordings_without_a_program_show_their_references():
    with flags.override(compile="never"), gh.profile() as p:
        (gh.ones((4, 4)) @ gh.ones((4, 4))).numpy()
    assert {r.kind for r in p.kernels()} == {"reference"}
    assert any(r.name == "matmul" and r.flops == 128 for r in p.kernels())


def test_all_threads_are_recorded():
    def work():
        (gh.ones(5) * 3).numpy()

    with gh.profile() as p:
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        work()
        thread.join()
    assert {e.thread for e in p.events() if e.name == "mul"} == {"MainThread", "worker"}


def test_a_thread_may_outlive_the_profile():
    stop, x = threading.Event(), gh.ones(5)

    def work():
        while not stop.is_set():
            (x * 3).numpy()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with gh.profile() as p:
            time.sleep(0.05)
        count = len(p.events())
        time.sleep(0.02)
    finally:
        stop.set()
        thread.join()
    assert count == len(p.trace.events) and (p.trace.self_ns >= 0).all()


def test_events_over_the_cap_are_dropped_and_reported():
    x = gh.ones(3)
    with gh.profile(max_events=10) as p:
        for _ in range(25):
            x = x + 1
    assert len(p.trace.events) == 10 and p.trace.dropped >= 15
    assert f"dropped: {p.trace.dropped}" in p.key_averages().table()
    assert p.trace.events.itemsize <= 64


def test_exceptions_inside_keep_what_was_recorded():
    with pytest.raises(ZeroDivisionError), gh.profile() as p:
        gh.ones(3) + 1
        raise ZeroDivisionError
    assert p.key_averages().find("add").calls == 1
    with gh.profile() as again:
        pass
    assert len(again.events()) == 0


def test_only_one_profile_records():
    with gh.profile() as outer:
        with pytest.raises(BackendError, match="no other profile"):
            gh.profile().start()
        gh.ones(3) + 1
    assert outer.key_averages().find("add").calls == 1


def test_what_a_handler_raises_ends_the_profile():
    def ready(p):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), gh.profile(on_trace_ready=ready) as p:
        gh.ones(3) + 1
    assert p.key_averages().find("add").calls == 1
    p = gh.profile().start()
    gh.ones(3) + 1  # left open: another one says so, and it can still be stopped
    with pytest.raises(BackendError, match="Stop it first"), gh.profile():
        pass
    p.stop()
    assert p.key_averages().find("add").calls == 1


def test_bad_use():
    with pytest.raises(BackendError, match="recording that has ended"):
        gh.profile().key_averages()
    with pytest.raises(BackendError, match="between start and stop"):
        gh.profile().step()
    with pytest.raises(OptionError, match="schedule to be a function"):
        gh.profile(schedule=3)
    with pytest.raises(OptionError, match="max_events"):
        gh.profile(max_events=0)
    with pytest.raises(OptionError, match="active to be 1 or more"):
        schedule(active=0)
    with pytest.raises(OptionError, match="wait to be 0 or more"):
        schedule(wait=-1, active=1)
    with pytest.raises(OptionError, match="ProfilerAction"), gh.profile(schedule=lambda i: None):
        pass
    assert schedule(active=1)(0) is ProfilerAction.RECORD_AND_SAVE
    gh.profile().stop()  # was never started: nothing to stop


def test_training_is_the_same_under_a_profile():
    plain = [make_step()() for _ in range(1)]
    step = make_step()
    with gh.profile(with_stack=True, profile_memory=True):
        watched = [step()]
    assert plain == watched


def test_self_times_and_kernels_within_add_up(prof):
    trace, steps = prof.trace, prof.trace.steps
    roots = trace.events[trace.parents < 0]
    whole = roots["end"] - roots["begin"]
    within = [
        ((roots["begin"] <= begin) & (end <= roots["end"]) & (roots["thread"] == thread)).any()
        for begin, end, thread in zip(steps.begin, steps.end, steps.thread, strict=True)
    ]
    assert any(within)
    assert trace.self_ns.sum() + steps.time_ns[within].sum() == whole.sum()
    assert (trace.self_ns >= 0).all()


def test_exact_flops_of_modules_leave_out_a_paddings_zeros():
    conv = gh.nn.Conv2d(3, 4, 3, padding=1)
    with gh.profile() as p:
        conv(gh.ones((2, 3, 5, 5))).numpy()
    rows = [row for row in p.modules().rows(depth=1) if not row.phase]
    (whole,) = (row for row in rows if row.module == "Conv2d")
    products = 2 * 4 * 3 * (3 * 5 - 2) ** 2  # along each axis, but those at both ends
    assert whole.flops - whole.exact_flops == 2 * (2 * 4 * 3 * 9 * 25 - products)
    kernels = sum(row.exact_flops * row.runs for row in p.kernels())
    assert sum(row.exact_flops for row in rows) == pytest.approx(kernels)


def test_host_time_and_kernels_are_no_more_than_the_wall(prof):
    trace, rows = prof.trace, prof.modules().rows(depth=1)
    total = sum(row.host_ns + row.kernel_ns for row in rows if not row.phase)
    assert 0 < total <= trace.wall_ns


def test_compiling_is_no_part_of_a_step(monkeypatch):
    monkeypatch.setattr(program, "programs", {})
    with flags.override(compile="always"):
        step = make_step()
        with gh.profile() as p:
            for _ in range(3):
                step()
                p.step()
    trace, whole = p.trace, [end - begin for _, begin, end in p.trace.loop_steps()]
    lost = [total - net for total, net in zip(whole, trace.step_ns(), strict=True)]
    assert trace.compile_ns == sum(lost) > 0 and lost[0] > 0 and lost[2] == 0
    assert f"compiling {milliseconds(trace.compile_ns)}" in str(p)
    assert data_of(trace)["compile_ns"] == trace.compile_ns


def test_what_starts_a_script_is_not_in_its_stacks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import glasshouse as gh\ndef work():\n    return gh.ones(3) + 1\nwork()\n")
    with gh.profile(with_stack=True) as p:
        runpy.run_path(str(script))
    frames = p.key_averages(group_by_stack_n=9).find("add").stack
    assert "work" in frames and "<module>" in frames
    assert "runpy" not in frames and "test_profiler" not in frames


def test_comparison_finds_what_became_slower():
    rng = np.random.default_rng(0)

    def run(scale):
        steps = (scale * 1e6 * (1 + 0.01 * rng.standard_normal(30))).tolist()
        module = {"name": "Net forward", "ns": scale * 1e6}
        own = {"steady_ns": steps, "parts": [], "modules": [module], "kernels": []}
        return {"median_step": own}

    result = Comparison(run(1.0), run(1.1))
    assert result.low < 1.1 < result.high or abs(result.ratio - 1.1) < 0.02
    assert result.is_slower(3) and not result.is_slower(20)
    assert not Comparison(run(1.0), run(1.0)).is_slower(3)
    assert result.modules[0].name == "Net forward" and "Net forward" in str(result)
    with pytest.raises(OptionError, match="a step or more"):
        Comparison({"median_step": {"steady_ns": []}}, run(1))


def test_comparison_names_the_line_that_became_slower(prof):
    before = data_of(prof.trace)["median_step"]
    lines = {row["line"] for row in before["kernels"]} - {""}
    slower = sorted(lines)[-1]
    rows = [
        row | {"ns": row["ns"] * (3 if row["line"] == slower else 1)} for row in before["kernels"]
    ]
    result = Comparison({"median_step": before}, {"median_step": before | {"kernels": rows}})
    own = sum(row["ns"] for row in before["kernels"] if row["line"] == slower)
    assert len(lines) > 1 and {x.name for x in result.lines} == lines
    assert result.lines[0].name == slower and result.lines[0].gained_ns == pytest.approx(2 * own)
    assert all(x.gained_ns == 0 for x in result.lines[1:])
    assert "line, a step" in str(result)


def test_data_is_plain_json(prof, tmp_path):
    path = tmp_path / "p.json"
    prof.export_json(path)
    data = json.loads(path.read_text())
    assert len(data["step_ns"]) == 3 and data["kernel_ns"] == prof.trace.kernel_ns
    assert data["kernels"][0].keys() == data_of(prof.trace)["kernels"][0].keys()


def test_stacks_and_memory_are_written(prof, tmp_path):
    prof.export_stacks(tmp_path / "s.txt", by="modules")
    lines = (tmp_path / "s.txt").read_text().splitlines()
    assert any(line.split(";")[-2:-1] == ["conv"] and "backward" in line for line in lines)
    assert all(line.rsplit(" ", 1)[1].isdigit() for line in lines)
    prof.export_memory_timeline(tmp_path / "m.csv")
    rows = (tmp_path / "m.csv").read_text().splitlines()
    assert rows[0].startswith("time_ns,") and len(rows) == len(prof.trace.memory) + 2
    with pytest.raises(OptionError, match="kernel_ns or self_ns"):
        prof.export_stacks(tmp_path / "x", metric="cuda")
    with pytest.raises(OptionError, match="modules"):
        prof.export_stacks(tmp_path / "x", by="module")


def test_stacks_for_speedscope_are_the_folded_ones(prof, tmp_path):
    prof.export_stacks(tmp_path / "s.txt")
    prof.export_stacks(tmp_path / "s.speedscope.json")
    data = json.loads((tmp_path / "s.speedscope.json").read_text())
    names = [frame["name"] for frame in data["shared"]["frames"]]
    (sampled,) = data["profiles"]
    pairs = zip(sampled["samples"], sampled["weights"], strict=True)
    lines = [f"{';'.join(names[i] for i in sample)} {ns // 1000}" for sample, ns in pairs]
    assert lines == (tmp_path / "s.txt").read_text().splitlines()
    assert sampled["endValue"] == sum(sampled["weights"]) and len(set(names)) == len(names)


def test_events_by_c_are_those_by_python():
    def recorded(slow):
        step = make_step()
        step(), step()
        with gh.profile(record_shapes=True) as p:
            if slow:
                gh.profile.running.recorder.replayed = None
            else:
                assert gh.profile.running.recorder.replayed is not None
            step(), step()
        first = min(e.sequence for e in p.events() if e.sequence >= 0)
        return [
            (
                e.name,
                e.kind,
                e.thread,
                e.module,
                e.phase,
                e.shapes,
                e.flops,
                e.bytes,
                e.sequence - first if e.sequence >= 0 else -1,
                e.kernel_ns > 0,
            )
            for e in p.events()
        ]

    with flags.override(compile="always"):
        assert recorded(slow=False) == recorded(slow=True)


def test_both_ways_to_name_a_stack_agree():
    fast_key = fast_stack_key()
    if fast_key is stack_key:
        pytest.skip("no C compiler")

    def keys(depth: int):
        if depth:
            return next(iter([keys(depth - 1)]))
        return np.frombuffer(fast_key(0), np.int64).tolist(), list(stack_key(0))

    for depth in (0, 3, MAX_FRAMES):
        fast, slow = keys(depth)
        assert fast[0] == slow[0] == id(keys.__code__)
        assert fast[2:] == slow[2:]  # the innermost function stands elsewhere by then
    assert len(fast) == 2 * MAX_FRAMES
    assert fast_key(10**6) == b""


def test_the_table_of_modules_begins_with_all_of_it(prof):
    tree = prof.modules()
    head, _, first, *_ = tree.table().splitlines()
    assert head.startswith("module") and first.split()[0] == "total"
    roots = [r for r in tree.rows() if "." not in r.module and not r.phase]
    assert milliseconds(sum(r.kernel_ns for r in roots)) in first


def test_steps_are_those_that_were_ended():
    with gh.profile(schedule=schedule(wait=1, active=10)) as p:
        for _ in range(4):
            (gh.ones(3) + 1).numpy()
            p.step()
    assert [n for n, *_ in p.trace.loop_steps()] == [1, 2, 3]


def test_what_began_before_the_profile_is_seen_from_its_begin_on(tmp_path):
    p = gh.profile()

    class Inside(gh.nn.Module):
        def forward(self, x):
            p.start()
            return x + 1

    with gh.FlopCounter():  # so that the forward's begin is known
        Inside()(gh.ones(3)).numpy()
    p.stop()
    (forward,) = [e for e in p.events() if e.kind == "module"]
    assert forward.begin_ns == 0 and forward.self_ns > 0
    data = chrome.read(p.export_chrome_trace(tmp_path / "t.json"))
    assert min(r["ts"] for r in data["traceEvents"]) >= 0


def test_tables_are_sorted_and_cut_as_those_of_pytorch(prof):
    rows = prof.key_averages()
    whole = rows.table(row_limit=-1)
    assert whole.count("\n") > len(rows) and "others (" not in whole
    assert f"others ({len(rows) - 2})" in rows.table(row_limit=2)
    for name in ("self_cuda_time_total", "self_device_time_total", "device_time_total"):
        assert rows.table(name) == rows.table("kernel_ns")
    assert rows.table("device_time") == rows.table("cuda_time") == rows.table("kernel_ns_average")


def test_tables_show_themselves_in_notebooks(prof):
    for shown in (prof.key_averages(), prof.modules(), prof.memory()):
        assert repr(shown) == str(shown) and "\n" in repr(shown)


def test_threads_are_told_apart_though_their_idents_come_again():
    def work():
        (gh.ones(3) + 1).numpy()

    with gh.profile() as p:
        for name in ("one", "two", "three"):
            thread = threading.Thread(target=work, name=name)
            thread.start()
            thread.join()
    assert p.trace.threads == [threading.current_thread().name, "one", "two", "three"]
    assert {e.thread for e in p.events()} == {"one", "two", "three"}


def test_a_profile_of_nothing_has_tables():
    with gh.profile(profile_memory=True, with_stack=True) as p:
        pass
    for result in (p.key_averages(), p.modules(), p.memory(), p):
        assert str(result)
    assert p.events() == p.kernels() == []


def test_a_run_that_a_thread_notes_after_the_end_is_of_no_recording():
    with gh.profile() as p:
        recorder = p.recorder
        (gh.ones(300) * 3).numpy()
    trace = p.trace
    runs = len(trace.program_runs)
    recorder.program(ProgramRun(object(), 0, [1], 1, [1 << 30]))
    assert len(trace.program_runs) == runs
    assert all((run.events < len(trace.events)).all() for run in trace.runs)
