"""HolisticTraceAnalysis (HTA) on our traces: every analysis call and its result."""

import contextlib
import io
import logging
import multiprocessing
import tempfile
import warnings
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from profiler import stand_in

import glasshouse as gh
from glasshouse.profile.traces import chrome

SHARED_BYTES = 1 << 24  # the gradients of both processes


def write_cpu_trace(folder: Path, steps: int) -> None:
    """The trace of a small training run on the CPU, as a user would write it."""
    gh.random.seed(0)
    model = gh.nn.Sequential(
        gh.nn.Conv2d(3, 16, 3, padding=1),
        gh.nn.BatchNorm2d(16),
        gh.nn.ReLU(),
        gh.nn.Conv2d(16, 16, 3, padding=1),
        gh.nn.Flatten(),
        gh.nn.Linear(16 * 256, 10),
    )
    optimizer = gh.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = gh.random.normal((16, 3, 16, 16)), gh.zeros(16, dtype=gh.int64)

    def step():
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    with gh.base.flags.flags.override(compile="always"):
        step(), step()
        with gh.profile(record_shapes=True, profile_memory=True) as prof:
            for _ in range(steps):
                with gh.record_function("train"):
                    step()
                prof.step()
    prof.export_chrome_trace(folder / "rank0.json.gz", hta=True)


def write_device_traces(folder: Path, steps: int) -> None:
    """The traces of two processes that train together on the stand-in for a device."""
    context = multiprocessing.get_context("spawn")
    shared, barrier = SharedMemory(create=True, size=SHARED_BYTES), context.Barrier(2, timeout=60)
    try:
        args = (str(folder), shared.name, barrier, steps)
        processes = [context.Process(target=stand_in.train, args=(r, *args)) for r in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise RuntimeError("a process of the two did not end well")
    finally:
        shared.close()
        shared.unlink()


def described(result) -> str:
    """Describe the result of a call in a few words; "" for nothing."""
    import pandas as pd

    if result is None or (isinstance(result, list | dict) and not len(result)):
        return ""
    if isinstance(result, pd.DataFrame):
        if result.empty or result.drop(columns="rank", errors="ignore").isna().all(axis=None):
            return ""
        return f"table {result.shape[0]} x {result.shape[1]}"
    if isinstance(result, dict):
        return ", ".join(f"rank {k}: {described(v)}" for k, v in result.items())
    if isinstance(result, list | tuple):
        return ", ".join(filter(None, map(described, result)))
    return f"{type(result).__name__} {len(result)}" if hasattr(result, "nodes") else str(result)


def calls_of(trace, folder: Path, out: str, operator: str) -> dict:
    """Every analysis of HTA by name; those of `TraceAnalysis` are all of its methods. `operator`
    is one that launches many kernels."""
    from hta.common.trace_call_graph import CallGraph
    from hta.trace_diff import TraceDiff
    from hta.utils.validate_trace import validate_trace_format

    def critical():
        return trace.critical_path_analysis(0, "ProfilerStep", 0)

    def written():
        trace.generate_trace_with_counters(output_suffix="_counted")
        return [p.name for p in folder.glob("*_counted*")]

    def validated():
        return all(validate_trace_format(f)[0] for f in trace.t.trace_files.values()) or None

    queue, quiet = trace.get_queue_length_time_series, {"visualize": False}
    return {
        "get_profiler_steps": trace.get_profiler_steps,
        "get_temporal_breakdown": lambda: trace.get_temporal_breakdown(**quiet),
        "get_idle_time_breakdown": lambda: trace.get_idle_time_breakdown(
            **quiet, show_idle_interval_stats=True
        ),
        "get_gpu_kernel_breakdown": lambda: trace.get_gpu_kernel_breakdown(**quiet),
        "get_gpu_kernels_with_user_annotations": lambda: (
            trace.get_gpu_kernels_with_user_annotations(0)
        ),
        "get_gpu_user_annotation_breakdown": lambda: trace.get_gpu_user_annotation_breakdown(
            **quiet
        ),
        "get_comm_comp_overlap": lambda: trace.get_comm_comp_overlap(**quiet),
        "get_cuda_kernel_launch_stats": lambda: trace.get_cuda_kernel_launch_stats(**quiet),
        "get_aten_op_kernels_and_delay": trace.get_aten_op_kernels_and_delay,
        "get_frequent_cuda_kernel_sequences": lambda: trace.get_frequent_cuda_kernel_sequences(
            operator, out
        ),
        "get_cupti_counter_data_with_operators": trace.get_cupti_counter_data_with_operators,
        "get_memory_bw_time_series": trace.get_memory_bw_time_series,
        "get_memory_bw_summary": trace.get_memory_bw_summary,
        "get_queue_length_time_series": queue,
        "get_queue_length_summary": trace.get_queue_length_summary,
        "get_queue_length_summary_from_time_series": lambda: (
            trace.get_queue_length_summary_from_time_series(queue())
        ),
        "get_time_spent_blocked_on_full_queue": lambda: trace.get_time_spent_blocked_on_full_queue(
            queue(), 3
        ),
        "get_potential_stragglers": lambda: trace.get_potential_stragglers(num_candidates=1),
        "critical_path_analysis": lambda: critical()[0],
        "overlay_critical_path_analysis": lambda: (
            Path(trace.overlay_critical_path_analysis(0, critical()[0], out)).name
        ),
        "generate_trace_with_counters": written,
        "CallGraph": lambda: f"{len(CallGraph(trace.t).call_stacks)} stacks",
        "TraceDiff.compare_traces": lambda: TraceDiff.compare_traces(trace.t, trace.t),
        "validate_trace_format": validated,
    }


def analyses(folder: Path, operator: str) -> dict[str, str]:
    """Call each analysis on the traces of a folder; describe its result, or say what was
    missing."""
    import plotly.graph_objects
    from hta.trace_analysis import TraceAnalysis

    plotly.graph_objects.Figure.show = lambda *args, **kwargs: None  # no browser
    results: dict[str, str] = {}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        with tempfile.TemporaryDirectory() as out:
            trace = TraceAnalysis(trace_dir=str(folder))
            for name, call in calls_of(trace, folder, out, operator).items():
                try:
                    results[name] = described(call()) or "nothing"
                except Exception as error:
                    results[name] = f"nothing: {type(error).__name__}"
        logging.disable(logging.NOTSET)
    return results


def read_traces(smoke: bool) -> dict:
    """Traces of both forms: our own check of them, and HTA's analyses where it is installed."""
    try:
        import hta.trace_analysis  # noqa: F401

        is_here = True
    except ImportError:
        is_here = False
    results: dict = {}
    forms = (("cpu", write_cpu_trace, "backward"), ("device", write_device_traces, "aten::program"))
    for form, write, operator in forms:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, 3 if smoke else 6)
            wrong = [w for path in folder.iterdir() for w in chrome.check(chrome.read(path))]
            results[form] = {"files": len(list(folder.iterdir())), "wrong": wrong}
            if is_here:
                calls = analyses(folder, operator)
                answers = sum(not text.startswith("nothing") for text in calls.values())
                results[form] |= {"given": answers, "calls": len(calls), "gave": calls}
    return results
