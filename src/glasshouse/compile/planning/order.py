"""The order of steps, as far as memory depends on it."""

from glasshouse.compile.planning.plan_memory import LENT_BYTES, successors_of
from glasshouse.compile.steps.steps import LoweredStep, PlannedBuffer, Step


def free_early(schedule: list[Step]) -> list[Step]:
    """Reorder steps: the last reader of a large value in between moves forward if its own results
    lie in outputs, which have memory anyway. Such a step is the product that gives a weight its
    gradient."""
    successors = successors_of(schedule)
    ordered = list(schedule)
    for step in schedule:
        results = step.results if isinstance(step, LoweredStep) else step.writes()
        if not step.lowerer.is_host and all(
            b.place == "output" or b in successors for b in results
        ):
            move_forward(ordered, ordered.index(step))
    return ordered


def free_received(schedule: list[Step]) -> list[Step]:
    """Reorder steps: the last of several readers of a large result of a collective moves forward,
    right after the reader before it, if its own results lie in outputs. Such a reader is the mean
    of gradients, of which the update has read a part."""
    waits = (x for x in schedule if isinstance(x, LoweredStep) and x.part == "wait")
    received = {b for x in waits for b in x.results if is_large(b)}
    ordered = list(schedule)
    for step in schedule:
        large = step.reads() & received
        if not large or step.lowerer.is_host or any(b.place != "output" for b in step.writes()):
            continue
        at = ordered.index(step)
        readers = [i for i, x in enumerate(ordered) if x is not step and large & x.reads()]
        begin = max((i + 1 for i in readers if not ordered[i].lowerer.is_host), default=at)
        inputs = {b for b in step.reads() if b.place == "input"}  # whose memory it may reuse
        first = first_place(ordered, at, begin, step.reads(), step.writes() | inputs)
        del ordered[at]
        ordered.insert(first, step)
    return ordered


def received_later(schedule: list[Step]) -> list[Step]:
    """Reorder steps: those that need the end of a collective move after other work that is ready
    until the next one starts, and the collective has that time. Such a step is the mean of a bucket
    of gradients, beside which the backward pass can continue."""
    ordered: list[Step] = []
    waiting: list[Step] = []
    reads: set[PlannedBuffer] = set()
    writes: set[PlannedBuffer] = set()  # of waiting steps, and of their collectives
    for step in schedule:
        part = step.part if isinstance(step, LoweredStep) else ""
        if part == "wait":
            ordered.append(step)
            writes |= step.writes()
        elif is_collective(step) or step.lowerer.is_host:
            ordered += [*waiting, step]
            waiting, reads, writes = [], set(), set()
        elif must_wait(step, reads, writes):
            waiting.append(step)
            reads |= step.reads()
            writes |= step.writes()
        else:
            ordered.append(step)
    return ordered + waiting


def is_collective(step: Step) -> bool:
    return isinstance(step, LoweredStep) and step.node.call.is_collective


def is_large(buffer: PlannedBuffer) -> bool:
    """Whether a buffer is a large value in between."""
    return buffer.place == "arena" and buffer.spec.nbytes >= LENT_BYTES


def move_forward(ordered: list[Step], at: int) -> None:
    """Move a step as far forward as possible, after all other readers, if it is the last to read
    large values in between; the step that lays out its operands for it runs right before it."""
    begin = at
    while begin and lays_out_for(ordered[begin - 1], ordered[at]):
        begin -= 1
    moved = ordered[begin : at + 1]
    reads = set().union(*(step.reads() for step in moved))
    writes = set().union(*(step.writes() for step in moved))
    large = {b for b in reads - writes if is_large(b)}
    if not large or any(large & other.reads() for other in ordered[at + 1 :]):
        return
    first = first_place(ordered, begin, 0, reads, writes | large)
    del ordered[begin : at + 1]
    ordered[first:first] = moved


def lays_out_for(other: Step, step: Step) -> bool:
    """Whether another step only copies an operand of a step into a layout."""
    return (
        isinstance(other, LoweredStep) and not other.computes and step.reads() >= {*other.results}
    )


def first_place(
    ordered: list[Step], at: int, least: int, reads: set[PlannedBuffer], writes: set[PlannedBuffer]
) -> int:
    """First place, from `at` to `least`, to which a step with these reads and writes may move."""
    while at > least and not must_wait(ordered[at - 1], reads, writes):
        at -= 1
    return at


def must_wait(other: Step, reads: set[PlannedBuffer], writes: set[PlannedBuffer]) -> bool:
    """Whether a step and another that reads and writes these buffers have to keep their order,
    whichever comes first."""
    other_writes = other.writes()
    return not (other_writes.isdisjoint(reads | writes) and writes.isdisjoint(other.reads()))
