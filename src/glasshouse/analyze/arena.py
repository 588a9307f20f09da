"""Arena occupancy of a Program: bytes in use at each step, and the contents at the peak."""

from collections import Counter
from itertools import accumulate
from typing import Any

from glasshouse.analyze.step_costs import MemoryRow, rows_of
from glasshouse.compile.planning.plan import ProgramPlan
from glasshouse.compile.planning.plan_memory import aligned_bytes
from glasshouse.profile.naming import name_of_value


def occupancy(plan: ProgramPlan) -> tuple[list[int], dict[Any, Any]]:
    """(bytes of the arena in use at each step, {buffer: (first, last)}); a result that reuses the
    place of an operand counts from the step after."""
    life: dict[Any, list[int]] = {}
    for i, step in enumerate(plan.schedule):
        for buffer in (*step.writes(), *step.reads()):
            if buffer.place == "arena" and buffer.host is None:
                life.setdefault(buffer, [i, i])[1] = i
    ends = {(buffer.at, last) for buffer, (first, last) in life.items() if first < last}
    changes = [0] * (len(plan.schedule) + 1)
    spans = {}
    for buffer, (first, last) in life.items():
        begin = first + ((buffer.at, first) in ends)
        spans[buffer] = begin, last
        changes[begin] += aligned_bytes(buffer)
        changes[last + 1] -= aligned_bytes(buffer)
    return list(accumulate(changes[:-1])), spans


def arena_rows(plan: Any, nbytes: int) -> list[MemoryRow]:
    """Rows for the contents of an arena at its peak, by kind, module and name. They sum to
    `nbytes`."""
    used_bytes, spans = occupancy(plan)
    fullest = max(range(len(used_bytes)), key=used_bytes.__getitem__, default=-1)
    infos, sums = plan.step_infos(), Counter[Any]()
    for buffer, (first, last) in spans.items():
        if not first <= fullest <= last:
            continue
        node, kind, module = buffer.node, "temporaries", infos[first].origins[0].module
        if node is None:
            kind = "workspace"
        elif node.origin.phase == "forward":
            module = node.origin.module
            if any(origin.phase != "forward" for origin in infos[last].origins):
                kind = "activations"
        names = {v.at: name_of_value(infos[first], v) for v in infos[first].arena}
        sums[kind, module, names.get(buffer.at, "")] += aligned_bytes(buffer)
    rows = rows_of(sums.items())
    return [*rows, MemoryRow("unused arena", "", nbytes - sum(row.nbytes for row in rows))]
