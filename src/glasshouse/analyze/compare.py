"""A prediction beside the measurement, line by line."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from glasshouse.profile.at_once import SingleCall, with_kernels
from glasshouse.profile.memory import MemoryTimeline
from glasshouse.profile.profiler import profile
from glasshouse.profile.steps.steady import LoopSteps, excerpt
from glasshouse.profile.tables import KernelRow, kernels
from glasshouse.profile.text import milliseconds, si_text, table
from glasshouse.profile.trace import Trace

MOST_LINES = 1_000  # of a page's table
UNITS: dict[str, Any] = {
    "ns": milliseconds,
    "B": lambda x: si_text(x, "B"),
    "FLOP": si_text,
}
HEADINGS = ["predicted", "measured", "ratio"]


@dataclass(frozen=True)
class Line:
    """One figure of a step: predicted, measured, in "ns", "B" or "FLOP"."""

    name: str
    predicted: float
    measured: float
    unit: str = "ns"

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured if self.measured else float("nan")

    def cells(self) -> list[str]:
        """Predicted, measured and their ratio as text; empty where there is none."""
        show = UNITS[self.unit]
        both = self.predicted and self.measured
        sides = [show(x) if x else "" for x in (self.predicted, self.measured)]
        return [*sides, f"{self.ratio:.3f}" if both else ""]


@dataclass(frozen=True)
class KernelLine(Line):
    """Kernels of one place in a step, predicted and measured. A side without any has zeros. `line`
    is the user's, where the profile knows it."""

    kind: str = ""
    module: str = ""
    phase: str = ""
    line: str = ""
    predicted_bytes: float = 0
    measured_bytes: float = 0
    predicted_flops: float = 0
    measured_flops: float = 0

    def row(self) -> list[str]:
        """All of it as text."""
        place = f"{self.module} {self.phase} {Path(self.line).name}".strip()
        moved = Line("", self.predicted_bytes, self.measured_bytes, "B")
        flops = Line("", self.predicted_flops, self.measured_flops, "FLOP")
        name = f"{self.kind} {self.name}".strip()
        return [name, place, *self.cells(), *moved.cells()[:2], *flops.cells()[:2]]


