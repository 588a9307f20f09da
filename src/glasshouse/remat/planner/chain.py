"""A model as a chain of blocks: what each holds for its backward pass, and the cheapest way.

An analysis is taken apart into what each block holds between its two passes, and what is in use
beside that while it runs. Of analyses in which the blocks compute in different ways, any mixture is
then put together, and a dynamic program finds the cheapest that stays within some room.

Source: the chains of Beaumont et al. 2019, arXiv:1911.13214 (Rotor), with ways of our own
"""

from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from glasshouse.analyze.step import StepAnalysis, occupancy
from glasshouse.compile.plan_memory import aligned_bytes
from glasshouse.profile.counter import prefixes

LIKE = (0.15, 0.01)  # by which bytes in use and time of equal blocks may differ
UNITS = 1000  # into which the longest time is divided: costs are compared to that


class Stage(NamedTuple):
    """A block: bytes held between its passes, the most used beside that while it runs, its time."""

    held_bytes: int = 0
    used_bytes: int = 0
    ns: float = 0.0

    def is_like(self, other: "Stage") -> bool:
        """Whether two blocks hold the same and differ by a little in what they use and take."""
        pairs = (self.used_bytes, other.used_bytes), (self.ns, other.ns)
        near = all(abs(a - b) <= part * b for (a, b), part in zip(pairs, LIKE, strict=True))
        return self.held_bytes == other.held_bytes and near


class Option(NamedTuple):
    """A way to compute a block, or `span` of them from this one on; `what` stands for it."""

    what: Any
    stage: Stage
    span: int = 1


class Chain(NamedTuple):
    """An analysis by blocks, in the order in which they run. `around` has what is in use outside of
    them, by how many hold something; `other` is what that holds, and its time."""

    stages: dict[str, Stage]
    around: list[int]
    other: Stage

    @property
    def held_bytes(self) -> int:
        return sum(stage.held_bytes for stage in (*self.stages.values(), self.other))

    @property
    def ns(self) -> float:
        return sum(stage.ns for stage in (*self.stages.values(), self.other))


class Passes(NamedTuple):
    """The steps in which a block runs: first and last of its forward pass, first after that."""

    first: int
    last: int
    back: int


class Course:
    """When the blocks of an analysis run and what lies in memory then; `order` lists those that run
    forward and then backward, `turn` is the first step of their backward passes."""

    def __init__(self, found: StepAnalysis, paths: list[str], root: str):
        run = max(found.runs, key=lambda run: run.allocated_bytes)
        self.used, self.spans = occupancy(run.plan)
        self.homes = {f"{root}.{path}" if path else root: path for path in paths}
        self.owners: list[str | None] = []
        steps: dict[str | None, tuple[list[int], list[int]]] = {path: ([], []) for path in paths}
        turned, home_of = False, cache(self.home_of)
        for i, info in enumerate(run.plan.step_infos() if self.used else ()):
            module, phase = info.origins[-1][:2]
            turned = turned or phase == "backward"
            self.owners.append(home_of(module))
            if self.owners[-1] is not None:
                steps[self.owners[-1]][turned].append(i)
        self.passes = {p: Passes(a[0], a[-1], b[0]) for p, (a, b) in steps.items() if a and b}
        self.order = sorted(self.passes, key=lambda path: self.passes[path].first)
        self.turn = min((own.back for own in self.passes.values()), default=-1)

    def home_of(self, module: str) -> str | None:
        return next((self.homes[p] for p in prefixes(module) if p in self.homes), None)


def chain_of(found: StepAnalysis, paths: list[str], root: str) -> Chain:
    """The chain of an analysis; `paths` are those of the blocks in the model `root`."""
    course = Course(found, paths, root)
    used, order, owners, passes = course.used, course.order, course.owners, course.passes
    held, rest = held_bytes(owners, course.spans, course.turn)
    beside, count = [0] * (len(used) + 1), [0] * (len(used) + 1)
    for path in order:
        for table, n in ((beside, held.get(path, 0)), (count, 1)):
            table[passes[path].last + 1] += n
            table[passes[path].back] -= n
    most: dict[Any, int] = {}
    for i, (n, b, holding) in enumerate(zip(used, accumulate(beside), accumulate(count))):
        key = holding if owners[i] not in order else owners[i]
        most[key] = max(most.get(key, 0), n - b - rest)
    ns: dict[str | None, float] = {}
    for kernel in found.kernels:
        path = course.home_of(kernel.module)
        ns[path] = ns.get(path, 0.0) + kernel.ns
    stages = {p: Stage(held.get(p, 0), most.get(p, 0), ns.pop(p, 0.0)) for p in order}
    around = [most.get(k, 0) for k in range(len(order) + 1)]
    return Chain(stages, around, Stage(rest, 0, sum(ns.values())))


def widened(short: Chain, plain: Chain, whole: Chain, left_out: dict[str, str]) -> Chain:
    """The chain with the blocks that were left out, for which others stand. `plain` lacks them too,
    and is known as a `whole`: what is outside of blocks differs from it as it does from `plain`."""
    stages = {path: short.stages[left_out.get(path, path)] for path in whole.stages}
    there = accumulate((path not in left_out for path in whole.stages), initial=0)
    others = zip(short.other[::2], whole.other[::2], plain.other[::2], strict=True)
    held, ns = (b + w - p for b, w, p in others)
    return Chain(stages, [short.around[n] for n in there], Stage(held, 0, ns))


def held_bytes(owners: list, spans: dict, turn: int) -> tuple[dict, int]:
    """Of what is alive at a step: bytes by the block that made it, and of all else."""
    held: dict[str | None, int] = {}
    for buffer, (first, last) in spans.items():
        if first < turn <= last:
            held[owners[first]] = held.get(owners[first], 0) + aligned_bytes(buffer)
    return held, held.pop(None, 0)


def cheapest(options: list[list[Option]], around: list[int], room: int) -> list | None:
    """What the cheapest options for the blocks of a chain are that stay within `room` bytes, all
    the way; None if none do. Exact but for times that differ by a thousandth of the longest.

    Source: the dynamic program over (bytes held, time), of which the best of each stay.
    """
    unit = max((o.stage.ns for own in options for o in own), default=0.0) / UNITS or 1.0
    fronts: list[list[tuple[int, int, tuple]]] = [[] for _ in range(len(options) + 1)]
    fronts[0].append((0, 0, ()))  # time, bytes held, choices
    for i, own in enumerate(options):
        for ns, held, chosen in best_of(fronts[i]):
            for what, stage, span in own if held + around[i] <= room else ():
                if held + stage.used_bytes <= room:
                    entry = ns + round(stage.ns / unit), held + stage.held_bytes, (*chosen, what)
                    fronts[i + span].append(entry)
    fits = [entry for entry in fronts[-1] if entry[1] + around[-1] <= room]
    return list(min(fits, key=lambda x: x[:2])[2]) if fits else None


def best_of(entries: list[tuple[int, int, tuple]]) -> list[tuple[int, int, tuple]]:
    """Those that no other is better than: what takes longer is to hold less."""
    front: list[tuple[int, int, tuple]] = []
    for entry in sorted(entries, key=lambda x: x[:2]):
        if not front or entry[1] < front[-1][1]:
            front.append(entry)
    return front
