"""Products of a few rows by a matrix, whose time is that of reading it: the cost of a token.

Each core reads its own columns from the first element to the last. oneDNN's product is the twin;
for a single row, it reads at three fifths of the memory's rate in float32, and at a third in
bfloat16."""

from math import prod
from typing import Any

from glasshouse.base import Spec, bfloat16, float32
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import (
    PlannedKernel,
    ReadingKernels,
    vector_functions,
)

FEW_TERMS = 32  # of a column's sum, below which there is nothing to gain
COLUMNS = {1: 8, 2: 8, 3: 6, 4: 5, 5: 4, 6: 4, 7: 3, 8: 3}  # at a time, by rows: sums in registers
MOST_BRIEF = 6  # rows of bfloat16: of more, oneDNN's product is as fast
CHUNK = 60  # columns that a core takes at a time, at least
VECTOR = 16  # elements; multiplications and additions in a cycle


class FewRowProducts(ReadingKernels):
    """a (M, K) @ b (K, N), where the columns of b lie in memory in one piece each. Sums of bfloat16
    are float32."""

    ops: tuple[str, ...] = ("matmul",)
    label = "few_rows"
    header = vector_functions("gh_few_rows.h")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        a, b = node.inputs
        is_known = node.dtype in (float32, bfloat16)
        plain = node.host is None and is_known and a.dtype is b.dtype is node.dtype
        rows = prod(a.shape[:-1])
        few = rows in COLUMNS and (rows <= MOST_BRIEF or node.dtype is float32)
        fits = plain and few and prod(b.shape[:-2]) == 1
        return Claim([node]) if fits and a.shape[-1] >= FEW_TERMS else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = lowering.row_major(node.inputs[0]), lowering.operand_view(node.inputs[1])
        over, along = b.strides[-2:]
        if over != 1 or along < b.shape[-2]:
            return False
        target = lowering.buffer(node.spec, node=node)
        views, scratch = [a, b, target.view()], []
        if node.dtype is bfloat16:  # a in float32
            scratch = [lowering.buffer(Spec(a.shape, float32))]
            views.append(scratch[0].view())
        text = text_of(prod(a.shape[:-1]), b.shape[-2], b.shape[-1], along, bool(scratch))
        planned = PlannedKernel(text, views)
        return self.add_kernel(lowering, node, views[:2], target, planned, scratch=scratch)


def text_of(rows: int, depth: int, columns: int, along: int, brief: bool) -> str:
    """Cores share the columns."""
    count = COLUMNS[rows]
    chunk = -(-CHUNK // count) * count
    is_large = int(rows * depth * columns // VECTOR > PARALLEL_WORK)
    spread = f"gh_spread_rows(a[0], {rows}, {depth}, a[3]);\n" if brief else ""
    x = f"a[{3 if brief else 0}]"
    return f"""\
{spread}#pragma omp parallel for schedule(static) if({is_large})
for (int64_t j = 0; j < {columns}; j += {chunk}) {{
  const int64_t end = j + {chunk} < {columns} ? j + {chunk} : {columns};
  gh_some_rows({x}, a[1], {along}, {depth}, j, end, {rows}, {count}, a[2], {columns}, {int(brief)});
}}
"""
