"""Numbers that only a run knows in captured graphs: learning rates, and numbers in tensors.
Compilers take them as tensors without axes, which are computed before the calls that read them."""

from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from glasshouse.ir.node import IRNode
from glasshouse.torch.front.effects import draws, written_places
from glasshouse.torch.front.names import name_of
from glasshouse.torch.scopes.module_scope import placed_as
from glasshouse.torch.tensors.layout import overlaps_itself

# Calls that multiply by a number or add it, and how many arguments they take.
SCALING = dict.fromkeys(("add", "sub", "mul", "div", "truediv", "true_divide"), 2)
SCALING |= dict.fromkeys(("lerp", "addcmul", "addcdiv"), 3)
FACTORS = ("alpha", "value")
numbers: Any = count()  # of storages: an address may be reused


def is_number(node: IRNode) -> bool:
    """Whether a node is a number that may change in a later run."""
    return bool(node.meta.get("number") or node.meta.get("hidden"))


def numbers_of(node: IRNode) -> list[IRNode]:
    """The inputs of a call that are such numbers."""
    return [x for x in node.all_input_nodes if is_number(x)]


def note_inputs(nodes: list[IRNode], example_inputs: list[Any]) -> None:
    """Note the facts of a graph's inputs in their `meta`."""
    placeholders = (node for node in nodes if node.op == "placeholder")
    for node, x in zip(placeholders, example_inputs, strict=True):
        if isinstance(x, torch.Tensor):
            node.meta.update(tensor_facts(x))


def tensor_facts(tensor: torch.Tensor) -> dict[Any, Any]:
    """The facts of a tensor that its node's `meta` has."""
    return {
        "dtype": tensor.dtype,
        "memory": memory_of(tensor),
        "overlaps": overlaps_itself(tensor),
        "requires_grad": tensor.requires_grad,
    }


def takes_tensors(node: IRNode) -> bool:
    """Whether a call takes tensors without axes in place of its numbers: it scales tensors of one
    dtype by them, or adds them."""
    count = SCALING.get(name_of(node.target).rstrip("_").removeprefix("i"))
    plain = len(node.args) == count and node.kwargs.keys() <= set(FACTORS)
    operands = [x for x in node.all_input_nodes if not is_number(x)]
    if not plain or node.args[0] not in operands:
        return False
    dtypes = {x.meta.get("dtype") for x in operands}
    dtypes.add(node.meta.get("dtype", node.args[0].meta.get("dtype")))  # a write has no new one
    return dtypes in ({torch.float32}, {torch.float64})


def add_scaling(
    graph: torch.fx.Graph, new_nodes: dict[Any, Any], node: IRNode, given_as: torch.dtype
) -> None:
    """Add a call whose numbers are tensors of a dtype."""
    dtype = node.args[0].meta["dtype"]

    def operand(x):
        if not isinstance(x, IRNode):
            return x
        fits = dtype is given_as or not is_number(x)
        return new_nodes[x] if fits else graph.call_method("to", (new_nodes[x], dtype))

    with placed_as(node, graph):
        args = [operand(x) for x in node.args]
        for name in FACTORS:
            if name in node.kwargs:
                args[1] = graph.call_function(torch.mul, (args[1], operand(node.kwargs[name])))
        new_nodes[node] = graph.create_node(node.op, node.target, tuple(args), {}, node.name)
    new_nodes[node].meta["dtype"] = dtype


# -- numbers first ---------------------------------------------------------------------------------


def numbers_first(
    nodes: list[IRNode], is_left: Callable[..., Any], writes: Callable[..., Any]
) -> list[IRNode]:
    """The calls of a graph in an order that computes numbers in tensors as early as possible, so
    that the calls that read them stand together. `is_left` says whether no compiler takes a call,
    `writes` whether it may write to a tensor."""
    ordered, run = [], []
    for node in nodes:
        if node.op.startswith("call_") and (node.meta.get("hidden") or not is_left(node)):
            run.append(node)
            continue
        ordered += [*numbers_first_in(run, writes), node]
        run = []
    return [*ordered, *numbers_first_in(run, writes)]


def numbers_first_in(run: list[IRNode], writes: Callable[..., Any]) -> list[IRNode]:
    """`numbers_first` of consecutive calls; unchanged where they may depend on their order."""
    if any(set(written_places(node.target)) - {0} for node in run):  # `memory` knows the first only
        return run
    early = {node for node in run if node.meta.get("hidden")}
    sources = {memory(x) for node in early for x in node.all_input_nodes if not is_number(x)}
    inside = set(run)
    waiting = [*early, *(node for node in run if writes(node) and memory(node) in sources)]
    early.update(waiting)
    while waiting:
        more = [x for x in waiting.pop().all_input_nodes if x in inside and x not in early]
        waiting += more
        early.update(more)
    tensors = [node for node in early if not node.meta.get("hidden")]
    late = [node for node in run if node not in early]
    touched = {memory(x) for node in tensors for x in (node, *node.all_input_nodes)} | sources
    late_writes = {memory(node) for node in late if writes(node)}
    read = {memory(x) for node in late for x in node.all_input_nodes if not is_number(x)}
    changed = {memory(node) for node in tensors if writes(node)}
    is_random = any(draws(node.target, node.args) for node in tensors)
    if None in touched | late_writes or touched & late_writes or changed & read or is_random:
        return run
    return [*(node for node in run if node in early), *late]


def memory(node: IRNode) -> int | None:
    """The memory of a tensor, or the memory that a call writes to; None where it is unknown."""
    if "memory" in node.meta:
        return node.meta["memory"]
    first = node.args[0] if node.args else None
    return memory(first) if isinstance(first, IRNode) else None


def memory_of(tensor: torch.Tensor) -> int | None:
    """A unique number of a tensor's memory, also after the tensor is freed; None for a tensor
    without strided memory."""
    if tensor.layout is not torch.strided:
        return None
    attributes = tensor.untyped_storage().__dict__
    if "_gh_number" not in attributes:
        attributes["_gh_number"] = next(numbers)
    return attributes["_gh_number"]
