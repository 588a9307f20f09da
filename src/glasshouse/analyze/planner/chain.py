"""A model as a chain of blocks: the bytes that each holds, and the cheapest mixture.

An analysis is split into the bytes that each block holds between its two passes, and the bytes in
use beside them while it runs. Analyses in which the blocks compute in different ways then give any
mixture, and a dynamic program finds the cheapest that stays within some room.

Source: the chains of Beaumont et al. 2019, arXiv:1911.13214 (Rotor), with ways of our own
"""

from functools import cache
from itertools import accumulate
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from glasshouse.analyze.arena import occupancy
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.compile.planning.plan_memory import aligned_bytes
from glasshouse.profile.counter import prefixes

USED_TOLERANCE, TIME_TOLERANCE = 0.15, 0.01  # fractions by which equal blocks may differ
TIME_STEPS = 1000  # steps of the longest time: costs are compared to that


class Stage(NamedTuple):
    """A block: bytes held between its passes, most other bytes in use while it runs, its time."""

    held_bytes: int = 0
    used_bytes: int = 0
    ns: float = 0.0

    def is_like(self, other: "Stage") -> bool:
        """Whether two blocks hold the same, and differ by little in use and time."""
        return (
            self.held_bytes == other.held_bytes
            and abs(self.used_bytes - other.used_bytes) <= USED_TOLERANCE * other.used_bytes
            and abs(self.ns - other.ns) <= TIME_TOLERANCE * other.ns
        )


class Option(NamedTuple):
    """A way to compute a block, or `span` of them from this one on; `what` identifies it."""

    what: Any
    stage: Stage
    span: int = 1


class Chain(NamedTuple):
    """An analysis by blocks, in the order in which they run. `around` has the bytes in use outside
    of them, by how many hold something; `other` has the bytes held outside, and its time."""

    stages: dict[str, Stage]
    around: list[int]
    other: Stage

    @property
    def held_bytes(self) -> int:
        return sum(stage.held_bytes for stage in (*self.stages.values(), self.other))

    @property
    def ns(self) -> float:
        return sum(stage.ns for stage in (*self.stages.values(), self.other))


class BlockPasses(NamedTuple):
    """The steps in which a block runs: first and last of its forward pass, first after that."""

    first: int
    last: int
    back: int


class Course:
    """Times at which the blocks of an analysis run, and the memory in use then.

    used_bytes  bytes in use at each step
    spans       for each buffer, the first and the last step in which it is in use
    owners      for each step, the path of its block; None outside of them
    passes      the steps of each block that runs forward and then backward
    order       paths of those blocks in the order in which they run
    turn        the first step of their backward passes"""

    used_bytes: list[int]
    spans: dict[Any, Any]

    def __init__(self, analysis: StepAnalysis, paths: list[str], root: str) -> None:
        run = max(analysis.runs, key=lambda run: run.allocated_bytes)
        self.used_bytes, self.spans = occupancy(run.plan)
        self.paths: dict[str, str] = {f"{root}.{path}" if path else root: path for path in paths}
        self.owners: list[str | None] = []
        forward_steps: dict[str, list[int]] = {path: [] for path in paths}
        backward_steps: dict[str, list[int]] = {path: [] for path in paths}
        has_turned, owner_of = False, cache(self.owner_of)
        for step, info in enumerate(run.plan.step_infos() if self.used_bytes else ()):
            origin = info.origins[-1]
            has_turned = has_turned or origin.phase == "backward"
            owner = owner_of(origin.module)
            self.owners.append(owner)
            if owner is not None:
                (backward_steps if has_turned else forward_steps)[owner].append(step)
        self.passes: dict[str, BlockPasses] = {
            path: BlockPasses(steps[0], steps[-1], backward_steps[path][0])
            for path, steps in forward_steps.items()
            if steps and backward_steps[path]
        }
        self.order: list[str] = sorted(self.passes, key=lambda path: self.passes[path].first)
        self.turn: int = min((block.back for block in self.passes.values()), default=-1)

    def owner_of(self, module: str) -> str | None:
        """Path of the block around a module of the analysis."""
        return next((self.paths[p] for p in prefixes(module) if p in self.paths), None)

    def held_bytes(self) -> tuple[dict[str | None, int], int]:
        """Bytes that wait between the passes: by the block that made them, and of all else."""
        block_bytes: dict[str | None, int] = {}
        for buffer, (first, last) in self.spans.items():
            if first < self.turn <= last:
                owner = self.owners[first]
                block_bytes[owner] = block_bytes.get(owner, 0) + aligned_bytes(buffer)
        return block_bytes, block_bytes.pop(None, 0)

    def used_beside(self, block_bytes: dict[str | None, int], rest: int) -> dict[str | int, int]:
        """Most bytes in use beside those that blocks hold and the rest: by block while it runs, and
        while none runs, by how many hold something."""
        held_changes, count_changes = (
            [0] * (len(self.used_bytes) + 1),
            [0] * (len(self.used_bytes) + 1),
        )
        for path in self.order:
            passes = self.passes[path]
            for changes, amount in ((held_changes, block_bytes.get(path, 0)), (count_changes, 1)):
                changes[passes.last + 1] += amount
                changes[passes.back] -= amount
        holding = zip(accumulate(held_changes), accumulate(count_changes), strict=True)
        most: dict[str | int, int] = {}
        for used_bytes, owner, (held_now, count) in zip(
            self.used_bytes, self.owners, holding, strict=False
        ):
            key = owner if owner in self.passes else count
            most[key] = max(most.get(key, 0), used_bytes - held_now - rest)
        return most


