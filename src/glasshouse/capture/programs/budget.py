"""The compiler of `optimize(memory_budget=…)`: the default one, within a plan."""

from typing import Any

from glasshouse.analyze.planner.blocks import RematBlock
from glasshouse.analyze.planner.plan import RematPlan
from glasshouse.base.units import MemoryBudget, parse_budget
from glasshouse.capture.programs.captured_step import CapturedStep, has_both_passes, plan_captured
from glasshouse.capture.programs.program_compiler import CompiledGraph


class BudgetCompiler:
    """A budget for graphs that train, and the plans that were made for it."""

    def __init__(self, budget: int | float | str | MemoryBudget) -> None:
        self.budget: MemoryBudget = parse_budget("optimize(memory_budget=…)", budget)
        self.plans: list[RematPlan] = []

    def __call__(self, graph_module: Any, example_inputs: Any) -> CompiledGraph:
        """The callable that runs a captured graph within the budget."""
        return CompiledGraph(graph_module, self)

    def __reduce__(self) -> Any:
        return BudgetCompiler, (self.budget,)

    def plan(self, step: CapturedStep, recording: Any) -> tuple[list[RematBlock], int | None]:
        """The blocks that a captured step computes again, and the most bytes that may be in use
        when it begins; None where there is no backward pass. The plan is kept to be shown."""
        if not has_both_passes(recording):
            return [], None
        plan, most_bytes = plan_captured(step, self.budget)
        self.plans.append(plan)
        return plan.blocks, most_bytes
