"""Which matrices of a graph are symmetric: products of a matrix and its own transpose, and the
polynomials of such a product, which are symmetric too and commute."""

from typing import Any

from glasshouse.graph.node import Node

IDENTITY = "identity"  # a multiple of it is a polynomial of any matrix


def symmetric_roots(nodes: list[Node]) -> dict[int, Node | str]:
    """By the number of each node known to be symmetric, the base that it is a polynomial of."""
    roots: dict[int, Node | str] = {}
    for node in nodes:
        root = root_of(node, roots)
        if root is not None:
            roots[node.number] = root
    return roots


def root_of(node: Node, roots: dict[Any, Any]) -> Node | str | None:
    if node.host is not None or not node.inputs:
        return None
    first, second = (node.inputs * 2)[:2]
    if node.op == "cast" or is_transpose(node):
        return IDENTITY if is_identity(node) else roots.get(first.number)
    if node.op in ("mul", "div") and is_scalar(second):
        return roots.get(first.number)
    if node.op == "mul" and is_scalar(first):
        return roots.get(second.number)
    if node.op not in ("add", "sub", "matmul"):
        return None
    both = {roots.get(first.number), roots.get(second.number)}
    if both == {IDENTITY}:
        return IDENTITY
    both -= {IDENTITY}
    if len(both) == 1 and None not in both:
        return both.pop()
    pairs = ((first, second), (second, first))
    is_own = any(is_transpose(b) and b.inputs[0] is a for a, b in pairs)
    return node if node.op == "matmul" and is_own else None


def is_transpose(node: Node) -> bool:
    """Whether a node is its operand with the last two axes exchanged."""
    if node.op != "permute" or node.host is not None or len(node.shape) < 2:
        return False
    *lead, row, column = range(len(node.shape))
    return tuple(node.attrs["axes"]) == (*lead, column, row)


def is_scalar(node: Node) -> bool:
    """Whether all elements of a node are one number."""
    return node.op == "full" or (node.op == "expand" and node.inputs[0].spec.size == 1)


def is_identity(node: Node) -> bool:
    """Whether a node is the identity as `eye` makes it: where column - row is 0."""
    (equal,) = node.inputs
    if node.op != "cast" or equal.op != "equal" or len(node.shape) != 2:
        return False
    difference, zero = equal.inputs
    if difference.op != "sub" or zero.op != "full" or zero.attrs["value"] != 0:
        return False
    size = node.shape[0]
    return node.shape == (size, size) and [numbered_axis(x) for x in difference.inputs] == [1, 0]


def numbered_axis(node: Node) -> int | None:
    """Along which axis of a matrix each element is its own number; None if along none."""
    if node.op != "expand" or node.inputs[0].op != "reshape":
        return None
    narrow = node.inputs[0]
    shapes = {(1, node.shape[1]): 1, (node.shape[0], 1): 0}
    return shapes.get(narrow.shape) if narrow.inputs[0].op == "iota" else None
