"""Runs a captured graph call by call: inside its modules, and recorded for a Program."""

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from glasshouse.capture.bytecode.lines import LineRecorder
from glasshouse.capture.trace.front import VARYING
from glasshouse.dispatch.bind import state, watchers
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recorder
from glasshouse.ir.graph_module import GraphModule, Interpreter
from glasshouse.ir.node import IRNode
from glasshouse.tensor import random


class ScopedInterpreter(Interpreter):
    """Runs a graph with each call in the scope of its module."""

    def run(self, *args: Any) -> tuple[Any, ...]:
        outer = state.scope
        try:
            return super().run(*args)
        finally:
            state.scope = outer

    def run_node(self, node: "IRNode") -> Any:
        if "scope" in node.meta:
            state.scope = node.meta["scope"]
        return super().run_node(node)


def eager(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The compiler that runs the graph uncompiled."""

    def run(*inputs):
        return ScopedInterpreter(graph_module).run(*inputs) if watchers else forward(*inputs)

    forward = graph_module.forward
    return run


class RecordingInterpreter(ScopedInterpreter):
    """Runs a graph on lazy tensors. It notes the recorded scalars that are inputs, the random keys
    that are drawn, the arrays from outside, and the user's lines."""

    def __init__(self, module: GraphModule, recorder: "Recorder") -> None:
        super().__init__(module)
        self.recorder = recorder
        # The number of the input for a recorded scalar; a reference here would make it an output.
        self.scalar_inputs: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
        self.fixed: set[int] = set()
        self.draws: list[Any] = []
        self.imported: list[Node] = []
        self.lines: LineRecorder = LineRecorder()
        self.order: dict[Any, int] = {n: i for i, n in enumerate(module.graph.find("placeholder"))}

    def record(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Run the graph; the outputs are not computed yet."""
        self.recorder.imported = self.imported
        random.observers.append(self.draws)
        try:
            with self.lines:
                return self.run(*inputs)
        finally:
            self.recorder.imported = None
            random.observers[:] = [x for x in random.observers if x is not self.draws]
            self.env: dict[IRNode, Any] = {}
            self.arguments: Iterator[Any] = iter(())

    def run_node(self, node: "IRNode") -> Any:
        self.lines.now = node.meta.get("user", "")
        numbers = [x for x in node.all_input_nodes if x.meta.get("number")]
        if not numbers or node.op == "output":
            return super().run_node(node)
        recorder, mark = self.recorder, len(self.recorder.pending)
        recorder.varying = True
        try:
            result = super().run_node(node)
        finally:
            recorder.varying = False
        scalars = [x for x in recorder.pending[mark:] if x.scalar is not None]
        if len(numbers) == len(scalars) == 1 and node.target in VARYING:
            self.scalar_inputs[scalars[0]] = self.order[numbers[0]]
        else:
            self.fixed |= {self.order[x] for x in numbers}
        return result
