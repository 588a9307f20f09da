"""A training step of a PyTorch model on our engine, ahead of time.

The step is the one of a user of `torch.compile(model, backend="glasshouse")`: the model's forward
and backward pass are Programs, the loss function and the optimizer are PyTorch's own. It runs on
tensors without contents through TorchDynamo, AOTAutograd and our lowering as in earnest; each
Program is planned, takes its arena and results from a simulated manager, and computes nothing."""

from contextlib import ExitStack, contextmanager

import torch

from glasshouse.torch.ahead.eager import EagerStep
from glasshouse.torch.ahead.no_contents import ContentlessMode
from glasshouse.torch.ahead.planned import PlannedRun, Simulation, simulating
from glasshouse.torch.observe.ledger import Ledger
from glasshouse.torch.observe.observer import own
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
    options: dict | None = None  # of torch.compile

    @contextmanager
    def running(self, mode: ContentlessMode, optimizer, inputs: list):
        """Inside, the model is compiled and its Programs are planned. What TorchDynamo keeps of it
        goes afterwards."""
        model = uncompiled(self.model)
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

    def runs(self) -> list[PlannedRun]:
        """The Programs of the last step."""
        return list(self.simulation.runs)


@contextmanager
def own_entries():
    """Inside, TorchDynamo compiles as often as it has to; of functions that it had compiled nothing
    of before, it then forgets what it compiled."""
    met: dict = {}

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
