"""Memory over time: the bytes in use, their owners, and the tensors alive at the peak.

The arena of a Program, in which values share memory, is split into its values."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glasshouse.compile.lowering.source_map import ReferenceSteps, StepInfo, StoredValue
from glasshouse.compile.planning.plan import ARENA_TAG
from glasshouse.compile.programs.executable import Program
from glasshouse.memory import Tag
from glasshouse.profile import record as recorded
from glasshouse.profile.counter import Sums
from glasshouse.profile.holders import OTHERS, HeldTensor, kind_of
from glasshouse.profile.naming import name_of_value
from glasshouse.profile.record import COMPUTED, MEMORY_KINDS, RecordedRun
from glasshouse.profile.text import Tabular, milliseconds, percent, si_text, table
from glasshouse.profile.trace import Trace

ALLOC, FREE = MEMORY_KINDS.index("alloc"), MEMORY_KINDS.index("free")
UNUSED = Tag("arena, not in use then")


@dataclass(frozen=True)
class Alive:
    """Memory in use at a time, of one owner."""

    tag: Tag
    nbytes: int
    count: int


class PeakTensor(NamedTuple):
    """A tensor at the peak: its owner, its shape and dtype if they are known, its bytes, the user's
    line of its call, and whether it lies in a Program's arena."""

    tag: Tag
    spec: str
    nbytes: int
    line: str
    in_arena: bool

    @property
    def kind(self) -> str:
        """Kind of memory, by the model or optimizer that holds it; else "others"."""
        return kind_of(self.tag)


