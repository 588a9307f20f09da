"""A graph of primitives: what a recording looks like to the passes that rewrite it.

Nodes are in topological order. Besides the cards there are three kinds of node: `input` (an array
from outside), `full` with value None (a scalar from outside) and `pick` (one result of a card with
several). A graph prints as Python that runs, and `run` computes it by the cards' references."""

from typing import Any, NamedTuple

import numpy as np

from glasshouse.dispatch.primitive import primitives
from glasshouse.graph.record import Recording, unpack


class Origin(NamedTuple):
    """Where a node comes from: path of the calling module, pass, position in the recording; `again`
    counts the runs of checkpointed regions up to there."""

    module: str = ""
    phase: str = ""
    place: int = -1
    again: int = 0


NOWHERE = Origin()


class Node:
    """One operation: `op` is a card's name, `number` counts in order of creation.
    `host` is a user's function that computes it instead of the card."""

    __slots__ = ("op", "inputs", "attrs", "spec", "number", "host", "origin")

    def __init__(
        self, op: str, inputs: tuple, attrs: dict, spec, number: int, host=None, origin=NOWHERE
    ):
        self.op, self.inputs, self.attrs, self.spec = op, inputs, attrs, spec
        self.number, self.host, self.origin = number, host, origin

    @property
    def shape(self):
        return self.spec.shape

    @property
    def dtype(self):
        return self.spec.dtype

    def __repr__(self):
        return f"%{self.number} = {self.op}({', '.join(f'%{x.number}' for x in self.inputs)})"


class Graph:
    """Nodes in topological order, and which are outputs. `emit` returns the node of an equal call,
    but what a checkpoint computes again stays apart, so that what was there before is not kept."""

    def __init__(self):
        self.nodes: list[Node] = []
        self.outputs: list[Node] = []
        self.known: dict[Any, Node] = {}
        self.origin = NOWHERE  # of the nodes that are made now
        self.stored: set[int] = set()  # numbers of nodes that are to have memory in any case

    def emit(self, op: str, inputs=(), attrs=None, spec=None, host=None) -> Node:
        """A node for the call; `spec` is inferred from the card if it is not given."""
        attrs = attrs or {}
        again = self.origin.again + 1 if self.origin.phase == "recompute" and inputs else 0
        key = (op, again, host, *[x.number for x in inputs])
        if attrs:
            key += (*attrs, *attrs.values())
            if "value" in attrs:
                key += (repr(attrs["value"]),)
        node = self.known.get(key)
        if node is None:
            if spec is None:
                spec = primitives[op].infer(*(x.spec for x in inputs), **attrs)
            node = Node(op, tuple(inputs), attrs, spec, len(self.nodes), host, self.origin)
            self.known[key] = node
            self.nodes.append(node)
        return node

    def inputs(self) -> list[Node]:
        return [node for node in self.nodes if node.op == "input"]

    def __str__(self):
        return print_graph(self)


def graph_of(recording: Recording) -> Graph:
    """The graph of a recording; the number of an input is that of its leaf."""
    graph = Graph()
    number_of: dict[int, Node] = {}
    for i, leaf in enumerate(recording.leaves):
        number_of[id(leaf)] = graph.emit("input", (), {"number": i}, leaf.spec)
    made: list[Node] = []
    scalars, again, phase = 0, 0, ""
    for place, lazy in enumerate(recording.nodes):
        operands = [made[x.index] if x.value is None else number_of[id(x)] for x in lazy.inputs]
        signature = lazy.signature
        attrs = signature.attrs
        path = "" if lazy.scope is None else lazy.scope.path
        again += lazy.phase == "recompute" != phase
        phase = lazy.phase
        graph.origin = Origin(path, phase, place, again)
        if lazy.scalar is not None:
            attrs = {**attrs, "number": scalars}
            scalars += 1
        made.append(graph.emit(signature.name, operands, attrs, lazy.spec, signature.host))
    graph.outputs = [made[i] for i in recording.outputs]
    return graph


