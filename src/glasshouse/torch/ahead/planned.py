"""A compiled graph on tensors without contents: planned as in a real run, without computation.

A run takes its arena and results from a simulated manager. Its results are tensors without contents
too. Their memory is freed when PyTorch releases them, like that of real ones."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import get_ident
from typing import Any

import torch

from glasshouse import memory
from glasshouse.base.flags import having
from glasshouse.compile.planning.plan import (
    ARENA_TAG,
    ProgramPlan,
    no_collection,
    rewritten,
)
from glasshouse.compile.programs.run_memory import PlannedProgram, PlannedRun, allocate
from glasshouse.graph.graph import Node, graph_of
from glasshouse.torch.ahead.no_contents import ContentlessMode
from glasshouse.torch.lowering.host import results_in_torch, run_in_torch
from glasshouse.torch.lowering.interpreter import LoweredGraph
from glasshouse.torch.lowering.results import Output
from glasshouse.torch.lowering.variant import ProgramVariant
from glasshouse.torch.observe.observer import thread_mode
from glasshouse.torch.observe.storages import StorageWatch
from glasshouse.torch.patches.fakes import FakeTensor, FakeTensorMode
from glasshouse.torch.patches.modes import without_modes
from glasshouse.torch.tensors.dtypes import TO_TORCH
from glasshouse.torch.tensors.layout import lying


class Simulation:
    """The memory of Programs that are only planned. `runs` lists them; `storages` get their
    allocations and frees."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode: Any = mode
        self.manager: memory.MemoryManager = memory.current().simulate()
        self.runs: list[PlannedRun] = []
        self.storages: list[StorageWatch] = []

    @contextmanager
    def contentless(self) -> Iterator[None]:
        """Inside, new tensors have no contents, and are not reported."""
        knows = isinstance(self.mode, ContentlessMode)
        unknown = having(self.mode, computes=False) if knows else nullcontext()
        with without_modes(), self.mode, unknown:
            yield

    @contextmanager
    def arena(self, plan: ProgramPlan) -> Iterator[None]:
        """Inside, a Program has its arena; a small one does not come from the manager."""
        self.runs.append(PlannedRun(plan))
        if not self.runs[-1].takes_arena:
            yield
            return
        buffer = self.manager.alloc(plan.arena_bytes, ARENA_TAG)
        nbytes = self.manager.leases[buffer.address].size
        for storages in self.storages:
            storages.tell("alloc", buffer.address, nbytes, ARENA_TAG)
        yield
        for storages in self.storages:
            storages.tell("free", buffer.address, nbytes, ARENA_TAG)

    def result(self, what: tuple[Any, ...], tag: memory.Tag, buffer: Any) -> torch.Tensor:
        """A tensor for an output of a Program; a large one owns memory of the manager."""
        if isinstance(buffer, torch.Tensor):  # an input that is written to
            return buffer
        dtype, sizes, strides, nbytes = what
        block_bytes = nbytes if buffer is None else self.manager.leases[buffer.address].size
        tensor = torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")
        for storages in self.storages:
            storages.hold(tensor.untyped_storage(), block_bytes, "alloc", tag, buffer)
        return tensor

    def compute(self, node: Node) -> None:
        """Report the tensors that an operator makes in a step of the host, before their copy."""
        if node.call.primitive.ref is not run_in_torch:
            return
        operator, arguments, orders = (node.attrs[x] for x in ("operator", "arguments", "orders"))
        note = partial(self.note, name=operator)
        specs = [x.spec for x in node.inputs]
        tensors = [torch.empty(x.shape, dtype=TO_TORCH[x.dtype], device="cpu") for x in specs]
        note(results_in_torch(operator, arguments, orders, tensors, note))

    def note(self, tensors: Any, name: str) -> None:
        """Report tensors that PyTorch itself would make."""
        for storages in self.storages:
            storages.results(tensors, name)


class CurrentSimulation(threading.local):
    """The simulation of a thread, if one is active."""

    simulation: Simulation | None = None


current: CurrentSimulation = CurrentSimulation()


@contextmanager
def simulating(simulation: Simulation) -> Iterator[Simulation]:
    """Inside, this thread's Programs are planned, and take their memory there."""
    before, current.simulation = current.simulation, simulation
    try:
        yield simulation
    finally:
        current.simulation = before


def reporting_operators() -> Any:
    """A context in which operators are reported to watchers, as in a real run."""
    return thread_mode.mode if current.simulation and thread_mode.mode else nullcontext()


def are_contentless(inputs: list[torch.Tensor]) -> bool:
    """Whether a graph with these inputs can only be planned."""
    return current.simulation is not None or any(isinstance(x, FakeTensor) for x in inputs)


class PlannedVariant(ProgramVariant):
    """A graph that is planned, for inputs without contents."""

    @staticmethod
    def view(
        tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        """A tensor of another one's memory."""
        return tensor.detach().as_strided(sizes, strides, tensor.storage_offset() + offset)

    def program_of(self, lowered: LoweredGraph) -> PlannedProgram:
        """The plan of a graph."""
        assert lowered.recording is not None
        with no_collection():
            return PlannedProgram(ProgramPlan(rewritten(graph_of(lowered.recording))))

    def run(self, args: list[torch.Tensor]) -> list[Any]:
        """The results, with allocations and frees in the order of a real run."""
        simulation = current.simulation or simulation_of(args)
        with simulation.contentless():
            with reporting_operators():
                copies = [lying(args[number].detach(), layout) for number, layout in self.copied]
            self.tally.runs[get_ident()] += 1
            with simulation.arena(self.program.plan):
                tensors = self.take_memory(simulation, args)
                if self.stable:
                    self.keep(simulation.manager)
                for step in self.program.hosts:
                    simulation.compute(step.node)
            del copies
            if self.plain:
                return [tensors[at] for at in self.places]
            return self.results(args, tensors)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a result, which another result must not share memory with."""
        with reporting_operators():
            return super().copy(tensor)

    def spread(self, tensor: torch.Tensor, out: Output) -> torch.Tensor:
        """A copy of a result that lies in memory with gaps."""
        with reporting_operators():
            return super().spread(tensor, out)

    def take_memory(self, simulation: Simulation, args: list[Any]) -> list[torch.Tensor]:
        """The tensors that the Program would write to, made segment by segment if it has any."""
        whats = self.tensors_out()

        def results(numbers: Any) -> list[torch.Tensor]:
            specs = [self.specs_out[at] for at in numbers]
            buffers = allocate(specs, simulation.manager, self.donated(args))
            new = zip(numbers, specs, buffers, strict=True)
            return [simulation.result(whats[at], spec[4], x) for at, spec, x in new]

        if not self.segments:
            return results(range(len(whats)))
        tensors: dict[int, Any] = {}
        for segment in self.segments:
            tensors.update(zip(segment.new_outputs, results(segment.new_outputs), strict=True))
            segment.release(tensors, args)
        return [tensors.get(at) for at in range(len(whats))]


def simulation_of(args: Any) -> Simulation:
    """A simulation for a call with contentless tensors outside of any other simulation."""
    return Simulation(next(x.fake_mode for x in args if isinstance(x, FakeTensor)))
