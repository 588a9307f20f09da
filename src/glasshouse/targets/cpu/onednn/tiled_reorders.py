"""Weights brought into layouts of oneDNN's, and back, as kernels of ours: tile by tile.

The layouts have blocks of channels innermost, so rows become columns. oneDNN's reorder, the twin,
comes back to a line of the cache for each of its elements; where rows are some KiB apart, the lines
push each other out in between (docs/inside/compiler.md has both)."""

from math import prod
from typing import Any, NamedTuple

from glasshouse.compile.kernels.kernel_cache import IF_PARALLEL, PARALLEL_SIZE
from glasshouse.compile.kernels.kernel_writer import size_lines
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.targets.cpu.onednn.library import DTYPES, MemoryLayout
from glasshouse.targets.cpu.writing.handwritten import vector_functions

HEADER = vector_functions("gh_turn.h")
EDGE = 16  # of a tile, as in gh_turn.h
TEXT = f"""\
  const float *b0 = a[0];
  float *b1 = a[1];
  #pragma omp parallel for collapse(2) schedule(static){IF_PARALLEL}
  for (int64_t p = 0; p < blocks; p++)
    for (int64_t r = 0; r < strips; r++)
      for (int64_t q = 0; q < tiles; q++)
        gh_turn_tile(p * strips + r < filled ? b0 + p * block + r * from_strip + q * from_tile : 0,
                     from_row, b1 + p * block + r * {EDGE} + q * to_tile, to_row);
"""


class Tiles(NamedTuple):
    """Where the tiles of a matrix lie before and after: `blocks` of `strips` of `tiles`, of which
    the first strips up to `filled` have elements; elements from one block, strip, tile and row of a
    tile to the next."""

    blocks: int
    strips: int
    tiles: int
    filled: int
    block: int
    from_strip: int
    from_tile: int
    from_row: int
    to_tile: int
    to_row: int

    @property
    def elements(self) -> int:
        return self.blocks * self.strips * self.tiles * EDGE * EDGE


class TiledReorder(NamedTuple):
    """Plan of a step that reorders by tiles: the tiles, the views of both layouts, a name."""

    tiles: Tiles
    views: list[View]
    name: str = "reorder by tiles"

    def emit(self) -> EmittedStep:
        sizes = self.tiles._asdict()
        sizes[PARALLEL_SIZE] = int(self.tiles.elements > PARALLEL_WORK)
        size_text = size_lines(sizes, len(self.views))
        args = [(view.base, view.offset) for view in self.views]
        size_args = [("size", size) for size in sizes.values()]
        return EmittedStep([*args, *size_args], CKernel(size_text + TEXT, HEADER))


def tiles_between(before: MemoryLayout, after: MemoryLayout) -> Tiles | None:
    """The tiles of a matrix of float32 that changes between these layouts; None for others."""
    rows, *rest = before.shape
    columns = prod(rest)
    wide = {before.dtype, after.dtype} == {DTYPES["float32"]}
    if not wide or rows % EDGE or columns % EDGE or not rows * columns:
        return None
    if is_row_major(before) and (height := block_of_rows(after)):
        blocks = -(-rows // height)
        strips, tiles = height // EDGE, columns // EDGE
        block, tile = height * columns, EDGE * height
        distances = (block, EDGE * columns, EDGE, columns, tile, height)
        return Tiles(blocks, strips, tiles, rows // EDGE, *distances)
    if is_row_major(after) and block_of_rows(before) == EDGE:
        tiles, block = columns // EDGE, EDGE * columns
        return Tiles(rows // EDGE, 1, tiles, rows // EDGE, block, 0, EDGE**2, EDGE, EDGE, columns)
    return None


def is_row_major(layout: MemoryLayout) -> bool:
    """Whether all lies packed in row-major order."""
    packed = layout.shape == layout.padded
    return packed and not layout.blocks and lies_in(layout, strides_of(layout.shape))


def block_of_rows(layout: MemoryLayout) -> int:
    """How many rows lie side by side, column by column; 0 in another layout."""
    rows, *rest = layout.padded
    if not layout.blocks or (*rest,) != layout.shape[1:]:
        return 0
    *others, (axis, height) = layout.blocks
    if axis != 0 or height % EDGE or [axis for axis, _ in others] not in ([], [1]):
        return 0
    width = prod(size for _, size in others)
    if width > 1 and prod(rest[1:]) > 1:  # columns of a block lie side by side, and others between
        return 0
    outer = (rows // height, rest[0] // width, *rest[1:])
    steps = tuple(step * height * width for step in strides_of(outer))
    return height if lies_in(layout._replace(shape=outer), steps) else 0


def lies_in(layout: MemoryLayout, strides: Any) -> bool:
    """Whether axes of more than one position have these strides."""
    axes = zip(layout.shape, layout.strides, strides, strict=True)
    return all(size == 1 or stride == step for size, stride, step in axes)
