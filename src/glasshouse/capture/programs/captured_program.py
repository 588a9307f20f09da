"""The Program of a captured graph, and its runs; `first_run.py` makes it."""

import gc
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import getweakrefcount

from glasshouse.base.interpreter import NAMED
from glasshouse.capture.programs.backward_program import BackwardProgram
from glasshouse.capture.programs.bound_program import BoundProgram
from glasshouse.capture.programs.captured_step import in_use
from glasshouse.capture.programs.run_payloads import (
    GraphOutput,
    RunPayloads,
    TensorUpdate,
    payload_on,
    unique_objects,
)
from glasshouse.capture.programs.tape_nodes import SpentNode
from glasshouse.compile.programs.binding import ResultKind, Source, SourceKind
from glasshouse.dispatch.bind import box
from glasshouse.graph.node import Node
from glasshouse.graph.record import is_unshared
from glasshouse.ir.graph_module import GraphModule
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor

# Names of a module are read faster than those of an Enum.
VALUE, AGAIN = ResultKind.VALUE, ResultKind.AGAIN
INPUT, GRADIENT = ResultKind.INPUT, ResultKind.GRADIENT


class Donor(NamedTuple):
    """An input of the Program whose memory a run may overwrite if nobody else refers to it, since
    the value at its source is replaced."""

    number: int
    source: Source


