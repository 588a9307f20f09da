"""Products and convolutions of integers of 8 bits with sums of 32, through oneDNN.

A graph widens the integers to 32 bits before a product; the primitives read the bytes in its place.
Only on processors with instructions that sum four products at once exactly (VNNI, or Intel's AMX):
on others oneDNN's sums would be limited to 16 bits in between."""

import functools
from typing import Any

from glasshouse.base import DType, int32
from glasshouse.base.dtype import int8, uint8
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn.convolutions import plan_conv
from glasshouse.targets.cpu.onednn.lowerer import OnednnLowerer, PrimitivePlanner
from glasshouse.targets.cpu.onednn.products import add_matmul, matrix_operand

EXACT_SUMS = {"avx512_vnni", "avx_vnni", "amx_int8"}


class OnednnBytes(OnednnLowerer):
    """Products of matrices of bytes, of stacks of them, and convolutions."""

    ops: tuple[str, ...] = ("matmul", "conv")
    moves_first = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        operands = byte_operands(node)
        if operands is None or not has_exact_sums() or len(node.shape) > 5:
            return None
        return Claim([node], operands, plan=(None, False))

    def plan_primitive(self, planner: PrimitivePlanner, node: Node, bias: View | None) -> None:
        operands = byte_operands(node)
        assert operands is not None
        if node.op == "conv":
            plan_conv(planner, node, bias, operands)
        else:
            first, second = (matrix_operand(planner, x) for x in operands)
            add_matmul(planner, first, second, bias)


def byte_operands(node: Node) -> tuple[Node, Node] | None:
    """The operands of a product of bytes, the second one signed; None for other nodes."""
    if node.op not in ("matmul", "conv") or node.dtype is not int32 or node.host is not None:
        return None
    if not flags.few_bits or not node.spec.size:
        return None
    first, second = (before_widening(x) for x in node.inputs)
    if first is None or second is None or second.dtype is not int8 or not first.spec.size:
        return None
    return first, second


def before_widening(x: Node) -> Node | None:
    """The node of 8 bits that x widens, if it does that."""
    if x.op != "cast" or x.host is not None or x.inputs[0].dtype not in (int8, uint8):
        return None
    return x.inputs[0]


def is_signed(dtype: DType) -> int:
    return int(dtype is int8)


@functools.cache
def has_exact_sums() -> bool:
    """Whether oneDNN is here, and the processor has instructions with which it sums exactly."""
    features: Any = toolchain.processor().split()
    return onednn.library() is not None and not EXACT_SUMS.isdisjoint(features)
