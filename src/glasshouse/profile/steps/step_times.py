"""The steps of a loop one by one: their parts, and the waits for data.

All shares are of the median steady step, as those of `Breakdown` are."""

from functools import cached_property
from typing import Any

import numpy as np

from glasshouse.dispatch.watch import COLLATING, CONVERTING, HANDING, READING, TRANSFORMING
from glasshouse.profile.record import ANNOTATION
from glasshouse.profile.spans import Spans, covered, union
from glasshouse.profile.steps.breakdown import (
    LOADERS,
    PARTS,
    PYTHON,
    Breakdown,
    of_events,
    shares_of_spans,
)
from glasshouse.profile.steps.steady import LOST, LoopSteps
from glasshouse.profile.text import Tabular, milliseconds, percent, table
from glasshouse.profile.trace import Trace

MOST_STEPS = 1_000  # of a series in the report
BOUND = 0.05  # of a step: from here on the input pipeline is worth a look
WAIT = "waiting for data"
REST = "workers and the rest"
ABOUT_INPUT = {
    READING: "the data set's own code, for the samples of a batch",
    TRANSFORMING: "functions of map and transform",
    COLLATING: "samples become a batch",
    CONVERTING: "arrays of a batch become tensors",
    HANDING: "worker processes write a batch where the loop reads it",
    REST: "what nothing was recorded of: workers that start, those of PyTorch",
}
# Inner parts come before those around them.
WORK = (TRANSFORMING, COLLATING, READING, HANDING, CONVERTING)
IDLE = "idle"


class StepTimes(Tabular):
    """Each step of the loop: `number`, `time_ns`, `kind`, and `parts` with the time of each part in
    each step, which add up to `time_ns`.

    Units: ns.
    """

    def __init__(self, trace: Trace, breakdown: Breakdown | None = None) -> None:
        self.breakdown: Breakdown = breakdown or Breakdown(trace)
        self.steps: LoopSteps = self.breakdown.steps
        self.number: list[int] = [number for number, _, _ in trace.loop_steps()]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def time_ns(self) -> np.ndarray:
        """How long each step took."""
        return self.steps.time_ns

    @cached_property
    def kind(self) -> list[str]:
        """Kind of each step: "start-up" (it begins with the recording), "compiling" (it compiles or
        captures), "warm-up" (it is not steady), or "steady"."""
        steps = self.steps
        compiled = covered([steps.lost["compiling"]], *steps.spans)
        kinds = np.where(compiled > LOST * self.time_ns, "compiling", "warm-up")
        if not steps.is_marked:
            kinds[:1] = "start-up"
        return np.where(steps.is_steady & steps.has_steady, "steady", kinds).tolist()

    @cached_property
    def parts(self) -> dict[str, np.ndarray]:
        """How long each part took in each step, those that took time at all."""
        parts = self.breakdown.within(self.steps.spans)
        return {name: ns for name, ns in parts.items() if ns.any()}

    def to_dict(self, most: int = MOST_STEPS) -> dict[Any, Any]:
        """The series as JSON values; of more than `most` steps, that many evenly spaced ones."""
        places = np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64))
        return {
            "count": len(self),
            "number": [self.number[i] for i in places],
            "ns": self.time_ns[places].tolist(),
            "kind": [self.kind[i] for i in places],
            "parts": {name: ns[places].tolist() for name, ns in self.parts.items()},
        }

    def table(self, row_limit: int = 20) -> str:
        """The median steady step and the first steps as text; all steps if row_limit is -1."""
        names = [name for name in (*PARTS, PYTHON) if name in self.parts]
        median, count = self.breakdown.step, int(self.steps.is_steady.sum())
        times = [milliseconds(median.get(name, 0)) for name in names]
        lines = [["median", f"of {count}", milliseconds(self.steps.median_ns), *times]]
        shown = len(self) if row_limit < 0 else min(row_limit, len(self))
        for i in range(shown):
            part_times = [milliseconds(self.parts[name][i]) for name in names]
            lines.append(
                [str(self.number[i]), self.kind[i], milliseconds(self.time_ns[i]), *part_times]
            )
        text = table(["step", "kind", "time", *names], lines, left=2) + "\n"
        rest = len(self) - shown
        return f"{text}and {rest:,} more steps\n" if rest else text


