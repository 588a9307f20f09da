"""Places of values: one arena, in which values that do not live together share memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse.compile.lowering.fuse import reduces_rows
from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.steps.steps import FusedKernel, LoweredStep, PlannedBuffer, Root, Step
from glasshouse.compile.steps.view import View

ALIGNMENT = 64  # bytes of a cache line
APART_BYTES = 16 << 20  # larger values may have separate memory
LENT_BYTES = 1 << 20  # smaller values do not go into outputs: those of the arena stay in caches


@dataclass
class Life:
    """Buffers that follow each other at one place of the arena, from first write to last read."""

    buffers: list[PlannedBuffer]
    nbytes: int
    first: int
    last: int


def aligned_bytes(buffer: PlannedBuffer) -> int:
    return -(-max(1, buffer.spec.nbytes) // ALIGNMENT) * ALIGNMENT


def place_outputs(lowering: Lowering, stable: Sequence[Any] = ()) -> list[PlannedBuffer]:
    """Number the buffers that are handed out, then those that are `stable` from run to run."""
    outputs: list[PlannedBuffer] = []
    for view in lowering.outputs:
        if view.base.place == "arena":
            view.base.place, view.base.at = "output", len(outputs)
            outputs.append(view.base)
    for number, buffer in enumerate(stable, len(outputs)):
        buffer.place, buffer.at = "output", number
    return outputs


def plan_memory(schedule: list[Step], outputs: list[PlannedBuffer], lends: bool = False) -> int:
    """Place every buffer in between; returns the bytes of the arena. With `lends`, large values lie
    in `outputs` that are not yet written, where that makes the arena smaller."""
    lives = lives_of(schedule)
    if lends:
        lives = lent_outputs(lives, schedule, outputs)
    return place_all(lives)


def set_apart(schedule: list[Step], first: int) -> list[PlannedBuffer]:
    """Place large values in between as outputs that nobody gets, numbered from `first`: the runner
    allocates them just while they live, where the arena is there for a whole run."""
    apart: list[PlannedBuffer] = []
    on_host = host_buffers(schedule)
    for life in lives_of(schedule):
        if life.nbytes >= APART_BYTES and on_host.isdisjoint(life.buffers):
            for buffer in life.buffers:
                buffer.place, buffer.at = "output", first + len(apart)
            apart.append(life.buffers[0])
    return apart


def host_buffers(schedule: list[Step]) -> set[PlannedBuffer]:
    """Buffers that steps of the host read and write."""
    hosts = [step for step in schedule if step.lowerer.is_host]
    return {b for step in hosts for b in (*step.reads(), *step.writes())}


def is_no_op_copy(step: Step) -> bool:
    """Whether a step only copies values to the place where they lie."""
    return isinstance(step, FusedKernel) and all(
        root.expr.op == "load"
        and root.reduce is None
        and not root.local
        and place_of(root.expr.view) == place_of(root.store)
        and root.expr.view.base.dtype == root.store.base.dtype
        for root in step.roots
    )


def place_of(view: View) -> tuple[Any, ...]:
    """Place of the elements of a view."""
    base = view.base.host or view.base
    return (base.place, base.at, *view._replace(base=None))


def reuse_inputs(
    schedule: "list[FusedKernel | LoweredStep]", leaves: dict[PlannedBuffer, int]
) -> None:
    """Choose an input to donate for each output: one that only its kernel reads, place by place.
    The input for those in `leaves` is fixed by its number; no other output takes it."""
    leaf_numbers = set(leaves.values())
    last_read = last_reads(schedule)
    inputs = set(last_read)
    donated: set[int] = set()
    for i, kernel, root in single_pass_roots(schedule):
        if root.store.base.place == "output":
            target = root.store.base
            candidates = {leaves[target]} if target in leaves else inputs - leaf_numbers
            source = replaceable(kernel, root, "input", candidates)
            if source is None or source.spec != target.spec:
                continue
            if last_read[source.at] == i and source.at not in donated:
                target.source = source
                donated.add(source.at)
    reuse_read_inputs(schedule, leaves, leaf_numbers | donated)


def reuse_read_inputs(
    schedule: "list[FusedKernel | LoweredStep]", leaves: dict[Any, Any], donated: set[int]
) -> None:
    """Choose, for other results of an optimizer, such as parameters that ranks gather, an input of
    the same size that nothing reads any more: the first recorded, as the replaced one is."""
    last_read = last_reads(schedule)
    inputs = {b.at: b for step in schedule for b in step.reads() if b.place == "input"}
    for target, i in first_writes(schedule).items():
        updates = target.node is not None and target.node.origin.phase == "optimizer"
        if not updates or target.place != "output" or target.source is not None or target in leaves:
            continue
        fits = (at for at in sorted(inputs.keys() - donated) if is_as_large(inputs[at], target))
        at = next((at for at in fits if last_read[at] < i), None)
        if at is not None:
            target.source = inputs[at]
            donated.add(at)


def last_reads(schedule: "list[FusedKernel | LoweredStep]") -> dict[int, int]:
    """By the number of an input, the last step that reads it."""
    reads = ((buffer, i) for i, step in enumerate(schedule) for buffer in step.reads())
    return {buffer.at: i for buffer, i in reads if buffer.place == "input"}


def single_pass_roots(
    schedule: "list[FusedKernel | LoweredStep]",
) -> Iterator[tuple[int, FusedKernel, Root]]:
    """The results of kernels that read each position once, with the numbers of their steps."""
    for i, step in enumerate(schedule):
        if isinstance(step, FusedKernel) and is_single_pass(step):
            for root in step.roots:
                yield i, step, root


def is_single_pass(kernel: FusedKernel) -> bool:
    """Whether a kernel reads each position once, before it stores a result there."""
    is_whole = kernel.mergeable or all(x.store == x.store.base.view() for x in kernel.roots)
    return is_whole and (kernel.axes is None or not reduces_rows(kernel))


def is_as_large(one: PlannedBuffer, other: PlannedBuffer) -> bool:
    """Whether two buffers have as many elements of one dtype, whatever their shapes."""
    return one.spec.dtype == other.spec.dtype and one.spec.nbytes == other.spec.nbytes


def replaceable(
    kernel: FusedKernel, root: Root, place: str, numbers: set[int] | None = None
) -> PlannedBuffer | None:
    """Find a buffer like the root's result that the kernel reads only where it stores the result;
    one of these `numbers` at the place, if they are set."""
    target = root.store.base
    if root.local or root.reduce is not None:
        return None
    for view in root.expr.loads:
        source = view.base
        if numbers is not None and source.at not in numbers:
            continue
        if source.place == place and is_as_large(source, target):
            same = root.store._replace(base=source)
            reads = [v for r in kernel.roots for v in r.expr.loads if v.base is source]
            if all(v == same for v in reads):
                return source
    return None


def last_uses(schedule: "list[FusedKernel | LoweredStep]") -> dict[PlannedBuffer, int]:
    """The last step that reads or writes each buffer."""
    return {b: i for i, step in enumerate(schedule) for b in (*step.writes(), *step.reads())}


def lives_of(schedule: "list[FusedKernel | LoweredStep]") -> list[Life]:
    """Lives of the arena's buffers, with the first and last step that uses each; a result that a
    kernel may store over an operand that nobody reads any more follows it at its place."""
    last_use = last_uses(schedule)
    lives: dict[PlannedBuffer, Life] = {}
    for i, step in enumerate(schedule):
        if isinstance(step, FusedKernel) and is_single_pass(step):
            follow_operands(step, i, lives, last_use)
        for buffer in (*step.writes(), *step.reads()):
            if buffer.place == "arena":
                if buffer not in lives:
                    lives[buffer] = Life([buffer], aligned_bytes(buffer), i, i)
                lives[buffer].last = i
    return list({id(life): life for life in lives.values()}.values())


def follow_operands(
    kernel: FusedKernel,
    i: int,
    lives: dict[PlannedBuffer, Life],
    last_use: dict[PlannedBuffer, int],
) -> None:
    """Place results of step `i` on operands that end here."""
    sources: set[PlannedBuffer] = set()
    for root in kernel.roots:
        target = root.store.base
        if target.place == "arena" and target not in lives:
            source = replaceable(kernel, root, "arena")
            if source is None or source in sources or source not in lives:
                continue
            if last_use[source] == i:
                sources.add(source)
                lives[target] = lives[source]
                lives[target].buffers.append(target)


def place_all(lives: list[Life]) -> int:
    """Place the largest first, each at the lowest place that is free during its life.

    Source: greedy by size, Pisarchyk & Lee 2020, arXiv:2001.03288.
    """
    count = len(lives)
    first, last, start, end = (np.zeros(count, np.int64) for _ in range(4))  # in order of place
    total, largest = 0, sorted(lives, key=lambda x: (-x.nbytes, x.first, x.buffers[0].number))
    for placed, life in enumerate(largest):
        alive = np.flatnonzero((first[:placed] <= life.last) & (life.first <= last[:placed]))
        starts = start[alive]
        # After what lies below each of them, and after all.
        free = np.concatenate(([0], np.maximum.accumulate(end[alive])))
        fits = np.flatnonzero(free[:-1] + life.nbytes <= starts)
        at = int(free[fits[0]] if len(fits) else free[-1])
        for buffer in life.buffers:
            buffer.at = at
        total = max(total, at + life.nbytes)
        row = (life.first, life.last, at, at + life.nbytes)
        where = int(np.searchsorted(start[:placed], at))
        for column, value in zip((first, last, start, end), row, strict=True):
            column[where + 1 : placed + 1] = column[where:placed]
            column[where] = value
    return total


def lent_outputs(lives: list[Life], schedule: Any, outputs: list[PlannedBuffer]) -> list[Life]:
    """Lives for which the arena needs room: of those alive when it is fullest, again and again, the
    largest that fits moves into an output that is not yet written."""
    first_write = first_writes(schedule)
    lenders = sorted(
        (b for b in outputs if b.source is None and b.spec.nbytes >= LENT_BYTES),
        key=lambda b: b.spec.nbytes,
    )
    successors = successors_of(schedule)
    rest, guests = list(lives), dict[PlannedBuffer, list[Life]]()
    on_host = host_buffers(schedule)

    def fits(life: Life, output: PlannedBuffer) -> bool:
        end = first_write[output] - (successors.get(life.buffers[-1]) is not output)
        others = guests.get(output, ())
        apart = all(life.last < x.first or x.last < life.first for x in others)
        return life.nbytes <= aligned_bytes(output) and life.last <= end and apart

    while True:
        for life in sorted(alive_at_peak(rest), key=lambda x: -x.nbytes):
            if life.nbytes < LENT_BYTES or not on_host.isdisjoint(life.buffers):
                continue
            preferred = [x for x in lenders if x is successors.get(life.buffers[-1])]
            lender = next((x for x in (*preferred, *lenders) if fits(life, x)), None)
            if lender is not None:
                guests.setdefault(lender, []).append(life)
                rest.remove(life)
                for buffer in life.buffers:
                    buffer.host = lender
                break
        else:
            return rest


def first_writes(schedule: "list[FusedKernel | LoweredStep]") -> dict[PlannedBuffer, int]:
    """The first step that writes each buffer."""
    writes: dict[PlannedBuffer, int] = {}
    for i, step in enumerate(schedule):
        for buffer in step.writes():
            writes.setdefault(buffer, i)
    return writes


def successors_of(schedule: Any) -> dict[PlannedBuffer, PlannedBuffer]:
    """Outputs that a kernel may store over an operand that nobody reads any more."""
    last_use, first_write = last_uses(schedule), first_writes(schedule)
    successors: dict[PlannedBuffer, PlannedBuffer] = {}
    for i, kernel, root in single_pass_roots(schedule):
        target = root.store.base
        if target.place != "output" or first_write[target] != i:
            continue
        source = replaceable(kernel, root, "arena")
        if source is not None and last_use[source] == i:
            successors.setdefault(source, target)
    return successors


def alive_at_peak(lives: list[Life]) -> list[Life]:
    """Lives at the step at which they take most memory."""
    if not lives:
        return []
    changes = np.zeros(max(life.last for life in lives) + 2, np.int64)
    for life in lives:
        changes[life.first] += life.nbytes
        changes[life.last + 1] -= life.nbytes
    fullest = int(np.cumsum(changes).argmax())
    return [life for life in lives if life.first <= fullest <= life.last]