class MemoryTimeline(Tabular):
    """`time_ns` since the profile began, with the bytes then allocated and reserved. `alive` are
    the owners at the peak, the largest first; memory from before is among them."""

    peak_bytes: int
    peak_ns: int

    def __init__(self, trace: Trace) -> None:
        rows = trace.memory
        self.trace = trace
        self.time_ns: np.ndarray = np.concatenate(([0], rows["time"] - trace.begin_ns))
        first = trace.before_bytes
        self.allocated: np.ndarray = np.concatenate(([first[0]], rows["allocated"]))
        self.reserved: np.ndarray = np.concatenate(([first[1]], rows["reserved"]))
        self.at: int = int(self.allocated.argmax())
        self.peak_bytes, self.peak_ns = int(self.allocated[self.at]), int(self.time_ns[self.at])
        self.alive: list[Alive] = alive_after(trace, self.at)

    def run_at_peak(self, nbytes: int) -> RecordedRun | None:
        """Find the run of a Program whose arena has so many bytes at the peak: of the runs that end
        later, the first one whose arena fits best."""
        peak_ns = self.peak_ns + self.trace.begin_ns
        runs = [r for r in self.trace.program_runs if r.end_ns >= peak_ns]
        fitting = [r for r in runs if 0 < r.program.arena_bytes <= nbytes]
        return min(
            fitting, key=lambda r: (nbytes - r.program.arena_bytes, r.begin_ns), default=None
        )

    @cached_property
    def tensors(self) -> list[PeakTensor]:
        """Tensors alive at the peak, the largest first. The arena is shown at the step of its
        Program at which most of it is in use."""
        tensors: list[PeakTensor] = []
        outputs, results = OutputsOfRuns(self.trace), ResultsOfCalls(self.trace)
        for nbytes, tag, row, owner in held_after(self.trace, self.at):
            run = self.run_at_peak(nbytes) if tag == ARENA_TAG else None
            if run is not None:
                tensors += arena_tensors(self.trace, run, nbytes)
                continue
            tensor = (outputs.tensor(row) or results.tensor(row)) if row >= 0 else None
            tensor = tensor or PeakTensor(tag, "", nbytes, "", False)
            if owner is not None:
                tensor = tensor._replace(tag=owner.tag, spec=owner.spec)
            tensors.append(tensor)
        return sorted(tensors, key=lambda t: -t.nbytes)

    def kinds(self) -> dict[str, int]:
        """Bytes at the peak of parameters, gradients, optimizer state and all others."""
        sums: dict[str, int] = {}
        for t in sorted(self.tensors, key=lambda t: t.kind == OTHERS):
            sums[t.kind] = sums.get(t.kind, 0) + t.nbytes
        return sums

    @cached_property
    def in_use(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(time_ns, bytes) of each run of a Program that has an arena: allocated bytes with the
        arena's values in place of the arena, from the begin of each step on, and at its end."""
        curves = []
        for run in self.trace.program_runs:
            used_bytes = np.array([sum(sizes.values()) for sizes in sizes_in_arena(run.program)])
            if not run.program.arena_bytes or len(used_bytes) != len(run.ends_ns):
                continue
            at = np.searchsorted(self.time_ns, run.ends_ns - self.trace.begin_ns, "right") - 1
            nbytes = np.maximum(0, self.allocated[at] - run.program.arena_bytes + used_bytes)
            times = np.append(run.begins_ns, run.ends_ns[-1]) - self.trace.begin_ns
            curves.append((times, np.append(nbytes, nbytes[-1])))
        return curves

    def table(self, row_limit: int = 20) -> str:
        """The owners at the peak as text, in the arena too."""
        sums = Sums()
        for t in self.tensors:
            sums.add((t.tag, t.in_arena), t.nbytes, 1)
        owners = sorted(sums.items(), key=lambda x: -x[1][0])
        lines = [
            [
                f"{tag}{' (arena)' * (in_arena and tag != UNUSED)}",
                si_text(nbytes, "B"),
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
                [
                    f"others ({len(owners) - row_limit})",
                    si_text(others, "B"),
                    share,
                    f"{count:,}",
                ]
            )
        rest = self.peak_bytes - sum(t.nbytes for t in self.tensors)
        lines.append(["rounding", si_text(rest, "B"), percent(rest, self.peak_bytes), ""])
        kinds = ", ".join(f"{name} {si_text(n, 'B')}" for name, n in self.kinds().items())
        return (
            f"peak {self.peak_bytes:,} bytes at {milliseconds(self.peak_ns)}\n"
            f"{kinds}\n" + table(["alive at the peak", "bytes", "%", "tensors"], lines) + "\n"
        )


class OutputsOfRuns:
    """Blocks of memory that runs of Programs allocate for their outputs: each output of a run has
    one, in their order, before the run begins or as it comes to it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.runs: list[RecordedRun] = sorted(trace.program_runs, key=lambda run: run.end_ns)
        ends_ns = [run.end_ns for run in self.runs]
        self.number_of_run: Any = np.searchsorted(ends_ns, trace.memory["time"], "left").tolist()
        self.alike: dict[
            tuple[Any, ...], list[int]
        ] = {}  # rows of blocks for outputs that look alike
        for i, row in enumerate(trace.memory):
            if row["kind"] == ALLOC:
                self.alike.setdefault(self.looks(i), []).append(i)
        self.values: dict[int, dict[int, PeakTensor]] = {}  # the outputs, by Program
        self.numbers: dict[int, dict[tuple[Any, ...], list[int]]] = {}

    def looks(self, row: int) -> tuple[Any, ...]:
        """Features that match a block with an output: the next run, the owner, and the bytes."""
        event = self.trace.memory[row]
        return self.number_of_run[row], self.trace.tags[event["tag"]], int(event["nbytes"])

    def tensor(self, row: int) -> PeakTensor | None:
        """The output that an event's block was for; None where it was for none."""
        output = self.output(row)
        if output is None:
            return None
        program, number = output
        tensor, owner = self.values[id(program)][number], self.owners.get((id(program), number))
        return tensor if owner is None else tensor._replace(tag=owner.tag, spec=owner.spec)

    def output(self, row: int) -> tuple[Any, int] | None:
        """The Program and the number of the output that an event's block was for."""
        run, tag, nbytes = looks = self.looks(row)
        if run == len(self.runs):
            return None
        program = self.runs[run].program
        numbers = self.outputs_of(program).get((tag, nbytes), [])
        rows = self.alike[looks]
        if len(numbers) == len(rows):
            return program, numbers[rows.index(row)]
        alike = {self.values[id(program)][number] for number in numbers}
        return (program, numbers[0]) if len(alike) == 1 else None

    def outputs_of(self, program: Program) -> dict[tuple[Any, ...], list[int]]:
        """Numbers of a Program's outputs by the features of their blocks, in their order."""
        if id(program) not in self.values:
            stored = [(v, info) for info in program.step_infos() for v in info.outputs]
            numbers: dict[tuple[Any, ...], list[int]] = {}
            values: dict[int, PeakTensor] = {}
            for value, info in sorted(stored, key=lambda x: x[0].at):
                tag = Tag(value.op, *value.origin[:2])
                values[value.at] = tensor_of(self.trace, program, info, value)
                numbers.setdefault((tag, value.nbytes), []).append(value.at)
            self.values[id(program)], self.numbers[id(program)] = values, numbers
        return self.numbers[id(program)]

    @cached_property
    def owners(self) -> dict[tuple[int, int], HeldTensor]:
        """Owners of outputs by Program and number: models and optimizers. One run finds all of
        them; the outputs of another may be freed before anybody looks."""
        owners: dict[tuple[int, int], HeldTensor] = {}
        rows = self.trace.memory
        alive: dict[int, int] = {}  # by address, the row of the block that is there
        until = 0
        for count, blocks in self.trace.holders.blocks:
            for i in range(until, count):
                if rows["kind"][i] == ALLOC:
                    alive[int(rows["address"][i])] = i
                elif rows["kind"][i] == FREE:
                    alive.pop(int(rows["address"][i]), None)
            until = count
            for address in blocks.keys() & alive.keys():
                if output := self.output(alive[address]):
                    owners[id(output[0]), output[1]] = blocks[address]
        return owners


class ResultsOfCalls:
    """Blocks of memory that calls which were computed at once allocated: a block is recorded during
    its call, or right after it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        computed = np.flatnonzero(trace.events["kind"] == COMPUTED)
        self.events: np.ndarray = computed[
            np.argsort(trace.events["begin"][computed], kind="stable")
        ]
        self.begins_ns: np.ndarray = trace.events["begin"][self.events]

    def event(self, row: int) -> int | None:
        """The event of the call that an event's block was for; None where it is not known."""
        block = self.trace.memory[row]
        at = int(np.searchsorted(self.begins_ns, block["time"], "right")) - 1
        if at < 0:
            return None
        event = int(self.events[at])
        call = recorded.calls[int(self.trace.events["what"][event])]
        return event if call.name == self.trace.tags[block["tag"]].primitive else None

    def tensor(self, row: int) -> PeakTensor | None:
        """The result that an event's block was for; None where the call is not known."""
        event, block = self.event(row), self.trace.memory[row]
        if event is None:
            return None
        call = recorded.calls[int(self.trace.events["what"][event])]
        tag, nbytes = self.trace.tags[block["tag"]], int(block["nbytes"])
        specs = {repr(spec) for spec in call.outs if spec.nbytes == nbytes}
        spec = specs.pop() if len(specs) == 1 else ""
        return PeakTensor(tag, spec, nbytes, self.trace.line_of_event(event), False)


class HeldBlock(NamedTuple):
    """A block of memory, the row of its allocation (-1 if it was there before), and the model or
    optimizer that owns it."""

    nbytes: int
    tag: Tag
    row: int
    owner: HeldTensor | None = None


def held_after(trace: Trace, count: int) -> list[HeldBlock]:
    """Each block that is held after some events."""
    blocks = {address: HeldBlock(nbytes, tag, -1) for address, (nbytes, tag) in trace.live.items()}
    for i, row in enumerate(trace.memory[:count]):
        if row["kind"] == ALLOC:
            blocks[int(row["address"])] = HeldBlock(int(row["nbytes"]), trace.tags[row["tag"]], i)
        elif row["kind"] == FREE:
            blocks.pop(int(row["address"]), None)
    ends: dict[int, int] = {}  # by address, the row that frees it
    later = trace.memory[count:]
    for i in np.flatnonzero(later["kind"] == FREE).tolist():
        ends.setdefault(int(later["address"][i]), count + i)
    return [
        block._replace(
            owner=trace.holders.name_block(
                address, block.row, ends.get(address, len(trace.memory)), count
            )
        )
        for address, block in blocks.items()
    ]


def alive_after(trace: Trace, count: int) -> list[Alive]:
    """Owners of the memory held after some events, the largest first."""
    sums = Sums()
    for nbytes, tag, _, owner in held_after(trace, count):
        sums.add(owner.tag if owner is not None else tag, nbytes, 1)
    alive = [Alive(tag, nbytes, blocks) for tag, (nbytes, blocks) in sums.items()]
    return sorted(alive, key=lambda a: -a.nbytes)


def values_in_arena(
    program: Program | ReferenceSteps,
) -> Iterator[list[tuple[StoredValue, StepInfo]]]:
    """Values in a Program's arena after each step, with the steps that made them. Of values that
    follow each other at one place the last one counts."""
    values: dict[int, tuple[StoredValue, StepInfo]] = {}
    for i, info in enumerate(program.step_infos()):
        values = {at: x for at, x in values.items() if x[0].last >= i}
        values |= {value.at: (value, info) for value in info.arena}
        yield list(values.values())


def sizes_in_arena(program: ReferenceSteps) -> list[dict[int, int]]:
    """The bytes of the values in the arena by their places, after each step."""
    return [{v.at: v.nbytes for v, _ in values} for values in values_in_arena(program)]


def arena_tensors(trace: Trace, run: RecordedRun, nbytes: int) -> list[PeakTensor]:
    """Tensors in a run's arena where it is fullest, and the part of it that is unused then."""
    fullest = max(values_in_arena(run.program), key=lambda values: sum(v.nbytes for v, _ in values))
    tensors = [tensor_of(trace, run.program, info, value, True) for value, info in fullest]
    rest = nbytes - sum(t.nbytes for t in tensors)
    return tensors + [PeakTensor(UNUSED, "", rest, "", True)] * (rest > 0)


def tensor_of(
    trace: Trace, program: Program, info: StepInfo, value: StoredValue, in_arena: bool = False
) -> PeakTensor:
    """A value of a Program as a tensor at the peak."""
    origin = value.origin
    owner = trace.holders.places.get((id(program), origin.place))
    tag = (
        Tag(name_of_value(info, value), origin.module, origin.phase) if owner is None else owner.tag
    )
    line = trace.line(trace.number_of[id(program)], origin.place)
    return PeakTensor(tag, value.spec, value.nbytes, line, in_arena)
