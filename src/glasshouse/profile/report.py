"""The report: the results of a profile as data, and as one HTML page that needs no network."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, check_known
from glasshouse.memory import Tag
from glasshouse.profile.advice import advice
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.compare import Comparison, median_step, read_run
from glasshouse.profile.counter import OUTSIDE, prefixes
from glasshouse.profile.functions import PythonFunctions
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.holders import OTHERS, first_path, kind_of
from glasshouse.profile.machine import count_cores, limits, processor_name
from glasshouse.profile.memory import MemoryTimeline
from glasshouse.profile.memory_blocks import BlockLives
from glasshouse.profile.operator_tree import OperatorTree
from glasshouse.profile.steps.breakdown import ABOUT, Breakdown
from glasshouse.profile.steps.step_times import InputPipeline, StepTimes
from glasshouse.profile.steps.utilisation import Utilisation
from glasshouse.profile.tables import KernelRows, ModuleTree, exact_flops_of, kernels, key_averages
from glasshouse.profile.text import writable
from glasshouse.profile.trace import Trace
from glasshouse.profile.traces import chrome
from glasshouse.profile.traces.read_trace import read_trace
from glasshouse.profile.transfers import transfers

MAX_SLICES = 40_000  # of the timeline; a longer one shows its last loop step
MAX_POINTS = 4_000  # of the memory curve
FLAMES = ("modules", "functions")  # levels of a flame graph: never both in one
SLICES = 240  # of the utilisation
MAX_MARKS = 200  # of steps, in drawings
SMALL_NS = 20_000
PLACE = "/*DATA*/null"
MOST_HEAD = 1 << 16  # characters in front of a trace's events
# Fields of a trace that the report has under the same name.
AS_THEY_ARE = (
    "host script rank backend wall_ns kernel_ns compile_ns dropped dropped_memory dropped_runs "
    "captures fallbacks call_costs unwatched_threads"
).split()


def data_of(trace: Trace) -> dict[Any, Any]:
    """All tables of a trace as JSON; times in ns."""
    plain, trace = trace, with_kernels(trace)
    parts = Breakdown(plain)
    machine, rows = limits(), kernels(trace)
    flops_per_s = max(machine.flops_per_s, best_rate(rows))
    ideal = ideal_ns_of_modules(trace, flops_per_s, machine.bytes_per_s)
    return {name: getattr(trace, name) for name in AS_THEY_ARE} | {
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
        "processor": processor_name(),
        "threads": trace.threads_of_kernels or count_cores(),
        "events": len(trace.events),
        "kernel_runs": len(trace.steps.step),
        "flops_per_s": flops_per_s,
        "bytes_per_s": machine.bytes_per_s,
        "step_ns": trace.step_ns() or [trace.wall_ns],
        "steps_at": [end - trace.begin_ns for _, _, end in trace.loop_steps()][:MAX_MARKS],
        "modules": [
            row._asdict() | {"ideal_ns": ideal.get(row.module, 0.0)}
            for row in ModuleTree(trace).rows()
        ],
        "kernels": [row._asdict() for row in rows],
        "operators": [row._asdict() for row in key_averages(trace, True)],
        "programs": [program_data(trace, i) for i in range(len(trace.programs))],
        "memory": memory_data(plain) if trace.with_memory else None,
        "advice": [x.as_dict() for x in advice(plain)],
        "breakdown": parts.step,
        "recording": parts.recording,
        "step": parts.data_of_steps(),
        "median_step": median_step(parts),
        "steps": StepTimes(plain, parts).to_dict(),
        "functions": functions_data(plain, parts) if plain.with_functions else None,
        "operator_tree": OperatorTree(plain, parts).to_list(),
        "input": InputPipeline(plain, parts).to_dict(),
        "utilisation": {
            name: Utilisation(plain, SLICES, steady=name == "steady steps").to_dict()
            for name in ("recording", "steady steps")
        },
        "about": ABOUT,
        "fallback_lines": trace.fallbacks.lines(),
    }


def functions_data(trace: Trace, parts: Breakdown) -> dict[Any, Any]:
    """The user's Python functions, and the time of those that call no operator."""
    functions = PythonFunctions(trace, parts)
    return {"sentence": functions.sentence, "rows": [row._asdict() for row in functions]}


def read_before(path: str | Path) -> dict[Any, Any]:
    """Read the tables of another run: a file of `export_json`, or a trace of torch.profiler.

    Raises: OptionError for another file.
    """
    with chrome.open_text(Path(path), "r") as file:
        is_trace = '"traceEvents"' in file.read(MOST_HEAD)
    return data_of(read_trace(path)) if is_trace else read_run(path)


