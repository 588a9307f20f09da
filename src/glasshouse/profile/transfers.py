"""What a transport did beside the steps of Programs, shown as a thread for each group of ranks."""

import copy

import numpy as np

from glasshouse.compile.source_map import StepInfo
from glasshouse.graph.node import Node
from glasshouse.profile.record import RecordedRun
from glasshouse.profile.trace import Trace

NO_EVENTS = np.zeros(0, np.int32)


class Transfer:
    """A Program whose one step is a collective, as its transport worked on it."""

    arena_bytes = 0

    def __init__(self, info: StepInfo):
        self.sources: dict = {}
        self.lines: dict[int, str] = {}
        nowhere = [Node(x.call, (), x.origin._replace(place=-1)) for x in info.sources]
        self.info = info._replace(sources=nowhere, number=0, arena=())

    def step_infos(self) -> list[StepInfo]:
        return [self.info]


def with_transfers(trace: Trace) -> Trace:
    """The same trace, in which what transports did runs in threads of its own."""
    if not any(run.transfers for run in trace.runs):
        return trace
    other = copy.copy(trace)
    for name in [name for name in vars(other) if name in trace.worked_out()]:
        delattr(other, name)
    other.threads, other.runs = list(trace.threads), []
    threads: dict[tuple[int, ...], int] = {}  # by the ranks of a group
    programs: dict[tuple[int, int], Transfer] = {}
    for run in trace.runs:
        other.runs.append(run._replace(transfers=()))
        for step, begin, end in run.transfers:
            key = id(run.program), step
            if key not in programs:
                programs[key] = Transfer(run.program.step_infos()[step])
            ranks = programs[key].info.group
            if ranks not in threads:
                threads[ranks] = len(other.threads)
                other.threads.append(f"collectives of ranks {', '.join(map(str, ranks))}")
            times = begin, np.array([end]), end
            ran = RecordedRun(programs[key], *times, NO_EVENTS, threads[ranks], begin, None)
            other.runs.append(ran)
    other.kernels_of_calls = None
    return other
