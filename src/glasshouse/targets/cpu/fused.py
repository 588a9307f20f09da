"""Fused kernels: elementwise primitives, movement and reductions, which
`compile/lowering/fuse.py` joins."""

from typing import Any

from glasshouse.compile.kernels.emit_c import emit
from glasshouse.compile.kernels.loops import KernelLoops
from glasshouse.compile.lowering.lower import Lowering, is_fusable
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.steps.emitted import EmittedStep
from glasshouse.compile.steps.steps import FusedKernel
from glasshouse.graph.graph import Node


class FusedLowerer(Lowerer):
    """Everything that a kernel of loops over a domain can compute."""

    label = "kernel"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        fusable = graph.fusable.get(node.call)
        if fusable is None:
            fusable = graph.fusable[node.call] = node.host is None and is_fusable(node)
        return Claim([node], reads=()) if fusable else None

    def plan(self, lowering: Lowering, claim: Claim) -> bool:
        lowering.plan_fused(claim.last)
        return True

    def emit(self, step: FusedKernel) -> EmittedStep:
        return emit(step)

    def describe(self, step: Any) -> StepDescription:
        names = [f"{r.reduce or 'map'} {r.node.op if r.node else ''}" for r in step.roots]
        text = f"{self.label} over {step.domain}: {', '.join(map(str.strip, names))}"
        nodes = {r.node: None for r in step.roots if r.node is not None}  # a node may fill parts
        return StepDescription(text, list(nodes), rest=KernelLoops(step).rest)
