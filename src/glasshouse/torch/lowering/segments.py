"""Backward passes in segments. Between two segments, saved values that are no longer read are
released, and gradients get their memory just before they are first written, as in eager.

A Program that held all inputs and outputs from its first step to its last would need memory for all
saved values and all gradients at once."""

from typing import Any, NamedTuple

SEGMENT_BYTES = 16 << 20  # allocated or released, at least, from one segment to the next


class BackwardSegment(NamedTuple):
    """Steps that run at once: the numbers of the outputs allocated before them, and of the outputs
    and arguments released after them."""

    begin: int
    end: int
    new_outputs: list[int]
    ended: list[int]
    dropped: list[int]

    def release(self, outputs: Any, arguments: list[Any]) -> None:
        """Release values that no later segment reads."""
        for number in self.ended:
            outputs[number] = None
        for number in self.dropped:
            arguments[number] = None


class Extent(NamedTuple):
    """The lifetime of a value: its first and last step, and its bytes."""

    first: int
    last: int
    nbytes: int


def segments_of(
    count: int, outputs: dict[int, Extent], arguments: dict[int, Extent]
) -> list[BackwardSegment]:
    """The segments of `count` steps; empty where they would save nothing."""
    changed = [0] * (count + 1)
    for output in outputs.values():
        changed[output.first] += output.nbytes
    for extent in (*outputs.values(), *arguments.values()):
        changed[extent.last + 1] += extent.nbytes
    bounds, waiting = [0], 0
    for step in range(1, count):
        waiting += changed[step]
        if waiting >= SEGMENT_BYTES:
            bounds.append(step)
            waiting = 0
    if len(bounds) == 1:
        return []
    last = count - 1
    return [
        BackwardSegment(
            begin,
            end,
            [number for number, x in outputs.items() if begin <= x.first < end],
            [number for number, x in outputs.items() if x.last < last and begin <= x.last < end],
            [number for number, x in arguments.items() if begin <= x.last < end],
        )
        for begin, end in zip(bounds, [*bounds[1:], count], strict=True)
    ]
