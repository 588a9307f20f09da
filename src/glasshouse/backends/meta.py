"""The backend without storage: the default one up to the plan of each Program.

Calls are recorded, cut and planned as on the lazy backend, and the memory manager is simulated, so
allocations, donations and frees, and their order, are those of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from glasshouse import memory
from glasshouse.base import BackendError, Spec, having, user_line
from glasshouse.compile.lowering.source_map import ReferenceSteps
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.planning import plan as planned
from glasshouse.compile.planning.plan import ProgramPlan
from glasshouse.compile.programs import program
from glasshouse.compile.programs.recording import RecordingBackend, known_ancestors
from glasshouse.compile.programs.run_memory import PlannedProgram, PlannedRun, allocate
from glasshouse.dispatch.bind import state
from glasshouse.graph.graph import Graph, graph_of
from glasshouse.graph.node import Node, computed
from glasshouse.graph.record import Recorder, Recording
from glasshouse.targets.cpu import CPU


class MetaArray:
    """Placeholder for an array: a spec, and the simulated memory that it would hold."""

    __slots__ = ("spec", "buffer", "base")
    flags: SimpleNamespace = SimpleNamespace(c_contiguous=True)

    def __init__(self, spec: Spec, buffer: Any = None) -> None:
        self.spec: Spec = spec
        self.buffer: Any = buffer
        self.base: Any = None


@dataclass
class CountedWork:
    """Counts of nodes in Programs, runs of Programs, arrays that they read and write, and nodes
    computed early to check indices; of captured Programs runs, and arrays handed over."""

    nodes: int = 0
    programs: int = 0
    arrays: int = 0
    checks: int = 0
    captured: int = 0
    handed: int = 0


class MetaProgram(PlannedProgram):
    """A Program that is planned only: a run takes and gives back memory."""

    def __init__(self, plan: ProgramPlan, backend: "MetaBackend", reference_runs: int) -> None:
        super().__init__(plan)
        self.backend = backend
        self.reference_runs = reference_runs

    def run(
        self,
        arrays: list[Any],
        scalars: Any,
        donated: Any = (),
        ends_ns: Any = None,
        parameters: Any = (),
    ) -> list[MetaArray]:
        """The results, without contents."""
        return self.backend.planned_results(self, arrays, donated, self.reference_runs)


class MetaBackend(RecordingBackend):
    """Records and plans. `runs` lists the planned runs; `manager` is the simulated manager."""

    name = "meta"
    target = CPU  # the target where no other one is in use
    computes = False
    keeps_programs = True
    program_class = MetaProgram
    counted: CountedWork | None = None  # where recordings are counted, and not planned

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.reset()

    def reset(self) -> None:
        """Forget the planned runs, and begin with no memory in use."""
        self.recorder: Recorder = Recorder()  # a new one: what others recorded is to be computed
        self.manager: memory.MemoryManager = memory.current().simulate()
        self.entries: dict[tuple[Any, ...], program.ProgramEntry] = {}
        self.captured: dict[Any, Any] = {}  # Programs of captured graphs, by the graph
        self.runs: list[PlannedRun] = []
        self.constants: Any = WeakKeyDictionary()  # memory of results of parameters, by Program

    def execute(self, recording: Recording) -> None:
        """Plan the recording; the results have their specs, and memory in the simulation."""
        specs = [recording.nodes[at].spec for at in recording.outputs]
        if self.counted is not None:
            self.counted.nodes += len(recording.nodes)
            self.counted.programs += 1
            self.counted.arrays += len(recording.leaves) + len(specs)
            return program.deliver_results(recording, [MetaArray(spec) for spec in specs], [])
        key = (recording.key, state.recompute, current_target().variant())
        entry = self.entries.setdefault(key, program.ProgramEntry())
        if entry.program is None and program.is_worth_compiling(entry, recording):
            plan = ProgramPlan(planned.rewritten(graph_of(recording)))
            entry.program = PlannedProgram(plan)
        if entry.program is None:
            entry.references = entry.references or ReferenceSteps(recording)
            self.note(entry.references)
            return program.deliver_results(recording, [MetaArray(spec) for spec in specs], [])
        values = [leaf.value for leaf in recording.leaves]
        times = program.reference_runs(recording)
        results = self.planned_results(entry.program, values, recording.donated, times)
        del values
        return program.deliver_results(recording, results, entry.program.owns)

    @contextmanager
    def counting(self) -> Iterator[CountedWork]:
        """Inside, recordings are counted and not planned; runs of captured graphs are counted."""
        counted = CountedWork()
        with having(self, counted=counted):
            yield counted

    def check_indices(self, name: str, data: Any, attrs: dict[Any, Any]) -> None:
        """Count the nodes that a run computes to check indices, which have no values here."""
        if self.counted is not None and data[1].value is None:
            self.counted.checks += len(known_ancestors(data[1]))

    def compiled(self, recording: Recording, graph: Graph | None = None) -> "MetaProgram":
        graph = planned.rewritten(graph_of(recording)) if graph is None else graph
        return MetaProgram(ProgramPlan(graph), self, program.reference_runs(recording))

    def planned_results(
        self, planned_run: PlannedProgram, values: list[Any], donated: Any, reference_runs: int
    ) -> list[MetaArray]:
        """The results of a run, without contents; their memory is taken beside the arena."""
        plan = planned_run.plan
        arena = self.manager.alloc(plan.arena_bytes, planned.ARENA_TAG)
        buffers = {n: getattr(values[n], "buffer", None) for n in donated}
        specs = planned_run.output_specs
        count = len(specs) - planned_run.kept
        outputs = allocate(specs[:count], self.manager, buffers)
        if planned_run.kept and planned_run not in self.constants:
            self.constants[planned_run] = allocate(specs[count:], self.manager, {})
        self.note(plan, donated, reference_runs)
        del arena
        if self.counted is not None:
            self.counted.captured += 1
            self.counted.handed += len(values) + len(plan.outputs)
        return [MetaArray(spec, outputs[base.at]) for base, spec in plan.outputs]

    def note(self, plan: Any, donated: Any = (), reference_runs: int = 0) -> None:
        allocated, live = self.manager.stats().allocated_bytes, dict(self.manager.live)
        self.runs.append(PlannedRun(plan, allocated, live, tuple(donated), reference_runs))

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
