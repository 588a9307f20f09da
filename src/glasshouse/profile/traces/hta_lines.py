"""The lines of a trace for HTA, made from columns: the text that `HtaExporter` makes, which makes
an object of every slice (`chrome_lines.py` does so for other traces)."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from glasshouse.profile import record as recorded
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.traces.chrome import DEVICES, OVERLAPS, KernelSlice, Slice
from glasshouse.profile.traces.chrome_lines import LineExporter, SliceColumns
from glasshouse.profile.traces.hta import (
    BANDWIDTH,
    COUNTERS,
    NUMBERS,
    REGION,
    STREAM,
    US,
    HtaExporter,
    counters,
    launch_name,
)


class HtaLineExporter(HtaExporter, LineExporter):
    """Writes the text of `HtaExporter`, faster."""

    def __init__(self, trace: Any, shapes: bool) -> None:
        super().__init__(trace, shapes)
        self.first_texts: list[str] = []  # first in the args of slices without an event

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
            s = self.shown(KernelSlice(self.kernel_slice(row), [], row), info).slice
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
        kernels, regions = self.kernel_columns(), self.region_columns()
        parts = [self.event_columns(), kernels[0], self.columns_of(others)]
        parts += [self.launch_columns(), regions[0]]
        counts = [len(part.track) for part in parts]
        self.device_of: np.ndarray = np.full(sum(counts), -1, np.int64)
        self.stream_of: np.ndarray = self.device_of.copy()
        for place, pair in ((counts[0], kernels[1:]), (sum(counts[:-1]), regions[1:])):
            self.device_of[place : place + len(pair[0])] = pair[0]
            self.stream_of[place : place + len(pair[0])] = pair[1]
        return SliceColumns(*map(np.concatenate, zip(*parts, strict=True)))

    def kernel_columns(self) -> tuple[SliceColumns, np.ndarray, np.ndarray]:
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
