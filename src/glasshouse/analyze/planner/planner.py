"""Planner of recomputation: which parts to compute again so that a training step fits a budget.

There are two means. *Elementwise*: activations, normalised values and the like that backward can
recompute from values it keeps anyway are dropped (`graph.recompute`), at almost no cost.
*Whole*: a block is checkpointed, keeps its arguments only, and runs a second time. The planner
estimates from three analyses each block's savings and costs either way, chooses by a dynamic
program, and analyses the step with its choices: the budget is met, or an error names the smallest
possible one."""

from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.planner.blocks import (
    AppliedBlocks,
    Means,
    RematBlock,
    key_of,
    passed_through,
)
from glasshouse.analyze.planner.chain import Chain, Option, Stage, chain_of, cheapest, extend_chain
from glasshouse.analyze.planner.offload import HostLink
from glasshouse.analyze.planner.step_values import StepValues
from glasshouse.analyze.step import TrainingStep
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.analyze.trace import forwards_replaced
from glasshouse.base.errors import OptionError
from glasshouse.compile.planning.plan import no_collection
from glasshouse.nn.module import Module

MAX_CHECKS = 8  # choices that are analysed for a budget
MAX_FAILS = 2  # blocks that are tried in vain, one by one, as needless in a choice
SMALL_GAIN = 0.003  # of the time of a step: not worth an analysis
LEAST_STEP = 200  # a fraction of a budget: another choice has to take so much less
TINY_BYTES = 1 << 16  # a budget that was perhaps meant in another unit
MIN_ROW = 5  # equal blocks of which some stand for the others
MAX_VALUES = 2000  # of a forward pass, among which a minimum cut is found in half a second
EVERYWHERE = RematBlock("", Means.ELEMENTWISE)  # elementwise work of all of it
LIGHT_CONVS = (40, 80)  # FLOPs a byte of convolutions that may be made again: 64 and 128 channels


class ModelStep(TrainingStep):
    """A training step whose model can be made to compute blocks again."""

    def applied(self, blocks: list[RematBlock]) -> AppliedBlocks:
        """Context: these blocks compute again."""
        return AppliedBlocks(self.model, blocks)


class PlannedStep(Protocol):
    """A step that the planner analyses with choices applied."""

    @property
    def model(self) -> Any: ...

    def applied(self, blocks: list[RematBlock]) -> AbstractContextManager[Any]: ...

    def analyse(self, steps: int, machine: MachineProfile) -> StepAnalysis: ...


class StepChoice(NamedTuple):
    """Blocks that were analysed together: the planned peak of a step, and its predicted ns."""

    blocks: list[RematBlock]
    peak_bytes: int
    ns: float


def with_estimates(block: RematBlock, plain: Stage, stage: Stage) -> RematBlock:
    """A block with its savings and costs, from the stages without and with it."""
    saved_bytes = max(0, plain.held_bytes - stage.held_bytes)
    return block._replace(saved_bytes=saved_bytes, extra_ns=max(0.0, stage.ns - plain.ns))


