"""Node profiler: the forward and backward cost of each node of a traced graph, before it runs.

Each node runs alone on tensors without contents, with gradients. The profiler records which
storages it saves for backward, each once, and the FLOP counter counts both passes. A
`ProfiledGraph` adapts one library's graphs and tensors: ours in `graph_profile`, PyTorch's in
`torch/ahead/node_costs`."""

from collections.abc import Callable, Hashable
from typing import Any

from glasshouse.analyze.cost_table import NodeCost
from glasshouse.analyze.machine import MachineProfile
from glasshouse.dispatch.call import Call
from glasshouse.ir import IRNode
from glasshouse.profile.counter import FlopCounter

PLACES = ("placeholder", "get_attr", "output")  # nodes that compute nothing


class ProfiledGraph:
    """A library's graph, which can run node by node, and the facts about its tensors."""

    keeps_results: bool = True  # whether a result once saved counts at each later node
    parameter_type: type[Any]

    is_colossal: bool

    def row(self, node: Any) -> NodeCost:
        """The row of a node, with its names and no number yet."""
        raise NotImplementedError

    def tensors_in(self, value: Any) -> list[Any]:
        """Tensors in a node's result."""
        raise NotImplementedError

    def counter(self) -> FlopCounter:
        """Context that counts the calls inside."""
        return FlopCounter()

    def run_saving(
        self, compute: Callable[..., Any], node: Any, operands: list[Any], save: Callable[..., Any]
    ) -> Any:
        """Run a node and return its value; `save` is called with each storage saved for backward,
        and its bytes."""
        raise NotImplementedError

    def new_storages(
        self, results: list[Any], operands: list[Any], saved: dict[Any, Any]
    ) -> dict[Hashable, int]:
        """Bytes of each storage that results have and operands lack."""
        raise NotImplementedError

    def pull(self, node: Any, results: list[Any], operands: list[Any]) -> int:
        """Run the backward pass of a node alone; returns the bytes of its operands' gradients."""
        raise NotImplementedError

    def flops(
        self, node: IRNode, forward: FlopCounter, backward: FlopCounter, operands: list[Any]
    ) -> tuple[int, int]:
        """FLOPs of both passes."""
        return forward.total("all"), backward.total("all")

    def is_kernel(self, call: Call) -> bool:
        """Whether a counted call takes time."""
        return True

    def module_parameters(self, node: Any) -> list[Any]:
        """The parameters of the module that a node calls."""
        raise NotImplementedError

    def detached(self, value: Any) -> Any:
        """The same value as the start of a separate graph."""
        raise NotImplementedError


class NodeProfiler:
    """Records the cost of each node while a graph runs: its interpreter calls `run` for each."""

    def __init__(self, graph: ProfiledGraph, machine: MachineProfile) -> None:
        self.graph = graph
        self.machine = machine
        self.costs: dict[Any, NodeCost] = {}
        self.saved: dict[Hashable, int] = {}  # bytes by storage
        self.saved_by: dict[Any, dict[Hashable, int]] = {}  # those of a node's backward pass
        self.new_bytes: dict[Any, dict[Hashable, int]] = {}
        self.alive: list[Any] = []  # values, so that storages stay theirs

    def run(self, node: IRNode, compute: Callable[..., Any], operands: list[Any]) -> Any:
        """Run a node and return its value, cut off from the nodes before it."""
        graph = self.graph
        saved: dict[Hashable, int] = {}
        cost = self.costs[node] = graph.row(node)
        self.saved_by[node], self.new_bytes[node] = saved, {}
        if node.op in PLACES:
            value = compute(node)
            if node.op == "placeholder":
                self.new_bytes[node] = graph.new_storages(graph.tensors_in(value), [], self.saved)
            return value

        def save(storage: Hashable, nbytes: int) -> None:
            self.saved[storage] = saved[storage] = nbytes

        with graph.counter() as forward:
            value = graph.run_saving(compute, node, operands, save)
        self.alive.append(value)
        results = graph.tensors_in(value)
        self.new_bytes[node] = graph.new_storages(results, operands, self.saved)
        with graph.counter() as backward:
            cost.backward = graph.pull(node, results, operands)
        self.count_work(node, cost, (forward, backward), operands)
        read = [x for x in operands if isinstance(x, graph.parameter_type)]
        if node.op == "call_module":
            read += graph.module_parameters(node)
        cost.param = sum({id(p): p.nbytes for p in read}.values())
        return graph.detached(value)

    def count_work(
        self, node: Any, cost: NodeCost, counters: tuple[Any, Any], operands: list[Any]
    ) -> None:
        """Add FLOPs of both passes; bytes and time of the calls that the FLOP counter saw."""
        cost.forward_flops, cost.backward_flops = self.graph.flops(node, *counters, operands)
        if all(isinstance(counter, FlopCounter) for counter in counters):
            cost.forward_bytes, cost.backward_bytes = (counter.bytes for counter in counters)
            cost.forward_ns, cost.backward_ns = map(self.ns_of, counters)

    def ns_of(self, counter: FlopCounter) -> float:
        """Ns of the counted calls, each as a separate kernel."""
        counter.digest()
        counts = counter.counts.items()
        is_kernel, ns_of_call = self.graph.is_kernel, self.machine.ns_of_call
        return sum(n * ns_of_call(call) for (call, _), (n,) in counts if is_kernel(call))

    def rows(self) -> list[NodeCost]:
        """Rows. A saved storage counts where it was made, or else where it was first saved."""
        counted: dict[Hashable, int] = {}
        total = before = 0  # bytes in `counted`; saved up to the node before
        for node, cost in self.costs.items():
            new, saved = self.new_bytes[node], self.saved_by[node]
            outputs = {key: self.saved[key] for key in new if key in self.saved}
            total += sum(nbytes - counted.get(key, 0) for key, nbytes in saved.items())
            counted |= saved
            others = {key: nbytes for key, nbytes in outputs.items() if key not in counted}
            cost.output = sum(outputs.values())
            cost.temp = sum(nbytes for key, nbytes in new.items() if key not in outputs)
            cost.accumulate = total + sum(others.values())
            cost.incremental, before = cost.accumulate - before, cost.accumulate
            if self.graph.keeps_results:
                counted |= others
                total = cost.accumulate
        rows = list(self.costs.values())
        if self.graph.is_colossal and rows:  # the first row shows no increment there
            rows[0].incremental = 0
        return rows
