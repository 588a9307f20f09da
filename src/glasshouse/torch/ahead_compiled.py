"""A training step of a PyTorch model on our engine, ahead of time.

The step is the one of a user of `torch.compile(model, backend="glasshouse")`: the model's forward
and backward pass are Programs, the loss function and the optimizer are PyTorch's own. It runs on
tensors without contents through TorchDynamo, AOTAutograd and our lowering as in earnest; each
Program is planned, takes its arena and results from a simulated manager, and computes nothing."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch._dynamo.convert_frame import register_bytecode_hook
from torch._dynamo.eval_frame import OptimizedModule

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import arena_rows
from glasshouse.analyze.step_costs import KernelCost, MemoryRow
from glasshouse.compile.plan import ARENA_TAG
from glasshouse.profile.counter import FlopCounter, Sums
from glasshouse.profile.naming import name_of_step
from glasshouse.torch.ahead import EagerStep, EagerStepAnalysis
from glasshouse.torch.ledger import Ledger
from glasshouse.torch.no_contents import ContentlessMode
from glasshouse.torch.observe import own
from glasshouse.torch.planned import PlannedRun, Simulation, simulating

dynamo = torch._C._dynamo.eval_frame
PROGRAM_NS = 100_000.0  # what TorchDynamo, autograd and our call take around one, about


@dataclass(eq=False)
class CompiledStepAnalysis(EagerStepAnalysis):
    """What a training step will cost whose model our backend compiled; of the last of the steps.

    peak_bytes        the most bytes that storages and Programs' arenas have, in the worst step
    peaks             the same for each step
    runs              the Programs of the last step, in order, with their plans
    arena_bytes       the arena of the largest Program
    memory            rows by kind and module that add up to the peak of the last step
    timeline          bytes in use after each allocation
    kernels           the Programs' kernels, then PyTorch's operators, with predicted time
    kernel_ns         their sum
    host_ns           what Python takes between them, about
    predicted_ns      both"""

    runs: list[PlannedRun]

    title = "compiled by Glasshouse"

    @property
    def host_ns(self) -> float:
        """What Python takes around each Program, and between operators."""
        return super().host_ns + PROGRAM_NS * len(self.runs)

    @property
    def arena_bytes(self) -> int:
        return max((run.plan.arena_bytes for run in self.runs), default=0)

    @cached_property
    def memory(self) -> list[MemoryRow]:
        """What is alive at the peak, in the arena too; the rows add up to it."""
        sums = Sums()
        for allocation in self.ledger.alive_at_peak():
            if allocation.tag == ARENA_TAG:
                for row in arena_rows(self.run_at_peak().plan, allocation.nbytes):
                    sums.add((row.kind, row.module), row.nbytes)
            else:
                key = allocation.kind_at_peak(), allocation.module
                sums.add(key, allocation.nbytes)
        rows = [MemoryRow(*key, nbytes) for key, (nbytes,) in sums.items() if nbytes]
        return sorted(rows, key=lambda row: -row.nbytes)

    def run_at_peak(self) -> PlannedRun:
        """The Program whose arena was the last to be made before the peak."""
        events = self.ledger.events[: self.ledger.peak_place]
        made = sum(allocation.tag == ARENA_TAG and nbytes > 0 for allocation, nbytes in events)
        return [run for run in self.runs if run.arena][made - 1]

    @cached_property
    def kernels(self) -> list[KernelCost]:
        """The steps of each Program, then PyTorch's operators by module and pass."""
        kernels = []
        for number, run in enumerate(self.runs):
            for i, info in enumerate(run.plan.step_infos()):
                place = name_of_step(info), info.kind, *info.origins[-1][:2]
                work = info.flops, info.bytes, self.machine.ns(info)
                kernels.append(KernelCost(number, i, *place, *work))
        return kernels + self.operators(len(self.runs))

    def head(self) -> str:
        """Peak and where it is, arena, FLOPs and time, as text."""
        at = self.peak_at
        where = " ".join(part for part in (f"in {at.primitive}", at.module, at.phase) if part)
        return (
            f"{self.title}: peak {self.peak_bytes:,} bytes "
            f"(by step: {', '.join(f'{p:,}' for p in self.peaks)}), {where}; "
            f"arena {self.arena_bytes:,}\n{self.work()}\n"
        )

    def to_dict(self) -> dict:
        """All of it as what JSON can hold."""
        own = {"convention": "exact", "arena_bytes": self.arena_bytes}
        return {**super().to_dict(), **own}


class CompiledStep(EagerStep):
    """A model of PyTorch's with its loss, optimizer and inputs, compiled by our backend."""

    simulation: Simulation
    options: dict | None = None  # of torch.compile

    @contextmanager
    def running(self, mode: ContentlessMode, optimizer, inputs: list):
        """Inside, the model is compiled and its Programs are planned. What TorchDynamo keeps of it
        goes afterwards."""
        model = self.model._orig_mod if isinstance(self.model, OptimizedModule) else self.model
        self.simulation = Simulation(mode)
        with ExitStack() as stack:
            stack.enter_context(mode)
            stack.enter_context(simulating(self.simulation))
            stack.enter_context(own_entries())
            self.forward = torch.compile(model, backend="glasshouse", options=self.options)
            try:
                yield
            finally:
                self.forward = self.model

    def note_all(self, ledger: Ledger, modules: list, optimizer, inputs: list) -> None:
        """Enter what is there before the first step."""
        super().note_all(ledger, modules, optimizer, inputs)
        self.simulation.storages = [own.mode.storages[ledger]]

    def begin_step(self, ledger: Ledger) -> None:
        """Another step begins."""
        super().begin_step(ledger)
        self.simulation.runs.clear()

    def analysis_of(
        self, ledger: Ledger, peaks: list[int], counter: FlopCounter, machine: MachineProfile
    ) -> CompiledStepAnalysis:
        """What is told of the steps."""
        return CompiledStepAnalysis(ledger, peaks, counter, machine, list(self.simulation.runs))


@contextmanager
def own_entries():
    """Inside, TorchDynamo compiles as often as it has to; of functions that it had compiled nothing
    of before, it then forgets what it compiled."""
    met: dict = {}

    def note(code, _):
        met.setdefault(code, bool(dynamo._debug_get_cache_entry_list(code)))

    handle = register_bytecode_hook(note)
    limits = {"recompile_limit": 1 << 20, "accumulated_recompile_limit": 1 << 20}
    try:
        with torch._dynamo.config.patch(**limits):
            yield
    finally:
        handle.remove()
        for code, was_compiled in met.items():
            if not was_compiled:
                dynamo.reset_code(code)
