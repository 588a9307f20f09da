"""Which backward passes of a captured graph go through which of its calls.

What AOTAutograd compiles is one node of autograd: a backward pass runs all of it, once, and gives
zeros where eager gives no gradient at all. So calls are compiled together only if the same passes
go through them."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from glasshouse.ir.node import IRNode
from glasshouse.torch.front.effects import written_places
from glasshouse.torch.front.names import AUTOGRAD
from glasshouse.torch.front.numbers import memory

Passes = frozenset[IRNode]


def is_pass(node: IRNode) -> bool:
    """Whether a call is a backward pass."""
    return node.target == "backward" or node.target in AUTOGRAD


def passes_through(nodes: list[IRNode], writes: Callable[[IRNode], bool]) -> dict[IRNode, Passes]:
    """The passes that go through each call which has a gradient; none of them, where results of the
    graph depend on it and no pass does. What is not there has no gradient, or is not needed.
    `writes` says of a call that it may write to a tensor.

    A graph without a pass is differentiated outside: each of its results stands for a pass from
    there, and for those from results that need fewer of the graph's inputs."""
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
    """The results of which none needs all inputs that another needs, with what these depend on."""
    inputs = {x: frozenset(n for n in own if is_input(n)) for x, own in reached.items()}
    kept: dict[IRNode, set[IRNode]] = {}
    for x in sorted(reached, key=lambda x: len(inputs[x]), reverse=True):
        whole = next((k for k in kept if inputs[k] >= inputs[x]), x)
        kept[whole] = kept.get(whole, set()) | reached[x]
    return kept


def is_input(node: IRNode) -> bool:
    """Whether a node is what a graph is given."""
    return not node.op.startswith("call_")


def has_gradient(node: IRNode) -> bool:
    """Whether a gradient may go through a call."""
    return node.meta.get("requires_grad", True)


def dependencies(
    starts: Iterable[IRNode], writers: dict, follows: Callable[[IRNode], bool]
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
