"""Products of float32 on processors with a unit for matrices of bfloat16 (Intel's AMX).

Each element is taken apart into three of bfloat16 that are together equal to it. Six products of
such parts are as exact as one of float32, and take the unit about two thirds of its time
(docs/inside/numerics.md, docs/inside/compiler.md). The functions are in gh_bf16x6.h and gh_tiles.h
of `headers`; here are their sizes. `GH_BF16X6=0` turns it off: oneDNN's product is the
twin."""

import ctypes
import functools
import os
from math import prod
from typing import Any, NamedTuple

from glasshouse.base import Spec, float32, uint16
from glasshouse.base.dtype import DType
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.view import View
from glasshouse.compile.steps.work import product_of
from glasshouse.dispatch.call import Call
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.epilogues import with_epilogue
from glasshouse.targets.cpu.writing.handwritten import vector_functions
from glasshouse.targets.cpu.writing.layouts import matrix_strides

TILES = ("gh_threads.h", "gh_turn.h", "gh_tiles.h")
CORES = os.cpu_count() or 1
FEATURES = {"amx_tile", "amx_bf16", "avx512f"}
REQUEST_TILES = (158, 0x1023, 18)  # arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA
FIELDS, ITEM_AXES = 8, 4  # as gh_tiles.h has them …
PANEL, PANELS_OF_B = 32, 2  # … and these; 32 terms are a step of a panel
MOST_PANELS = 32  # of a block of rows
FEW_PLACES, FEW_TERMS = 64, 32  # rows or columns, and terms, from which on it was measured …
FEW_PRODUCTS = 1 << 21  # … to be faster, so many in all, …
MOST_MAKING = 1 / 54  # … where no more elements are taken apart for each of them
BLOCK_ROWS = 320  # for which a panel of b is made once


class PlannedProduct(NamedTuple):
    """The text of a kernel, the views of its pointers, and the sizes after them."""

    text: str
    views: list[View]
    sizes: list[int]


class Blocking(NamedTuple):
    """Limits of a core's panels: at most `deep` steps of terms, and of a block of rows at most
    `steps`, about half of the core's own cache. An element is split into `parts` parts."""

    deep: int
    steps: int
    parts: int

    @property
    def core_elements(self) -> int:
        """How many elements a core's panels have, whatever the sizes are."""
        return (self.steps + PANELS_OF_B * self.deep) * self.parts * PANEL**2


