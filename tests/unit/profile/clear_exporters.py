"""The records of a trace made one by one: slow and clear twins of the exporters, which make the
text of equal slices once."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from glasshouse.profile import record as recorded
from glasshouse.profile.traces.chrome import DEVICES, OVERLAPS, Slice, nested_tracks
from glasshouse.profile.traces.chrome_lines import LineExporter
from glasshouse.profile.traces.hta import (
    COUNTERS,
    DEVICE,
    REGION,
    US,
    HtaExporter,
    counters,
    launch_name,
)


class KernelSlice(NamedTuple):
    """A step that ran: its slice, the events whose calls it computed, its row in `trace.steps`."""

    slice: Slice
    events: list[int]
    row: int


class OneByOne:
    """The records of any exporter."""

    def __init__(self, trace: Any, shapes: bool) -> None:
        super().__init__(trace, shapes)
        self.place: dict[int, Slice] = {}  # of events
        self.moved: dict[int, Slice] = {}  # slices on another track, by the id of the original

    def time(self, ns: int) -> float:
        return self.microseconds(int(ns))

    def duration(self, begin: int, end: int) -> float:
        return self.time(end - begin)

    def records(self) -> Iterator[dict[str, Any]]:
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
        for before, after in self.backward_pairs():
            yield from self.arrow("fwdbwd", self.place[before], self.place[after])
        yield from self.kernel_arrows(kernels, beside)
        yield from self.memory_records()

    def lines(self) -> Iterator[str]:
        """The records as text."""
        return map(json.JSONEncoder().encode, self.records())

    def host_slices(self) -> list[Slice]:
        trace, slices = self.trace, []
        for i, e in enumerate(trace.events):
            name, category, args = self.event_text(e)
            numbers: dict[Any, Any] = {"External id": i + 1}
            if (seq := int(e["seq"])) >= 0:
                thread = self.forward_thread.get(seq, 0)
                numbers |= {"Sequence number": seq, "Fwd thread id": thread}
            times = int(e["begin"]) - trace.begin_ns, int(e["end"]) - trace.begin_ns
            slices.append(Slice(int(e["thread"]) + 1, *times, name, category, numbers | args))
            self.place[i] = slices[-1]
        return slices

    def kernels(self) -> Iterator[KernelSlice]:
        events = self.events_of_kernels()
        for row, numbers in enumerate(events):
            yield KernelSlice(self.kernel_slice(row), numbers, row)

    def beside_kernels(self, kernels: list[KernelSlice]) -> list[Slice]:
        """Slices beside kernels: the launch of each on a device."""
        return self.launch_slices()

    def arrow(self, category: str, start: Slice, end: Slice) -> Iterator[dict[str, Any]]:
        self.flows += 1
        for ph, s in (("s", start), ("f", end)):
            record = self.slice_record(self.moved.get(id(s), s))
            more = {"bp": "e"} if ph == "f" else {}
            fields = {"ph": ph, "id": self.flows, "cat": category, "name": category}
            yield fields | {name: record[name] for name in ("pid", "tid", "ts")} | more

    def kernel_arrows(
        self, kernels: list[KernelSlice], beside: list[Slice]
    ) -> Iterator[dict[str, Any]]:
        launch_of = {s.args["correlation"]: s for s in beside}
        for k in kernels:
            starts = [self.place[event] for event in k.events]
            if k.row + 1 in launch_of:
                starts.append(launch_of[k.row + 1])
            for start in starts:
                yield from self.arrow("ac2g", start, k.slice)

    def slice_record(self, s: Slice) -> dict[str, Any]:
        record = super().slice_record(s)
        args = record.pop("args")
        times = {"ts": self.time(s.begin), "dur": self.duration(s.begin, s.end)}
        return record | {"tid": self.track_of(s)} | times | {"args": args}

    def track_of(self, s: Slice) -> int:
        return s.track


class ClearExporter(OneByOne, LineExporter):
    """The slow twin of `LineExporter`."""


class ClearHtaExporter(OneByOne, HtaExporter):
    """The slow twin of `HtaExporter`."""

    def track_of(self, s: Slice) -> int:
        is_moved = OVERLAPS <= s.track < DEVICES
        return s.track if s.category not in DEVICE or is_moved else s.args["stream"]

    def duration(self, begin: int, end: int) -> int:
        return self.time(end) - self.time(begin)

    def kernels(self) -> Iterator[KernelSlice]:
        steps = self.trace.steps
        for k in super().kernels():
            info = self.trace.info(steps.program[k.row], steps.step[k.row])
            s = self.shown(k.slice, k.row, info)
            if "stream" in s.args:
                yield k._replace(slice=s)

    def beside_kernels(self, kernels: list[KernelSlice]) -> Iterator[Slice]:
        """Slices beside kernels: launches, and the streams' views of steps and annotations."""
        yield from chain.from_iterable(map(self.launch_slices, kernels))
        streams: dict[int, list[tuple[int, Slice]]] = {}
        for k in kernels:
            handed = int(self.trace.steps.launch[k.row]) - self.trace.begin_ns
            at = handed if self.has_device else k.slice.begin
            streams.setdefault(k.slice.track, []).append((at, k.slice))
        for i, e in enumerate(self.trace.events):
            if e["kind"] in (recorded.STEP, recorded.ANNOTATION):
                host = self.place[i]
                for ran in streams.values():
                    yield from region([s for at, s in ran if host.begin <= at < host.end], host)

    def kernel_arrows(
        self, kernels: list[KernelSlice], beside: list[Slice]
    ) -> Iterator[dict[Any, Any]]:
        """Arrows from calls, and counters of kernels; HTA pairs launches by their numbers."""
        yield from super().kernel_arrows(kernels, [])
        for k in kernels:
            if k.slice.category == "kernel":
                info = self.trace.info(k.slice.args["program"], k.slice.args["step"])
                begin, end, _ = self.launch_of(k)
                yield {
                    "ph": "X",
                    "cat": "cuda_profiler_range",
                    "name": k.slice.name,
                    "pid": self.pid,
                    "tid": COUNTERS,
                    "ts": self.time(begin),
                    "dur": self.duration(begin, end),
                    "args": counters(info, k.slice),
                }

    def launch_slices(self, k: KernelSlice) -> Iterator[Slice]:
        """The launch of a kernel, and PyTorch's record of a collective."""
        begin, end, caller = self.launch_of(k)
        info = self.trace.info(k.slice.args["program"], k.slice.args["step"])
        track = int(self.trace.steps.thread[k.row]) + 1
        if info.group:
            args = self.collective_args(info, k.row)
            yield Slice(track, begin, end, "record_param_comms", "cpu_op", args)
        args = {"correlation": k.row + 1, "External id": caller, "cbid": 211}
        name = launch_name(info, k.slice.category)
        yield Slice(track, begin, end, name, "cuda_runtime", args)

    def launch_of(self, k: KernelSlice) -> tuple[int, int, int]:
        """(from, to, External id of the caller), a µs or longer as written: the device's times;
        else in the last call that the kernel computes and that takes as long; else in its Program's
        run."""
        trace, row = self.trace, k.row
        first, last = (t - trace.begin_ns for t in self.run_times(row))
        if self.has_device:
            begin, end = (
                int(t[row]) - trace.begin_ns for t in (trace.steps.launch, trace.steps.launched)
            )
            begin = min(begin, last - US)
            return begin, max(end, self.next_us(begin)), 0
        for event in reversed(k.events):
            host = self.place[event]
            if self.duration(host.begin, host.end):
                return host.begin, self.next_us(host.begin), event + 1
        begin = max(first, min(k.slice.begin, last - US))
        return begin, self.next_us(begin), 0

    def next_us(self, ns: int) -> int:
        """The end of the written µs in which a time lies."""
        return US * (self.time(ns) + 1)

    def run_times(self, row: int) -> tuple[int, int]:
        """Begin and end of the run that a row of `trace.steps` is of."""
        steps = self.trace.steps
        if steps.run[row] < 0:
            return int(steps.begin[row]), int(steps.end[row])
        run = self.trace.runs[steps.run[row]]
        return run.begin_ns, run.end_ns


def nested(slices: Iterable[Slice], moved: dict[int, Slice]) -> list[Slice]:
    """The slices in a reader's order; what overlaps in part changes its track, noted in `moved`."""
    ordered = sorted(slices, key=lambda s: (s.begin, -s.end))
    columns = ([getattr(s, name) for s in ordered] for name in ("track", "begin", "end"))
    placed = [
        s if track == s.track else moved.setdefault(id(s), s._replace(track=track))
        for s, track in zip(ordered, nested_tracks(*columns), strict=True)
    ]
    return sorted(placed, key=lambda s: s.track)


def region(ran: list[Slice], host: Slice) -> Iterator[Slice]:
    """A stream's view of a region of the host: from its first kernel to its last."""
    if ran:
        args = {name: ran[0].args[name] for name in ("stream", "device")}
        begin, end = min(s.begin for s in ran), max(s.end for s in ran)
        yield Slice(ran[0].track, begin, end, host.name, REGION, args)
