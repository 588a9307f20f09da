"""Traces for HolisticTraceAnalysis (HTA): kernels as a device's, and their launches.

HTA knows PyTorch's traces of GPUs, by their names. So whole µs (it rounds others apart), `aten::`
before primitives, `cudaLaunchKernel` for every launch and `ncclKernel` for every reduction. The
records alone show the steps that ran: steps of a device, with its streams and times; without a
device, the kernels on the CPU as stream 7 of device 0 (8 and more for further threads), which is
labelled so. Each is launched by the last call that it computes (a recorded call waits as a launched
one does), or by its Program's run. Counters are the cards'."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from glasshouse.profile import record as recorded
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.traces.chrome import DEVICES, EXECUTION, OVERLAPS, Slice
from glasshouse.profile.traces.chrome_lines import LineExporter, SliceColumns
from glasshouse.profile.transfers import Transfer

STREAM = 7  # of the kernels on the CPU: PyTorch's number of the default stream
COUNTERS = OVERLAPS + 900
US = 1_000  # ns
LAUNCHES = {"gpu_memcpy": "cudaMemcpyAsync", "collective": "cudaLaunchKernelExC"}
REGION = "gpu_user_annotation"
BANDWIDTH = "memory bandwidth (GB/s)"
NUMBERS = ("stream", "correlation", "device", BANDWIDTH)  # that equal kernels do not share
DEVICE = ("kernel", "gpu_memcpy", REGION)


class HtaExporter(LineExporter):
    """Writes the lines of a trace for HTA, made from columns."""

    def name_of_call(self, name: str) -> str:
        """Name a call for HTA; PyTorch's names have their namespace already."""
        return name if "::" in name else f"aten::{name}"

    def __init__(self, trace: Any, shapes: bool) -> None:
        super().__init__(with_kernels(trace), shapes)
        self.recording = trace
        trace = self.trace
        self.has_device: bool = bool((trace.steps.device >= 0).any())
        self.first_texts: list[str] = []  # first in the args of slices without an event

    def shown(self, s: Slice, row: int, info: Any) -> Slice:
        """Add the stream to a kernel's slice, and name a copy or collective as HTA does."""
        steps = self.trace.steps
        program = self.trace.programs[int(steps.program[row])]
        of_host = info.group and not isinstance(program, Transfer)  # it starts, or waits
        if steps.device[row] < 0 and (self.has_device or of_host):
            return s
        device, stream = 0, STREAM + int(steps.thread[row])
        if self.has_device:
            device, stream = int(steps.device[row]), int(steps.stream[row])
        numbers = {"stream": stream, "correlation": row + 1, "device": device}
        name, category, more = s.name, s.category, {}
        if info.group:
            name, more = f"ncclKernel_{name}", {"ranks": list(info.group)}
        elif info.transfer or not info.sources:
            name, category = f"Memcpy {info.transfer or 'DtoD'} ({name})", "gpu_memcpy"
            numbers[BANDWIDTH] = info.written_bytes / max(1, s.end - s.begin)
            more = {"bytes": info.written_bytes}
        args = numbers | s.args | more
        return s._replace(name=name, category=category, args=args)

    def run_slices(self) -> Iterator[Slice]:
        for s in chain(super().run_slices(), self.runs_of_calls()):
            args = s.args | {"External id": 0}
            yield s._replace(
                track=s.track - EXECUTION + 1, name=f"aten::{s.name}", category="cpu_op", args=args
            )

    def runs_of_calls(self) -> Iterator[Slice]:
        """The runs of calls that were computed at once."""
        steps, start = self.trace.steps, self.trace.begin_ns
        for row in np.flatnonzero(steps.run < 0).tolist():
            begin, end = int(steps.begin[row]) - start, int(steps.end[row]) - start
            track, name = EXECUTION + int(steps.thread[row]), f"program {steps.program[row]}"
            yield Slice(track, begin, end, name, "program", {"steps": 1})

    def slice_record(self, s: Slice) -> dict[Any, Any]:
        record = super().slice_record(s)
        if s.category in DEVICE:
            record["pid"] = s.args["device"]
        if s.category == REGION:
            record["args"] = {}  # a slice with a stream counts as a kernel
        return record

    def names(self, tracks: set[int]) -> Iterator[dict[Any, Any]]:
        steps = self.trace.steps
        yield from super().names({t for t in tracks if t < EXECUTION or t >= 2 * EXECUTION})
        places = zip(steps.device, steps.stream)
        device_streams = sorted({(int(d), int(s)) for d, s in places if d >= 0})
        threads = sorted({0, *steps.thread.tolist()})
        for device, stream in device_streams or [(0, STREAM + thread) for thread in threads]:
            label = "" if device_streams else " (kernels on the CPU)"
            yield self.meta("process_name", 0, {"name": f"glasshouse device {device}"}, device)
            yield self.meta("process_labels", 0, {"labels": f"GPU {device}"}, device)
            yield self.meta("thread_name", stream, {"name": f"stream {stream}{label}"}, device)

    def microseconds(self, ns: np.ndarray) -> np.ndarray:
        return ns // US

    def lengths(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        return self.microseconds(end) - self.microseconds(begin)

    # -- kernels -------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> tuple[list[Slice | None], np.ndarray]:
        """(slices of equal kernels in HTA's form; the number of the slice of each step). None is a
        step that no stream shows."""
        steps = self.trace.steps
        first, group = groups_of(steps.program, steps.step, steps.device >= 0)
        slices: list[Slice | None] = []
        for row in first.tolist():
            info = self.trace.info(steps.program[row], steps.step[row])
            s = self.shown(self.kernel_slice(row), row, info)
            slices.append(s if "stream" in s.args else None)
        return slices, group

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of `trace.steps` that streams show."""
        slices, group = self.groups
        return np.flatnonzero(np.array([s is not None for s in slices], bool)[group])

    @cached_property
    def devices(self) -> np.ndarray:
        """The device of each kernel."""
        return self.trace.steps.device[self.rows] if self.has_device else 0 * self.rows

    @cached_property
    def streams(self) -> np.ndarray:
        """The stream of each kernel."""
        steps = self.trace.steps
        return (steps.stream if self.has_device else STREAM + steps.thread)[self.rows]

    @cached_property
    def events_of_rows(self) -> list[list[int]]:
        """The events whose calls each kernel computed."""
        events = list(self.events_of_kernels())
        return [events[row] for row in self.rows.tolist()]

    @cached_property
    def launches(self) -> tuple[list[int], list[int], list[int]]:
        """(from, to, External id of the caller) of each kernel's launch, as `launch_of` has it."""
        trace, steps = self.trace, self.trace.steps
        start, rows = trace.begin_ns, self.rows
        run_of, runs = steps.run[rows], trace.runs
        bounds = [(run.begin_ns, run.end_ns) for run in runs] or [(0, 0)]
        of_step = steps.begin[rows], steps.end[rows]
        first, last = (
            np.where(run_of < 0, step_times, times[run_of]) - start
            for step_times, times in zip(of_step, np.array(bounds, np.int64).T, strict=True)
        )
        caller = np.zeros(len(rows), np.int64)
        if self.has_device:
            begin = np.minimum(steps.launch[rows] - start, last - US)
            end = np.maximum(steps.launched[rows] - start, self.next_of(begin))
            return begin.tolist(), end.tolist(), caller.tolist()
        begin = np.maximum(first, np.minimum(steps.begin[rows] - start, last - US))
        begins, ends = (trace.events[name] - start for name in ("begin", "end"))
        is_seen = (self.lengths(begins, ends) > 0).tolist()
        for i, events in enumerate(self.events_of_rows):
            caller[i] = next((e + 1 for e in reversed(events) if is_seen[e]), 0)
        begin = np.where(caller > 0, begins[caller - 1] if len(begins) else begin, begin)
        return begin.tolist(), self.next_of(begin).tolist(), caller.tolist()

    def next_of(self, ns: np.ndarray) -> np.ndarray:
        """The ends of the written µs in which times lie."""
        return US * (self.microseconds(ns) + 1)

    # -- slices --------------------------------------------------------------------------------

    def all_slices(self) -> SliceColumns:
        """Events, then kernels, then all others; last of all the streams' views of regions."""
        others = list(self.stack_slices()) if self.trace.with_stack else []
        others += self.run_slices()
        kernels, regions = self.placed_kernels(), self.region_columns()
        parts = [self.event_columns(), kernels[0], self.columns_of(others)]
        parts += [self.launch_columns(), regions[0]]
        counts = [len(part.track) for part in parts]
        self.device_of: np.ndarray = np.full(sum(counts), -1, np.int64)
        self.stream_of: np.ndarray = self.device_of.copy()
        for place, pair in ((counts[0], kernels[1:]), (sum(counts[:-1]), regions[1:])):
            self.device_of[place : place + len(pair[0])] = pair[0]
            self.stream_of[place : place + len(pair[0])] = pair[1]
        return SliceColumns(*map(np.concatenate, zip(*parts, strict=True)))

    def placed_kernels(self) -> tuple[SliceColumns, np.ndarray, np.ndarray]:
        """The kernels, and their devices and streams."""
        rows, steps, start = self.rows, self.trace.steps, self.trace.begin_ns
        slices, group = self.groups
        first, which = groups_of(group[rows], self.devices)
        texts = []
        for i in first.tolist():
            s = slices[group[rows[i]]]
            args = s.args | {"device": int(self.devices[i])}
            texts.append(self.text_of(s._replace(args=args), has_numbers=True))
        begin, end = steps.begin[rows] - start, steps.end[rows] - start
        columns = (x.tolist() for x in (rows, self.streams, self.devices, group[rows], end - begin))
        for row, stream, device, number, ns in zip(*columns, strict=True):
            numbers = f'"stream": {stream}, "correlation": {row + 1}, "device": {device}'
            s = slices[number]
            if BANDWIDTH in s.args:
                numbers += f', "{BANDWIDTH}": {s.args["bytes"] / max(1, ns)!r}'
            self.first_texts.append(numbers)
        track, texts = self.tracks_of_steps[rows], np.array(texts, np.int64)[which]
        kernels = SliceColumns(track, begin, end, texts, self.places_of_texts(len(rows)))
        return kernels, self.devices, self.streams

    def places_of_texts(self, count: int) -> np.ndarray:
        """The event numbers of the last `count` first texts; they follow those of real events."""
        return len(self.trace.events) + np.arange(
            len(self.first_texts) - count, len(self.first_texts)
        )

    def text_of(self, s: Slice, has_numbers: bool = False) -> int:
        if has_numbers and "stream" in s.args:  # of a kernel; the head tells its device
            args = {name: x for name, x in s.args.items() if name not in NUMBERS}
            head = self.slice_record(s)
            return self.add_text(head, args, has_numbers)
        return super().text_of(s, has_numbers)

    def numbers(self, events: np.ndarray) -> Iterator[str]:
        count = len(self.trace.events)
        texts = super().numbers(np.where(events < count, events, -1))
        for event, text in zip(events.tolist(), texts, strict=True):
            yield text if event < count else self.first_texts[event - count]

    def launch_columns(self) -> SliceColumns:
        """Launches of kernels, each after PyTorch's record of a collective."""
        steps, slices, group = self.trace.steps, *self.groups
        texts, before = {}, len(self.first_texts)
        launched = []
        rows = zip(self.rows.tolist(), group[self.rows].tolist(), *self.launches, strict=True)
        for row, number, begin, end, caller in rows:
            track = int(steps.thread[row]) + 1
            if number not in texts:
                info = self.trace.info(steps.program[row], steps.step[row])
                name = launch_name(info, slices[number].category)
                s = Slice(0, 0, 0, name, "cuda_runtime", {"cbid": 211})
                texts[number] = self.text_of(s, has_numbers=True), info
            text, info = texts[number]
            if info.group:
                args = self.collective_args(info, row)
                record = Slice(track, begin, end, "record_param_comms", "cpu_op", args)
                launched.append((track, begin, end, self.text_of(record), -1))
            place = len(self.trace.events) + len(self.first_texts)
            self.first_texts.append(f'"correlation": {row + 1}, "External id": {caller}')
            launched.append((track, begin, end, text, place))
        assert len(self.first_texts) - before == len(self.rows)
        return SliceColumns(*np.array(launched, np.int64).reshape(-1, 5).T)

    def region_columns(self) -> tuple[SliceColumns, np.ndarray, np.ndarray]:
        """Streams' views of steps and annotations: from the first kernel launched inside to the
        last. With their devices and streams."""
        trace, start = self.trace, self.trace.begin_ns
        steps, rows = trace.steps, self.rows
        kinds = trace.events["kind"]
        events = np.flatnonzero((kinds == recorded.STEP) | (kinds == recorded.ANNOTATION))
        from_ns, to_ns = (trace.events[name][events] - start for name in ("begin", "end"))
        tracks = self.tracks_of_steps[rows]
        begins, ends = steps.begin[rows] - start, steps.end[rows] - start
        handed = steps.launch[rows] - start if self.has_device else begins
        by_stream: list[np.ndarray] = []
        for number, track in enumerate(dict.fromkeys(tracks.tolist())):
            track_rows = np.flatnonzero(tracks == track)
            track_rows = track_rows[np.argsort(handed[track_rows], kind="stable")]
            low, high = (np.searchsorted(handed[track_rows], x, "left") for x in (from_ns, to_ns))
            some = np.flatnonzero(low < high)
            bounds = np.stack([low[some], high[some]], axis=1).ravel()
            first = reduced(np.minimum, begins[track_rows], bounds)
            last = reduced(np.maximum, ends[track_rows], bounds)
            place = np.full(len(some), track_rows[0])
            order = np.full(len(some), number)
            by_stream.append(np.stack([events[some], order, place, first, last]))
        numbers = np.concatenate(by_stream or [np.zeros((5, 0))], axis=1).astype(np.int64)
        event, _, place, first, last = numbers[:, np.lexsort((numbers[1], numbers[0]))]
        devices, streams = self.devices[place], self.streams[place]
        texts = []
        for e, device, stream in zip(event.tolist(), devices.tolist(), streams.tolist()):
            args = {"stream": stream, "device": device}
            s = Slice(0, 0, 0, trace.name_of(trace.events[e]), REGION, args)
            texts.append(self.found_text(s))
        columns = tracks[place], first, last, np.array(texts, np.int64), np.full(len(place), -1)
        return SliceColumns(*columns), devices, streams

    def shown_tracks(self, track: np.ndarray) -> np.ndarray:
        is_moved = (track >= OVERLAPS) & (track < DEVICES)
        return np.where((self.stream_of >= 0) & ~is_moved, self.stream_of, track)

    def processes(self, places: np.ndarray) -> list[Any]:
        pid = self.encode(self.pid)
        return [pid if device < 0 else device for device in self.device_of[places].tolist()]

    # -- arrows and counters -------------------------------------------------------------------

    def kernel_pairs(self, count: int) -> Iterator[tuple[int, int]]:
        first = len(self.trace.events)
        for i, events in enumerate(self.events_of_rows):
            for event in events:
                yield event, first + i

    def collective_args(self, info: Any, row: int) -> dict[Any, Any]:
        out = info.sources[0].call.out if info.sources else None
        return {
            "Collective name": info.name,
            "dtype": out.dtype.name if out else "",
            "In msg nelems": out.size if out else 0,
            "Out msg nelems": out.size if out else 0,
            "Group size": len(info.group),
            "Process Group Ranks": str(list(info.group)),
            "Rank": self.trace.rank,
            "Seq": row,
        }

    def counter_lines(self) -> Iterator[str]:
        steps, slices, group = self.trace.steps, *self.groups
        heads: dict[int, tuple[Any, ...]] = {}
        columns = (x.tolist() for x in (self.rows, group[self.rows], steps.time_ns[self.rows]))
        begins, ends, _ = (np.array(x, np.int64) for x in self.launches)
        times = self.microseconds(begins).tolist(), self.lengths(begins, ends).tolist()
        for row, number, ns, ts, dur in zip(*columns, *times, strict=True):
            s = slices[number]
            if s.category != "kernel":
                continue
            if number not in heads:
                fields = {"ph": "X", "cat": "cuda_profiler_range", "name": s.name}
                fields |= {"pid": self.pid, "tid": COUNTERS}
                info = self.trace.info(steps.program[row], steps.step[row])
                heads[number] = self.encode(fields)[:-1], info
            head, info = heads[number]
            args = self.encode(counters(info, Slice(0, 0, ns, "", "", {})))
            yield f'{head}, "ts": {ts}, "dur": {dur}, "args": {args}}}'


def reduced(function: np.ufunc, numbers: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """A ufunc over each part of the numbers; `bounds` has first and end of each part."""
    if not len(bounds):
        return np.zeros(0, numbers.dtype)
    return function.reduceat(np.append(numbers, numbers[-1:]), bounds)[::2]


def launch_name(info: Any, category: str) -> str:
    """The name of the launch of a kernel of this category."""
    return LAUNCHES.get("collective" if info.group else category, "cudaLaunchKernel")


def counters(info: Any, s: Slice) -> dict[Any, Any]:
    ns = max(1, s.end - s.begin)
    return {
        "flops": info.flops,
        "moved_bytes": info.bytes,
        "flops_per_s": info.flops * 10**9 // ns,
        "bytes_per_s": info.bytes * 10**9 // ns,
    }
