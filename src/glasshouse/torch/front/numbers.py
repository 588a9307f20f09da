"""Calls of captured graphs that are given numbers which only a run knows: rates, and what tensors
hold. Compilers take tensors without axes in their place, computed before what they are given to."""

from itertools import count

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
numbers = count()  # of storages: an address may be another one's later


def is_number(node: IRNode) -> bool:
    """Whether a node is a number that may be another one in a later run."""
    return bool(node.meta.get("number") or node.meta.get("hidden"))


def numbers_of(node: IRNode) -> list[IRNode]:
    """The inputs of a call that are such numbers."""
    return [x for x in node.all_input_nodes if is_number(x)]


def note_inputs(nodes, example_inputs: list) -> None:
    """Note the facts of a graph's inputs, as those of its calls are."""
    placeholders = (node for node in nodes if node.op == "placeholder")
    for node, x in zip(placeholders, example_inputs, strict=True):
        if isinstance(x, torch.Tensor):
            node.meta.update(tensor_facts(x))


def tensor_facts(tensor: torch.Tensor) -> dict:
    """The facts of a tensor that its node's `meta` has."""
    return {
        "dtype": tensor.dtype,
        "memory": memory_of(tensor),
        "overlaps": overlaps_itself(tensor),
        "requires_grad": tensor.requires_grad,
    }


def takes_tensors(node: IRNode) -> bool:
    """Whether tensors without axes may stand for the numbers that a call is given: it multiplies
    tensors of one dtype by them, or adds to these."""
    count = SCALING.get(name_of(node.target).rstrip("_").removeprefix("i"))
    plain = len(node.args) == count and node.kwargs.keys() <= set(FACTORS)
    operands = [x for x in node.all_input_nodes if not is_number(x)]
    if not plain or node.args[0] not in operands:
        return False
    dtypes = {x.meta.get("dtype") for x in operands}
    dtypes.add(node.meta.get("dtype", node.args[0].meta.get("dtype")))  # a write gives no new one
    return dtypes in ({torch.float32}, {torch.float64})


def add_scaling(graph: torch.fx.Graph, made: dict, node: IRNode, given_as: torch.dtype) -> None:
    """A call that is given numbers, with tensors of a dtype in their place."""
    dtype = node.args[0].meta["dtype"]

    def operand(x):
        if not isinstance(x, IRNode):
            return x
        fits = dtype is given_as or not is_number(x)
        return made[x] if fits else graph.call_method("to", (made[x], dtype))

    with placed_as(node, graph):
        args = [operand(x) for x in node.args]
        for name in FACTORS:
            if name in node.kwargs:
                args[1] = graph.call_function(torch.mul, (args[1], operand(node.kwargs[name])))
        made[node] = graph.create_node(node.op, node.target, tuple(args), {}, node.name)
    made[node].meta["dtype"] = dtype


# -- numbers first ---------------------------------------------------------------------------------


def numbers_first(nodes: list[IRNode], is_left, writes) -> list[IRNode]:
    """The calls of a graph in an order in which numbers that tensors hold are computed as early as
    they can be: what they are given to then stands together. `is_left` and `writes` say of a call
    that no compiler takes it, and that it may write to a tensor."""
    ordered, run = [], []
    for node in nodes:
        if node.op.startswith("call_") and (node.meta.get("hidden") or not is_left(node)):
            run.append(node)
            continue
        ordered += [*numbers_first_in(run, writes), node]
        run = []
    return [*ordered, *numbers_first_in(run, writes)]


def numbers_first_in(run: list[IRNode], writes) -> list[IRNode]:
    """The same for calls that stand together; as they were where they may depend on their order."""
    if any(set(written_places(node.target)) - {0} for node in run):  # `memory` tells of the first
        return run
    early = {node for node in run if node.meta.get("hidden")}
    held = {memory(x) for node in early for x in node.all_input_nodes if not is_number(x)}
    inside = set(run)
    waiting = [*early, *(node for node in run if writes(node) and memory(node) in held)]
    early.update(waiting)
    while waiting:
        more = [x for x in waiting.pop().all_input_nodes if x in inside and x not in early]
        waiting += more
        early.update(more)
    tensors = [node for node in early if not node.meta.get("hidden")]
    late = [node for node in run if node not in early]
    touched = {memory(x) for node in tensors for x in (node, *node.all_input_nodes)} | held
    written = {memory(node) for node in late if writes(node)}
    read = {memory(x) for node in late for x in node.all_input_nodes if not is_number(x)}
    changed = {memory(node) for node in tensors if writes(node)}
    is_random = any(draws(node.target, node.args) for node in tensors)
    if None in touched | written or touched & written or changed & read or is_random:
        return run
    return [*(node for node in run if node in early), *late]


def memory(node: IRNode) -> int | None:
    """The memory of a tensor, or that which a call writes to; None where it is not known."""
    if "memory" in node.meta:
        return node.meta["memory"]
    first = node.args[0] if node.args else None
    return memory(first) if isinstance(first, IRNode) else None


def memory_of(tensor: torch.Tensor) -> int | None:
    """A number that tells the memory of tensors apart, of those too that are gone by now; None
    where a tensor has none of its own."""
    if tensor.layout is not torch.strided:
        return None
    own = tensor.untyped_storage().__dict__
    if "_gh_number" not in own:
        own["_gh_number"] = next(numbers)
    return own["_gh_number"]
