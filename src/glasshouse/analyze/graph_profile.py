"""Symbolic profile: a table of the cost of each node of a traced model, before it runs.

`OwnGraph` runs our graphs for `NodeProfiler`: the tape has the values that a node saves."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from glasshouse.analyze.cost_table import CostTable, NodeCost
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.meta import meta_backend, placed, specs_in, without_storage
from glasshouse.analyze.node_profile import NodeProfiler, ProfiledGraph
from glasshouse.analyze.torch_models import is_torch_module
from glasshouse.analyze.trace import functions, result_of_rule
from glasshouse.autograd.backward import pull_back
from glasshouse.autograd.tape import Leaf
from glasshouse.base import OptionError, Spec, check_known, having, type_name
from glasshouse.base.upper_storeys import offered
from glasshouse.dispatch import Value, full, primitives, state
from glasshouse.graph.node import Node
from glasshouse.ir.graph_module import GraphModule, Interpreter
from glasshouse.ir.node import IRNode, all_of, map_nodes, target_name
from glasshouse.nn.module import Parameter
from glasshouse.profile import FlopCounter
from glasshouse.tensor import Tensor

VIEWS = ("reshape", "permute", "expand", "slice", "flip", "windows")
UNSTORED = ("full", "iota", "constant")
CONVENTIONS = ("exact", "colossal")
WHERE = "symbolic_profile"


class OwnGraph(ProfiledGraph, Interpreter):
    """A graph of ours, that runs on tensors without storage."""

    is_colossal: bool
    profiler: NodeProfiler

    parameter_type = Parameter

    def __init__(self, module: GraphModule, is_colossal: bool, machine: MachineProfile) -> None:
        super().__init__(module)
        self.is_colossal, self.profiler = is_colossal, NodeProfiler(self, machine)
        self.unknown: list[str] = []  # nodes of which only the shape is known
        members = (*module.parameters(), *module.buffers())
        self.member_ids: set[int] = {id(x.payload) for x in members}

    @staticmethod
    def argument_names(module: GraphModule) -> list[str]:
        """The names of the arguments that a graph needs."""
        return [node.target for node in module.graph.find("placeholder") if not node.args]

    @staticmethod
    @contextmanager
    def without_contents(module: GraphModule, is_colossal: bool) -> Iterator[Callable[..., Any]]:
        """Inside, a model has no storage; yields a function that makes arguments so."""
        backend = meta_backend()

        def place(x):
            return map_nodes(specs_in(WHERE, x), lambda spec: placed(spec, backend), Spec)

        with having(state, backend=backend), without_storage(module, None, backend):
            yield place

    def run_node(self, node: IRNode) -> Any:
        operands = [x for n in node.all_input_nodes for x in all_of(Value, self.env[n])]
        return self.profiler.run(node, super().run_node, operands)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a registered function by its shape rule."""
        rule = functions.get(target)
        if rule is None:
            return super().call_function(target, args, kwargs)
        self.unknown.append(next(reversed(self.profiler.costs.values())).name)
        return result_of_rule(WHERE, rule, *args, **kwargs)

    # -- interface of NodeProfiler --------------------------------------------------------------

    def row(self, node: IRNode) -> NodeCost:
        spec, names = node.meta.get("spec"), (node.name, node.op, target_name(node.target))
        place = node.meta.get("module", ""), node.meta.get("line", "")
        return NodeCost(*names, *place, "" if spec is None else str(spec))

    def tensors_in(self, value: Any) -> list[Tensor]:
        return all_of(Value, value)

    def run_saving(
        self,
        compute: Callable[..., Any],
        node: IRNode,
        operands: list[Any],
        save: Callable[..., Any],
    ) -> Any:
        value = compute(node)
        places = tape_below(self.tensors_in(value))
        statistics = self.is_colossal and operands and statistics_of(self, node)
        if statistics and places:  # there a normalisation saves its operand and two numbers a row
            root, places = storage(operands[0].payload), []
            save(id(root), root.spec.nbytes)
            save(-id(node), statistics)
        for place in places:
            for data in (*place.saved, *place.saved_out) if hasattr(place, "saved") else ():
                root = storage(data)
                if (
                    root is not None
                    and id(data) not in self.member_ids
                    and id(root) not in self.member_ids
                ):
                    save(id(root), root.spec.nbytes)
        return value

    def new_storages(
        self, results: list[Any], operands: list[Any], saved: dict[Any, Any]
    ) -> dict[Hashable, int]:
        before = {id(storage(x.payload)) for x in operands}
        roots = [root for x in results if (root := storage(x.payload)) is not None]
        return {id(root): root.spec.nbytes for root in roots if id(root) not in before}

    def pull(self, node: IRNode, results: list[Any], operands: list[Any]) -> int:
        gradients = 0
        if outputs := [x for x in results if x.tape_entry is not None]:
            reached = (place.tensor() for place in tape_below(outputs) if isinstance(place, Leaf))
            inputs = [x for x in reached if x is not None]
            seeds = [full(x.shape, 0, x.dtype) for x in outputs]
            pull_back(WHERE, outputs, inputs, seeds, True, False)
            ids = {id(x) for x in operands if not isinstance(x, Parameter)}
            gradients = sum(x.nbytes for x in inputs if id(x) in ids)
        if self.is_colossal:
            return sum(x.nbytes for x in operands if not isinstance(x, Parameter))
        return gradients

    def flops(
        self, node: IRNode, forward: FlopCounter, backward: FlopCounter, operands: list[Any]
    ) -> tuple[int, int]:
        if self.is_colossal:
            return colossal_flops(self, node, forward, backward, operands)
        return super().flops(node, forward, backward, operands)

    def module_parameters(self, node: IRNode) -> list[Any]:
        return list(self.module.member(node.target).parameters())

    def detached(self, value: Tensor) -> Any:
        return map_nodes(value, alone, Value)