def chain_of(analysis: StepAnalysis, paths: list[str], root: str) -> Chain:
    """The chain of an analysis; `paths` are those of the blocks in the model `root`."""
    course = Course(analysis, paths, root)
    block_bytes, rest = course.held_bytes()
    most = course.used_beside(block_bytes, rest)
    ns: dict[str | None, float] = {}
    for kernel in analysis.kernels:
        path = course.owner_of(kernel.module)
        ns[path] = ns.get(path, 0.0) + kernel.ns
    stages = {
        path: Stage(block_bytes.get(path, 0), most.get(path, 0), ns.pop(path, 0.0))
        for path in course.order
    }
    around = [most.get(count, 0) for count in range(len(course.order) + 1)]
    return Chain(stages, around, Stage(rest, 0, sum(ns.values())))


def extend_chain(short: Chain, plain: Chain, whole: Chain, left_out: dict[str, str]) -> Chain:
    """Add the left-out blocks, for which others stand, to the chain. `plain` lacks them too, and is
    known as a `whole`: memory outside of blocks differs from it as it does from `plain`."""
    stages = {path: short.stages[left_out.get(path, path)] for path in whole.stages}
    counts = accumulate((path not in left_out for path in whole.stages), initial=0)
    other = Stage(
        held_bytes=short.other.held_bytes + whole.other.held_bytes - plain.other.held_bytes,
        ns=short.other.ns + whole.other.ns - plain.other.ns,
    )
    return Chain(stages, [short.around[count] for count in counts], other)


# Options for the first blocks of a chain: time in steps, bytes that they hold, and choices.
Partial = tuple[int, int, tuple[Any, ...]]
time_and_bytes: Any = itemgetter(0, 1)


def cheapest(options: list[list[Option]], around: list[int], room: int) -> list[Any] | None:
    """Find the cheapest options for the blocks of a chain that stay within `room` bytes, all the
    way; None if none do. Exact but for times that differ by a thousandth of the longest.

    Source: the dynamic program over (bytes held, time), of which the best of each stay.
    """
    longest_ns = max(
        (option.stage.ns for block_options in options for option in block_options), default=0.0
    )
    ns_per_step = longest_ns / TIME_STEPS or 1.0
    fronts: list[list[Partial]] = [[] for _ in range(len(options) + 1)]
    fronts[0].append((0, 0, ()))
    for at, block_options in enumerate(options):
        for time, held_bytes, chosen in best_of(fronts[at]):
            if held_bytes + around[at] > room:
                continue
            for what, stage, span in block_options:
                if held_bytes + stage.used_bytes <= room:
                    longer = time + round(stage.ns / ns_per_step)
                    more_bytes = held_bytes + stage.held_bytes
                    fronts[at + span].append((longer, more_bytes, (*chosen, what)))
    fits = [
        (time, held_bytes, chosen)
        for time, held_bytes, chosen in fronts[-1]
        if held_bytes + around[-1] <= room
    ]
    if not fits:
        return None
    _, _, chosen = min(fits, key=time_and_bytes)
    return list(chosen)


def best_of(entries: list[Partial]) -> list[Partial]:
    """Partial choices that no other beats: one that takes longer has to hold less."""
    front: list[Partial] = []
    least_bytes = inf
    for entry in sorted(entries, key=time_and_bytes):
        _, held_bytes, _ = entry
        if held_bytes < least_bytes:
            front.append(entry)
            least_bytes = held_bytes
    return front
