"""Collectives: a step that starts one and a step that waits for its end, with others in between.

The transport works beside other steps. `compile/planning/overlap.py` moves the two steps apart; a
value that nobody else reads is replaced where it lies."""

from typing import Any

from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.steps.emitted import BufferPlace, CollectiveStep, EmittedStep
from glasshouse.compile.steps.work import CollectiveKind
from glasshouse.graph.graph import Node
from glasshouse.ops.collective_card import COLLECTIVES


class CollectiveLowerer(CollectiveKind, Lowerer):
    """Collectives along the first axis, as graphs have them after their rewriting. Messages in a
    ring take one step: the ranks meet two by two, in the order of the calls."""

    label = "between ranks"
    ops: tuple[str, ...] = tuple(COLLECTIVES)
    is_host = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        return Claim([node], reads=node.inputs) if node.host is None else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        if not node.call.is_collective or not is_along_first(node):
            return False
        (x,) = node.inputs
        source = lowering.row_major(x)
        is_replaced = COLLECTIVES[node.op].may_replace and lowering.is_read_once(x, source)
        result = source.base if is_replaced else lowering.buffer(node.spec, node=node)
        if not COLLECTIVES[node.op].may_start:
            lowering.add_step(self, node, [source], [result])
        else:
            lowering.add_step(self, node, [source], [result], computes=[], part="start")
            lowering.add_step(self, node, [source], [result], part="wait")
        lowering.hand_out(node, [result])
        if is_replaced:  # in a buffer of another shape, perhaps
            lowering.expr[node.number] = lowering.exprs.load(source)
        return True

    def emit(self, step: Any) -> EmittedStep:
        alone = Node(step.node.call, (), step.node.origin)
        (source,), (result,) = step.sources, step.results
        lies_in = source if source.base is result else result.view()
        places = BufferPlace.of(source), BufferPlace.of(lies_in)
        args = [(view.base, view.offset) for view in (source, lies_in)]
        return EmittedStep(args, CollectiveStep(alone, *places, step.part))

    def describe(self, step: Any) -> StepDescription:
        node = step.node
        name = f"start {node.op}" if step.part == "start" else node.op
        group, nbytes = node.attrs["group"], node.inputs[0].spec.nbytes
        text = f"{self.label} {name} {group}"
        return StepDescription(text, step.computes, name, group=group, given_bytes=nbytes)


def is_along_first(node: Node) -> bool:
    """Whether parts are cut and joined along the first axis alone."""
    return not any(node.attrs[axis] for axis in COLLECTIVES[node.op].axes)
