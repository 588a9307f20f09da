"""What capture did, for the report. Capture is a storey above: each use of it adds itself here."""

from glasshouse.base.interrupts import Living

captures = Living()


class CaptureCounts:
    """How much was captured before a recording, by capture."""

    def __init__(self):
        self.counts = {id(c): (len(c.recompiles), capture_ns(c)) for c in captures}

    def since(self, capture) -> tuple[int, int]:
        """How many recompiles there were since then, and what capturing took, in ns."""
        recompiles, ns = self.counts.get(id(capture), (0, 0))
        return len(capture.recompiles) - recompiles, capture_ns(capture) - ns


def capture_ns(capture) -> int:
    """What it took to capture the entries that are alive."""
    return sum(e.capture_ns for e in capture.entries)


def capture_data(before: CaptureCounts) -> list[dict]:
    """Functions that are captured now: their graphs, breaks and recompiles; and what of that was
    done `since` the recording began."""
    used = [c for c in captures if c.entries or c.breaks]
    return [
        {
            "name": c.name,
            "place": c.place,
            "graphs": sum(e.graph is not None for e in c.entries),
            "entries": len(c.entries),
            "breaks": [list(b) for b in c.breaks],
            "recompiles": [list(r) for r in c.recompiles],
            "capture_ns": capture_ns(c),
            "since": before.since(c),
            "compile_ns": sum(e.compile_ns for e in c.entries),
        }
        for c in sorted(used, key=lambda c: c.name)
    ]
