"""Names for the values of a forward pass: "Model.blocks.3:matmul#1" is the second product there.

A plan names values that are to be made again, and with "=" behind the name what is to be kept for
that; names are the same in each recording of a model."""

from glasshouse.graph.graph import Node
from glasshouse.remat.passes.rerun import is_backward


def names_of(nodes: list[Node]) -> dict[int, str]:
    """The names of the forward values among needed nodes, by number."""
    count: dict[str, int] = {}
    names = {}
    for node in nodes:
        if node.op != "input" and not is_backward(node):
            kind = f"{node.origin.module}:{node.op}"
            count[kind] = count.get(kind, -1) + 1
            names[node.number] = f"{kind}#{count[kind]}"
    return names


def asked_values(nodes: list[Node], modules: tuple[str, ...]) -> tuple[set[int], ...]:
    """Numbers of the values named to be made again, of those kept for that, of all in between."""
    wanted = {m for m in modules if ":" in m}
    if not wanted:
        return set(), set(), set()
    names = names_of(nodes)
    made = {number for number, name in names.items() if name in wanted}
    kept = {number for number, name in names.items() if name + "=" in wanted}
    between, by_number = set(made), {node.number: node for node in nodes}
    stack = list(made)
    while stack:
        for x in by_number[stack.pop()].inputs:
            if x.op != "input" and x.number not in kept and x.number not in between:
                between.add(x.number)
                stack.append(x.number)
    return made, kept, between
