"""Assumptions of a graph that a later call may not fulfil.

The graph checks them, and Python does a call in which one fails. If one fails again and again, the
entry is dropped, and the graph breaks there from then on. An entry that was captured with infinity
or NaN is dropped as soon as numbers are finite again."""

from collections import Counter
from typing import Any

from glasshouse.capture.bytecode.instructions import DecodedCode

MOST_FAILURES = 3
CALLS_FOR_EACH = 100  # a rarer failure is tolerated, such as a GradScaler's
MOST_DOUBTS = 3  # from here on the graph breaks at a place


class Assumptions:
    """The assumptions of one entry: their places, and how often one has failed."""

    failures: int

    def __init__(self, doubts: Counter[Any]) -> None:
        self.places: list[tuple[Any, ...]] = []  # (decoded code, instruction)
        self.doubts = doubts  # failures by place
        self.is_usual: bool = True
        self.calls = self.failures = 0
        self.remove: Any = None  # takes the entry off its dispatcher's list

    def note(self, code: Any, instruction: int, is_usual: bool) -> None:
        self.places.append((code, instruction))
        self.is_usual = self.is_usual and is_usual

    def are_doubted(self, code: "DecodedCode", instruction: int) -> bool:
        """Whether nothing may be assumed at a place any more."""
        return self.doubts[code, instruction] >= MOST_DOUBTS

    def failed(self, is_failed_check: Any, error: Exception) -> None:
        """Count a failed check of the graph; drop the entry if there are too many."""
        if not is_failed_check(error):
            return
        self.failures += 1
        most = max(MOST_FAILURES, self.calls // CALLS_FOR_EACH)
        if self.is_usual and self.failures < most or self.remove is None:
            return
        for place in self.places:
            self.doubts[place] += MOST_DOUBTS if self.is_usual else 1
        remove, self.remove = self.remove, None
        remove(None)
