"""Kernels that scatter: a copy of x, then every update into it, in order."""

from math import prod

from glasshouse.compile.kernels.kernel_cache import IF_PARALLEL, PARALLEL_SIZE
from glasshouse.compile.kernels.kernel_writer import PARALLEL, size_lines
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.steps import LoweredStep
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import HandwrittenKernels, pointers

COLUMN_CHUNK = 256  # columns of a scatter that one thread takes at a time


class ScatterKernels(HandwrittenKernels):
    """Updates added to, or set at, places of a tensor; the columns are shared out to the cores."""

    ops: tuple[str, ...] = ("scatter_add", "scatter_set")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        narrow = node.spec.dtype.name in ("float16", "bfloat16")
        return None if narrow else super().claims(graph, node)

    def plan(self, lowering: Lowering, claim: Claim) -> bool:
        node = claim.last
        x, indices, updates = node.inputs
        target = lowering.buffer(node.spec, node=node)
        out = target.view()
        at, new = (lowering.row_major(n) for n in (indices, updates))
        lowering.fill(node, out, lowering.expr[x.number])
        lowering.add_step(self, node, [at, new, out], [target], (at, new, out))
        lowering.hand_out(node, [target])
        return True

    def emit(self, step: LoweredStep) -> EmittedStep:
        return emit_updates(step.node, *step.plan)


def emit_updates(node: Node, indices: View, updates: View, out: View) -> EmittedStep:
    """scatter_add or scatter_set: out (pre, size, post), updates (pre, count, post)."""
    axis, shape = node.attrs["axis"], node.shape
    added = "|=" if node.dtype.is_bool else "+="
    sign = added if node.op == "scatter_add" else "="
    post, count = prod(shape[axis + 1 :]), prod(indices.shape)
    chunks = -(-post // COLUMN_CHUNK)
    sizes = {
        "pre": prod(shape[:axis]),
        "rows": shape[axis],
        "post": post,
        "count": count,
        "chunks": chunks,
        PARALLEL_SIZE: int(chunks > 1 and count * post > PARALLEL_WORK),
    }
    size_text = size_lines(sizes, 4)
    declared = "".join(f"  {line}\n" for line in pointers(indices, updates, out))
    text = f"""\
{size_text}{declared}\
  int64_t *b3 = a[3];
  #pragma omp {PARALLEL}{IF_PARALLEL}
  for (int64_t c = 0; c < chunks; c++) {{
    const int64_t lo = c * {COLUMN_CHUNK};
    const int64_t hi = lo + {COLUMN_CHUNK} < post ? lo + {COLUMN_CHUNK} : post;
    for (int64_t p = 0; p < pre; p++)
      for (int64_t j = 0; j < count; j++) {{
        const int64_t row = gh_index((int64_t)b0[j], rows, b3);
        #pragma omp simd
        for (int64_t i = lo; i < hi; i++)
          b2[(p * rows + row) * post + i] {sign} b1[(p * count + j) * post + i];
      }}
  }}
"""
    args = [(v.base, v.offset) for v in (indices, updates, out)]
    size_args = [("size", size) for size in sizes.values()]
    return EmittedStep([*args, ("error", 0), *size_args], CKernel(text))
