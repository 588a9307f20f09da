"""Convolutions and their gradients through oneDNN. Data goes in channels-last layout; weights are
reordered into the layout that the primitive prefers.

Source: oneDNN developer guide, "Memory format propagation" and "Inspecting the JIT code".
"""

from math import prod
from typing import TYPE_CHECKING, Any

from glasshouse.base import float32
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn.library import (
    BINARY_ADD,
    CONVOLUTION_DIRECT,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    ELTWISE_HARDSWISH,
    ELTWISE_LINEAR,
    FORWARD_TRAINING,
    POST_OPERAND,
    QUERY_DIFF_WEIGHTS,
    QUERY_WEIGHTS,
    SRC,
    SRC_1,
    WEIGHTS,
)
from glasshouse.targets.cpu.onednn.lowerer import OnednnLowerer, PrimitivePlanner, weight_shape
from glasshouse.targets.cpu.writing.activations import with_activations
from glasshouse.targets.cpu.writing.layouts import channels_last, channels_last_view

if TYPE_CHECKING:
    from glasshouse.targets.cpu.onednn.library import OnednnObject


FEW_POSITIONS, PRODUCT_WEIGHTS = 256, 1 << 14  # of an image; elements at least
LABEL = {"conv": "conv", "conv_data_grad": "conv data", "conv_weight_grad": "conv weights"}


class OnednnConvolutions(OnednnLowerer):
    """Convolutions of up to three axes, and the gradients of their data and weights."""

    ops: tuple[str, ...] = ("conv", "conv_data_grad", "conv_weight_grad")
    moves_first = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        claim = super().claims(graph, node)
        if claim is None or node.op != "conv" or not current_target().stable_inputs:
            return claim
        return with_activations(graph, node)

    def is_unusual(self, node: Node) -> bool:
        return len(node.spec.shape) > 5

    def plan_primitive(self, planner: PrimitivePlanner, node: Node, bias: View | None) -> None:
        if node.op == "conv":
            plan_conv(planner, node, bias)
        elif node.op == "conv_data_grad":
            plan_data_grad(planner, node)
        else:
            plan_weight_grad(planner, node)


def data_operand(planner: PrimitivePlanner, node: Node) -> "tuple[OnednnObject, View]":
    """(descriptor, view) of (N, C, *S) data in channels-last layout."""
    view = channels_last_view(planner.lowering, node)
    strides = strides_of(view.shape, channels_last(len(view.shape)))
    return planner.dnnl.desc(view.shape, view.base.dtype, strides), view


