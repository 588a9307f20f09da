"""The first run of a captured graph: it records, compiles, and runs like later ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from glasshouse.autograd.tape import sequence
from glasshouse.base.errors import OptionError
from glasshouse.capture.programs.backward_program import BackwardProgram, RecordedGradients
from glasshouse.capture.programs.bound_program import BoundProgram, NotCompilable
from glasshouse.capture.programs.captured_program import CapturedProgram, Donor
from glasshouse.capture.programs.captured_step import CapturedStep
from glasshouse.capture.programs.recording_interpreter import RecordingInterpreter
from glasshouse.capture.programs.run_payloads import (
    GraphOutput,
    RunPayloads,
    TensorUpdate,
    separate_payloads,
    unique_objects,
    update_to,
)
from glasshouse.capture.programs.split import GraphHalf, split
from glasshouse.capture.programs.tape_nodes import is_open, is_spent
from glasshouse.compile.planning.plan import SMALL_BYTES
from glasshouse.compile.programs.binding import ResultKind, Source, SourceKind, Sources
from glasshouse.compile.programs.program import deliver_results
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.watch import unwatched
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording, describe, donated_leaves, is_unshared
from glasshouse.tensor import Tensor

MOST_STABLE_BYTES = 1 << 30  # of parameters and buffers of which results stay


class TensorBefore(NamedTuple):
    """The state of a tensor before the run."""

    payload: Node
    gradient: Tensor | None
    tape_place: tuple[Any, ...]  # (node, slot)


class FirstRun:
    """Makes the Programs of a CapturedProgram, and runs the forward one.

    inputs   the inputs of the graph; a list, which loses those that are replaced
    adopt    called once with the outputs before memory is overwritten, for the holder of the old
             values; None if there is none
    trace    nodes that were recorded during the capture: the outputs take their place"""

    def __init__(
        self,
        captured: CapturedProgram,
        inputs: list[Any],
        adopt: Callable[[tuple[Any, ...]], None] | None,
        trace: list[Node],
    ) -> None:
        self.captured = captured
        self.inputs = inputs
        self.adopt = adopt
        self.trace = trace
        self.recorder: Any = captured.backend.recorder
        self.tensors: list[Tensor] = captured.tensors(inputs)
        separate_payloads(self.tensors, captured.backend)
        self.before: list[TensorBefore] = [
            TensorBefore(t.payload, t.__dict__.get("grad"), (t.tape_entry, t.slot))
            for t in self.tensors
        ]
        self.sources: Sources = self.sources_of_inputs()
        is_tensor = [isinstance(x, Tensor) for x in inputs]
        captured.replaced = {
            len(captured.owned) + sum(is_tensor[:i]): holders
            for i, holders in captured.replaced_inputs.items()
        }
        self.interpreter: RecordingInterpreter = RecordingInterpreter(
            captured.module, self.recorder
        )
        self.outs: tuple[Any, ...] = ()
        self.changed: list[int] = []  # tensors that got another payload
        self.regraded: list[int] = []  # tensors that got another gradient, or none
        self.half: GraphHalf | None = None  # the first half of a recording of both passes
        self.count: int | None = None  # of its outputs that are not for the other half

    def run(self) -> tuple[Any, ...]:
        """Record, compile and run; the outputs.

        Raises: NotCompilable if a Program would not do the same; `outs` has the outputs
        """
        captured = self.captured
        gradients, early, late = self.record()
        if captured.budget is None:
            recorded = self.compile_forward(early)
        else:
            recorded = self.compile_within_budget(gradients, early, late)
        backward = captured.backward
        if backward is None or gradients is None:
            self.place_results()
            self.release_old()
            if recorded is not None:
                self.run_forward(recorded)
            return self.outs
        nodes = self.run_forward(recorded) if recorded is not None else []
        if captured.budget is None:
            later = describe(late, gradients.missing())
            late.clear()
            backward.compile(later, gradients, self.sources, self.interpreter)
        self.place_results()
        self.attach_backward(backward, nodes)
        if self.adopt is not None:
            self.adopt(self.outs)
        return self.outs

    # -- recording -------------------------------------------------------------------------------

    def sources_of_inputs(self) -> Sources:
        """The sources of the payloads before the run."""
        sources = Sources()
        for i, (payload, gradient, _) in enumerate(self.before):
            sources.setdefault(id(payload), Source(SourceKind.INPUT, i))
            if gradient is not None:
                sources.setdefault(id(gradient.payload), Source(SourceKind.GRADIENT, i))
        return sources

    def record(self) -> tuple[RecordedGradients | None, list[Node], list[Node]]:
        """Run the graph on lazy tensors, and its backward pass if results wait for one. Returns the
        recorded gradients, and the nodes of both passes."""
        captured, interpreter, began = self.captured, self.interpreter, next(sequence)
        self.outs = interpreter.record(self.inputs)
        captured.keys = [generator for generator, _ in interpreter.draws]
        self.sources.number(SourceKind.KEY, [key.payload for _, key in interpreter.draws])
        for payload in interpreter.imported:
            self.sources.setdefault(id(payload), Source(SourceKind.CONSTANT, payload))
        captured.fixed = {i: self.inputs[i] for i in interpreter.fixed}
        pairs = list(zip(self.tensors, self.before, strict=True))
        self.changed = [i for i, (t, b) in enumerate(pairs) if t.payload is not b.payload]
        self.regraded = [
            i for i, (t, b) in enumerate(pairs) if t.__dict__.get("grad") is not b.gradient
        ]
        results = unique_objects([*self.outs, *(self.tensors[i] for i in self.changed)])
        tracked = [x for x in results if is_open(x, began)]
        mark, gradients = len(self.recorder.pending), None
        if tracked:
            captured.backward = BackwardProgram(captured, tracked)
            nodes = [b.tape_place for b in self.before]
            with unwatched(), interpreter.lines:
                gradients = captured.backward.record(tracked, nodes, began)
            self.sources.number(SourceKind.COTANGENT, gradients.cotangents)
            captured.backward.place_results(tracked, self.outs, self.tensors)
        pending = self.recorder.pending
        self.recorder.forget()
        return gradients, pending[:mark], pending[mark:]

    def uncomputed(self) -> list[Node]:
        """The payloads that are still to be computed for the outputs, tensors and gradients."""
        payloads = [x.payload for x in self.outs if isinstance(x, Tensor)]
        payloads += [self.tensors[i].payload for i in self.changed]
        gradients = (self.tensors[i].grad for i in self.regraded)
        payloads += [g.payload for g in gradients if g is not None]
        return [x for x in payloads if x.value is None]

    # -- compiling -------------------------------------------------------------------------------

    def compile_forward(self, early: list[Node]) -> Recording | None:
        """Make the forward Program; the recording to run now."""
        recorded = describe(early, self.uncomputed())
        early.clear()
        if recorded is not None:
            self.make_forward(recorded)
        return recorded

    def make_forward(self, recorded: Recording, half: GraphHalf | None = None) -> None:
        """Make the forward Program of a recording, or of its first half."""
        forward = BoundProgram(recorded, self.sources, self.interpreter, half, self.stable())
        self.captured.forward = forward
        outputs = recorded.outputs[: self.count]
        self.sources.number(SourceKind.OUTPUT, [recorded.nodes[at] for at in outputs])

    def stable(self) -> frozenset[Source]:
        """The sources of parameters and buffers that the graph does not change, in inference,
        unless a second copy of them would take much memory. Where gradients of parameters are
        computed, an update of them follows."""
        captured = self.captured
        if captured.backward is not None or captured.budget is not None or self.regraded:
            return frozenset()
        inputs = (x for x in captured.module.graph.find("placeholder") if "number" not in x.meta)
        is_fixed = [True] * len(captured.owned) + [x.meta.get("buffer", False) for x in inputs]
        sources = [Source(SourceKind.INPUT, i) for i, fixed in enumerate(is_fixed) if fixed]
        stable = frozenset(source for source in sources if not self.is_replaced(source))
        nbytes = sum(self.tensors[source.what].nbytes for source in stable)
        return stable if nbytes <= MOST_STABLE_BYTES else frozenset()

    def compile_within_budget(self, gradients: Any, early: Any, late: Any) -> Recording | None:
        """Make the Program, or those of both passes, within the budget; the recording to run now.

        Raises: OptionError if the budget cannot be met; the state before the call is restored
        """
        captured, backward = self.captured, self.captured.backward
        first = {id(x) for x in early}
        targets = self.uncomputed() + (gradients.missing() if gradients is not None else [])
        pending = [*early, *late]
        early.clear()
        late.clear()
        recorded = describe(pending, targets)
        pending.clear()
        targets.clear()
        if recorded is None:
            if backward is not None:
                backward.place_gradients(gradients, self.sources)
            return None
        with self.undone_if_refused():
            step = self.step_of(recorded, first)
            blocks, most_bytes = captured.budget.plan(step, recorded)
        with step.applied(blocks):
            if step.count is None or backward is None:
                self.make_forward(recorded)
                return recorded
            captured.most_bytes = most_bytes  # an optimizer may make its state outside of the graph
            self.half, second = split(step.rewritten(), step.count)
            self.count = step.count
            self.make_forward(recorded, self.half)
            backward.program = BoundProgram(recorded, self.sources, self.interpreter, second)
            later = [recorded.nodes[at] for at in recorded.outputs[step.count :]]
            self.sources.number(SourceKind.BACKWARD_OUTPUT, later)
            backward.place_gradients(gradients, self.sources)
        return recorded

    def step_of(self, recorded: Recording, first: set[int]) -> CapturedStep:
        """The step that a budget is planned for. `first` has the ids of the nodes that were
        recorded before the gradients of the results."""
        backward = self.captured.backward
        if backward is not None:
            order = [id(x) in first for x in recorded.nodes]
            at = order.count(True)
            if not all(order[:at]):
                raise NotCompilable
            count = sum(place < at for place in recorded.outputs)
            return CapturedStep(recorded, count, seeds=[s.nbytes for s in backward.specs])
        sources = [self.sources.of(leaf) for leaf in recorded.leaves]
        leaves = enumerate(zip(sources, recorded.leaves, strict=True))
        donated = [n for n, (source, leaf) in leaves if self.is_replaced(source) and leaf.owned]
        old = {i: self.before[i].gradient for i in self.regraded}
        freed = [
            gradient.nbytes
            for i, gradient in old.items()
            if gradient is not None
            and gradient.payload.owned
            and is_unshared(gradient.payload)
            and Source(SourceKind.GRADIENT, i) not in sources
        ]
        return CapturedStep(recorded, None, donated, freed)

    def is_replaced(self, source: Source) -> bool:
        """Whether the value of a source is replaced by the run."""
        kind, number = source
        if kind is SourceKind.INPUT:
            return number in self.changed or number in self.captured.replaced
        return kind is SourceKind.GRADIENT and number in self.regraded

    @contextmanager
    def undone_if_refused(self) -> Iterator[None]:
        """Context: if a budget cannot be met, the state before the call is restored."""
        try:
            yield
        except OptionError:
            for t, (payload, gradient, (node, slot)) in zip(self.tensors, self.before, strict=True):
                t.payload, t.spec, t.grad, t.tape_entry, t.slot = (
                    payload,
                    payload.spec,
                    gradient,
                    node,
                    slot,
                )
            for generator in self.captured.keys:
                generator.draws -= 1
            raise

    # -- where results go ------------------------------------------------------------------------

    def place_results(self) -> None:
        """Note the source of each result in later runs."""
        captured, tensors = self.captured, self.tensors
        what_of = {
            id(tensors[i].grad): (ResultKind.GRADIENT, i)
            for i in self.regraded
            if tensors[i].grad is not None
        }
        what_of |= {id(t): (ResultKind.INPUT, i) for i, t in enumerate(tensors)}
        for at, out in enumerate(self.outs):
            if not isinstance(out, Tensor):
                output = GraphOutput(ResultKind.CONSTANT, out)
            elif id(out) in what_of:
                output = GraphOutput(*what_of[id(out)])
            else:
                source, spent = self.sources.of(out.payload), is_spent(out.tape_entry)
                output = GraphOutput(ResultKind.VALUE, source, out.spec, spent)
                what_of[id(out)] = ResultKind.AGAIN, at
            captured.outputs.append(output)
        captured.updates = [update_to(i, tensors[i], self.sources) for i in self.changed]
        captured.gradients = [self.gradient_update(i, tensors[i]) for i in self.regraded]
        self.find_donors()

    def gradient_update(self, number: int, tensor: Tensor) -> TensorUpdate[Source | None]:
        """The update that sets a tensor's gradient to its current value or None."""
        gradient = tensor.grad
        if gradient is None:
            return TensorUpdate(number, None, tensor.spec)
        return TensorUpdate(number, self.sources.of(gradient.payload), gradient.spec)

    def find_donors(self) -> None:
        """Note which inputs of the Program a run may overwrite, which gradients it drops first."""
        captured = self.captured
        read = captured.forward.sources if captured.forward is not None else []
        results: set[Source | None] = {x.source for x in captured.updates}
        results |= {x.source for x in captured.gradients}
        results |= {x.what for x in captured.outputs if x.kind is ResultKind.VALUE}
        captured.donors = [
            Donor(number, source)
            for number, source in enumerate(read)
            if self.is_replaced(source) and source not in results and self.is_large(source)
        ]
        if captured.backward is None:
            left = {*read, *results}
            dropped = (i for i in self.regraded if Source(SourceKind.GRADIENT, i) not in left)
            captured.dropped_gradients = list(dropped)

    def is_large(self, source: Source) -> bool:
        """Whether memory comes from the manager: for less, counting references takes longer than
        allocating with NumPy."""
        before = self.before[source.what]
        tensor = before.payload if source.kind is SourceKind.INPUT else before.gradient
        return tensor is not None and tensor.spec.nbytes >= SMALL_BYTES

    def attach_backward(self, backward: BackwardProgram, nodes: list[Node]) -> None:
        """Put a node on the tape for the backward pass outside, which reads outputs of the forward
        Program."""
        keys = [key for _, key in self.interpreter.draws]
        payloads = [b.payload for b in self.before]
        places = [b.tape_place for b in self.before]
        run = RunPayloads(payloads, self.tensors, keys, self.captured.backend)
        run.outputs = nodes
        backward.attach(self.outs, self.tensors, places, run, self.inputs)

    # -- running ---------------------------------------------------------------------------------

    def release_old(self) -> None:
        """Release the values that the run replaces: their memory is free, or used by the run."""
        if self.adopt is not None:
            self.adopt(self.outs)
            hooks.release(self.trace)
            self.adopt = None
        self.before.clear()
        self.tensors.clear()
        for i in self.captured.replaced_inputs:
            self.inputs[i] = None

    def run_forward(self, recorded: Recording) -> list[Node]:
        """Run the forward Program of a recording; its outputs as payloads."""
        forward = self.captured.forward
        assert forward is not None
        donated = donated_leaves(recorded.nodes, recorded.leaves)
        leaves, scalars = recorded.leaves, recorded.scalars
        if self.half is not None:  # the backward pass reads its inputs again
            leaves, donated = [leaves[source.what] for source in self.half.sources], []
        results = forward.run(leaves, scalars, donated, first=True)
        nodes = [recorded.nodes[at] for at in recorded.outputs[: self.count]]
        values = [x.value for x in results[: len(nodes)]]
        deliver_results(recorded, values, forward.program.owns)
        return [*nodes, *results[len(nodes) :]]
