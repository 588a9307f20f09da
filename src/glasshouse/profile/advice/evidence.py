"""Evidence for advice: counts and times of a recording, grouped by call and by user's line."""

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glasshouse.dispatch.call import MATRIX, Call
from glasshouse.dispatch.watch import CAPTURED, COMPILED
from glasshouse.profile import record as recorded
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.machine import Limits, limits
from glasshouse.profile.record import COMPUTED
from glasshouse.profile.spans import Spans, covered
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.steps.steady import LoopSteps, excerpt
from glasshouse.profile.tables import KernelRow, kernels
from glasshouse.profile.text import milliseconds
from glasshouse.profile.trace import Trace

LONG = 20  # times a usual call's length: longer gaps are pauses
USUAL = 25  # per cent of calls, and of the Python between them, are no longer than a usual one
PRODUCTS = (
    *MATRIX,
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear"),
    *("aten::convolution", "aten::convolution_backward", "aten::_convolution"),
)


class CallGroup(NamedTuple):
    """Equal calls of one line, module and pass. `kernel_ns` is the time of their kernels; `own_ns`
    is the time from each call to the next, without kernels of another time. `at_once` says whether
    they were computed as they were made, `tracked` whether autograd recorded them; `order` sorts by
    the first of each. A call `in_graph` is one that a captured graph makes as it is."""

    call: Call
    module: str
    phase: str
    line: str
    calls: int
    kernel_ns: float
    own_ns: float
    at_once: bool
    tracked: bool
    order: tuple[int, int]
    in_graph: bool = False

    @property
    def name(self) -> str:
        """Name of the primitive or operator."""
        return self.call.name

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product or a convolution."""
        return self.name in PRODUCTS

    @property
    def where(self) -> str:
        """The operator, its module and pass."""
        inside = f" in {self.module}" if self.module else ""
        return f"{self.name}{inside}, {self.phase}"


class Pause(NamedTuple):
    """Time in which Python does other work than calls, between two of the user's lines."""

    before: str
    after: str
    ns: int
    times: int
    between_steps: bool


