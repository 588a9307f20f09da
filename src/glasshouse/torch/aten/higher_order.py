"""Higher-order operators in graphs: conditions and loops, regions that are called, draws that a
checkpoint repeats, and effects.

A region is lowered where it is called. The graphs of a condition or a loop become separate
Programs, and the operator is a step of the host that runs PyTorch's, which decides the branch or
the number of iterations. Other operators are such steps too, with PyTorch's graphs."""

from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

from glasshouse.dispatch import Value
from glasshouse.torch.aten.checkpoint_draws import draw_with_key, is_ours
from glasshouse.torch.aten.draws import KEY
from glasshouse.torch.patches.trees import tree_map

ENTRIES: dict[str, Callable[..., Any]] = {}
# Operators that call their graphs with plain tensors; others call them under a transform.
CALLING = ("cond", "while_loop", "while_loop_stack_output", "scan", "map_impl")
numbers: Any = count()


class Subgraph:
    """A graph among the arguments of an operator, with a unique repr."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.number: int = next(numbers)

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def __repr__(self) -> str:
        return f"<graph {self.number}>"


def entry(*names: str) -> Callable[..., Any]:
    """A decorator that enters a function for these operators. It takes the lowering, the node, and
    the arguments."""

    def enter(lower: Callable[..., Any]) -> Callable[..., Any]:
        ENTRIES.update(dict.fromkeys(names, lower))
        return lower

    return enter


def call_higher_order(lowering: Any, node: FxNode, args: Any, named: dict[Any, Any]) -> Any:
    """The results of an operator on functions."""
    lower = ENTRIES.get(node.target.name(), by_pytorch)
    return lower(lowering, node, *args, **named)


def by_pytorch(lowering: Any, node: FxNode, *args: Any, **named: Any) -> Any:
    """The result of PyTorch's operator, computed in a step of the host.

    Raises: BackendError under GH_STRICT
    """
    name = node.target.name()
    lowering.refuse_if_strict(node, f"the operator on functions {name}")

    def callable_of(x):
        if not isinstance(x, torch.fx.GraphModule):
            return x
        return Subgraph(as_function(lowering.nested(x), x) if name in CALLING else x)

    arguments = tree_map(callable_of, (args, named))
    fakes = map_arg((node.args, node.kwargs), lambda x: x.meta.get("val"))
    return lowering.host_step(node.target, arguments, fakes, node.meta.get("val"))


def as_function(program: Callable[..., Any], graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """A Program as a function of tensors, with the results of its graph."""
    if program is graph:
        return graph
    (output,) = graph.graph.find_nodes(op="output")
    several = isinstance(output.args[0], (tuple, list))
    return lambda *args: tuple(program(list(args))) if several else program(list(args))[0]


@entry("invoke_subgraph")
def region(lowering: Any, node: FxNode, graph: Any, name: str, *operands: Any) -> Any:
    """The results of a region of `nested_compile_region`."""
    output = lowering.lower(graph, lambda x, number: lowering.values.update({x: operands[number]}))
    return map_arg(output.args[0], lowering.values.__getitem__)


@entry("with_effects")
def with_effects(
    lowering: Any, node: FxNode, token: Any, target: Any, *args: Any, **named: Any
) -> Any:
    """(token, results) of an operator that PyTorch calls for its effect, such as a check."""
    fakes = node.meta["val"][1:]
    fake = fakes[0] if len(fakes) == 1 else fakes
    result = lowering.without_entry(node, target, args, named, fake)
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return token, *parts


@entry("run_and_save_rng_state")
def draw_and_save(lowering: Any, node: FxNode, target: Any, *args: Any, **named: Any) -> Any:
    """(key, results) of an operator that draws, and whose draw is repeated later."""
    states = [user.meta.get("val") for user in node.users if user.args[1] == 0]
    if not all(map(is_ours, states)):
        raise LookupError("a draw whose state is to be PyTorch's")
    key = lowering.keys.key()
    fakes = map_arg((node.args[1:], node.kwargs), lambda x: x.meta.get("val"))
    return key, draw_with_key(key, target, (args, named), fakes)


@entry("run_with_rng_state")
def draw_again(lowering: Any, node: FxNode, key: Any, target: Any, *args: Any, **named: Any) -> Any:
    """The results of an operator that repeats an earlier draw."""
    if not isinstance(key, Value) or key.spec != KEY:
        raise LookupError("a draw whose state is PyTorch's")
    fakes = map_arg((node.args[2:], node.kwargs), lambda x: x.meta.get("val"))
    return draw_with_key(key, target, (args, named), fakes)
