"""Transfers of a transport beside the steps of Programs, shown as a thread for each group of ranks,
and for each channel between stages of a pipeline."""

from collections.abc import Iterator

import numpy as np

from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.steps.work import COLLECTIVE
from glasshouse.dispatch.scope import NOWHERE
from glasshouse.graph.node import Node
from glasshouse.profile.record import RecordedRun
from glasshouse.profile.runs import ProgramStandIn
from glasshouse.profile.trace import Trace

NO_EVENTS = np.zeros(0, np.int32)


class Transfer(ProgramStandIn):
    """A Program whose one step is a collective or a message, as its transport worked on it."""

    def __init__(self, info: StepInfo) -> None:
        nowhere = [Node(x.call, (), x.origin._replace(place=-1)) for x in info.sources]
        super().__init__([info._replace(sources=nowhere, number=0, arena=())])


def with_transfers(trace: Trace) -> Trace:
    """The same trace with the transfers of transports in separate threads."""
    if not trace.messages and not any(run.transfers for run in trace.runs):
        return trace
    other = trace.plain_copy()
    other.threads, other.runs = list(trace.threads), []
    programs: dict[tuple[int, int], Transfer] = {}
    for run in trace.runs:
        other.runs.append(run._replace(transfers=()))
        for step, begin, end in run.transfers:
            key = id(run.program), step
            if key not in programs:
                programs[key] = Transfer(run.program.step_infos()[step])
            ranks = ", ".join(map(str, programs[key].infos[0].group))
            add_run(other, programs[key], f"collectives of ranks {ranks}", begin, end)
    for name, channel, group, nbytes, begin, end in trace.messages:
        info = StepInfo(name, COLLECTIVE, [], NOWHERE, nbytes, nbytes, 0, group=group)
        add_run(other, Transfer(info), channel, begin, end)
    return other


def transfers(trace: Trace) -> Iterator[tuple[str, str, int, int]]:
    """Thread, name, begin and end of each transfer."""
    other = with_transfers(trace)
    for run in other.runs:
        if isinstance(run.program, Transfer):
            name = run.program.step_infos()[0].name
            yield other.threads[run.thread], name, run.begin_ns, int(run.ends_ns[-1])


def add_run(trace: Trace, transfer: Transfer, thread: str, begin: int, end: int) -> None:
    """Have a thread of this name run a transfer, too."""
    if thread not in trace.threads:
        trace.threads.append(thread)
    number = trace.threads.index(thread)
    times = begin, np.array([end]), end
    trace.runs.append(RecordedRun(transfer, *times, NO_EVENTS, number, begin, None))