class Evidence:
    """Steady steps of a recording, as the rules of advice read them (or the steps in `spans`), one
    right after the other. Memory covers the whole `recording`."""

    def __init__(self, recording: Trace, spans: Spans | None = None) -> None:
        self.recording = recording
        self.steps: LoopSteps = LoopSteps(recording)
        self.spans: Spans = self.steps.steady if spans is None else spans
        self.plain: Trace = excerpt(recording, self.spans) if len(self.steps) else recording
        self.trace: Trace = with_kernels(self.plain)
        self.breakdown: Breakdown = Breakdown(self.plain)

    @cached_property
    def limits(self) -> Limits:
        """Measured limits of this machine."""
        return limits()

    @cached_property
    def rows(self) -> list[KernelRow]:
        """Every step that ran."""
        return kernels(self.trace)

    @cached_property
    def loop_steps(self) -> int:
        """The number of steps in the evidence; 1 if that is not known."""
        return len(self.spans.begins)

    @cached_property
    def wall_ns(self) -> float:
        """The wall time without the profiler's own, which includes its cost for each call."""
        other = covered([self.breakdown.spans["profiler"]], self.plain.begin_ns, self.plain.end_ns)
        return max(1.0, self.plain.wall_ns - float(other) - self.recording_ns.sum())

    @property
    def step_ns(self) -> float:
        """The time of a step without the profiler's own cost."""
        return self.wall_ns / self.loop_steps

    def ms(self, ns: float) -> str:
        """The share of one step in a time of all steps, as text."""
        return milliseconds(ns / self.loop_steps)

    def ns(self, part: str) -> int:
        """Return the ns of a part of the breakdown."""
        return self.breakdown.ns.get(part, 0)

    def ideal_ns(self, flops: float, nbytes: float) -> float:
        """Return the ns of such work at the machine's measured limits of FLOPs and bytes."""
        return 1e9 * max(flops / self.limits.flops_per_s, nbytes / self.limits.bytes_per_s)

    @property
    def how_to_capture(self) -> str:
        """Ways to capture a step of PyTorch's; one where its model is compiled already."""
        if len(self.recording.regions(COMPILED)):
            return "gh.optimize(step), the optimizer and all else beside the compiled model too"
        return 'gh.optimize(step), or torch.compile(model, backend="glasshouse")'

    # -- calls ---------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> list[CallGroup]:
        """All calls, the groups that took longest first."""
        groups = self.event_groups() + self.captured_groups()
        return sorted(groups, key=lambda g: -(g.kernel_ns + g.own_ns))

    def event_groups(self) -> list[CallGroup]:
        """Groups of calls that have events."""
        trace, plain = self.trace, self.plain
        places = np.flatnonzero(trace.is_op & ~self.is_inside)
        if not len(places):
            return []
        events = trace.events[places]
        fields = [events[name] for name in ("what", "scope", "phase")]
        first, inverse = groups_of(*fields, self.stacks_of(places))
        count = len(first)
        counts = np.bincount(inverse, minlength=count)
        kernel = np.bincount(inverse, trace.kernel_ns_of_events[places], count)
        call_ns = np.bincount(inverse, self.own_ns[places], count)
        tracked = np.bincount(inverse, events["seq"] >= 0, count) > 0
        groups = []
        for i, at in enumerate(first.tolist()):
            place = int(places[at])
            e, call = trace.events[place], recorded.calls[int(trace.events[place]["what"])]
            numbers = int(counts[i]), float(kernel[i]), float(call_ns[i])
            at_once = plain.events[place]["kind"] == COMPUTED
            where = trace.scopes[e["scope"]], trace.phases[e["phase"]], self.line_at(place)
            kinds = bool(at_once), bool(tracked[i])
            in_graph = bool(self.is_in_graph[place])
            groups.append(CallGroup(call, *where, *numbers, *kinds, (0, place), in_graph))
        return groups

    @cached_property
    def is_inside(self) -> np.ndarray:
        """Which events lie in a wait for data, or in a step that the host computes."""
        parts = ("waiting for data", "host steps")
        return np.any([self.within(*self.breakdown.spans[part]) for part in parts], axis=0)

    @cached_property
    def is_in_graph(self) -> np.ndarray:
        """Which events lie in a captured graph that makes some calls as they are."""
        regions = self.trace.regions(CAPTURED)
        return self.within(regions["begin"], regions["end"])

    def within(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Which events lie in one of some spans that do not overlap."""
        events = self.trace.events
        if not len(begins):
            return np.zeros(len(events), bool)
        order = np.argsort(begins)
        at = np.searchsorted(begins[order], events["begin"], "right") - 1
        return (at >= 0) & (events["end"] <= ends[order][np.maximum(at, 0)])

    def stacks_of(self, places: np.ndarray) -> np.ndarray:
        """Stack of each call; for a gradient the stack of its forward call."""
        trace = self.trace
        return trace.events["stack"][trace.differentiated(places)].astype(np.int64)

    def captured_groups(self) -> list[CallGroup]:
        """Groups of calls that only Programs know, because their function is captured."""
        trace = self.trace
        sums: dict[tuple[Call, str, str, str], CallGroup] = {}
        for share, ns, runs in trace.unseen:
            if share.call is None:
                continue
            line = trace.line(share.program, share.place)
            key = share.call, share.module, share.phase, line
            order = 1 + share.program, share.place
            total = sums.get(key, CallGroup(*key, 0, 0.0, 0.0, False, False, order))
            sums[key] = total._replace(
                calls=total.calls + runs,
                kernel_ns=total.kernel_ns + float(ns),
                order=min(total.order, order),
            )
        return list(sums.values())

    def line_at(self, event: int) -> str:
        """The user's line of an event, "file.py:12"; "" if no stacks were recorded."""
        return self.line_of_stack(int(self.stacks_of(np.array([event]))[0]))

    def line_of_stack(self, stack: int) -> str:
        """The innermost line of the user's in a stack."""
        frames = self.trace.frames(stack)
        return frames[0].partition("):")[0].replace("(", ":") if frames else ""

    # -- time between calls --------------------------------------------------------------------

    @cached_property
    def items(self) -> np.ndarray:
        """(begin, end, event or -1, run or -1) of the main thread's work, in order: calls, runs of
        Programs, and the regions that are parts of the breakdown by themselves."""
        plain = self.plain
        places = np.flatnonzero(plain.is_op)
        events = plain.events[places]
        rows = [np.stack([events["begin"], events["end"], places, -np.ones_like(places)], 1)]
        runs = [[r.begin_ns, r.end_ns, -1, i] for i, r in enumerate(plain.program_runs)]
        rows.append(np.array(runs, np.int64).reshape(-1, 4))
        for name in ("compiling", "waiting for data", "profiler"):
            begins, ends = self.breakdown.spans[name]
            rows.append(np.stack([begins, ends, -np.ones_like(begins), -np.ones_like(begins)], 1))
        items = np.concatenate(rows).astype(np.int64)
        return items[np.lexsort((-items[:, 1], items[:, 0]))]

    @cached_property
    def recorded_gaps(self) -> np.ndarray:
        """The time from the end of all earlier items to the begin of each item."""
        begins, ends = self.items[:, 0], np.maximum.accumulate(self.items[:, 1])
        before = np.concatenate(([self.plain.begin_ns], ends))[:-1]
        return np.maximum(0, begins - before)

    @cached_property
    def recording_ns(self) -> np.ndarray:
        """The cost of recording each item, which lies in the gap before it."""
        costs = np.append(self.plain.cost_ns, 0)[self.items[:, 2]]  # 0 for items other than calls
        return np.minimum(costs, self.recorded_gaps)

    @cached_property
    def gaps(self) -> np.ndarray:
        """The gap before each item, without the cost of recording the item."""
        return (self.recorded_gaps - self.recording_ns).astype(np.int64)

    @cached_property
    def usual_gap_ns(self) -> float:
        """Usual ns of a call, or of the Python in front of it, while nothing else runs."""
        is_call = self.items[:, 2] >= 0
        calls = self.items[is_call]
        times = np.concatenate((self.gaps[is_call], calls[:, 1] - calls[:, 0]))
        return float(np.percentile(times, USUAL)) if len(times) else 0.0

    @cached_property
    def is_pause(self) -> np.ndarray:
        """Which gaps are too long to be Python between two calls."""
        return self.gaps > LONG * self.usual_gap_ns

    @cached_property
    def own_ns(self) -> np.ndarray:
        """Ns of each event: a call itself and the Python in front of it, without pauses."""
        times = np.zeros(len(self.plain.events))
        is_call = self.items[:, 2] >= 0
        gaps = np.where(self.is_pause, 0, self.gaps)
        spent = self.items[:, 1] - self.items[:, 0] + gaps
        times[self.items[is_call, 2]] = spent[is_call]
        return times

    @cached_property
    def pauses(self) -> list[Pause]:
        """Pauses in which Python does other work than calls, by the lines on both sides. A pause
        counts if it is there in at least half of the steps; its ns are the median times the count,
        or the sum if that is less. A pause that comes once is the machine's."""
        places = np.flatnonzero(self.is_pause)
        begins, gaps = self.items[places, 0], self.gaps[places]
        marks = self.spans.clock(self.spans.ends)
        first, last = np.searchsorted(marks, begins - gaps), np.searchsorted(marks, begins, "right")
        crossed = (first < last) | (places == 0)
        numbers, lines = self.lines_of_items
        before = np.where(crossed, 0, numbers[places - 1])
        firsts, group = groups_of(before, numbers[places], crossed)
        sizes = np.bincount(group, minlength=len(firsts))
        gaps_by_group = np.split(gaps[np.argsort(group, kind="stable")], np.cumsum(sizes)[:-1])
        pauses = [
            Pause(
                lines[before[i]],
                lines[numbers[places[i]]],
                min(int(ns.sum()), int(np.median(ns) * len(ns))),
                len(ns),
                bool(crossed[i]),
            )
            for i, ns in zip(firsts.tolist(), gaps_by_group)
            if 2 * len(ns) >= self.loop_steps
        ]
        return sorted(pauses, key=lambda p: -p.ns)

    @cached_property
    def lines_of_items(self) -> tuple[np.ndarray, list[str]]:
        """Number of each item's line, and the lines, the first of which is "": the line of a call,
        or of the user's code that needed the result of a Program."""
        stacks, (events, runs) = np.zeros(len(self.items), np.int64), self.items[:, 2:].T
        is_call, is_run = events >= 0, runs >= 0
        stacks[is_call] = self.stacks_of(events[is_call])
        of_runs = np.array([run.stack for run in self.plain.program_runs], np.int64)
        stacks[is_run] = of_runs[runs[is_run]]
        numbers = recorded.Numbers({"": 0})
        distinct, place = np.unique(stacks, return_inverse=True)
        line_numbers = np.array(
            [numbers[self.line_of_stack(stack)] for stack in distinct.tolist()], np.int64
        )
        return line_numbers[place.ravel()], list(numbers)

    @cached_property
    def is_captured(self) -> bool:
        """Whether Programs of captured functions ran: watchers saw none of their calls."""
        return bool(self.trace.unseen)


def short(line: str) -> str:
    """A line without the folders in front of its file."""
    return Path(line).name
