"""Single values of a forward pass: their names, and which of them a request asks for."""

from glasshouse.graph.graph import Node, is_backward
from glasshouse.graph.recompute.request import RecomputeRequest, ValueName


def names_of(nodes: list[Node]) -> dict[int, ValueName]:
    """The names of the forward values among needed nodes, by number."""
    counts: dict[tuple[str, str], int] = {}
    names = {}
    for node in nodes:
        if node.op != "input" and not node.call.is_collective and not is_backward(node):
            kind = node.origin.module, node.op
            number = counts.get(kind, 0)
            counts[kind] = number + 1
            names[node.number] = ValueName(*kind, number)
    return names


def requested_values(nodes: list[Node], request: RecomputeRequest) -> tuple[set[int], ...]:
    """Numbers of the values to make again, of those kept for that, and of all that is made on the
    way from these to those."""
    if not request.remade and not request.kept:
        return set(), set(), set()
    remade_names, kept_names = set(request.remade), set(request.kept)
    names = names_of(nodes)
    remade = {number for number, name in names.items() if name in remade_names}
    saved = {number for number, name in names.items() if name in kept_names}
    between, by_number = set(remade), {node.number: node for node in nodes}
    stack = list(remade)
    while stack:
        for x in by_number[stack.pop()].inputs:
            is_there = x.op == "input" or x.call.is_collective or x.number in saved
            if not is_there and x.number not in between:
                between.add(x.number)
                stack.append(x.number)
    return remade, saved, between
