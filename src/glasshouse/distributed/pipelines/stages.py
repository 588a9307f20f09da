"""Stages of a model: its graph, traced without storage, in pieces that pass tensors on."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from glasshouse.analyze.graph_profile import symbolic_profile
from glasshouse.base import OptionError, Spec, suggest
from glasshouse.ir import GraphModule, IRGraph
from glasshouse.ir.node import IRNode, map_nodes
from glasshouse.nn.module import Module

WHERE = "pipeline"


class PipelineStage(NamedTuple):
    """One stage: the arguments of the model that it reads, by number, the specs of its inputs from
    the stage before, its graph, and the specs of its outputs."""

    arguments: list[int]
    input_specs: list[Spec]
    graph: IRGraph
    output_specs: list[Spec]

    def module_of(self, model: Module) -> GraphModule:
        """Build the stage's module, with only the members of the traced model that it names."""
        return GraphModule(part_of(model, self.members()), self.graph)

    def members(self) -> list[str]:
        """The parameters, buffers and modules that it reads."""
        return [n.target for n in self.graph.nodes if n.op in ("get_attr", "call_module")]


def part_of(model: Module, paths: Sequence[str]) -> Module:
    """A module with the members of `model` at these paths, under their names."""
    part = Module()
    part.train(model.training)
    for path in sorted(dict.fromkeys(paths), key=lambda path: path.count(".")):
        *above, name = path.split(".")
        at, of = part, model
        for step in above:
            if at is of:  # the whole of it is there
                break
            of = of.get_submodule(step)
            if step not in at._modules:
                at.add_module(step, Module().train(of.training))
            at = at.get_submodule(step)
        if at is not of:
            copy_member(of, at, name)
    return part


def copy_member(of: Module, at: Module, name: str) -> None:
    """Give `at` the member of that name, a buffer with its kind."""
    for kind in ("_parameters", "_buffers", "_modules"):
        if name in of.__dict__[kind]:
            at.__dict__[kind][name] = of.__dict__[kind][name]
            if name in of._non_persistent_buffers_set:
                at._non_persistent_buffers_set.add(name)


def cut(module: GraphModule, starts: Sequence[str] | int) -> list[PipelineStage]:
    """Cut a traced model into stages: each begins where the module of such a name is first called;
    a number of stages is cut where their costs are balanced.

    Raises: OptionError for a module that is none or is never called, for stages in another order
        than they run, for more stages than modules, and where more than tensors would be passed on
    """
    if isinstance(starts, int):
        starts = balanced(module, starts)
    nodes = module.graph.nodes
    places = [place_of(module, name) for name in starts]
    if places != sorted(set(places)) or (places and not places[0]):
        expected = "modules in the order in which they run, each once, the first left out"
        raise OptionError(WHERE, f"split to name {expected}", list(starts), "Change their order.")
    stage_of: dict[IRNode, int] = {}
    for at, node in enumerate(nodes):
        stage = sum(place <= at for place in places)
        producers = [stage_of[n] for n in node.all_input_nodes if n.op not in FREE]
        stage_of[node] = max(producers, default=0) if node.writes else stage
    return [stage_at(nodes, stage_of, i, len(places) + 1) for i in range(len(places) + 1)]


FREE = ("placeholder", "get_attr")  # every stage that needs them reads them


def module_of(node: IRNode) -> str:
    """The name of the module that a node is in, or calls."""
    if node.op == "call_module":
        return node.target
    return node.meta.get("module", "").partition(".")[2]  # after the class of the whole model


def place_of(module: GraphModule, name: str) -> int:
    """The index of the first node in a module of that name; counting from the first node that
    computes, 0 is the beginning."""
    modules = dict(module.named_modules(remove_duplicate=False))
    if name not in modules or not name:
        fix = suggest(name, modules)
        raise OptionError(WHERE, "split to name modules of the model", repr(name), fix)
    first = None
    for at, node in enumerate(module.graph.nodes):
        if node.op in FREE:
            continue
        first = at if first is None else first
        path = module_of(node)
        if path == name or path.startswith(f"{name}."):
            return 0 if at == first else at
    raise OptionError(WHERE, "split to name modules that are called", repr(name), "Name others.")


