"""Plans of recomputation: the result of `gh.analyze.plan`, to read, apply and paste."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.planner.blocks import AppliedBlocks, Means, RematBlock, candidates_of
from glasshouse.analyze.planner.planner import ModelStep, Planner
from glasshouse.analyze.torch_models import is_torch_module
from glasshouse.base.errors import OptionError, check_known, type_name
from glasshouse.base.units import MemoryBudget, parse_budget
from glasshouse.base.upper_storeys import offered
from glasshouse.nn.module import Module
from glasshouse.profile.text import milliseconds, percent, si_text, table

MAX_SHOWN = 24  # single values in a plan's table
SOLVERS = ("auto", "chain", "exact", "min-cut")


class StepWithinBudget:
    """A step with recomputation, and its costs."""

    budget: MemoryBudget  # the limit of the step's memory
    budget_bytes: int
    peak_bytes: int  # planned; at most the budget
    plain_bytes: int  # the peak without recomputation
    plain_ns: float  # the predicted time of a step without it
    extra_ns: float  # the growth of that time

    def chosen(self) -> str:
        """Text of the recomputation; "" for none."""
        raise NotImplementedError

    def table(self) -> str:
        """The plan as text."""
        more = percent(self.extra_ns, self.plain_ns) or "0.0%"
        head = f"peak {self.plain_bytes:,} -> {self.peak_bytes:,} bytes, {more} more time predicted"
        head += f"\nbudget {self.budget.described(self.budget_bytes)}"
        return f"{head}\n{self.chosen() or 'nothing is computed again'}\n"

    def __str__(self) -> str:
        return self.table()


class RematPlan(StepWithinBudget):
    """Recomputation chosen for a step: its `blocks`, with their estimated savings and costs."""

    budget: MemoryBudget
    blocks: list[RematBlock]
    peak_bytes: int
    extra_ns: float
    root: str

    def __init__(self, planner: Planner, budget: int | float | str | MemoryBudget) -> None:
        self.budget, plain = parse_budget("plan", budget), planner.check([])
        self.plain_bytes: int = plain.peak_bytes
        self.plain_ns: float = plain.ns
        self.budget_bytes: int = self.budget.bytes_of(self.plain_bytes)
        choice = planner.search(self.budget_bytes, self.budget.described(self.budget_bytes))
        self.blocks, self.peak_bytes = choice.blocks, choice.peak_bytes
        self.extra_ns, self.root = choice.ns - self.plain_ns, planner.root

    def code(self) -> str:
        """Python that applies the plan without planning again."""
        names = ["AppliedBlocks", "RematBlock"]
        lines = "".join(f"    {block.code()},\n" for block in self.blocks)
        head = f"from glasshouse.analyze.planner.blocks import {', '.join(names)}\n"
        if any(block.is_value for block in self.blocks):
            head += "from glasshouse.graph.recompute.request import ValueName\n"
        applied = "applied = AppliedBlocks(model, blocks)  # until applied.undo()"
        return f"{head}\nblocks = [\n{lines}]\n{applied}\n"

    def chosen(self) -> str:
        """Table of the blocks."""
        names, rows = ["compute again", "", "saves about", "takes"], self.rows()
        return table(names, rows, left=2) if rows else ""

    def rows(self) -> list[list[str]]:
        """Rows of the modules and the largest of the single values, and the sum of the others."""
        modules = [block for block in self.blocks if not block.is_value]
        values = [block for block in self.blocks if block.means == Means.REMAKE]
        values = sorted(filter(lambda b: b.saved_bytes, values), key=lambda b: -b.saved_bytes)
        rows = [
            [str(b) or self.root or "all of it", b.describe_means(), *estimates([b])]
            for b in (*modules, *values[:MAX_SHOWN])
        ]
        smaller = values[MAX_SHOWN:]
        if smaller:
            rows.append([f"{len(smaller)} smaller", "values", *estimates(smaller)])
        return rows


def estimates(blocks: list[RematBlock]) -> list[str]:
    """Bytes and ns that blocks save and take together, as text."""
    saved_bytes = sum(block.saved_bytes for block in blocks)
    return [si_text(saved_bytes, "B"), milliseconds(sum(block.extra_ns for block in blocks))]


class Plan(RematPlan, AbstractContextManager[Any]):
    """Recomputation applied in this thread from `apply()` to `remove()`, or in a `with` block."""

    planner: Planner
    model: Module

    def __init__(self, planner: Planner, budget: int | float | str | MemoryBudget) -> None:
        super().__init__(planner, budget)
        self.planner, self.model = planner, planner.model
        self.applied: AppliedBlocks | None = None

    def at(self, budget: int | float | str) -> "Plan":
        """Plan for another budget; earlier analyses are reused."""
        return Plan(self.planner, budget)

    def estimate(self, budget: int | float | str) -> float | None:
        """Estimate the ns that a plan for a budget adds to a step, in milliseconds and without an
        analysis; None if none seems to fit."""
        planner = self.planner
        limit = parse_budget("estimate", budget).bytes_of(self.plain_bytes)
        choices = [planner.choice(n, limit) for n in range(len(planner.chains) - 1)]
        times = [choice.ns for choice in (planner.best(limit), *choices) if choice is not None]
        return min(times) - self.plain_ns if times else None

    def apply(self) -> "Plan":
        """Make the chosen blocks compute again in this thread's backward passes."""
        if self.applied is None:
            self.applied = AppliedBlocks(self.model, self.blocks)
        return self

    def remove(self) -> None:
        """Make the blocks compute as before."""
        if self.applied is not None:
            self.applied.undo()
            self.applied = None

    def __enter__(self) -> Any:
        return self.apply()

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


