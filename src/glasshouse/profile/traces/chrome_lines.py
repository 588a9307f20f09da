"""The lines of a trace, made from columns.

The texts of equal events and kernels are encoded once, and only numbers are put in between. The
clear form, which makes an object of every slice and encodes it, is the judge of the tests; it is
about ten times as slow."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from glasshouse.profile.grouping import groups_of
from glasshouse.profile.trace import Trace
from glasshouse.profile.traces.chrome import Exporter, Slice, nested_tracks

ROWS = 1 << 15  # lines that are made at once
EVENT_FIELDS = ("kind", "what", "scope", "phase", "stack", "thread")


class SliceColumns(NamedTuple):
    """Slices as columns, ns since the trace began; `text` is the number of the texts before and
    after a slice's numbers. `event` is the event whose numbers come first in its args; -1 where
    there are none."""

    track: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    text: np.ndarray
    event: np.ndarray


class LineExporter(Exporter):
    """Writes the lines of an `Exporter`."""

    def __init__(self, trace: "Trace", shapes: bool) -> None:
        super().__init__(trace, shapes)
        self.texts: list[tuple[str, str]] = []  # in front of the track, at the end of a line
        self.place_of_text: dict[tuple[Any, ...], int] = {}
        self.encode: Callable[..., str] = json.JSONEncoder().encode

    def lines(self) -> Iterator[str]:
        """The lines of all records, in the order of `records`."""
        slices = self.all_slices()
        order = np.lexsort((-slices.end, slices.begin))
        track = slices.track.copy()
        times = (x[order].tolist() for x in (slices.begin, slices.end))
        track[order] = nested_tracks(slices.track[order].tolist(), *times)
        yield from map(self.encode, self.names(set(np.unique(track).tolist())))
        order = order[np.argsort(track[order], kind="stable")]
        track = self.shown_tracks(track)
        for first in range(0, len(order), ROWS):
            places = order[first : first + ROWS]
            yield from self.lines_of(SliceColumns(track[places], *(x[places] for x in slices[1:])))
        pairs = np.array(self.backward_pairs(), np.int64).reshape(-1, 2)
        yield from self.arrow_lines("fwdbwd", track, slices.begin, pairs)
        kernels = np.array(list(self.kernel_pairs(len(track))), np.int64).reshape(-1, 2)
        yield from self.arrow_lines("ac2g", track, slices.begin, kernels)
        yield from self.counter_lines()
        yield from map(self.encode, self.memory_records())

    def shown_tracks(self, track: np.ndarray) -> np.ndarray:
        """Numbers of tracks, as the file has them."""
        return track

    def lengths(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Durations, as the file has them."""
        return self.microseconds(end - begin)

    def counter_lines(self) -> Iterator[str]:
        """Lines of counters that kernels have; here there are none."""
        return iter(())

    # -- slices --------------------------------------------------------------------------------

    def all_slices(self) -> SliceColumns:
        """Events, then kernels, then all others; last of all the launches of steps."""
        kernels = self.kernel_columns()
        others = self.stack_slices() if self.trace.with_stack else []
        others = [*others, *self.run_slices(), *self.launch_slices()]
        parts = self.event_columns(), kernels, self.columns_of(others)
        return SliceColumns(*map(np.concatenate, zip(*parts, strict=True)))

    def event_columns(self) -> SliceColumns:
        events, start = self.trace.events, self.trace.begin_ns
        first, group = groups_of(*(events[name] for name in EVENT_FIELDS))
        texts = []
        for e in events[first]:
            name, category, args = self.event_text(e)
            texts.append(self.text_of(Slice(0, 0, 0, name, category, args), has_numbers=True))
        track = events["thread"].astype(np.int64) + 1
        times = events["begin"] - start, events["end"] - start
        return SliceColumns(track, *times, np.array(texts, np.int64)[group], np.arange(len(events)))

    def kernel_columns(self) -> SliceColumns:
        steps, start = self.trace.steps, self.trace.begin_ns
        first, group = groups_of(steps.program, steps.step)
        texts = [self.text_of(self.kernel_slice(row)) for row in first.tolist()]
        none = np.full(len(group), -1, np.int64)
        times = steps.begin - start, steps.end - start
        return SliceColumns(self.tracks_of_steps, *times, np.array(texts, np.int64)[group], none)

    def columns_of(self, slices: list[Slice]) -> SliceColumns:
        texts = [self.found_text(s) for s in slices]
        numbers = [(s.track, s.begin, s.end, text, -1) for s, text in zip(slices, texts)]
        return SliceColumns(*np.array(numbers, np.int64).reshape(-1, 5).T)

    def found_text(self, s: Slice) -> int:
        """Return the number of a slice's texts, shared by equal slices."""
        key = s.category, s.name, repr(s.args)
        place = self.place_of_text.get(key)
        if place is None:
            place = self.place_of_text[key] = self.text_of(s)
        return place

    def text_of(self, s: Slice, has_numbers: bool = False) -> int:
        """Return the number of a slice's texts; numbers that differ between equal ones come first
        in its args."""
        record = self.slice_record(s)
        return self.add_text(record, record["args"], has_numbers)

    def add_text(self, record: dict[Any, Any], args: dict[Any, Any], has_numbers: bool) -> int:
        """The place of the texts of a record with these args."""
        head = self.encode({name: record[name] for name in ("ph", "cat", "name", "pid")})
        tail = (", " if has_numbers and args else "") + self.encode(args)[1:]
        self.texts.append((f'{head[:-1]}, "tid": ', f"{tail}}}"))
        return len(self.texts) - 1

    def lines_of(self, slices: SliceColumns) -> Iterator[str]:
        times = self.microseconds(slices.begin), self.lengths(slices.begin, slices.end)
        columns = (x.tolist() for x in (slices.track, *times, slices.text))
        texts = self.texts
        for track, begin, length, text, more in zip(
            *columns, self.numbers(slices.event), strict=True
        ):
            head, tail = texts[text]
            yield f'{head}{track}, "ts": {begin}, "dur": {length}, "args": {{{more}{tail}'

    def numbers(self, events: np.ndarray) -> Iterator[str]:
        """The text at the start of each event's args; empty for slices without an event."""
        numbers = np.append(self.trace.events["seq"], -1)[events].tolist()
        for event, seq in zip(events.tolist(), numbers, strict=True):
            more = f'"External id": {event + 1}' if event >= 0 else ""
            if seq >= 0:
                thread = self.forward_thread.get(seq, 0)
                more += f', "Sequence number": {seq}, "Fwd thread id": {thread}'
            yield more

    def kernel_pairs(self, count: int) -> Iterator[tuple[int, int]]:
        """(slice, kernel) for each arrow to a kernel, by their places among `count` slices."""
        first = len(self.trace.events)
        launched = np.flatnonzero(self.trace.steps.device >= 0).tolist()
        launch_of = dict(zip(launched, range(count - len(launched), count), strict=True))
        for row, events in enumerate(self.events_of_kernels()):
            for event in events:
                yield event, first + row
            if row in launch_of:
                yield launch_of[row], first + row

    # -- arrows --------------------------------------------------------------------------------

    def arrow_lines(
        self, category: str, track: np.ndarray, begin: np.ndarray, pairs: np.ndarray
    ) -> Iterator[str]:
        """Two lines for each arrow from a slice to another, by their places."""
        fields = f'"cat": "{category}", "name": "{category}", "pid"'
        for first in range(0, len(pairs), ROWS):
            starts, ends = pairs[first : first + ROWS].T
            columns = []
            for places in (starts, ends):
                times = self.microseconds(begin[places]).tolist()
                columns += [self.processes(places), track[places].tolist(), times]
            for pid, tid, ts, to_pid, to_tid, to_ts in zip(*columns, strict=True):
                self.flows += 1
                named = f'"id": {self.flows}, {fields}'
                yield f'{{"ph": "s", {named}: {pid}, "tid": {tid}, "ts": {ts}}}'
                yield f'{{"ph": "f", {named}: {to_pid}, "tid": {to_tid}, "ts": {to_ts}, "bp": "e"}}'

    def processes(self, places: np.ndarray) -> list[Any]:
        """The process of each of these slices."""
        return [self.encode(self.pid)] * len(places)
