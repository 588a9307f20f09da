"""Two runs side by side: what became slower or faster, and whether that is more than noise."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.profile.text import milliseconds, table

SAMPLES = 10_000  # of the bootstrap
CONFIDENCE = 0.95


def read_run(path) -> dict:
    """What `export_json` wrote.

    Raises: OptionError for another file.
    """
    try:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: run[name] for name in ("step_ns", "modules", "kernels")}
    except (ValueError, KeyError, TypeError) as error:
        fix = "Write one with --json or prof.export_json."
        raise OptionError("compare", "a file of export_json", f"{path} ({error!r})", fix) from error


class Change(NamedTuple):
    """One module or operator in two runs: ns a step, before and after."""

    name: str
    before_ns: float
    after_ns: float

    @property
    def gained_ns(self) -> float:
        return self.after_ns - self.before_ns


class Comparison:
    """The ratio of step times, after to before, with its interval, and changes by part.
    `ratio` is that of the medians; `low` and `high` bound it with 95 % confidence
    (bootstrap over the steps). One step a run says nothing about noise: the interval is then the
    ratio itself.

    Raises: OptionError for runs without steps.
    Source: Efron & Tibshirani 1993, An introduction to the bootstrap, ch. 13.
    """

    def __init__(self, before: dict, after: dict):
        steps = [np.array(run["step_ns"], float) for run in (before, after)]
        if not all(len(s) for s in steps):
            raise OptionError("compare", "runs with a step or more", "none", "Call prof.step().")
        rng = np.random.default_rng(0)
        drawn = [rng.choice(s, (SAMPLES, len(s))) if len(s) > 1 else s[:, None] for s in steps]
        medians = [np.median(s, axis=1) for s in drawn]
        self.before_ns, self.after_ns = (float(np.median(s)) for s in steps)
        self.ratio = self.after_ns / self.before_ns
        edges = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
        self.low, self.high = np.quantile(medians[1] / medians[0], edges).tolist()
        self.modules = changes(before, after, "modules", steps)
        self.operators = changes(before, after, "kernels", steps)

    def is_slower(self, percent: float) -> bool:
        """Whether a step takes more than `percent` longer, beyond noise."""
        return self.low > 1 + percent / 100

    def table(self, row_limit: int = 15) -> str:
        """The comparison as text, the largest changes first."""
        parts = [
            f"step {milliseconds(self.before_ns)} -> {milliseconds(self.after_ns)}: "
            f"{self.ratio:.3f} times ({CONFIDENCE:.0%}: {self.low:.3f} to {self.high:.3f})"
        ]
        for name, changes_of_kind in (("module", self.modules), ("kernel", self.operators)):
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

    def __repr__(self):
        return self.table()


def changes(before: dict, after: dict, what: str, steps) -> list[Change]:
    sums: dict[str, list[float]] = {}
    for place, run in enumerate((before, after)):
        for row in run[what]:
            name = f"{row['module']} {row['phase']}"
            if what == "modules" and not row["phase"]:
                continue
            if what == "kernels":
                name = f"{row['kind']} {row['name']} {name}"
            ns = row["kernel_ns"] if what == "modules" else row["time_ns"]
            sums.setdefault(name.strip(), [0.0, 0.0])[place] += ns / len(steps[place])
    all_changes = [Change(name, *pair) for name, pair in sums.items()]
    return sorted(all_changes, key=lambda c: -abs(c.gained_ns))
