"""The order of steps, as far as memory depends on it."""

from glasshouse.compile.plan_memory import LENT_BYTES, successors_of
from glasshouse.compile.steps import LoweredStep, PlannedBuffer, Step


def free_early(schedule: list[Step]) -> list[Step]:
    """The steps with those moved forward that are the last to read a large value in between, and
    whose own results lie in outputs, for which there is memory anyway: such as the product that
    gives a weight its gradient."""
    kept = successors_of(schedule)
    ordered = list(schedule)
    for step in schedule:
        results = step.results if isinstance(step, LoweredStep) else step.writes()
        if not step.lowerer.is_host and all(b.place == "output" or b in kept for b in results):
            move_forward(ordered, ordered.index(step))
    return ordered


def move_forward(ordered: list[Step], at: int) -> None:
    """Let a step run as soon as it can, behind all others that read them, if it is the last to read
    large values in between."""
    step = ordered[at]
    reads, writes = step.reads(), step.writes()
    large = {b for b in reads if b.place == "arena" and b.spec.nbytes >= LENT_BYTES}
    if not large or any(large & other.reads() for other in ordered[at + 1 :]):
        return
    first = at
    while first and not must_wait(ordered[first - 1], reads, writes | large):
        first -= 1
    ordered.insert(first, ordered.pop(at))


def must_wait(other: Step, reads: set[PlannedBuffer], writes: set[PlannedBuffer]) -> bool:
    """Whether a step that reads and writes these buffers has to come behind another one."""
    written = other.writes()
    return not (written.isdisjoint(reads | writes) and writes.isdisjoint(other.reads()))
