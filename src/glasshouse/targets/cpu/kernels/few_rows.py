"""Products of a few rows by a matrix, whose time is that of reading it: the cost of a token.

Each core reads its own columns from the first element to the last. oneDNN's product is the twin;
for a single row, it reads at three fifths of the memory's rate."""

from math import prod
from typing import Any

from glasshouse.base import float32
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
CHUNK = 60  # columns that a core takes at a time, at least
VECTOR = 16  # elements; multiplications and additions in a cycle


class FewRowProducts(ReadingKernels):
    """a (M, K) @ b (K, N), where the columns of b lie in memory in one piece each."""

    ops: tuple[str, ...] = ("matmul",)
    label = "few_rows"
    header = vector_functions("gh_few_rows.h")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        a, b = node.inputs
        plain = node.host is None and all(x.dtype is float32 for x in (node, a, b))
        fits = plain and prod(a.shape[:-1]) in COLUMNS and prod(b.shape[:-2]) == 1
        return Claim([node]) if fits and a.shape[-1] >= FEW_TERMS else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = lowering.row_major(node.inputs[0]), lowering.operand_view(node.inputs[1])
        over, along = b.strides[-2:]
        if over != 1 or along < b.shape[-2]:
            return False
        target = lowering.buffer(node.spec, node=node)
        views = [a, b, target.view()]
        text = text_of(prod(a.shape[:-1]), b.shape[-2], b.shape[-1], along)
        return self.add_kernel(lowering, node, views[:2], target, PlannedKernel(text, views))


def text_of(rows: int, depth: int, columns: int, along: int) -> str:
    """Cores share the columns."""
    count = COLUMNS[rows]
    chunk = -(-CHUNK // count) * count
    return f"""\
#pragma omp parallel for schedule(static) if({rows * depth * columns // VECTOR} > {PARALLEL_WORK})
for (int64_t j = 0; j < {columns}; j += {chunk}) {{
  const int64_t end = j + {chunk} < {columns} ? j + {chunk} : {columns};
  gh_some_rows(a[0], a[1], {along}, {depth}, j, end, {rows}, {count}, a[2], {columns});
}}
"""
