"""From the analysis of a step to the values that may be kept or made again, and back."""

from functools import cached_property

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import StepAnalysis, occupancy
from glasshouse.compile.plan_memory import aligned_bytes
from glasshouse.dispatch.call import call_of
from glasshouse.dispatch.primitive import primitives
from glasshouse.graph.graph import Node, needed_nodes
from glasshouse.remat.passes.names import names_of
from glasshouse.remat.passes.recompute import LIGHT_FLOPS, is_cheap, is_kept, is_view
from glasshouse.remat.passes.rerun import within
from glasshouse.remat.planner.blocks import Block
from glasshouse.remat.planner.solvers import TIMES, Saved, Value, cut_at, exact, min_cut


class Values:
    """The values of a step's forward pass in the model called `root`; `solver` is "exact" or
    "min-cut", which makes no product again that takes more than 100 FLOPs a byte."""

    def __init__(self, found: StepAnalysis, root: str, machine: MachineProfile, solver: str):
        self.run = max(found.runs, key=lambda run: run.allocated_bytes)
        self.root, self.machine, self.solver = root, machine, solver
        self.used, self.spans = occupancy(self.run.plan)
        nodes = needed_nodes(self.run.plan.graph)
        self.names = names_of(nodes)
        self.nodes = [n for n in nodes if n.number in self.names and (is_view(n) or not is_kept(n))]
        self.at = {node.number: i for i, node in enumerate(self.nodes)}
        claims = self.run.plan.lowering.claims.values()
        # What is stored of nodes that one step computes.
        self.last = {c.nodes[0].number: c.last.number for c in claims if len(c.nodes) > 1}

    @cached_property
    def stored(self) -> dict[int, tuple[int, float, float]]:
        """By node, what waits in memory: its bytes, and when backward reads it first and last."""
        plan = self.run.plan
        infos = enumerate(plan.step_infos())
        turn = next((i for i, x in infos if any(o.phase == "backward" for o in x.origins)), 0)
        found: dict[int, tuple[int, float, float]] = {}
        read: dict = {}  # where the backward pass reads each first
        for i in reversed(range(turn, len(plan.schedule))):
            read.update(dict.fromkeys(plan.schedule[i].reads(), i))
        for buffer, (first, last) in self.spans.items():
            number = buffer.node.number if buffer.node else None
            number = self.last.get(number, number)
            if first < turn <= last and number in self.at:
                n, a, b = found.get(number, (0, last, last))
                own = n + aligned_bytes(buffer), min(a, read.get(buffer, last)), max(b, last)
                found[number] = own
        return found

    @cached_property
    def values(self) -> list[Value]:
        return [self.value(node) for node in self.nodes]

    def value(self, node: Node) -> Value:
        """What is known of a value. What lies in no memory is computed where it is used, or with
        what follows, as a product with its bias."""
        parents = tuple(sorted({self.at[x.number] for x in node.inputs if x.number in self.at}))
        kept = self.stored.get(node.number)
        if is_view(node) or kept is None and is_cheap(node):
            return Value(None, 0.0, parents)
        nbytes, *reads = kept or (None if node.number in self.last else node.spec.nbytes,)
        return Value(nbytes, self.ns_of(node), parents, tuple(reads) or None)

    def ns_of(self, node: Node) -> float | None:
        """What making a value again takes; None where it is not to be."""
        card = primitives.get(node.op)
        ours = not self.root or within(node.origin.module, (self.root,))
        if card is None or node.host is not None or not ours:
            return None
        call = call_of(card, tuple(x.spec for x in node.inputs), node.attrs, node.spec)
        light = is_cheap(node) or call.cost.flops <= LIGHT_FLOPS * node.spec.nbytes
        return self.machine.ns_of_call(call) if light or self.solver == "exact" else None

    def choice(self, more_bytes: int) -> Saved | None:
        """The cheapest choice found with which `more_bytes` fewer are in use."""
        held = sum(nbytes for nbytes, *_ in self.stored.values())
        if self.solver != "exact":
            return min_cut(self.values, held - more_bytes)
        times = sorted({first for _, first, _ in self.stored.values()})
        times = times[:: -(-len(times) // TIMES) or 1]
        room = self.run.plan.arena_bytes - more_bytes
        alive = [sum(n for n, _, last in self.stored.values() if t <= last) for t in times]
        beside = [(t, room - self.used[int(t)] + n) for t, n in zip(times, alive, strict=True)]
        return exact(self.values, held - more_bytes, beside)

    def least(self) -> Saved:
        """The choice that keeps the fewest bytes."""
        return cut_at(self.values, 1.0 + self.run.plan.arena_bytes)

    def blocks(self, found: Saved) -> list[Block]:
        """A choice as what a plan applies."""
        again = [i for i in found.made if self.nodes[i].number in self.stored]
        ends = {p for i in found.made for p in self.values[i].parents if p in found.kept}
        made = [self.block(i, "", self.values[i].nbytes or 0, self.taken(i, found)) for i in again]
        return [*made, *(self.block(i, "=", 0, 0.0) for i in sorted(ends))]

    def taken(self, i: int, found: Saved) -> float:
        """The ns of a value that is made again, and of what lies in no memory before it."""
        ns, stack = self.values[i].ns or 0.0, list(self.values[i].parents)
        while stack:
            p = stack.pop()
            if p in found.made and self.nodes[p].number not in self.stored:
                ns += self.values[p].ns or 0.0
                stack.extend(self.values[p].parents)
        return ns

    def block(self, i: int, end: str, nbytes: int, ns: float) -> Block:
        path = self.names[self.nodes[i].number].removeprefix(self.root).removeprefix(".")
        return Block(path + end, nbytes, ns, whole=False)
