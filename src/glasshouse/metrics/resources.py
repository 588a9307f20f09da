"""Memory of the process and of the memory manager."""

import resource
import sys
from typing import Any

from glasshouse.memory import reset_peak, stats
from glasshouse.metrics.metric import Metric

UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # of getrusage's ru_maxrss


class PeakMemory(Metric):
    """The most bytes in use: of the whole process, resident, since it started; and of tensors,
    handed out by the memory manager, since this was made or reset. `update` looks at both; merged
    states add up, as those of processes that run at the same time.

    Units: bytes.
    Example:
        >>> peak = PeakMemory()
        >>> peak.update()
        >>> peak.value()["resident_bytes"] > 1e6
        True
    """

    gathered: dict[Any, Any] = {"resident_bytes": 0, "managed_bytes": 0}

    def reset(self) -> None:
        """Begin a new peak of the memory manager; the process's peak stays."""
        super().reset()
        reset_peak()

    def update(self) -> None:
        """Look at the peaks so far."""
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.resident_bytes: int = max(self.resident_bytes, peak_kib * UNIT_BYTES)
        self.managed_bytes: int = max(self.managed_bytes, stats().peak_allocated_bytes)

    def value(self) -> dict[Any, Any]:
        """The peaks by name; 0 before the first update."""
        return self.state()
