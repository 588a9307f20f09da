"""Shared parts of kernels that are written by hand, each for one card."""

from pathlib import Path
from typing import Any, NamedTuple

from glasshouse.compile.kernels.c_text import C_TYPES, guarded
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node

HEADERS = Path(__file__).parents[1] / "headers"
# Products are sums in registers: a multiplication and an addition may be rounded at once.
FUSED = '__attribute__((optimize("fp-contract=fast"))) '


class PlannedKernel(NamedTuple):
    """The text of a kernel, the views of its pointers, and its name."""

    text: str
    views: list[View]
    name: str = ""


class WrittenKernels(Lowerer):
    """Kernels whose text stands in the plan, after the functions of a `header`."""

    header = ""

    def add_kernel(
        self, lowering: Any, node: Node, reads: Any, target: Any, planned: Any, **more: Any
    ) -> bool:
        """Add the step of a node to a lowering, and hand out its result."""
        lowering.add_step(self, node, reads, [target], planned, **more)
        lowering.hand_out(more.get("computes", [node])[-1], [target])
        return True

    def emit(self, step: Any) -> EmittedStep:
        args = [(view.base, view.offset) for view in step.plan.views]
        return EmittedStep(args, CKernel(step.plan.text, self.header, FUSED))


class HandwrittenKernels(WrittenKernels):
    """Kernels whose time is that of their operations, at the kernel's own rate."""

    label = "template"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        specs = [node.spec, *(x.spec for x in node.inputs)]
        fits = all(s.dtype.name in C_TYPES and s.size for s in specs)
        return Claim([node]) if fits and node.host is None else None

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        _, _, *flops = numbers
        return machine.kernel_ns(sum(flops) / machine.handwritten)


class ReadingKernels(HandwrittenKernels):
    """Kernels whose time is that of reading their operands."""

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return machine.kernel_ns(machine.moving_s(numbers[0]))


def vector_functions(*names: str) -> str:
    """The C functions of headers, after the vectors that they use."""
    return "".join(guarded((HEADERS / file).read_text()) for file in ("gh_vectors.h", *names))


def pointers(*views: View) -> list[str]:
    """The arguments of a kernel as pointers b0, b1, … of their types."""
    return [f"{C_TYPES[v.base.dtype.name]} *b{k} = a[{k}];" for k, v in enumerate(views)]


def parallel(work: int) -> list[str]:
    """The OpenMP pragma that splits a loop among the cores; none for too little `work`."""
    return ["#pragma omp parallel for schedule(static)"] if work > PARALLEL_WORK else []
