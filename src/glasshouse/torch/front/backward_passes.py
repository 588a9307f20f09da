"""The backward passes through each call of a captured graph.

A graph that AOTAutograd compiles is one autograd node: a backward pass runs all of it, once, and
returns zeros where eager returns no gradient. So calls are compiled together only if the same
passes go through them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from glasshouse.ir.node import IRNode
from glasshouse.torch.front.effects import written_places
from glasshouse.torch.front.names import AUTOGRAD
from glasshouse.torch.front.numbers import memory

Passes = frozenset[IRNode]


def is_pass(node: IRNode) -> bool:
    """Whether a call is a backward pass."""
    return node.target == "backward" or node.target in AUTOGRAD


def passes_through(nodes: list[IRNode], writes: Callable[[IRNode], bool]) -> dict[IRNode, Passes]:
    """For each call with a gradient, the passes through it; an empty set where only results of the
    graph depend on it. Other calls have no gradient, or are not needed. `writes` says whether a
    call may write to a tensor.

    A graph without a pass is differentiated outside. Each of its results then counts as one pass,
    with the results that need fewer of the graph's inputs."""
    writers = defaultdict(list)
    for node in filter(writes, nodes):
        for place in () if is_pass(node) else written_places(node.target) or (0,):
            if len(node.args) > place and isinstance(node.args[place], IRNode):
                writers[memory(node.args[place])].append(node)
    passes = [node for node in nodes if is_pass(node)]
    through: dict[IRNode, Passes] = {}
    for node in dependencies(results_of(nodes), writers, lambda node: True):
        if has_gradient(node):
            through[node] = frozenset()
    reached = {each: dependencies(each.all_input_nodes, writers, has_gradient) for each in passes}
    if not passes:
        results = [x for x in results_of(nodes) if x.meta.get("requires_grad")]
        reached = outside_passes({x: dependencies([x], writers, has_gradient) for x in results})
    for each, nodes_of_pass in reached.items():
        for node in nodes_of_pass:
            through[node] = through.get(node, frozenset()) | {each}
    return through


def results_of(nodes: list[IRNode]) -> list[IRNode]:
    """The results of a graph."""
    return [x for node in nodes if node.op == "output" for x in node.all_input_nodes]


def outside_passes(reached: dict[IRNode, set[IRNode]]) -> dict[IRNode, set[IRNode]]:
    """Results as passes, with the nodes that they depend on: a result joins another one that needs
    all of its inputs."""
    inputs = {x: frozenset(n for n in nodes if is_input(n)) for x, nodes in reached.items()}
    passes: dict[IRNode, set[IRNode]] = {}
    for x in sorted(reached, key=lambda x: len(inputs[x]), reverse=True):
        whole = next((k for k in passes if inputs[k] >= inputs[x]), x)
        passes[whole] = passes.get(whole, set()) | reached[x]
    return passes


def is_input(node: IRNode) -> bool:
    """Whether a node is an input of the graph, no call."""
    return not node.op.startswith("call_")


def has_gradient(node: IRNode) -> bool:
    """Whether a gradient may go through a call."""
    return node.meta.get("requires_grad", True)


def dependencies(
    starts: Iterable[IRNode], writers: dict[Any, Any], follows: Callable[[IRNode], bool]
) -> set[IRNode]:
    """The nodes that some nodes depend on, themselves included: operands, and writers to these."""
    reached: set[IRNode] = set()
    waiting = [*starts]
    while waiting:
        node = waiting.pop()
        if node not in reached and follows(node):
            reached.add(node)
            waiting += node.all_input_nodes
            waiting += writers.get(node.meta.get("memory", node), ())
    return reached
