"""The recomputation planner: what to compute again so that a training step fits a budget.

There are two means. *Elementwise*: activations, normalised values and the like that backward can
make again from what it keeps anyway are dropped (`graph/recompute.py`), at almost no cost. *Whole*:
a block is checkpointed, keeps its arguments only, and runs a second time. The planner estimates
from two analyses what each block saves and costs either way, chooses by an exact 0/1 program
(HiGHS, through SciPy) or, without SciPy, by the ratio of both, and checks the choice by analysing
the step with it: the budget is met in earnest, or an error names the least that is possible.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import StepAnalysis, Trainer
from glasshouse.analyze.trace import is_leaf, no_leaf_types
from glasshouse.base.errors import OptionError, suggest, type_name
from glasshouse.dispatch.bind import state
from glasshouse.nn.module import Module
from glasshouse.profile.counter import is_within
from glasshouse.profile.text import milliseconds, percent, scaled, table
from glasshouse.transforms.checkpoint import checkpoint

MAX_CHECKS = 24  # analyses that looking for a cheaper choice may take


class Block(NamedTuple):
    """A module that computes again: all of it (`whole`), or its elementwise work; about the bytes
    this saves, and the ns it takes."""

    path: str
    saved_bytes: int
    extra_ns: float
    whole: bool = True


class Plan(AbstractContextManager):
    """What to compute again. `apply()` makes the model do so in this thread, also as a context;
    `remove()` ends it.

    blocks        those chosen, with their estimated savings and costs
    peak_bytes    the planned peak of a step with them; at most the budget
    plain_bytes   that without
    extra_ns      predicted time for computing again
    """

    def __init__(self, model: Module, blocks: list[Block], plain: StepAnalysis, peak_bytes: int):
        self.model, self.blocks, self.peak_bytes = model, blocks, peak_bytes
        self.plain_bytes, self.plain_ns = plain.peak_bytes, plain.predicted_ns
        self.applied: Applied | None = None

    @property
    def extra_ns(self) -> float:
        return sum(block.extra_ns for block in self.blocks)

    def apply(self) -> "Plan":
        """Have the chosen blocks compute again in this thread's backward passes."""
        if self.applied is None:
            self.applied = Applied(self.model, self.blocks)
        return self

    def remove(self) -> None:
        """Have the blocks compute as before."""
        if self.applied is not None:
            self.applied.undo()
            self.applied = None

    def __enter__(self):
        return self.apply()

    def __exit__(self, *exc_info):
        self.remove()

    def code(self) -> str:
        """The plan as Python to paste."""
        again = [(b.path, b.whole) for b in self.blocks]
        return (
            "from glasshouse.analyze.planner import Applied, Block\n\n"
            f"blocks = {again!r}\n"
            "Applied(model, [Block(path, 0, 0.0, whole) for path, whole in blocks])\n"
        )

    def table(self) -> str:
        """The plan as text."""
        lines = [
            [b.path or type(self.model).__name__, "whole" if b.whole else "elementwise",
             scaled(b.saved_bytes, "B"), milliseconds(b.extra_ns)]
            for b in self.blocks
        ]  # fmt: skip
        head = (
            f"peak {self.plain_bytes:,} -> {self.peak_bytes:,} bytes, "
            f"{percent(self.extra_ns, self.plain_ns) or '0.0%'} more time predicted\n"
        )
        return head + table(["compute again", "", "saves about", "takes"], lines, left=2) + "\n"

    def __str__(self):
        return self.table()


class Applied:
    """Blocks that compute again, until `undo()`."""

    def __init__(self, model: Module, blocks: Iterable[Block]):
        self.before, self.wrapped = state.recompute, []
        root = type(model).__name__
        cheap = [f"{root}.{b.path}" if b.path else root for b in blocks if not b.whole]
        state.recompute = (*self.before, *cheap)
        for block in blocks:
            module = model.get_submodule(block.path)
            if block.whole and "forward" not in module.__dict__:
                module.__dict__["forward"] = checkpoint(once_updated(module, module.forward))
                self.wrapped.append(module)

    def undo(self) -> None:
        state.recompute = self.before
        for module in self.wrapped:
            module.__dict__.pop("forward", None)


