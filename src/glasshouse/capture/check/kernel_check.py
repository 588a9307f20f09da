"""Finds the primitive of a captured graph whose kernel differs from its reference."""

from typing import Any, NamedTuple

import numpy as np

from glasshouse.capture.check.world import largest_error, tolerance_of
from glasshouse.capture.programs.recording_interpreter import RecordingInterpreter
from glasshouse.capture.programs.run_payloads import separate_payloads, unique_objects
from glasshouse.compile.programs.program import compiled
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import primitives, quiet
from glasshouse.dispatch.watch import unwatched
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording, compute_node, count_uses, encode, with_ancestors
from glasshouse.ir.graph_module import GraphModule
from glasshouse.tensor import Tensor

NEAR_STEPS = 6


class WrongKernel(NamedTuple):
    """A primitive whose kernel differs from its reference: the call, and the error as a part of the
    largest value. `fused`: it differs only when fused with others."""

    primitive: str
    line: str
    module: str
    max_error: float
    shape: tuple[Any, ...]
    fused: bool = False

    def __str__(self) -> str:
        line = self.line or "a line that is not known"
        where = f"{line}, in {self.module}" if self.module else line
        how = ", fused with others," if self.fused else ""
        return (
            f"the kernel of {self.primitive} {list(self.shape)}{how} differs from its reference by "
            f"{self.max_error:.3g} of the largest value ({where})"
        )


class RecordedGraph:
    """The primitives of a graph for some inputs, in order, with the user's lines. Tensors that the
    graph writes to are restored."""

    def __init__(self, module: GraphModule, inputs: tuple[Any, ...]) -> None:
        backend: Any = backends.load("lazy")
        members = [*module.parameters(), *module.buffers()]
        members += [x for x in module.__dict__.values() if isinstance(x, Tensor)]
        tensors = unique_objects([*members, *(x for x in inputs if isinstance(x, Tensor))])
        with backends.use_backend(backend), unwatched():
            separate_payloads(tensors, backend)
            before = [dict(t.__dict__) for t in tensors]
            interpreter = RecordingInterpreter(module, backend.recorder)
            try:
                outs = interpreter.record(list(inputs))
                payloads = [x.payload for x in outs if isinstance(x, Tensor)]
                for t in tensors:
                    gradient = t.__dict__.get("grad")
                    payloads += [t.payload] + ([gradient.payload] if gradient is not None else [])
                pending = [x for x in payloads if isinstance(x, Node) and x.value is None]
                self.nodes: list[Node] = with_ancestors(pending)
                self.lines: list[str] = [interpreter.lines.line_of(node) for node in self.nodes]
            finally:
                backend.recorder.forget()
                for generator, _ in interpreter.draws:
                    generator.draws -= 1
                for t, saved in zip(tensors, before, strict=True):
                    t.__dict__.clear()
                    t.__dict__.update(saved)

    def wrong_alone(self) -> WrongKernel | None:
        """The first wrong primitive in a Program that makes every value a result."""
        values = self.run_all()
        for number, node in enumerate(self.nodes):
            if isinstance(node.spec, tuple):
                continue
            operands = [values.get(id(x), x.value) for x in node.inputs]
            if any(x is None for x in operands):
                continue
            want = reference(node, operands)
            difference = self.compare(number, want, values[id(node)], operands)
            if difference is not None:
                return difference
        return None

    def wrong_together(self) -> WrongKernel | None:
        """The first wrong primitive at the end of a Program that computes only it."""
        values: dict[int, np.ndarray] = {}
        for node in self.nodes:
            operands = [x.value if x.value is not None else values[id(x)] for x in node.inputs]
            values[id(node)] = reference(node, operands)
        low, high, first_wrong = 0, len(self.nodes), None
        while low < high:  # the first wrong one: what needs it is wrong too
            middle = (low + high) // 2
            node, wrong = self.nodes[middle], None
            if not isinstance(node.spec, tuple):
                near = [values.get(id(x), x.value) for x in ancestors_of(node)]
                wrong = self.compare(middle, values[id(node)], self.run_to(node), near)
            if wrong is None:
                low = middle + 1
            else:
                first_wrong, high = wrong._replace(fused=True), middle
        return first_wrong

    def run_to(self, node: Node) -> np.ndarray:
        """The value of one node, by a Program with no other result."""
        order = with_ancestors([node])
        count_uses(order)
        recording = encode(order, [1] * (len(order) - 1) + [2])
        return run_recording(recording)[0]

    def run_all(self) -> dict[int, np.ndarray]:
        """The values of all nodes, by id, by a Program that makes each a result."""
        order = with_ancestors(self.nodes)
        count_uses(order)
        needed = [1 if isinstance(node.spec, tuple) else 2 for node in order]
        recording = encode(order, needed)
        outputs = (recording.nodes[at] for at in recording.outputs)
        return {id(x): y.copy() for x, y in zip(outputs, run_recording(recording), strict=True)}

    def compare(self, number: int, want: Any, got: Any, operands: list[Any]) -> WrongKernel | None:
        """The difference if the error is too large; large operands allow a larger error."""
        want, node = np.asarray(want), self.nodes[number]
        error = largest_error(want, np.asarray(got), 1e-2 * largest_of(operands))
        if error <= tolerance_of(want.dtype):
            return None
        return WrongKernel(node.op, self.lines[number], node.origin.module, error, node.shape)


def ancestors_of(node: Node) -> list[Node]:
    """The ancestors within NEAR_STEPS of a node: terms that cancel may have been added there."""
    ancestors, level = list[Node](), [node]
    for _ in range(NEAR_STEPS):
        level = [x for y in level for x in y.inputs]
        ancestors += level
        level = list({id(x): x for x in level}.values())
    return ancestors


def largest_of(operands: list[Any]) -> float:
    """The largest absolute value among numbers with fractions."""
    largest = 1e-6
    for x in operands:
        if isinstance(x, np.ndarray) and x.size and tolerance_of(x.dtype):
            sizes = np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
            largest = max(largest, float(sizes[np.isfinite(sizes)].max(initial=0.0)))
    return largest


def run_recording(recording: Recording) -> list[np.ndarray]:
    """The outputs of a recording's Program; the recording does not change."""
    arrays = [np.ascontiguousarray(leaf.value) for leaf in recording.leaves]
    return compiled(recording).run(arrays, recording.scalars)


def reference(node: Node, operands: list[Any]) -> np.ndarray:
    """The value of a node by its card's reference, not by the kernel in use."""
    if node.scalar is not None or node.op not in primitives:
        return quiet.run(compute_node, node, operands)
    return quiet.run(primitives[node.op].ref, *operands, **node.attrs)
