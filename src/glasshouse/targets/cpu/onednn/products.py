"""Products of matrices through oneDNN: a (…, M, K) @ b (…, K, N), perhaps + bias (N,)."""

from math import prod
from typing import TYPE_CHECKING, Any

from glasshouse.base import float32
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn.library import DST, QUERY_WEIGHTS, SRC, WEIGHTS, Unavailable
from glasshouse.targets.cpu.onednn.lowerer import OnednnLowerer, PrimitivePlanner
from glasshouse.targets.cpu.onednn.transposes import TRANSPOSES, panel_of
from glasshouse.targets.cpu.writing.layouts import matrix_strides, repeated_axes, stacked

if TYPE_CHECKING:
    from glasshouse.targets.cpu.onednn.library import OnednnObject


MANY_ROWS, FEW_ROWS = 512, 128
COLLIDING_BYTES = 2048
REORDERED_ELEMENTS = 1 << 24
NARROW_BYTES = 2
ROWS_ACROSS = 1024  # of the result, for each of which a copied b saves time
COLUMNS_ACROSS = 768  # of the result, for each of which a copied a saves time …
TERMS_ACROSS = 1024  # … where its sums have so many terms …
CACHED_ELEMENTS = 1 << 21  # … and caches have some of a


class OnednnProducts(OnednnLowerer):
    """Products of matrices, and of stacks of them."""

    ops: tuple[str, ...] = ("matmul",)

    def plan_primitive(self, planner: PrimitivePlanner, node: Node, bias: View | None) -> None:
        first, second = (matrix_operand(planner, x) for x in node.inputs)
        copies = self.own_copies and planner.dnnl.chooses_panels
        if copies and is_transposed(first[1], second[1]):
            first = in_rows(planner, node.inputs[0], first[1])
        try:
            add_matmul(planner, first, second, bias)
        except Unavailable:
            first, second = (planner.row_major(x) for x in node.inputs)
            add_matmul(planner, first, second, bias)


def matrix_operand(planner: PrimitivePlanner, node: Node) -> "tuple[OnednnObject, View]":
    """(descriptor, view) of an operand of a product, copied first where its layout is odd."""
    view = planner.lowering.operand_view(node)
    strides = matrix_strides(view)
    if strides is None or any(repeated_axes(view)[-2:]):
        return planner.row_major(node)
    shape, strides = stacked(view, strides)
    return planner.dnnl.desc(shape, view.base.dtype, strides), view


def add_matmul(
    planner: PrimitivePlanner,
    first: "tuple[OnednnObject, View]",
    second: "tuple[OnednnObject, View]",
    bias: View | None,
) -> None:
    dnnl = planner.dnnl
    (a_desc, a), (b_desc, b) = first, second
    dc, target = planner.result()
    shape = (1,) * (planner.node.spec.ndim - 1) + planner.node.shape[-1:]
    bias_desc, read = planner.bias(bias, shape)
    is_fixed = is_constant(b)
    chooses = dnnl.chooses_panels and (is_reordered(a, b) or is_fixed)
    weights_desc = dnnl.desc(b.shape, b.base.dtype) if chooses else b_desc
    desc = dnnl.primitive("matmul", a_desc, weights_desc, bias_desc, dc)
    if chooses:
        weights_desc = dnnl.query(desc, QUERY_WEIGHTS)
        worth_keeping = (
            is_fixed or b.base.place != "input"
        )  # a parameter kept in two layouts would take twice the memory
        b = in_layout(planner, b, b_desc, weights_desc, worth_keeping)
    reads = [(SRC, a_desc, a), (WEIGHTS, weights_desc, b), *read]
    planner.add_step(desc, reads, [(DST, dc, target.view())], "matmul")
    planner.hand_out(target)


def is_constant(b: View) -> bool:
    """Whether a matrix is the same in every step of a loop, or from run to run: it is then
    reordered once. Of one that stays from run to run the elements are narrow: both layouts together
    take no more memory than one of float32."""
    target, base = current_target(), b.base
    is_stable = base.place == "input" and base.at in target.stable_inputs
    return is_stable and (target.keeps_inputs or base.spec.dtype.itemsize <= NARROW_BYTES)


def in_rows(planner: PrimitivePlanner, node: Node, a: View) -> Any:
    """(descriptor, view) of a matrix whose columns lie in memory one after the other, copied."""
    view = TRANSPOSES.add(planner.lowering, node, a)
    return planner.dnnl.desc(view.shape, view.base.dtype, view.strides), view


def in_layout(
    planner: PrimitivePlanner, b: View, b_desc: Any, target_desc: Any, worth_keeping: bool
) -> View:
    """A matrix b in the layout that oneDNN wants."""
    node, panel = planner.node.inputs[1], panel_of(planner.dnnl.layout(target_desc))
    if panel and is_read_across(b) and planner.lowerer.own_copies:
        return TRANSPOSES.add(planner.lowering, node, b, panel, worth_keeping)
    return planner.reordered(node, b, b_desc, target_desc, worth_keeping)


def is_read_across(view: View) -> bool:
    """Whether a matrix has columns, not rows, that lie in memory one after the other, and may be
    copied by a kernel of ours."""
    over, along = view.strides[-2:]
    plain = len(view.shape) == 2 and view.base.dtype is float32
    return plain and over == 1 and along >= view.shape[0] > 1


def is_transposed(a: View, b: View) -> bool:
    """Whether a matrix a is copied first, to be read by rows: such a product takes 0.94 of the
    time, if its sums have many terms."""
    is_deep = a.shape[-1] >= TERMS_ACROSS and prod(a.shape) <= CACHED_ELEMENTS
    return is_read_across(a) and is_deep and b.shape[-1] >= COLUMNS_ACROSS


def is_reordered(a: View, b: View) -> bool:
    """Whether a matrix b goes into oneDNN's own layout first. That takes a fifteenth of the time of
    a product with 512 rows, and the product then takes nine tenths of its time, 0.96 where b would
    be read across (measured for matrices of 0.2 to 10 million elements); or half, where the rows of
    b, one below the other, fall into few sets of the cache. oneDNN sees to that itself if their
    length is a power of two."""
    *leading, _, columns = b.shape
    over, along = b.strides[-2:]
    row_bytes = over * b.base.dtype.itemsize
    collides = row_bytes % COLLIDING_BYTES == 0 and row_bytes.bit_count() > 1
    row_major = along == 1 and columns % 16 == 0 and prod(leading) == 1
    rows = FEW_ROWS if collides else MANY_ROWS
    if not row_major:
        rows = ROWS_ACROSS
    fits = row_major or is_read_across(b)
    return fits and prod(b.shape) <= REORDERED_ELEMENTS and prod(a.shape[:-1]) >= rows