def ideal_ns_of_modules(trace: Trace, flops_per_s: float, bytes_per_s: float) -> dict[Any, Any]:
    """Return the ns of each module's kernels, all below it included, at such limits, by its path. A
    module gets the share of a fused kernel that it gets of its time."""
    sums: Any = Counter()
    for share in trace.shares:
        _, runs = trace.time_of_steps.get((share.program, share.step), (0, 0))
        info = trace.info(share.program, share.step)
        run_s = max(exact_flops_of(info) / flops_per_s, info.bytes / bytes_per_s)
        for path in prefixes(share.module or OUTSIDE):
            sums[path] += 1e9 * run_s * runs * share.part
    return dict(sums)


def best_rate(rows: "KernelRows") -> float:
    """FLOP/s of the fastest kernel that took a while, without work on padding."""
    long = [r for r in rows if r.time_ns > SMALL_NS * r.runs]
    return max((r.exact_flops * r.runs * 1e9 / r.time_ns for r in long), default=0.0)


def program_data(trace: Trace, number: int) -> dict[Any, Any]:
    program = trace.programs[number]
    infos = program.step_infos()
    kinds = Counter(info.kind for info in infos)
    sources = program.sources
    texts = {
        i: sources[i].named(f"kernel{i}")
        for i in sorted({info.number for info in infos})
        if i in sources
    }
    return {
        "kinds": kinds,
        "arena_bytes": program.arena_bytes,
        "c": texts,
        "first": [info.number for info in infos],
        "hosts": sorted({info.name for info in infos if info.step_kind.is_host}),
        "sources": [
            [
                [
                    s.call.primitive.name,
                    s.origin.module,
                    s.origin.phase,
                    repr(s.call.out),
                    trace.line(number, s.origin.place),
                ]
                for s in info.sources
            ]
            for info in infos
        ],
    }


