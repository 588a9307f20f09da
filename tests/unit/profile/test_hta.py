"""Traces for HolisticTraceAnalysis: of kernels on the CPU, and of what devices report."""

from collections.abc import Callable
from time import perf_counter_ns

import numpy as np
import pytest
from tests.unit.profile.clear_exporters import ClearHtaExporter
from tests.unit.profile.test_profiler import make_step, prof  # noqa: F401  a fixture

import glasshouse as gh
from glasshouse.base import Spec
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.steps.work import COLLECTIVE, COPY, StepKind
from glasshouse.dispatch.call import call_of
from glasshouse.dispatch.watch import DeviceTimes, ProgramRun, tell
from glasshouse.graph.graph import Node, Origin
from glasshouse.profile.report import timeline_data
from glasshouse.profile.traces import chrome, hta

ELEMENTS, RANKS = 1_000, 2
TICK = 10_000_000  # ns: longer than other programs keep this one waiting


def info(name: str, kind: StepKind, nbytes: int = 4 * ELEMENTS, **more) -> StepInfo:
    """A step as a device's Program describes it."""
    spec = Spec((ELEMENTS,), gh.float32)
    call = Node(call_of(gh.primitives["add"], (spec, spec), {}, spec), (), Origin("Net", "forward"))
    sources = [call] if kind is not COPY else []
    return StepInfo(name, kind, sources, Origin(), nbytes, nbytes, 0, **more)


class DeviceProgram:
    """A Program of a device: a copy, three kernels, a collective on a stream of its own."""

    sources, arena_bytes = {}, 0
    streams = (7, 7, 7, 7, 13)

    def step_infos(self):
        return [
            info("batch", COPY, transfer="HtoD"),
            *(info(f"kernel{i}", StepKind()) for i in range(3)),
            info("AllReduce", COLLECTIVE, group=tuple(range(RANKS))),
        ]


PROGRAM = DeviceProgram()


