"""A PyTorch training step captured by gh.optimize, ahead of time.

The step is that of a user of `gh.optimize(step)`: forward pass, backward pass and update are one
graph, whose calls run as Programs. It is captured on tensors without contents, by the same hook,
interpreter and compiler as in a real run; its Programs are planned, and compute nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from glasshouse.capture.decorator import OptimizeDecorator, front
from glasshouse.capture.programs.program_compiler import compile_to_program
from glasshouse.capture.sessions.dispatching import Capture
from glasshouse.torch.ahead.compiled import CompiledStep
from glasshouse.torch.ahead.eager import EagerStep
from glasshouse.torch.ahead.no_contents import ContentlessMode
from glasshouse.torch.ahead.planned import Simulation, simulating
from glasshouse.torch.observe.ledger import Ledger

MOST_FIRST_CALLS = 8  # calls until capture and compilation are over


class GraphBreak(NamedTuple):
    """A place where a step leaves its graph, and the reason."""

    line: str
    reason: str
    hint: str


class WholeStep(CompiledStep):
    """A model of PyTorch's with its loss, optimizer and inputs, whose step is captured whole."""

    convention = "captured"
    capture: Capture
    captured: Any = None

    @contextmanager
    def running(
        self, mode: ContentlessMode, optimizer: torch.optim.Optimizer, inputs: list[Any]
    ) -> Iterator[None]:
        """Inside, the step has been captured, and its Programs are planned."""
        self.simulation: Simulation = Simulation(mode)
        self.capture = Capture(compile_to_program, front)
        self.captured = OptimizeDecorator(self.capture)(EagerStep.run)
        with simulating(self.simulation):
            try:
                self.learn(optimizer, inputs)
                yield
            finally:
                self.captured = None

    def learn(self, optimizer: torch.optim.Optimizer, inputs: list[Any]) -> None:
        """Run steps until two do the same: those that make gradients and the optimizer's state, one
        that compiles, and another, after which nothing of the compiling is held."""
        before, now, runs = None, None, self.simulation.runs
        for _ in range(MOST_FIRST_CALLS):
            before, now = now, (self.capture.entries, len(runs))
            if runs and before == now:
                return
            runs.clear()
            self.run(optimizer, inputs)

    def watch(
        self, ledger: Ledger, steps: int, optimizer: torch.optim.Optimizer, inputs: list[Any]
    ) -> tuple[Any, ...]:
        """The peak of each step, and the FlopCounter of the last. An extra step comes first, in
        which the graph's own tensors are first seen."""
        peaks, counter = super().watch(ledger, steps + 1, optimizer, inputs)
        return peaks[1:], counter

    def run(self, optimizer: Any, inputs: list[Any]) -> None:
        """One captured step."""
        self.captured(self, optimizer, inputs)

    def breaks(self) -> list[GraphBreak]:
        """The places where the step leaves its graph."""
        return [GraphBreak(*one) for one in self.capture.breaks]
