"""Patterns that passes look for in a node and its operands."""

from math import prod
from typing import Any

from glasshouse.base import DType
from glasshouse.graph.node import Node

TAKEN_APART = ("neg", "mul", "div", "add", "sub")  # where a sum goes to the operands
MOST_LEVELS = 60  # of those within each other


def relu_operand(node: Node) -> Node | None:
    """x if the node is where(x < 0 or x = 0, 0, x)."""
    if node.call.name != "where" or node.host is not None:
        return None
    condition, zero, x = node.inputs
    if not is_static(zero, 0) or condition.op != "bitwise_or":
        return None
    less, equal = condition.inputs
    same = less.op == "less" and equal.op == "equal" and less.inputs[0] is x is equal.inputs[0]
    return x if same and all(is_static(c.inputs[1], 0) for c in condition.inputs) else None


def is_softmax(node: Node) -> bool:
    """Whether the node is exp(…) / t, with one t for many elements."""
    if node.call.name != "div" or node.host is not None or not node.dtype.is_floating:
        return False
    e, t = node.inputs
    return e.op == "exp" and e.host is None and bool(repeated_axes(t))


def is_static(node: Node, value: int) -> bool:
    """Whether the node is this number everywhere, known now."""
    return node.op == "full" and node.attrs["value"] is not None and node.attrs["value"] == value


def is_product(x: Node) -> bool:
    return x.op == "matmul" or (x.op == "cast" and is_product(x.inputs[0]))


def swaps_last(axes: tuple[int, ...]) -> bool:
    n = len(axes)
    return n >= 2 and axes == (*range(n - 2), n - 1, n - 2)


def repeated_axes(x: Node) -> frozenset[int] | None:
    """The axes along which a value is one element repeated; None for all."""
    if x.op == "full":
        return None
    if x.op == "expand":
        (small,) = x.inputs
        return frozenset(i for i, n in enumerate(small.shape) if n == 1 and x.shape[i] != 1)
    return frozenset()


def is_deep(x: Node) -> bool:
    """Whether more terms and factors lie within each other than sums are taken apart: each takes
    some frames of the stack."""
    level = {x}
    for _ in range(MOST_LEVELS):
        level = {y for node in level if node.op in TAKEN_APART for y in node.inputs}
        if not level:
            return False
    return True


def is_easy_to_sum(x: Node, axes: tuple[int, ...]) -> bool:
    """Whether a constant factor or term goes outside a sum of x."""
    repeated = repeated_axes(x)
    if repeated is None or all(i in repeated or x.shape[i] == 1 for i in axes):
        return True
    if x.op == "neg":
        return is_easy_to_sum(x.inputs[0], axes)
    if x.op in ("mul", "div"):
        candidates = x.inputs if x.op == "mul" else x.inputs[1:]
        return any(
            (r := repeated_axes(y)) is None or all(i in r or y.shape[i] == 1 for i in axes)
            for y in candidates
        )
    return False


def widens(small: DType, wide: DType) -> bool:
    """Whether every value of a floating dtype is one of another."""
    order = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
    return order.get(small.name, 9) < order.get(wide.name, -1)


def cut_at_axis(shape: tuple[int, ...], target: tuple[int, ...], axis: int) -> Any:
    """Sizes of a shape (before, after) an axis that its reshape to a target leaves alone or adds;
    None where it does neither."""
    for k in range(len(shape) + 1):
        if prod(shape[:k]) == prod(target[:axis]):
            if shape[k : k + 1] == target[axis : axis + 1]:
                return shape[:k], shape[k + 1 :]
            return (shape[:k], shape[k:]) if target[axis] == 1 else None
    return None
