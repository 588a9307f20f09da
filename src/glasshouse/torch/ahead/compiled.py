"""A training step of a PyTorch model on our engine, ahead of time.

The step is that of a user of `torch.compile(model, backend="glasshouse")`: the model's forward and
backward pass are Programs, the loss function and the optimizer are PyTorch's. It runs on tensors
without contents through TorchDynamo, AOTAutograd and our lowering as in a real run. Each Program is
planned, takes its arena and results from a simulated manager, and computes nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from glasshouse.compile.programs.run_memory import PlannedRun
from glasshouse.torch.ahead.eager import EagerStep
from glasshouse.torch.ahead.no_contents import ContentlessMode
from glasshouse.torch.ahead.planned import Simulation, simulating
from glasshouse.torch.observe.ledger import Ledger
from glasshouse.torch.observe.observer import thread_mode
from glasshouse.torch.patches.dynamo import (
    compiling_often,
    entries_of,
    forget_entries,
    on_bytecode,
    uncompiled,
)


class CompiledStep(EagerStep):
    """A model of PyTorch's with its loss, optimizer and inputs, compiled by our backend."""

    convention = "exact"
    simulation: Simulation
    options: dict[Any, Any] | None = None  # of torch.compile

    @contextmanager
    def running(
        self, mode: ContentlessMode, optimizer: torch.optim.Optimizer, inputs: list[Any]
    ) -> Iterator[None]:
        """Inside, the model is compiled and its Programs are planned. TorchDynamo's entries of it
        are removed afterwards."""
        model = uncompiled(self.model)
        self.simulation = Simulation(mode)
        with ExitStack() as stack:
            stack.enter_context(mode)
            stack.enter_context(simulating(self.simulation))
            stack.enter_context(own_entries())
            self.forward: Callable[..., Any] = torch.compile(
                model, backend="glasshouse", options=self.options
            )
            try:
                yield
            finally:
                self.forward = self.model

    def note_all(self, ledger: Ledger, optimizer: torch.optim.Optimizer, inputs: list[Any]) -> None:
        """Report all tensors that exist before the first step."""
        super().note_all(ledger, optimizer, inputs)
        self.simulation.storages = [thread_mode.mode.storages[ledger]]

    def begin_step(self, ledger: Ledger) -> None:
        """Begin another step."""
        super().begin_step(ledger)
        self.simulation.runs.clear()

    def runs(self) -> list[PlannedRun]:
        """The Programs of the last step."""
        return list(self.simulation.runs)


@contextmanager
def own_entries() -> Iterator[None]:
    """Inside, TorchDynamo has no limit of recompilations. Afterwards it forgets the functions that
    it had not compiled before."""
    met: dict[Any, Any] = {}

    def note(code, _):
        met.setdefault(code, bool(entries_of(code)))

    handle = on_bytecode(note)
    try:
        with compiling_often():
            yield
    finally:
        handle.remove()
        for code, was_compiled in met.items():
            if not was_compiled:
                forget_entries(code)
