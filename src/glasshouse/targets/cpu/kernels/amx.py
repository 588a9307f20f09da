"""Products of bfloat16 by kernels of ours on processors with a unit for them (Intel's AMX).

The matrices of each block of rows are brought into panels beside the products, as those of float32
are (bf16x6.py); here an element has one part. oneDNN's product is the twin: `GH_AMX=0`.
docs/inside/compiler.md compares them. The functions are in gh_bf16.h beside this file."""

from glasshouse.base import bfloat16
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.kernels.bf16x6 import CORES, PANEL, TILES, Blocking, SplitProducts
from glasshouse.targets.cpu.writing.handwritten import vector_functions

# Panels of b are made again for each block of rows, or once before, so many elements at a time,
# where there are several blocks, or many panels: results then lie one after the other.
PACKED_ELEMENTS = 1 << 21
MANY_PANELS = 128
FEW_ROWS, FEW_TERMS, MANY_COLUMNS = 256, 128, 2048  # from which on it was measured to be faster


class NarrowProducts(SplitProducts):
    """Products of matrices of bfloat16, and of stacks of them, perhaps with a bias."""

    label = "amx"
    dtype = bfloat16
    header: str = vector_functions(*TILES, "gh_bf16.h")
    call = "gh_share_narrow(&s, {panels}, {part}, (int){cores}, {packed});"
    blocking: Blocking = Blocking(deep=96, steps=480, parts=1)

    def is_possible(self, node: Node) -> bool:
        terms = node.inputs[0].shape[-1]
        return super().is_possible(node) and terms <= self.blocking.deep * PANEL  # all in panels

    def is_faster(self, items: int, rows: int, columns: int, terms: int) -> bool:
        """Whether this was measured to be faster than oneDNN's product, whose panels have whole
        numbers of 32 terms."""
        large = rows >= FEW_ROWS and terms >= FEW_TERMS
        wide = columns >= MANY_COLUMNS or terms % PANEL
        return large and bool(wide) and super().is_faster(items, rows, columns, terms)

    def packed(self, items: int, blocks: int, deep: int, across: int) -> int:
        if items > 1 or blocks == 1 and across < MANY_PANELS:
            return 0
        return min(across, max(PACKED_ELEMENTS // (deep * PANEL**2), 2 * CORES))
