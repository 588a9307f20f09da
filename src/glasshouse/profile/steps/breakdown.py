"""The breakdown of a step, and of a recording: each moment belongs to one part.

The parts of a step add up to the median steady step, those of a recording to all of it."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.steps.work import COLLECTIVE, REFERENCE
from glasshouse.dispatch.watch import LOOKING, RECEIVING, WAITING
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.record import ANNOTATION
from glasshouse.profile.spans import Spans, covered, union
from glasshouse.profile.steps.steady import LoopSteps, excerpt
from glasshouse.profile.text import Tabular, milliseconds, percent, si_text, table
from glasshouse.profile.trace import Trace

# PyTorch's loaders' name for the region in which the loop waits for them.
LOADERS = ("enumerate(DataLoader)", "DataLoader.__next__")
# Where several run at once, the moment belongs to the first of these.
PARTS = ("profiler", "compiling", "waiting for data", "communication", "host steps", "kernels")
PYTHON = "Python"
ABOUT = {
    "kernels": "native code computes or moves",
    "host steps": "steps that Python computes, for want of a kernel or of compiling",
    PYTHON: "none of the others: calls being recorded, modules, the loop itself",
    "waiting for data": "the loop waits for its loader's next batch",
    "compiling": "functions are captured, Programs compiled or read from disk; once for each",
    "communication": "several processes do it together",
    "profiler": "recording (its cost a call is measured), working out what new kinds of calls cost",
    "start-up": "before the first step: imports, data, the model; the first step too if no step() "
    "says where it begins",
    "warm-up": "steps that compile, or are the first to run, without their compiling",
    "steady steps": "all of them",
    "between and after": "what belongs to no step",
}


class PartSpans(NamedTuple):
    """Spans of parts as columns: the part (its place among PARTS), begin, end, the thread of the
    host, and the stream and device (-1 for parts of the host)."""

    part: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    thread: np.ndarray
    device: np.ndarray
    stream: np.ndarray


class Breakdown(Tabular):
    """The time of a recording by part: `step` for the median steady step, `ns` for everything that
    was recorded; `recording` has start-up, warm-up, compiling and steady steps. Each adds up.

    Units: ns.
    """

    def __init__(self, trace: Trace) -> None:
        self.plain = trace
        self.trace: Trace = with_kernels(trace)

    @cached_property
    def steps(self) -> LoopSteps:
        """The steps of the loop."""
        return LoopSteps(self.plain)

    @cached_property
    def middle(self) -> "Breakdown":
        """The breakdown of the steps around the median alone."""
        return Breakdown(excerpt(self.plain, self.steps.middle))

    @property
    def scale(self) -> float:
        """Factor from a time of all steps around the median to the time of the median step."""
        return self.steps.median_ns / max(1, self.middle.trace.wall_ns)

    @cached_property
    def step(self) -> dict[str, int]:
        """How long each part of the median steady step took, the longest first: the mean of the
        steps around the median, scaled to it. Without steps: of all that was recorded."""
        ns, median = self.middle.ns, round(self.steps.median_ns)
        parts = {name: round(x * self.scale) for name, x in ns.items()}
        longest = next(iter(parts), PYTHON)
        parts[longest] = parts.get(longest, 0) + median - sum(parts.values())
        return parts

    @cached_property
    def recording(self) -> dict[str, int]:
        """How long each part of the recording took; nothing if it has no steps."""
        steps, trace = self.steps, self.plain
        if not len(steps):
            return {}
        first, last = trace.begin_ns, trace.end_ns
        rest = steps.steady.without(first, last)
        ns, lost, before = {}, [], 0
        first_step = 0 if steps.is_marked else min(1, len(steps) - 1)  # the first step that counts
        start = steps.spans.begins[first_step]
        others = steps.chosen(~steps.is_steady)
        is_later = others.begins >= start
        for name, spans in [
            *steps.lost.items(),
            ("start-up", Spans(np.array([first]), np.array([start]))),
            ("warm-up", Spans(others.begins[is_later], others.ends[is_later])),
            ("between and after", Spans(np.array([first]), np.array([last]))),
        ]:
            lost.append(spans)
            whole = rest.covered_by(lost)
            ns[name], before = whole - before, whole
        ns["steady steps"] = steps.steady.total_ns
        order = (
            "start-up",
            "compiling",
            "profiler",
            "warm-up",
            "steady steps",
            "between and after",
        )
        return {name: ns[name] for name in order if ns[name]}

    @cached_property
    def spans(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(begins, ends) of each part; they may overlap."""
        return spans_by_part(self.parts)

    @cached_property
    def parts(self) -> "PartSpans":
        """Spans of the parts, by thread and stream."""
        return part_spans(self.trace)

    def within(self, spans: Spans) -> dict[str, np.ndarray]:
        """How long each part took in each of some spans, which lie in order and apart."""
        ns_of = shares_of_spans({name: self.spans[name] for name in PARTS}, *spans)
        rest = spans.ends - spans.begins - sum(ns_of.values())
        events = self.plain.events
        at, is_own = spans.find(events["begin"]), events["thread"] == 0
        is_own &= at >= 0
        costs = np.bincount(at[is_own], self.plain.cost_ns[is_own], len(spans.begins))
        recording_ns = np.minimum(np.rint(costs).astype(np.int64), rest)  # spent on recording calls
        ns_of["profiler"] = ns_of["profiler"] + recording_ns
        return ns_of | {PYTHON: rest - recording_ns}

    @cached_property
    def ns(self) -> dict[str, int]:
        """How long each part took, the longest first; without those that took no time."""
        times = np.array([[self.trace.begin_ns], [self.trace.end_ns]])
        ns_of = {name: int(ns[0]) for name, ns in self.within(Spans(*times)).items()}
        return {n: ns for n, ns in sorted(ns_of.items(), key=lambda x: -x[1]) if ns}

    def table(self) -> str:
        """The parts of a step as text, and those of the recording if it has steps."""
        parts = list(self.step.items())
        text = parts_table("a step's time", parts) + self.about_steps() + "\n"
        text += f"{self.about_cost()}\n" if self.plain.call_costs else ""
        if self.recording:
            text += "\n" + parts_table("the recording", list(self.recording.items()))
        return text

    def data_of_steps(self) -> dict[Any, Any]:
        """The steps of the median as JSON."""
        steps = self.steps
        return {
            "ns": round(steps.median_ns),
            "steady_ns": steps.time_ns[steps.is_steady].tolist(),
            "count": int(steps.is_steady.sum()),
            "are_steady": steps.has_steady,
            "about": self.about_steps(),
            "cost": self.about_cost(),
        }

    def about_steps(self) -> str:
        """The steps of the table, as text."""
        steps, count = self.steps, int(self.steps.is_steady.sum())
        if not len(steps):
            return "all that was recorded: no step() and no optimizer tells steps apart"
        times = steps.time_ns[steps.is_steady]
        kind = "steady steps" if steps.has_steady else "steps, none of which is steady"
        between = f"{milliseconds(times.min())} to {milliseconds(times.max())}"
        return f"median of {count} {kind} of {len(steps)}, {between}"

    def about_cost(self) -> str:
        """The cost of recording a call of each library, after small and after large kernels."""
        costs = []
        for library, points in self.plain.call_costs.items():
            (_, least), (size, most) = points[0], points[-1]
            cold = f" (after {si_text(size, 'B')} are moved {milliseconds(most)})" * (most > least)
            costs.append(f"{milliseconds(least)} a call{f' of {library}' * bool(library)}{cold}")
        return f"recording costs {', '.join(costs)}; advice is without that" if costs else ""


