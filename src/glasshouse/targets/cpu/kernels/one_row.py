"""Products of a single row by a matrix, whose time is that of reading the matrix: what a token of a
text costs.

Each core reads its own columns from the first element to the last. oneDNN's product is the twin; it
reads at three fifths of the memory's rate."""

from math import prod
from typing import Any

from glasshouse.base import float32
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, StepDescription
from glasshouse.compile.steps.emitted import EmittedStep
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import (
    HandwrittenKernels,
    PlannedKernel,
    emitted,
    vector_functions,
)

HEADER = vector_functions("gh_one_row.h")
FEW_TERMS = 32  # of a column's sum, below which there is nothing to gain
CHUNK = 64  # columns that a core takes at a time
VECTOR = 16  # elements; multiplications and additions in a cycle


class OneRowProducts(HandwrittenKernels):
    """a (1, K) @ b (K, N), where the columns of b lie in memory in one piece each."""

    ops = ("matmul",)
    label = "row"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        a, b = node.inputs
        plain = node.host is None and all(x.dtype is float32 for x in (node, a, b))
        fits = plain and prod(a.shape[:-1]) == prod(b.shape[:-2]) == 1
        return Claim([node]) if fits and a.shape[-1] >= FEW_TERMS else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = lowering.row_major(node.inputs[0]), lowering.operand_view(node.inputs[1])
        depth, columns = b.shape[-2:]
        over, along = b.strides[-2:]
        if over != 1 or along < depth:
            return False
        target = lowering.buffer(node.spec, node=node)
        views = [a, b, target.view()]
        planned = PlannedKernel(row_text(depth, columns, along), views)
        lowering.add_step(self, node, views[:2], [target], planned)
        lowering.hand_out(node, [target])
        return True

    def emit(self, step: Any) -> EmittedStep:
        return emitted(step, HEADER)

    def describe(self, step: Any) -> StepDescription:
        return StepDescription(f"{self.label} {step.node.op}", step.computes)

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return machine.kernel_ns(machine.moving_s(numbers[0]))


def row_text(depth: int, columns: int, along: int) -> str:
    """Cores share the columns."""
    return f"""\
#pragma omp parallel for schedule(static) if({depth * columns // VECTOR} > {PARALLEL_WORK})
for (int64_t j = 0; j < {columns}; j += {CHUNK}) {{
  const int64_t end = j + {CHUNK} < {columns} ? j + {CHUNK} : {columns};
  gh_one_row(a[0], a[1], {along}, {depth}, j, end, a[2]);
}}
"""
