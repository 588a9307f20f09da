"""Splits a graph in two: one half runs now, the other later, on values that the first saves."""

from glasshouse.compile.programs.binding import Source, SourceKind
from glasshouse.dispatch import primitives
from glasshouse.graph.graph import Graph, Node, needed_nodes


class GraphHalf:
    """A half of a graph; the source of each of its inputs is an input of the whole graph, or an
    output of the first half, which is handed over."""

    def __init__(self, whole: Graph, is_first: bool) -> None:
        self.graph: Graph = Graph()
        self.whole = whole
        self.sources: list[Source] = list[Source]()
        self.is_first = is_first
        self.copies: dict[int, Node] = {}

    def give(self, node: Node, source: Source) -> Node:
        attrs = {"number": len(self.sources)}
        self.sources.append(source)
        self.copies[node.number] = self.graph.emit("input", (), attrs, node.spec)
        return self.copies[node.number]

    def add(self, node: Node) -> Node:
        """Copy a node of the whole graph whose operands are copied already."""
        if node.op == "input":
            return self.give(node, Source(SourceKind.INPUT, node.attrs["number"]))
        self.graph.origin = node.origin
        inputs = tuple([self.copies[x.number] for x in node.inputs])
        new = self.graph.emit_call(node.call, inputs)
        self.copies[node.number] = new
        if node.number in self.whole.stored:
            self.graph.stored.add(new.number)
        return new


def with_operands(nodes: list[Node], numbers: set[int]) -> set[int]:
    """The numbers of nodes and of all their ancestors."""
    needed = set(numbers)
    for node in reversed(nodes):
        if node.number in needed:
            needed.update(x.number for x in node.inputs)
    return needed


def split(graph: Graph, count: int) -> tuple[GraphHalf, GraphHalf]:
    """Split a graph. The first half makes the first `count` outputs, then the values that the
    second half needs; the second makes all other outputs. Collectives keep their order."""
    first, second = GraphHalf(graph, True), GraphHalf(graph, False)
    nodes = needed_nodes(graph)
    early = with_operands(nodes, {node.number for node in graph.outputs[:count]})
    collectives = [node.number for node in nodes if node.call.is_collective]
    last = max((number for number in collectives if number in early), default=-1)
    early = with_operands(nodes, early | {number for number in collectives if number < last})
    for node in nodes:  # a result of a call with several results is handed over, not all of them
        if node.op == "pick" and node.inputs[0].number in early:
            early.add(node.number)
        if node.number in early:
            first.add(node)
    first.graph.outputs = [first.copies[node.number] for node in graph.outputs[:count]]

    def in_second(x: Node) -> Node:
        """A value in the second half: handed over, or a view of a value that is."""
        if x.number in second.copies:
            return second.copies[x.number]
        if x.op == "input" or x.number not in early:
            return second.add(x)
        if x.op in primitives and primitives[x.op].kind in ("movement", "create"):
            for y in x.inputs:
                in_second(y)
            return second.add(x)
        outputs, output = first.graph.outputs, first.copies[x.number]
        if output not in outputs:
            outputs.append(output)
        return second.give(x, Source(SourceKind.OUTPUT, outputs.index(output)))

    for node in nodes:
        if node.number not in early and node.op != "input":
            for x in node.inputs:
                in_second(x)
            second.add(node)
    second.graph.outputs = [in_second(node) for node in graph.outputs[count:]]
    return first, second
