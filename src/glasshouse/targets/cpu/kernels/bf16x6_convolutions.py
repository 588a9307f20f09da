"""Convolutions with one weight for each pair of channels, as products of matrices.

Data is channels last: a matrix with a row for each position. bf16x6.py has the products, and
oneDNN's convolution is the twin."""

from math import prod
from typing import Any

from glasshouse.compile.lowering.lowerer import Claim
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.kernels.bf16x6 import SplitProducts
from glasshouse.targets.cpu.writing.layouts import channels_last, channels_last_view


class SplitConvolutions(SplitProducts):
    """Such convolutions, perhaps with a bias, and the gradients of their data and weights."""

    ops: tuple[str, ...] = ("conv", "conv_data_grad", "conv_weight_grad")

    def takes(self, node: Node) -> bool:
        attrs, data = node.attrs, node.inputs[0]
        weight = node.shape if node.op == "conv_weight_grad" else node.inputs[1].shape
        plain = prod(weight[2:]) == 1 and attrs["groups"] == 1 and {*attrs["stride"]} == {1}
        outs, ins = weight[:2]
        count = data.shape[0] * prod(data.shape[2:])
        sizes = {
            "conv": (count, outs, ins),
            "conv_data_grad": (count, ins, outs),
            "conv_weight_grad": (outs, ins, count),
        }
        fits = plain and not any(map(sum, attrs["padding"]))
        return fits and self.is_faster(1, *sizes[node.op]) and self.is_possible(node)

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, (bias, _) = claim.nodes[0], claim.plan
        if node.op == "conv_weight_grad":
            x, g = (positions(lowering, n) for n in node.inputs)
            target = lowering.buffer(node.spec, node=node)
            self.add_step(lowering, claim, (turned(g), x), bias, target)
            return True
        data, weights = positions(lowering, node.inputs[0]), weight_matrix(lowering, node.inputs[1])
        second = turned(weights) if node.op == "conv" else weights
        target = lowering.buffer(node.spec, channels_last(node.spec.ndim), node)
        self.add_step(lowering, claim, (data, second), bias, target)
        return True


def positions(lowering: Any, node: Node) -> View:
    """(N, C, *S) data as a matrix with a row for each position."""
    view = channels_last_view(lowering, node)
    channels = view.shape[1]
    return view._replace(shape=(prod(view.shape) // channels, channels), strides=(channels, 1))


def weight_matrix(lowering: Any, node: Node) -> View:
    """Weights (O, C, 1, …) as a matrix."""
    view = lowering.row_major(node)
    outs, ins, *_ = view.shape
    return view._replace(shape=(outs, ins), strides=(ins, 1))


def turned(view: View) -> View:
    """A matrix with its columns as rows."""
    return view._replace(shape=view.shape[::-1], strides=view.strides[::-1])