def once_updated(module: Module, forward):
    """The forward, whose second run leaves buffers (running statistics) as the first made them."""

    def run(*args, **kwargs):
        if state.phase != "recompute":
            return forward(*args, **kwargs)
        before = [(m, dict(m._buffers)) for m in module.modules()]
        held = [
            (b, b.data, b.spec) for _, buffers in before for b in buffers.values() if b is not None
        ]
        try:
            return forward(*args, **kwargs)
        finally:
            for m, own in before:
                m._buffers.update(own)
            for b, data, spec in held:
                b.data, b.spec = data, spec

    return run


def candidates_of(model: Module) -> list[str]:
    """Paths of the blocks that may be computed again: the outermost modules of the user's classes
    that repeat, else containers that do, else the model's own parts."""
    parts = [
        (path, m) for path, m in model.named_modules() if path and any(True for _ in m.parameters())
    ]
    kinds = Counter(type(m) for _, m in parts)
    repeated = [(path, m) for path, m in parts if kinds[type(m)] > 1 and not is_leaf(m)]
    own = [path for path, m in repeated if type(m) not in no_leaf_types]
    found = own or [path for path, _ in repeated] or [name for name, _ in model.named_children()]
    return [p for p in found if not any(p != o and is_within(p, o) for o in found)]


