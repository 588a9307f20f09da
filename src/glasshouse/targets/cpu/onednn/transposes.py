"""Copies of matrices that products would read across their rows. oneDNN reads rows in order a
twentieth faster; its own reorders of such matrices take three times as long as these copies."""

from typing import Any, NamedTuple

from glasshouse.base import Spec, float32
from glasshouse.compile.kernels.kernel_cache import IF_PARALLEL
from glasshouse.compile.kernels.kernel_writer import PARALLEL, size_lines
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import StepDescription
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn.library import MemoryLayout
from glasshouse.targets.cpu.writing.handwritten import HandwrittenKernels, vector_functions

HEADER = vector_functions("gh_turn.h", "gh_transpose.h")
STRIP = 64  # rows that are read side by side
PART = 256  # columns of a strip that a core takes at a time


class PlannedTranspose(NamedTuple):
    """The views of source and target, the columns of a panel (0: no panels), and sizes by name."""

    views: list[View]
    panel: int
    sizes: dict[str, int]


class Transposes(HandwrittenKernels):
    """Steps that other lowerers ask for: no node is computed by one."""

    ops: tuple[str, ...] = ()
    label = "transpose"

    def add(
        self, lowering: Any, node: Node, source: View, panel: int = 0, worth_keeping: bool = True
    ) -> View:
        """Where the value (K, N) of a node, whose columns lie in memory one after the other, lies
        row by row after a step that is added: all of it, or panels of so many columns, of which the
        last is filled up with zeros."""
        (depth, columns), down = source.shape, source.strides[1]
        filled = -(-columns // panel) * panel if panel else columns
        target = lowering.buffer(Spec((depth, filled), float32)).view()
        over, strip = panel or columns, panel or STRIP
        sizes = {
            "height": columns,
            "width": depth,
            "down": down,
            "over": over,
            "strip": strip,
            "between": depth * panel if panel else strip,
            "parallel": int(depth * columns > PARALLEL_WORK),
        }
        planned = PlannedTranspose([source, target], panel, sizes)
        more = {"computes": [], "worth_keeping": worth_keeping}
        lowering.add_step(self, node, [source], [target.base], planned, **more)
        return target

    def emit(self, step: Any) -> EmittedStep:
        planned = step.plan
        args = [(view.base, view.offset) for view in planned.views]
        args += [("size", size) for size in planned.sizes.values()]
        size_text = size_lines(planned.sizes, len(planned.views))
        return EmittedStep(args, CKernel(size_text + text_of(planned.panel > 0), HEADER))

    def describe(self, step: Any) -> StepDescription:
        return StepDescription(f"{self.label} of {step.node.op}", [], "transpose")


TRANSPOSES = Transposes()


def panel_of(layout: MemoryLayout) -> int:
    """How many columns a panel has, where a matrix lies in panels, one after the other, each row
    by row and without further rows; 0 for any other layout."""
    if [axis for axis, _ in layout.blocks] != [0, 1] or layout.padded[0] != layout.shape[0]:
        return 0
    (_, tall), (_, wide) = layout.blocks
    return wide if layout.strides == (tall * wide, layout.shape[0] * wide) else 0


def text_of(padded: bool) -> str:
    """Cores share the strips of rows, and parts of these. Targets of strips lie `between` apart."""
    filled = "strip" if padded else "rows"
    return f"""\
  const float *from = a[0];
  float *to = a[1];
  #pragma omp {PARALLEL} collapse(2){IF_PARALLEL}
  for (int64_t i = 0; i < height; i += strip)
    for (int64_t j = 0; j < width; j += {PART}) {{
      const int64_t rows = height - i < strip ? height - i : strip;
      const int64_t columns = width - j < {PART} ? width - j : {PART};
      float *into = to + i / strip * between + j * over;
      gh_strip(from + i * down + j, down, rows, columns, into, over, {filled});
    }}
"""
