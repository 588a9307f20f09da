"""Kernels that scatter: a copy of x, then every update into it, in order."""

from math import prod

from glasshouse.compile.emitted import CKernel, EmittedStep
from glasshouse.compile.lowerer import Claim, GraphUsers
from glasshouse.compile.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.handwritten import HandwrittenKernels, parallel, pointers

COLUMN_CHUNK = 256  # columns of a scatter that one thread takes at a time


class ScatterKernels(HandwrittenKernels):
    """Updates added to, or set at, places of a tensor; the columns are shared out to the cores."""

    ops = ("scatter_add", "scatter_set")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        narrow = node.spec.dtype.name in ("float16", "bfloat16")
        return None if narrow else super().claims(graph, node)

    def plan(self, lowering, claim: Claim) -> bool:
        node = claim.last
        x, indices, updates = node.inputs
        target = lowering.buffer(node.spec, node=node)
        out = target.view()
        at, new = (lowering.row_major(n) for n in (indices, updates))
        lowering.fill(node, out, lowering.expr[x.number])
        lowering.add_step(self, node, [at, new, out], [target], (at, new, out))
        lowering.hand_out(node, [target])
        return True

    def emit(self, step) -> EmittedStep:
        return emit_updates(step.node, *step.plan)


def emit_updates(node, indices: View, updates: View, out: View) -> EmittedStep:
    """scatter_add or scatter_set: out (pre, size, post), updates (pre, count, post)."""
    axis, shape = node.attrs["axis"], node.shape
    pre, size, post = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    count = prod(indices.shape)
    added = "|=" if node.dtype.is_bool else "+="
    sign = added if node.op == "scatter_add" else "="
    lines = [*pointers(indices, updates, out), "int64_t *b3 = a[3];"]
    chunks = -(-post // COLUMN_CHUNK)
    lines += parallel(count * post) if chunks > 1 else []
    lines += [
        f"for (int64_t c = 0; c < {chunks}; c++) {{",
        f"const int64_t lo = c * {COLUMN_CHUNK};",
        f"const int64_t hi = lo + {COLUMN_CHUNK} < {post} ? lo + {COLUMN_CHUNK} : {post};",
        f"for (int64_t p = 0; p < {pre}; p++)",
        f"for (int64_t j = 0; j < {count}; j++) {{",
        f"const int64_t row = gh_index((int64_t)b0[j], {size}LL, b3);",
        "#pragma omp simd",
        "for (int64_t i = lo; i < hi; i++)",
        f"b2[(p * {size}LL + row) * {post} + i] {sign} b1[(p * {count}LL + j) * {post} + i];",
        "}",
        "}",
    ]
    args = [(v.base, v.offset) for v in (indices, updates, out)]
    return EmittedStep([*args, ("error", 0)], CKernel("\n".join(lines) + "\n"))
