"""Products of matrices through oneDNN: a (…, M, K) @ b (…, K, N), perhaps + bias (N,)."""

from glasshouse.compile.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.layouts import matrix_strides, repeated_axes, stacked
from glasshouse.targets.cpu.onednn import DST, SRC, WEIGHTS, Unavailable
from glasshouse.targets.cpu.onednn_lowerer import OnednnLowerer, PrimitivePlanner


class OnednnProducts(OnednnLowerer):
    """Products of matrices, and of stacks of them."""

    ops = ("matmul",)

    def plan_primitive(self, planner: PrimitivePlanner, node: Node, bias: View | None) -> None:
        first, second = (matrix_operand(planner, x) for x in node.inputs)
        try:
            add_matmul(planner, first, second, bias)
        except Unavailable:
            first, second = (planner.row_major(x) for x in node.inputs)
            add_matmul(planner, first, second, bias)


def matrix_operand(planner: PrimitivePlanner, node: Node):
    """(descriptor, view) of an operand of a product, copied first where its layout is odd."""
    view = planner.lowering.operand_view(node)
    strides = matrix_strides(view)
    if strides is None or any(repeated_axes(view)[-2:]):
        return planner.row_major(node)
    shape, strides = stacked(view, strides)
    return planner.dnnl.desc(shape, view.base.dtype, strides), view


def add_matmul(planner: PrimitivePlanner, first, second, bias: View | None) -> None:
    dc, target = planner.result()
    shape = (1,) * (planner.node.spec.ndim - 1) + planner.node.shape[-1:]
    bias_desc, read = planner.bias(bias, shape)
    desc = planner.dnnl.primitive("matmul", first[0], second[0], bias_desc, dc)
    reads = [(SRC, *first), (WEIGHTS, *second), *read]
    planner.add_step(desc, reads, [(DST, dc, target.view())], "matmul")
    planner.hand_out(target)
