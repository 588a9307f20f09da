"""Products and convolutions of integers of 8 bits with sums of 32, as kernels of ours.

A graph widens the integers to 32 bits before a product; these kernels read the bytes in its place.
Of few rows they take the weights as they lie, which oneDNN would first bring into a layout of its
own; where there is no oneDNN, or a processor without instructions that sum exactly, they take all.
The composition of cards is the twin: `GH_FEW_BITS=0`."""

from math import prod
from typing import Any

from glasshouse.compile.kernels.c_text import guarded
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn.byte_products import byte_operands, has_exact_sums, is_signed
from glasshouse.targets.cpu.onednn.products import is_constant
from glasshouse.targets.cpu.writing.handwritten import (
    HEADERS,
    PlannedKernel,
    ReadingKernels,
)

MOST_ROWS = 16  # of the other operand: with more, oneDNN is faster …
MOST_LAID_OUT = 6  # … and with more than these, where weights stay in oneDNN's layout
COLUMNS = {1: 4, 2: 4, 3: 4, 4: 4, 5: 3, 6: 3, 7: 2, 8: 2}  # by rows at a time: sums in registers
USUAL_ROWS = 4  # at a time, of more than 8
VECTOR = 64  # multiplications and additions in a cycle
MOST_AXES = 3  # of a convolution


class ByteProducts(ReadingKernels):
    """x (M, K) @ wᵀ of bytes, with w (N, K); convolutions of bytes where oneDNN takes none."""

    ops: tuple[str, ...] = ("matmul", "conv")
    label = "byte_sums"
    header = guarded((HEADERS / "gh_bytes.h").read_text())  # without gh_vectors.h

    def takes_all(self) -> bool:
        """Whether there is no oneDNN that sums exactly."""
        return not has_exact_sums()

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        operands = byte_operands(node)
        if operands is None:
            return None
        x, w = operands
        if node.op == "matmul":
            is_small = prod(node.shape[:-2]) == 1 and node.shape[-2] <= MOST_ROWS
            fits = is_small or self.takes_all()
        else:
            fits = len(node.shape) - 2 <= MOST_AXES and self.takes_all()
        return Claim([node], operands) if fits else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        x, w = claim.reads or ()
        is_product = node.op == "matmul"
        leaves_some = is_product and not self.takes_all()
        if leaves_some and not self.is_faster(node.shape[-2], lowering.operand_view(w)):
            return False
        views = [
            lowering.row_major(x),
            columns_view(lowering, w) if is_product else lowering.row_major(w),
        ]
        target = lowering.buffer(node.spec, node=node)
        if is_product:
            text = product_text(*views)
        else:
            text = windows_text(views[0], views[1], node)
        planned = PlannedKernel(text, [*views, target.view()])
        return self.add_kernel(lowering, node, views, target, planned)

    def is_faster(self, rows: int, w: View) -> bool:
        """Whether oneDNN, which takes weights as they lie, or as they were laid out before, is
        slower."""
        dnnl = onednn.library()
        stays = dnnl is not None and dnnl.chooses_panels and is_constant(w)
        return has_whole_columns(w) and (rows <= MOST_LAID_OUT or not stays)


def has_whole_columns(view: View) -> bool:
    """Whether each column of a matrix lies in memory in one piece."""
    rows, columns = view.shape[-2:]
    over, along = view.strides[-2:]
    return (over == 1 or rows == 1) and (along >= rows or columns == 1)


def columns_view(lowering: Any, node: Node) -> View:
    """Matrices with whole columns, if need be copied."""
    view = lowering.operand_view(node)
    if not has_whole_columns(view):
        *lead, rows, columns = range(len(view.shape))
        lowering.materialise(node, order=(*lead, columns, rows))
        view = lowering.operand_view(node)
    return view


def product_text(x: View, w: View) -> str:
    """One product after the other, of a stack; cores share the columns."""
    *lead, rows, depth = x.shape
    columns = w.shape[-1]
    along = w.strides[-1] if columns > 1 else depth
    work = rows * depth * columns // VECTOR
    ins = rows if rows in COLUMNS else USUAL_ROWS
    outs = COLUMNS[ins]
    at = " + ".join(["0", *(f"l{i} * {step}" for i, step in enumerate(w.strides[:-2]))])
    loops = [f"for (int64_t l{i} = 0; l{i} < {size}; l{i}++)" for i, size in enumerate(lead)]
    pointers = "x, (const int8_t *)a[1] + w_at"
    fields = f"{pointers}, {depth}, {along}, {depth}, {columns}, {is_signed(x.base.dtype)}"
    return f"""\
const uint8_t *x = a[0];
int32_t *y = a[2];
{" ".join(loops)} {{
  const int64_t w_at = {at};
  const gh_byte_product s = {{{fields}}};
#pragma omp parallel for schedule(static) if({work} > {PARALLEL_WORK})
  for (int64_t j = 0; j < {columns}; j += {outs})
    gh_byte_rows(&s, {rows}, {outs}, {ins}, j, y);
  x += {rows * depth};
  y += {rows * columns};
}}
"""


def windows_text(x: View, w: View, node: Node) -> str:
    """Cores share the channels that are made."""
    n, channels, *size = x.shape
    out_channels, own, *kernel = w.shape
    attrs, missing = node.attrs, MOST_AXES - len(size)
    axes = [
        [0] * missing + [low for low, _ in attrs["padding"]],
        *([1] * missing + [*each] for each in (attrs["stride"], attrs["dilation"])),
        *([1] * missing + [*each] for each in (size, kernel, node.shape[2:])),
    ]
    low, stride, dilation, sizes, kernels, out = ("{" + ", ".join(map(str, a)) + "}" for a in axes)
    fields = f"{own}, {sizes}, {kernels}, {out}, {stride}, {dilation}, {low}"
    group, work = out_channels // attrs["groups"], prod(node.shape) * own * prod(kernel) // VECTOR
    return f"""\
const gh_byte_windows s = {{{fields}, {is_signed(x.base.dtype)}}};
#pragma omp parallel for schedule(static) if({work} > {PARALLEL_WORK})
for (int64_t i = 0; i < {n * out_channels}; i++) {{
  const int64_t o = i % {out_channels};
  const int64_t first = i / {out_channels} * {channels} + o / {group} * {own};
  gh_byte_channel(&s, (const uint8_t *)a[0] + first * {prod(size)},
                  (const int8_t *)a[1] + o * {own * prod(kernel)},
                  (int32_t *)a[2] + i * {prod(node.shape[2:])});
}}
"""
