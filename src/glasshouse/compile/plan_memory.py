"""Where each value lies: one arena, in which values that do not live together share memory."""

from dataclasses import dataclass

from glasshouse.compile.fuse import reduces_rows
from glasshouse.compile.lower import Lowering
from glasshouse.compile.steps import Buffer, Kernel, Opaque, Root

ALIGNMENT = 64  # bytes of a cache line


@dataclass
class Life:
    """Buffers that follow each other at one place of the arena, and the steps from the first that
    writes them to the last that reads them."""

    buffers: list[Buffer]
    nbytes: int
    first: int
    last: int


def plan_memory(schedule: list[Kernel | Opaque], lowering: Lowering) -> int:
    """Give every buffer its place; returns the bytes of the arena."""
    outputs: list[Buffer] = []
    for view in lowering.outputs:
        if view.base.place == "arena":
            view.base.place, view.base.at = "output", len(outputs)
            outputs.append(view.base)
    reuse_inputs(schedule)
    return place_all(lives_of(schedule))


def reuse_inputs(schedule) -> None:
    """Name for outputs an input whose memory they may take in runs that donate it: one that only
    the output's own kernel still reads, position by position."""
    last_read: dict[int, int] = {}
    for i, step in enumerate(schedule):
        for buffer in step.reads():
            if buffer.place == "input":
                last_read[buffer.at] = i
    taken: set[int] = set()
    for i, step in enumerate(schedule):
        if isinstance(step, Kernel) and is_single_pass(step):
            for root in step.roots:
                if root.store.base.place == "output":
                    source = replaceable(step, root, "input")
                    if source is not None and last_read[source.at] == i and source.at not in taken:
                        root.store.base.source = source
                        taken.add(source.at)


def is_single_pass(kernel: Kernel) -> bool:
    """Whether a kernel reads each position once, before it stores a result there."""
    return kernel.mergeable and (kernel.axes is None or not reduces_rows(kernel))


def replaceable(kernel: Kernel, root: Root, place: str) -> Buffer | None:
    """A buffer like the root's result that the kernel reads only where it stores the result."""
    target = root.store.base
    if root.local or root.reduce is not None:
        return None
    for view in root.expr.loads:
        source = view.base
        if source.place == place and source.spec == target.spec:
            same = root.store._replace(base=source)
            reads = [v for r in kernel.roots for v in r.expr.loads if v.base is source]
            if all(v == same for v in reads):
                return source
    return None


def lives_of(schedule) -> list[Life]:
    """What lies in the arena, with the first and last step that uses it; a result that a kernel
    may store over an operand that nobody reads any more follows it at its place."""
    last_use: dict[Buffer, int] = {}
    for i, step in enumerate(schedule):
        for buffer in (*step.writes(), *step.reads()):
            last_use[buffer] = i
    lives: dict[Buffer, Life] = {}
    for i, step in enumerate(schedule):
        if isinstance(step, Kernel) and is_single_pass(step):
            follow_operands(step, i, lives, last_use)
        for buffer in (*step.writes(), *step.reads()):
            if buffer.place != "arena":
                continue
            if buffer in lives:
                lives[buffer].last = i
            else:
                nbytes = -(-max(1, buffer.spec.nbytes) // ALIGNMENT) * ALIGNMENT
                lives[buffer] = Life([buffer], nbytes, i, i)
    return list({id(life): life for life in lives.values()}.values())


def follow_operands(kernel: Kernel, i: int, lives, last_use) -> None:
    """Let results of step `i` take the place of operands that end here."""
    taken: set[Buffer] = set()
    for root in kernel.roots:
        target = root.store.base
        if target.place == "arena" and target not in lives:
            source = replaceable(kernel, root, "arena")
            if source is None or source in taken or source not in lives:
                continue
            if last_use[source] == i:
                taken.add(source)
                lives[target] = lives[source]
                lives[target].buffers.append(target)


def place_all(lives: list[Life]) -> int:
    """Largest first, each at the lowest place that is free during its life.

    Source:  greedy by size, Pisarchyk & Lee 2020, arXiv:2001.03288
    """
    placed: list[Life] = []
    total = 0
    for life in sorted(lives, key=lambda x: (-x.nbytes, x.first, x.buffers[0].number)):
        at = 0
        for other in placed:  # in order of their place
            if other.first <= life.last and life.first <= other.last:
                if at + life.nbytes <= other.buffers[0].at:
                    break
                at = max(at, other.buffers[0].at + other.nbytes)
        for buffer in life.buffers:
            buffer.at = at
        total = max(total, at + life.nbytes)
        place_in_order(placed, life)
    return total


def place_in_order(placed: list[Life], life: Life) -> None:
    """Insert by address."""
    low, high = 0, len(placed)
    while low < high:
        middle = (low + high) // 2
        if placed[middle].buffers[0].at < life.buffers[0].at:
            low = middle + 1
        else:
            high = middle
    placed.insert(low, life)