def stage_at(
    nodes: list[IRNode], stage_of: dict[Any, Any], number: int, count: int
) -> PipelineStage:
    """One stage as a separate graph."""
    before, after = crossing(nodes, stage_of, number), crossing(nodes, stage_of, number + 1)
    body = [n for n in nodes if stage_of[n] == number and n.op not in (*FREE, "output")]
    last = number == count - 1
    readers = [*body, *((n for n in nodes if n.op == "output") if last else ())]
    read = {n for reader in readers for n in reader.all_input_nodes if n.op in FREE}
    graph, copies = IRGraph(), dict[IRNode, Any]()
    arguments = [n for n in nodes if n.op == "placeholder" and n in read]
    for node in (*arguments, *before):
        copies[node] = graph.placeholder(node.name)
    for node in (*(n for n in nodes if n.op == "get_attr" and n in read), *body):
        graph.copy_node(node, copies)
    result = nodes[-1].args[0] if last else tuple(after)
    graph.create_node("output", "output", (map_nodes(result, copies.__getitem__),), name="out")
    inputs = [n for n in nodes if n.op == "placeholder"]
    numbers = [inputs.index(node) for node in arguments]
    return PipelineStage(numbers, specs_of(before), graph, [] if last else specs_of(after))


def crossing(nodes: list[IRNode], stage_of: dict[Any, Any], number: int) -> list[IRNode]:
    """Values computed before a stage and read in it or after it."""
    return [
        node
        for node in nodes
        if node.op not in FREE
        and stage_of[node] < number
        and any(stage_of[user] >= number for user in node.users)
    ]


def specs_of(nodes: list[IRNode]) -> list[Spec]:
    """Raises: OptionError where one is no tensor"""
    for node in nodes:
        if not isinstance(node.meta.get("spec"), Spec):
            got = f"{node} of {node.meta.get('module') or 'the model'}"
            raise OptionError(WHERE, "tensors between stages", got, "Split in another place.")
    return [node.meta["spec"] for node in nodes]


def balanced(module: GraphModule, count: int) -> list[str]:
    """Modules at which `count` stages begin, chosen so that the slowest stage is as fast as
    possible by FLOPs and bytes. Cuts lie where the fewest tensors cross.

    Raises: OptionError for more stages than modules
    """
    nodes, names = module.graph.nodes, cut_places(module)
    arguments = [n.meta["spec"] for n in nodes if n.op == "placeholder"]
    costs = [row.forward_ns + row.backward_ns for row in symbolic_profile(module, *arguments)]
    if len(names) < count - 1:
        got = f"{len(names) + 1} modules in a row"
        raise OptionError(WHERE, f"modules for {count} stages", got, "Take fewer ranks.")
    ends = [0, *names, len(nodes)]
    pieces = [sum(costs[a:b]) for a, b in pairwise(ends)]
    return [names[ends[i]] for i in partition(pieces, count)]


def cut_places(module: GraphModule) -> dict[int, str]:
    """The modules at whose beginning the fewest tensors cross, by the index of their first node."""
    nodes, first = module.graph.nodes, dict[str, int]()
    modules = dict(module.named_modules(remove_duplicate=False))
    for at, node in enumerate(nodes):
        path = module_of(node)
        steps = path.split(".") if path and node.op not in FREE else []
        for depth in range(1, len(steps) + 1):
            if (name := ".".join(steps[:depth])) in modules:
                first.setdefault(name, at)
    last = {n: max((nodes.index(user) for user in n.users), default=0) for n in nodes}
    start = min((at for at, node in enumerate(nodes) if node.op not in FREE), default=0)
    crossing_at: dict[int, int] = {}
    for at in first.values():
        producers = (n for n in nodes[:at] if n.op not in FREE)
        crossing_at[at] = sum(last[n] >= at for n in producers)
    crossing_at.pop(start, None)
    fewest = min(crossing_at.values(), default=0)
    names = {at: name for name, at in reversed(first.items())}  # the outermost module of a place
    return {at: names[at] for at in sorted(crossing_at) if crossing_at[at] == fewest}


def partition(costs: list[float], count: int) -> list[int]:
    """Begins of the second and further of `count` runs of the costs, such that the dearest run is
    as cheap as possible."""
    sums = [0.0, *accumulate(costs)]
    best: dict[int, Any] = {0: (0.0, [])}  # by the number of costs that the runs so far cover
    for run in range(1, count + 1):
        best = {
            end: min(
                (max(most, sums[end] - sums[begin]), [*starts, begin])
                for begin, (most, starts) in best.items()
                if begin < end
            )
            for end in range(run, len(costs) - (count - run) + 1)
        }
    return best[len(costs)][1][1:]
