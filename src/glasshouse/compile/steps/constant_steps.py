"""Steps whose results stay from run to run: they read only inputs that do not change, such as
parameters in inference, which are copied into the layout of a product."""

from collections import Counter
from typing import Any

from glasshouse.compile.steps.steps import FusedKernel, LoweredStep, PlannedBuffer, Step

MOST_GROWTH = 2  # kept bytes, as a multiple of the bytes of their inputs


def put_constant_steps_first(
    schedule: list[Step], lowering: Any, stable_inputs: frozenset[int]
) -> "tuple[list[FusedKernel | LoweredStep], int, list[Any]]":
    """(the schedule with these steps in front, their number, their buffers that the other steps
    read)."""
    if not stable_inputs:
        return schedule, 0, []
    handed_out = {view.base for view in lowering.outputs}
    writers = Counter(buffer for step in schedule for buffer in step.writes())
    stable: set[PlannedBuffer] = set()
    made_of: set[PlannedBuffer] = set()
    first: list[Step] = []
    for step in schedule:
        reads, writes = step.reads(), step.writes()
        inputs = {b for b in reads if b.place == "input"}
        fixed = all(b in stable or b in inputs and b.at in stable_inputs for b in reads)
        is_private = all(writers[b] == 1 and b not in handed_out for b in writes)
        worth = step.worth_keeping and not step.lowerer.is_host
        if reads and fixed and is_private and worth:
            first.append(step)
            stable |= writes
            made_of |= inputs
    there = set(map(id, first))
    others = [step for step in schedule if id(step) not in there]
    read = {buffer for step in others for buffer in step.reads()}
    results = sorted((b for b in stable if b in read), key=lambda b: b.number)
    if sum(b.spec.nbytes for b in results) > MOST_GROWTH * sum(b.spec.nbytes for b in made_of):
        return schedule, 0, []
    return [*first, *others], len(first), results
