"""Plans of recomputation for PyTorch models on our engine: the option `memory_budget` of
torch.compile that keeps the peak of a whole step within a budget.

The option bounds the bytes that a forward pass saves for its backward pass. The resulting peak is
known ahead of time, to the byte, so we search for the largest part whose peak fits."""

from typing import Any, NamedTuple

import torch

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.planner.plan import StepWithinBudget
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.base.errors import OptionError
from glasshouse.base.units import MemoryBudget
from glasshouse.torch.ahead.compiled import CompiledStep
from glasshouse.torch.patches.dynamo import BackendFailed, uncompiled

TRIALS = 6  # of halving the interval of parts
STEPS = 2  # analysed steps: the second one has the optimizer's state


class Trial(NamedTuple):
    """A part of the bytes that forward would save, and the analysis of its step."""

    part: float
    analysis: StepAnalysis


class TorchPlan(StepWithinBudget):
    """A plan of recomputation for a compiled step: `options` for torch.compile, None where the step
    fits as it is, and the `analysis` of the step with these."""

    def __init__(self, step: CompiledStep, machine: MachineProfile, budget: MemoryBudget) -> None:
        self.step = step
        self.machine = machine
        self.budget = budget
        self.trials: list[Trial] = []
        plain = step.analyse(STEPS, machine)
        self.plain_bytes: int = plain.peak_bytes
        self.plain_ns: float = plain.predicted_ns
        self.budget_bytes: int = budget.bytes_of(self.plain_bytes)
        chosen = None if plain.peak_bytes <= self.budget_bytes else self.search()
        self.analysis: StepAnalysis = plain if chosen is None else chosen.analysis
        self.options: dict[str, float] | None = (
            None if chosen is None else {"memory_budget": chosen.part}
        )
        self.peak_bytes: int = self.analysis.peak_bytes
        self.extra_ns: float = self.analysis.predicted_ns - self.plain_ns

    def search(self) -> Trial:
        """The largest part that fits.

        Raises: OptionError, with the lowest peak, where none fits
        """
        low, high, best = 0.0, 1.0, None
        for _ in range(TRIALS):
            part = (low + high) / 2
            trial = self.try_part(part)
            if trial is not None and trial.analysis.peak_bytes > self.budget_bytes:
                high = part
                continue
            low, best = part, trial or best
        if best is None:
            least = min([self.plain_bytes, *(trial.analysis.peak_bytes for trial in self.trials)])
            expected = f"at least {least:,} bytes, the lowest peak that was found"
            fix = "Raise it to that, or use smaller batches."
            raise OptionError("plan", expected, self.budget.described(self.budget_bytes), fix)
        return best

    def try_part(self, part: float) -> Trial | None:
        """The step whose forward passes save this part; None where they must save more."""
        step = self.step
        step.options = {"memory_budget": part}
        try:
            trial = Trial(part, step.analyse(STEPS, self.machine))
        except BackendFailed as error:
            if not isinstance(error.inner_exception, OptionError):
                raise
            return None
        finally:
            step.options = None
        self.trials.append(trial)
        return trial

    def compile(self) -> Any:
        """The model, compiled as planned."""
        model = uncompiled(self.step.model)
        return torch.compile(model, backend="glasshouse", options=self.options)

    def code(self) -> str:
        """Python that compiles the model as planned."""
        options = f", options={self.options}" if self.options else ""
        return f'model = torch.compile(model, backend="glasshouse"{options})\n'

    def chosen(self) -> str:
        """The part that forward passes keep."""
        if self.options is None:
            return ""
        part = self.options["memory_budget"]
        return f"forward passes keep {part:.3g} of what they would for their backward passes"


def plan(
    step: tuple[Any, ...], budget: MemoryBudget, machine: MachineProfile, options: dict[Any, Any]
) -> TorchPlan:
    """The plan for a `step`: model, loss, optimizer, inputs and autocast. `options` are those of
    plans for our own models; none of them applies here.

    Raises: OptionError for a budget that cannot be met, and for such an option
    """
    for name, value in options.items():
        if value is not None:
            fix = "Leave it out: PyTorch's partitioner plans what is computed again."
            raise OptionError("plan", f"no {name} for a torch.nn.Module", repr(value), fix)
    return TorchPlan(CompiledStep(*step), machine, budget)
