"""The user's Python functions, also those that call no operator: their own time and their total."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glasshouse.profile.record import ANNOTATION, COMPUTED, STEP
from glasshouse.profile.spans import nearest_around, nested_within
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.text import Tabular, milliseconds, percent, shortened, table
from glasshouse.profile.trace import Trace

FIELDS = ("begin", "end", "thread")


class FunctionRow(NamedTuple):
    """A Python function of the user's: ns of the median step, of itself and with all that it calls;
    calls in a step; and how many operators and runs of Programs there are within a call."""

    name: str
    line: str
    self_ns: float
    total_ns: float
    calls: float
    operators: float


class PythonFunctions(Tabular, list[Any]):
    """Python functions of the user's, those that take the most time themselves first; prints as a
    table. A function's own time is that in which no other function of the user's ran within it, and
    no operator, module, pass or kernel. Time in libraries that record nothing is included.

    Times and calls are those of the median steady step, as in `Breakdown`; without steps those of
    the whole recording.
    """

    def __init__(self, trace: Trace, breakdown: Breakdown | None = None) -> None:
        self.trace = trace
        self.breakdown: Breakdown = breakdown or Breakdown(trace)
        super().__init__(self.build_rows() if len(trace.functions) else ())

    @property
    def step_ns(self) -> float:
        """The median steady step."""
        return self.breakdown.steps.median_ns

    @property
    def without_operators_ns(self) -> float:
        """Own ns, in a step, of functions that call no operator."""
        return sum(row.self_ns for row in self if not row.operators)

    def build_rows(self) -> list[FunctionRow]:
        """A row for each function that took time in the steps around the median."""
        calls, spans = self.trace.functions, self.breakdown.steps.middle
        count, scale = len(self.trace.function_names), self.breakdown.scale
        begins, ends, self_ns = self.times_in_steps
        outermost = ~within_itself(calls["what"], self.parents)
        columns = (
            np.bincount(calls["what"], self_ns, count) * scale,
            np.bincount(calls["what"], (ends - begins) * outermost, count) * scale,
            np.bincount(calls["what"], spans.contain(calls["begin"]), count) / len(spans.begins),
            np.bincount(calls["what"], self.operators, count) / np.bincount(calls["what"]),
        )
        rows = [
            FunctionRow(name, f"{file}:{line}", *numbers)
            for (file, line, name), *numbers in zip(
                self.trace.function_names, *(x.tolist() for x in columns), strict=True
            )
        ]
        return sorted((row for row in rows if row.total_ns), key=lambda row: -row.self_ns)

    @cached_property
    def parents(self) -> np.ndarray:
        """The user's call around each call, or -1."""
        calls = self.trace.functions
        return nearest_around(calls["begin"], calls["end"], calls["thread"])

    @cached_property
    def times_in_steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(begin, end, own ns) of each call on the clock of the steps around the median."""
        trace, spans = self.trace, self.breakdown.steps.middle
        steps, events, calls = trace.steps, trace.events, trace.functions
        on_host = steps.device < 0
        events = events[(events["kind"] != STEP) & (events["kind"] != ANNOTATION)]
        begins, ends, threads = (
            np.concatenate([calls[name], events[name].astype(np.int64), ran[on_host]])
            for name, ran in zip(FIELDS, (steps.begin, steps.end, steps.thread), strict=True)
        )
        times = nested_within(spans, begins, ends, threads)
        of_calls = slice(len(calls))
        return times.begins[of_calls], times.ends[of_calls], times.own_ns[of_calls]

    @cached_property
    def operators(self) -> np.ndarray:
        """How many operators and runs of Programs began within each call, in its thread."""
        trace, calls = self.trace, self.trace.functions
        ops = trace.events[trace.events["kind"] <= COMPUTED]
        times = np.concatenate([ops["begin"], [run.begin_ns for run in trace.program_runs]])
        threads = np.concatenate([ops["thread"], [run.thread for run in trace.program_runs]])
        counts = np.zeros(len(calls), np.int64)
        for thread in np.unique(calls["thread"]).tolist():
            starts, inside = np.sort(times[threads == thread]), calls["thread"] == thread
            first, last = (
                np.searchsorted(starts, calls[name][inside]) for name in ("begin", "end")
            )
            counts[inside] = last - first
        return counts

    @property
    def sentence(self) -> str:
        """The time of functions that call no operator, in one sentence."""
        ns = self.without_operators_ns
        share = f"{milliseconds(ns)} of a median step ({percent(ns, self.step_ns) or '0%'})"
        return f"Python functions of yours that call no operator take {share}."

    def table(self, row_limit: int = 30) -> str:
        """The functions as text; all if row_limit is -1."""
        shown = self if row_limit < 0 else self[:row_limit]
        lines = [
            [
                row.name,
                shortened(row.line, 32),
                milliseconds(row.self_ns),
                percent(row.self_ns, self.step_ns),
                milliseconds(row.total_ns),
                f"{row.calls:,.4g}",
                f"{row.operators:,.4g}" if row.operators else "none",
            ]
            for row in shown
        ]
        headings = ["Python function", "line", "self", "% of step", "total", "calls", "operators"]
        rest = len(self) - len(shown)
        text = f"{self.sentence}\n\n" + table(headings, lines, left=2) + "\n"
        return f"{text}and {rest:,} more\n" if rest else text


def within_itself(what: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Which calls lie in another call of the same function."""
    is_within, around = np.zeros(len(what), bool), parents.copy()
    while (is_inside := around >= 0).any():
        is_within |= is_inside & (what[around] == what)
        around = np.where(is_inside, parents[around], -1)
    return is_within
