"""One graph of a function, with the inputs of its signature and its result."""

import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.program import Guard
from glasshouse.capture.values.var import ValueSource, Var
from glasshouse.ir import GraphModule, IRGraph, IRNode
from glasshouse.nn.module import Module

if TYPE_CHECKING:
    from glasshouse.capture.fronts.glasshouse_front import GlasshouseFront
    from glasshouse.capture.sessions.entries import EntryInfo


class ExportedTrace:
    """The record of a capture for `export`: the graph, (source, value) of its inputs, the arguments
    by name, the result and the guards."""

    def __init__(
        self,
        entry: "EntryInfo",
        inputs: dict[IRNode, tuple[Any, ...]],
        arguments: dict[str, Any],
        outcome: Var,
    ) -> None:
        self.graph: GraphModule = entry.graph
        self.guards: list[Guard] = entry.guards
        self.inputs = inputs
        self.arguments = arguments
        self.outcome = outcome


class ExportedGraph:
    """Makes a graph module of a trace. It has a placeholder for each tensor among the arguments, in
    the order of the signature, used or not. Other tensors belong to the module."""

    def __init__(self, trace: ExportedTrace, fn: Any, front: "GlasshouseFront") -> None:
        self.trace = trace
        self.front = front
        self.graph: IRGraph = IRGraph()
        self.constants: dict[str, Any] = {
            name: x for name, x in trace.graph.__dict__.items() if front.is_tensor(x)
        }
        self.new: dict[IRNode, IRNode] = {}
        self.arguments: dict[str, IRNode] = {}  # by source
        names = module_names(fn, trace.arguments) if isinstance(fn, Module) else {}
        for source, value in leaves_of(trace.arguments):
            if front.is_tensor(value):
                self.arguments[source] = self.graph.placeholder(names.get(source, source))

    def build(self) -> GraphModule:
        for node in self.trace.graph.graph:
            if node.op == "placeholder":
                self.new[node] = self.input_node(node)
            elif node.op != "output":
                self.graph.copy_node(node, self.new)
        self.graph.output(self.operand(self.trace.outcome))
        return GraphModule(self.trace.graph, self.graph, self.constants)

    def input_node(self, node: IRNode) -> IRNode:
        """An input: an argument, a constant tensor, or a number that varies."""
        source, value = self.trace.inputs[node]
        if source in self.arguments:
            return self.arguments[source]
        if not self.front.is_tensor(value):
            return self.graph.copy_node(node, self.new)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return self.graph.get_attr(name)

    def operand(self, var: Var) -> Any:
        """A result as the operand of an output node."""
        origin, value = var.origin, var.value
        if isinstance(origin, IRNode):
            return self.new[origin]
        if isinstance(origin, ValueSource) and origin.text in self.arguments:
            return self.arguments[origin.text]
        if isinstance(value, (list, tuple)) and var.items is not None:
            items = [self.operand(x) for x in var.items]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if type(value) is dict and var.items is not None:
            return {k: self.operand(v) for k, (_, v) in var.items.items()}
        return value


def leaves_of(arguments: dict[str, Any]) -> Generator[Any, Any, Any]:
    """(source, value) of all leaves of the arguments, in order."""
    for name, value in arguments.items():
        yield from leaves_at(name, value)


def leaves_at(source: str, value: Any) -> Generator[Any, Any, Any]:
    if isinstance(value, (list, tuple)):
        for i, x in enumerate(value):
            yield from leaves_at(f"{source}[{i}]", x)
    elif isinstance(value, dict):
        for key, x in value.items():
            yield from leaves_at(f"{source}[{key!r}]", x)
    else:
        yield source, value


def module_names(module: Module, arguments: dict[str, Any]) -> dict[str, str]:
    """The names of `forward`'s parameters by the sources of a module's arguments. Keyword arguments
    are sorted in the order of the signature."""
    args, named = arguments.get("args", ()), arguments.get("kwargs", {})
    try:
        parameters = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return {}
    order = [name for name in parameters if name in named]
    arguments["kwargs"] = {name: named[name] for name in (*order, *named)}
    names = {f"args[{i}]": name for i, (_, name) in enumerate(zip(args, parameters, strict=False))}
    return {**names, **{f"kwargs[{name!r}]": name for name in named}}