class SplitProducts(Lowerer):
    """Products of matrices, and of stacks of them, perhaps with a bias."""

    ops: tuple[str, ...] = ("matmul",)
    label = "bf16x6"
    has_scratch: bool = True
    moves_scratch: bool = False
    dtype: DType = float32
    header: str = vector_functions(*TILES, "gh_bf16x6.h")
    call = "gh_share_blocks(&s, gh_multiply_split, {panels}, {part}, (int){cores});"
    blocking: Blocking = Blocking(deep=16, steps=160, parts=3)

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        if node.host is not None or not self.takes(node):
            return None
        return with_epilogue(graph, node, takes_relu=False)

    def takes(self, node: Node) -> bool:
        """Whether a node is such a product, and one that is faster so."""
        *items, rows, columns = node.shape
        terms = node.inputs[0].shape[-1]
        fits = len(items) <= ITEM_AXES and self.is_faster(prod(items), rows, columns, terms)
        return fits and self.is_possible(node)

    def is_possible(self, node: Node) -> bool:
        """Whether the processor has the unit, a node is of this dtype, and nothing is off."""
        plain = all(x.dtype is self.dtype and x.spec.size for x in (node, *node.inputs))
        return plain and getattr(flags, self.label) and has_tiles()

    def is_faster(self, items: int, rows: int, columns: int, terms: int) -> bool:
        """Whether this was measured to be faster than oneDNN's product."""
        large = min(rows, columns) >= FEW_PLACES and terms >= FEW_TERMS
        worth = items * rows * columns * terms >= FEW_PRODUCTS
        return large and worth and 1 / columns + 1 / min(rows, BLOCK_ROWS) <= MOST_MAKING

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, (bias, _) = claim.nodes[0], claim.plan
        a, b = (operand(lowering, x) for x in node.inputs)
        target = lowering.buffer(node.spec, node=node)
        self.add_step(lowering, claim, (a, b), bias, target)
        return True

    def add_step(
        self, lowering: Any, claim: Claim, operands: Any, bias: Node | None, target: Any
    ) -> None:
        """A step for the product of two views, whose rows it writes one after the other."""
        views = [*operands] if bias is None else [*operands, lowering.row_major(bias)]
        sizes, elements = self.sizes_of(*operands)
        panels = lowering.buffer(Spec((elements,), uint16))
        text = text_of(self.call, bias is not None)
        planned = PlannedProduct(text, [*views, target.view(), panels.view()], sizes)
        more = {"scratch": [panels], "computes": claim.nodes}
        lowering.add_step(self, claim.nodes[0], views, [target], planned, **more)
        lowering.hand_out(claim.last, [target])

    def sizes_of(self, a: View, b: View) -> tuple[list[int], int]:
        """The numbers that a kernel takes, and how many elements its panels have."""
        *items, rows, terms = a.shape
        columns = b.shape[-1]
        a_strides, b_strides = matrix_strides(a), matrix_strides(b)
        assert a_strides is not None and b_strides is not None
        lead = [0] * (ITEM_AXES - len(items))
        counts = [1 for _ in lead] + items
        axes = [*counts, *lead, *a.strides[:-2], *lead, *b.strides[:-2]]
        deep, down, across = (-(-n // PANEL) for n in (terms, rows, columns))
        blocking = self.blocking
        panels = even(down, min(blocking.steps // even(deep, blocking.deep), MOST_PANELS))
        while panels > 1 and prod(items) * across * -(-down // panels) < CORES:
            panels = (panels + 1) // 2  # for work for each core
        blocks = prod(items) * -(-down // panels)
        cores = min(CORES, blocks * across)
        fields = [rows, columns, terms, *a_strides[-2:], *b_strides[-2:], panels * PANEL]
        part = blocking.core_elements
        packed = self.packed(prod(items), blocks, deep, across)
        elements = part * cores + packed * deep * PANEL**2
        return [*fields, *axes, part, cores, packed], elements

    def packed(self, items: int, blocks: int, deep: int, across: int) -> int:
        """How many panels of b are made before a core needs them."""
        return 0

    def emit(self, step: Any) -> EmittedStep:
        text, views, sizes = step.plan
        args = [(view.base, view.offset) for view in views]
        return EmittedStep([*args, *(("size", n) for n in sizes)], CKernel(text, self.header))

    def identity(self) -> str:
        return f"{self.label} {may_use_tiles()}"

    def product_name(self, call: Call) -> str:
        return f"{product_of(call)} {self.label} {call.specs[0].dtype.name}"


@functools.cache
def may_use_tiles() -> bool:
    """Whether the processor has the unit, and the system lets this process use its registers."""
    if not FEATURES.issubset(toolchain.processor().split()):
        return False
    try:
        return not ctypes.CDLL(None).syscall(*REQUEST_TILES)
    except (OSError, AttributeError):
        return False


@functools.cache
def has_tiles() -> bool:
    """Whether `may_use_tiles`, and the compiler knows the unit."""
    try:
        return may_use_tiles() and "__AMX_BF16__" in toolchain.macros()
    except toolchain.CompileError:
        return False


def operand(lowering: Any, node: Node) -> View:
    """A stack of matrices whose rows or columns lie in one piece, if need be copied."""
    view = lowering.operand_view(node)
    if matrix_strides(view) is None:
        return lowering.row_major(node)
    return view


def even(count: int, most: int) -> int:
    """At most `most`, so that all of `count` are in parts of the same size."""
    return -(-count // -(-count // most))


def text_of(call: str, has_bias: bool) -> str:
    """A kernel: its pointers are a, b, perhaps a bias, the result and the panels; sizes follow."""
    pointers = 4 + has_bias
    numbers = [f"(int64_t)a[{i}]" for i in range(pointers, pointers + FIELDS + 3 * ITEM_AXES + 3)]
    axes = (numbers[i : i + ITEM_AXES] for i in range(FIELDS, FIELDS + 3 * ITEM_AXES, ITEM_AXES))
    braces = ", ".join("{" + ", ".join(axis) + "}" for axis in axes)
    result, panels = f"a[{pointers - 2}]", f"a[{pointers - 1}]"
    bias = "a[2]" if has_bias else "0"
    part, cores, packed = numbers[-3:]
    fields = ", ".join(["a[0]", "a[1]", bias, result, *numbers[:FIELDS]])
    call_text = call.format(panels=panels, part=part, cores=cores, packed=packed)
    return f"const gh_tile_product s = {{{fields}, {braces}}};\n{call_text}\n"
