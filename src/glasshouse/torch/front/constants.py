"""Tensors of a captured graph with the same values in each call: computed from constants, by
operations that draw nothing, and not written to otherwise."""

from collections.abc import Callable
from typing import Any

from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.var import Var
from glasshouse.ir.node import IRNode
from glasshouse.torch.front.effects import draws
from glasshouse.torch.front.names import name_of
from glasshouse.torch.front.numbers import memory

# Calls whose results depend on more than their arguments.
CONTEXTS = {"__enter__", "__exit__"}
VARYING = CONTEXTS | {"getattr", "backward", "grad"}


def is_invariant(tracer: "CaptureTracer", var: Var, writes: Callable[..., Any]) -> bool:
    """Whether a tensor has the same values in each call; `writes` says whether a call may write to
    a tensor."""
    if not isinstance(var.origin, IRNode):
        return False
    made_by: set[IRNode] = set()
    waiting = [var.origin]
    while waiting:
        node = waiting.pop()
        if node in made_by:
            continue
        if not gives_the_same(node):
            return False
        made_by.add(node)
        waiting += node.all_input_nodes
    memories = {memory(node) for node in made_by}
    targets = {memory(x) for node in tracer.graph.nodes for x in may_write_to(node, writes)}
    return None not in memories and not memories & targets


def gives_the_same(node: IRNode) -> bool:
    """Whether a call returns the same result for the same arguments."""
    name = name_of(node.target)
    same = name not in VARYING and not name.rstrip("_").removeprefix("new_").startswith("empty")
    same = same and not draws(node.target, node.args)
    return node.op.startswith("call_") and same and "generator" not in node.kwargs


def may_write_to(node: IRNode, writes: Callable[..., Any]) -> list[IRNode]:
    """The operands that a call may write to, at once or in a later backward pass."""
    if not node.op.startswith("call_") or name_of(node.target) in CONTEXTS:
        return []
    if node.target is setattr:  # a gradient, to which others are added
        return [x for x in node.args[2:] if isinstance(x, IRNode)]
    by_keyword = node.kwargs.keys() & {"out", "inplace"}
    return node.all_input_nodes if by_keyword or writes(node.target, node.args) else []