def shares_of_spans(
    parts: dict[str, tuple[Any, ...]], begins: Any, ends: np.ndarray
) -> dict[str, np.ndarray]:
    """Time of each part in each span from `begins` to `ends`; `parts` has the (begins, ends) of
    each. Where several run at once, the moment belongs to the first."""
    earlier, ns_of, before = list[Any](), {}, np.zeros(len(begins), np.int64)
    for name, spans in parts.items():
        earlier = [union([*earlier, spans])]
        whole = covered(earlier, begins, ends)
        ns_of[name], before = whole - before, whole
    return ns_of


def part_spans(trace: Trace) -> PartSpans:
    """Return the spans of parts in a recording: steps of Programs, and regions that have a part."""
    steps, columns = trace.steps, []
    number = np.zeros(len(steps.step), np.int64)
    for program, recorded in enumerate(trace.programs):
        places = np.flatnonzero(steps.program == program)
        parts = [PARTS.index(part_of(info)) for info in recorded.step_infos()]
        number[places] = np.array(parts, np.int64)[steps.step[places]]
    columns.append((number, steps.begin, steps.end, steps.thread, steps.device, steps.stream))
    regions = {
        "profiler": trace.regions(LOOKING),
        "compiling": trace.compiling,
        "waiting for data": waits(trace),
        "communication": trace.regions(RECEIVING),
    }
    for name, events in regions.items():
        part, none = (np.full(len(events), x, np.int64) for x in (PARTS.index(name), -1))
        columns.append((part, *of_events(events), events["thread"].astype(np.int64), none, none))
    return PartSpans(*map(np.concatenate, zip(*columns, strict=True)))


def spans_by_part(spans: PartSpans) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(begins, ends) of each part."""
    chosen = {name: spans.part == i for i, name in enumerate(PARTS)}
    return {name: (spans.begin[mask], spans.end[mask]) for name, mask in chosen.items()}


def part_of(info: StepInfo) -> str:
    """Return the part of a step of a Program."""
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


def parts_table(title: str, parts: list[tuple[str, int]]) -> str:
    """Parts with their descriptions as text, and their sum."""
    whole = sum(ns for _, ns in parts)
    width = max((len(ABOUT[name]) for name, _ in parts), default=0)  # aligned left
    lines = [
        [name, milliseconds(ns), percent(ns, whole), ABOUT[name].ljust(width)] for name, ns in parts
    ]
    lines.append(["all", milliseconds(whole), "100.0%", ""])
    return table([title, "time", "%", "what it is"], lines) + "\n"
