"""From the analysis of a step to the values that may be kept or made again, and back."""

from functools import cached_property
from typing import Any, NamedTuple

from glasshouse.analyze.arena import occupancy
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.planner import solvers
from glasshouse.analyze.planner.blocks import Means, RematBlock
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.compile.planning.plan_memory import aligned_bytes
from glasshouse.dispatch.primitive import primitives
from glasshouse.graph.graph import Node, needed_nodes
from glasshouse.graph.recompute.recompute import LIGHT_FLOPS, is_cheap, is_kept, is_view
from glasshouse.graph.recompute.request import ValueName
from glasshouse.graph.recompute.rerun import is_within
from glasshouse.graph.recompute.values import names_of


class WaitingValue(NamedTuple):
    """A value that waits in memory between the passes: its bytes, and the steps at which backward
    reads it first and last."""

    nbytes: int
    first_read: float
    last_read: float


class StepValues:
    """The values of a step's forward pass in the model called `root`; `solver` is "exact" or
    "min-cut", which makes no product again that takes more than 100 FLOPs a byte.

    nodes     those of the values, in order; values are numbered by their places in it
    number    by the number of a node, that of its value
    stored_by by the number of a product, the node whose value its step stores"""

    used_bytes: list[int]
    spans: dict[Any, Any]

    def __init__(
        self, analysis: StepAnalysis, root: str, machine: MachineProfile, solver: str
    ) -> None:
        self.run: Any = max(analysis.runs, key=lambda run: run.allocated_bytes)
        self.root = root
        self.machine = machine
        self.solver = solver
        self.used_bytes, self.spans = occupancy(self.run.plan)
        nodes = needed_nodes(self.run.plan.graph)
        self.names: dict[int, ValueName] = names_of(nodes)
        self.nodes: list[Node] = [
            n for n in nodes if n.number in self.names and (is_view(n) or not is_kept(n))
        ]
        self.number: dict[int, int] = {node.number: i for i, node in enumerate(self.nodes)}
        claims = [c for c in self.run.plan.lowering.claims.values() if len(c.nodes) > 1]
        self.stored_by: dict[Any, Any] = {
            claim.nodes[0].number: claim.last.number for claim in claims
        }

    @cached_property
    def waiting(self) -> dict[int, WaitingValue]:
        """Values that wait in memory, by the number of their node."""
        plan = self.run.plan
        infos = enumerate(plan.step_infos())
        turn = next((i for i, x in infos if any(o.phase == "backward" for o in x.origins)), 0)
        first_reads: dict[Any, Any] = {}  # where the backward pass reads each buffer first
        for i in reversed(range(turn, len(plan.schedule))):
            first_reads.update(dict.fromkeys(plan.schedule[i].reads(), i))
        waiting: dict[int, WaitingValue] = {}
        for buffer, (first, last) in self.spans.items():
            number = buffer.node.number if buffer.node else None
            number = self.stored_by.get(number, number)
            if first < turn <= last and number in self.number:
                so_far = waiting.get(number, WaitingValue(0, last, last))
                waiting[number] = WaitingValue(
                    so_far.nbytes + aligned_bytes(buffer),
                    min(so_far.first_read, first_reads.get(buffer, last)),
                    max(so_far.last_read, last),
                )
        return waiting

    @cached_property
    def values(self) -> list[solvers.SolverValue]:
        return [self.value_of(node) for node in self.nodes]

    @cached_property
    def cuts(self) -> solvers.PricedCuts:
        return solvers.PricedCuts(self.values)

    def value_of(self, node: Node) -> solvers.SolverValue:
        """Value for a solver. One without memory is computed where it is used, or with its users,
        as a product with its bias."""
        numbers = {self.number[x.number] for x in node.inputs if x.number in self.number}
        parents, waiting = tuple(sorted(numbers)), self.waiting.get(node.number)
        if is_view(node) or waiting is None and is_cheap(node):
            return solvers.SolverValue(None, 0.0, parents)
        if waiting is not None:
            reads = waiting.first_read, waiting.last_read
            return solvers.SolverValue(waiting.nbytes, self.ns_of(node), parents, reads)
        has_memory = node.number not in self.stored_by and not isinstance(node.spec, tuple)
        nbytes = node.spec.nbytes if has_memory else None
        return solvers.SolverValue(nbytes, self.ns_of(node), parents)

    def ns_of(self, node: Node) -> float | None:
        """Ns of recomputing a value; None where it must not be recomputed."""
        card = primitives.get(node.op)
        is_ours = not self.root or is_within(node.origin.module, (self.root,))
        if card is None or node.host is not None or not is_ours:
            return None
        call = node.call
        nbytes = sum(spec.nbytes for spec in call.outs)
        is_light = is_cheap(node) or call.cost.flops <= LIGHT_FLOPS * nbytes
        return self.machine.ns_of_call(call) if is_light or self.solver == "exact" else None

    def choice(self, more_bytes: int) -> solvers.ValueChoice | None:
        """Find the cheapest choice with `more_bytes` fewer bytes in use."""
        waiting = self.waiting.values()
        room = sum(value.nbytes for value in waiting) - more_bytes
        if self.solver != "exact":
            return solvers.min_cut(self.values, room, self.cuts)
        times = sorted({value.first_read for value in waiting})
        times = times[:: -(-len(times) // solvers.TIMES) or 1]
        arena_room = self.run.plan.arena_bytes - more_bytes
        limits = []
        for time in times:
            alive_bytes = sum(value.nbytes for value in waiting if time <= value.last_read)
            limits.append((time, arena_room - self.used_bytes[int(time)] + alive_bytes))
        return solvers.exact(self.values, room, limits)

    def least(self) -> solvers.ValueChoice:
        """Find the choice that keeps the fewest bytes."""
        return solvers.cut_at(self.values, 1.0 + self.run.plan.arena_bytes)

    def blocks(self, choice: solvers.ValueChoice) -> list[RematBlock]:
        """Convert a choice to the blocks of a plan."""
        remade = [
            self.block(
                i, Means.REMAKE, self.values[i].nbytes or 0, self.ns_with_unstored(i, choice)
            )
            for i in choice.remade
            if self.nodes[i].number in self.waiting
        ]
        parents = {p for i in choice.remade for p in self.values[i].parents if p in choice.kept}
        return [*remade, *(self.block(i, Means.KEEP, 0, 0.0) for i in sorted(parents))]

    def ns_with_unstored(self, i: int, choice: solvers.ValueChoice) -> float:
        """Ns of a value that is made again, and of the values without memory before it."""
        ns, stack = self.values[i].ns or 0.0, list(self.values[i].parents)
        while stack:
            parent = stack.pop()
            if parent in choice.remade and self.nodes[parent].number not in self.waiting:
                ns += self.values[parent].ns or 0.0
                stack.extend(self.values[parent].parents)
        return ns

    def block(self, i: int, means: Means, saved_bytes: int, extra_ns: float) -> RematBlock:
        """A value as a block of the model."""
        name = self.names[self.nodes[i].number]
        path = name.module.removeprefix(self.root).removeprefix(".")
        return RematBlock(path, means, 0, name, saved_bytes, extra_ns)
