"""The Program for the gradients of a captured graph whose results are differentiated outside."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.autograd.tape import Leaf, Walk, recording, without_hooks
from glasshouse.capture.programs.bound_program import BoundProgram, NotCompilable
from glasshouse.capture.programs.run_payloads import RunPayloads, TensorUpdate, update_to
from glasshouse.capture.programs.tape_nodes import ProgramNode, walk_tape
from glasshouse.compile.programs.binding import ResultKind, Source, SourceKind, Sources
from glasshouse.dispatch import box, phase
from glasshouse.graph.node import Node
from glasshouse.tensor import Tensor

if TYPE_CHECKING:
    from glasshouse.base.shape import Spec
    from glasshouse.capture.programs.captured_program import CapturedProgram
    from glasshouse.capture.programs.recording_interpreter import RecordingInterpreter
    from glasshouse.graph.record import Recording


class RecordedGradients(NamedTuple):
    """The recording of a backward pass, for compiling it: gradients by the number of the tensor,
    and the cotangents that they were recorded for."""

    gradients: dict[int, Tensor]
    cotangents: list[Node]

    def missing(self) -> list[Node]:
        """The gradients that are still to be computed."""
        payloads = [g.payload for g in self.gradients.values()]
        return [x for x in payloads if x.value is None]


def group_numbers(sets: list[set[Any]]) -> list[int]:
    """A number for each set, the same for sets that are connected by common elements."""
    groups: list[int] = []
    for i, some in enumerate(sets):
        met = {groups[j] for j in range(i) if not some.isdisjoint(sets[j])}
        number = min(met, default=i)
        groups = [*(number if group in met else group for group in groups), number]
    return groups


class BackwardProgram:
    """The gradients of a graph's results with respect to the tensors it read, as a Program.

    specs      of the results that are differentiated
    reached    for each of them the numbers of the tensors that its tape leads to
    groups     for each of them a number, the same for tapes with common nodes: a backward pass
               through one frees those of the other
    gradients  the source of each tensor's gradient
    slots      the outputs or tensors that are the results"""

    def __init__(self, captured: "CapturedProgram", tracked: list[Tensor]) -> None:
        self.captured = captured
        self.specs: list[Spec] = [x.spec for x in tracked]
        self.program: BoundProgram | None = None
        self.reached: list[set[int]] = []
        self.groups: list[int] = []
        self.gradients: list[TensorUpdate[Source]] = []
        self.slots: list[tuple[ResultKind, int]] = []

    @cached_property
    def reads_gradients(self) -> bool:
        """Whether it reads the gradients that the graph's tensors have when it runs."""
        read = self.program.sources if self.program is not None else []
        sources = (*read, *(update.source for update in self.gradients))
        return any(source.kind is SourceKind.GRADIENT for source in sources)

    def record(self, tracked: list[Tensor], nodes: list[Any], began: int) -> RecordedGradients:
        """Record the gradients for cotangents of a later backward pass. `nodes` are the tape's
        places of the graph's tensors before it ran, `began` the number of the tape then."""
        backend = self.captured.backend
        numbers = {
            place: i for i, place in reversed(list(enumerate(nodes))) if place[0] is not None
        }
        targets = {node for node, _ in numbers}
        arrived: dict[Any, Any] = {}
        cotangents = [backend.from_numpy(np.zeros(s.shape, s.dtype.np)) for s in self.specs]
        tapes = [set(walk_tape([x.tape_entry], targets)) for x in tracked]
        self.reached = [{i for (n, _), i in numbers.items() if n in tape} for tape in tapes]
        self.groups = group_numbers([tape - targets for tape in tapes])
        walk = Walk(False, False)

        def arrive(node, slots) -> bool:
            if node in targets:
                arrived[node] = slots
                return False
            if isinstance(node, Leaf) or node.seq < began:
                raise NotCompilable
            return True

        # Hooks run when gradients really arrive there.
        with without_hooks(targets), recording(None, False), phase("backward"):
            for tensor, payload in zip(tracked, cotangents, strict=True):
                seed = box(payload, tensor.spec, backend)
                walk.seed((tensor.tape_entry, tensor.slot), seed)
            walk.run(arrive)
        gradients = {i: arrived[n][s] for (n, s), i in numbers.items() if s in arrived.get(n, ())}
        return RecordedGradients(gradients, cotangents)

    def compile(
        self,
        recorded: "Recording | None",
        gradients: RecordedGradients,
        sources: Sources,
        interpreter: "RecordingInterpreter",
    ) -> None:
        """Make the Program of a recording; None needs none."""
        if recorded is not None:
            self.program = BoundProgram(recorded, sources, interpreter)
            outputs = [recorded.nodes[at] for at in recorded.outputs]
            sources.number(SourceKind.BACKWARD_OUTPUT, outputs)
        self.place_gradients(gradients, sources)

    def place_gradients(self, gradients: RecordedGradients, sources: Sources) -> None:
        """Note the source of each gradient."""
        self.gradients = [
            update_to(number, gradient, sources) for number, gradient in gradients.gradients.items()
        ]

    def place_results(
        self, tracked: list[Tensor], outs: tuple[Tensor, ...], handles: list[Any]
    ) -> None:
        """Note which outputs or tensors of the graph the results are."""
        where = {id(x): (ResultKind.VALUE, k) for k, x in enumerate(outs)}
        where |= {id(h): (ResultKind.INPUT, i) for i, h in enumerate(handles)}
        self.slots = [where[id(x)] for x in tracked]

    def attach(
        self,
        outs: tuple[Tensor, ...],
        handles: list[Any],
        nodes: list[Any],
        payloads: RunPayloads,
        inputs: list[Any],
    ) -> None:
        """Put one node on the tape for the results of a run; `nodes` are the tape's places of the
        graph's tensors before it."""
        scalars = self.program.pack_scalars(inputs) if self.program is not None else []
        node = ProgramNode(self, payloads, scalars, nodes)
        for slot, (kind, number) in enumerate(self.slots):
            tensor = (outs if kind is ResultKind.VALUE else handles)[number]
            tensor.tape_entry, tensor.slot = node, slot
