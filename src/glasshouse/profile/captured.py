"""Captures in the report. Capture is a storey above: each use of it adds itself here."""

from typing import Any

from glasshouse.base.interrupts import Living

captures: Living = Living()


def capture_ns(capture: Any) -> int:
    """Return the ns of capturing the entries that are alive."""
    return sum(e.capture_ns for e in capture.entries)


def capture_data() -> list[dict[Any, Any]]:
    """Functions that are captured now: their graphs, breaks and recompiles."""
    active = [c for c in captures if c.entries or c.breaks]
    return [
        {
            "name": c.name,
            "place": c.place,
            "graphs": sum(e.graph is not None for e in c.entries),
            "entries": len(c.entries),
            "breaks": [list(b) for b in c.breaks],
            "recompiles": [list(r) for r in c.recompiles],
            "capture_ns": capture_ns(c),
            "compile_ns": sum(e.compile_ns for e in c.entries),
        }
        for c in sorted(active, key=lambda c: c.name)
    ]
