"""The backend without storage: the default one up to the plan of each Program.

Calls are recorded, cut and planned as on the lazy backend, and the memory manager is simulated, so
what would be allocated, donated and freed, and when, is what a run would do."""

from typing import NamedTuple

import numpy as np

from glasshouse import memory
from glasshouse.base import BackendError, Spec, user_line
from glasshouse.compile import plan as planned
from glasshouse.compile import program
from glasshouse.compile.recording import RecordingBackend
from glasshouse.compile.source_map import ReferenceSteps
from glasshouse.compile.target import current_target
from glasshouse.dispatch.bind import state
from glasshouse.graph.graph import graph_of
from glasshouse.graph.node import Node, computed
from glasshouse.graph.record import Recorder, Recording
from glasshouse.targets.cpu import CPU


class MetaArray:
    """What stands where an array would: a spec, and the simulated memory that it would hold."""

    __slots__ = ("spec", "buffer", "base")

    def __init__(self, spec: Spec, buffer=None):
        self.spec, self.buffer, self.base = spec, buffer, None


class MetaRun(NamedTuple):
    """A Program that would have run: its plan, what was in use then, by address, and the bytes."""

    plan: planned.ProgramPlan | ReferenceSteps
    live: dict[int, tuple[int, memory.Tag]]
    allocated_bytes: int
    donated: tuple[int, ...] = ()  # numbers of the inputs whose memory results may take


class MetaBackend(RecordingBackend):
    """Records and plans. `runs` lists what would have run; `manager` is the simulated manager."""

    name = "meta"
    target = CPU  # what would be compiled for where no other target is in use
    checks_indices = computes = False

    def __init__(self, device: str = "cpu"):
        super().__init__(device)
        self.reset()

    def reset(self) -> None:
        """Forget what would have run, and begin with no memory in use."""
        self.recorder = Recorder()  # of its own: what others recorded is to be computed
        self.manager = memory.current().simulate()
        self.entries: dict[tuple, program.ProgramEntry] = {}
        self.runs: list[MetaRun] = []

    def execute(self, recording: Recording) -> None:
        """Plan what was recorded; the results have their specs, and memory in the simulation."""
        key = (recording.key, state.recompute, current_target().variant())
        entry = self.entries.setdefault(key, program.ProgramEntry())
        if entry.program is None and program.is_worth_compiling(entry, recording):
            entry.program = planned.ProgramPlan(planned.rewritten(graph_of(recording)))
        specs = [recording.nodes[at].spec for at in recording.outputs]
        if entry.program is None:
            entry.references = entry.references or ReferenceSteps(recording)
            self.note(entry.references)
            program.deliver_results(recording, [MetaArray(spec) for spec in specs], [])
            return
        plan = entry.program
        outputs = self.allocate(plan, recording)
        results = [MetaArray(spec, outputs[base.at]) for base, spec in plan.outputs]
        del outputs
        program.deliver_results(recording, results, plan.owns)

    def allocate(self, plan: planned.ProgramPlan, recording: Recording) -> list:
        """The memory of the outputs, taken beside the arena as a run does."""
        arena = self.manager.alloc(plan.arena_bytes, planned.ARENA_TAG)
        outputs = []
        for buffer in plan.output_buffers:
            at = plan.source_of(buffer, recording.donated)
            if at is not None:
                outputs.append(getattr(recording.leaves[at].value, "buffer", None))
            elif buffer.spec.nbytes < planned.SMALL_BYTES:
                outputs.append(None)
            else:
                outputs.append(self.manager.alloc(buffer.spec.nbytes, planned.tag_of(buffer)))
        self.note(plan, recording.donated)
        del arena
        return outputs

    def note(self, plan, donated=()) -> None:
        allocated = self.manager.stats().allocated_bytes
        self.runs.append(MetaRun(plan, dict(self.manager.live), allocated, tuple(donated)))

    def leaf(self, spec: Spec, owned: bool = True) -> Node:
        """A payload that counts as computed; `owned` ones lie in the manager's memory."""
        managed = owned and spec.nbytes >= planned.SMALL_BYTES
        buffer = self.manager.alloc(spec.nbytes, memory.Tag()) if managed else None
        return computed(MetaArray(spec, buffer), spec, owned)

    def to_numpy(self, data: Node) -> np.ndarray:
        """The array of a constant.

        Raises: BackendError for all else, with the line that asked.
        """
        if isinstance(data.value, np.ndarray):
            return data.value
        got = f"a read of {data.spec} at {user_line() or 'the prompt'}"
        fix = "Decide by shapes or dtypes there, or leave gh.meta()."
        raise BackendError("meta", "a program that reads no values", got, fix)
