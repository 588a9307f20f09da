"""The recomputation planner: what to compute again so that a training step fits a budget.

There are two means. *Elementwise*: activations, normalised values and the like that backward can
make again from what it keeps anyway are dropped (`passes/recompute.py`), at almost no cost.
*Whole*: a block is checkpointed, keeps its arguments only, and runs a second time. The planner
estimates from three analyses what each block saves and costs either way, chooses by a dynamic
program, and analyses the step with its choices: the budget is met, or an error names the least
possible."""

from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import NamedTuple

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import StepAnalysis, TrainingStep
from glasshouse.analyze.trace import forwards_replaced
from glasshouse.base.errors import OptionError, check_known, type_name
from glasshouse.compile.plan import no_collection
from glasshouse.nn.module import Module
from glasshouse.profile.text import milliseconds, percent, scaled, table
from glasshouse.remat.planner.blocks import Applied, Block, candidates_of, first_argument, key_of
from glasshouse.remat.planner.chain import Chain, Option, Stage, chain_of, cheapest, widened
from glasshouse.remat.planner.offload import Link
from glasshouse.remat.planner.values import Values

MAX_CHECKS = 8  # choices that are analysed for a budget
MAX_FAILS = 2  # blocks that a choice is tried without in vain
SMALL_GAIN = 0.003  # of the time of a step: not worth an analysis
MIN_ROW = 5  # equal blocks of which some stand for the others
MAX_SHOWN = 24  # single values in a plan's table
MAX_VALUES = 2000  # of a forward pass, among which a minimum cut is found in half a second
SOLVERS = ("auto", "chain", "exact", "min-cut")
EVERYWHERE = Block("", whole=False)  # elementwise work of all of it
LIGHT_CONVS = (40, 80)  # FLOPs a byte of convolutions that may be made again: 64 and 128 channels


class Planned:
    """What a step computes again, and what that comes to.

    blocks        those chosen, with their estimated savings and costs
    peak_bytes    the planned peak of a step with them; at most the budget
    plain_bytes   that without
    plain_ns      the predicted time of a step without
    extra_ns      by how much it grows"""

    def __init__(self, planner: "Planner", budget: int | float):
        _, self.plain_bytes, self.plain_ns = planner.check([])
        self.blocks, self.peak_bytes, ns = planner.search(in_bytes(budget, self.plain_bytes))
        self.extra_ns, self.root = ns - self.plain_ns, planner.root

    def code(self) -> str:
        lines = "".join(f"    {block.code()},\n" for block in self.blocks)
        head = "from glasshouse.remat.planner.planner import Applied, Block\n\n"
        return f"{head}blocks = [\n{lines}]\nApplied(model, blocks)\n"

    def table(self) -> str:
        lines = [
            [
                b.path or self.root or "all of it",
                b.means,
                scaled(b.saved_bytes, "B"),
                milliseconds(b.extra_ns),
            ]
            for b in self.shown()
        ]
        more = percent(self.extra_ns, self.plain_ns) or "0.0%"
        head = f"peak {self.plain_bytes:,} -> {self.peak_bytes:,} bytes, {more} more time predicted"
        names = ["compute again", "", "saves about", "takes"]
        chosen = table(names, lines, left=2) if lines else "nothing is computed again"
        return f"{head}\n{chosen}\n"

    def shown(self) -> list[Block]:
        """The modules, the largest of the single values, and what the others come to."""
        values = sorted(
            (b for b in self.blocks if ":" in b.path and b.saved_bytes),
            key=lambda b: -b.saved_bytes,
        )
        modules, rest = [b for b in self.blocks if ":" not in b.path], values[MAX_SHOWN:]
        if rest:
            sums = sum(b.saved_bytes for b in rest), sum(b.extra_ns for b in rest)
            values[MAX_SHOWN:] = [Block(f"{len(rest)} smaller", *sums, whole=False)]
        return [*modules, *values]

    def __str__(self):
        return self.table()


class Plan(Planned, AbstractContextManager):
    """What to compute again: in this thread from `apply()` to `remove()`, or in a `with` block."""

    def __init__(self, planner: "Planner", budget: int | float):
        super().__init__(planner, budget)
        self.planner, self.model = planner, planner.model
        self.applied: Applied | None = None

    def at(self, budget: int | float) -> "Plan":
        """The plan for another budget; what was analysed for this one is not analysed again."""
        return Plan(self.planner, budget)

    def estimate(self, budget: int | float) -> float | None:
        """About the ns that a plan for a budget adds to a step, in milliseconds and without an
        analysis; None if none seems to fit."""
        planner, limit = self.planner, in_bytes(budget, self.plain_bytes)
        found = [planner.choice(n, limit) for n in range(len(planner.chains) - 1)]
        times = [choice.ns for choice in (planner.best(limit), *found) if choice is not None]
        return min(times) - self.plain_ns if times else None

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


