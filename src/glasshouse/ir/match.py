"""Finding a pattern in a graph of the IR, and putting another graph in its place."""

from typing import Any, NamedTuple

from glasshouse.ir.graph import IRGraph
from glasshouse.ir.node import IRNode, map_nodes


class Match(NamedTuple):
    """One place where a pattern fits: `anchor` computes its result; `nodes` maps pattern nodes to
    nodes of the graph, `placeholders` its arguments to their values there."""

    anchor: IRNode
    nodes: dict[IRNode, IRNode]
    placeholders: dict[IRNode, Any]


def find_matches(graph: IRGraph, pattern: IRGraph) -> list[Match]:
    """Where `pattern` fits, without overlaps. Inner results may have no reader outside of it, and
    nothing is written in place between its nodes."""
    result = pattern.nodes[-1].args[0]
    matches: list[Match] = []
    used_nodes: set[IRNode] = set()
    for node in graph.nodes:
        match = Match(node, {}, {})
        if fits(result, node, match) and not used_nodes & set(match.nodes.values()):
            matched = set(match.nodes.values())
            begin = min(map(graph.nodes.index, matched), default=0)
            between = graph.nodes[begin : graph.nodes.index(node)]
            if all(user in matched for n in matched - {node} for user in n.users) and not any(
                n.writes and n not in matched for n in between
            ):
                matches.append(match)
                used_nodes |= matched
    return matches


def fits(pattern: Any, x: Any, match: Match) -> bool:
    """Whether an operand of the pattern fits one of the graph; notes the pairs."""
    if not isinstance(pattern, IRNode):
        if isinstance(pattern, (list, tuple)):
            same = type(x) is type(pattern) and len(x) == len(pattern)
            return same and all(fits(p, y, match) for p, y in zip(pattern, x, strict=True))
        return not isinstance(x, IRNode) and x == pattern
    if pattern.op == "placeholder":
        bound = match.placeholders.setdefault(pattern, x)
        return bound is x or (not isinstance(x, IRNode) and bound == x)
    if pattern in match.nodes:
        return match.nodes[pattern] is x
    if not isinstance(x, IRNode) or (x.op, x.target) != (pattern.op, pattern.target):
        return False
    match.nodes[pattern] = x
    return (
        fits(pattern.args, x.args, match)
        and pattern.kwargs.keys() == x.kwargs.keys()
        and all(fits(v, x.kwargs[k], match) for k, v in pattern.kwargs.items())
    )


def replace_pattern(graph: IRGraph, pattern: IRGraph, replacement: IRGraph) -> list[Match]:
    """Put `replacement` wherever `pattern` fits, with the same arguments; returns the places."""
    matches = find_matches(graph, pattern)
    arguments = [n for n in pattern.nodes if n.op == "placeholder"]
    replaced: dict[IRNode, Any] = {}
    for match in matches:
        values = [map_nodes(match.placeholders[n], lambda x: replaced.get(x, x)) for n in arguments]
        with graph.inserting_before(match.anchor):
            result = insert(graph, replacement, values)
        match.anchor.replace_all_uses_with(result)
        replaced[match.anchor] = result
        for node in reversed([n for n in graph.nodes if n in match.nodes.values()]):
            graph.erase_node(node)
    return matches


def insert(graph: IRGraph, other: IRGraph, values: list[Any]) -> Any:
    arguments = iter(values)
    copies: dict[IRNode, Any] = {}
    for node in other.nodes:
        if node.op == "placeholder":
            copies[node] = next(arguments)
        elif node.op == "output":
            return map_nodes(node.args[0], copies.__getitem__)
        else:
            graph.copy_node(node, copies)
    return None
