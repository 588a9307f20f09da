"""Two runs side by side: what became slower or faster, and whether that is more than noise.

Runs are compared by their steady steps, so a warm-up in one of them does not count."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.steps.steady import kernels_within
from glasshouse.profile.tables import ModuleTree, kernels
from glasshouse.profile.text import Tabular, milliseconds, table

SAMPLES = 10_000  # of the bootstrap
CONFIDENCE = 0.95


def read_run(path: str | Path) -> dict[Any, Any]:
    """Read a run that `export_json` wrote.

    Raises: OptionError for another file.
    """
    try:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
        run["median_step"]["steady_ns"]  # files of an older version have none
        return run
    except (ValueError, KeyError, TypeError) as error:
        fix = "Write one with --json or prof.export_json."
        raise OptionError("compare", "a file of export_json", f"{path} ({error!r})", fix) from error


def median_step(breakdown: Breakdown) -> dict[Any, Any]:
    """Summarize a run as JSON for comparisons: the times of all steady steps, and those of parts,
    modules and kernels in the median step. Without steps the recording is one step."""
    steps, scale = breakdown.steps, breakdown.scale
    trace = kernels_within(breakdown.trace, steps.middle)
    times = steps.time_ns[steps.is_steady].tolist()
    return {
        "steady_ns": times or [breakdown.plain.wall_ns],
        "parts": [{"name": name, "ns": ns} for name, ns in breakdown.step.items()],
        "modules": [
            {"name": f"{row.module} {row.phase}", "ns": row.kernel_ns * scale}
            for row in ModuleTree(trace).rows()
            if row.phase
        ],
        "kernels": [
            {
                "name": f"{row.kind} {row.name} {row.module} {row.phase}".strip(),
                "ns": row.time_ns * scale,
                "line": row.line,
            }
            for row in kernels(trace)
        ],
    }


class Change(NamedTuple):
    """A part, module, kernel or line in two runs: ns of the median step, before and after."""

    name: str
    before_ns: float
    after_ns: float

    @property
    def gained_ns(self) -> float:
        return self.after_ns - self.before_ns


class Comparison(Tabular):
    """The ratio of step times, after to before, with its interval, and changes by part.
    `ratio` is that of the median steady steps; `low` and `high` bound it with 95 % confidence
    (bootstrap over the steady steps). One step a run says nothing about noise: the interval is
    then the ratio itself.

    Raises: OptionError for runs without steps.
    Source: Efron & Tibshirani 1993, An introduction to the bootstrap, ch. 13.
    """

    before_ns: float
    after_ns: float
    low: Any
    high: Any
    parts: list[Change]
    modules: list[Change]
    operators: list[Change]

    def __init__(self, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        before, after = before["median_step"], after["median_step"]
        steps = [np.array(run["steady_ns"], float) for run in (before, after)]
        if not all(len(s) for s in steps):
            raise OptionError("compare", "runs with a step or more", "none", "Call prof.step().")
        rng = np.random.default_rng(0)
        samples = [rng.choice(s, (SAMPLES, len(s))) if len(s) > 1 else s[:, None] for s in steps]
        medians = [np.median(s, axis=1) for s in samples]
        self.before_ns, self.after_ns = (float(np.median(s)) for s in steps)
        self.ratio: float = self.after_ns / self.before_ns
        edges = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
        self.low, self.high = np.quantile(medians[1] / medians[0], edges).tolist()
        self.parts, self.modules, self.operators = (
            changes(before, after, kind) for kind in ("parts", "modules", "kernels")
        )
        self.lines: list[Change] = changes(before, after, "kernels", by="line")

    def is_slower(self, percent: float) -> bool:
        """Whether a step takes more than `percent` longer, beyond noise."""
        return self.low > 1 + percent / 100

    def table(self, row_limit: int = 15) -> str:
        """The comparison as text, the largest changes first."""
        parts = [
            f"step {milliseconds(self.before_ns)} -> {milliseconds(self.after_ns)}: "
            f"{self.ratio:.3f} times ({CONFIDENCE:.0%}: {self.low:.3f} to {self.high:.3f})"
        ]
        kinds = {
            "part": self.parts,
            "module": self.modules,
            "kernel": self.operators,
            "line": self.lines,
        }
        for name, changes_of_kind in kinds.items():
            if name == "line" and not changes_of_kind:
                continue  # no lines were recorded
            lines = [
                [
                    c.name,
                    milliseconds(c.before_ns),
                    milliseconds(c.after_ns),
                    ("+" if c.gained_ns > 0 else "") + milliseconds(c.gained_ns),
                ]
                for c in changes_of_kind[:row_limit]
            ]
            parts.append(table([f"{name}, a step", "before", "after", "change"], lines))
        return "\n\n".join(parts) + "\n"


def changes(
    before: dict[Any, Any], after: dict[Any, Any], what: str, by: str = "name"
) -> list[Change]:
    """Times of parts, modules, kernels or the user's lines in two median steps, the largest change
    first. A line has the time of the kernels that compute its calls, their gradients included."""
    sums: dict[str, list[float]] = {}
    for place, run in enumerate((before, after)):
        for row in run[what]:
            if row[by]:
                sums.setdefault(row[by], [0.0, 0.0])[place] += row["ns"]
    all_changes = [Change(name, *pair) for name, pair in sums.items()]
    return sorted(all_changes, key=lambda c: -abs(c.gained_ns))
