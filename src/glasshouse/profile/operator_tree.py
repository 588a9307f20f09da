"""Operators inside of operators: the nesting of calls, with their own and their total times.

Passes contain operators; operators contain the calls that a library's dispatcher recorded
(`inner_operators=True`), and runs of Programs with their steps."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glasshouse.profile import record as recorded
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.libraries import library_of
from glasshouse.profile.naming import name_of_step
from glasshouse.profile.record import COMPUTED, PULL, REGION, Numbers
from glasshouse.profile.spans import nested_within
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.text import Tabular, milliseconds, percent, table
from glasshouse.profile.trace import Trace

MODE = "PythonDispatchMode"  # PyTorch's name for the mode that records the operators
RECORDING = "(recording)"
ENGINE = "autograd::engine::"  # around each node of autograd
MOST_ROWS = 300  # of the report


class TreeRow(NamedTuple):
    """A row of the tree, `depth` below its top: ns and calls of the median step, and the place of
    its parent row (-1: none)."""

    name: str
    depth: int
    parent: int
    total_ns: float
    self_ns: float
    calls: float


class TimedNames(NamedTuple):
    """Named spans of time as columns: the number of the name, begin, end, and thread."""

    name: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    thread: np.ndarray


class OperatorTree(Tabular, list[Any]):
    """Rows of the tree, each followed by those within it, the longest first; prints as a table.
    Equal names within one another (an operator that the dispatcher calls again) are one row.

    Times and calls are those of the median steady step, as in `Breakdown`; without steps those of
    the whole recording.
    """

    trace: Trace
    breakdown: Breakdown

    def __init__(self, trace: Trace, breakdown: Breakdown | None = None) -> None:
        self.trace, self.breakdown = trace, breakdown or Breakdown(trace)
        self.numbers: Numbers = Numbers()
        super().__init__(self.build_rows())

    @cached_property
    def timed(self) -> TimedNames:
        """All spans of the tree; spans that a library recorded replace its operators and nodes."""
        parts = [self.inner_times(), self.event_times(), *self.run_times()]
        return TimedNames(*map(np.concatenate, zip(*parts, strict=True)))

    def numbered(self, names: Any) -> np.ndarray:
        return np.array([self.numbers[name] for name in names], np.int64)

    def inner_times(self) -> TimedNames:
        """Spans of the operators that a library recorded inside its own calls."""
        trace, inner = self.trace, self.trace.inner_operators
        names = ["" if name.startswith(ENGINE) else name for name in trace.inner_names]
        number = self.numbered(names)[inner["what"]]
        is_named = number != self.numbers[""]
        return TimedNames(
            number[is_named], *(inner[name][is_named] for name in ("begin", "end", "thread"))
        )

    def event_times(self) -> TimedNames:
        """Passes, nodes of the tape and operators."""
        trace, events = self.trace, self.trace.events
        chosen = (events["kind"] <= COMPUTED) | np.isin(events["kind"], (REGION, PULL))
        if len(trace.inner_operators):  # in place of nodes and operators of that thread
            whats, inverse = np.unique(events["what"][trace.is_op], return_inverse=True)
            theirs = [bool(library_of(recorded.calls[what])) for what in whats.tolist()]
            is_theirs = events["kind"] == PULL
            is_theirs[trace.is_op] = np.array(theirs, bool)[inverse.ravel()]
            chosen &= ~(is_theirs & (events["thread"] == 0))
        events = events[chosen]
        first, group = groups_of(events["kind"], events["what"])
        names = self.numbered(trace.name_of(events[i]) for i in first.tolist())
        times = (events[name].astype(np.int64) for name in ("begin", "end", "thread"))
        return TimedNames(names[group] if len(group) else np.zeros(0, np.int64), *times)

    def run_times(self) -> Iterator[TimedNames]:
        """Runs of Programs on the host, and their steps."""
        trace, steps = self.trace, self.trace.steps
        runs = [run for run in trace.program_runs if run.device is None]
        names = self.numbered(f"program {trace.number_of[id(run.program)]}" for run in runs)
        rows = [(run.first_ns or run.begin_ns, run.end_ns, run.thread) for run in runs]
        yield TimedNames(names, *np.array(rows, np.int64).reshape(-1, 3).T)
        host_steps = np.flatnonzero((steps.device < 0) & (steps.run >= 0))
        first, group = groups_of(steps.program[host_steps], steps.step[host_steps])
        infos = [trace.info(int(steps.program[i]), int(steps.step[i])) for i in host_steps[first]]
        names = self.numbered(f"{info.kind} {name_of_step(info)}" for info in infos)
        number = names[group] if len(host_steps) else np.zeros(0, np.int64)
        yield TimedNames(
            number, steps.begin[host_steps], steps.end[host_steps], steps.thread[host_steps]
        )

    def build_rows(self) -> list[TreeRow]:
        """Rows of the tree in order."""
        timed, spans = self.timed, self.breakdown.steps.middle
        times = nested_within(spans, timed.begin, timed.end, timed.thread)
        places, inner, own_node, keys = self.places_in_tree(times.around, times.ends > times.begins)
        lengths = np.where(own_node, times.own_ns, times.ends - times.begins)
        is_outer = places >= 0
        is_first = is_outer & (own_node | (places != np.append(inner, -1)[times.around]))
        count, scale = len(keys), self.breakdown.scale
        total = np.bincount(places[is_first], lengths[is_first], count) * scale
        own_ns = np.bincount(places[is_outer], times.own_ns[is_outer], count) * scale
        began = is_first & spans.contain(timed.begin)
        calls = np.bincount(places[began], minlength=count) / len(spans.begins)
        return ordered_rows(keys, list(self.numbers), total, own_ns, calls)

    def places_in_tree(
        self, around: np.ndarray, is_some: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[Any, ...]]]:
        """For each span: the node of its time, the node of spans within it, and whether only its
        own time counts. Also the nodes as (node around, name), level by level."""
        name, mode = self.timed.name, self.numbers[MODE]
        recording = self.numbers[RECORDING]
        places, inner = np.full((2, len(name)), -1, np.int64)
        nodes: dict[tuple[int, int], int] = {}
        depth_of = depths(around)
        for depth in range(int(depth_of.max(initial=-1)) + 1):
            level = np.flatnonzero(is_some & (depth_of == depth))
            outer = np.append(inner, -1)[around[level]]
            names_of = np.array([n for _, n in nodes] + [-1], np.int64)
            is_mode = name[level] == mode
            is_same = (name[level] == names_of[outer]) & (outer >= 0)
            label = np.where(is_mode, recording, name[level])
            first, group = groups_of(outer, label)
            node_numbers = [
                nodes.setdefault((int(outer[i]), int(label[i])), len(nodes))
                if not is_same[i]
                else int(outer[i])
                for i in first.tolist()
            ]
            places[level] = np.array(node_numbers, np.int64)[group] if len(level) else 0
            inner[level] = np.where(is_mode, outer, places[level])
        return places, inner, name == mode, list(nodes)

    def to_list(self) -> list[dict[Any, Any]]:
        """The longest rows as JSON values, with the places of the rows around them."""
        places = {-1: -1}
        shown: list[Any] = []
        for place, row in self.longest(MOST_ROWS):
            places[place] = len(shown)
            shown.append(row._replace(parent=places[row.parent])._asdict())
        return shown

    def longest(self, most: int) -> list[tuple[int, TreeRow]]:
        """(place, row) of so many of the longest rows, and of those around them, in their order."""
        if most < 0 or len(self) <= most:
            return list(enumerate(self))
        chosen = set()
        for place in sorted(range(len(self)), key=lambda i: -self[i].total_ns)[:most]:
            while place >= 0 and place not in chosen:
                chosen.add(place)
                place = self[place].parent
        return [(place, self[place]) for place in sorted(chosen)]

    def table(self, row_limit: int = 60) -> str:
        """The longest rows as text; all if row_limit is -1."""
        step_ns = self.breakdown.steps.median_ns
        shown = self.longest(row_limit)
        lines = [
            [
                "  " * row.depth + row.name,
                milliseconds(row.total_ns),
                percent(row.total_ns, step_ns),
                milliseconds(row.self_ns),
                f"{row.calls:,.4g}",
            ]
            for _, row in shown
        ]
        text = table(["in a median step", "total", "%", "self", "calls"], lines) + "\n"
        rest = len(self) - len(shown)
        return f"{text}and {rest:,} shorter ones\n" if rest else text


def depths(around: np.ndarray) -> np.ndarray:
    """In how many others each span lies."""
    depth, outer = np.zeros(len(around), np.int64), around.copy()
    while (is_inside := outer >= 0).any():
        depth += is_inside
        outer = np.where(is_inside, around[outer], -1)
    return depth


def ordered_rows(
    keys: list[tuple[int, ...]],
    names: list[str],
    total: np.ndarray,
    own_ns: np.ndarray,
    calls: np.ndarray,
) -> list[TreeRow]:
    """The rows of the nodes (node around, name), each followed by those within it."""
    within: dict[int, list[int]] = {}
    for node, (outer, _) in enumerate(keys):
        within.setdefault(outer, []).append(node)
    rows: list[TreeRow] = []
    waiting = [(node, 0, -1) for node in sorted(within.get(-1, []), key=lambda n: total[n])]
    while waiting:
        node, depth, parent = waiting.pop()
        numbers = (float(x[node]) for x in (total, own_ns, calls))
        inside = sorted(within.get(node, []), key=lambda n: total[n])
        waiting += [(child, depth + 1, len(rows)) for child in inside]
        rows.append(TreeRow(names[keys[node][1]], depth, parent, *numbers))
    return rows
