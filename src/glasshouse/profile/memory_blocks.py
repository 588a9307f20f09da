"""Blocks of memory over time: their lifetimes, owners, and the code that allocated them."""

from typing import Any, NamedTuple

from glasshouse.memory import Tag
from glasshouse.profile.memory import ALLOC, FREE, MemoryTimeline, OutputsOfRuns, ResultsOfCalls
from glasshouse.profile.text import Tabular, milliseconds, si_text, table
from glasshouse.profile.trace import Trace

MOST = 200  # blocks of a table


class BlockLife(NamedTuple):
    """A block of memory: ns since the recording began (0 if it was there before, the end of the
    recording if it still is), bytes, the owner, shape and dtype if they are known, and the user's
    line and stack, the innermost frame first. The stack is that of the call, or of the code that
    needed the result of a Program."""

    begin_ns: int
    end_ns: int
    nbytes: int
    tag: Tag
    spec: str
    line: str
    stack: list[str]


class BlockLives(Tabular, list[Any]):
    """The largest blocks of a recording, the largest first; of equal ones the earlier. Prints as a
    table."""

    outputs: OutputsOfRuns
    results: ResultsOfCalls

    def __init__(self, timeline: MemoryTimeline, most: int = MOST) -> None:
        self.trace: Trace = timeline.trace
        self.outputs, self.results = OutputsOfRuns(self.trace), ResultsOfCalls(self.trace)
        lives = sorted(lives_of_blocks(self.trace), key=lambda life: (-life[3], life[0]))
        super().__init__(self.block(*life) for life in lives[:most])

    def block(self, first: int, last: int, address: int, nbytes: int, tag: Tag) -> BlockLife:
        """A block that the rows `first` and `last` of the events of memory begin and end."""
        trace, rows, spec, line, stack = self.trace, self.trace.memory, "", "", []
        begin_ns = int(rows["time"][first]) - trace.begin_ns if first >= 0 else 0
        end_ns = int(rows["time"][last]) - trace.begin_ns if last < len(rows) else trace.wall_ns
        if first >= 0:
            tensor = self.outputs.tensor(first) or self.results.tensor(first)
            if tensor is not None:
                tag, spec, line = tensor.tag, tensor.spec, tensor.line
            stack = self.stack_of(first)
        owner = trace.holders.name_block(address, first, last, last)
        if owner is not None:
            tag, spec = owner.tag, owner.spec
        line = line or (stack[0].partition("):")[0].replace("(", ":") if stack else "")
        return BlockLife(begin_ns, end_ns, nbytes, tag, spec, line, stack)

    def stack_of(self, row: int) -> list[str]:
        """The user's frames of the code that allocated a block."""
        trace = self.trace
        if self.outputs.output(row) is not None:
            return trace.frames(self.outputs.runs[self.outputs.number_of_run[row]].stack)
        event = self.results.event(row)
        return [] if event is None else trace.frames(int(trace.events["stack"][event]))

    def table(self, row_limit: int = 30) -> str:
        """The largest as text; all if row_limit is -1."""
        shown = self if row_limit < 0 else self[:row_limit]
        lines = [
            [
                str(b.tag),
                b.line,
                si_text(b.nbytes, "B"),
                milliseconds(b.begin_ns),
                milliseconds(b.end_ns),
                b.spec,
            ]
            for b in shown
        ]
        return table(["block of", "line", "bytes", "from", "to", "shape"], lines, left=2) + "\n"


def lives_of_blocks(trace: Trace) -> list[tuple[int, int, int, int, Tag]]:
    """(row that begins it, row that ends it, address, bytes, owner) of each block; -1 begins those
    that were there before, and the number of rows ends those that are still there."""
    alive = {address: (-1, nbytes, tag) for address, (nbytes, tag) in trace.live.items()}
    rows, lives = trace.memory, []
    columns = (rows[name].tolist() for name in ("kind", "address", "nbytes", "tag"))
    for i, (kind, address, nbytes, tag) in enumerate(zip(*columns, strict=True)):
        if kind == ALLOC:
            alive[address] = i, nbytes, trace.tags[tag]
        elif kind == FREE and address in alive:
            first, size, tag_of_it = alive.pop(address)
            lives.append((first, i, address, size, tag_of_it))
    count = len(rows)
    return lives + [(first, count, address, n, tag) for address, (first, n, tag) in alive.items()]
