"""A prediction beside what was measured."""

from typing import NamedTuple

from glasshouse.analyze.step import StepAnalysis
from glasshouse.profile.profiler import profile
from glasshouse.profile.tables import kernels
from glasshouse.profile.text import milliseconds, table


class Line(NamedTuple):
    """One figure: predicted, measured."""

    name: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured if self.measured else float("nan")


class Compared:
    """Peak memory, FLOPs and time of a step, predicted and measured; `kernels` line by line."""

    def __init__(self, prediction: StepAnalysis, measured: profile):
        trace = measured.trace
        steps = max(1, len(trace.loop_steps()))
        runs = kernels(trace)
        self.totals = [
            Line("kernels, ns a step", prediction.predicted_ns, trace.kernel_ns / steps),
            Line(
                "FLOPs of kernels",
                sum(k.flops for k in prediction.kernels),
                sum(r.flops * r.runs for r in runs) / steps,
            ),
        ]
        if trace.with_memory:
            peak = measured.memory().peak_bytes
            self.totals.append(Line("peak bytes", prediction.peak_bytes, peak))
        measured_kernels = {(r.program, r.step): r for r in runs}
        self.kernels = []
        if len(trace.programs) == len(prediction.runs):
            for k in prediction.kernels:
                row = measured_kernels.get((k.program, k.step))
                if row is not None and row.name == k.name:
                    name = f"{k.kind} {k.name} {k.module} {k.phase}".strip()
                    self.kernels.append(Line(name, k.ns, row.time_ns / row.runs))

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
        """Both side by side, as text."""
        totals = [
            [t.name, f"{t.predicted:,.0f}", f"{t.measured:,.0f}", f"{t.ratio:.3f}"]
            for t in self.totals
        ]
        worst = sorted(self.kernels, key=lambda k: -abs(k.predicted - k.measured))[:row_limit]
        lines = [
            [k.name, milliseconds(k.predicted), milliseconds(k.measured), f"{k.ratio:.2f}"]
            for k in worst
        ]
        head = ["predicted", "measured", "ratio"]
        return f"{table(['', *head], totals)}\n\n{table(['kernel', *head], lines)}\n"

    def __str__(self):
        return self.table()


def compare(prediction: StepAnalysis, measured: profile) -> Compared:
    """The prediction of `step` beside a profile of the same step, recorded step by step."""
    return Compared(prediction, measured)
