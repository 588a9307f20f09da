"""Traces for Chrome and Perfetto; `hta.py` has the form for HolisticTraceAnalysis.

Tracks of a process: one for each Python thread (steps, annotations, passes, modules, calls), one
for its Python stack if that was recorded, one for the computations of the thread (Programs and
their kernels); one for each stream of a device; counters for memory. Arrows lead from each call to
the kernel that computed it, and from a forward call to its backward. Slices of one track nest; a
slice that would not moves to a separate track.

Source: the trace event format; HTA's and PyTorch's readers
"""

import functools
import gzip
import json
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.profile import record as recorded
from glasshouse.profile.naming import name_of_step
from glasshouse.profile.text import writable
from glasshouse.profile.trace import Trace
from glasshouse.profile.traces.recording_data import recording_data
from glasshouse.profile.transfers import Transfer, with_transfers

ENDINGS = (".json", ".json.gz")
# Of each kind of event, in the order of record.KINDS.
CATEGORIES = ("cpu_op", "cpu_op", "module", "pass", "user_annotation", "cpu_op", "user_annotation")
LINES = 1 << 12  # that are written at once
EVENTS, END = ', "traceEvents": [\n', "\n], "  # between head, events and end
# A track is one of these + the thread's number, or + 1000 * device + stream.
EXECUTION, STACKS, OVERLAPS, DEVICES = 1_000, 2_000, 3_000, 1_000_000


class Slice(NamedTuple):
    """A slice of a track; times in ns since the trace began."""

    track: int
    begin: int
    end: int
    name: str
    category: str
    args: dict[str, Any]


