"""Epilogues of a product or convolution, computed in the same kernel: a bias, and a relu."""

from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.graph.graph import Node
from glasshouse.graph.patterns import relu_operand


def with_epilogue(graph: GraphUsers, node: Node, takes_relu: bool) -> Claim:
    """The claim of a product and its epilogue: its `plan` is (bias or None, whether relu)."""
    reads = tuple(node.inputs)
    if node.op not in ("matmul", "conv") or graph.is_output(node):
        return Claim([node], reads, plan=(None, False))
    last, bias, nodes = node, None, [node]
    for user in graph.users_of(node):
        vector = bias_of(user, node, channels_axis(node))
        if vector is not None and len(graph.users_of(node)) == 1:
            last, bias, nodes = user, vector, [node, user]
    relu = relu_after(last, graph) if takes_relu else None
    return Claim(nodes + (relu or []), reads, plan=(bias, relu is not None))


def channels_axis(node: Node) -> int:
    return 1 if node.op == "conv" else node.spec.ndim - 1


def bias_of(user: Node, node: Node, channels: int) -> Node | None:
    """The vector that `user` adds to the channels of `node`, along an axis; None for another
    call."""
    if user.op != "add" or user.host or user.inputs[0] is user.inputs[1]:
        return None
    other = user.inputs[1] if user.inputs[0] is node else user.inputs[0]
    size = node.shape[channels]
    if other.op != "expand":
        return None
    small = other.inputs[0]
    if small.spec.size != size or small.shape[channels] != size or size == 1:
        return None
    if small.op == "reshape" and small.inputs[0].shape == (size,):
        return small.inputs[0]
    return small if small.shape == (size,) else None


def relu_after(node: Node, graph: GraphUsers) -> list[Node] | None:
    """The nodes of a relu of `node` in order, if nobody else needs `node`."""
    if graph.is_output(node):
        return None
    for last in graph.users_of(node):
        if relu_operand(last) is node:
            condition = last.inputs[0]
            parts = list(condition.inputs)
            alone = all(len(graph.users_of(n)) == 1 for n in (condition, *parts))
            if alone and len(graph.users_of(node)) == 3 and not graph.is_output(condition):
                return [*parts, condition, last]
    return None
