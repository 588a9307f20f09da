"""A clock that moves only when a test says so, and recordings made by it."""

import sys

import numpy as np

from glasshouse.dispatch.watch import ProgramRun, tell

MS = 1_000_000  # ns
# What tells of times, and what writes them down; native code keeps the clock that it has.
MODULES = [
    *(f"glasshouse.profile.{name}" for name in ("profiler", "record", "annotation")),
    *(f"glasshouse.data.{name}" for name in ("loader", "fetch", "dataset")),
    *(f"glasshouse.torch.{name}" for name in ("scopes.passes", "observe.observer")),
    "glasshouse.torch.observe.loader_times",
]


class Clock:
    """Stands for `perf_counter_ns` where recordings are made; `pass_time` moves it."""

    def __init__(self, monkeypatch):
        self.ns = 1_000 * MS
        for name in MODULES:
            if name in sys.modules:
                monkeypatch.setattr(sys.modules[name], "perf_counter_ns", self.now)

    def now(self) -> int:
        return self.ns

    def pass_time(self, ms: float) -> None:
        self.ns += round(ms * MS)

    def tell_region(self, name: str, ms: float) -> None:
        """A region of so many ms ends."""
        begin_ns = self.ns
        self.pass_time(ms)
        tell("region", name, begin_ns)

    def tell_run(self, program, times_ms, device=None) -> None:
        """A Program runs, whose steps take so many ms."""
        begin_ns, ends = self.ns, self.ns + np.cumsum(np.array(times_ms) * MS).astype(np.int64)
        if device is None:
            self.ns = int(ends[-1])
        tell("program", ProgramRun(program, begin_ns, ends, self.ns, [], 0, device))
