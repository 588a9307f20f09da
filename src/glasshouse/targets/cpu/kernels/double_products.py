"""Products of matrices of float64 that take little time, as kernels of ours.

oneDNN has none in float64. NumPy's reference is fast at large ones, but costs a call from Python:
that is most of the time of a program with vectors and small matrices, as NumPy's users write."""

from typing import Any

from glasshouse.base import float64
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, StepDescription
from glasshouse.compile.steps.emitted import EmittedStep
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import (
    HandwrittenKernels,
    PlannedKernel,
    emitted,
    parallel,
    pointers,
)

MOST_WORK = 1 << 18  # multiplications, which NumPy does in the time of a call from Python
NARROW = 4  # columns: fewer fill no vector
CACHED = 1 << 11  # elements of the result, which stay in a core's nearest cache


class DoubleProducts(HandwrittenKernels):
    """a (M, K) @ b (K, N) in float64: a vector is one of the two, or both are small."""

    ops = ("matmul",)
    label = "dgemm"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        specs = [node.spec, *(x.spec for x in node.inputs)]
        fits = node.host is None and all(s.dtype is float64 and s.ndim == 2 for s in specs)
        if not fits or 0 in node.inputs[0].shape or 0 in node.shape:
            return None
        work = node.spec.size * node.inputs[0].shape[1]
        return Claim([node]) if work <= MOST_WORK or 1 in node.shape else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = [lowering.operand_view(x) for x in node.inputs]
        (rows, depth), columns = node.inputs[0].shape, node.shape[1]
        text = product_text(rows, depth, columns, a.strides, b.strides)
        target = lowering.buffer(node.spec, node=node)
        lines = "\n".join([*pointers(a, b, target.view()), text])
        planned = PlannedKernel(lines, [a, b, target.view()])
        lowering.add_step(self, node, [a, b], [target], planned)
        lowering.hand_out(node, [target])
        return True

    def emit(self, step: Any) -> EmittedStep:
        return emitted(step, "")

    def describe(self, step: Any) -> StepDescription:
        return StepDescription(f"{self.label} {step.node.op}", step.computes)


def product_text(rows: int, depth: int, columns: int, a: Any, b: Any) -> str:
    """The loops of a product, in the order in which the operands of these strides are read along
    memory: rows of b are added up, or columns of a, or each element is a sum of its own."""
    (over_a, along_a), (over_b, along_b) = a, b
    split = "\n".join(parallel(rows * depth * columns))
    clear = f"for (int64_t i = 0; i < {rows * columns}; ++i) b2[i] = 0;"
    left, right = f"b0[i * {over_a} + k * {along_a}]", f"b1[k * {over_b} + j * {along_b}]"
    if along_b == 1 and columns >= NARROW:
        add = f"""\
const double x = {left};
#pragma omp simd
for (int64_t j = 0; j < {columns}; ++j) b2[i * {columns} + j] += x * {right};"""
        by_rows = f"""\
{clear}
{split}
for (int64_t i = 0; i < {rows}; ++i)
  for (int64_t k = 0; k < {depth}; ++k) {{
{add}
  }}"""
        by_terms = f"""\
{clear}
for (int64_t k = 0; k < {depth}; ++k)
  for (int64_t i = 0; i < {rows}; ++i) {{
{add}
  }}"""
        return by_terms if over_a == 1 and rows * columns <= CACHED else by_rows
    if over_a == 1 and rows >= NARROW:
        return f"""\
{clear}
for (int64_t k = 0; k < {depth}; ++k)
  for (int64_t j = 0; j < {columns}; ++j) {{
    const double x = {right};
#pragma omp simd
    for (int64_t i = 0; i < {rows}; ++i) b2[i * {columns} + j] += {left} * x;
  }}"""
    return f"""\
{split}
for (int64_t i = 0; i < {rows}; ++i)
  for (int64_t j = 0; j < {columns}; ++j) {{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < {depth}; ++k) sum += {left} * {right};
    b2[i * {columns} + j] = sum;
  }}"""