def plan(
    model: Any,
    loss: Callable[..., Any],
    optimizer: Any,
    inputs: Any,
    budget: int | float | str,
    *,
    blocks: Any = None,
    autocast: str | None = None,
    machine: MachineProfile | str = "cpu2",
    solver: str | None = None,
) -> Plan:
    """Plan recomputation so that a training step's memory stays within a budget.

    budget  bytes: a whole number, or a text such as "1.5GiB" or "800MB"; or a part of the peak
            without a plan: a float above 0 and at most 1, or a text such as "60%"
    blocks  paths of modules that may be computed again; the repeating ones unless given
    solver  "chain", a dynamic program over blocks; "exact", a mixed-integer program over single
            values, for graphs in which it ends in time (needs scipy); "min-cut", a heuristic over
            single values that makes no large product again; "auto", the better of this and the
            chain, which is the default. Where values do not suffice, blocks are chosen

    Of a torch.nn.Module: the part that `torch.compile(…, backend="glasshouse", options=…)` keeps.
    The other arguments are those of `step`. Values and gradients do not change, random numbers and
    running statistics included.

    Raises: OptionError for a budget that cannot be met, with the least that can, or unknown blocks
    Example:
        >>> import glasshouse as gh
        >>> from glasshouse.nn import Linear, Sequential, Tanh
        >>> model = Sequential(
        ...     *(Sequential(Linear(64, 256), Tanh(), Linear(256, 64)) for _ in range(6))
        ... )
        >>> opt = gh.optim.SGD(model.parameters(), lr=0.1)
        >>> data = [((4096, 64), "float32")] * 2
        >>> step_plan = plan(model, gh.nn.functional.mse_loss, opt, data, 0.7)
        >>> step_plan.peak_bytes <= 0.7 * step_plan.plain_bytes
        True
    """
    budget = parse_budget("plan", budget)
    profile = MachineProfile.load(machine)
    if is_torch_module(model):
        options = {"blocks": blocks, "solver": solver}
        step_parts = model, loss, optimizer, inputs, autocast
        return offered("torch", "plan")(step_parts, budget, profile, options)
    if not isinstance(model, Module):
        raise OptionError("plan", "a Module", type_name(model), "Pass the model.")
    solver = solver or "auto"
    check_known("plan", f"a solver of {', '.join(SOLVERS)}", solver, SOLVERS)
    for path in blocks or ():
        check_known("plan", "paths of modules", path, dict(model.named_modules()))
    step = ModelStep(model, loss, optimizer, inputs, autocast)
    return Plan(Planner(step, list(blocks or candidates_of(model)), profile, solver), budget)
