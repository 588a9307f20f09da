"""Host steps: a card's reference, or a user's function, on NumPy arrays."""

from typing import Any

from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.lowering.missing_kernels import is_empty, why_host
from glasshouse.compile.steps.emitted import BufferPlace, EmittedStep, HostCall, MissingKernel
from glasshouse.compile.steps.steps import LoweredStep
from glasshouse.compile.steps.work import REFERENCE
from glasshouse.graph.graph import Node


class HostLowerer(Lowerer):
    """Steps without a kernel: the runner stops, and Python does them."""

    label = "host"
    is_host = True
    is_copy_alone = False

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        return Claim([node], reads=node.inputs)

    def plan(self, lowering: Lowering, claim: Claim) -> bool:
        node = claim.last
        specs = node.spec if isinstance(node.spec, tuple) else (node.spec,)
        sources = [lowering.operand_view(x) for x in node.inputs]
        results = [lowering.buffer(spec, node=node) for spec in specs]
        lowering.add_step(self, node, sources, results)
        lowering.hand_out(node, results)
        return True

    def emit(self, step: LoweredStep) -> EmittedStep:
        node = step.node
        alone = Node(node.call, (), node.origin)
        sources = [BufferPlace.of(view) for view in step.sources]
        results = [BufferPlace.of(buffer.view()) for buffer in step.results]
        return EmittedStep([], HostCall(alone, sources, results, missing_of(node)))

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return REFERENCE.estimate(products, numbers, machine)

    def describe(self, step: LoweredStep) -> StepDescription:
        why = missing_of(step.node)
        description = super().describe(step)
        if why is None:
            return description
        return description._replace(text=f"{description.text} ({why.reason})", fallback=why.reason)


def missing_of(node: Node) -> MissingKernel | None:
    """Why a node has no kernel; None for a user's function, and where nothing is to be computed."""
    return None if node.host is not None or is_empty(node) else why_host(node)
