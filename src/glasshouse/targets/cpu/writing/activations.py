"""Sums, relu and hardswish after a convolution, in its step, in inference."""

from typing import Any

from glasshouse.base import float32
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.graph.graph import Node
from glasshouse.graph.patterns import is_static
from glasshouse.targets.cpu.writing.epilogues import bias_of, relu_after


def with_activations(graph: GraphUsers, node: Node) -> Claim:
    """The claim of a convolution and what comes after it: its `plan` is (bias or None, list of
    (what, the other operand or None)). Values in between are not rounded to a narrow dtype."""
    reached: list[Node] = [node]
    best: tuple[Node | None, list[tuple[str, Node | None]]] = (None, [])
    nodes, bias, current = [node], None, node
    after: list[tuple[str, Node | None]] = []
    while not graph.is_output(current):
        step = next_after(graph, current, node)
        if step is None:
            break
        what, other, more = step
        if what == "bias":
            if bias is not None or after:
                break
            bias = other
        elif what != "cast":
            after.append((what, other))
        nodes, current = [*nodes, *more], more[-1]
        if current.dtype is node.dtype:
            reached, best = nodes, (bias, list(after))
    others = [other for what, other in best[1] if other is not None]
    ordered = sorted(reached, key=lambda x: x.number)
    return Claim(ordered, (*node.inputs, *others), plan=best)


def next_after(graph: GraphUsers, x: Node, conv: Node) -> Any:
    """(what, the other operand, its nodes) of what is done to x alone; None for something else."""
    users = graph.users_of(x)
    if (relu := relu_after(x, graph)) is not None:
        return "relu", None, relu
    if len(users) == 2:
        nodes = hardswish_after(x, graph)
        return None if nodes is None else ("hardswish", None, nodes)
    if len(users) != 1 or users[0].host is not None:
        return None
    (user,) = users
    if user.op == "cast" and user.dtype in (conv.dtype, float32):
        return "cast", None, [user]
    if (vector := bias_of(user, x, 1)) is not None:
        return "bias", vector, [user]
    if user.op != "add" or user.inputs[0] is user.inputs[1]:
        return None
    other = user.inputs[1] if user.inputs[0] is x else user.inputs[0]
    # Of two convolutions that are added the later one adds: it comes after all of the first.
    early = other.number < conv.number and other.op not in ("expand", "full", "cast")
    return ("add", other, [user]) if early and other.dtype is conv.dtype else None


def hardswish_after(x: Node, graph: GraphUsers) -> list[Node] | None:
    """The nodes of x · min(max(x + 3, 0), 6) / 6; None for another function of x."""
    product = graph.users_of(x)[1]
    ends = graph.users_of(product)
    if product.op != "mul" or product.inputs[0] is not x or len(ends) != 1:
        return None
    (end,) = ends
    lower = product.inputs[1]
    if lower.op != "where" or end.op != "div" or not is_static(end.inputs[1], 6):
        return None
    below, zero, upper = lower.inputs
    if upper.op != "where" or not is_static(zero, 0) or not is_static(upper.inputs[1], 6):
        return None
    above, six, shifted = upper.inputs
    is_shifted = shifted.op == "add" and shifted.inputs[0] is x and is_static(shifted.inputs[1], 3)
    comparisons = [*at_most(below, shifted, zero), *at_most(above, six, shifted)]
    fits = is_shifted and len(comparisons) == 6
    return [shifted, *comparisons, upper, lower, product, end] if fits else None


def at_most(node: Node, x: Node, y: Node) -> tuple[Node, ...]:
    """The nodes of x < y or x = y, if the node is that."""
    if node.op != "bitwise_or":
        return ()
    operands = [(part.op, part.inputs[0], part.inputs[1]) for part in node.inputs]
    return (*node.inputs, node) if operands == [("less", x, y), ("equal", x, y)] else ()
