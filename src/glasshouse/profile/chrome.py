"""Traces for Chrome and Perfetto; `hta.py` has the form for HolisticTraceAnalysis.

Tracks of a process: one for each Python thread (steps, annotations, passes, modules, calls), one
for its Python stack if that was recorded, one for what the thread had computed (Programs and their
kernels); one for each stream of a device; counters for memory. Arrows lead from each call to the
kernel that computed it, and from a forward call to its backward. Slices of one track nest; what
would not is moved to a track of its own.

Source: the trace event format; HTA's and PyTorch's readers
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.profile import record as recorded
from glasshouse.profile.text import writable
from glasshouse.profile.trace import Trace
from glasshouse.profile.transfers import Transfer, with_transfers

ENDINGS = (".json", ".json.gz")
# Of each kind of event, in the order of record.KINDS.
CATEGORIES = ("cpu_op", "cpu_op", "module", "pass", "user_annotation", "cpu_op", "user_annotation")
# A track is one of these + the thread's number, or + 1000 * device + stream.
EXECUTION, STACKS, OVERLAPS, DEVICES = 1_000, 2_000, 3_000, 1_000_000


class Slice(NamedTuple):
    """A slice of a track; times in ns since the trace began."""

    track: int
    begin: int
    end: int
    name: str
    category: str
    args: dict


class KernelSlice(NamedTuple):
    """A step that ran: its slice, the events whose calls it computed, its row in `trace.steps`."""

    slice: Slice
    events: list[int]
    row: int


class Exporter:
    def __init__(self, trace: Trace, shapes: bool):
        self.trace, self.shapes = with_transfers(trace), shapes
        self.pid = trace.pid
        self.place: dict[int, Slice] = {}  # of events
        self.moved: dict[int, Slice] = {}  # slices on another track, by the id of the original
        self.flows = 0

    def name_of_call(self, name: str) -> str:
        return name

    def time(self, ns: int):
        return int(ns) / 1000

    def records(self) -> Iterator[dict]:
        slices = self.host_slices()
        if self.trace.with_stack:
            slices += self.stack_slices()
        kernels = list(self.kernels())
        beside = list(self.beside_kernels(kernels))
        slices += [*(k.slice for k in kernels), *self.run_slices(), *beside]
        slices = nested(slices, self.moved)
        yield from self.names({s.track for s in slices})
        for s in slices:
            yield self.slice_record(s)
        yield from self.backward_arrows()
        yield from self.kernel_arrows(kernels, beside)
        yield from self.memory_records()

    def write(self, path) -> Path:
        return write(path, head_of(self.trace, self.shapes), self.records())

    # -- slices --------------------------------------------------------------------------------

    def host_slices(self) -> list[Slice]:
        trace, slices = self.trace, []
        forward_thread = self.forward_threads()
        for i, e in enumerate(trace.events):
            kind, seq = int(e["kind"]), int(e["seq"])
            args: dict = {"External id": i + 1}
            if seq >= 0:
                args |= {"Sequence number": seq, "Fwd thread id": forward_thread.get(seq, 0)}
            name = trace.name_of(e)
            if kind <= recorded.COMPUTED:
                args |= self.call_args(e)
                name = self.name_of_call(name)
            slices.append(
                Slice(
                    int(e["thread"]) + 1,
                    int(e["begin"]) - trace.begin_ns,
                    int(e["end"]) - trace.begin_ns,
                    name,
                    CATEGORIES[kind],
                    args,
                )
            )
            self.place[i] = slices[-1]
        return slices

    def call_args(self, e) -> dict:
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

    def forward_threads(self) -> dict[int, int]:
        events = self.trace.events
        first = events[(events["seq"] >= 0) & (events["kind"] <= recorded.COMPUTED)]
        _, places = np.unique(first["seq"], return_index=True)
        return {int(first[p]["seq"]): int(first[p]["thread"]) + 1 for p in places}

    def stack_slices(self) -> Iterator[Slice]:
        """The Python functions that led to the calls: open from their first call to their last."""
        trace = self.trace
        events = trace.events[trace.is_op]
        for thread in np.unique(events["thread"]).tolist():
            own = np.sort(events[events["thread"] == thread], order="begin")
            opened: list[tuple] = []  # (code, name, begin)
            last = 0
            for e in own:
                begin, codes = int(e["begin"]) - trace.begin_ns, trace.codes(int(e["stack"]))
                same = 0
                while same < min(len(codes), len(opened)) and opened[same][0] is codes[same][0]:
                    same += 1
                while len(opened) > same:
                    _, name, since = opened.pop()
                    yield Slice(STACKS + thread, since, last, name, "python_function", {})
                opened += [(code, name, begin) for code, name in codes[same:]]
                last = int(e["end"]) - trace.begin_ns
            for _, name, since in reversed(opened):
                yield Slice(STACKS + thread, since, last, name, "python_function", {})

    def run_slices(self) -> Iterator[Slice]:
        for run in self.trace.runs:
            if isinstance(run.program, Transfer):
                continue
            program = self.trace.number_of[id(run.program)]
            begin, end = run.begin_ns - self.trace.begin_ns, run.end_ns - self.trace.begin_ns
            args = {"steps": len(run.ends_ns)}
            yield Slice(EXECUTION + run.thread, begin, end, f"program {program}", "program", args)

    def kernels(self) -> Iterator[KernelSlice]:
        trace, steps = self.trace, self.trace.steps
        sources: dict[tuple[int, int], list] = {}
        for share in trace.shares:
            sources.setdefault((share.program, share.step), []).append(share)
        args_of: dict[tuple[int, int], dict] = {}
        for i in range(len(steps.step)):
            program, step = int(steps.program[i]), int(steps.step[i])
            begin, end = int(steps.begin[i]) - trace.begin_ns, int(steps.end[i]) - trace.begin_ns
            info, shares = trace.info(program, step), sources.get((program, step), [])
            args = args_of.get((program, step))
            if args is None:
                args = args_of[program, step] = kernel_args(trace, info, shares, program, step)
            events = trace.runs[steps.run[i]].events
            own = {int(events[s.place]) for s in shares if s.place >= 0} - {-1}
            track, device = EXECUTION + int(steps.thread[i]), int(steps.device[i])
            if device >= 0:
                track = DEVICES + 1000 * device + int(steps.stream[i])
            yield self.shown(
                KernelSlice(Slice(track, begin, end, info.name, "kernel", args), sorted(own), i),
                info,
            )

    def shown(self, kernel: KernelSlice, info) -> KernelSlice:
        return kernel

    def beside_kernels(self, kernels: list[KernelSlice]) -> Iterator[Slice]:
        """Slices that belong to kernels: when the host handed each over to a device."""
        steps, start = self.trace.steps, self.trace.begin_ns
        for k in kernels:
            if steps.device[k.row] >= 0:
                times = int(steps.launch[k.row]) - start, int(steps.launched[k.row]) - start
                args = {"correlation": k.row + 1}
                yield Slice(
                    int(steps.thread[k.row]) + 1, *times, f"launch {k.slice.name}", "launch", args
                )

    def slice_record(self, s: Slice) -> dict:
        begin = self.time(s.begin)
        return {
            "ph": "X",
            "cat": s.category,
            "name": s.name,
            "pid": self.pid,
            "tid": s.track,
            "ts": begin,
            "dur": self.time(s.end) - begin,
            "args": s.args,
        }

    def meta(self, what: str, tid: int, args: dict, pid: int | None = None) -> dict:
        pid = self.pid if pid is None else pid
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}

    def names(self, tracks: set[int]) -> Iterator[dict]:
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

    def arrow(self, category: str, start: Slice, end: Slice) -> Iterator[dict]:
        self.flows += 1
        for ph, s in (("s", start), ("f", end)):
            record = self.slice_record(self.moved.get(id(s), s))
            more = {"bp": "e"} if ph == "f" else {}
            own = {"ph": ph, "id": self.flows, "cat": category, "name": category}
            yield own | {name: record[name] for name in ("pid", "tid", "ts")} | more

    def backward_arrows(self) -> Iterator[dict]:
        events = self.trace.events
        pulls = {int(e["seq"]): i for i, e in enumerate(events) if e["kind"] == recorded.PULL}
        linked: set[int] = set()
        for i, e in enumerate(events):
            seq = int(e["seq"])
            if e["kind"] <= recorded.COMPUTED and seq in pulls and seq not in linked:
                linked.add(seq)
                if self.place[i].begin < self.place[pulls[seq]].begin:
                    yield from self.arrow("fwdbwd", self.place[i], self.place[pulls[seq]])

    def kernel_arrows(self, kernels: list[KernelSlice], beside: list[Slice]) -> Iterator[dict]:
        launch_of = {s.args["correlation"]: s for s in beside}
        for k in kernels:
            starts = [self.place[event] for event in k.events]
            if k.row + 1 in launch_of:
                starts.append(launch_of[k.row + 1])
            for start in starts:
                yield from self.arrow("ac2g", start, k.slice)

    def memory_records(self) -> Iterator[dict]:
        trace = self.trace
        for row in trace.memory:
            common = {"pid": self.pid, "ts": self.time(int(row["time"]) - trace.begin_ns)}
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


def kernel_args(trace: Trace, info, shares, program: int, step: int) -> dict:
    lines = sorted({trace.line(program, share.place) for share in shares} - {""})
    return {
        "kind": info.kind,
        "program": program,
        "step": step,
        "primitives": [s.call.primitive.name for s in shares if s.call is not None],
        "modules": sorted({s.module for s in shares if s.module}),
        "passes": sorted({s.phase for s in shares}),
        "lines": lines,
        "FLOPs": info.flops,
        "bytes": info.bytes,
    } | ({"fallback": info.fallback} if info.fallback else {})


def nested(slices: Iterable[Slice], moved: dict[int, Slice]) -> list[Slice]:
    """The slices in a reader's order; what overlaps in part changes its track, noted in `moved`."""
    placed: list[Slice] = []
    open_ends: dict[int, list[int]] = {}
    for s in sorted(slices, key=lambda s: (s.begin, -s.end)):
        for track in (s.track, *range(OVERLAPS + s.track % 1000, DEVICES, 1000)):
            ends = open_ends.setdefault(track, [])
            while ends and ends[-1] <= s.begin:
                ends.pop()
            if not ends or ends[-1] >= s.end:
                break
        ends.append(s.end)
        placed.append(s if track == s.track else moved.setdefault(id(s), s._replace(track=track)))
    return sorted(placed, key=lambda s: s.track)


