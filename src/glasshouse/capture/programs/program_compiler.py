"""The default compiler: a captured graph becomes a Program that later calls run directly.

The first call runs the graph on lazy tensors and keeps the Program and the places of its inputs:
tensors that the graph owns or gets, their gradients, keys of random numbers, numbers. Later calls
hand the arrays over and put the results into the same places. A graph whose results are
differentiated outside gets a second Program for that."""

from collections.abc import Callable
from typing import Any

from glasshouse.base.interrupts import held
from glasshouse.capture.programs.bound_program import NotCompilable
from glasshouse.capture.programs.captured_program import CapturedProgram, overwrites
from glasshouse.capture.programs.first_run import FirstRun
from glasshouse.compile.programs.new_sizes import NewSizes
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import state
from glasshouse.graph.node import Node
from glasshouse.ir.graph_module import GraphModule
from glasshouse.tensor import Tensor

MAX_PROGRAMS = 64  # sets of sizes and numbers of one graph
AT_ONCE = 1  # sets of sizes whose Programs are made when they are first met


def compile_to_program(graph_module: GraphModule, example_inputs: list[Any]) -> "CompiledGraph":
    """The callable that runs a captured graph as a compiled Program."""
    return CompiledGraph(graph_module)


class CompiledGraph:
    """A captured graph with its Programs by the shapes of the tensors: one for each set of numbers
    that became part of a Program; None for a graph that runs uncompiled. With a `budget` their
    memory stays within it."""

    def __init__(self, module: GraphModule, budget: Any = None) -> None:
        self.module = module
        self.budget = budget
        self.own_programs: dict[tuple[Any, ...], list[CapturedProgram | None]] = {}
        self.new_sizes: NewSizes = NewSizes(AT_ONCE)
        self.sized: bool = any(node.meta.get("sizes") for node in module.graph.find("placeholder"))

    def __call__(self, *inputs: Any) -> Any:
        return self.run(list(inputs))

    def run(self, inputs: list[Any], holders: list[Any] | tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """Run the graph; the list of inputs may be changed. `holders` are the containers of
        inputs that are replaced after the run, as the inputs' meta["replaced"] says."""
        key = self.sizes_of(inputs)
        programs = self.programs.get(key, ())
        for program in programs:
            if program is not None and program.fits(inputs):
                if not overwrites(program):
                    return program.run(inputs, holders)
                with held:  # signals wait
                    return program.run(inputs, holders)
        with held:
            if None not in programs and self.may_compile() and self.is_due(key):
                return self.make_program(key, inputs)
        return self.run_uncompiled(inputs)

    def run_uncompiled(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Run the graph call by call. Where sizes vary, the outputs are computed, as by a Program:
        else calls of many sizes would become one recording. That recording is compiled where plain
        calls would be: gradients and much work do not wait."""
        backend = backends.current()
        if not self.sized:
            return self.module.run(self.module, *inputs)
        backend.sync()
        outs = self.module.run(self.module, *inputs)
        backend.sync()
        return outs

    def run_first(self, inputs: list[Any], adopt: Callable[[tuple[Any, ...]], None]) -> None:
        """The run right after a capture. `adopt` gets the outputs before memory is overwritten:
        they replace the values that the capture computed, which are dropped."""
        if not (self.may_compile() and self.is_due(self.sizes_of(inputs))):
            return adopt(self.run_uncompiled(inputs))
        with held:
            backend = backends.current()
            assert isinstance(backend, RecordingBackend)  # only these keep Programs
            trace = backend.recorder.pending
            backend.recorder.forget()
            self.make_program(self.sizes_of(inputs), inputs, adopt, trace)
        return None

    @property
    def programs(self) -> dict[tuple[Any, ...], list[CapturedProgram | None]]:
        """The Programs for the backend in use; a backend that only plans has separate ones."""
        backend = state.backend
        if backend is None or backend.computes:
            return self.own_programs
        return backend.captured.setdefault(self, {})

    def may_compile(self) -> bool:
        """Whether another Program may be made."""
        is_full = sum(map(len, list(self.programs.values()))) >= MAX_PROGRAMS
        return not is_full and getattr(backends.current(), "keeps_programs", False)

    def is_due(self, key: tuple[Any, ...]) -> bool:
        """Whether a Program is made now: for fixed sizes at once, and so that a budget is met."""
        return not self.sized or self.budget is not None or self.new_sizes.is_due(key)

    def sizes_of(self, inputs: list[Any]) -> tuple[Any, ...]:
        """The key of the Programs for some inputs: their shapes, where these vary."""
        return tuple(x.spec.shape for x in inputs if isinstance(x, Tensor)) if self.sized else ()

    def make_program(
        self,
        key: tuple[Any, ...],
        inputs: list[Any],
        adopt: Callable[..., Any] | None = None,
        trace: list[Node] | None = None,
    ) -> tuple[Any, ...]:
        """Run the graph on lazy tensors, and keep the Program; the outputs."""
        program = CapturedProgram(self.module, backends.current(), self.budget)
        first = FirstRun(program, inputs, adopt, trace or [])
        kept: CapturedProgram | None = program
        try:
            first.run()
        except NotCompilable:
            kept = None
            if first.adopt is not None:
                first.adopt(first.outs)
        self.programs.setdefault(key, []).append(kept)
        return first.outs
