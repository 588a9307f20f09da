"""Products of narrow floats, widened to float32 where the processor has no instructions for them.

oneDNN computes bfloat16 from AVX-512 on, and float16 on few processors. Elsewhere the operands
become float32, which is exact, and the result is rounded once, as for any product of narrow
floats. The casts are fused with the producers of the operands and the readers of the result. The
backward pass widens the forward values again: narrow values wait for it, not wide ones."""

from glasshouse.base import float32
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.lowerer import GraphUsers
from glasshouse.graph.graph import Graph, Node, is_backward, transform
from glasshouse.targets.cpu.kernels.depthwise import is_supported as is_supported_depthwise
from glasshouse.targets.cpu.kernels.winograd import is_supported
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn.convolutions import OnednnConvolutions
from glasshouse.targets.cpu.onednn.products import OnednnProducts
from glasshouse.targets.cpu.writing.epilogues import bias_of, channels_axis

MOVED = ("permute", "reshape", "expand")
PRODUCTS = (*OnednnProducts.ops, *OnednnConvolutions.ops)


def widened_products(graph: Graph) -> Graph:
    """The graph, in which products are of dtypes that the processor computes."""
    products = [node for node in graph.nodes if is_widened(node)]
    if not products:
        return graph
    replaced = {node.number for node in products}
    biased = biases_of(graph, products)

    def rule(new: Graph, node: Node, inputs):
        if node.number in replaced:
            wide = new.emit(node.op, tuple([widened_for(node, new, x) for x in inputs]), node.attrs)
        elif node.number in biased:
            at = node.inputs.index(biased[node.number])
            product = inputs[at].inputs[0]  # before it is rounded
            wide = new.emit("add", (product, widened_for(node, new, inputs[1 - at])))
        else:
            return new.emit_call(node.call, inputs)
        return new.emit("cast", (wide,), {"dtype": node.dtype})

    widest = transform(graph, rule)
    widest.stored |= waiting(widest)
    widest.drop_unneeded()  # products that are rounded after a bias, and what was moved
    return widest


def waiting(graph: Graph) -> set[int]:
    """Numbers of the rounded products of the forward pass that the backward pass reads, directly or
    through values computed where they are read. They get memory: else the wide ones would."""
    read = {x.number for node in graph.nodes if is_backward(node) for x in node.inputs}
    numbers = set()
    for node in reversed(graph.nodes):
        if node.number not in read or is_backward(node) or node.op in PRODUCTS:
            continue
        if node.op == "cast" and node.inputs[0].op in (*PRODUCTS, "add"):
            numbers.add(node.number)
        else:
            read.update(x.number for x in node.inputs)
    return numbers


def biases_of(graph: Graph, products: list[Node]) -> dict[int, Node]:
    """Products by the number of the sum with a bias that alone reads each. The step of such a
    product adds the bias too, and rounds once."""
    users = GraphUsers(graph)
    alone = [node for node in products if len(users.users_of(node)) == 1]
    pairs = [(users.users_of(node)[0], node) for node in alone if not users.is_output(node)]
    return {
        user.number: node
        for user, node in pairs
        if bias_of(user, node, channels_axis(node)) is not None
    }


def widened_for(product: Node, graph: Graph, x: Node) -> Node:
    """An operand of a product in float32."""
    origin, source = graph.origin, x
    while source.op in MOVED:
        source = source.inputs[0]
    if is_backward(product) and not is_backward(source):
        graph.origin = origin._replace(phase="recompute")  # not the cast of the forward pass
    wide = add_widening(graph, x)
    graph.origin = origin
    return wide


def add_widening(graph: Graph, x: Node) -> Node:
    """An operand in float32. Moves of its elements stay after the cast: a matrix and its
    transpose share one, and a bias stays a vector."""
    if x.op in MOVED and x.host is None:
        return graph.emit(x.op, (add_widening(graph, x.inputs[0]),), x.attrs)
    return graph.emit("cast", (x,), {"dtype": float32})


def is_widened(node: Node) -> bool:
    """Whether oneDNN would compute a product but for its dtype, and no kernel of ours does."""
    if node.op not in PRODUCTS or node.host is not None or not is_narrow(node):
        return False
    if flags.deterministic:
        return True
    return onednn.lacks(node.dtype) and not (is_supported(node) or is_supported_depthwise(node))


def is_narrow(node: Node) -> bool:
    """Whether operands and result are of one float narrower than float32."""
    narrow = node.dtype is not float32 and node.dtype.name in onednn.DTYPES
    return narrow and all(x.dtype is node.dtype for x in node.inputs)
