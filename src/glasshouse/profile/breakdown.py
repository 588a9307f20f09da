"""A step taken apart: each moment of the recording belongs to one thing that took it.

All shares are of one whole, the time that was recorded: they add up to it."""

from functools import cached_property

import numpy as np

from glasshouse.compile.work import COLLECTIVE, REFERENCE
from glasshouse.dispatch.watch import LOOKING, RECEIVING, WAITING
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.record import ANNOTATION
from glasshouse.profile.text import milliseconds, percent, table
from glasshouse.profile.trace import Trace

# What PyTorch's loaders call the region in which the loop waits for them.
LOADERS = ("enumerate(DataLoader)", "DataLoader.__next__")
# Where several go on at once, the moment belongs to the first of these.
PARTS = ("profiler", "compiling", "waiting for data", "communication", "host steps", "kernels")
PYTHON = "Python"
ABOUT = {
    "kernels": "native code computes or moves",
    "host steps": "steps that Python computes, for want of a kernel or of compiling",
    PYTHON: "none of the others: calls being recorded, modules, the loop itself",
    "waiting for data": "the loop waits for its loader's next batch",
    "compiling": "Programs are captured by TorchDynamo, compiled, or read from disk; once for each",
    "communication": "several processes do it together",
    "profiler": "costs of new kinds of calls are worked out; only while recording",
}


class Breakdown:
    """`ns` by part; the parts add up to the time that was recorded.

    Units: ns.
    """

    def __init__(self, trace: Trace):
        self.trace = with_kernels(trace)

    @cached_property
    def spans(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(begins, ends) of what goes on, by part; they may overlap."""
        trace, steps = self.trace, self.trace.steps
        kinds = {name: np.zeros(len(steps.step), bool) for name in PARTS[3:]}
        for program, recorded in enumerate(trace.programs):
            own = np.flatnonzero(steps.program == program)
            parts = [part_of(info) for info in recorded.step_infos()]
            for name, chosen in kinds.items():
                chosen[own] = np.array([part == name for part in parts], bool)[steps.step[own]]
        spans = {name: (steps.begin[own], steps.end[own]) for name, own in kinds.items()}
        here = zip(spans["communication"], of_events(trace.regions(RECEIVING)), strict=True)
        spans["communication"] = tuple(map(np.concatenate, here))
        spans["compiling"] = of_events(trace.compiling)
        spans["waiting for data"] = of_events(waits(trace))
        spans["profiler"] = of_events(trace.regions(LOOKING))
        return spans

    @cached_property
    def ns(self) -> dict[str, int]:
        """How long each part took, the longest first; without those that took no time."""
        trace = self.trace
        taken, ns_of = [], {}
        before = 0
        for name in PARTS:
            taken.append(self.spans[name])
            whole = covered(taken, trace.begin_ns, trace.end_ns)
            ns_of[name], before = whole - before, whole
        ns_of[PYTHON] = trace.wall_ns - before
        return {n: ns for n, ns in sorted(ns_of.items(), key=lambda x: -x[1]) if ns}

    def table(self) -> str:
        """The parts as text; the last column is of the time that was recorded."""
        trace, steps = self.trace, max(1, len(self.trace.loop_steps()))
        lines = [
            [name, milliseconds(ns / steps), percent(ns, trace.wall_ns), ABOUT[name]]
            for name, ns in self.ns.items()
        ]
        lines.append(["all", milliseconds(trace.wall_ns / steps), "100.0%", ""])
        return table(["a step's time", "time", "%", "what it is"], lines) + "\n"

    def __repr__(self):
        return self.table()


def part_of(info) -> str:
    """Which part a step of a Program is of."""
    kind = info.step_kind
    if kind == COLLECTIVE or info.group:
        return "communication"
    return "host steps" if kind.is_host or kind == REFERENCE else "kernels"


def waits(trace: Trace) -> np.ndarray:
    """The events in which a loop waited for its loader, ours or PyTorch's."""
    numbers = [i for i, name in enumerate(trace.names) if name.startswith(LOADERS)]
    events = trace.events
    theirs = events[(events["kind"] == ANNOTATION) & np.isin(events["what"], numbers)]
    return np.concatenate((trace.regions(WAITING), theirs))


def of_events(events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends."""
    return events["begin"], events["end"]


def covered(spans: list[tuple[np.ndarray, np.ndarray]], first: int, last: int) -> int:
    """How much of the time from `first` to `last` lies in one of the spans at least."""
    begins = np.clip(np.concatenate([b for b, _ in spans]), first, last)
    ends = np.clip(np.concatenate([e for _, e in spans]), first, last)
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    reached = np.concatenate(([first], ends))[:-1]
    return int(np.maximum(0, ends - np.maximum(begins, reached)).sum())
