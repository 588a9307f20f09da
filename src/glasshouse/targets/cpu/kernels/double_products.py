"""Products of matrices in float64, which oneDNN does not have, as kernels of ours.

NumPy's reference packs its operands and is faster at large products, but costs a call from Python,
and computes both halves of a symmetric product. Here tiles of the result stay in registers, and the
operands are read where they lie: b is small enough for a core's cache."""

from typing import Any

from glasshouse.base import float64
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.kernels.small_products import DOUBLES
from glasshouse.targets.cpu.writing.handwritten import HandwrittenKernels, PlannedKernel, parallel

VECTOR = 8  # elements of the widest vector; multiplications and additions in a cycle
MOST_WORK, MOST_ELEMENTS = 1 << 24, 1 << 17  # multiplications; elements of b


class DoubleProducts(HandwrittenKernels):
    """a (M, K) @ b (K, N) of columns that fill vectors; of a symmetric product, one half."""

    ops: tuple[str, ...] = ("matmul",)
    label = "double_product"
    header = DOUBLES

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        specs = [node.spec, *(x.spec for x in node.inputs)]
        fits = node.host is None and all(s.dtype is float64 and s.ndim == 2 for s in specs)
        if not fits or node.shape[1] < VECTOR or node.shape[0] < 2:
            return None
        elements = node.inputs[1].spec.size
        fits = 0 < elements <= MOST_ELEMENTS and elements * node.shape[0] <= MOST_WORK
        return Claim([node], plan=node.number in graph.symmetric) if fits else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = (lowering.operand_view(x) for x in node.inputs)
        if b.strides[1] != 1:
            b = lowering.row_major(node.inputs[1])
        target = lowering.buffer(node.spec, node=node)
        text = tiles_text(node, a.strides, b.strides[0], bool(claim.plan))
        planned = PlannedKernel(text, [a, b, target.view()])
        return self.add_kernel(lowering, node, [a, b], target, planned)


def tiles_text(node: Node, steps: Any, below: int, is_symmetric: bool) -> str:
    """Cores share the rows."""
    (rows, depth), columns = node.inputs[0].shape, node.shape[1]
    spread = parallel(rows * depth * columns // VECTOR)
    mirror = f"gh_mirror(a[2], {rows});" if is_symmetric else ""
    return "\n".join([
        *(line.replace("(static)", "(static, 1)") for line in spread),
        f"for (int64_t i = 0; i < {rows}; i += GH_TILE_ROWS) {{",
        f"  const int64_t end = i + GH_TILE_ROWS < {rows} ? i + GH_TILE_ROWS : {rows};",
        f"  gh_double_rows(a[0], {steps[0]}, {steps[1]}, a[1], {below}, {depth}, a[2], {columns}, "
        f"i, end, {int(is_symmetric)});",
        "}",
        mirror,
        "",
    ])  # fmt: skip