class Planner:
    """Looks for the cheapest choice whose step fits the budget."""

    def __init__(self, trainer: Trainer, paths: list[str], machine: MachineProfile):
        self.trainer, self.machine, self.model = trainer, machine, trainer.model
        self.root = type(self.model).__name__
        self.plain = trainer.analyse(2, machine)
        self.checked: dict[tuple, int] = {(): self.plain.peak_bytes}
        everything = [Block("", 0, 0.0, whole=False)]
        self.thrifty = self.analyse(everything)
        self.all_elementwise = [self.elementwise("")]
        self.some_elementwise = [self.elementwise(path) for path in paths]
        self.whole = [self.whole_block(path) for path in paths]

    def analyse(self, chosen: list[Block]) -> StepAnalysis:
        """The step with a choice applied."""
        applied = Applied(self.model, chosen)
        try:
            found = self.trainer.analyse(2, self.machine)
        finally:
            applied.undo()
        self.checked[key_of(chosen)] = found.peak_bytes
        return found

    def peak(self, chosen: list[Block]) -> int:
        """The planned peak of a step with a choice applied."""
        key = key_of(chosen)
        return self.checked[key] if key in self.checked else self.analyse(chosen).peak_bytes

    def held(self, found: StepAnalysis, path: str) -> int:
        """Activations of a module at the peak."""
        module = f"{self.root}.{path}" if path else self.root
        return sum(
            row.nbytes for row in found.memory
            if row.kind == "activations" and is_within(row.module, module)
        )  # fmt: skip

    def time(self, found: StepAnalysis, path: str, phase: str) -> float:
        """Predicted ns of a module in one pass."""
        module = f"{self.root}.{path}" if path else self.root
        return sum(
            kernel.ns for kernel in found.kernels
            if kernel.phase == phase and is_within(kernel.module, module)
        )  # fmt: skip

    def elementwise(self, path: str) -> Block:
        saved = self.held(self.plain, path) - self.held(self.thrifty, path)
        return Block(path, max(0, saved), self.time(self.thrifty, path, "recompute"), whole=False)

    def whole_block(self, path: str) -> Block:
        return Block(path, self.held(self.thrifty, path), self.time(self.plain, path, "forward"))

    def search(self, budget: int) -> tuple[list[Block], int]:
        """The choice and its peak.

        Raises:  OptionError, with the least peak that was found, if none fits
        """
        if self.plain.peak_bytes <= budget:
            return [], self.plain.peak_bytes
        if self.thrifty.peak_bytes <= budget:
            options, always, start = self.some_elementwise, [], self.plain.peak_bytes
            best = self.all_elementwise
        else:
            options, always, start = self.whole, self.all_elementwise, self.thrifty.peak_bytes
            best = [*always, *options]
            if (least := self.peak(best)) > budget:
                raise OptionError(
                    f"plan: expected a budget of at least {least:,} bytes, the peak with all of it "
                    f"computed again; got {budget:,}. Use a smaller batch or autocast."
                )
        wanted = start - budget
        for _ in range(MAX_CHECKS // 2):
            chosen = [*always, *choose(options, wanted)]
            missing = self.peak(chosen) - budget
            if missing <= 0:
                best = chosen
                break
            if len(chosen) == len(always) + len(options):
                break
            wanted += max(missing, wanted // 32)
        return self.without_needless(best, budget)

    def without_needless(self, chosen: list[Block], budget: int) -> tuple[list[Block], int]:
        """The choice without blocks that it can do without, the most expensive first."""
        for block in sorted(chosen, key=lambda b: -b.extra_ns):
            if len(self.checked) > MAX_CHECKS:
                break
            fewer = [b for b in chosen if b is not block]
            if self.peak(fewer) <= budget:
                chosen = fewer
        return chosen, self.peak(chosen)


def key_of(blocks: list[Block]) -> tuple:
    return tuple((block.path, block.whole) for block in blocks)


def choose(blocks: list[Block], wanted_bytes: int) -> list[Block]:
    """The blocks that save `wanted_bytes` in the least time; all of them if that is too much."""
    if sum(block.saved_bytes for block in blocks) <= wanted_bytes:
        return list(blocks)
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError:
        return choose_by_ratio(blocks, wanted_bytes)
    saved = np.array([[block.saved_bytes for block in blocks]], float)
    # A little for each block, so that of equal times the fewer blocks win.
    cost = np.array([block.extra_ns for block in blocks]) + 1.0
    solved = milp(
        cost, integrality=np.ones(len(blocks)), bounds=Bounds(0, 1),
        constraints=LinearConstraint(saved / saved.max(), wanted_bytes / saved.max()),
    )  # fmt: skip
    if solved.x is None:
        return choose_by_ratio(blocks, wanted_bytes)
    return [block for block, x in zip(blocks, solved.x, strict=True) if x > 0.5]


def choose_by_ratio(blocks: list[Block], wanted_bytes: int) -> list[Block]:
    """The blocks that save most in their time, until it is enough."""
    chosen: set[str] = set()
    total = 0
    for block in sorted(blocks, key=lambda b: b.extra_ns / max(1, b.saved_bytes)):
        if total >= wanted_bytes:
            break
        chosen.add(block.path)
        total += block.saved_bytes
    return [block for block in blocks if block.path in chosen]


def plan(
    model: Module, loss, optimizer, inputs, budget: int | float, *, blocks=None,
    autocast: str | None = None, machine: MachineProfile | str = "cpu2",
) -> Plan:  # fmt: skip
    """What to compute again so that a training step's memory stays within a budget.

    budget  bytes; or a part of the peak without a plan, above 0 and at most 1
    blocks  paths of modules that may be computed again; the repeating ones unless given

    The arguments else are those of `step`. Values and gradients stay what they are, random numbers
    and running statistics included.

    Raises:  OptionError for a budget that cannot be met, with the least that can, or unknown blocks
    Example: >>> import glasshouse as gh
             >>> from glasshouse.nn import Linear, Sequential, Tanh
             >>> model = Sequential(
             ...     *(Sequential(Linear(64, 256), Tanh(), Linear(256, 64)) for _ in range(6))
             ... )
             >>> opt = gh.optim.SGD(model.parameters(), lr=0.1)
             >>> data = [((4096, 64), "float32")] * 2
             >>> found = plan(model, gh.nn.functional.mse_loss, opt, data, 0.7)
             >>> found.peak_bytes <= 0.7 * found.plain_bytes
             True
    """
    if not isinstance(model, Module):
        raise OptionError(f"plan: expected a Module; got {type_name(model)}. Pass the model.")
    chosen = MachineProfile.load(machine)
    known = dict(model.named_modules())
    for path in blocks or ():
        if path not in known:
            raise OptionError(
                f"plan: expected paths of modules; got {path!r}. {suggest(path, known)}"
            )
    trainer = Trainer(model, loss, optimizer, inputs, autocast)
    planner = Planner(trainer, list(blocks or candidates_of(model)), chosen)
    if isinstance(budget, float):
        if not 0 < budget <= 1:
            raise OptionError(
                f"plan: expected a part above 0 and at most 1, or bytes; got {budget!r}. "
                "Write 0.5 for half of the peak."
            )
        budget = int(budget * planner.plain.peak_bytes)
    found, peak = planner.search(budget)
    return Plan(model, found, planner.plain, peak)
