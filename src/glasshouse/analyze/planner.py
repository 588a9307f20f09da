"""The recomputation planner: which blocks of a model to compute again so that a step fits a budget.

A block that is checkpointed keeps only its arguments for backward. The planner estimates from one
analysis what each block saves and costs, chooses by an exact 0/1 program (HiGHS, through SciPy) or,
without SciPy, by the ratio of both, and checks the choice by analysing the step with it: the budget
is met in earnest, or an error names the least that is possible.
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
    """A module that may be computed again: about the bytes this saves, and the ns it takes."""

    path: str
    saved_bytes: int
    extra_ns: float


class Plan(AbstractContextManager):
    """Which blocks to compute again. `apply()` makes the model do so, also as a context; `remove()`
    ends it.

    blocks        those chosen, with their estimated savings and costs
    peak_bytes    the planned peak of a step with them; at most the budget
    plain_bytes   that without
    extra_ns      predicted time for computing them again
    """

    def __init__(self, model: Module, blocks: list[Block], plain: StepAnalysis, peak_bytes: int):
        self.model, self.blocks, self.peak_bytes = model, blocks, peak_bytes
        self.plain_bytes, self.plain_ns = plain.peak_bytes, plain.predicted_ns
        self.wrapped: list[Module] = []

    @property
    def extra_ns(self) -> float:
        return sum(block.extra_ns for block in self.blocks)

    def apply(self) -> "Plan":
        """Have the chosen blocks keep their arguments only."""
        if not self.wrapped:
            self.wrapped = wrap(self.model, [block.path for block in self.blocks])
        return self

    def remove(self) -> None:
        """Have the blocks compute as before."""
        unwrap(self.wrapped)
        self.wrapped = []

    def __enter__(self):
        return self.apply()

    def __exit__(self, *exc_info):
        self.remove()

    def code(self) -> str:
        """The plan as Python to paste."""
        lines = ["import glasshouse as gh", "", f"blocks = {[b.path for b in self.blocks]!r}"]
        lines += ["for path in blocks:", "    block = model.get_submodule(path)",
                  "    block.forward = gh.checkpoint(block.forward)"]  # fmt: skip
        return "\n".join(lines) + "\n"

    def table(self) -> str:
        """The plan as text."""
        lines = [
            [b.path, scaled(b.saved_bytes, "B"), milliseconds(b.extra_ns)] for b in self.blocks
        ]
        head = (
            f"peak {self.plain_bytes:,} -> {self.peak_bytes:,} bytes, "
            f"{percent(self.extra_ns, self.plain_ns) or '0.0%'} more time predicted\n"
        )
        return head + table(["compute again", "saves about", "takes"], lines) + "\n"

    def __str__(self):
        return self.table()


def wrap(model: Module, paths: Iterable[str]) -> list[Module]:
    """Checkpoint the forward of each module at a path; returns the modules."""
    wrapped = []
    for path in paths:
        module = model.get_submodule(path)
        if "forward" not in module.__dict__:
            module.__dict__["forward"] = checkpoint(once_updated(module, module.forward))
            wrapped.append(module)
    return wrapped


def unwrap(modules: list[Module]) -> None:
    """Undo `wrap`."""
    for module in modules:
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
    """Looks for the cheapest choice of blocks whose step fits the budget."""

    def __init__(self, trainer: Trainer, paths: list[str], machine: MachineProfile):
        self.trainer, self.machine, self.model = trainer, machine, trainer.model
        self.plain = trainer.analyse(2, machine)
        self.checked: dict[tuple[str, ...], int] = {(): self.plain.peak_bytes}
        root = type(self.model).__name__
        self.blocks = [self.block(path, f"{root}.{path}") for path in paths]

    def block(self, path: str, module: str) -> Block:
        """What computing one block again saves and costs, about."""
        held = sum(
            row.nbytes for row in self.plain.memory
            if row.kind == "activations" and is_within(row.module, module)
        )  # fmt: skip
        time = sum(
            kernel.ns for kernel in self.plain.kernels
            if kernel.phase == "forward" and is_within(kernel.module, module)
        )  # fmt: skip
        return Block(path, held, time)

    def peak(self, chosen: list[Block]) -> int:
        """The planned peak of a step in which these blocks are computed again."""
        key = tuple(block.path for block in chosen)
        if key not in self.checked:
            wrapped = wrap(self.model, key)
            try:
                self.checked[key] = self.trainer.analyse(2, self.machine).peak_bytes
            finally:
                unwrap(wrapped)
        return self.checked[key]

    def search(self, budget: int) -> tuple[list[Block], int]:
        """The choice and its peak.

        Raises:  OptionError, with the least peak that was found, if none fits
        """
        if self.plain.peak_bytes <= budget:
            return [], self.plain.peak_bytes
        everything = self.peak(self.blocks)
        if everything > budget:
            raise OptionError(
                f"plan: expected a budget of at least {everything:,} bytes, the peak with every "
                f"block computed again; got {budget:,}. Use a smaller batch or autocast."
            )
        best, wanted = list(self.blocks), self.plain.peak_bytes - budget
        for _ in range(MAX_CHECKS // 2):
            chosen = choose(self.blocks, wanted)
            missing = self.peak(chosen) - budget
            if missing <= 0:
                best = chosen
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
    chosen = machine if isinstance(machine, MachineProfile) else MachineProfile.load(machine)
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