def conv_options(attrs: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    padding = attrs["padding"]
    return (
        tuple(attrs["stride"]),
        tuple(d - 1 for d in attrs["dilation"]),
        tuple(low for low, _ in padding),
        tuple(high for _, high in padding),
    )


def packed_weights(
    planner: PrimitivePlanner, node: Node, groups: int, desc: "OnednnObject"
) -> "tuple[OnednnObject, View]":
    """The weights in the layout that the primitive chose, reordered if need be."""
    plain, view = planner.row_major(node, groups)
    weights_desc = planner.dnnl.query(desc, QUERY_WEIGHTS)
    return weights_desc, planner.reordered(node, view, plain, weights_desc)


def forward_desc(
    planner: PrimitivePlanner,
    dx: "OnednnObject",
    weight: Node,
    dy: "OnednnObject",
    bias: "OnednnObject | None" = None,
    after: Any = (),
) -> "OnednnObject":
    """The primitive descriptor of a forward convolution, also the hint of the backward ones."""
    attrs = planner.node.attrs
    dw = planner.dnnl.desc(weight_shape(weight.shape, attrs["groups"]), weight.dtype)
    how = (FORWARD_TRAINING, CONVOLUTION_DIRECT, dx, dw, bias, dy)
    return planner.dnnl.primitive("convolution_forward", *how, *conv_options(attrs), after=after)


def operations_after(planner: PrimitivePlanner) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """(the operations after a convolution, their arguments). A relu is x · min(max(2¹²⁷ x, 0), 1):
    oneDNN's own makes 0 of a NaN. Of -inf this one makes NaN."""
    operations: list[tuple[Any, ...]] = []
    args: list[Any] = []
    for what, other in planner.after:
        if what == "relu":
            operations += [(ELTWISE_HARDSWISH, 2.0**127, 0.0), (ELTWISE_LINEAR, 1.0, 0.0)]
        elif what == "hardswish":
            operations.append((ELTWISE_HARDSWISH, 1 / 6, 0.5))
        else:
            desc, view = data_operand(planner, other)
            operations.append((BINARY_ADD, desc))
            args.append((POST_OPERAND * len(operations) | SRC_1, desc, view))
    return operations, args


def plan_conv(
    planner: PrimitivePlanner, node: Node, bias: View | None, operands: Any = None
) -> None:
    """`operands`: those that are read in the place of the node's own."""
    x, w = operands or node.inputs
    dx, view = data_operand(planner, x)
    dy, target = planner.result(channels_last(len(node.shape)))
    bias_desc, read = planner.bias(bias, (node.shape[1],))
    after, operands_after = operations_after(planner)
    desc = forward_desc(planner, dx, w, dy, bias_desc, after)
    dw, packed = packed_weights(planner, w, node.attrs["groups"], desc)
    reads = [(SRC, dx, view), (WEIGHTS, dw, packed), *read, *operands_after]
    planner.add_step(desc, reads, [(DST, dy, target.view())], LABEL[node.op])
    planner.hand_out(target)


def plan_data_grad(planner: PrimitivePlanner, node: Node) -> None:
    g, w = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    dg, view = data_operand(planner, g)
    dx, target = planner.result(channels_last(len(node.shape)))
    hint = forward_desc(planner, dx, w, dg)
    dw = planner.dnnl.desc(weight_shape(w.shape, groups), w.dtype)
    how = (CONVOLUTION_DIRECT, dx, dw, dg, *conv_options(attrs), hint)
    desc = planner.dnnl.primitive("convolution_backward_data", *how)
    dw, packed = packed_weights(planner, w, groups, desc)
    reads = [(DIFF_DST, dg, view), (WEIGHTS, dw, packed)]
    planner.add_step(desc, reads, [(DIFF_SRC, dx, target.view())], LABEL[node.op])
    planner.hand_out(target)


def plan_weight_grad(planner: PrimitivePlanner, node: Node) -> None:
    x, g = node.inputs
    attrs, dnnl = node.attrs, planner.dnnl
    (dx, x_view), (dg, g_view) = (data_operand(planner, n) for n in (x, g))
    target = planner.lowering.buffer(node.spec, node=node)
    if is_product(attrs, node, x):
        plan_weight_product(planner, x_view, g_view, target)
        return
    hint = forward_desc(planner, dx, node, dg)
    shape = weight_shape(node.shape, attrs["groups"])
    plain = dnnl.desc(shape, node.dtype, strides_of(shape))
    how = (CONVOLUTION_DIRECT, dx, dnnl.desc(shape, node.dtype), None, dg)
    desc = dnnl.primitive("convolution_backward_weights", *how, *conv_options(attrs), hint)
    dw = dnnl.query(desc, QUERY_DIFF_WEIGHTS)
    reads = [(SRC, dx, x_view), (DIFF_DST, dg, g_view)]
    direct = planner.lies_so(plain, dw)
    out = target.view() if direct else planner.scratch_view(dw)
    planner.add_step(desc, reads, [(DIFF_WEIGHTS, dw, out)], LABEL[node.op])
    if not direct:
        planner.add_reorder(out, dw, target.view(), plain)
    planner.hand_out(target)


def is_product(attrs: dict[str, Any], node: Node, x: Node) -> bool:
    """Whether the gradient of a weight is computed as a product of matrices: that of a 1 x 1 kernel
    which looks at each position once is one. oneDNN's product is the faster one for large weights
    and few positions, or float32 and more channels made (measured for the layers of ResNet-50)."""
    out_channels, in_channels, *kernel = node.shape
    plain = (
        prod(kernel) == 1
        and attrs["groups"] == 1
        and set(attrs["stride"]) == {1}
        and not any(map(sum, attrs["padding"]))
    )
    few = prod(x.shape[2:]) <= FEW_POSITIONS
    large = out_channels * in_channels >= PRODUCT_WEIGHTS
    return plain and large and (few or (node.dtype is float32 and out_channels > in_channels))


def plan_weight_product(planner: PrimitivePlanner, x: View, g: View, target: Any) -> None:
    node, dnnl = planner.node, planner.dnnl
    out_channels, in_channels = node.shape[:2]
    rows = prod(x.shape) // in_channels
    flipped = dnnl.desc((out_channels, rows), node.dtype, (1, out_channels))
    plain = dnnl.desc((rows, in_channels), node.dtype, (in_channels, 1))
    result = dnnl.desc((out_channels, in_channels), node.dtype, (in_channels, 1))
    desc = dnnl.primitive("matmul", flipped, plain, None, result)
    reads = [(SRC, flipped, g), (WEIGHTS, plain, x)]
    planner.add_step(desc, reads, [(DST, result, target.view())], LABEL[node.op])
    planner.hand_out(target)
