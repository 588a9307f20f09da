"""A piece of advice: what to do, where, why, and what to expect of it."""

import linecache
from typing import Any, NamedTuple

from glasshouse.profile.advice.evidence import short
from glasshouse.profile.text import milliseconds, si_text


class Advice(NamedTuple):
    """One thing to do. `cause` is its kind in a word or two; `where` the step or operator, and
    `line` the user's line, if known; `cost_ns` is the measured time there and `gain_ns` the
    expected gain of the change, as `arithmetic` derives it; both are part of `step_ns`, the mean
    time of a steady step. Rules give sums over all steps, which `of_a_step` divides. `memory_bytes`
    is the memory that the change would free, of a peak of `peak_bytes`."""

    cause: str
    where: str
    line: str
    cost_ns: float
    gain_ns: float
    why: str
    change: str
    arithmetic: str
    step_ns: float
    memory_bytes: int = 0
    peak_bytes: int = 0
    urgent: bool = False  # the program may fail
    is_bound: bool = False  # the gain is an upper bound, and may be none

    def of_a_step(self, steps: int) -> "Advice":
        """The same advice for one step, from sums over several."""
        names = ("cost_ns", "gain_ns", "step_ns")
        return self._replace(**{name: getattr(self, name) / steps for name in names})

    @property
    def share(self) -> float:
        """Its rank: the share of a step that is gained, or half the share of memory."""
        memory = self.memory_bytes / self.peak_bytes / 2 if self.peak_bytes else 0.0
        return 1.0 if self.urgent else max(self.gain_ns / self.step_ns, memory)

    @property
    def code(self) -> str:
        """Source text of the user's line; "" where it is unknown."""
        file, _, number = self.line.rpartition(":")
        return linecache.getline(file, int(number)).strip() if number.isdigit() else ""

    @property
    def gain(self) -> str:
        """The gain to expect."""
        if self.memory_bytes and self.memory_bytes * self.step_ns > self.gain_ns * self.peak_bytes:
            share = self.memory_bytes / self.peak_bytes
            return f"{si_text(self.memory_bytes, 'B')} less memory, {share:.0%} of the peak"
        if self.peak_bytes and not self.gain_ns:
            return "less memory, but how much is not known"
        at_most = "at most " if self.is_bound else ""
        share = self.gain_ns / self.step_ns
        return f"{at_most}{milliseconds(self.gain_ns)} less, {share:.0%} of a mean step"

    @property
    def text(self) -> str:
        """All of it as a paragraph."""
        place = f" ({short(self.line)}{f': `{self.code}`' if self.code else ''})"
        cost = f"{milliseconds(self.cost_ns)}, {self.cost_ns / self.step_ns:.0%} of a mean step. "
        return (
            f"{self.cause}: {self.where}{place if self.line else ''}. "
            f"{cost if self.cost_ns else ''}{self.why} {self.change} "
            f"{'Try it, for' if self.is_bound else 'Expect'} {self.gain}: {self.arithmetic}."
        )

    def as_dict(self) -> dict[Any, Any]:
        """All of it, as JSON can hold it."""
        derived = {name: getattr(self, name) for name in ("share", "code", "gain", "text")}
        return self._asdict() | derived

    def __str__(self) -> str:
        return self.text