class Exporter:
    """The slices of a trace and their texts; `chrome_lines.py` makes its lines of them."""

    def __init__(self, trace: Trace, shapes: bool) -> None:
        self.recording = trace
        self.shapes = shapes
        self.trace: Trace = with_transfers(trace)
        self.pid: int = trace.pid
        self.args_of_step: dict[tuple[int, int], dict[str, Any]] = {}
        self.flows: int = 0

    def name_of_call(self, name: str) -> str:
        return name

    def lines(self) -> Iterator[str]:
        """The lines of all records."""
        raise NotImplementedError

    def microseconds(self, ns: Any) -> Any:
        """Times in µs, as the file has them."""
        return ns / 1000

    def write(self, path: Any) -> Path:
        more = {"recording": recording_data(self.recording)}
        return write(path, head_of(self.trace, self.shapes), self.lines(), more)

    # -- slices --------------------------------------------------------------------------------

    def event_text(self, e: Any) -> tuple[str, str, dict[str, Any]]:
        """Name, category and args of an event, but for its numbers."""
        name, category = self.trace.name_of(e), CATEGORIES[e["kind"]]
        if e["kind"] > recorded.COMPUTED:
            return name, category, {}
        return self.name_of_call(name), category, self.call_args(e)

    def call_args(self, e: Any) -> dict[str, Any]:
        trace, call = self.trace, recorded.calls[e["what"]]
        cost = call.cost
        args = {"FLOPs": cost.flops, "bytes": cost.bytes, "pass": trace.phases[e["phase"]]}
        if e["scope"]:
            args["module"] = trace.scopes[e["scope"]]
        if self.shapes:
            args["Input Dims"] = [list(spec.shape) for spec in call.specs]
            args["Input type"] = [spec.dtype.name for spec in call.specs]
            args["Concrete Inputs"] = [f"{k}={v!r}"[:80] for k, v in call.attrs.items()]
        if e["stack"]:
            args["stack"] = trace.frames(e["stack"])
        return args

    @cached_property
    def forward_thread(self) -> dict[int, int]:
        """The track of the call that made each node of autograd, by the node's number."""
        events = self.trace.events
        first = events[(events["seq"] >= 0) & makes_node(events["kind"])]
        numbers, places = np.unique(first["seq"], return_index=True)
        return dict(zip(numbers.tolist(), (first["thread"][places] + 1).tolist(), strict=True))

    def stack_slices(self) -> Iterator[Slice]:
        """The Python functions that led to the calls and to the runs of Programs, those of captured
        functions too: open from their first call to their last."""
        trace, codes_of = self.trace, functools.cache(self.trace.codes)
        events = np.concatenate([trace.events[trace.is_op], self.run_events()])
        for thread in np.unique(events["thread"]).tolist():
            thread_events = events[events["thread"] == thread]
            thread_events = thread_events[np.argsort(thread_events["begin"], kind="stable")]
            opened: list[tuple[Any, ...]] = []  # (code, name, begin)
            last = 0
            columns = (thread_events[name].tolist() for name in ("begin", "end", "stack"))
            for since_start, until, stack in zip(*columns, strict=True):
                begin, codes = since_start - trace.begin_ns, codes_of(stack)
                same = 0
                while same < min(len(codes), len(opened)) and opened[same][0] is codes[same][0]:
                    same += 1
                while len(opened) > same:
                    _, name, since = opened.pop()
                    yield Slice(STACKS + thread, since, last, name, "python_function", {})
                opened += [(code, name, begin) for code, name in codes[same:]]
                last = until - trace.begin_ns
            for _, name, since in reversed(opened):
                yield Slice(STACKS + thread, since, last, name, "python_function", {})

    def run_events(self) -> np.ndarray:
        """The runs of Programs as events with the stacks of who needed their results."""
        runs = [run for run in self.trace.program_runs if run.stack]
        events = np.zeros(len(runs), recorded.EVENT)
        for name, field in (
            ("begin", "begin_ns"),
            ("end", "end_ns"),
            ("stack", "stack"),
            ("thread", "thread"),
        ):
            events[name] = [getattr(run, field) for run in runs]
        return events

    def run_slices(self) -> Iterator[Slice]:
        for run in self.trace.runs:
            if isinstance(run.program, Transfer):
                continue
            program = self.trace.number_of[id(run.program)]
            begin, end = run.begin_ns - self.trace.begin_ns, run.end_ns - self.trace.begin_ns
            args: dict[Any, Any] = {"steps": len(run.ends_ns)}
            if self.trace.with_stack and run.stack:
                args["stack"] = self.trace.frames(run.stack)
            yield Slice(EXECUTION + run.thread, begin, end, f"program {program}", "program", args)

    @cached_property
    def shares_of_step(self) -> dict[tuple[int, int], list[Any]]:
        """Calls that each step of each Program works for."""
        shares: dict[tuple[int, int], list[Any]] = {}
        for share in self.trace.shares:
            shares.setdefault((share.program, share.step), []).append(share)
        return shares

    @cached_property
    def tracks_of_steps(self) -> np.ndarray:
        """The track of each row of `trace.steps`."""
        steps = self.trace.steps
        on_device = DEVICES + 1000 * steps.device + steps.stream
        return np.where(steps.device >= 0, on_device, EXECUTION + steps.thread)

    def kernel_slice(self, row: int) -> Slice:
        trace, steps = self.trace, self.trace.steps
        step = int(steps.program[row]), int(steps.step[row])
        args = self.args_of_step.get(step)
        if args is None:
            shares = self.shares_of_step.get(step, [])
            args = self.args_of_step[step] = kernel_args(trace, trace.info(*step), shares, *step)
        times = int(steps.begin[row]) - trace.begin_ns, int(steps.end[row]) - trace.begin_ns
        track = int(self.tracks_of_steps[row])
        return Slice(track, *times, name_of_step(trace.info(*step)), "kernel", args)

    def events_of_kernels(self) -> Iterator[list[int]]:
        """The events whose calls each row of `trace.steps` computed."""
        trace, steps = self.trace, self.trace.steps
        places = {
            step: sorted({share.place for share in shares if share.place >= 0})
            for step, shares in self.shares_of_step.items()
        }
        rows = zip(steps.run.tolist(), steps.program.tolist(), steps.step.tolist(), strict=True)
        last, events = None, []
        for row, (run, *step) in enumerate(rows):
            if run != last or run < 0:
                last, events = run, trace.events_of_step(row).tolist()
            call_events = {events[place] for place in places.get(tuple(step), ())}
            yield sorted(call_events - {-1})

    def launch_slices(self) -> list[Slice]:
        """The launch of each step on a device, by the host."""
        steps, start, slices = self.trace.steps, self.trace.begin_ns, []
        for row in np.flatnonzero(steps.device >= 0).tolist():
            times = int(steps.launch[row]) - start, int(steps.launched[row]) - start
            info = self.trace.info(steps.program[row], steps.step[row])
            name = f"launch {name_of_step(info)}"
            args = {"correlation": row + 1}
            slices.append(Slice(int(steps.thread[row]) + 1, *times, name, "launch", args))
        return slices

    def slice_record(self, s: Slice) -> dict[str, Any]:
        """The record of a slice, but for its track and times."""
        return {
            "ph": "X",
            "cat": s.category,
            "name": s.name,
            "pid": self.pid,
            "args": s.args,
        }

    def meta(
        self, what: str, tid: int, args: dict[str, Any], pid: int | None = None
    ) -> dict[str, Any]:
        pid = self.pid if pid is None else pid
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}

    def names(self, tracks: set[int]) -> Iterator[dict[str, Any]]:
        yield self.meta("process_name", 0, {"name": f"glasshouse rank {self.trace.rank}"})
        yield self.meta("process_labels", 0, {"labels": "CPU"})
        yield self.meta("process_sort_index", 0, {"sort_index": self.trace.rank})
        kinds = "", " execution", " python stack", " overlapping"
        for track in sorted(tracks):
            kind, number = divmod(track, 1000)
            if track >= DEVICES:
                name, kind = f"device {kind - DEVICES // 1000} stream {number}", 1000
            else:
                kind = min(kind, 3)
                number -= kind in (0, 3)
                thread = self.trace.threads[number] if number < len(self.trace.threads) else ""
                name = (thread or "thread") + kinds[kind]
            yield self.meta("thread_name", track, {"name": name})
            yield self.meta("thread_sort_index", track, {"sort_index": 4 * number + kind})

    # -- arrows and counters -------------------------------------------------------------------

    def backward_pairs(self) -> list[tuple[int, int]]:
        """(call, pull) for each node of autograd: the events that made it and pulled it back."""
        events = self.trace.events
        is_pull = (events["kind"] == recorded.PULL) & (events["seq"] >= 0)  # -1: no call made it
        pulls = np.flatnonzero(is_pull)
        pull_of = dict(zip(events["seq"][pulls].tolist(), pulls.tolist(), strict=True))
        calls = np.flatnonzero(makes_node(events["kind"]) & (events["seq"] >= 0))
        numbers, first = np.unique(events["seq"][calls], return_index=True)
        calls = calls[first]
        order = np.argsort(calls)
        pairs = zip(calls[order].tolist(), numbers[order].tolist(), strict=True)
        begin = events["begin"]
        joined = [(call, pull_of[number]) for call, number in pairs if number in pull_of]
        return [(call, pull) for call, pull in joined if begin[call] < begin[pull]]

    def memory_records(self) -> Iterator[dict[str, Any]]:
        trace = self.trace
        for row in trace.memory:
            common = {"pid": self.pid, "ts": self.microseconds(int(row["time"]) - trace.begin_ns)}
            allocated, reserved = int(row["allocated"]), int(row["reserved"])
            counts = {"allocated": allocated, "reserved": reserved}
            yield {"ph": "C", "name": "memory", "tid": 0, "args": counts, **common}
            kind, tag = recorded.MEMORY_KINDS[row["kind"]], trace.tags[row["tag"]]
            if kind in ("alloc", "free"):
                args = {
                    "Total Allocated": allocated,
                    "Total Reserved": reserved,
                    "Bytes": int(row["nbytes"]) * (1 if kind == "alloc" else -1),
                    "Addr": int(row["address"]),
                    "Device Type": 0,
                    "Device Id": -1,
                    "owner": str(tag),
                }
                instant = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]"}
                yield instant | {"tid": 1, "args": args, **common}


