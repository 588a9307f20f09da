"""Base of backends that record: payloads are nodes, computed when a value is needed."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from weakref import ref

import numpy as np

from glasshouse.base import DeviceError, Spec, from_numpy_dtype, user_line
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.missing_kernels import ALWAYS_WRITTEN, missing_kernel
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.programs.program import compiled, compiled_graph, run_recording
from glasshouse.compile.steps.emitted import MissingKernel
from glasshouse.dispatch.backend import Replacement, TensorBackend
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.call import Call, call_of, input_call, pick_call
from glasshouse.dispatch.fallback import Fallback
from glasshouse.dispatch.shared_arrays import shared_arrays
from glasshouse.graph import record
from glasshouse.graph.graph import Graph
from glasshouse.graph.node import Node, computed
from glasshouse.ops.index import checked

MOST_MISSING = 1 << 14  # kinds of calls with a cached answer whether a kernel computes them
KNOWN_NODES, KNOWN_ELEMENTS = 64, 1 << 16  # nodes that are computed at once to check an index


def spec_of_array(array: np.ndarray) -> Spec:
    return Spec(np.shape(array), from_numpy_dtype(array.dtype))


def known_ancestors(indices: Node) -> list[Node]:
    """Waiting nodes whose values decide whether indices are in range, in topological order; none
    where they are too many."""
    if indices.spec.size > KNOWN_ELEMENTS:
        return []
    return record.cheap_ancestors(indices, KNOWN_NODES)


class RecordingBackend(TensorBackend):
    """Records every primitive; `replace` turns one into a step that calls the user's function."""

    name = "recording"
    checks_indices = True
    keeps_programs = False  # whether captured graphs become separate Programs
    program_class: type[Any] = Program  # of those Programs

    def __init__(self, device: str = "cpu") -> None:
        if device != "cpu":
            raise DeviceError(self.name, "device 'cpu'", repr(device), f"Use {self.name!r}.")
        super().__init__(device)
        self.recorder: record.Recorder = record.recorder
        self.replaced: dict[str, object] = {}  # users' functions
        self.replays: dict[Any, Any] = {}
        # By target, then by call: why there is no kernel, the user's line.
        self.missing: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)

    def run(self, call: Call, data: Any, attrs: dict[Any, Any]) -> Any:
        """Record a node for the call; `constant` and `full` have their own kinds."""
        name = call.name
        if not data:
            if name == "constant":
                return self.from_numpy(attrs["value"])
            if name == "full" and name not in self.replaced:
                return record.record_full(self.recorder, call, attrs["value"])
        if name in record.INDEXED and self.checks_indices and state.phase != "backward":
            self.check_indices(name, data, attrs)  # rules run where the forward pass ran
        if self.replaced and "body" in attrs:
            call = self.with_replaced(call)
        if name in self.replaced:
            call = call_of(call.primitive, call.specs, attrs, call.out, self.replaced[name])
        if name not in ALWAYS_WRITTEN or data[0].spec.dtype.is_complex or call.out.dtype.is_complex:
            missing = self.missing[state.compile_target].get(call)
            if missing is None or missing[0] is not None:
                self.note_missing(call)
        node = self.recorder.record(call, data)
        if self.recorder.is_full():
            self.evaluate()
        if call.primitive.num_outputs == 1:
            return node
        calls = [pick_call(call, i) for i in range(len(call.outs))]
        picks = tuple([self.recorder.record(pick, (node,)) for pick in calls])
        record.picks_of[node] = [ref(pick) for pick in picks]
        return picks

    def check_indices(self, name: str, data: list[Node], attrs: dict[Any, Any]) -> None:
        """Check indices that are known, or follow from known values by little work.

        Raises: IndexOutOfRangeError
        """
        indices, size = data[1], data[0].spec.shape[attrs["axis"]]
        value = indices.value
        if value is None:
            value = record.value_of(known_ancestors(indices))
        if value is not None and value.size and not (value.min() >= 0 and value.max() < size):
            checked(name, value, size)

    def with_replaced(self, call: Call) -> Call:
        """Rewrite a call of a card with a body, so that users' functions compute the cards they
        replace."""
        attrs = {**call.attrs, "body": call.attrs["body"].computed_by(self.replaced)}
        return call_of(call.primitive, call.specs, attrs, call.out)

    def note_missing(self, call: Call) -> None:
        """Record the user's line of a call that no kernel computes.

        Raises: BackendError where `strict` is set, at the call
        """
        missing, _ = self.missing_of(call, user_line)
        if missing is not None and (self.strict or flags.strict) and self.computes:
            self.refuse(Fallback(call.name, missing.reason, user_line()), missing.fix)

    def missing_of(self, call: Call, line: Any = str) -> tuple[MissingKernel | None, str]:
        """Reason why no kernel computes a call, or None; and the first result of `line()`."""
        by_call = self.missing[state.compile_target]
        missing = by_call.get(call)
        if missing is None:
            operands = [Node(input_call(0, spec)) for spec in call.specs]
            if len(by_call) >= MOST_MISSING:
                by_call.clear()
            missing = by_call[call] = missing_kernel(Node(call, operands)), line()
        return missing

    def replace(self, name: str, kernel: Callable[..., Any]) -> Replacement:
        """Make `kernel(*arrays, **attrs)`, on NumPy arrays, compute the primitive from now on."""
        checked = self.checked(name, kernel, spec_of_array)
        handle = Replacement(self.replaced, name, self.replaced.get(name))
        self.replaced[name] = checked
        return handle

    def kernel(self, name: str) -> Any:
        """Return None for `replace` to put aside: the recording needs no kernels."""
        return

    def evaluate(self, payloads: tuple[Node, ...] = ()) -> None:
        """Compute recorded calls of this thread that are still referred to, and `payloads`."""
        recorder = self.recorder
        self.finish_elsewhere(recorder.strays())
        with recorder.nodes.lock:
            try:
                recording = recorder.take()
                if recording is not None:
                    self.execute(recording)
            finally:
                recorder.finish()
        missing = [node for node in payloads if node.value is None]
        if missing:  # recorded by another thread
            self.finish_elsewhere(missing)
            with recorder.nodes.lock:
                self.execute_nodes(missing)

    def finish_elsewhere(self, nodes: list[Node]) -> None:
        """Compute nodes that other threads recorded, or wait until these have computed them."""
        own = self.recorder.nodes
        while nodes := [node for node in nodes if node.value is None]:
            owners = record.owners_of(record.with_ancestors(nodes))
            if all(owner is own for owner in owners):
                return
            with ExitStack() as locks:
                for owner in owners:
                    locks.enter_context(owner.lock)
                if all(x in owners for x in record.owners_of(record.with_ancestors(nodes))):
                    self.execute_nodes(nodes)

    def execute_nodes(self, nodes: list[Node]) -> None:
        """Compute nodes that no thread computes meanwhile, and their operands."""
        if missing := [node for node in nodes if node.value is None]:
            order = record.with_ancestors(missing, with_picks=True)
            self.execute(record.describe(order, missing))

    def execute(self, recording: Any) -> None:
        if flags.verify:
            for node in recording.nodes:
                shared_arrays.check(node.op, node.inputs)
        run_recording(recording, self)

    def compiled(self, recording: record.Recording, graph: Graph | None = None) -> Any:
        """Compile a recording, or a graph made from it, to a Program.

        Raises: CompileError
        """
        return compiled(recording) if graph is None else compiled_graph(graph)

    def sync(self) -> None:
        self.evaluate()

    def to_numpy(self, data: Node) -> np.ndarray:
        """Return the value of a node, computed now if it was not yet."""
        if data.value is None:
            self.evaluate((data,))
        return data.value

    def exported(self, data: Node) -> np.ndarray:
        return self.to_numpy(data)

    def from_numpy(self, array: np.ndarray) -> Node:
        """Make a node for an array from outside, which must not change any more."""
        array = np.asarray(array)
        spec = Spec(array.shape, from_numpy_dtype(array.dtype))
        self.recorder.held_bytes += array.nbytes
        node = computed(array, spec, owned=False)
        if self.recorder.imported is not None:
            self.recorder.imported.append(node)
        return node

    def spec_of(self, data: Node) -> Spec:
        return data.spec
