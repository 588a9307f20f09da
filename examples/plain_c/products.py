"""Products of matrices as three loops."""

from math import prod

from glasshouse.base import float32, float64
from glasshouse.targets import CKernel, Claim, EmittedStep, Lowerer

C_TYPES = {float32: "float", float64: "double"}
KERNEL = """\
const {type} *x = a[0], *y = a[1];
{type} *z = a[2];
for (int64_t s = 0; s < {stack}; s++)
  for (int64_t i = 0; i < {rows}; i++) {{
    {type} *to = z + (s * {rows} + i) * {columns};
    for (int64_t j = 0; j < {columns}; j++) to[j] = 0;
    for (int64_t k = 0; k < {inner}; k++) {{
      const {type} factor = x[(s * {rows} + i) * {inner} + k];
      const {type} *from = y + (s * {inner} + k) * {columns};
      for (int64_t j = 0; j < {columns}; j++) to[j] += factor * from[j];
    }}
  }}
"""


class PlainProducts(Lowerer):
    """x (…, rows, inner) @ y (…, inner, columns), all of them in row-major order."""

    ops = ("matmul",)
    label = "plain product"

    def claims(self, graph, node):
        fits = node.dtype in C_TYPES and node.host is None and node.spec.size
        return Claim([node]) if fits else None

    def plan(self, lowering, claim):
        node = claim.last
        operands = [lowering.row_major(x) for x in node.inputs]
        target = lowering.buffer(node.spec, node=node)
        lowering.add_step(self, node, operands, [target])
        lowering.hand_out(node, [target])
        return True

    def emit(self, step):
        *stack, rows, columns = step.node.shape
        text = KERNEL.format(
            type=C_TYPES[step.node.dtype],
            stack=prod(stack),
            rows=rows,
            columns=columns,
            inner=step.node.inputs[0].shape[-1],
        )
        views = [*step.sources, step.results[0].view()]
        return EmittedStep([(view.base, view.offset) for view in views], CKernel(text))
