"""Convolutions of up to three axes and their gradients in plain C, by the definition."""

from math import prod
from typing import Any

from glasshouse.base import Spec
from glasshouse.compile.kernels.c_text import C_TYPES
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import PlannedKernel, pointers
from glasshouse.targets.plain.products import PlainKernels, whole

PANEL = 16  # channels of a panel of weights


class PlainConvolutions(PlainKernels):
    """x (N, C, *S) with w (O, C/groups, *K), and the gradients of both."""

    ops: tuple[str, ...] = ("conv", "conv_data_grad", "conv_weight_grad")
    label = "plain"
    header = "gh_plain_convolutions.h"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        return super().claims(graph, node) if len(node.shape) <= 5 else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, op = claim.last, claim.last.op
        first, second = (lowering.operand_view(x) for x in node.inputs)
        target = lowering.buffer(node.spec, node=node)
        result, real = target.view(), C_TYPES[node.dtype.name]
        views = {
            "conv": (first, second, result),
            "conv_data_grad": (result, second, first),
            "conv_weight_grad": (first, result, second),
        }[op]
        head = geometry(*views, node.attrs, real)
        if op == "conv_weight_grad":
            text = f"gh_weight_sums_{real}(&s, b0, b1, b2);"
            self.add(lowering, node, [first, second], [result], [head, text], target)
            return True
        turned = int(op == "conv_data_grad")
        x, w, _ = views
        groups = node.attrs["groups"]
        channels, terms = w.shape[0] // groups, w.shape[1]
        if turned:
            channels, terms = terms, channels
        count = groups * -(-channels // PANEL) * PANEL * terms * prod(w.shape[2:])
        panels = lowering.buffer(Spec((count,), node.dtype)).view()
        text = f"gh_weights_{real}(&s, b0, b1, {turned});"
        planned = PlannedKernel(
            "\n".join([*pointers(second, panels), head, text, ""]), [second, panels]
        )
        lowering.add_step(self, node, [second], [panels.base], planned, computes=[])
        text = f"gh_convolve_{real}(&s, b0, b1, b2, {turned});"
        self.add(lowering, node, [first, panels], [result], [head, text], target)
        return True

    def add(
        self, lowering: Any, node: Node, reads: Any, writes: Any, text: list[str], target: Any
    ) -> None:
        views = [*reads, *writes]
        planned = PlannedKernel("\n".join([*pointers(*views), *text, ""]), views)
        self.add_kernel(lowering, node, list(reads), target, planned)


def geometry(x: View, w: View, y: View, attrs: Any, real: str) -> str:
    """The description of a convolution that the functions in C take."""
    groups = attrs["groups"]
    numbers = [x.shape[0], groups, w.shape[0] // groups, w.shape[1]]
    axes = [
        whole(x.shape[2:], 1),
        whole(y.shape[2:], 1),
        whole(w.shape[2:], 1),
        whole(attrs["stride"], 1),
        whole(attrs["dilation"], 1),
        whole([low for low, _ in attrs["padding"]], 0),
        *([*view.strides[:2], *whole(view.strides[2:], 0)] for view in (x, w, y)),
    ]
    parts = [*map(str, numbers), *("{" + ", ".join(map(str, part)) + "}" for part in axes)]
    return f"static const gh_conv_{real} s = {{{', '.join(parts)}}};"