class ModelStep(TrainingStep):
    """A training step whose model can be made to compute blocks again."""

    def applied(self, blocks):
        """Context: these blocks compute again."""
        return Applied(self.model, blocks)


def estimated(path: str, plain: Stage, stage: Stage, *how) -> Block:
    """A block that computes again, by the stages without and with that."""
    saved, extra = plain.held_bytes - stage.held_bytes, stage.ns - plain.ns
    return Block(path, max(0, saved), max(0.0, extra), *how)


def repeated(plain: Chain, model: Module) -> dict[str, str]:
    """By path, the blocks that another stands for: of equal ones in a row most, and which does."""
    rows: list[list[str]] = []
    for path, stage in plain.stages.items():
        before = rows[-1][-1] if rows else path
        kinds = {type(model.get_submodule(p)) for p in (path, before)}
        if rows and len(kinds) == 1 and stage.is_like(plain.stages[before]):
            rows[-1].append(path)
        else:
            rows.append([path])
    return {path: row[1] for row in rows if len(row) >= MIN_ROW for path in row[2:-1]}


class Planner:
    """Looks for the cheapest choice that fits a budget; what was analysed stays known."""

    def __init__(self, trainer, paths: list[str], machine: MachineProfile, solver: str = "auto"):
        self.trainer, self.machine, self.model = trainer, machine, trainer.model
        self.root, self.paths, self.solver = type(self.model).__name__, paths, solver
        self.checked: dict[tuple, Choice] = {}
        self.ways: list[tuple[Block, ...]] = []  # what is computed again in any case
        self.groups: dict[str, Option] | None = None  # by the first block of each
        self.plain = self.analyse([])
        self.plain_ns = self.plain.predicted_ns

    def analyse(self, chosen: list[Block]) -> StepAnalysis:
        """The step with a choice applied; what is offloaded is taken off its course."""
        away = {block.path for block in chosen if block.offload}
        with self.trainer.applied([block for block in chosen if not block.offload]):
            found = self.trainer.analyse(2, self.machine)
        peak_bytes, ns = found.peak_bytes, found.predicted_ns
        if away:
            link = Link(found, self.paths, self.root, self.machine)
            peak_bytes, ns = link.peak_bytes(away), ns + sum(map(link.extra_ns, away))
        self.checked[key_of(chosen)] = Choice(chosen, peak_bytes, ns)
        return found

    def check(self, chosen: list[Block]) -> "Choice":
        key = key_of(chosen)
        if key not in self.checked:
            self.analyse(chosen)
        self.checked[key] = self.checked[key]._replace(blocks=chosen)  # estimates may be new
        return self.checked[key]

    @cached_property
    def least(self) -> StepAnalysis:
        """The step with all blocks computed again."""
        return self.analyse([EVERYWHERE, *map(Block, self.paths)])

    def search(self, budget: int) -> "Choice":
        """The fastest of those analysed that fit.

        Raises: OptionError, with the least peak.
        """
        found = self.attempt(budget)
        if found is None:
            least = f"a budget of at least {self.lowest():,} bytes, the least peak that was found"
            raise OptionError("plan", least, f"{budget:,}", "Use a smaller batch or autocast.")
        return found

    def lowest(self) -> int:
        """The least peak, after looking for one below those that were found."""
        least = min(choice.peak_bytes for choice in self.checked.values())
        return least if self.attempt(least - least // 200) is None else self.lowest()

    def attempt(self, budget: int) -> "Choice | None":
        """The fastest choice that fits, after looking for such."""
        if self.plain.peak_bytes > budget:
            with no_collection():
                if self.values is not None:
                    self.explore_values(budget)
                if self.solver in ("auto", "chain") or self.best(budget) is None:
                    self.explore(budget)
                    self.do_without(budget)
                if self.values is not None and self.best(budget) is None:
                    self.check(self.values.blocks(self.values.least()))
        return self.best(budget)

    def best(self, budget: int) -> "Choice | None":
        found = [choice for choice in self.checked.values() if choice.peak_bytes <= budget]
        return min(found, key=lambda choice: choice.ns, default=None)

    def chain(self, found: StepAnalysis) -> Chain:
        return chain_of(found, self.paths, self.root)

    @cached_property
    def chains(self) -> list[Chain]:
        """By blocks: the plain analysis, those of the ways, and that with all computed again."""
        infos = (info for run in self.plain.runs for info in run.plan.step_infos())
        calls = (source.call for info in infos for source in info.sources)
        convs = [x.cost.flops / max(1, x.out.nbytes) for x in calls if x.primitive.name == "conv"]
        limits = [limit for limit in LIGHT_CONVS if any(flops <= limit for flops in convs)]
        plain = self.chain(self.plain)
        ways = [[EVERYWHERE._replace(convs=n)] for n in (0, *limits)]
        all_blocks = [EVERYWHERE, *map(Block, self.paths)]
        found = [plain, *self.chains_of(plain, [*ways, all_blocks])]
        self.ways = [()]
        for (way,), own in zip(ways, found[1:], strict=False):
            saved, extra = plain.held_bytes - own.held_bytes, own.ns - plain.ns
            self.ways.append((way._replace(saved_bytes=saved, extra_ns=extra),))
        return found

    def chains_of(self, plain: Chain, ways: list[list[Block]]) -> list[Chain]:
        """The chains of the step with these choices applied. Of many equal blocks in a row few are
        analysed, and stand for the others; all of them where that does not tell the plain chain."""
        left_out = repeated(plain, self.model)
        if left_out:
            with suppress(Exception), forwards_replaced(self.model, left_out, first_argument):
                short = [self.shortened(way, left_out) for way in ([], *ways)]
                wide = [widened(own, short[0], plain, left_out) for own in short]
                told = zip(wide[0].stages.values(), plain.stages.values(), strict=True)
                if all(own.is_like(true) for own, true in told):
                    return wide[1:]
        return [self.chain(self.analyse(way)) for way in ways]

    def shortened(self, chosen: list[Block], left_out: dict[str, str]) -> Chain:
        """The chain of one step with a choice applied to the blocks that are not left out."""
        with self.trainer.applied([b for b in chosen if b.path not in left_out]):
            return self.chain(self.trainer.analyse(1, self.machine))

    def option(self, path: str, number: int, *how) -> Option:
        """A way to compute a block; `how` are those of Block."""
        plain, stage = (self.chains[n].stages.get(path, Stage()) for n in (0, number))
        return Option(([estimated(path, plain, stage, *how)], stage.ns), stage)

    @cached_property
    def link(self) -> Link | None:
        """What offloading blocks comes to, where the machine has memory of its own."""
        if not self.machine.host_bytes_per_s:
            return None
        return Link(self.plain, self.paths, self.root, self.machine)

    def find_groups(self) -> dict[str, Option]:
        """Ways to checkpoint containers of blocks and those in them, which run up to thrice."""
        blocks, parts = self.chains[0].stages, dict[str, list[str]]()
        for path in blocks:
            parts.setdefault(path.rpartition(".")[0], []).append(path)
        parts = {group: own for group, own in parts.items() if 1 < len(own) < len(blocks)}
        every = [*map(Block, (*parts, *self.paths))]
        if not parts:
            return {}
        chain, groups = chain_of(self.analyse([*self.ways[1], *every]), list(parts), self.root), {}
        for group, stage in chain.stages.items():
            own = parts[group]
            plain = Stage(sum(blocks[p].held_bytes for p in own), 0, sum(blocks[p].ns for p in own))
            every = [estimated(group, plain, stage), *map(Block, own)]
            groups[own[0]] = Option((every, stage.ns), stage, len(own))
        return groups

    def choice(self, number: int, budget: int) -> "Choice | None":
        """The cheapest choice by the estimates of blocks besides a way; None if none fits."""
        base, options = self.chains[number], []
        for path, stage in base.stages.items():
            own = [Option(([], stage.ns), stage)]
            if not number:
                own += [self.option(path, n, *b[3:]) for n, (b,) in enumerate(self.ways[1:], 1)]
            own += [self.option(path, -1, True)]
            away = self.link.stage(path, stage) if self.link and not number else None
            if away is not None:
                own.append(Option(([estimated(path, stage, away, False, 0, True)], away.ns), away))
            options.append([*own, self.groups[path]] if path in (self.groups or ()) else own)
        found = cheapest(options, base.around, self.room(base, budget))
        if found is None:
            return None
        blocks = [*self.ways[number], *(block for own, _ in found for block in own)]
        return Choice(blocks, budget, sum(ns for _, ns in found) + base.other.ns)

    def seems_to_fit(self, number: int, budget: int) -> bool:
        """Whether the way of this number fits by the estimates, with no block besides."""
        own, stages = self.chains[number], self.chains[number].stages.values()
        options = [[Option(None, stage)] for stage in stages]
        return cheapest(options, own.around, self.room(own, budget)) is not None

    def room(self, base: Chain, budget: int) -> int:
        """What a budget leaves for the blocks of a chain."""
        outside = self.plain.peak_bytes - self.plain.arena_bytes
        return budget - outside - base.other.held_bytes

    def explore(self, budget: int) -> None:
        """Analyse the cheapest choices by the estimates, as long as one may be better than what
        fits; where one takes more than it was to, the next of its way is to leave that much."""
        # All elementwise work is cheaper than any block; moving may take no time at all.
        first = not self.link and not self.seems_to_fit(1, budget)
        over = dict.fromkeys(ways := range(first, len(self.chains) - 1), 0)
        for _ in range(MAX_CHECKS):
            found = {n: self.choice(n, budget - bytes_over) for n, bytes_over in over.items()}
            likely = {n: choice for n, choice in found.items() if choice is not None}
            if not likely:
                break
            number, best = min(likely, key=lambda n: likely[n].ns), self.best(budget)
            if best is not None and likely[number].ns >= best.ns - SMALL_GAIN * self.plain_ns:
                return
            peak = self.check(likely[number].blocks).peak_bytes
            if peak <= budget:
                del over[number]
            else:
                over[number] += max(peak - budget, budget // 200)
        if len(over) < len(ways):
            return
        if self.groups is None:
            self.groups = self.find_groups()
            if self.groups:
                self.explore(budget)
                return
        for way in self.ways[1:]:  # none of them fits
            self.check([*way, *(self.option(path, -1, True).what[0][0] for path in self.paths)])
        for number in range(len(self.ways)):
            self.check(self.smallest(number).blocks)

    @cached_property
    def values(self) -> Values | None:
        """The values among which a solver chooses; None where only blocks of a chain are chosen."""
        if self.solver == "chain":
            return None
        solver = "min-cut" if self.solver == "auto" else self.solver
        found = Values(self.plain, self.root, self.machine, solver)
        return None if self.solver == "auto" and len(found.nodes) > MAX_VALUES else found

    def explore_values(self, budget: int) -> None:
        """Analyse choices of values until one fits: each leaves what the last took too much."""
        more_bytes = self.plain.peak_bytes - budget
        for _ in range(MAX_CHECKS):
            choice = self.values.choice(more_bytes)
            if choice is None:
                return
            peak = self.check(self.values.blocks(choice)).peak_bytes
            if peak <= budget:
                return
            more_bytes += max(peak - budget, budget // 200)

    def smallest(self, number: int) -> "Choice":
        """The choice of a way that takes the least memory by the estimates, within 0.5 %."""
        low, high = 0, 2 * self.plain.peak_bytes
        while high - low > self.plain.peak_bytes // 200:
            middle = (low + high) // 2
            low, high = (middle, high) if self.choice(number, middle) is None else (low, middle)
        return self.choice(number, high) or Choice([], high, 0.0)

    def do_without(self, budget: int) -> None:
        """Analyse what fits without blocks that it may not need, the most expensive first."""
        best, fails = self.best(budget), 0
        for block in sorted(best.blocks if best else (), key=lambda b: -b.extra_ns):
            likely = ":" not in block.path and block.saved_bytes <= budget - best.peak_bytes
            if likely and fails < MAX_FAILS:
                fewer = self.check([b for b in best.blocks if b is not block])
                best, fails = (best, fails + 1) if fewer.peak_bytes > budget else (fewer, fails)


class Choice(NamedTuple):
    """Blocks that were analysed together: the planned peak of a step, and its predicted ns."""

    blocks: list[Block]
    peak_bytes: int
    ns: float


def plan(
    model: Module,
    loss,
    optimizer,
    inputs,
    budget: int | float,
    *,
    blocks=None,
    autocast: str | None = None,
    machine: MachineProfile | str = "cpu2",
    solver: str = "auto",
) -> Plan:
    """What to compute again so that a training step's memory stays within a budget.

    budget  bytes; or a part of the peak without a plan, above 0 and at most 1
    blocks  paths of modules that may be computed again; the repeating ones unless given
    solver  "chain", a dynamic program over blocks; "exact", a mixed-integer program over single
            values, for graphs in which it ends in time (needs scipy); "min-cut", a heuristic over
            single values that makes no large product again; "auto", the better of this and the
            chain. Where values do not suffice, blocks are chosen

    The arguments else are those of `step`. Values and gradients stay what they are, random numbers
    and running statistics included.

    Raises: OptionError for a budget that cannot be met, with the least that can, or unknown blocks
    Example:
        >>> import glasshouse as gh
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
        raise OptionError("plan", "a Module", type_name(model), "Pass the model.")
    check_known("plan", f"a solver of {', '.join(SOLVERS)}", solver, SOLVERS)
    chosen = MachineProfile.load(machine)
    for path in blocks or ():
        check_known("plan", "paths of modules", path, dict(model.named_modules()))
    trainer = ModelStep(model, loss, optimizer, inputs, autocast)
    return Plan(Planner(trainer, list(blocks or candidates_of(model)), chosen, solver), budget)


def in_bytes(budget: int | float, whole: int) -> int:
    """A budget in bytes; one that is a float is a part of the whole."""
    if not isinstance(budget, float):
        return budget
    if not 0 < budget <= 1:
        raise OptionError(
            "plan",
            "a part above 0 and at most 1, or bytes",
            repr(budget),
            "Write 0.5 for half of the peak.",
        )
    return int(budget * whole)