class Compared:
    """A step, predicted and measured: the mean of the steady steps, which neither compile nor warm
    up, and the median of their times.

    totals   time, FLOPs and peak memory
    lines    all that computes, in Programs and beside them, the longest first
    kernels  those of the lines that are on both sides"""

    def __init__(self, prediction: Any, trace: Trace) -> None:
        self.prediction = prediction
        self.recording = trace
        self.loop: LoopSteps = LoopSteps(trace)
        self.trace: Trace = with_kernels(
            excerpt(trace, self.loop.steady) if len(self.loop) else trace
        )
        self.steps: int = len(self.loop.steady.begins)

    @cached_property
    def rows(self) -> list[KernelRow]:
        return kernels(self.trace)

    @cached_property
    def totals(self) -> list[Line]:
        """Totals of the step."""
        prediction, trace = self.prediction, self.trace
        flops = sum(row.flops * row.runs for row in self.rows) / self.steps
        totals = [
            Line("time in kernels", prediction.kernel_ns, trace.kernel_ns / self.steps),
            Line("FLOPs of kernels", sum(k.flops for k in prediction.kernels), flops, "FLOP"),
            Line("time of a step", prediction.predicted_ns, self.loop.median_ns),
        ]
        if trace.with_memory:
            peak = MemoryTimeline(self.recording).peak_bytes
            totals.append(Line("peak bytes", prediction.peak_bytes, peak, "B"))
        return totals

    @cached_property
    def lines(self) -> list[KernelLine]:
        """Steps of Programs, and operators beside them."""
        at_once = [isinstance(program, SingleCall) for program in self.trace.programs]
        lines = self.lines_of_operators([row for row in self.rows if at_once[row.program]])
        lines += self.lines_of_programs([row for row in self.rows if not at_once[row.program]])
        return sorted(lines, key=lambda line: -max(line.predicted, line.measured))

    @cached_property
    def kernels(self) -> list[KernelLine]:
        """The lines that were predicted and measured."""
        return [line for line in self.lines if line.predicted and line.measured]

    def lines_of_operators(self, rows: list[KernelRow]) -> list[KernelLine]:
        """Group operators by their name, module and pass."""
        costs = [cost for cost in self.prediction.kernels if cost.kind == "operator"]
        named = grouped(costs, rows, lambda x: (x.name, x.module, x.phase))
        return [self.line_of(*sides) for sides in named]

    def lines_of_programs(self, rows: list[KernelRow]) -> list[KernelLine]:
        """Group Programs whose steps compute the same: one by one, in the order in which they ran,
        where both sides have as many; else all of them."""
        program_costs = [cost for cost in self.prediction.kernels if cost.kind != "operator"]
        lines = []
        for sides in grouped(programs_in(program_costs), programs_in(rows), what_is_computed):
            pairs = [sides]
            if len(sides[0]) == len(sides[1]):
                pairs = [([a], [b]) for a, b in zip(*sides, strict=True)]
            for costs, measured in pairs:
                for place in range(len((costs or measured)[0])):
                    here = ([program[place] for program in side] for side in (costs, measured))
                    lines.append(self.line_of(*here))
        return lines

    def line_of(self, costs: list[Any], rows: list[KernelRow]) -> KernelLine:
        """Line of predicted and measured kernels."""
        first = (costs or rows)[0]
        predicted_ns = sum(cost.ns for cost in costs)
        measured_ns = sum(row.time_ns for row in rows) / self.steps
        work = [
            figure
            for part in ("bytes", "flops")
            for figure in (
                sum(getattr(cost, part) for cost in costs),
                sum(getattr(row, part) * row.runs for row in rows) / self.steps,
            )
        ]
        times = first.name, predicted_ns, measured_ns, "ns"
        place = first.kind, first.module, first.phase, rows[0].line if rows else ""
        return KernelLine(*times, *place, *work)

    @property
    def kernel_error(self) -> float:
        """The median of |predicted / measured - 1| over the kernels, weighted by their time."""
        errors = sorted((abs(k.ratio - 1), k.measured) for k in self.kernels)
        half, total = sum(w for _, w in errors) / 2, 0.0
        for error, weight in errors:
            total += weight
            if total >= half:
                return error
        return float("nan")

    def table(self, row_limit: int = 20) -> str:
        """Both side by side, as text: the longest lines, all others in one, and their sum."""
        totals = [[line.name, *line.cells()] for line in self.totals]
        rows = [line.row() for line in self.shown(row_limit)]
        headings = ["kernel", "for", *HEADINGS]
        headings += [f"{what}, {side}" for what in ("bytes", "FLOPs") for side in HEADINGS[:2]]
        return f"{table(['', *HEADINGS], totals)}\n\n{table(headings, rows, left=2)}\n"

    def shown(self, limit: int) -> list[KernelLine]:
        """The longest lines, all others in one, and the sum of all."""
        others = self.lines[limit:]
        rest = [summed(f"others ({len(others)})", others)] if others else []
        return [*self.lines[:limit], *rest, summed("all", self.lines)]

    def to_dict(self) -> dict[Any, Any]:
        """All of it as JSON."""
        lines = [asdict(line) for line in self.shown(MOST_LINES)]
        count = min(len(self.lines), MOST_LINES)
        return {
            "machine": self.prediction.machine.name,
            "totals": [asdict(line) for line in self.totals],
            "lines": lines[:count],
            "last": lines[count:],
            "memory": self.prediction.memory_by_kind,
        }

    def __str__(self) -> str:
        return self.table()


def grouped(
    predicted: Iterable[Any], measured: Iterable[Any], key: Callable[..., Any]
) -> list[tuple[list[Any], list[Any]]]:
    """Group items of both sides by key."""
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for side, items in enumerate((predicted, measured)):
        for item in items:
            groups.setdefault(key(item), ([], []))[side].append(item)
    return list(groups.values())


def programs_in(steps: list[Any]) -> list[list[Any]]:
    """The steps of each Program, in order."""
    programs: dict[int, list[Any]] = {}
    for step in sorted(steps, key=lambda step: (step.program, step.step)):
        programs.setdefault(step.program, []).append(step)
    return list(programs.values())


def what_is_computed(program: list[Any]) -> tuple[Any, ...]:
    """Key of a Program's computation: the name and FLOPs of each step."""
    return tuple((step.name, step.flops) for step in program)


def summed(name: str, lines: list[KernelLine]) -> KernelLine:
    """Several lines as one."""
    figures = ("predicted", "measured")
    parts = [*figures, *(f"{side}_{what}" for what in ("bytes", "flops") for side in figures)]
    sums = {part: sum(getattr(line, part) for line in lines) for part in parts}
    return KernelLine(name, **sums)


def compare(prediction: Any, measured: profile) -> Compared:
    """Compare the prediction of `step` with a profile of the same step, recorded step by step."""
    return Compared(prediction, measured.trace)
