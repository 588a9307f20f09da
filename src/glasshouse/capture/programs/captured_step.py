"""Plans for captured calls: which blocks of a training step compute again to fit a budget.

A captured call is planned from its recording, which has both passes. Each choice is tried as a
rewriting of that graph (`graph/recompute`) and planned up to its memory."""

import gc
from collections import Counter
from typing import Any

from glasshouse import memory
from glasshouse.analyze.engine_source import OwnSource
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.planner.blocks import RematBlock, candidates_of, request_of
from glasshouse.analyze.planner.chain import Chain, Option
from glasshouse.analyze.planner.plan import RematPlan
from glasshouse.analyze.planner.planner import Planner
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.base.units import MemoryBudget
from glasshouse.capture.programs.split import split
from glasshouse.compile.planning.plan import (
    ARENA_TAG,
    SMALL_BYTES,
    ProgramPlan,
    no_collection,
    rewritten,
)
from glasshouse.compile.programs.run_memory import PlannedProgram, PlannedRun, allocate
from glasshouse.dispatch.scope import outermost_scopes
from glasshouse.graph.graph import AFTER_FORWARD, Graph, graph_of
from glasshouse.graph.recompute.request import requesting
from glasshouse.graph.record import Recording
from glasshouse.profile.counter import FlopCounter


class CapturedStep:
    """A recording of both passes, planned as a captured call runs it: as one Program, or, where the
    results are differentiated outside, as one for the first `count` outputs and one for the rest.

    donated      numbers of the inputs whose memory results take
    freed        bytes of each gradient that a run gives up before it begins
    seeds        bytes of each gradient of a result that the second Program is given
    base_bytes   other memory in use: parameters, optimizer state, pending tensors outside"""

    def __init__(
        self,
        recording: Recording,
        count: int | None,
        donated: Any = (),
        freed: Any = (),
        seeds: Any = (),
    ) -> None:
        self.graph: Graph = graph_of(recording)
        self.count = count
        self.donated = donated
        self.seeds = seeds
        gc.collect()  # capture leaves cycles that hold replaced tensors
        self.base_bytes: int = in_use() - sum(map(allocated_bytes, freed))
        self.model: Any = outermost_of(recording)
        self.root: str = type(self.model).__name__ if self.model is not None else ""

    def applied(self, blocks: list[RematBlock]) -> Any:
        """Context: these blocks compute again in Programs planned and compiled inside."""
        return requesting(request_of(blocks, self.root))

    def rewritten(self) -> Graph:
        return rewritten(self.graph)

    def analyse(self, steps: int, machine: MachineProfile) -> StepAnalysis:
        """Memory and time of a later call."""
        graph = self.rewritten()
        plan = ProgramPlan(graph)
        halves = split(graph, self.count) if self.count is not None else ()
        parts = [ProgramPlan(half.graph) for half in halves] or [plan]
        manager, allocations, peak_bytes = memory.current().simulate(), [], 0
        for part in parts:
            if part is not parts[0]:  # gradients of the results are given
                allocations += [manager.alloc(n, ARENA_TAG) for n in self.seeds if n >= SMALL_BYTES]
            arena = manager.alloc(part.arena_bytes, ARENA_TAG)
            specs = PlannedProgram(part).output_specs
            allocations += allocate(specs, manager, dict.fromkeys(self.donated))
            peak_bytes = max(peak_bytes, manager.stats().allocated_bytes)
            del arena
        peak_bytes += self.base_bytes
        run = PlannedRun(plan, peak_bytes)
        return StepAnalysis(
            source=OwnSource(),
            runs=[run],
            peaks=[peak_bytes],
            counter=FlopCounter(),
            machine=machine,
        )


class CapturedPlanner(Planner):
    """Plans a captured call from its recording, without running a model."""

    def __init__(self, step: CapturedStep, machine: MachineProfile) -> None:
        super().__init__(step, candidates_of(step.model) if step.model else [], machine)
        self.root: str = step.root

    def chains_of(self, plain: Chain, ways: list[list[RematBlock]]) -> list[Chain]:
        return [self.chain(self.analyse(way)) for way in ways]

    def find_groups(self) -> dict[str, Option]:
        return {}


def plan_captured(step: CapturedStep, budget: MemoryBudget) -> tuple[RematPlan, int]:
    """The plan of a captured call, and the most bytes that may be in use when a call begins."""
    with no_collection():
        plan = RematPlan(CapturedPlanner(step, MachineProfile.load("cpu2")), budget)
    return plan, plan.budget_bytes - plan.peak_bytes + step.base_bytes


def in_use() -> int:
    return memory.current().stats().allocated_bytes


def allocated_bytes(nbytes: int) -> int:
    """The bytes that the manager takes for an array; 0 where NumPy allocates it."""
    manager = memory.current().simulate()
    allocation = manager.alloc(nbytes) if nbytes >= SMALL_BYTES else None
    count_bytes = manager.stats().allocated_bytes
    del allocation
    return count_bytes


def has_both_passes(recording: Recording) -> bool:
    """Whether gradients are part of a recording; else nothing is saved for later."""
    return any(node.origin.phase in AFTER_FORWARD[:2] for node in recording.nodes)


def outermost_of(recording: Recording) -> Any:
    """The outermost module of most calls of a recording, or None."""
    roots = outermost_scopes()
    count = Counter(x for node in recording.nodes if (x := roots.get(id(node.origin))) is not None)
    return count.most_common(1)[0][0].module() if count else None
