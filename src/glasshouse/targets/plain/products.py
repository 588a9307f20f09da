"""Products of matrices in plain C, of any strides, in float32 and float64."""

from pathlib import Path
from typing import Any

from glasshouse.base import float32, float64
from glasshouse.compile.kernels.c_text import C_TYPES, guarded
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.emitted import CKernel, EmittedStep, MissingKernel
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.kernels.byte_products import ByteProducts
from glasshouse.targets.cpu.writing.handwritten import HandwrittenKernels, PlannedKernel, pointers

DTYPES = (float32, float64)
HERE = Path(__file__).parent


def functions_of(name: str, real: str) -> str:
    """The functions of a header, for numbers of a C type."""
    return guarded((HERE / name).read_text().replace("REAL", real))


class PlainKernels(HandwrittenKernels):
    """Kernels from a header of this folder, for float32 and float64."""

    header = ""

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        specs = [node.spec, *(x.spec for x in node.inputs)]
        fits = node.host is None and all(s.dtype in DTYPES and s.size for s in specs)
        return Claim([node]) if fits and len({s.dtype for s in specs}) == 1 else None

    def explain(self, node: Node, dtypes: str) -> MissingKernel:
        return MissingKernel(f"plain C computes no {dtypes}", "Use float32 or float64")

    def emit(self, step: Any) -> EmittedStep:
        args = [(view.base, view.offset) for view in step.plan.views]
        real = C_TYPES[step.plan.views[0].base.dtype.name]
        return EmittedStep(args, CKernel(step.plan.text, functions_of(self.header, real)))


class PlainProducts(PlainKernels):
    """a (…, M, K) @ b (…, K, N)."""

    ops: tuple[str, ...] = ("matmul",)
    label = "plain"
    header = "gh_plain_products.h"

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        a, b = [lowering.operand_view(x) for x in node.inputs]
        target = lowering.buffer(node.spec, node=node)
        (*stack, rows, depth), columns = a.shape, b.shape[-1]
        real = C_TYPES[node.dtype.name]
        steps = [*a.strides[-2:], *b.strides[-2:]]
        sizes = ", ".join(map(str, (rows, depth, columns, *steps)))
        lines = pointers(a, b, target.view())
        ends = ""
        terms: list[list[str]] = [[], []]
        for axis, size in enumerate(stack):
            lines.append(f"for (int64_t n{axis} = 0; n{axis} < {size}; n{axis}++) {{")
            for view, parts in zip((a, b), terms, strict=True):
                parts.append(f" + n{axis} * {view.strides[axis]}LL")
            ends += "}"
        at = "0"
        for axis, size in enumerate(stack):
            at = f"({at}) * {size} + n{axis}"
        places = f"b0{''.join(terms[0])}, b1{''.join(terms[1])}, b2 + ({at}) * {rows * columns}LL"
        lines += [f"gh_product_{real}({places}, {sizes});", ends]
        planned = PlannedKernel("\n".join(lines) + "\n", [a, b, target.view()])
        return self.add_kernel(lowering, node, [a, b], target, planned)


def whole(values: Any, fill: int) -> list[int]:
    """Numbers of up to three axes, those that are missing put before them."""
    return [fill] * (3 - len(values)) + list(values)


class PlainBytes(ByteProducts):
    """Products and convolutions of bytes, of all sizes; their sums are exact."""

    def takes_all(self) -> bool:
        return True
