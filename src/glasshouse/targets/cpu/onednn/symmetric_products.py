"""Symmetric products through oneDNN: strips of columns down to the diagonal are computed, and the
elements below it are copied from above. oneDNN packs the second matrix, and each strip reads its
own part of that. `OnednnProducts` is the twin, which computes both halves."""

from typing import Any

from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, StepDescription
from glasshouse.compile.steps.view import View, permuted, sliced
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn.library import DST, SRC, WEIGHTS, Unavailable
from glasshouse.targets.cpu.onednn.lowerer import PrimitivePlanner
from glasshouse.targets.cpu.onednn.products import OnednnProducts, matrix_operand
from glasshouse.targets.cpu.writing.layouts import matrix_strides, stacked

STRIP = 128  # columns
LEAST = 256  # rows and depth from which on half a product saves more than the copies cost


class SymmetricProducts(OnednnProducts):
    """x @ x.T, and products of polynomials of that."""

    label = "half product"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        sizes = (node.shape[-1], node.inputs[0].shape[-1])
        if min(sizes) < LEAST or node.number not in graph.symmetric:
            return None
        claim = super().claims(graph, node)
        return claim if claim is not None and len(claim.nodes) == 1 else None

    def plan_primitive(self, planner: PrimitivePlanner, node: Node, bias: View | None) -> None:
        dnnl = planner.dnnl
        first, second = (matrix_operand(planner, x)[1] for x in node.inputs)
        _, result = planner.result()
        whole, strips = result.view(), strips_of(node.shape[-1])
        parts = [
            (rows(first, 0, end), columns(second, begin, end), part_of(whole, 0, end, begin, end))
            for begin, end in strips
        ]
        products = []
        for views in parts:
            named = [(descriptor(dnnl, view), view) for view in views]
            a, b, c = (desc for desc, _ in named)
            primitive = dnnl.primitive("matmul", a, b, None, c)
            if dnnl.implementation(primitive).startswith("ref"):
                raise Unavailable("matmul: only ref")
            products.append((primitive, named))
        for i, (primitive, (a, b, c)) in enumerate(products):
            computes: list[Node] | None = [] if i else None  # the first stands for all
            planner.add_step(primitive, [(SRC, *a), (WEIGHTS, *b)], [(DST, *c)], "matmul", computes)
        for begin, end in strips[1:]:
            above = transposed(part_of(whole, 0, begin, begin, end))
            below = part_of(whole, begin, end, 0, begin)
            planner.add_reorder(above, descriptor(dnnl, above), below, descriptor(dnnl, below))
        planner.hand_out(result)

    def describe(self, step: Any) -> StepDescription:
        text = f"{self.label} {step.node.op} {step.plan.name}"
        saved = saved_flops(step.node) if step.computes else 0
        return StepDescription(text, step.computes, step.plan.name.split()[0], saved)


def strips_of(size: int) -> list[tuple[int, int]]:
    """The first column of each strip, and the first one after it."""
    return [(begin, min(begin + STRIP, size)) for begin in range(0, size, STRIP)]


def saved_flops(node: Node) -> int:
    """FLOPs of the whole product less those of the strips."""
    size, flops = node.shape[-1], node.call.cost.exact_flops
    computed = sum((end - begin) * end for begin, end in strips_of(size))
    return flops - flops // (size * size) * computed


def part_of(view: View, top: int, bottom: int, left: int, right: int) -> View:
    """Rows and columns of each matrix."""
    lead = view.shape[:-2]
    starts, stops = (*(0 for _ in lead), top, left), (*lead, bottom, right)
    return sliced(view, starts, stops, (1,) * len(view.shape))


def rows(view: View, begin: int, end: int) -> View:
    return part_of(view, begin, end, 0, view.shape[-1])


def columns(view: View, begin: int, end: int) -> View:
    return part_of(view, 0, view.shape[-2], begin, end)


def transposed(view: View) -> View:
    *lead, row, column = range(len(view.shape))
    return permuted(view, (*lead, column, row))


def descriptor(dnnl: Any, view: View) -> Any:
    strides = matrix_strides(view)
    if strides is None:
        raise Unavailable(f"matmul: strides {view.strides}")
    shape, strides = stacked(view, strides)
    return dnnl.desc(shape, view.base.dtype, strides)
