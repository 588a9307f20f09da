"""The result of `fits`: yes or no, bytes by kind, and the peak after each possible change."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.profile.text import percent, si_text, table


class StepChange(NamedTuple):
    """A change to the step, and the peak that it would give.

    name        the change, in words
    how         how to make it, as code or in words
    peak_bytes  the peak with it; None where the step cannot be made that way
    by_kind     that peak by kind
    fits        whether it fits the device
    is_about    whether sizes were divided by the number of ranks; else the step was analysed
    problem     why the step cannot be made that way; empty if it can"""

    name: str
    how: str
    peak_bytes: int | None
    by_kind: dict[str, int]
    fits: bool
    is_about: bool = False
    problem: str = ""

    def cells(self) -> list[str]:
        """A line of the table."""
        if self.peak_bytes is None:
            return [self.name, self.problem, "", ""]
        peak = f"{'about ' * self.is_about}{si_text(self.peak_bytes, 'B')}"
        return [self.name, self.how, peak, "yes" if self.fits else "no"]


@dataclass(frozen=True, eq=False)
class FitAnswer:
    """Whether a training step fits a device. It is true where the step does, and prints as a page.

    fits          whether it does
    peak_bytes    the most bytes in use in the worst step, and
    device_bytes  how many the device has
    by_kind       bytes alive at the peak, by kind; the rows add up to it
    changes       changes to the step, each with its peak; by default none where it fits
    subject       model, optimizer and engine in words
    analysis      the analysis of the step, as `gh.analyze.step` makes it"""

    peak_bytes: int
    by_kind: dict[str, int]
    device_bytes: int
    changes: list[StepChange]
    subject: str
    analysis: StepAnalysis

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.device_bytes

    def __bool__(self) -> bool:
        return self.fits

    def __str__(self) -> str:
        spare = self.device_bytes - self.peak_bytes
        rest = (
            f"{si_text(spare, 'B')} are left" if self.fits else f"{si_text(-spare, 'B')} too much"
        )
        kinds = [[k, si_text(n, "B"), percent(n, self.peak_bytes)] for k, n in self.by_kind.items()]
        page = (
            f"{'fits' if self.fits else 'does not fit'}: a step takes "
            f"{si_text(self.peak_bytes, 'B')} of {si_text(self.device_bytes, 'B')}; {rest}\n"
            f"{self.subject}\n\n{table(['alive at the peak', 'bytes', '%'], kinds)}\n"
        )
        if self.changes:
            headings = ["to change", "how", "peak", "fits"]
            page += f"\n{table(headings, [change.cells() for change in self.changes], left=2)}\n"
        return page

    def to_dict(self) -> dict[Any, Any]:
        """The answer as JSON values, without the analysis."""
        return {
            "fits": self.fits,
            "peak_bytes": self.peak_bytes,
            "device_bytes": self.device_bytes,
            "by_kind": self.by_kind,
            "changes": [change._asdict() for change in self.changes],
            "subject": self.subject,
        }
