"""Lowerers: each turns some nodes of a graph into steps of one kind.

A target asks its lowerers in order. One that can compute a node, perhaps together with nodes after
it, claims them; it then plans the step, writes its code, describes it, and estimates its time.
`docs/how_to/write_a_lowerer.md` builds one."""

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from glasshouse.base.errors import BackendError
from glasshouse.compile.building.toolchain import digest
from glasshouse.compile.steps.emitted import EmittedStep, MissingKernel
from glasshouse.compile.steps.steps import LoweredStep
from glasshouse.compile.steps.work import StepKind
from glasshouse.graph.graph import Graph, Node, users_of
from glasshouse.graph.symmetric import symmetric_roots
from glasshouse.ops.process import ProcessGroup

PACKAGE = Path(__file__).parents[2]


class GraphUsers:
    """A finished graph with the readers of each node: `users` by number, a reader once for each
    operand; `output_numbers` are those of the outputs."""

    nodes: list[Node]
    outputs: list[Node]

    def __init__(self, graph: Graph) -> None:
        self.nodes, self.outputs = graph.nodes, graph.outputs
        self.users: dict[int, list[Node]] = users_of(graph.nodes)
        self.output_numbers: set[int] = {node.number for node in graph.outputs}
        self.fusable: dict[Any, bool] = {}  # by call, whether fused kernels compute it

    @cached_property
    def symmetric(self) -> dict[int, Node | str]:
        """`symmetric_roots` of the nodes."""
        return symmetric_roots(self.nodes)

    def users_of(self, node: Node) -> list[Node]:
        """The nodes that read a node, once for each operand."""
        return self.users.get(node.number, [])

    def is_output(self, node: Node) -> bool:
        return node.number in self.output_numbers


@dataclass(eq=False)
class Claim:
    """Nodes that one step computes.

    nodes    in the order of the graph; the step stands at the place of the last
    reads    operands that the step wants in memory; else all that come from outside
    results  nodes whose values the step stores; else the last. Other nodes of the claim that are
             read outside are computed again from these
    plan     the lowerer's further findings"""

    nodes: list[Node]
    reads: tuple[Node, ...] | None = None
    results: list[Node] = field(default_factory=list)
    plan: Any = None
    lowerer: Any = None  # set by the caller

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    def __post_init__(self) -> None:
        self.results = self.results or [self.last]
        if self.reads is None:
            numbers = {node.number for node in self.nodes}
            operands = (x for node in self.nodes for x in node.inputs)
            self.reads = tuple(x for x in operands if x.number not in numbers)


class StepDescription(NamedTuple):
    """Description of a planned step: a line of `text`; the `nodes` whose values it makes; its
    `name` if these are none; FLOPs of its primitives' definitions that its algorithm saves; why it
    falls back to the host for want of a kernel; the group of ranks that it exchanges bytes with,
    and how many bytes it gives; the share of its elements that fill no vector."""

    text: str
    nodes: list[Node]
    name: str = "copy"
    saved_flops: int = 0
    fallback: str = ""
    group: ProcessGroup | None = None
    given_bytes: int = 0
    rest: float = 0.0


class Lowerer(StepKind):
    """One way to compute some nodes. A subclass names in `ops` the nodes that it is asked about
    (None: all), and defines the methods below; its kind of step has a `label`, and may estimate its
    own time. A lowerer has no state but its arguments; equal ones make equal Programs."""

    ops: tuple[str, ...] | None = None

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        """Claim nodes from this one on; None where another lowerer has to compute it."""
        raise NotImplementedError

    def plan(self, lowering: Any, claim: Claim) -> bool:
        """Add the steps of a claim to a lowering, and hand out its results; False if that fails:
        then the next lowerers are asked."""
        raise NotImplementedError

    def emit(self, step: Any) -> EmittedStep:
        """Write the code of a planned step."""
        raise NotImplementedError

    def describe(self, step: "LoweredStep") -> StepDescription:
        """Describe a planned step."""
        return StepDescription(f"{self.label} {step.node.op}", step.computes)

    def explain(self, node: Node, dtypes: str) -> MissingKernel | None:
        """Say why a node of these dtypes, offered to this lowerer, is left to the host."""
        return None

    def identity(self) -> str | None:
        """Dependencies of code made by this lowerer beside this package and the C compiler, the
        same in each process; None where that cannot be said, and code is not stored."""
        return identity_of(type(self), f"{vars(self)!r}")


def identity_of(definition: Any, settings: str) -> str | None:
    """Identify a class or function, the same in each process: its name, its settings and, outside
    of this package, the digest of its file; None where it has no file."""
    try:
        path = Path(inspect.getfile(definition))
        file_digest = "" if path.is_relative_to(PACKAGE) else digest(path.read_bytes())
        return f"{definition.__qualname__} {settings} {file_digest}"
    except (OSError, TypeError, AttributeError):
        return None


def claim_nodes(graph: Graph, lowerers: list[Lowerer]) -> dict[int, Claim]:
    """Claims of the lowerers by the number of each node; an earlier lowerer has the first pick."""
    users = GraphUsers(graph)
    by_op: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op not in ("input", "pick"):
            by_op.setdefault(node.op, []).append(node)
    candidates = [node for node in graph.nodes if node.op not in ("input", "pick")]
    claims: dict[int, Claim] = {}
    for lowerer in lowerers:
        ops = lowerer.ops
        nodes = candidates if ops is None else [n for op in ops for n in by_op.get(op, ())]
        for node in nodes:
            if node.number not in claims:
                claim = lowerer.claims(users, node)
                if claim is not None and is_possible(lowerer, claim, claims, users):
                    claim.lowerer = lowerer
                    claims.update((n.number, claim) for n in claim.nodes)
    return claims


def graph_of_node(node: Node) -> Graph:
    """Graph of a single node, for lowerers that are asked about it alone."""
    graph = Graph()
    graph.nodes = [node]
    return graph


def is_possible(
    lowerer: Lowerer, claim: Claim, claims: dict[int, Claim], users: GraphUsers
) -> bool:
    """Whether no other lowerer claimed a node, and none is read from outside before the last.

    Raises: BackendError for nodes in another order
    """
    if len(claim.nodes) == 1:
        return True
    numbers = {node.number for node in claim.nodes}
    if max(numbers) != claim.last.number or not numbers.issuperset(n.number for n in claim.results):
        expected = "a claim that ends with its last node and has its results among its nodes"
        fix = "Sort nodes by their number."
        raise BackendError(f"{lowerer.label}: claims", expected, f"{claim.nodes}", fix)
    if not numbers.isdisjoint(claims):
        return False
    readers = (user.number for node in claim.nodes for user in users.users_of(node))
    return all(number in numbers or number > claim.last.number for number in readers)


def remaining_nodes(claim: Claim, used_outside: set[int]) -> list[Node]:
    """Nodes of a claim that others need and its step does not store, with their operands."""
    stored = {node.number for node in claim.results}
    needed: set[int] = set()
    for node in reversed(claim.nodes):
        if node.number not in stored and (node.number in used_outside or node.number in needed):
            needed.add(node.number)
            needed.update(x.number for x in node.inputs)
    return [node for node in claim.nodes if node.number in needed and node.number not in stored]