class InputPipeline(Tabular):
    """Waits for data in the steady steps, and their causes: `ns` of the median steady step,
    `waits_ns` of each steady step, `parts` of `ns`.

    Units: ns.
    """

    def __init__(self, trace: Trace, breakdown: Breakdown | None = None) -> None:
        self.breakdown: Breakdown = breakdown or Breakdown(trace)
        self.steps: LoopSteps = self.breakdown.steps

    @property
    def step_ns(self) -> float:
        """The median steady step."""
        return self.steps.median_ns

    @property
    def ns(self) -> int:
        """How long the median steady step waits for data."""
        return self.breakdown.step.get(WAIT, 0)

    @property
    def share(self) -> float:
        """The part of the median steady step that waits for data."""
        return self.ns / self.step_ns if self.step_ns else 0.0

    @property
    def is_bound(self) -> bool:
        """Whether a twentieth of the median steady step or more waits for data."""
        return self.share >= BOUND

    @cached_property
    def waits_ns(self) -> np.ndarray:
        """How long each steady step waits for data."""
        return self.breakdown.within(self.steps.steady)[WAIT]

    @cached_property
    def parts(self) -> dict[str, int]:
        """Parts of the median steady step's wait, the longest first: the loader's regions, regions
        of the user's within it, and the rest. They add up to `ns`."""
        middle, scale = self.breakdown.middle, self.breakdown.scale
        waits = union([middle.spans[WAIT]])
        spans = {name: middle.spans[name] for name in PARTS[: PARTS.index(WAIT)]}
        spans |= annotations_within(middle.trace, waits)
        for name in WORK:
            spans[name] = of_events(middle.trace.regions(name))
        shares = shares_of_spans(spans, *waits)
        ns_of = {n: round(ns.sum() * scale) for n, ns in shares.items() if n not in PARTS}
        ns_of[REST] = self.ns - sum(ns_of.values())
        return {name: ns for name, ns in sorted(ns_of.items(), key=lambda x: -x[1]) if ns > 0}

    @cached_property
    def workers(self) -> dict[str, dict[str, float]]:
        """The work of each worker of a loader in a steady step, processes and threads: by name, ns
        of each part, and "idle" for the rest."""
        trace, spans = self.breakdown.trace, self.steps.steady
        regions = {name: trace.regions(name) for name in WORK}
        busy = np.unique(np.concatenate([x["thread"] for x in regions.values()]))
        workers, count = {}, max(1, len(spans.begins))
        for number in sorted(busy[busy > 0].tolist(), key=trace.threads.__getitem__):
            own = {name: of_events(x[x["thread"] == number]) for name, x in regions.items()}
            times = {n: ns.sum() / count for n, ns in shares_of_spans(own, *spans).items()}
            times[IDLE] = spans.total_ns / count - sum(times.values())
            workers[trace.threads[number]] = {n: float(ns) for n, ns in times.items() if ns}
        return workers

    @property
    def copies_ns(self) -> float:
        """How long copies to a device take in the median steady step; they run beside the host."""
        trace, sums = self.breakdown.middle.trace, 0
        for (program, step), (ns, _) in trace.time_of_steps.items():
            sums += ns * (trace.info(program, step).transfer == "HtoD")
        return sums * self.breakdown.scale

    @property
    def sentence(self) -> str:
        """Whether the program is bound by its input, in one sentence."""
        whole = f"a median step ({milliseconds(self.ns)} of {milliseconds(self.step_ns)})"
        if not self.is_bound:
            share = f"waiting for data takes {percent(self.ns, self.step_ns)} of {whole}"
            return f"The program is not input-bound: {share}."
        parts = ", ".join(f"{name} {milliseconds(ns)}" for name, ns in self.parts.items())
        return f"The input pipeline takes {percent(self.ns, self.step_ns)} of {whole}: {parts}."

    def to_dict(self) -> dict[Any, Any]:
        """All fields as JSON values."""
        return {
            "sentence": self.sentence,
            "is_bound": self.is_bound,
            "parts": self.parts,
            "workers": self.workers,
            "copies_ns": self.copies_ns,
            "about": ABOUT_INPUT,
        }

    def table(self) -> str:
        """The sentence, the parts of the wait, and its spread over steps, as text."""
        lines = [
            [
                name,
                milliseconds(ns),
                percent(ns, self.step_ns),
                ABOUT_INPUT.get(name, "your region"),
            ]
            for name, ns in self.parts.items()
        ]
        lines.append([WAIT, milliseconds(self.ns), percent(self.ns, self.step_ns), "all of these"])
        width = max(len(line[3]) for line in lines)
        lines = [[*line[:3], line[3].ljust(width)] for line in lines]
        text = self.sentence + "\n\n"
        text += table(["in a median step", "time", "% of step", "what it is"], lines) + "\n"
        if self.workers:
            text += f"\n{self.table_of_workers()}\n"
        if self.copies_ns:
            text += f"copies to the device, beside the host: {milliseconds(self.copies_ns)}\n"
        if len(self.waits_ns):
            times = [milliseconds(ns) for ns in np.percentile(self.waits_ns, [0, 50, 100])]
            text += f"waits of steady steps: {times[0]} to {times[2]}, median {times[1]}\n"
        return text

    def table_of_workers(self) -> str:
        """Each worker in a steady step, as text."""
        done = [name for name in (*WORK, IDLE) if any(name in x for x in self.workers.values())]
        lines = [
            [worker, *(milliseconds(times.get(name, 0)) for name in done)]
            for worker, times in self.workers.items()
        ]
        return table(["in a mean step", *done], lines)


def annotations_within(trace: Trace, waits: Spans) -> dict[str, tuple[Any, ...]]:
    """(begins, ends) of the regions that the user named within waits for data, by name; shorter
    ones come first, because they lie in the others."""
    events = trace.events[trace.events["kind"] == ANNOTATION]
    events = events[waits.contain(events["begin"])]
    regions = {}
    for what in np.unique(events["what"]).tolist():
        if not trace.names[what].startswith(LOADERS):
            regions[trace.names[what]] = events[events["what"] == what]
    lengths = {name: (x["end"] - x["begin"]).mean() for name, x in regions.items()}
    return {name: of_events(regions[name]) for name in sorted(regions, key=lengths.__getitem__)}
