"""A backward pass that calls hooks of leaves, as capture interprets it: the pass itself is one node
of the graph. Hooks are interpreted after it like other Python, in the order in which the pass would
call them. The one difference that they can see is which other tensors already have a gradient."""

from typing import Any

from glasshouse.autograd.backward import held_gradients
from glasshouse.autograd.tape import AFTERWARDS, AT_END, no_grad
from glasshouse.dispatch.scope import phase


def backward_with_hooks(
    hooked: Any,
    ends: Any,
    output: Any,
    gradient: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
) -> None:
    """`output.backward(…)`. `hooked` has the leaves with hooks and their (slot, hook), in the order
    of the visits. A hook for the end of the pass is the number of one of `ends`."""
    leaves = [leaf for leaf, _ in hooked]
    is_met = [False for _ in ends]
    with no_grad(), phase("backward"):
        gradients = held_gradients(output, leaves, gradient, retain_graph)
        for (leaf, hooks), leaf_grad in zip(hooked, gradients):
            if leaf_grad is None:
                continue
            for slot, hook in hooks:
                replaced = hook(leaf_grad) if slot == 0 else None
                leaf_grad = leaf_grad if replaced is None else replaced
            leaf.grad = leaf_grad if leaf.grad is None else leaf.grad + leaf_grad
            for slot, hook in hooks:
                if slot is AFTERWARDS:
                    hook(leaf)
                elif slot == AT_END:
                    is_met[hook] = True
    for end, was_met in zip(ends, is_met):
        if was_met:
            end()
