"""Products of matrices that take little time, as kernels of ours.

A call of oneDNN takes about as long as 16,000 multiplications of float32: much of the time of a
loop's body, which calls it in each step. It has no products in float64: those of small matrices
stand here, larger ones in `double_products`, and NumPy's reference computes the largest."""

from typing import Any

from glasshouse.base import float32, float64
from glasshouse.compile.kernels.c_text import C_TYPES
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.lowering.target import current_target
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import (
    HandwrittenKernels,
    PlannedKernel,
    parallel,
    pointers,
    vector_functions,
)

# Multiplications that oneDNN does in the time of a call, and tiles in that of their panels.
MOST_WORK = {float32: 1 << 14, float64: 1 << 18}
FOUR = 4  # rows by one vector at a time, and elements of their sums
NARROW = 4  # columns: fewer fill no vector
CACHED = 1 << 11  # elements of the result, which stay in a core's nearest cache
DOUBLES = vector_functions("gh_double.h")


class SmallProducts(HandwrittenKernels):
    """a (M, K) @ b (K, N): both are small, or a vector is one of the two in float64. Products of
    float32 belong here in the body of a loop only."""

    ops: tuple[str, ...] = ("matmul",)
    label = "small_product"
    header = DOUBLES

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        dtype, specs = node.dtype, [node.spec, *(x.spec for x in node.inputs)]
        fits = node.host is None and all(s.dtype is dtype and s.ndim == 2 for s in specs)
        if not fits or dtype not in MOST_WORK or 0 in node.inputs[0].shape or 0 in node.shape:
            return None
        work = node.spec.size * node.inputs[0].shape[1]
        if dtype is float32:
            is_small = work <= MOST_WORK[dtype] and current_target().keeps_inputs
        else:
            is_small = work <= MOST_WORK[dtype] or 1 in node.shape
        return Claim([node]) if is_small else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = [lowering.operand_view(x) for x in node.inputs]
        text = product_text(node, a.strides, b.strides)
        target = lowering.buffer(node.spec, node=node)
        lines = "\n".join([*pointers(a, b, target.view()), text])
        planned = PlannedKernel(lines, [a, b, target.view()])
        return self.add_kernel(lowering, node, [a, b], target, planned)


def product_text(node: Node, a: Any, b: Any) -> str:
    """The loops of a product, in the order in which the operands of these strides are read along
    memory: rows of b are added up, or columns of a, or each element is a sum of its own."""
    (rows, depth), columns = node.inputs[0].shape, node.shape[1]
    (over_a, along_a), (over_b, along_b) = a, b
    if columns == over_b == along_a == 1 and node.dtype is float64:
        return dots_text(rows, depth, over_a)
    number = C_TYPES[node.dtype.name]
    split = "\n".join(parallel(rows * depth * columns))
    clear = f"for (int64_t i = 0; i < {rows * columns}; ++i) b2[i] = 0;"
    left, right = f"b0[i * {over_a} + k * {along_a}]", f"b1[k * {over_b} + j * {along_b}]"
    if along_b == 1 and columns >= NARROW:
        add = f"""\
const {number} x = {left};
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
    const {number} x = {right};
#pragma omp simd
    for (int64_t i = 0; i < {rows}; ++i) b2[i * {columns} + j] += {left} * x;
  }}"""
    return f"""\
{split}
for (int64_t i = 0; i < {rows}; ++i)
  for (int64_t j = 0; j < {columns}; ++j) {{
    {number} sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < {depth}; ++k) sum += {left} * {right};
    b2[i * {columns} + j] = sum;
  }}"""


def dots_text(rows: int, depth: int, over: int) -> str:
    """Rows by one vector, some at a time."""
    call = f"gh_dots(b0 + i * {over}, {over}, b1, {depth}, b2 + i, "
    whole = rows // FOUR * FOUR
    lines = [
        *parallel(rows * depth // FOUR),
        f"for (int64_t i = 0; i < {whole}; i += {FOUR}) {call}{FOUR});",
        f"for (int64_t i = {whole}; i < {rows}; ++i) {call}1);",
    ]
    return "\n".join(lines[0 if whole else -1 :])
