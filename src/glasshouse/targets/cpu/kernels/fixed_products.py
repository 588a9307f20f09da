"""Products whose elements are the same bits whatever else is computed: `gh.deterministic("batch")`.

An element is a sum in an order that depends on its row of a and its column of b alone: not on the
number of rows, on its place, or on how cores share the work. Weights whose columns lie in one
piece each are read as products of few rows read them (few_rows.py), some rows at a time. oneDNN's
product, which chooses by all sizes, is the faster twin."""

from math import prod
from typing import Any

from glasshouse.base import float32, float64
from glasshouse.base.flags import flags
from glasshouse.compile.kernels.loops import decoded
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.kernels.few_rows import COLUMNS, VECTOR
from glasshouse.targets.cpu.writing.handwritten import (
    HandwrittenKernels,
    PlannedKernel,
    parallel,
    pointers,
    vector_functions,
)

ALONG, DOWN = 8, 6  # rows at a time: with a few columns their sums fill the registers
CHUNK = 64  # columns that a core takes at a time


class FixedProducts(HandwrittenKernels):
    """a (…, M, K) @ b (…, K, N) in an order of each element's own."""

    ops: tuple[str, ...] = ("matmul",)
    label = "row_by_row"
    header = vector_functions("gh_few_rows.h", "gh_fixed.h")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        if not flags.deterministic or node.host is not None or not node.spec.size:
            return None
        dtypes = {x.dtype for x in (node, *node.inputs)}
        return Claim([node]) if dtypes in ({float32}, {float64}) else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = lowering.row_major(node.inputs[0]), lowering.operand_view(node.inputs[1])
        over, along = b.strides[-2:]
        is_along = over == 1 and along >= b.shape[-2]
        if not is_along and (along != 1 or node.dtype is float64):
            b = lowering.row_major(node.inputs[1])
        target = lowering.buffer(node.spec, node=node)
        views = [a, b, target.view()]
        planned = PlannedKernel(product_text(node, views, is_along), views)
        return self.add_kernel(lowering, node, views[:2], target, planned)


def product_text(node: Node, views: Any, is_along: bool) -> str:
    """Cores share the columns of all products."""
    a, b, target = views
    lead, (rows, columns), depth = node.shape[:-2], node.shape[-2:], a.shape[-1]
    parts = -(-columns // CHUNK)
    names = [f"l{axis}" for axis in range(len(lead))]
    at = [
        " + ".join(["0", *(f"{name} * {step}" for name, step in zip(names, steps, strict=True))])
        for steps in (lead_strides(a, len(lead)), lead_strides(b, len(lead)))
    ]
    if node.dtype is float64:
        along, row = (1, b.strides[-1]) if is_along else (b.strides[-2], 1)
        inner = plain_text(rows, columns, depth, along, row)
    elif is_along:
        inner = rows_text(rows, ALONG, lambda n: (
            f"gh_some_rows(x + i * {depth}, y, {b.strides[-1]}, {depth}, first, last, {n}, "
            f"{COLUMNS[n]}, out + i * {columns}, {columns}, 0);"))  # fmt: skip
    else:
        inner = rows_text(rows, DOWN, lambda n: (
            f"gh_down_rows(x + i * {depth}, y, {b.strides[-2]}, {depth}, first, last, {n}, "
            f"out + i * {columns}, {columns});"))  # fmt: skip
    kind = "double" if node.dtype is float64 else "float"
    lines = [
        *pointers(a, b, target),
        *parallel(prod(node.shape) * depth // VECTOR),
        f"for (int64_t u = 0; u < {prod(lead) * parts}; u++) {{",
        f"  const int64_t l = u / {parts}, first = u % {parts} * {CHUNK};",
        f"  const int64_t last = first + {CHUNK} < {columns} ? first + {CHUNK} : {columns};",
        *decoded("l", list(zip(names, lead, strict=True))),
        f"  const {kind} *x = b0 + {at[0]}, *y = b1 + {at[1]};",
        f"  {kind} *out = b2 + l * {rows * columns};",
        inner,
        "}",
    ]
    return "\n".join(lines)


def lead_strides(view: Any, count: int) -> list[int]:
    """The steps along the leading axes of a product; 0 where an operand has one for all."""
    sizes, strides = view.shape[:-2], view.strides[:-2]
    own = [0 if size == 1 else step for size, step in zip(sizes, strides, strict=True)]
    return [0] * (count - len(own)) + own


def rows_text(rows: int, most: int, call: Any) -> str:
    """Calls for all rows, `most` at a time."""
    whole = rows // most * most
    lines = [f"for (int64_t i = 0; i < {whole}; i += {most}) {call(most)}"] if whole else []
    if rows > whole:
        lines.append(f"{{ const int64_t i = {whole}; {call(rows - whole)} }}")
    return "\n".join(lines)


def plain_text(rows: int, columns: int, depth: int, over: int, along: int) -> str:
    return f"""\
for (int64_t i = 0; i < {rows}; i++)
  for (int64_t j = first; j < last; j++) {{
    double sum = 0;
    for (int64_t k = 0; k < {depth}; k++) sum += x[i * {depth} + k] * y[k * {over} + j * {along}];
    out[i * {columns} + j] = sum;
  }}"""