def storage(data: Node | None) -> Any:
    """Payload whose memory a payload views; None where it needs no memory."""
    while data is not None and getattr(data, "value", None) is None and data.inputs:
        if data.op not in VIEWS:
            return data
        data = data.inputs[0]
    call = getattr(data, "call", None)
    return None if call is not None and call.name in UNSTORED else data


def alone(x: Tensor) -> Tensor:
    """The same value as the start of a separate tape."""
    if isinstance(x, Parameter) or x.tape_entry is None:
        return x
    return x.detach().requires_grad_()


def tape_below(outputs: Any) -> list[Any]:
    """Nodes and leaves of the tape on which outputs depend."""
    reached: dict[int, Any] = {}
    stack = [x.tape_entry for x in outputs if x.tape_entry is not None]
    while stack:
        place = stack.pop()
        if id(place) not in reached:
            reached[id(place)] = place
            parents = () if isinstance(place, Leaf) else place.parents
            stack += [parent[0] for parent in parents if parent is not None]
    return list(reached.values())


# -- ColossalAI's convention --------------------------------------------------------------------

# Take 5 operations for each element of the first operand, forward and backward. Source: its
# formulas, with a multiply-add as 1.
NORMS = ("LayerNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm")
POOLS = ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool")
ATTENTION = ("MultiheadAttention", "ScaledDotProductAttention")


def colossal_flops(
    graph: OwnGraph, node: IRNode, forward: Any, backward: Any, operands: Any
) -> tuple[int, int]:
    macs = tuple(counter.total() // 2 for counter in (forward, backward))
    size = prod(operands[0].shape) if operands else 0
    layer = graph.module.member(node.target) if node.op == "call_module" else None
    words = target_name(node.target).split("_")  # those of "layer_norm" are those of LayerNorm
    name = type(layer).__name__ if layer else "".join(map(str.title, words))
    if name.startswith(POOLS):
        return size, prod(node.meta["spec"].shape)
    if name in ATTENTION:  # softmax beside the products: read and written, 4 bytes each
        scores = sum(row.bytes // 8 for row in forward.rows("all") if row.primitive == "exp")
        return macs[0] + scores, macs[1] + scores
    kinds = {primitives[row.primitive].kind for row in forward.rows("all")}
    if any(macs) or kinds <= {"movement", "create"} or name == "Dropout" and layer and layer.p == 0:
        return macs
    each = 5 if name in NORMS else 1
    if layer and name.endswith("Norm") and getattr(layer, "weight", None) is None:
        each = 4
    return each * size, each * size


def statistics_of(graph: OwnGraph, node: IRNode) -> int:
    """Bytes of the means and deviations that ATen's normalisations save; 0 for other nodes."""
    layer = graph.module.member(node.target) if node.op == "call_module" else None
    if not type(layer).__name__.startswith(("LayerNorm", "BatchNorm")):
        return 0
    spec = node.meta["spec"]
    shape = getattr(layer, "normalized_shape", None)
    row = prod(shape) if shape else spec.size // spec.shape[1]
    return 2 * 4 * spec.size // row


def symbolic_profile(
    gm: GraphModule,
    *args: Any,
    verbose: bool = False,
    convention: str = "exact",
    machine: MachineProfile | str = "cpu2",
) -> CostTable:
    """The cost table of a traced model: one row per node, for the given argument shapes.

    Arguments are tensors, Specs or (shape, dtype). Each row is also stored in its node's
    `meta["cost"]`.

    convention  "exact", or "colossal": ColossalAI's columns, with a multiply-add as 1
    verbose     print the table

    Raises: OptionError for an unknown convention, or a module that was not traced
    Example:
        >>> import glasshouse as gh
        >>> from glasshouse.analyze import symbolic_trace
        >>> spec = ((8, 4), "float32")
        >>> gm = symbolic_trace(gh.nn.Sequential(gh.nn.Linear(4, 2)), [spec])
        >>> cost_table = symbolic_profile(gm, spec)
        >>> cost_table.total("forward_flops"), cost_table.total("param")
        (144, 40)
    """
    check_known(WHERE, f"one of {', '.join(CONVENTIONS)}", convention, CONVENTIONS)
    profile, is_colossal = MachineProfile.load(machine), convention == "colossal"
    if is_torch_module(gm) and hasattr(gm, "graph"):
        graph_type: type[Any] = offered("torch", "graph")
    elif isinstance(gm, GraphModule):
        graph_type = OwnGraph
    else:
        raise OptionError(WHERE, "a traced module", type_name(gm), "Use symbolic_trace.")
    names = graph_type.argument_names(gm)
    if len(args) != len(names) and "*" not in "".join(names):
        expected = f"{len(names)} arguments ({', '.join(names)})"
        raise OptionError(WHERE, expected, len(args), "Give what was traced, in order.")
    with graph_type.without_contents(gm, is_colossal) as place:
        graph = graph_type(gm, is_colossal, profile)
        graph.run(*map(place, args))
    cost_table = CostTable(graph.profiler.rows(), convention, graph.unknown)
    for node, cost in graph.profiler.costs.items():
        node.meta["cost"] = cost
    if verbose:
        print(cost_table)
    return cost_table
