"""Sums of a value in the shape in which it was computed.

The gradient of a bias is a sum over the rows of a matrix that products read too. This matrix is
often a reshape of an elementwise result, perhaps with its axes in another order. In that result's
own shape, one kernel computes and sums it; over the matrix, the sum takes a separate pass over
memory."""

from typing import Any

from glasshouse.base.shape import Spec
from glasshouse.graph.graph import Graph, Node, transform, users_of

MADE_ELSEWHERE = ("input", "pick", "reshape", "permute", "expand", "slice", "matmul", "conv")


def sum_at_origin(graph: Graph) -> Graph:
    """Sum columns of a matrix for products over the value that the matrix is a reshape of."""
    users = users_of(graph.nodes)
    axes_of = {}
    for node in graph.nodes:
        if node.op == "sum" and is_for_products(node.inputs[0], users):
            axes = axes_before(node.inputs[0], set(node.attrs["axes"]))
            if axes is not None:
                axes_of[node.number] = axes
    if not axes_of:
        return graph

    def rule(new: Graph, node: Node, inputs):
        axes = axes_of.get(node.number)
        if axes is None:
            return new.emit_call(node.call, inputs)
        y = origin_of(inputs[0])
        shape = tuple(n for axis, n in enumerate(y.shape) if axis not in axes)
        total = new.emit("sum", (y,), {"axes": axes}, Spec(shape, node.dtype))
        if shape == node.shape:
            return total
        return new.emit("reshape", (total,), {"shape": node.shape}, node.spec)

    new = transform(graph, rule)
    new.drop_unneeded()
    return new


def is_for_products(x: Node, users: dict[int, list[Node]]) -> bool:
    """Whether a value is another one reshaped, and read by products and one sum alone."""
    if x.op != "reshape" or x.host is not None or not x.spec.size:
        return False
    readers = list(users[x.number])
    for reader in users[x.number]:
        if reader.op == "permute":
            readers += users.get(reader.number, [])
    others = [reader.op for reader in readers if reader.op not in ("matmul", "permute")]
    return others == ["sum"] and origin_of(x).op not in MADE_ELSEWHERE


def origin_of(x: Node) -> Node:
    """The node that x is a reshape of, through a permutation of its axes if there is one."""
    (y,) = x.inputs
    return y.inputs[0] if is_permuted(y) else y


def is_permuted(y: Node) -> bool:
    """Whether a value is another one with its axes in another order."""
    return y.op == "permute" and y.host is None


def axes_before(x: Node, axes: set[int]) -> tuple[int, ...] | None:
    """The axes of the origin that make up the summed ones; None where they are not whole, where
    those left change their order, or where rows are summed, along which others may continue."""
    if len(x.shape) - 1 in axes:
        return None
    before: list[int] = []
    for old, new in axes_together(x.inputs[0].shape, x.shape):
        summed = axes.intersection(new)
        if summed and len(summed) < len(new):
            return None
        if summed:
            before += old
    y = x.inputs[0]
    if is_permuted(y):
        order = y.attrs["axes"]
        others = [i for axis, i in enumerate(order) if axis not in before]
        before = sorted(order[axis] for axis in before) if others == sorted(others) else []
    return tuple(before) or None


def axes_together(first: Any, second: Any) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of the same elements, in the smallest groups of the same size."""
    groups = []
    i = j = 0
    while i < len(first) or j < len(second):
        m = n = 1
        old: list[int] = []
        new: list[int] = []
        while m != n or not (old or new):
            if m <= n and i < len(first):
                m *= first[i]
                old.append(i)
                i += 1
            else:
                n *= second[j]
                new.append(j)
                j += 1
        groups.append((old, new))
    return groups
