"""Fallbacks: cards that a backend has no kernel for, so that their NumPy references run.

Every backend tells them to `TensorBackend.fall_back`, which counts, prints and refuses them; a
`FallbackCounter` is the list that the profiler, `gh.explain` and people read."""

from collections import Counter
from typing import Any, NamedTuple

WHOLE = "program"  # in place of a card: all calls of a recording that could not be compiled


class Fallback(NamedTuple):
    """Calls of a `card` that ran on its reference: why, and the user's line if it is known. Where
    calls are recorded it is that of the first call with these shapes and dtypes."""

    card: str
    reason: str
    line: str = ""

    @property
    def expected(self) -> str:
        return "a Program" if self.card == WHOLE else f"a kernel for {self.card!r}"

    def __str__(self) -> str:
        return f"{self.card}: {self.reason}" + (f" ({self.line})" if self.line else "")


class FallbackCounter(Counter[Any]):
    """How often each card fell back, by its name; `rows` has the same by `Fallback`. `uncompiled`
    counts the runs of recordings whose every call ran on its reference, by the reason.

    Example:
        >>> counter = FallbackCounter()
        >>> counter.count(Fallback("sort", "no kernel for it", "train.py:12"))
        True
        >>> counter
        FallbackCounter({'sort': 1})
        >>> print(counter)
        1 run of sort: no kernel for it (train.py:12)
    """

    def __init__(self, *args: Any, rows: Any = (), uncompiled: Any = ()) -> None:
        super().__init__(*args)
        self.rows: Counter[Fallback] = Counter(rows)
        self.uncompiled: Counter[str] = Counter(uncompiled)

    def count(self, fallback: Fallback) -> bool:
        """Count one more run; whether it is the first of its kind."""
        self[fallback.card] += 1
        self.rows[fallback] += 1
        return self.rows[fallback] == 1

    def copy(self) -> "FallbackCounter":
        return FallbackCounter(self, rows=self.rows, uncompiled=self.uncompiled)

    def since(self, before: "FallbackCounter") -> "FallbackCounter":
        """Counts added since the copy `before` was made."""
        rows, uncompiled = self.rows - before.rows, self.uncompiled - before.uncompiled
        return FallbackCounter(Counter(self) - before, rows=rows, uncompiled=uncompiled)

    def lines(self) -> list[str]:
        """A line for each kind of fallback, the most frequent first, and for uncompiled runs."""
        lines = [f"{runs(count)} of {fallback}" for fallback, count in self.rows.most_common()]
        reasons = self.uncompiled.most_common()
        return lines + [f"{runs(count)} by references: {reason}" for reason, count in reasons]

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no fallbacks"


def runs(count: int) -> str:
    return f"{count:,} run{'s' if count != 1 else ''}"