class CapturedProgram:
    """The Program of a graph (and one for its gradients), and the sources of inputs and results.

    Tensors are numbered: first those that the graph owns, then its inputs. `replaced` has the
    numbers of inputs that are replaced after the run, as optimizers replace their state, and the
    numbers of the run's `holders` that contain them. Their memory is overwritten if nobody else
    refers to it."""

    def __init__(self, module: GraphModule, backend: Any, budget: Any = None) -> None:
        self.module = module
        self.backend = backend
        self.budget = budget
        self.owned: list[Tensor] = owned_tensors(module)
        self.replaced_inputs: dict[int, Any] = {
            i: node.meta["replaced"]
            for i, node in enumerate(module.graph.find("placeholder"))
            if "replaced" in node.meta and "number" not in node.meta
        }
        self.replaced: dict[int, tuple[int, ...]] = {}
        self.fixed: dict[int, object] = {}  # inputs that are numbers and became part of the Program
        self.forward: BoundProgram | None = None
        self.backward: BackwardProgram | None = None
        self.keys: list[Any] = []  # generators of the random keys that a run draws
        self.outputs: list[GraphOutput] = []
        self.updates: list[TensorUpdate[Source]] = []
        self.gradients: list[TensorUpdate[Source | None]] = []
        self.dropped_gradients: list[int] = []  # replaced, not read: their memory is reused
        self.donors: list[Donor] = []
        self.is_first: bool = True  # of later runs
        self.most_bytes: int | None = None  # in use before a run that stays within the budget

    def tensors(self, inputs: list[Any]) -> list[Tensor]:
        """All tensors that the graph may read or write, by number."""
        return self.owned + [x for x in inputs if isinstance(x, Tensor)]

    def fits(self, inputs: list[Any]) -> bool:
        """Whether the numbers in the Program are the same now, and a budget will be met."""
        same = not self.fixed or all(inputs[i] == number for i, number in self.fixed.items())
        return same and (self.most_bytes is None or in_use() <= self.most_bytes)

    # -- later runs ------------------------------------------------------------------------------

    def run(self, inputs: list[Any], holders: list[Any] | tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """Run the Program; the outputs."""
        if self.budget is not None and self.is_first:
            gc.collect()  # capture leaves cycles that hold the old tensors
        self.is_first = False
        tensors = self.tensors(inputs)
        if self.updates and len(set(map(id, tensors))) < len(tensors):
            return self.module.run(self.module, *inputs)  # one tensor passed twice and written to
        payloads = computed_payloads(tensors, self.backend)
        keys = [generator.key() for generator in self.keys]
        run = RunPayloads(payloads, tensors, keys, self.backend)
        if self.forward is not None:
            self.run_forward(inputs, run, holders)
        if self.backward is None:
            return self.place_results(run)
        nodes = [(t.tape_entry, t.slot) for t in tensors]
        outs = self.place_results(run)
        self.backward.attach(outs, tensors, nodes, run, inputs)
        return outs

    def run_forward(self, inputs: list[Any], run: RunPayloads, holders: Sequence[Any]) -> None:
        """Run the Program; its results become the `outputs` of the run."""
        assert self.forward is not None
        donated = () if self.backward is not None else self.donated_inputs(run, holders)
        fetched = run.fetched(self.forward.sources)
        scalars = self.forward.pack_scalars(inputs)
        for number in self.dropped_gradients:
            run.handles[number].grad = None
        run.outputs = self.forward.run(fetched, scalars, donated)

    def place_results(self, run: RunPayloads) -> tuple[Any, ...]:
        """Put the results into tensors and gradients; the outputs."""
        get, backend, tensors = run.get, self.backend, run.handles
        updates = [(number, get(source), spec) for number, source, spec in self.updates]
        gradients = {
            number: None if source is None else box(get(source), spec, backend)
            for number, source, spec in self.gradients
        }
        outs: list[Any] = []
        for kind, what, spec, is_spent in self.outputs:
            if kind is VALUE:
                tensor = box(get(what), spec, backend)
                if is_spent:
                    tensor.tape_entry = SpentNode(spec)
                outs.append(tensor)
            elif kind is AGAIN:
                outs.append(outs[what])
            elif kind is GRADIENT:
                outs.append(gradients[what])
            else:
                outs.append(tensors[what] if kind is INPUT else what)
        for number, payload, spec in updates:
            t = tensors[number]
            t.payload, t.spec, t.backend = payload, spec, backend
        for number, gradient in gradients.items():
            tensors[number].grad = gradient
        return tuple(outs)

    def donated_inputs(self, run: RunPayloads, holders: Sequence[Any]) -> list[int]:
        """The inputs of the Program whose memory this run may overwrite."""
        return [number for number, x in self.donors if self.is_free(x, run, holders)]

    def is_free(self, source: Source, run: RunPayloads, holders: Sequence[Any]) -> bool:
        """Whether only the source, which is replaced, refers to its memory."""
        number = source.what
        if source.kind is SourceKind.GRADIENT:
            gradient = run.handles[number].grad
            # To the gradient: its tensor, the name.
            if sys.getrefcount(gradient) > NAMED + 1 or getweakrefcount(gradient):
                return False
            payload = gradient.payload
            if type(payload) is not Node or payload.value is None:
                return False
            count = NAMED + 1  # the gradient, the name
        else:
            if number in self.replaced:
                # To a replaced tensor: its place, the inputs, `handles`, the argument.
                if sys.getrefcount(run.handles[number]) > 4 or getweakrefcount(run.handles[number]):
                    return False
                for at in self.replaced[number]:  # its place, `holders`, the argument
                    if sys.getrefcount(holders[at]) > 3:
                        return False
            payload = run.tensors[number]
            count = NAMED + 2  # the tensor, `run.tensors`, the name
        return payload.owned and sys.getrefcount(payload) <= count and is_unshared(payload)


def overwrites(program: CapturedProgram) -> bool:
    """Whether a run writes to what others refer to, beside its outputs."""
    return bool(program.updates or program.gradients or program.dropped_gradients or program.donors)


def computed_payloads(tensors: list[Tensor], backend: Any) -> list[Node]:
    """The payloads of tensors, which are moved to the backend."""
    for t in tensors:
        payload = t.payload
        if type(payload) is not Node or payload.value is None:
            payload_on(backend, t)
    return [t.payload for t in tensors]


def owned_tensors(module: GraphModule) -> list[Tensor]:
    """The tensors that a graph's module has, each once."""
    members = [*module.__dict__.values()]  # another thread may add one
    inner = [m for m in members if isinstance(m, Module)]
    tensors = [x for x in members if isinstance(x, Tensor)]
    parts = (x for part in (module, *inner) for x in (*part.parameters(), *part.buffers()))
    return unique_objects([*tensors, *parts])
