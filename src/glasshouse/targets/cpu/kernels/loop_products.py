"""Products of few rows by a matrix that is the same in every step of a loop, as kernels of ours.

The matrix is brought into panels once, before the loop; a step then reads it from the first element
to the last, each core its own panels. oneDNN's product is the twin (docs/inside/compiler.md has
both)."""

from math import prod
from typing import Any

from glasshouse.base import Spec, float32
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, StepDescription
from glasshouse.compile.lowering.target import current_target
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import (
    HandwrittenKernels,
    PlannedKernel,
    vector_functions,
)

ROWS = range(8, 49)  # that were measured to be faster
FEW_ELEMENTS = 1 << 18  # of the matrix: as many as a core's own cache holds
VECTOR = 16  # elements; multiplications and additions in a cycle


class LoopProducts(HandwrittenKernels):
    """a (M, K) @ b (K, N) in the body of a loop, with a constant b."""

    ops: tuple[str, ...] = ("matmul",)
    label = "panels"
    header = vector_functions("gh_turn.h", "gh_transpose.h", "gh_rows.h")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        a, b = node.inputs
        specs = [node.spec, a.spec, b.spec]
        fits = node.host is None and all(s.dtype is float32 and s.ndim == 2 for s in specs)
        fits = fits and a.shape[0] in ROWS and b.shape[1] % VECTOR == 0
        return Claim([node]) if fits and b.spec.size >= FEW_ELEMENTS and is_constant(b) else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        (rows, depth), columns = node.inputs[0].shape, node.shape[1]
        a, b = lowering.row_major(node.inputs[0]), lowering.operand_view(node.inputs[1])
        panels = lowering.buffer(Spec((depth * columns,), float32))
        target = lowering.buffer(node.spec, node=node)
        text = panels_text(depth, columns, b.strides)
        planned = PlannedKernel(text, [b, panels.view()], "made")
        lowering.add_step(self, node.inputs[1], [b], [panels], planned, computes=[])
        text, reads = rows_text(rows, depth, columns), [a, panels.view()]
        planned = PlannedKernel(text, [*reads, target.view()], f"{rows} rows")
        return self.add_kernel(lowering, node, reads, target, planned)

    def describe(self, step: Any) -> StepDescription:
        text = f"{self.label} {step.node.op} {step.plan.name}"
        return StepDescription(text, step.computes, "copy" if step.computes else "reorder")


def is_constant(b: Node) -> bool:
    """Whether a matrix, perhaps turned, is the same in every step of a loop."""
    target = current_target()
    while b.op == "permute" and b.host is None:
        (b,) = b.inputs
    is_input = b.op == "input" and b.attrs["number"] in target.stable_inputs
    return target.keeps_inputs and is_input


def panels_text(depth: int, columns: int, strides: Any) -> str:
    """A matrix is brought into panels."""
    down, along = strides
    return f"""\
#pragma omp parallel for schedule(static)
for (int64_t j = 0; j < {columns}; j += GH_WIDE * GH_LANES)
  gh_panel(a[0], {down}, {along}, {depth}, {columns}, j, a[1]);
"""


def rows_text(rows: int, depth: int, columns: int) -> str:
    """Cores share the panels."""
    work = prod((rows, depth, columns)) // VECTOR
    return f"""\
#pragma omp parallel for schedule(static) if({work} > {PARALLEL_WORK})
for (int64_t j = 0; j < {columns}; j += GH_WIDE * GH_LANES)
  gh_rows(a[0], a[1], {rows}, {depth}, {columns}, j, a[2]);
"""