def run_on_device(late_ns: int, handed_over: Callable[[], object] = int) -> None:
    """Tell of a run: handed over in 5 ticks, then 2 a step; the collective waits for the other."""
    begin = perf_counter_ns()
    count = len(PROGRAM.streams)
    launches = begin + TICK * np.arange(count)
    begins = begin + 5 * TICK + 2 * TICK * np.arange(count)
    ends = begins + 2 * TICK
    begins[-1] -= late_ns  # it began early, since it did not come late
    times = DeviceTimes(0, np.array(PROGRAM.streams), launches, launches + TICK // 2, begins)
    tell("program", ProgramRun(PROGRAM, begin, ends, begin + 6 * TICK, [], 0, times))
    handed_over()
    while perf_counter_ns() < ends[-1]:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Traces of two ranks, as a device backend would report them."""
    folder = tmp_path_factory.mktemp("device")
    for rank in range(RANKS):
        with gh.profile(rank=rank, profile_memory=True, record_shapes=True) as p:
            for _ in range(4):
                with gh.record_function("train"):
                    gh.ones(3) + 1
                    run_on_device(rank * 5 * TICK)
                p.step()
        p.export_chrome_trace(folder / f"rank{rank}.json.gz", hta=True)
        p.export_chrome_trace(folder.parent / f"plain{rank}.json")
    return folder


def slices(path, *categories):
    records = chrome.read(path)["traceEvents"]
    return [r for r in records if r["ph"] == "X" and r["cat"] in categories]


def test_kernels_on_the_cpu_are_stream_7_and_have_launches(prof, tmp_path):  # noqa: F811
    path = prof.export_chrome_trace(tmp_path / "t.json", hta=True)
    result = slices(path, "kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation")
    assert all(isinstance(r["ts"], int) and r["dur"] >= 0 for r in result)
    device, launches = slices(path, "kernel", "gpu_memcpy"), slices(path, "cuda_runtime")
    correlations = [r["args"]["correlation"] for r in launches]
    assert sorted(r["args"]["correlation"] for r in device) == sorted(set(correlations))
    assert len(device) == len(prof.trace.steps.step)
    assert {(r["pid"], r["tid"]) for r in device} == {(0, hta.STREAM)}
    assert sum(r["name"].startswith("ProfilerStep#") for r in result) == 3
    names = [r["args"].get("name", "") for r in chrome.read(path)["traceEvents"] if r["ph"] == "M"]
    assert any("kernels on the CPU" in name for name in names)


def wait_until_visible(call) -> None:
    """Have a call take a µs, which is as short as HTA can see."""
    while perf_counter_ns() < call.begin_ns + 1_000:
        pass


def test_a_kernel_is_launched_by_a_call_that_it_computes(tmp_path):
    with flags.override(compile="always"), gh.add_op_callback(wait_until_visible):
        step = make_step()
        step(), step()
        with gh.profile() as p:
            for _ in range(3):
                step()
                p.step()
    path = p.export_chrome_trace(tmp_path / "t.json", hta=True)
    kernels = [r for r in slices(path, "kernel") if r["name"].startswith("conv_weight_grad")]
    launches = {r["args"]["correlation"]: r for r in slices(path, "cuda_runtime")}
    callers = {r["args"]["External id"]: r for r in slices(path, "cpu_op")}
    for kernel in kernels:
        launch = launches[kernel["args"]["correlation"]]
        caller = callers[launch["args"]["External id"]]
        assert caller["name"] == "aten::conv_weight_grad"
        assert caller["ts"] <= launch["ts"] < caller["ts"] + caller["dur"]
    assert len(kernels) == 3


def test_captured_kernels_are_launched_by_their_run(tmp_path):
    @gh.optimize
    def step(x):
        return (x @ x).sum()

    x = gh.ones((64, 64))
    for _ in range(3):
        step(x).item()
    with gh.profile() as p:
        for _ in range(2):
            step(x).item()
            p.step()
    path = p.export_chrome_trace(tmp_path / "t.json", hta=True)
    assert chrome.check(chrome.read(path)) == []
    runs = [r for r in slices(path, "cpu_op") if r["name"].startswith("aten::program")]
    launches = slices(path, "cuda_runtime")
    assert len(runs) == 2 and len(launches) == len(p.trace.steps.step)
    for launch in launches:
        assert any(r["ts"] <= launch["ts"] < r["ts"] + r["dur"] for r in runs)


@pytest.mark.slow
def test_a_device_is_shown_with_its_own_streams_and_times(folder):
    path = folder / "rank1.json.gz"
    assert chrome.check(chrome.read(path)) == []
    kernels, copies = slices(path, "kernel"), slices(path, "gpu_memcpy")
    assert {(r["pid"], r["tid"]) for r in kernels} == {(0, 7), (0, 13)}
    assert {r["name"] for r in copies} == {"Memcpy HtoD (batch)"}
    assert copies[0]["args"]["bytes"] == 4 * ELEMENTS
    assert {r["name"] for r in kernels if r["tid"] == 13} == {"ncclKernel_AllReduce"}
    names = [r["name"] for r in slices(path, "cuda_runtime")]
    assert names[:5] == ["cudaMemcpyAsync", *3 * ["cudaLaunchKernel"], "cudaLaunchKernelExC"]
    said = next(r for r in slices(path, "cpu_op") if r["name"] == "record_param_comms")["args"]
    assert (said["Group size"], said["Rank"], said["In msg nelems"]) == (RANKS, 1, ELEMENTS)
    counted = slices(path, "cuda_profiler_range")[0]["args"]
    assert (counted["flops"], counted["moved_bytes"]) == (ELEMENTS, 8 * ELEMENTS)
    assert counted["flops_per_s"] == ELEMENTS * 10**9 // (2 * TICK)
    assert {r["tid"] for r in slices(path, "gpu_user_annotation")} == {7, 13}
    info = chrome.read(path)["distributedInfo"]
    assert (info["rank"], info["world_size"]) == (1, RANKS)


@pytest.mark.parametrize("late_ns", [0, TICK // 4, TICK // 2 - 1_500, TICK // 2 + 1_500])
def test_what_begins_within_a_launch_has_another_track(tmp_path, late_ns):
    with gh.profile() as p:
        begin = perf_counter_ns()
        run_on_device(0, handed_over=lambda: wait_in_region(begin + late_ns, begin + TICK))
    path = p.export_chrome_trace(tmp_path / "t.json", hta=True)
    assert chrome.check(chrome.read(path)) == []
    assert len(slices(path, "cuda_runtime")) == len(PROGRAM.streams)
    assert [r["name"] for r in slices(path, "user_annotation")] == ["other"]


def wait_in_region(begin_ns: int, end_ns: int) -> None:
    while perf_counter_ns() < begin_ns:
        pass
    with gh.record_function("other"):
        while perf_counter_ns() < end_ns:
            pass


def test_perfetto_shows_a_device_beside_the_threads(folder):
    data = chrome.read(folder.parent / "plain0.json")
    assert chrome.check(data) == []
    names = {r["args"]["name"] for r in data["traceEvents"] if r["name"] == "thread_name"}
    assert {"device 0 stream 7", "device 0 stream 13"} <= names
    launches = [r for r in data["traceEvents"] if r.get("cat") == "launch"]
    arrows = {r["ts"] for r in data["traceEvents"] if (r["ph"], r.get("cat")) == ("s", "ac2g")}
    assert len(launches) == 20 and {r["ts"] for r in launches} <= arrows


def test_lines_from_columns_are_the_text_of_the_records(tmp_path):
    with gh.profile(rank=1, profile_memory=True) as p:
        for i in range(3):
            with gh.record_function("train"), gh.record_function("inside"):
                gh.ones(3) + 1
                run_on_device(i * TICK // 10)
            p.step()
    lines = hta.HtaExporter(p.trace, True).lines()
    assert list(lines) == list(ClearHtaExporter(p.trace, True).lines())


def test_tables_know_what_devices_did(folder):
    with gh.profile() as p:
        run_on_device(0)
    rows = {r.name: r for r in p.kernels()}
    assert set(timeline_data(p.trace)["lanes"].values()) == {
        "device 0 stream 7",
        "device 0 stream 13",
    }
    assert rows["kernel1"].time_ns == 2 * TICK and rows["kernel1"].flops == ELEMENTS
    assert p.trace.kernel_ns == 10 * TICK
    assert {r.module: r for r in p.modules().rows() if not r.phase}["Net"].kernel_ns == 8 * TICK


def test_the_validator_of_pytorch_finds_no_fault(prof, folder, tmp_path):  # noqa: F811
    validator = pytest.importorskip("torch.profiler._trace_validator")
    on_cpu = prof.export_chrome_trace(tmp_path / "t.json.gz", hta=True)
    for path in (on_cpu, folder / "rank0.json.gz"):
        assert validator.validate_trace(str(path)) == (True, [])


ANALYSES = [
    ("get_profiler_steps", ()), ("get_temporal_breakdown", (False,)),
    ("get_gpu_kernel_breakdown", (False,)), ("get_gpu_kernels_with_user_annotations", (0,)),
    ("get_gpu_user_annotation_breakdown", (True, False)), ("get_comm_comp_overlap", (False,)),
    ("get_aten_op_kernels_and_delay", ()), ("get_cupti_counter_data_with_operators", ()),
    ("get_memory_bw_time_series", ()), ("get_memory_bw_summary", ()),
    ("get_queue_length_time_series", ()), ("get_queue_length_summary", ()),
    ("get_potential_stragglers", (None, 1)), ("get_idle_time_breakdown", (None, None, False)),
    ("get_cuda_kernel_launch_stats", (None, 50, 100, True, False)),
    ("critical_path_analysis", (0, "ProfilerStep", 0)),
    ("generate_trace_with_counters", ()),
]  # fmt: skip


@pytest.fixture(scope="module")
def analysis(folder):
    module = pytest.importorskip("hta.trace_analysis")
    return module.TraceAnalysis(trace_dir=str(folder))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "args"), ANALYSES, ids=[name for name, _ in ANALYSES])
def test_hta_analyses_traces_of_devices(analysis, folder, monkeypatch, name, args):
    import plotly.graph_objects

    monkeypatch.setattr(plotly.graph_objects.Figure, "show", lambda *a, **k: None)
    result = getattr(analysis, name)(*args)
    if name.startswith("generate"):
        assert len(list(folder.iterdir())) == RANKS + 1
    elif name == "get_potential_stragglers":
        assert result == [0]  # rank 1 began to wait earlier
    else:
        first = result[0] if isinstance(result, tuple | list) else result
        assert (len(first.nodes) if hasattr(first, "nodes") else len(result)) > 0


@pytest.mark.filterwarnings("ignore")
def test_hta_finds_sequences_blocked_queues_stacks_and_no_fault(analysis, folder, tmp_path):
    from hta.common.trace_call_graph import CallGraph
    from hta.utils.validate_trace import validate_trace_format

    result = analysis.get_frequent_cuda_kernel_sequences("aten::program", str(tmp_path))
    assert "kernel0|kernel1|kernel2" in result["pattern"][0]
    queue = analysis.get_queue_length_time_series()
    assert len(analysis.get_queue_length_summary_from_time_series(queue))
    assert len(analysis.get_time_spent_blocked_on_full_queue(queue, 2))
    graph, ok = analysis.critical_path_analysis(0, "ProfilerStep", 0)
    assert ok and analysis.overlay_critical_path_analysis(0, graph, str(tmp_path))
    assert CallGraph(analysis.t).call_stacks
    assert validate_trace_format(str(folder / "rank0.json.gz")) == (True, {})
