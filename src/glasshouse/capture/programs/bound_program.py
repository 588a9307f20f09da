"""A compiled Program bound to the sources of its inputs."""

from functools import partial
from threading import get_ident
from typing import Any

from glasshouse.base.flags import flags
from glasshouse.capture.programs.recording_interpreter import RecordingInterpreter
from glasshouse.capture.programs.split import GraphHalf
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.lowering.source_map import counts_of
from glasshouse.compile.lowering.target import with_stable_inputs
from glasshouse.compile.programs import anomalies
from glasshouse.compile.programs.binding import (
    Source,
    SourceKind,
    Sources,
    arrays_of,
    payloads_of,
)
from glasshouse.compile.programs.program import run_timed, warn_once
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import timers
from glasshouse.dispatch.watch import Tally
from glasshouse.graph.graph import graph_of
from glasshouse.graph.node import Node, pack
from glasshouse.graph.record import Recording


class NotCompilable(Exception):
    """A graph that runs uncompiled, since a Program would not do the same."""


class BoundProgram:
    """The Program of a recording, or of a half of it, and the sources of its inputs. `interpreter`
    made the recording. Results of `stable` sources alone, such as parameters that the graph does
    not change, stay from run to run."""

    def __init__(
        self,
        recorded: Recording,
        source_of: Sources,
        interpreter: "RecordingInterpreter",
        half: GraphHalf | None = None,
        stable: frozenset[Source] = frozenset(),
    ) -> None:
        sources: list[Source | None] = [source_of.get(id(leaf)) for leaf in recorded.leaves]
        if half is not None:
            sources = [x if x.kind is SourceKind.OUTPUT else sources[x.what] for x in half.sources]
        self.sources: list[Source] = [x for x in sources if x is not None]
        if len(self.sources) < len(sources):
            raise NotCompilable
        self.scalars: list[tuple[int | None, bytes, Any]] = [
            (interpreter.scalar_inputs.get(node), node.scalar, node.spec.dtype.kind)
            for node in recorded.nodes
            if node.scalar is not None
        ]
        self.constants: list[bytes] | None = None  # the numbers of each call, where none varies
        if all(number is None for number, _, _ in self.scalars):
            self.constants = [packed for _, packed, _ in self.scalars]
        counts = counts_of(recorded)
        if half is not None:
            counts = [count for count in counts if half.is_first == (count[1].phase == "forward")]
        self.tally: Tally = Tally(counts)
        self.is_collective: bool = any(node.call.is_collective for node in recorded.nodes)
        graph = None if half is None else half.graph
        outputs = [recorded.nodes[at] for at in recorded.outputs]
        self.specs: list[Any] = [x.spec for x in (outputs if graph is None else graph.outputs)]
        self.events: list[int] = [-1] * len(recorded.nodes)
        try:
            backend = backends.current()
            assert isinstance(backend, RecordingBackend)  # only these keep Programs
            numbers = frozenset(i for i, x in enumerate(self.sources) if x in stable)
            with with_stable_inputs(numbers):
                self.program: Any = backend.compiled(recorded, graph)
            self.parameters: list[int] = sorted(numbers) if self.program.kept_steps else []
            self.program.lines = interpreter.lines.of(recorded)
            if flags.detect_anomaly:
                anomalies.graphs[self.program] = graph_of(recorded) if graph is None else graph
        except CompileError as error:
            warn_once(error)
            raise NotCompilable from None

    def pack_scalars(self, inputs: list[Any]) -> list[bytes]:
        """The numbers of a call as the kernels read them."""
        return self.constants or [
            packed if number is None else pack(inputs[number], kind)
            for number, packed, kind in self.scalars
        ]

    def run(
        self, payloads: list[Node], scalars: list[bytes], donated: Any = (), first: bool = False
    ) -> list[Node]:
        """The results. The calls of a first run were counted as they were recorded."""
        if self.is_collective:  # after those that were recorded before
            backends.current().evaluate()
        if not first:
            self.tally.runs[get_ident()] += 1
        program, arrays = self.program, arrays_of(payloads)
        parameters = [payloads[i] for i in self.parameters]
        if timers:
            run = partial(program.run, arrays, scalars, donated, parameters=parameters)
            results = run_timed(program, self.events, run)
        else:
            results = program.run(arrays, scalars, donated, parameters=parameters)
        return payloads_of(results, self.specs, program.owns)