def head_of(trace: Trace, shapes: bool) -> dict:
    """The metadata of a trace; readers that stream stop at the events, so it comes first."""
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


def open_text(path: Path, mode: str):
    if path.suffix == ".gz":
        return gzip.open(path, mode + "t", compresslevel=5, encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def write(path, head: dict, records: Iterable[dict]) -> Path:
    """Write a trace file, whole or not at all."""
    path = writable("export_chrome_trace", path, ENDINGS)
    part = path.with_name(f".{path.name}.part{''.join(path.suffixes)}")
    try:
        with open_text(part, "w") as file:
            file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
            encode, separator = json.JSONEncoder().encode, ""
            for record in records:
                file.write(separator + encode(record))
                separator = ",\n"
            file.write(f'\n], "traceName": {json.dumps(path.name)}}}\n')
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def read(path) -> dict:
    with open_text(Path(path), "r") as file:
        return json.load(file)


def merge(paths, path) -> Path:
    """One trace file of several, of other processes or ranks. Clocks of different hosts are laid
    together by the moment at which all ranks of a world had met.

    Raises: OptionError if there is no file, OSError, ValueError for what is no trace.
    """
    files = [read(p) for p in paths]
    if not files or not all("traceEvents" in file for file in files):
        raise OptionError("merge", "one trace file or more", repr(paths), "Name the files.")
    begins = begins_of(files)
    head = {**files[0], "traceEvents": None, "baseTimeNanoseconds": min(begins)}
    return write(path, head, merged(files, begins))


def begins_of(files: list[dict]) -> list[int]:
    """When each trace began, in ns by the clock of the first."""
    first, begins = files[0], []
    for file in files:
        begin, met = file.get("baseTimeNanoseconds", 0), file.get("metTimeNanoseconds", 0)
        has_other_clock = file.get("host_name") != first.get("host_name")
        if has_other_clock and met and first.get("metTimeNanoseconds"):
            begin -= met - first["metTimeNanoseconds"]
        begins.append(begin)
    return begins


def merged(files: list[dict], begins: list[int]) -> Iterator[dict]:
    """The events of all files: times since the first began, processes and arrows told apart."""
    flows, pids = 0, {}  # processes as numbers, for not all readers know others
    for number, (file, begin) in enumerate(zip(files, begins, strict=True)):
        shift = (begin - min(begins)) / 1000
        highest = flows
        for record in file["traceEvents"]:
            record = {**record, "pid": pids.setdefault((number, record["pid"]), len(pids))}
            if record["ph"] != "M":
                record["ts"] += shift
            if "id" in record:
                record["id"] += flows
                highest = max(highest, record["id"])
            yield record
        flows = highest


def check(data: dict) -> list[str]:
    """What is wrong with a trace: slices that overlap, arrows without an end or a slice.
    An empty list means that every reader shows it as it is."""
    wrong, tracks, starts, flows = [], {}, set(), {}
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
