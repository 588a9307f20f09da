"""Calls that were computed as they were made, as kernels: on the backends that compute at once, and
in eager PyTorch. Each kind of call, in a module and pass, is a Program of one step."""

import copy
from typing import NamedTuple

import numpy as np

from glasshouse.compile.source_map import StepInfo
from glasshouse.compile.work import StepKind
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.scope import Origin
from glasshouse.profile import record as recorded
from glasshouse.profile.record import COMPUTED, RECORDED, RecordedRun
from glasshouse.profile.trace import Trace


class OperatorStep(StepKind):
    """A call that a library or an eager backend computes."""

    label = "op"


class SourceCall(NamedTuple):
    """A call that a step computes, as steps of Programs name theirs."""

    call: Call
    origin: Origin


class SingleCall:
    """A Program that computes one call, which is the first of a run's events."""

    arena_bytes = 0

    def __init__(self, name: str, call: Call | None, origin: Origin, kind: StepKind | None = None):
        self.sources: dict = {}
        self.lines: dict[int, str] = {}
        moved = call.cost.bytes if call is not None else 0
        written = min(moved, sum(out.nbytes for out in call.outs)) if call is not None else 0
        sources = [SourceCall(call, origin)] if call is not None else []
        kind = OperatorStep() if kind is None else kind
        self.info = StepInfo(name, kind, sources, origin, moved - written, written, 0)

    def step_infos(self) -> list[StepInfo]:
        return [self.info]


def with_kernels(trace: Trace) -> Trace:
    """The same trace, in which calls that were computed at once have a kernel each."""
    if trace.kernels_of_calls is None:
        now = np.flatnonzero(trace.events["kind"] == COMPUTED)
        trace.kernels_of_calls = separated(trace, now) if len(now) else trace
    return trace.kernels_of_calls


def separated(trace: Trace, now: np.ndarray) -> Trace:
    other = copy.copy(trace)
    for name in [name for name in vars(other) if name in trace.worked_out()]:
        delattr(other, name)
    other.events, other.runs = trace.events.copy(), list(trace.runs)
    other.events["kind"][now] = RECORDED
    other.kernels_of_calls = other
    programs: dict[tuple[int, int, int], SingleCall] = {}
    for place, e in zip(now.tolist(), trace.events[now].tolist(), strict=True):
        begin, end, what, scope, _, _, thread, _, phase = e
        program = programs.get((what, scope, phase))
        if program is None:
            call = recorded.calls[what]
            origin = Origin(trace.scopes[scope], trace.phases[phase], 0)
            program = programs[what, scope, phase] = SingleCall(call.name, call, origin)
        ends, events = np.array([end]), np.array([place])
        run = RecordedRun(program, begin, ends, end, events, thread, begin, None)
        other.runs.append(run)
    other.runs.sort(key=lambda run: run.begin_ns)
    return other
