"""A whole training step of our models that gh.optimize captures, ahead of time.

Forward and backward pass and the update are one graph, captured on tensors without storage by the
same interpreter and compiler as when it runs; its Program is planned, and computes nothing."""

from typing import Any

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import TrainingStep, whole_steps
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.capture.api import optimize
from glasshouse.tensor.handle import Tensor

FIRST_STEPS = 3  # make the optimizer's state, capture again with it, run the captured step


class WholeTrainingStep(TrainingStep):
    """A step that is captured whole."""

    captured: Any = None

    def run(self, optimizer: Any, inputs: "list[Tensor]") -> None:
        """One captured step."""
        if self.captured is None:
            self.captured = optimize(TrainingStep.run)
        self.captured(self, optimizer, inputs)

    def analyse(
        self, steps: int, machine: MachineProfile, tape: list[Any] | None = None
    ) -> StepAnalysis:
        """The StepAnalysis of the steps after the first ones, which capture."""
        self.captured = None
        try:
            analysis: StepAnalysis = super().analyse(FIRST_STEPS + steps, machine, tape)
        finally:
            self.captured = None
        analysis.peaks = analysis.peaks[FIRST_STEPS:]
        analysis.reference_steps = 0
        return analysis


whole_steps["captured"] = WholeTrainingStep
