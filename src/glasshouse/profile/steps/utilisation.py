"""Utilisation over time: the activity of each thread and each stream of a device in slices."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import check_least
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.record import STEP
from glasshouse.profile.steps.breakdown import (
    PARTS,
    PYTHON,
    PartSpans,
    of_events,
    part_spans,
    shares_of_spans,
    spans_by_part,
)
from glasshouse.profile.steps.steady import LoopSteps
from glasshouse.profile.text import Tabular, milliseconds, percent, table
from glasshouse.profile.trace import Trace
from glasshouse.profile.transfers import with_transfers

IDLE = "idle"
KINDS = (*PARTS, PYTHON, IDLE)
BUSY = ("kernels", "host steps", "communication")
SHADES = " ▁▂▃▄▅▆▇█"
NAME = 19  # characters of a lane's name in a strip, which is 80 wide with its slices


class Lane(NamedTuple):
    """A thread, or a stream of a device: the share of each slice that each kind took, by kind;
    those of one slice add up to 1."""

    name: str
    shares: dict[str, np.ndarray]

    @property
    def busy(self) -> np.ndarray:
        """The share of each slice in which kernels, steps of the host or communication ran."""
        first, *others = (self.shares[name] for name in BUSY)
        return sum(others, first)


class Utilisation(Tabular):
    """Activity of each thread and device stream in so many slices of equal length: `lanes`, with
    shares by kind. `steady` looks at the time from the first steady step to the last alone.

    The program's own thread is never idle: time without a record is Python. Other threads are idle
    outside of their events, streams outside of their kernels. Transfers of transports have separate
    lanes.

    Units: ns since the recording began, for `edges_ns`.
    """

    def __init__(self, trace: Trace, slices: int = 60, steady: bool = False) -> None:
        check_least("utilisation", "slices", slices, 1, "Give a count of slices.")
        self.trace: Trace = with_kernels(with_transfers(trace))
        spans = LoopSteps(trace).steady
        first, last = trace.begin_ns, trace.end_ns
        if steady:
            first, last = int(spans.begins[0]), int(spans.ends[-1])
        self.edges: np.ndarray = np.rint(np.linspace(first, last, slices + 1)).astype(np.int64)
        self.edges_ns: np.ndarray = self.edges - trace.begin_ns

    @cached_property
    def lanes(self) -> list[Lane]:
        """Threads by their number, then streams of devices; those that did something."""
        trace, spans = self.trace, part_spans(self.trace)
        events = trace.events[trace.events["kind"] != STEP]
        lanes = []
        for number, name in enumerate(trace.threads):
            inside = (spans.device < 0) & (spans.thread == number)
            thread_events = events[events["thread"] == number]
            if number == 0 or len(thread_events) or inside.any():
                lanes.append(self.lane(name, spans, inside, of_events(thread_events), number == 0))
        for device, stream in sorted(set(zip(spans.device.tolist(), spans.stream.tolist()))):
            if device >= 0:
                inside = (spans.device == device) & (spans.stream == stream)
                nothing = of_events(events[:0])
                name = f"device {device} stream {stream}"
                lanes.append(self.lane(name, spans, inside, nothing, False))
        return lanes

    def lane(
        self,
        name: str,
        spans: PartSpans,
        inside: np.ndarray,
        thread_spans: tuple[Any, ...],
        is_main: bool,
    ) -> Lane:
        """A lane of the spans in `inside`; `thread_spans` are the events of its thread."""
        begins, ends = self.edges[:-1], self.edges[1:]
        parts = spans_by_part(PartSpans(*(column[inside] for column in spans)))
        ns_of = shares_of_spans(parts | {PYTHON: thread_spans}, begins, ends)
        rest = ends - begins - sum(ns_of.values())
        ns_of[IDLE] = rest
        if is_main:
            ns_of[PYTHON], ns_of[IDLE] = ns_of[PYTHON] + rest, 0 * rest
        return Lane(name, {kind: ns / np.maximum(1, ends - begins) for kind, ns in ns_of.items()})

    def to_dict(self) -> dict[Any, Any]:
        """The slices and lanes as JSON values, without kinds that took no time."""
        return {
            "edges_ns": self.edges_ns.tolist(),
            "lanes": [
                [lane.name, {k: x.round(3).tolist() for k, x in lane.shares.items() if x.any()}]
                for lane in self.lanes
            ],
        }

    def table(self) -> str:
        """The share of each kind in each lane over all slices, and how busy each lane was in each
        slice, as text."""
        lengths = np.diff(self.edges)
        total = lengths.sum()
        kinds = [kind for kind in KINDS if any(lane.shares[kind].any() for lane in self.lanes)]
        lines = [
            [lane.name, *(percent(float(lane.shares[kind] @ lengths), total) for kind in kinds)]
            for lane in self.lanes
        ]
        strips = [
            f"{lane.name[:NAME]:{NAME}} {''.join(map(shade, lane.busy.tolist()))}".rstrip()
            for lane in self.lanes
        ]
        threads = self.trace.threads_of_kernels
        note = f"; a kernel uses {threads} threads of the processor at most" if threads > 1 else ""
        about = f"busy in each of {len(lengths)} slices of {milliseconds(lengths.mean())}{note}:"
        return "\n".join([table(["of the time", *kinds], lines), "", about, *strips, ""])


def shade(share: float) -> str:
    """A share from 0 to 1 as a bar of one character; nothing but 0 is blank."""
    most = len(SHADES) - 1
    return SHADES[min(most, int(np.ceil(share * most)))]