def stand_ins(plain: Chain, model: Module) -> dict[str, str]:
    """By path, the representative of a block: of equal ones in a row few stand for most."""
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
    """Looks for the cheapest choice that fits a budget; each analysis is done once.

    paths      of the blocks that may be computed again
    checked    by their keys, the choices that were analysed
    ways       blocks that are always computed again, by way; the first way has none
    groups     by the path of the first block of a container, how to checkpoint that"""

    step: PlannedStep
    machine: MachineProfile
    model: Module
    root: str
    paths: list[str]
    solver: str

    def __init__(
        self, step: PlannedStep, paths: list[str], machine: MachineProfile, solver: str = "auto"
    ) -> None:
        self.step, self.machine, self.model = step, machine, step.model
        self.root, self.paths, self.solver = type(self.model).__name__, paths, solver
        self.checked: dict[tuple[Any, ...], StepChoice] = {}
        self.ways: list[tuple[RematBlock, ...]] = []
        self.groups: dict[str, Option] | None = None
        self.plain: StepAnalysis = self.analyse([])
        self.plain_ns: float = self.plain.predicted_ns

    # -- analyses ------------------------------------------------------------------------------

    def analyse(self, blocks: list[RematBlock]) -> StepAnalysis:
        """Analyse the step with a choice applied; offloaded blocks leave its memory."""
        offloaded = {block.path for block in blocks if block.means == Means.OFFLOAD}
        with self.step.applied([block for block in blocks if block.means != Means.OFFLOAD]):
            analysis = self.step.analyse(2, self.machine)
        peak_bytes, ns = analysis.peak_bytes, analysis.predicted_ns
        if offloaded:
            link = HostLink(analysis, self.paths, self.root, self.machine)
            peak_bytes = link.peak_bytes(offloaded)
            ns += sum(map(link.extra_ns, offloaded))
        self.checked[key_of(blocks)] = StepChoice(blocks, peak_bytes, ns)
        return analysis

    def check(self, blocks: list[RematBlock]) -> StepChoice:
        """The choice of these blocks, analysed."""
        key = key_of(blocks)
        if key not in self.checked:
            self.analyse(blocks)
        self.checked[key] = self.checked[key]._replace(blocks=blocks)  # estimates may be new
        return self.checked[key]

    @cached_property
    def least(self) -> StepAnalysis:
        """The step with all blocks computed again."""
        return self.analyse([EVERYWHERE, *map(RematBlock, self.paths)])

    # -- the search ----------------------------------------------------------------------------

    def search(self, budget: int, words: str = "") -> StepChoice:
        """Find the fastest analysed choice that fits a budget, which the user wrote in these words.

        Raises: OptionError, with the least peak.
        """
        choice = self.attempt(budget)
        if choice is None:
            least = f"a budget of at least {self.lowest():,} bytes, the least peak that was found"
            fix = "Use a smaller batch or autocast."
            if budget < TINY_BYTES:
                fix = f'{fix} A size may have a unit, as in "4GiB".'
            raise OptionError("plan", least, words or f"{budget:,} bytes", fix)
        return choice

    def lowest(self) -> int:
        """Find the least peak, after a search below those found so far."""
        least = min(choice.peak_bytes for choice in self.checked.values())
        return least if self.attempt(least - least // LEAST_STEP) is None else self.lowest()

    def attempt(self, budget: int) -> StepChoice | None:
        """Find the fastest choice that fits, after a search."""
        if self.plain.peak_bytes > budget:
            with no_collection():
                if self.values is not None:
                    self.explore_values(self.values, budget)
                if self.solver in ("auto", "chain") or self.best(budget) is None:
                    self.explore(budget)
                    self.do_without(budget)
                if self.values is not None and self.best(budget) is None:
                    self.check(self.values.blocks(self.values.least()))
        return self.best(budget)

    def best(self, budget: int) -> StepChoice | None:
        """The fastest choice that fits, of those that were analysed."""
        fitting = [choice for choice in self.checked.values() if choice.peak_bytes <= budget]
        return min(fitting, key=lambda choice: choice.ns, default=None)

    # -- chains --------------------------------------------------------------------------------

    def chain(self, analysis: StepAnalysis) -> Chain:
        """The chain of an analysis of the step."""
        return chain_of(analysis, self.paths, self.root)

    @cached_property
    def chains(self) -> list[Chain]:
        """Chains of the plain analysis, of those of the ways, and of that with all recomputed."""
        plain = self.chain(self.plain)
        everywhere = [EVERYWHERE._replace(conv_limit=limit) for limit in (0, *self.conv_limits())]
        all_blocks = [EVERYWHERE, *map(RematBlock, self.paths)]
        chains = [plain, *self.chains_of(plain, [*([block] for block in everywhere), all_blocks])]
        self.ways = [()]
        for block, chain in zip(everywhere, chains[1:], strict=False):
            saved_bytes, extra_ns = plain.held_bytes - chain.held_bytes, chain.ns - plain.ns
            self.ways.append((block._replace(saved_bytes=saved_bytes, extra_ns=extra_ns),))
        return chains

    def conv_limits(self) -> list[int]:
        """Limits at which some convolution of the step may be recomputed."""
        infos = (info for run in self.plain.runs for info in run.plan.step_infos())
        calls = (source.call for info in infos for source in info.sources)
        convs = [x.cost.flops / max(1, x.out.nbytes) for x in calls if x.primitive.name == "conv"]
        return [limit for limit in LIGHT_CONVS if any(flops <= limit for flops in convs)]

    def chains_of(self, plain: Chain, ways: list[list[RematBlock]]) -> list[Chain]:
        """Chains of the step with these choices applied. Of many equal blocks in a row few are
        analysed, and stand for the others; all of them where that does not give the plain chain."""
        left_out = stand_ins(plain, self.model)
        if left_out:
            with suppress(Exception), forwards_replaced(self.model, left_out, passed_through):
                short = [self.shortened(way, left_out) for way in ([], *ways)]
                plain_widened, *chains = [extend_chain(c, short[0], plain, left_out) for c in short]
                pairs = zip(plain_widened.stages.values(), plain.stages.values(), strict=True)
                if all(stage.is_like(true_stage) for stage, true_stage in pairs):
                    return chains
        return [self.chain(self.analyse(way)) for way in ways]

    def shortened(self, blocks: list[RematBlock], left_out: dict[str, str]) -> Chain:
        """The chain of one step with a choice applied to the blocks that are not left out."""
        with self.step.applied([block for block in blocks if block.path not in left_out]):
            return self.chain(self.step.analyse(1, self.machine))

    @cached_property
    def link(self) -> HostLink | None:
        """Cost model of offloading blocks, where the machine has separate memory."""
        if not self.machine.host_bytes_per_s:
            return None
        return HostLink(self.plain, self.paths, self.root, self.machine)

    def find_groups(self) -> dict[str, Option]:
        """Ways to checkpoint containers of blocks and their blocks, which run up to three times."""
        blocks, parts = self.chains[0].stages, dict[str, list[str]]()
        for path in blocks:
            parts.setdefault(path.rpartition(".")[0], []).append(path)
        parts = {group: paths for group, paths in parts.items() if 1 < len(paths) < len(blocks)}
        if not parts:
            return {}
        nested = [RematBlock(path) for path in (*parts, *self.paths)]
        chain = chain_of(self.analyse([*self.ways[1], *nested]), list(parts), self.root)
        groups = {}
        for group, stage in chain.stages.items():
            paths = parts[group]
            plain = Stage(
                sum(blocks[p].held_bytes for p in paths), 0, sum(blocks[p].ns for p in paths)
            )
            container = with_estimates(RematBlock(group), plain, stage)
            nested = [container, *map(RematBlock, paths)]
            groups[paths[0]] = Option((nested, stage.ns), stage, len(paths))
        return groups

    # -- choices by the estimates --------------------------------------------------------------

    def option(self, block: RematBlock, chain: Chain) -> Option:
        """Option of a block, computed as in a chain."""
        plain, stage = (c.stages.get(block.path, Stage()) for c in (self.chains[0], chain))
        return Option(([with_estimates(block, plain, stage)], stage.ns), stage)

    def options_of(self, path: str, number: int) -> list[Option]:
        """The ways to compute a block besides the way of this number."""
        stage = self.chains[number].stages[path]
        options = [Option(([], stage.ns), stage)]
        if not number:
            ways = zip(self.ways[1:], self.chains[1:], strict=False)
            options += [self.option(way._replace(path=path), chain) for (way,), chain in ways]
        options.append(self.option(RematBlock(path), self.chains[-1]))
        away = self.link.stage(path, stage) if self.link and not number else None
        if away is not None:
            block = with_estimates(RematBlock(path, Means.OFFLOAD), stage, away)
            options.append(Option(([block], away.ns), away))
        if self.groups and path in self.groups:
            options.append(self.groups[path])
        return options

    def choice(self, number: int, budget: int) -> StepChoice | None:
        """The cheapest choice by the estimates of blocks besides a way; None if none fits."""
        base = self.chains[number]
        options = [self.options_of(path, number) for path in base.stages]
        chosen = cheapest(options, base.around, self.room(base, budget))
        if chosen is None:
            return None
        blocks = [
            *self.ways[number],
            *(block for option_blocks, _ in chosen for block in option_blocks),
        ]
        return StepChoice(blocks, budget, sum(ns for _, ns in chosen) + base.other.ns)

    def seems_to_fit(self, number: int, budget: int) -> bool:
        """Whether the way of this number fits by the estimates, with no block besides."""
        chain = self.chains[number]
        options = [[Option(None, stage)] for stage in chain.stages.values()]
        return cheapest(options, chain.around, self.room(chain, budget)) is not None

    def room(self, base: Chain, budget: int) -> int:
        """Bytes of a budget that remain for the blocks of a chain."""
        outside = self.plain.peak_bytes - self.plain.arena_bytes
        return budget - outside - base.other.held_bytes

    def explore(self, budget: int) -> None:
        """Analyse the cheapest choices by the estimates, as long as one may beat those that fit;
        after one that takes more than planned, the next of its way has to leave that much."""
        # All elementwise work is cheaper than any block; moving may take no time at all.
        first = not self.link and not self.seems_to_fit(1, budget)
        ways = range(first, len(self.chains) - 1)
        over_bytes = dict.fromkeys(ways, 0)  # of the ways without a fit so far
        for _ in range(MAX_CHECKS):
            choices = {n: self.choice(n, budget - over) for n, over in over_bytes.items()}
            likely = {n: choice for n, choice in choices.items() if choice is not None}
            if not likely:
                break
            number, best = min(likely, key=lambda n: likely[n].ns), self.best(budget)
            if best is not None and likely[number].ns >= best.ns - SMALL_GAIN * self.plain_ns:
                return
            peak_bytes = self.check(likely[number].blocks).peak_bytes
            if peak_bytes <= budget:
                del over_bytes[number]
            else:
                over_bytes[number] += max(peak_bytes - budget, budget // LEAST_STEP)
        if len(over_bytes) == len(ways):
            self.explore_least(budget)

    def explore_least(self, budget: int) -> None:
        """Analyse the smallest choices, where no choice fits: first with containers."""
        if self.groups is None:
            self.groups = self.find_groups()
            if self.groups:
                self.explore(budget)
                return
        for way in self.ways[1:]:
            options = [self.option(RematBlock(path), self.chains[-1]) for path in self.paths]
            self.check([*way, *(block for option in options for block in option.what[0])])
        for number in range(len(self.ways)):
            self.check(self.smallest(number).blocks)

    def smallest(self, number: int) -> StepChoice:
        """The choice of a way that takes the least memory by the estimates, within 0.5 %."""
        low, high = 0, 2 * self.plain.peak_bytes
        while high - low > self.plain.peak_bytes // LEAST_STEP:
            middle = (low + high) // 2
            low, high = (middle, high) if self.choice(number, middle) is None else (low, middle)
        return self.choice(number, high) or StepChoice([], high, 0.0)

    def do_without(self, budget: int) -> None:
        """Analyse fitting choices without blocks that may be needless, the most expensive first."""
        best, fails = self.best(budget), 0
        if best is None:
            return
        for block in sorted(best.blocks, key=lambda b: -b.extra_ns):
            is_likely = not block.is_value and block.saved_bytes <= budget - best.peak_bytes
            if is_likely and fails < MAX_FAILS:
                fewer = self.check([b for b in best.blocks if b is not block])
                best, fails = (best, fails + 1) if fewer.peak_bytes > budget else (fewer, fails)

    # -- single values -------------------------------------------------------------------------

    @cached_property
    def values(self) -> StepValues | None:
        """The values among which a solver chooses; None where only blocks of a chain are chosen."""
        if self.solver == "chain":
            return None
        solver = "min-cut" if self.solver == "auto" else self.solver
        values = StepValues(self.plain, self.root, self.machine, solver)
        return None if self.solver == "auto" and len(values.nodes) > MAX_VALUES else values

    def explore_values(self, values: StepValues, budget: int) -> None:
        """Analyse choices of values until one fits: each leaves the last one's excess of bytes."""
        more_bytes = self.plain.peak_bytes - budget
        for _ in range(MAX_CHECKS):
            choice = values.choice(more_bytes)
            if choice is None:
                return
            peak_bytes = self.check(values.blocks(choice)).peak_bytes
            if peak_bytes <= budget:
                return
            more_bytes += max(peak_bytes - budget, budget // LEAST_STEP)
