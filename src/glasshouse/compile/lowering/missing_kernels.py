"""Calls that no kernel of a Program computes, and why: those are steps of the host."""

from glasshouse.compile.kernels.c_text import call_of_node, faults, has_text
from glasshouse.compile.lowering.lower import MOVEMENT, REDUCTIONS
from glasshouse.compile.lowering.lowerer import claim_nodes, graph_of_node
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.steps.emitted import MissingKernel
from glasshouse.dispatch.primitive import Primitive, primitives
from glasshouse.graph import composition
from glasshouse.graph.node import Node
from glasshouse.ops import BUILT_IN

# Cards that fused kernels compute in every real dtype: most calls, checked first.
ALWAYS_WRITTEN = frozenset(
    name
    for name in BUILT_IN
    if name in (*MOVEMENT, *REDUCTIONS, "pad", "concatenate", "gather", "bitcast")
    or primitives[name].kernel is not None
)
CREATED = ("full", "iota", "random_bits")


def computed_by(card: Primitive) -> str:
    """Name the steps of Programs that compute a card, if its dtypes, shapes and attrs allow."""
    labels = dict.fromkeys(lowerer.label for lowerer in current_target().lowerers_of(card.name))
    if card.name == "constant":
        return "nobody: it is an input"
    if card.name == "custom":
        return "other cards, those of its body"
    if card.composition is not None:
        return "other cards, by its composition"
    if card.kernel is not None:
        return "fused kernels, by its kernel text"
    if card.name in (*ALWAYS_WRITTEN, *CREATED):
        return "fused kernels"
    return f"steps of kind {' or '.join(labels)}" if labels else "the host, by its reference"


def missing_kernel(node: Node) -> MissingKernel | None:
    """Reason why a node of a graph is left to the host; None where a kernel or a user's function
    computes it, or there is nothing to compute."""
    if node.host is not None or node.op in ("input", "pick", "custom") or is_empty(node):
        return None
    card = primitives[node.op]
    if card.composition is not None and card.name not in composition.faults:
        return None
    return why_host(node) if is_left_to_host(node) else None


def is_left_to_host(node: Node) -> bool:
    """Whether only the host's lowerer, of those of the target in use, takes a node."""
    target = current_target()
    claims = claim_nodes(graph_of_node(node), target.lowerers)
    return claims[node.number].lowerer is target.host


def is_empty(node: Node) -> bool:
    outs = node.spec if isinstance(node.spec, tuple) else (node.spec,)
    return any(x.spec.size == 0 for x in node.inputs) or all(spec.size == 0 for spec in outs)


def why_host(node: Node) -> MissingKernel:
    """Reason why a step of the host computes a node."""
    card = primitives[node.op]
    outs = node.spec if isinstance(node.spec, tuple) else (node.spec,)
    dtypes = dict.fromkeys(spec.dtype for spec in (*(x.spec for x in node.inputs), *outs))
    names = ", ".join(dtype.name for dtype in dtypes)
    for lowerer in current_target().lowerers_of(node.op):
        if missing := lowerer.explain(node, names):
            return missing
    if "elementwise" not in card.traits:
        what = "a lowerer, or its card a composition"
        return MissingKernel(f"no kernel for {names}", f"Give it {what}, or leave it out")
    fix = "Give its card a kernel text (docs/how_to/write_a_primitive.md)"
    if card.name in composition.faults:
        return MissingKernel(composition.faults[card.name], "Mend the card's composition")
    if card.kernel is None:
        return MissingKernel(f"its card has no kernel text, in {names}", fix)
    call = call_of_node(node)
    if call in faults:
        return MissingKernel(faults[call], "Mend the card's kernel text")
    reason = "" if has_text(card, call) else f"its kernel text leaves out {names}"
    return MissingKernel(reason or f"no kernel for {names}", fix)
