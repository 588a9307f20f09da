"""Python's part of a training step: its kinds of work, and their counter.

Between the kernels of a step on our engine, Python calls functions, records a node for each
primitive, and runs Programs. The counts come from a run on tensors without storage; the time of
each depends on the machine (`MachineProfile.host_ns`, measured by `calibrate`)."""

import sys
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self

from glasshouse.dispatch import TensorBackend


class HostWork(NamedTuple):
    """Counts of Python's work in a step.

    calls     calls of functions, built-in ones among them, outside runs of Programs
    nodes     primitives that are recorded, and belong to a Program that runs
    programs  runs of Programs of recorded nodes
    arrays    those that such Programs read and make
    checks    primitives that are computed at once as well, to check indices
    captured  runs of captured Programs
    handed    arrays that captured Programs read and make"""

    calls: int = 0
    nodes: int = 0
    programs: int = 0
    arrays: int = 0
    checks: int = 0
    captured: int = 0
    handed: int = 0


class CallCounter(AbstractContextManager[Any]):
    """Counts the calls that this thread makes inside, as Python's profilers see them, without those
    made while the backend evaluates or runs a Program."""

    def __init__(self, backend: TensorBackend) -> None:
        self.calls: int = 0
        kind: Any = type(backend)
        self.apart: set[Any] = {kind.evaluate.__code__, kind.program_class.run.__code__}
        self.running: Any = None  # the frame that evaluates or runs a Program
        self.before: Any = None

    def note(self, frame: Any, event: str, arg: Any) -> None:
        """Count an event of `sys.setprofile`."""
        if self.running is not None:
            if event == "return" and frame is self.running:
                self.running = None
        elif event == "call" and frame.f_code in self.apart:
            self.running = frame
        elif event in ("call", "c_call"):
            self.calls += 1

    def __enter__(self) -> Self:
        self.before = sys.getprofile()
        sys.setprofile(self.note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.setprofile(self.before)