def makes_node(kind: np.ndarray) -> np.ndarray:
    """Whether events of a kind (or of each kind in an array) may make a node of autograd: calls and
    compiled graphs."""
    return (kind <= recorded.COMPUTED) | (kind == recorded.REGION)


def kernel_args(
    trace: Trace, info: StepInfo, shares: Any, program: int, step: int
) -> dict[str, Any]:
    lines = sorted({trace.line(program, share.place) for share in shares} - {""})
    calls = [share for share in shares if share.call is not None]
    return {
        "kind": info.kind,
        "kernel": info.name,
        "program": program,
        "step": step,
        "primitives": [share.call.primitive.name for share in calls],
        "parts": [round(share.part, 6) for share in calls],  # of its time, one for each primitive
        "modules": sorted({s.module for s in shares if s.module}),
        "passes": sorted({s.phase for s in shares}),
        "lines": lines,
        "FLOPs": info.flops,
        "bytes": info.bytes,
    } | ({"fallback": info.fallback} if info.fallback else {})


def nested_tracks(tracks: list[int], begins: list[int], ends: list[int]) -> list[int]:
    """Track of each slice: another one for slices that would overlap in part. They come in the
    order of their begins, the longest first."""
    placed: list[int] = []
    open_ends: dict[int, list[int]] = {}
    for base, begin, end in zip(tracks, begins, ends, strict=True):
        for track in chain((base,), range(OVERLAPS + base % 1000, DEVICES, 1000)):
            opened = open_ends.setdefault(track, [])
            while opened and opened[-1] <= begin:
                opened.pop()
            if not opened or opened[-1] >= end:
                break
        opened.append(end)
        placed.append(track)
    return placed


