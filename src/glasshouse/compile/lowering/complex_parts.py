"""Complex numbers in fused kernels: their parts as expressions over one more axis, and back."""

from typing import Any

from glasshouse.compile.steps.expr import Expr
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Graph, Node


def pairs_of(graph: Graph) -> set[int]:
    """Concatenations of two parts that are only read as complex numbers: they need no memory."""
    pairs, others = set(), {node.number for node in graph.outputs} | graph.stored
    for node in graph.nodes:
        if node.op == "concatenate" and [x.shape[-1] for x in node.inputs] == [1, 1]:
            pairs.update([node.number] if node.shape[-1] == 2 else [])
        elif node.op != "bitcast" or not node.dtype.is_complex:
            others.update(x.number for x in node.inputs)
    return pairs - others


def reread(lowering: Any, node: Node) -> Expr:
    """The value of a bitcast between complex numbers and their parts, real at 0, imaginary at 1."""
    (x,), make = node.inputs, lowering.exprs.make
    if node.dtype.is_complex:
        is_pair = lowering.expr[x.number] is None
        places = [(part, 0) for part in x.inputs] if is_pair else [(x, 0), (x, 1)]
        parts = [lowering.exprs.moved(lowering.expr[p.number], at(i)) for p, i in places]
        return make("complex", parts, node.dtype)
    spread = lowering.exprs.moved(lowering.expr[x.number], repeated)
    position = View(None, 0, node.shape, (*(0,) * len(x.shape), 1))
    return make("part", (spread,), node.dtype, position)


def repeated(view: View) -> View:
    """The view with the same element at both places of a new last axis."""
    return view._replace(shape=(*view.shape, 2), strides=(*view.strides, 0))


def at(place: int) -> Any:
    """The move of a view to one place of its last axis."""

    def move(view: View) -> View:
        offset = view.offset + place * view.strides[-1]
        return View(view.base, offset, view.shape[:-1], view.strides[:-1])

    return move
