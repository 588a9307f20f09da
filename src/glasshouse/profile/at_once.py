"""Calls that were computed as they were made, as kernels: on the backends that compute at once, and
in eager PyTorch. Each kind of call, in a module and pass, is a Program of one step."""

import numpy as np

from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.steps.work import StepKind
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.scope import Origin
from glasshouse.graph.node import Node
from glasshouse.profile import record as recorded
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.record import COMPUTED, RECORDED
from glasshouse.profile.runs import CallsAtOnce, ProgramStandIn
from glasshouse.profile.trace import Trace


class OperatorStep(StepKind):
    """A call that a library or an eager backend computes."""

    label = "op"


class SingleCall(ProgramStandIn):
    """A Program of one call, which is the first of a run's events."""

    def __init__(
        self, name: str, call: Call | None, origin: Origin, kind: StepKind | None = None
    ) -> None:
        moved = call.cost.bytes if call is not None else 0
        written_bytes = min(moved, sum(out.nbytes for out in call.outs)) if call is not None else 0
        sources = [Node(call, (), origin)] if call is not None else []
        kind = OperatorStep() if kind is None else kind
        read_bytes = moved - written_bytes
        info = StepInfo(name, kind, sources, origin, read_bytes, written_bytes, 0)
        super().__init__([info])


def with_kernels(trace: Trace) -> Trace:
    """The same trace, in which calls that were computed at once have a kernel each."""
    if trace.kernels_of_calls is None:
        now = np.flatnonzero(trace.events["kind"] == COMPUTED)
        trace.kernels_of_calls = separated(trace, now) if len(now) else trace
    return trace.kernels_of_calls


def separated(trace: Trace, now: np.ndarray) -> Trace:
    other = trace.plain_copy()
    other.events, other.runs = trace.events.copy(), sorted(trace.runs, key=lambda r: r.begin_ns)
    other.events["kind"][now] = RECORDED
    other.kernels_of_calls = other
    calls = trace.events[now]
    first, program = groups_of(calls["what"], calls["scope"], calls["phase"])
    programs = [
        single_call(trace, *fields) for fields in calls[["what", "scope", "phase"]][first].tolist()
    ]
    other.calls_at_once = CallsAtOnce(programs, program, now)
    return other


def single_call(trace: Trace, what: int, scope: int, phase: int) -> SingleCall:
    call = recorded.calls[what]
    return SingleCall(call.name, call, Origin(trace.scopes[scope], trace.phases[phase], 0))