def head_of(trace: Trace, shapes: bool) -> dict[str, Any]:
    """Metadata of a trace; readers that stream stop at the events, so it comes first."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "CPU", "totalGlobalMem": 0, "numSms": 1}],
        "distributedInfo": {"backend": "local", "rank": trace.rank, "world_size": len(trace.ranks)},
        "record_shapes": int(shapes),
        "profile_memory": int(trace.with_memory),
        "with_stack": int(trace.with_stack),
        "with_flops": 1,
        "host_name": trace.host,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": trace.began_at_ns,
        "metTimeNanoseconds": trace.met_at_ns,
        "dropped": trace.dropped + trace.dropped_memory + trace.dropped_runs,
        "fallbacks": trace.fallbacks.lines(),
    }


def open_text(path: Path, mode: str) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, mode + "t", compresslevel=5, encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def write(
    path: Any, head: dict[str, Any], lines: Iterable[str], more: dict[str, Any] | None = None
) -> Path:
    """Write a trace file of the records on these lines, whole or not at all; `more` comes last."""
    path = writable("export_chrome_trace", path, ENDINGS)
    part = path.with_name(f".{path.name}.part{''.join(path.suffixes)}")
    try:
        with open_text(part, "w") as file:
            file.write(f"{json.dumps(head)[:-1]}{EVENTS}")
            separator = ""
            for some in batched(lines, LINES):
                file.write(separator + ",\n".join(some))
                separator = ",\n"
            tail = json.dumps((more or {}) | {"traceName": path.name})
            file.write(f"{END}{tail[1:]}\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def batched(lines: Iterable[str], count: int) -> Iterator[list[str]]:
    """The lines, `count` at a time."""
    lines = iter(lines)
    while some := list(islice(lines, count)):
        yield some


def read_recording(path: str | Path) -> dict[str, Any] | None:
    """The data of the recording in a trace that we wrote, without reading its events; None without
    one."""
    with open_text(Path(path), "r") as file:
        last = deque(file, maxlen=1)
    start = END.strip()
    if not last or not last[0].startswith(f'{start} "recording"'):
        return None
    return json.loads("{" + last[0].removeprefix(start))["recording"]


def read(path: Any) -> dict[str, Any]:
    with open_text(Path(path), "r") as file:
        return json.load(file)


def check(data: dict[str, Any]) -> list[str]:
    """List the faults of a trace: slices that overlap, arrows without an end or a slice. An empty
    list means that every reader shows it as it is."""
    wrong, tracks, starts, flows = [], dict[Any, Any](), set(), dict[Any, Any]()
    for record in data["traceEvents"]:
        key = record["pid"], record.get("tid")
        if record["ph"] == "X":
            tracks.setdefault(key, []).append((record["ts"], record["ts"] + record["dur"], record))
            starts.add((*key, record["ts"]))
        elif record["ph"] in "sf":
            ends_of = flows.setdefault((record["cat"], record["name"], record["id"]), {})
            ends_of[record["ph"]] = (*key, record["ts"])
    for key, slices in tracks.items():
        ends: list[float] = []
        for begin, end, record in sorted(slices, key=lambda s: (s[0], -s[1])):
            while ends and ends[-1] <= begin + 1e-6:
                ends.pop()
            if ends and end > ends[-1] + 1e-6:
                wrong.append(f"{record['name']} at {begin} overlaps on track {key}")
            ends.append(end)
    for flow, ends_of in flows.items():
        if set(ends_of) != {"s", "f"} or not all(end in starts for end in ends_of.values()):
            wrong.append(f"arrow {flow} has no slice at one end")
    return wrong
