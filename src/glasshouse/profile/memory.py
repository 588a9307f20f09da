"""Memory over time: what the manager held, for whom, and what was alive at the peak.

The arena of a Program, in which values share memory, is taken apart by what lies in it."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from glasshouse.compile.plan import ARENA_TAG
from glasshouse.compile.source_map import ArenaValue
from glasshouse.memory import Tag
from glasshouse.profile.counter import Sums
from glasshouse.profile.record import MEMORY_KINDS, RecordedRun
from glasshouse.profile.text import milliseconds, percent, scaled, table
from glasshouse.profile.trace import Trace

ALLOC, FREE = MEMORY_KINDS.index("alloc"), MEMORY_KINDS.index("free")
UNUSED = Tag("arena, not in use then")


class Alive(NamedTuple):
    """Memory in use at a time, of one owner."""

    tag: Tag
    nbytes: int
    count: int


class PeakTensor(NamedTuple):
    """A tensor at the peak: whose value, its shape and dtype if they are known, its bytes, the
    user's line of its call, and whether it lies in a Program's arena."""

    tag: Tag
    spec: str
    nbytes: int
    line: str
    in_arena: bool


class MemoryTimeline:
    """`time_ns` since the profile began, with the bytes then allocated and reserved.
    `alive` are the owners at the peak, the largest first; what was there before is among them."""

    def __init__(self, trace: Trace):
        rows = trace.memory
        self.trace = trace
        self.time_ns = np.concatenate(([0], rows["time"] - trace.begin_ns))
        first = trace.before_bytes
        self.allocated = np.concatenate(([first[0]], rows["allocated"]))
        self.reserved = np.concatenate(([first[1]], rows["reserved"]))
        self.at = int(self.allocated.argmax())
        self.peak_bytes, self.peak_ns = int(self.allocated[self.at]), int(self.time_ns[self.at])
        self.alive = alive_after(trace, self.at)

    def run_at_peak(self, nbytes: int) -> RecordedRun | None:
        """The run of a Program that has an arena of so many bytes at the peak: of those that end
        later the first one whose arena fits best."""
        peak_ns = self.peak_ns + self.trace.begin_ns
        runs = [r for r in self.trace.program_runs if r.end_ns >= peak_ns]
        fitting = [r for r in runs if 0 < r.program.arena_bytes <= nbytes]
        return min(
            fitting, key=lambda r: (nbytes - r.program.arena_bytes, r.begin_ns), default=None
        )

    @cached_property
    def tensors(self) -> list[PeakTensor]:
        """What is alive at the peak, tensor by tensor, the largest first. The arena is shown at the
        step of its Program at which most of it is in use."""
        tensors: list[PeakTensor] = []
        for nbytes, tag in held_after(self.trace, self.at).values():
            run = self.run_at_peak(nbytes) if tag == ARENA_TAG else None
            if run is not None:
                tensors += arena_tensors(self.trace, run, nbytes)
            else:
                tensors.append(PeakTensor(tag, "", nbytes, "", False))
        return sorted(tensors, key=lambda t: -t.nbytes)

    @cached_property
    def in_use(self) -> tuple[np.ndarray, np.ndarray]:
        """(time_ns, bytes) of what is allocated, with the arenas' values in place of the arenas: a
        point for each step of each Program that ran."""
        times, nbytes = [], []
        for run in self.trace.program_runs:
            used = np.array([sum(sizes.values()) for sizes in sizes_in_arena(run.program)])
            if run.program.arena_bytes and len(used) == len(run.ends_ns):
                at = np.searchsorted(self.time_ns, run.ends_ns - self.trace.begin_ns, "right") - 1
                times.append(run.ends_ns - self.trace.begin_ns)
                nbytes.append(self.allocated[at] - run.program.arena_bytes + used)
        if not times:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(times), np.maximum(0, np.concatenate(nbytes))

    def table(self, row_limit: int = 20) -> str:
        """The owners at the peak as text, in the arena too."""
        sums = Sums()
        for t in self.tensors:
            sums.add((t.tag, t.in_arena), t.nbytes, 1)
        owners = sorted(sums.items(), key=lambda x: -x[1][0])
        lines = [
            [
                f"{tag}{' (arena)' * (in_arena and tag != UNUSED)}",
                scaled(nbytes, "B"),
                percent(nbytes, self.peak_bytes),
                f"{count:,}",
            ]
            for (tag, in_arena), (nbytes, count) in owners[:row_limit]
        ]
        others = sum(nbytes for _, (nbytes, _) in owners[row_limit:])
        if others:
            count = sum(count for _, (_, count) in owners[row_limit:])
            share = percent(others, self.peak_bytes)
            lines.append(
                [f"others ({len(owners) - row_limit})", scaled(others, "B"), share, f"{count:,}"]
            )
        rest = self.peak_bytes - sum(t.nbytes for t in self.tensors)
        lines.append(["rounding", scaled(rest, "B"), percent(rest, self.peak_bytes), ""])
        return (
            f"peak {self.peak_bytes:,} bytes at {milliseconds(self.peak_ns)}\n"
            + table(["alive at the peak", "bytes", "%", "tensors"], lines)
            + "\n"
        )

    def __repr__(self):
        return self.table()


def held_after(trace: Trace, count: int) -> dict[int, tuple[int, Tag]]:
    """(bytes, tag) of each block that is held after some events, by its address."""
    held = {address: (nbytes, tag) for address, (nbytes, tag) in trace.live.items()}
    for row in trace.memory[:count]:
        if row["kind"] == ALLOC:
            held[int(row["address"])] = int(row["nbytes"]), trace.tags[row["tag"]]
        elif row["kind"] == FREE:
            held.pop(int(row["address"]), None)
    return held


def alive_after(trace: Trace, count: int) -> list[Alive]:
    """The owners of what is held after some events, the largest first."""
    sums = Sums()
    for nbytes, tag in held_after(trace, count).values():
        sums.add(tag, nbytes, 1)
    alive = [Alive(tag, nbytes, blocks) for tag, (nbytes, blocks) in sums.items()]
    return sorted(alive, key=lambda a: -a.nbytes)


def values_in_arena(program) -> Iterator[list[ArenaValue]]:
    """After each step of a Program, the values that lie in its arena. Of values that follow each
    other at one place the last one is there."""
    values: dict[int, ArenaValue] = {}
    for i, info in enumerate(program.step_infos()):
        values = {at: value for at, value in values.items() if value.last >= i}
        values |= {value.at: value for value in info.arena}
        yield list(values.values())


def sizes_in_arena(program) -> list[dict[int, int]]:
    """The bytes of the values in the arena by their places, after each step."""
    return [{value.at: value.nbytes for value in values} for values in values_in_arena(program)]


def arena_tensors(trace: Trace, run: RecordedRun, nbytes: int) -> list[PeakTensor]:
    """What lies in a run's arena where it is fullest, and what of it is not in use then."""
    number = trace.number_of[id(run.program)]
    fullest = max(values_in_arena(run.program), key=lambda values: sum(v.nbytes for v in values))
    tensors = []
    for value in fullest:
        origin = value.origin
        tag = Tag(value.name, origin.module, origin.phase)
        line = trace.line(number, origin.place)
        tensors.append(PeakTensor(tag, value.spec, value.nbytes, line, True))
    rest = nbytes - sum(t.nbytes for t in tensors)
    return tensors + [PeakTensor(UNUSED, "", rest, "", True)] * (rest > 0)
