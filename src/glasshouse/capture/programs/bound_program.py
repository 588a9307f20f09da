"""A compiled Program bound to the places of its inputs."""

from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from glasshouse.base.flags import flags
from glasshouse.capture.programs.payload_places import PayloadPlace, PlaceKind
from glasshouse.capture.programs.recording_interpreter import RecordingInterpreter
from glasshouse.capture.programs.split import GraphHalf
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.lowering.source_map import counts_of
from glasshouse.compile.programs import anomalies
from glasshouse.compile.programs.program import run_timed, warn_once
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import timers
from glasshouse.dispatch.watch import Tally
from glasshouse.graph.graph import graph_of
from glasshouse.graph.node import Node, computed, pack
from glasshouse.graph.record import Recording


class NotCompilable(Exception):
    """A graph that runs uncompiled, since a Program would not do the same."""


class BoundProgram:
    """The Program of a recording, or of a half of it, and the places of its inputs.

    places       of payloads, by id
    constants    payloads that are the same in each run, by id
    interpreter  the RecordingInterpreter that made the recording"""

    def __init__(
        self,
        recorded: Recording,
        places: dict[int, PayloadPlace],
        constants: dict[int, Node],
        interpreter: "RecordingInterpreter",
        half: GraphHalf | None = None,
    ) -> None:
        leaves = [place_of(leaf, places, constants) for leaf in recorded.leaves]
        if half is not None:
            leaves = [
                PayloadPlace(PlaceKind.OUTPUT, source.number)
                if source.is_handed_over
                else leaves[source.number]
                for source in half.sources
            ]
        if None in leaves:
            raise NotCompilable
        self.fetches: list[PayloadPlace] = leaves
        self.scalars: list[tuple[int | None, bytes, Any]] = [
            (interpreter.scalar_inputs.get(node), node.scalar, node.spec.dtype.kind)
            for node in recorded.nodes
            if node.scalar is not None
        ]
        counts = counts_of(recorded)
        if half is not None:
            counts = [count for count in counts if half.is_first == (count[1].phase == "forward")]
        self.tally: Tally = Tally(counts)
        self.is_collective: bool = any(node.call.is_collective for node in recorded.nodes)
        self.specs: list[Any] = [recorded.nodes[at].spec for at in recorded.outputs]
        self.events: list[int] = [-1] * len(recorded.nodes)
        if half is not None:
            self.specs = [node.spec for node in half.graph.outputs]
        try:
            graph = None if half is None else half.graph
            self.program: Any = backends.current().compiled(recorded, graph)
            self.program.lines = interpreter.lines.of(recorded)
            if flags.detect_anomaly:
                anomalies.graphs[self.program] = graph_of(recorded) if graph is None else graph
        except CompileError as error:
            warn_once(error)
            raise NotCompilable from None

    def pack_scalars(self, inputs: list[Any]) -> list[bytes]:
        """The numbers of a call as the kernels read them."""
        return [
            packed if number is None else pack(inputs[number], kind)
            for number, packed, kind in self.scalars
        ]

    def run(
        self, payloads: list[Node], scalars: list[bytes], donated: Any = (), first: bool = False
    ) -> list[Any]:
        """The results as arrays. The calls of a first run were counted as they were recorded."""
        if self.is_collective:  # after those that were recorded before
            backends.current().evaluate()
        arrays = []
        for x in payloads:
            if not x.value.flags.c_contiguous:
                x.value = np.ascontiguousarray(x.value)
            arrays.append(x.value)
        if not first:
            self.tally.runs[get_ident()] += 1
        if not timers:
            return self.program.run(arrays, scalars, donated)
        run = partial(self.program.run, arrays, scalars, donated)
        return run_timed(self.program, self.events, run)

    def run_to_payloads(
        self, payloads: list[Node], scalars: list[bytes], donated: Any = (), first: bool = False
    ) -> list[Node]:
        """The results as payloads."""
        arrays, owns = self.run(payloads, scalars, donated, first), self.program.owns
        return [computed(v, s, o) for v, s, o in zip(arrays, self.specs, owns, strict=True)]


def place_of(leaf: Node, places: dict[Any, Any], constants: dict[Any, Any]) -> PayloadPlace | None:
    """The place of a payload in later runs; None if unknown."""
    if id(leaf) in places:
        return places[id(leaf)]
    return PayloadPlace(PlaceKind.CONSTANT, payload=leaf) if id(leaf) in constants else None
