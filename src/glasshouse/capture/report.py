"""The report of `explain`: graphs, breaks, guards and recompiles as a table."""

from typing import Any

from glasshouse.dispatch.fallback import FallbackCounter
from glasshouse.profile.text import milliseconds, table


class Explanation:
    """Graphs, breaks, guards, recompiles and times of a capture; `fallbacks` of the run."""

    entries: Any
    breaks: Any

    def __init__(self, fn: Any, capture: Any, result: Any = None, fallbacks: Any = None) -> None:
        self.name: Any = (
            fn if isinstance(fn, str) else getattr(fn, "__qualname__", type(fn).__name__)
        )
        self.entries, self.breaks = capture.entries, capture.breaks
        self.recompiles: Any = capture.recompiles
        self.result = result
        self.fallbacks: Any = FallbackCounter() if fallbacks is None else fallbacks
        self.memory_plans: list[Any] = list(getattr(fn, "memory_plans", ()))

    @property
    def graphs(self) -> list[Any]:
        """The graph modules, in the order in which they were captured."""
        return [entry.graph for entry in self.entries if entry.graph is not None]

    @property
    def guards(self) -> list[str]:
        """The guards of all entries, as Python."""
        return [str(guard) for entry in self.entries for guard in entry.guards]

    @property
    def operations(self) -> int:
        """How many operations the graphs have."""
        return sum(entry.operations for entry in self.entries)

    def __str__(self) -> str:
        head = (
            f"{self.name}: {len(self.graphs)} graphs, {self.operations} operations, "
            f"{len(self.breaks)} breaks, {len(self.guards)} guards, "
            f"{len(self.recompiles)} recompiles"
        )
        rows = [
            [
                entry.name,
                str(entry.operations),
                str(len(entry.guards)),
                milliseconds(entry.capture_ns),
                milliseconds(entry.compile_ns),
                entry.where and f"{entry.where}: {entry.reason}" or "returns",
            ]
            for entry in self.entries
        ]
        parts = [
            head,
            table(["captured", "operations", "guards", "capture", "compile", "ends with"], rows),
        ]
        if self.breaks:
            parts.append("breaks")
            parts += [
                f"  {where}: {reason}" + (f"; {hint}" if hint else "")
                for where, reason, hint in self.breaks
            ]
        if self.recompiles:
            parts.append("recompiles")
            parts += [
                f"  {name}: {guard} failed; was {old!r:.60}, is {new!r:.60}"
                for name, guard, old, new in self.recompiles
            ]
        if self.fallbacks.lines():
            parts.append("fallbacks")
            parts += [f"  {line}" for line in self.fallbacks.lines()]
        parts += [f"memory plan\n{plan}".rstrip() for plan in self.memory_plans]
        return "\n".join(parts)

    __repr__ = __str__