def users_of(nodes) -> dict[int, list[Node]]:
    """The nodes that read each node, once for each time, by its number."""
    users: dict[int, list[Node]] = {}
    for node in nodes:
        for x in node.inputs:
            users.setdefault(x.number, []).append(node)
    return users


def needed_nodes(graph: Graph) -> list[Node]:
    needed = {node.number for node in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if node.number in needed:
            needed.update(x.number for x in node.inputs)
            kept.append(node)
    return kept[::-1]


def transform(graph: Graph, rule) -> Graph:
    """A new graph in which `rule(new, node, inputs)` made each needed node."""
    new = Graph()
    made: dict[int, Node] = {}
    for node in needed_nodes(graph):
        new.origin = node.origin
        made[node.number] = rule(new, node, tuple(made[x.number] for x in node.inputs))
    new.outputs = [made[node.number] for node in graph.outputs]
    return new


def run(graph: Graph, arrays, scalars=()):
    """The outputs of a graph by the cards' references; `scalars` are packed bytes."""
    values: dict[int, Any] = {}
    for node in graph.nodes:
        operands = [values[x.number] for x in node.inputs]
        values[node.number] = run_node(node, operands, arrays, scalars)
    return [np.asarray(values[node.number]) for node in graph.outputs]


def run_node(node: Node, operands, arrays, scalars):
    if node.op == "input":
        return arrays[node.attrs["number"]]
    if node.op == "pick":
        return operands[0][node.attrs["number"]]
    attrs = node.attrs
    if "number" in attrs:
        value = unpack(scalars[attrs["number"]], node.spec.dtype.kind)
        attrs = {"shape": attrs["shape"], "value": value, "dtype": attrs["dtype"]}
    return (node.host or primitives[node.op].ref)(*operands, **attrs)


def print_graph(graph: Graph) -> str:
    arrays = [f"v{node.number}" for node in graph.nodes if node.op == "input"]
    fulls = [node.attrs for node in graph.nodes if node.op == "full"]
    scalars = sorted({attrs["number"] for attrs in fulls if "number" in attrs})
    names = [*arrays, *(f"s{i}" for i in scalars)]
    lines = ["from glasshouse import *", "", "", f"def program({', '.join(names)}):"]
    lines += [f"    {print_node(n)}  # {n.spec}" for n in graph.nodes if n.op != "input"]
    lines.append(f"    return {', '.join(f'v{node.number}' for node in graph.outputs)}")
    return "\n".join(lines)


def print_node(node: Node) -> str:
    operands = [f"v{x.number}" for x in node.inputs]
    if node.op == "pick":
        return f"v{node.number} = {operands[0]}[{node.attrs['number']}]"
    attrs = dict(node.attrs)
    if "number" in attrs:
        attrs["value"] = f"s{attrs.pop('number')}"
    words = [*operands, *(f"{k}={print_attr(v)}" for k, v in attrs.items())]
    return f"v{node.number} = primitives[{node.op!r}]({', '.join(words)})"


def print_attr(value) -> str:
    if isinstance(value, str) and value[:1] == "s" and value[1:].isdigit():
        return value
    if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
        return f"float({str(value)!r})"
    return getattr(value, "name", None) or repr(value)


def verify(graph: Graph) -> None:
    """Raise AssertionError unless the graph is well formed: order, specs, outputs (GH_VERIFY=1)."""
    for place, node in enumerate(graph.nodes):
        assert node.number == place, f"graph: node {node!r} stands at {place}"
        for x in node.inputs:
            assert x.number < place and graph.nodes[x.number] is x, f"graph: {node!r} before {x!r}"
        if node.op not in ("input", "pick", "full"):
            spec = primitives[node.op].infer(*(x.spec for x in node.inputs), **node.attrs)
            assert spec == node.spec, f"graph: {node!r} has spec {node.spec}, inferred {spec}"
    for node in graph.outputs:
        assert graph.nodes[node.number] is node, f"graph: output {node!r} is not in the graph"
