"""A graph of primitives: the form of a recording that passes rewrite.

Nodes are in topological order. Besides the cards there are three kinds of call: `input` (an array
from outside), `full` with value None (a scalar from outside, the `number`-th) and `pick` (one
result of a card with several). A graph prints as Python that runs, and `run` computes it by the
cards' references."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glasshouse.dispatch.call import Call, call_of, input_call, pseudo_primitives
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.scope import NOWHERE, Origin
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording, fill_scalar
from glasshouse.ops.body import DETACH, Body

AFTER_FORWARD = ("backward", "recompute", "optimizer")  # phases


class Graph:
    """Nodes in topological order, and which are outputs. `emit` returns the node of an equal call,
    but a checkpoint's recomputed values get nodes of their own, so that the originals are not kept.
    So do collectives, which are needed as outputs are: another rank may have cut its recording
    between two equal ones, and each has to meet its like."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[Node] = []
        self.by_key: dict[tuple[Any, ...], Node] = {}
        self.origin = NOWHERE  # of the nodes that are made now
        self.stored: set[int] = set()  # numbers of nodes that are to have memory in any case
        self.simplest: set[int] = set()  # numbers of nodes that no rule makes simpler any more

    def emit(
        self,
        op: str,
        inputs: Sequence[Node] = (),
        attrs: Any = None,
        spec: Any = None,
        host: Any = None,
    ) -> Node:
        """A node for the call; `spec` is inferred from the card if it is not given."""
        if op == "input":
            return self.emit_call(input_call(attrs["number"], spec), ())
        primitive = primitives.get(op) or pseudo_primitives[op]
        call = call_of(primitive, [x.spec for x in inputs], attrs or {}, spec, host)
        return self.emit_call(call, inputs)

    def emit_call(self, call: Call, inputs: Any) -> Node:
        """The node of a call on operands of its specs."""
        origin = self.origin
        rerun = origin.rerun + 1 if origin.phase == "recompute" and inputs else 0
        key = (call, rerun, *[x.number for x in inputs])
        node = None if call.is_collective else self.by_key.get(key)
        if node is None:
            node = self.by_key[key] = Node(call, tuple(inputs), origin, len(self.nodes))
            self.nodes.append(node)
        return node

    def drop_unneeded(self) -> None:
        """Remove the nodes that no output needs. If any are removed, later calls get new nodes."""
        needed = needed_nodes(self)
        if len(needed) == len(self.nodes):
            return
        self.stored = {i for i, node in enumerate(needed) if node.number in self.stored}
        self.nodes, self.by_key, self.simplest = needed, {}, set()
        for number, node in enumerate(needed):
            node.number = number

    def inputs(self) -> list[Node]:
        return [node for node in self.nodes if node.op == "input"]

    def __str__(self) -> str:
        return print_graph(self)


def inlined(graph: Graph, body: Body, nodes: list[Any]) -> list[Any]:
    """The nodes of the results of a body whose inputs are `nodes`."""
    values = list(nodes)
    for call, places in body.calls:
        operands = [values[at] for at in places]
        if call.primitive is DETACH:
            values.append(operands[0])
            continue
        results = emit_inlined(graph, call, operands)
        if call.primitive.num_outputs == 1:
            values.append(results)
        elif isinstance(results, list):
            values += results
        else:
            picks = enumerate(call.outs)
            values += [graph.emit("pick", (results,), {"number": i}, spec) for i, spec in picks]
    return [values[at] for at in body.outputs]


def emit_inlined(graph: Graph, call: Call, operands: list[Any]) -> Any:
    """The node of a call; of one with derivatives of its own, the nodes of its results."""
    if call.name == "custom":
        return inlined(graph, call.attrs["body"], operands)
    if call.name == "pick" and isinstance(operands[0], list):
        return operands[0][call.attrs["number"]]
    return graph.emit_call(call, operands)


def graph_of_body(body: Body, outputs: Sequence[int], origin: Origin = NOWHERE) -> Graph:
    """The graph of primitives of a body, with these of its values as outputs."""
    graph = Graph()
    graph.origin = origin
    nodes = [graph.emit_call(input_call(i, spec), ()) for i, spec in enumerate(body.inputs)]
    whole = Body.of(body.inputs, body.calls, tuple(outputs), body.recomputed)
    graph.outputs = inlined(graph, whole, nodes)
    return graph


def graph_of(recording: Recording) -> Graph:
    """The graph of a recording; the number of an input is that of its leaf."""
    graph = Graph()
    leaves = {
        id(leaf): graph.emit_call(input_call(i, leaf.spec), ())
        for i, leaf in enumerate(recording.leaves)
    }
    nodes: list[Any] = []
    scalars, reruns, phase = 0, 0, ""
    for place, node in enumerate(recording.nodes):
        operands = [nodes[x.number] if x.value is None else leaves[id(x)] for x in node.inputs]
        reruns += node.origin.phase == "recompute" != phase
        phase = node.origin.phase
        graph.origin = Origin(node.origin.module, phase, place, reruns, node.function)
        call = node.call
        if node.scalar is not None:
            call = call_of(call.primitive, (), {**call.attrs, "number": scalars}, call.out)
            scalars += 1
        nodes.append(emit_inlined(graph, call, operands))
    graph.outputs = [nodes[i] for i in recording.outputs]
    return graph


def is_backward(node: Node) -> bool:
    """Whether a node belongs to a pass after the forward pass."""
    return node.origin.phase in AFTER_FORWARD


def users_of(nodes: list[Node]) -> dict[int, list[Node]]:
    """The nodes that read each node, once for each time, by its number."""
    users: dict[int, list[Node]] = {}
    for node in nodes:
        for x in node.inputs:
            users.setdefault(x.number, []).append(node)
    return users


def needed_nodes(graph: Graph) -> list[Node]:
    """Nodes that outputs and collectives need, these among them, in order."""
    needed = bytearray(len(graph.nodes))
    for node in graph.outputs:
        needed[node.number] = True
    results = []
    for node in reversed(graph.nodes):
        if needed[node.number] or node.call.is_collective:
            for x in node.inputs:
                needed[x.number] = True
            results.append(node)
    return results[::-1]


def transform(graph: Graph, rule: Callable[..., Any]) -> Graph:
    """A new graph in which `rule(new, node, inputs)` made each needed node."""
    new = Graph()
    new_nodes: dict[int, Node] = {}
    for node in needed_nodes(graph):
        new.origin = node.origin
        new_nodes[node.number] = rule(new, node, tuple([new_nodes[x.number] for x in node.inputs]))
    new.outputs = [new_nodes[node.number] for node in graph.outputs]
    new.stored = {new_nodes[number].number for number in graph.stored if number in new_nodes}
    return new


def run(graph: Graph, arrays: Any, scalars: tuple[Any, ...] = ()) -> Any:
    """The outputs of a graph by the cards' references; `scalars` are packed bytes."""
    values: dict[int, Any] = {}
    for node in graph.nodes:
        operands = [values[x.number] for x in node.inputs]
        values[node.number] = run_node(node, operands, arrays, scalars)
    return [np.asarray(values[node.number]) for node in graph.outputs]


def run_node(
    node: Node, operands: list[np.ndarray], arrays: list[np.ndarray], scalars: tuple[Any, ...]
) -> Any:
    """The result(s) of one node."""
    if node.op == "input":
        return arrays[node.attrs["number"]]
    if node.op == "full" and "number" in node.attrs:
        return fill_scalar(node, scalars[node.attrs["number"]])
    return node.call.compute(*operands)


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


def print_attr(value: Any) -> str:
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
