"""Simulation of a pipeline's schedule: the actions of each rank and their times."""

from collections import Counter
from typing import Any, NamedTuple

from glasshouse.base.errors import OptionError

FORWARD, BACKWARD, SEND, RECEIVE = "forward", "backward", "send", "receive"


class Action(NamedTuple):
    """Action of a rank: forward or backward of a microbatch in a stage; sending the result (`of`:
    forward or backward) to `peer`; or receiving the result of the rank `peer`."""

    kind: str
    stage: int
    microbatch: int
    of: str = ""
    peer: int = -1

    @property
    def result(self) -> tuple[str, int, int]:
        """Result that it makes, sends or receives: (kind, stage, microbatch)."""
        return self.of or self.kind, self.stage, self.microbatch

    def __str__(self) -> str:
        what = f"{self.kind} {self.of}".rstrip()
        ends = {SEND: f" to rank {self.peer}", RECEIVE: f" from rank {self.peer}"}
        return f"{what} {self.microbatch} of stage {self.stage}{ends.get(self.kind, '')}"

    def operand(self, stages: int) -> tuple[str, int, int] | None:
        """The result of another stage that a forward or backward needs."""
        near = self.stage + (1 if self.kind == BACKWARD else -1)
        return (self.kind, near, self.microbatch) if 0 <= near < stages else None

    def reader(self, stages: int) -> int | None:
        """Stage that needs the result of a forward or backward; None at the ends."""
        near = self.stage + (1 if self.kind == FORWARD else -1)
        return near if 0 <= near < stages else None


class Span(NamedTuple):
    """A forward or backward, and its time."""

    action: Action
    begin: float
    end: float


class ScheduleSimulation:
    """Spans of each rank, if each forward, backward and transfer takes the given time.

    Raises: OptionError where ranks wait for ever, where one receives other things than are sent to
        it, or where the work is not done once each
    """

    def __init__(
        self, actions: list[list[Action]], stages: int, microbatches: int,
        forward: float = 1.0, backward: float = 2.0, transfer: float = 0.0,
    ) -> None:  # fmt: skip
        self.stages = stages
        self.transfer = transfer
        self.seconds: dict[str, float] = {FORWARD: forward, BACKWARD: backward}
        self.spans: list[list[Span]] = [[] for _ in actions]
        self.now: list[float] = [0.0] * len(actions)
        self.arrived: list[dict[tuple[Any, ...], float]] = [
            {} for _ in actions
        ]  # results, and since when
        self.sent: dict[
            tuple[int, int], list[tuple[Any, ...]]
        ] = {}  # by channel (from, to), with arrival
        self.receives: dict[tuple[int, int], list[tuple[Any, ...]]] = {}  # of receives, in order
        self.run(actions)
        self.check(actions, microbatches)

    def run(self, actions: list[list[Action]]) -> None:
        """Run all lists as far as possible."""
        self.rest: list[list[Action]] = [list(reversed(order)) for order in actions]
        moved = True
        while moved:
            moved = False
            for rank, rest in enumerate(self.rest):
                while rest and self.advance(rank, rest[-1]):
                    rest.pop()
                    moved = True

    def advance(self, rank: int, action: Action) -> bool:
        """Run an action of a rank, if its operands are there."""
        if action.kind == SEND:
            arrival = action.result, self.now[rank] + self.transfer
            self.sent.setdefault((rank, action.peer), []).append(arrival)
            return True
        if action.kind == RECEIVE:
            self.receives.setdefault((action.peer, rank), []).append(action.result)
            return True
        self.arrive(rank)
        needed: list[Any] = [action.operand(self.stages)] if action.operand(self.stages) else []
        needed += [(FORWARD, *action.result[1:])] if action.kind == BACKWARD else []
        if not all(result in self.arrived[rank] for result in needed):
            return False
        begin = max([self.now[rank], *(self.arrived[rank][result] for result in needed)])
        self.now[rank] = begin + self.seconds[action.kind]
        self.arrived[rank][action.result] = self.now[rank]
        self.spans[rank].append(Span(action, begin, self.now[rank]))
        return True

    def arrive(self, rank: int) -> None:
        """Record results that a rank receives; they must come in the order of its receives."""
        for (peer, to), receives in self.receives.items():
            arrivals = self.sent.get((peer, to), ()) if to == rank else ()
            for needed, (result, at) in zip(receives, arrivals, strict=False):
                if needed != result:
                    expected = f"{words_of(needed)} to come from rank {peer} on rank {rank}"
                    fix = "Receive in the order of sending."
                    raise OptionError("schedule", expected, words_of(result), fix)
                self.arrived[rank][result] = at

    def check(self, actions: list[list[Action]], microbatches: int) -> None:
        """Raise unless all lists have ended, with all of the work done once."""
        if any(self.rest):
            waits = (f"rank {r} in {rest[-1]}" for r, rest in enumerate(self.rest) if rest)
            fix = "Change the order in which they compute."
            raise OptionError("schedule", "ranks that get to their end", "; ".join(waits), fix)
        counts = Counter(span.action.result for spans in self.spans for span in spans)
        whole = [
            (kind, stage, i)
            for kind in (FORWARD, BACKWARD)
            for stage in range(self.stages)
            for i in range(microbatches)
        ]
        for result in (*whole, *counts):
            if counts[result] != 1 or result not in whole:
                expected = f"each of {microbatches} microbatches once in {self.stages} stages"
                got = f"{words_of(result)} {counts[result]} times"
                raise OptionError("schedule", expected, got, "Complete the lists.")
        lost = [
            k for k, results in self.sent.items() if len(results) != len(self.receives.get(k, ()))
        ]
        if lost:
            got = f"another number from rank {lost[0][0]} to rank {lost[0][1]}"
            raise OptionError("schedule", "a receive for each send", got, "Complete the lists.")

    # -- results -------------------------------------------------------------------------------

    @property
    def total(self) -> float:
        """The time of the whole."""
        return max(self.now)

    @property
    def bubble_share(self) -> float:
        """The share of the ranks' time in which they wait."""
        busy = sum(span.end - span.begin for spans in self.spans for span in spans)
        return 1 - busy / (len(self.spans) * self.total)

    def most_alive(self, rank: int) -> int:
        """How many forwards of a rank wait for their backward at most."""
        alive = most = 0
        for span in self.spans[rank]:
            alive += 1 if span.action.kind == FORWARD else -1
            most = max(most, alive)
        return most

    def rows(self) -> list[str]:
        """The picture: a row a rank, a column a unit of time."""
        width = max(len(self.label(span)) for spans in self.spans for span in spans)
        return [f"rank {rank}  {self.row(rank, width)}" for rank in range(len(self.spans))]

    def label(self, span: Span) -> str:
        chunk = span.action.stage // len(self.spans)
        letter = chr(ord("a") + chunk) if self.stages > len(self.spans) else ""
        return f"{span.action.kind[0].upper()}{span.action.microbatch}{letter}"

    def row(self, rank: int, width: int) -> str:
        cells: list[str] = []
        at = 0.0
        for span in self.spans[rank]:
            cells += [".".ljust(width)] * round(span.begin - at)
            units = round(span.end - span.begin)
            fill = "=" if units > 1 else " "
            cells.append(self.label(span).ljust((width + 1) * units - 1, fill))
            at = span.end
        return " ".join(cells).rstrip()


def words_of(result: tuple[Any, ...]) -> str:
    return str(Action(*result))
