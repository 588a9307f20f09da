"""Collectives of a running Program: started and waited for in C where their transport works there;
by its Python methods elsewhere, which is the clear way."""

import contextlib
from time import perf_counter_ns
from typing import Any

from glasshouse.compile.steps.emitted import CollectiveStep
from glasshouse.ops.collective_start import CollectiveRequest, asked_by, complete, start
from glasshouse.ops.process import process


class CollectiveSteps:
    """The steps of collectives of a Program, which runs once at a time.

    asked      by step, the user's call, which passes may have rewritten
    in_c       by step, the calls that the runner makes
    under_way  requests of the others, by the place of the result
    transfers  of the last run: (the step that waited, when the transport began, and ended) each"""

    def __init__(self, steps: dict[int, CollectiveStep]) -> None:
        self.steps = steps
        self.asked: dict[int, CollectiveRequest] = {
            at: asked_by(step.node.call) for at, step in steps.items()
        }
        self.groups: list[Any]
        self.groups = list(dict.fromkeys(s.node.call.attrs["group"].ranks for s in steps.values()))
        self.bound: list[Any] = [None] * len(self.groups)
        self.in_c: dict[int, Any] = {}
        self.under_way: dict[tuple[Any, ...], Any] = {}
        self.transfers: list[tuple[int, int, int]] = []

    def note_recorded(self, calls: list[Any]) -> None:
        """Record the users' calls of the collectives as they were recorded, in their order."""
        for at, step in self.steps.items():
            place = step.node.origin.place
            if 0 <= place < len(calls) and calls[place].name == step.node.op:
                self.asked[at] = asked_by(calls[place])
        self.bound = [None] * len(self.groups)

    def bind(self, table: Any) -> None:
        """Prepare a run: the runner's table gets the steps of groups whose transports work in C
        now, and leaves the others to the host."""
        self.transfers = []
        transports = [process.transports.get(ranks) for ranks in self.groups]
        transports = [x if x is not None and x.works_in_c() else None for x in transports]
        if transports == self.bound:
            return
        self.bound = transports
        self.in_c = self.calls_in_c(dict(zip(self.groups, transports, strict=True)))
        for at, step in self.steps.items():
            call = self.in_c.get(at)
            table[at].function = None if call is None else call.functions[step.part]
            table[at].extra = None if call is None else call.address

    def calls_in_c(self, transports: dict[tuple[Any, ...], Any]) -> dict[int, Any]:
        """Calls of the given transports, by step; a start and its wait share one."""
        calls: dict[int, Any] = {}
        started: dict[tuple, Any] = {}  # by the place of the result
        for at, step in sorted(self.steps.items()):
            place, call = (step.result.kind, step.result.at), step.node.call
            transport = transports[call.attrs["group"].ranks]
            if transport is None:
                continue
            if step.part == "wait":
                calls[at] = started.pop(place)
            else:
                calls[at] = transport.call_in_c(call, self.asked[at])
            if step.part == "start":
                started[place] = calls[at]
        return {at: call for at, call in calls.items() if call is not None}

    def run(self, at: int, array_of: Any) -> None:
        """Run a step of the host: a call of Python's, or the end of a long one in C.
        `array_of(place)` is memory of the run."""
        if at in self.in_c:
            self.in_c[at].finish()
            return
        step = self.steps[at]
        place = step.result.kind, step.result.at
        if step.part == "wait":
            request = self.under_way.pop(place)
            request.wait()
            self.transfers.append((at, request.begin_ns, request.end_ns))
            return
        arrays = array_of(step.source), array_of(step.result)
        operands = step.node.call, self.asked[at], *arrays
        if step.part == "start":
            self.under_way[place] = start(*operands)
        else:
            begin_ns = perf_counter_ns()
            complete(*operands)
            self.transfers.append((at, begin_ns, perf_counter_ns()))

    def end_failed(self) -> None:
        """Wait for the collectives that an error left under way: they use the memory of the run."""
        for call in self.in_c.values():
            with contextlib.suppress(Exception):
                call.finish()
        while self.under_way:
            _, request = self.under_way.popitem()
            with contextlib.suppress(Exception):
                request.wait()

    def all_transfers(self) -> list[tuple[int, int, int]]:
        """The transfers, with those of C."""
        ended = [(at, call) for at, call in self.in_c.items() if self.steps[at].part != "start"]
        return self.transfers + [(at, call.begin_ns, call.end_ns) for at, call in ended]