def memory_data(trace: Trace) -> dict[Any, Any]:
    """The memory curve, thinned without losing its peaks, and the owners at the peak."""
    timeline = MemoryTimeline(trace)
    curves = thinned(timeline.time_ns, timeline.allocated, timeline.reserved)
    time_ns, allocated, reserved = (x.tolist() for x in curves)
    return {
        "time_ns": time_ns,
        "allocated": allocated,
        "reserved": reserved,
        "peak_bytes": timeline.peak_bytes,
        "peak_ns": timeline.peak_ns,
        "tensors": [
            [*shown_owner(t.tag), t.nbytes, t.spec, t.line, t.in_arena] for t in timeline.tensors
        ],
        "blocks": [
            [*shown_owner(b.tag), b.nbytes, b.begin_ns, b.end_ns, b.spec, b.line, b.stack]
            for b in BlockLives(timeline)
        ],
        "in_use": [
            [x.tolist() for x in thinned(*curve, most=max(MAX_POINTS // len(timeline.in_use), 2))]
            for curve in timeline.in_use
        ],
    }


def shown_owner(tag: Tag) -> tuple[str, str, str]:
    """Name, module and pass of a tensor as the page shows them. Tensors held by models and
    optimizers read "exp_avg of blocks.0.qkv.weight", in module blocks.0.qkv."""
    what, module, phase = tag
    if kind_of(tag) == OTHERS:
        return what, module, phase
    return f"{what} {module}", first_path(module).rpartition(".")[0], phase


def thinned(
    time_ns: np.ndarray, nbytes: np.ndarray, *others: Any, most: int = MAX_POINTS
) -> list[np.ndarray]:
    """Curves over time with fewer points: of each part the one with the most bytes."""
    count = len(time_ns)
    parts = np.array_split(np.arange(count), min(count, most)) if count else []
    keep = np.array([part[nbytes[part].argmax()] for part in parts], np.int64)
    return [x[keep] for x in (time_ns, nbytes, *others)]


def folded(
    trace: Trace, metric: str = "kernel_ns", by: str = "modules"
) -> list[tuple[list[str], int]]:
    """[(frames, ns)] of a flame graph: pass, modules, call; or pass, Python functions, call. There
    a captured call, which has no stack, has the user's line.

    Raises: OptionError.
    """
    if metric not in ("kernel_ns", "self_ns"):
        fix = "The one is time in kernels, the other time in Python."
        raise OptionError("export_stacks", "kernel_ns or self_ns as metric", repr(metric), fix)
    check_known("export_stacks", "what to group by", by, FLAMES)
    values = trace.kernel_ns_of_events if metric == "kernel_ns" else trace.self_ns
    events, values = trace.events[trace.is_op], values[trace.is_op]
    where = "scope" if by == "modules" else "stack"
    first, group = groups_of(*(events[name] for name in (where, "phase", "what")))
    sums = np.bincount(group, values, len(first)).tolist()
    kinds = events[[where, "phase", "what"]][first].tolist()
    ns_of_stack: dict[tuple[str, ...], float] = {}

    def add(ns: float, phase: str, outer: list[str], name: str) -> None:
        frames = tuple(part.replace(";", ",") for part in (phase, *filter(None, outer), name))
        ns_of_stack[frames] = ns_of_stack.get(frames, 0) + ns

    for (place, phase, what), ns in zip(kinds, sums, strict=True):
        if by == "modules":
            outer = trace.scopes[place].split(".")
        else:
            outer = [label for _, label in trace.codes(place)]
        add(ns, trace.phases[phase], outer, trace.call_name(what))
    for share, ns, _ in trace.unseen if metric == "kernel_ns" else ():
        line = trace.line(share.program, share.place)
        outer = share.module.split(".") if by == "modules" else [line]
        add(ns, share.phase, outer, trace.name_of_share(share))
    return [(list(frames), int(ns)) for frames, ns in ns_of_stack.items() if ns >= 1]


def speedscope(stacks: list[tuple[list[str], int]]) -> dict[Any, Any]:
    """Folded stacks as speedscope reads them.

    Source: speedscope's file format, `sampled`.
    """
    numbers: dict[str, int] = {}
    samples = [[numbers.setdefault(f, len(numbers)) for f in frames] for frames, _ in stacks]
    weights = [ns for _, ns in stacks]
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": "glasshouse",
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }


def timeline_data(trace: Trace) -> dict[Any, Any]:
    """[track, begin, end, name, kernel or -1] in ns; of the last loop step if all are too many."""
    first, last = trace.begin_ns, trace.end_ns
    events, steps = trace.events, trace.steps
    if len(events) + len(steps.step) > MAX_SLICES and trace.loop_steps():
        _, first, last = trace.loop_steps()[-1]
    names: dict[str, int] = {}
    lanes: dict[str, int] = {}  # of streams of devices, and of transports
    slices = []

    def add(track: int, begin, end, name: str, kernel: int) -> None:
        number = names.setdefault(name, len(names))
        slices.append([track, int(begin) - first, int(end) - int(begin), number, kernel])

    shown = np.flatnonzero((events["begin"] >= first) & (events["end"] <= last))
    for i in shown[:MAX_SLICES]:
        e = events[i]
        add(int(e["thread"]), e["begin"], e["end"], trace.name_of(e), -1)
    ran = np.flatnonzero((steps.begin >= first) & (steps.end <= last))
    table = kernels(trace)
    rows = {(r.program, r.step): i for i, r in enumerate(table)}
    for i in ran[:MAX_SLICES]:
        key = int(steps.program[i]), int(steps.step[i])
        track = 100 + int(steps.thread[i])
        if steps.device[i] >= 0:
            lane = f"device {steps.device[i]} stream {steps.stream[i]}"
            track = lanes.setdefault(lane, 1000 + 100 * len(lanes))
        add(track, steps.begin[i], steps.end[i], table[rows[key]].name, rows[key])
    for thread, name, begin, end in transfers(trace):
        if begin >= first and end <= last:
            track = lanes.setdefault(thread, 1000 + 100 * len(lanes))
            add(track, begin, end, name, -1)
    return {
        "names": list(names),
        "slices": slices,
        "threads": trace.threads,
        "ns": last - first,
        "lanes": {track: name for name, track in lanes.items()},
    }


def page_of(data: dict[Any, Any]) -> str:
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    text = json.dumps(data, separators=(",", ":"), default=str).replace("<", "\\u003c")
    return template.replace(PLACE, text, 1)


def write_report(
    trace: Trace, path: str | Path, against: Any = None, predicted: Any = None
) -> Path:
    path = writable("report", path)
    data, trace = data_of(trace), with_kernels(trace)
    flames = {by: folded(trace, by=by) for by in FLAMES if by == "modules" or trace.with_stack}
    data |= {"flames": flames, "timeline": timeline_data(trace)}
    if against is not None:
        compared = Comparison(read_before(against), data)
        data["comparison"] = {
            "ratio": compared.ratio,
            "low": compared.low,
            "high": compared.high,
            "parts": compared.parts,
            "modules": compared.modules[:100],
            "kernels": compared.operators[:100],
            "lines": compared.lines[:100],
        }
    if predicted is not None:
        data["prediction"] = predicted.beside(trace).to_dict()
    path.write_text(page_of(data), encoding="utf-8")
    return path
