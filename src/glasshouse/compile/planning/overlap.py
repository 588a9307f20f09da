"""Early starts and late waits: an order of steps in which others run beside a collective.

A collective starts as soon as its operand is there, and its wait comes right before the first step
that needs its end. All ranks start the collectives of a Program in the order of their calls, each
where its own steps allow. Values that live longer for it may raise the peak of the arena by a small
part only; else the steps stay closer together."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from glasshouse.compile.planning.order import free_received, is_collective, received_later
from glasshouse.compile.steps.steps import LoweredStep, PlannedBuffer, Step

MOST_GROWTH = 8  # the peak of the arena may grow by one part in so many


class Flight(NamedTuple):
    """A collective between its start and its wait. Places are numbers of other steps: `begin` is
    the step before which it was recorded."""

    start: LoweredStep
    wait: LoweredStep
    begin: int


class Touches:
    """By buffer, the places of the steps that read or write it, and of those that write it."""

    def __init__(self, steps: list[Step]) -> None:
        self.all: dict[PlannedBuffer, list[int]] = {}
        self.writes: dict[PlannedBuffer, list[int]] = {}
        for i, step in enumerate(steps):
            for buffer in step.reads() | step.writes():
                self.all.setdefault(buffer, []).append(i)
            for buffer in step.writes():
                self.writes.setdefault(buffer, []).append(i)


def last_before(places: list[int], end: int) -> int:
    return max((i for i in places if i < end), default=-1)


def first_from(places: list[int], begin: int, end: int) -> int:
    return min((i for i in places if i >= begin), default=end)


def overlapped(schedule: list[Step]) -> list[Step]:
    """Reorder steps: starts as early and waits as late as memory allows."""
    if not any(isinstance(step, LoweredStep) and step.part for step in schedule):
        return schedule
    schedule = free_received(schedule)
    limit = limit_of(schedule)
    later = received_later(schedule)
    if live_bytes(later).max(initial=0) <= limit:
        schedule = later
    return Overlap(schedule, limit).ordered()


def limit_of(schedule: list[Step]) -> int:
    """Limit of the arena's bytes in use while steps run beside each other."""
    peak = int(live_bytes(schedule).max(initial=0))
    return peak + peak // MOST_GROWTH


class Overlap:
    """Finds the places of starts and waits among the other steps of a schedule.

    others   the steps that are neither
    flights  the collectives, in the order of their calls
    live     by place, the bytes of the arena that are in use while that step runs
    limit    how many there may be"""

    def __init__(self, schedule: list[Step], limit: int) -> None:
        self.limit = limit
        self.others: list[Step] = []
        self.flights: list[Flight] = []
        starts: dict[int, LoweredStep] = {}
        positions: list[int] = []  # of the others in the schedule
        for i, step in enumerate(schedule):
            if not isinstance(step, LoweredStep) or not step.part:
                positions.append(i)
                self.others.append(step)
            elif step.part == "start":
                starts[step.node.number] = step
            else:
                start = starts[step.node.number]
                self.flights.append(Flight(start, step, len(self.others)))
        self.touches: Touches = Touches(self.others)
        self.live: np.ndarray = live_bytes(schedule)[positions]
        # Steps that do a whole collective, before which no later one may start.
        self.fences: list[int] = [i for i, step in enumerate(self.others) if is_collective(step)]

    def ordered(self) -> list[Step]:
        """The new schedule."""
        starts: dict[int, list[LoweredStep]] = {}
        waits: dict[int, list[LoweredStep]] = {}
        earliest = 0
        for number, flight in enumerate(self.flights):
            earliest = self.place_of_start(number, flight, earliest)
            starts.setdefault(earliest, []).append(flight.start)
            waits.setdefault(self.place_of_wait(number, flight), []).append(flight.wait)
        schedule: list[Step] = []
        for place in range(len(self.others) + 1):
            schedule += in_turn(starts.get(place, []), waits.get(place, []))
            schedule += self.others[place : place + 1]
        return with_whole(schedule)

    def place_of_start(self, number: int, flight: Flight, earliest: int) -> int:
        """Step before which a collective starts, not before those that were recorded earlier."""
        begin, operands, results = flight.begin, flight.start.reads(), flight.start.writes()
        if any(f.wait.writes() & (operands | results) for f in self.flights[:number]):
            return begin
        previous = [last_before(self.touches.writes.get(b, []), begin) for b in operands]
        previous += [last_before(self.touches.all.get(b, []), begin) for b in results]
        first = max(earliest, last_before(self.fences, begin) + 1, *(i + 1 for i in previous))
        new = sum(b.spec.nbytes for b in results - operands if b.place == "arena")
        full = np.flatnonzero(self.live[first:begin] + new > self.limit)
        first += int(full[-1]) + 1 if new and len(full) else 0
        self.live[first:begin] += new
        return first

    def place_of_wait(self, number: int, flight: Flight) -> int:
        """Step before which a collective has to be done."""
        begin, operands, results = flight.begin, flight.start.reads(), flight.start.writes()
        end = len(self.others)
        needed = [first_from(self.touches.all.get(b, []), begin, end) for b in results]
        needed += [first_from(self.touches.writes.get(b, []), begin, end) for b in operands]
        for other in self.flights[number + 1 :]:
            if other.start.reads() & results or other.start.writes() & (operands | results):
                needed.append(other.begin)
        last = min(needed)
        for buffer in operands - results:
            earliest = (
                last_before(self.touches.all.get(buffer, []), end) + 1
            )  # in memory until then anyway
            begin = max(begin, earliest)
            if buffer.place == "arena" and begin < last:
                full = np.flatnonzero(self.live[begin:last] + buffer.spec.nbytes > self.limit)
                last = begin + int(full[0]) if len(full) else last
                self.live[begin:last] += buffer.spec.nbytes
        return last


def in_turn(starts: list[LoweredStep], waits: list[LoweredStep]) -> list[LoweredStep]:
    """Order starts and waits of one place: a start first, unless it needs the end of another."""
    ordered: list[LoweredStep] = []
    to_come = {id(start.node) for start in starts}
    for start in starts:
        buffers = start.reads() | start.writes()
        ended = [w for w in waits if id(w.node) not in to_come and w.writes() & buffers]
        waits = [wait for wait in waits if wait not in ended]
        ordered += [*ended, start]
        to_come.remove(id(start.node))
    return [*ordered, *waits]


def with_whole(schedule: list[Step]) -> list[Step]:
    """Replace a start and a wait with nothing between them by one step, which needs no thread."""
    whole: list[Step] = []
    for step in schedule:
        if isinstance(step, LoweredStep) and step.part == "wait" and starts(whole[-1], step):
            whole[-1] = replace(step, part="")
        else:
            whole.append(step)
    return whole


def starts(step: Step, wait: LoweredStep) -> bool:
    """Whether a step starts the collective for which another one waits."""
    return isinstance(step, LoweredStep) and step.part == "start" and step.node is wait.node


def live_bytes(schedule: list[Step]) -> np.ndarray:
    """The bytes of the arena that are in use at each step."""
    first: dict[PlannedBuffer, int] = {}
    last: dict[PlannedBuffer, int] = {}
    for i, step in enumerate(schedule):
        for buffer in step.reads() | step.writes():
            if buffer.place == "arena":
                first.setdefault(buffer, i)
                last[buffer] = i
    changes = np.zeros(len(schedule) + 1, np.int64)
    for buffer, i in first.items():
        changes[i] += buffer.spec.nbytes
        changes[last[buffer] + 1] -= buffer.spec.nbytes
    return np.cumsum(changes[:-1])
