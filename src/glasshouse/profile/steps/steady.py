"""The steady steps of a loop, and a recording cut down to some of its steps.

Steps that compile, capture, or run for the first time say nothing about later ones. So the time of
a step, and the gain of a change, come from the steady steps alone."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from glasshouse.dispatch.watch import LOOKING
from glasshouse.profile.record import COMPUTED
from glasshouse.profile.runs import Steps, times_of_steps
from glasshouse.profile.spans import Spans, covered
from glasshouse.profile.trace import Trace

LOST = 0.01  # of a step: the most that a steady one spends on compiling
SLOW = 1.5  # times as long as the later steps: a step at the begin that still warms up
LATER = 0.25  # of the steps without compiling: so many have to follow the last that compiled


class LoopSteps:
    """The steps of a recording's loop: `spans`, and which of them are steady."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        steps = np.array(trace.loop_steps(), np.int64).reshape(-1, 3)
        self.spans: Spans = Spans(steps[:, 1], steps[:, 2])
        self.is_marked: bool = len(trace.marks) > 0

    def __len__(self) -> int:
        return len(self.spans.begins)

    @property
    def time_ns(self) -> np.ndarray:
        return self.spans.ends - self.spans.begins

    @cached_property
    def lost(self) -> dict[str, Spans]:
        """Time that is no part of a steady step, by name."""
        of = {"compiling": self.trace.compiling, "profiler": self.trace.regions(LOOKING)}
        return {name: Spans(events["begin"], events["end"]) for name, events in of.items()}

    @cached_property
    def is_quiet(self) -> np.ndarray:
        """Which steps compile next to nothing and have a known begin."""
        ns = covered([*self.lost.values()], *self.spans)
        quiet = ns <= LOST * self.time_ns
        if not self.is_marked:
            quiet[:1] = False  # it begins with the recording
        return quiet

    @cached_property
    def is_steady(self) -> np.ndarray:
        """Which steps are steady: those without compiling, after the last one that compiled if
        enough follow it, and after those at the begin that take much longer. All, if none is."""
        steady = self.is_quiet.copy()
        if not steady.any():
            return ~steady
        later = steady & (np.arange(len(self)) > np.flatnonzero(~steady).max(initial=-1))
        if later.sum() >= max(1, LATER * steady.sum()):
            steady = later
        while steady.sum() > 1:
            first, *others = np.flatnonzero(steady)
            if self.time_ns[first] <= SLOW * np.median(self.time_ns[others]):
                break
            steady[first] = False
        return steady

    @property
    def has_steady(self) -> bool:
        """Whether there are steady steps; else all steps count."""
        return bool(self.is_quiet.any())

    @cached_property
    def steady(self) -> Spans:
        """The steady steps; all of a recording that has no steps."""
        return self.chosen(self.is_steady)

    @cached_property
    def lasting(self) -> Spans:
        """Steps from the first on that compiled nothing; later ones may compile."""
        return self.chosen(np.maximum.accumulate(self.is_quiet | (not self.has_steady)))

    @cached_property
    def middle(self) -> Spans:
        """The third of the steady steps that lies around their median."""
        places = np.flatnonzero(self.is_steady)
        order = places[np.argsort(self.time_ns[places], kind="stable")]
        out = len(order) // 3
        is_middle = np.zeros(len(self), bool)
        is_middle[order[out : len(order) - out]] = True
        return self.chosen(is_middle)

    @cached_property
    def median_ns(self) -> float:
        """The median time of a steady step."""
        if not len(self):
            return float(self.trace.wall_ns)
        return float(np.median(self.time_ns[self.is_steady]))

    def chosen(self, mask: np.ndarray) -> Spans:
        if not len(self):
            return Spans(*np.array([[self.trace.begin_ns], [self.trace.end_ns]]))
        return Spans(self.spans.begins[mask], self.spans.ends[mask])


def excerpt(trace: Trace, spans: Spans) -> Trace:
    """Cut a recording to some spans, one right after the other. Memory stays whole."""
    events = trace.events.copy()
    is_inside = spans.contain(events["begin"])
    for name in ("begin", "end"):
        events[name] = spans.clock(events[name])
    is_around = (events["end"] > events["begin"]) & (events["kind"] > COMPUTED)
    is_kept = is_inside | is_around
    other = trace.plain_copy()
    other.events = events[is_kept]
    places = np.append(np.where(is_kept, np.cumsum(is_kept) - 1, -1), -1).astype(np.int32)
    began = np.array([run.begin_ns for run in trace.runs], np.int64)
    chosen = np.flatnonzero(spans.contain(began)) if len(began) else ()
    other.runs = moved([trace.runs[i] for i in chosen], spans, places)
    other.program_runs = other.runs
    other.begin_ns = int(spans.begins[0])
    other.end_ns = other.begin_ns + spans.total_ns
    return other


def kernels_within(trace: Trace, spans: Spans) -> Trace:
    """A recording in which only kernels that began within some spans take time. The records of
    kernels are complete, also for calls that were recorded earlier."""
    other, steps = copy.copy(trace), trace.steps
    inside = spans.contain(steps.begin)
    other.time_of_steps = times_of_steps(Steps(*(column[inside] for column in steps)))
    other.kernels_of_calls = other
    return other


def moved(runs: list[Any], spans: Spans, places: np.ndarray) -> list[Any]:
    """Move runs of Programs to the clock of some spans, with their events' new places (the last of
    which is -1)."""
    if not runs:
        return []
    clock = spans.clock
    times = clock(np.array([(r.begin_ns, r.end_ns, r.first_ns) for r in runs], np.int64)).tolist()
    ends, events = (
        apart([getattr(r, name) for r in runs], move)
        for name, move in (("ends_ns", clock), ("events", places.__getitem__))
    )
    columns = zip(runs, times, ends, events, strict=True)
    return [
        run._replace(
            begin_ns=begin,
            ends_ns=own_ends,
            end_ns=end,
            first_ns=first if run.first_ns else 0,
            events=own_events,
            device=moved_device(run.device, spans),
        )
        for run, (begin, end, first), own_ends, own_events in columns
    ]


def moved_device(device: Any, spans: Spans) -> Any:
    """A device's times on the clock of some spans."""
    if device is None:
        return None
    times = ("launches_ns", "launched_ns", "begins_ns")
    return device._replace(**{name: spans.clock(getattr(device, name)) for name in times})


def apart(arrays: list[np.ndarray], fn: Callable[..., Any]) -> list[np.ndarray]:
    """A function of arrays, called once on all of them."""
    return np.split(fn(np.concatenate(arrays)), np.cumsum([len(x) for x in arrays])[:-1])
