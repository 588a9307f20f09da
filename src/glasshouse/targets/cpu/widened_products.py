"""Products of narrow floats, widened to float32, where the processor has no instructions for them.

oneDNN computes bfloat16 from AVX-512 on, and float16 on few processors. Elsewhere the operands
become float32, which is exact, and the result is rounded once: that is what a product of narrow
floats is. The casts are fused with what makes the operands and with what reads the result."""

from glasshouse.base import float32
from glasshouse.graph.graph import Graph, Node, transform
from glasshouse.targets.cpu import onednn
from glasshouse.targets.cpu.depthwise import is_depthwise
from glasshouse.targets.cpu.onednn_convolutions import OnednnConvolutions
from glasshouse.targets.cpu.onednn_products import OnednnProducts
from glasshouse.targets.cpu.winograd import is_supported

PRODUCTS = (*OnednnProducts.ops, *OnednnConvolutions.ops)


def widened_products(graph: Graph) -> Graph:
    """The graph, in which products are of dtypes that the processor computes."""
    if not any(is_widened(node) for node in graph.nodes):
        return graph

    def rule(new: Graph, node: Node, inputs):
        if not is_widened(node):
            return new.emit_call(node.call, inputs)
        wide = tuple(widened(new, x) for x in inputs)
        product = new.emit(node.op, wide, node.attrs)
        return new.emit("cast", (product,), {"dtype": node.dtype})

    widest = transform(graph, rule)
    widest.drop_unneeded()  # turned narrow matrices, whose wide forms are read
    return widest


def widened(graph: Graph, x: Node) -> Node:
    """An operand in float32. Matrices that are turned stay so: both ways share one cast."""
    if x.op == "permute" and x.host is None:
        return graph.emit("permute", (widened(graph, x.inputs[0]),), x.attrs)
    return graph.emit("cast", (x,), {"dtype": float32})


def is_widened(node: Node) -> bool:
    """Whether oneDNN would compute a product but for its dtype, and no kernel of ours does."""
    if node.op not in PRODUCTS or node.host is not None or not is_narrow(node):
        return False
    dnnl = onednn.library()
    missing = dnnl is not None and node.dtype.name not in dnnl.dtypes
    return missing and not (is_supported(node) or is_depthwise(node))


def is_narrow(node: Node) -> bool:
    """Whether operands and result are of one float narrower than float32."""
    narrow = node.dtype is not float32 and node.dtype.name in onednn.DTYPES
    return narrow and all(x.dtype is node.dtype for x in node.inputs)
