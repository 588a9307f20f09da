"""A model of the C library's allocator (glibc's): which bytes are new pages from the system.

A page is cleared and mapped when it is first written, which takes longer than to write it. Memory
that went back to the system has new pages; memory that stays with the process does not."""

from bisect import bisect

FIRST_THRESHOLD = 128 << 10  # bytes, as a process begins
LAST_THRESHOLD = 32 << 20  # bytes, its maximum
PAD = 128 << 10  # bytes that the heap is longer than it has to be


class SystemHeap:
    """Places of allocations, and how many of their bytes are new.

    An allocation above `threshold` that fits in no hole of the heap is mapped on its own. It goes
    back to the system when it is freed, and the threshold grows to its size. Other allocations take
    the smallest hole that fits, or the heap's end. A hole at the end goes back to the system where
    it is longer than twice the threshold.

    It models a new process: one that has freed more memory keeps more, and less is new."""

    def __init__(self) -> None:
        self.threshold: int = FIRST_THRESHOLD
        self.end: int = 0
        self.holes: list[tuple[int, int]] = []  # (begin, end), ascending, none beside another

    def allocate(self, nbytes: int) -> tuple[int | None, int]:
        """(place, new bytes) of an allocation; place is None where it is mapped on its own."""
        fitting = [(end - begin, begin) for begin, end in self.holes if end - begin >= nbytes]
        if fitting:
            size, place = min(fitting)
            self.holes.remove((place, place + size))
            if size > nbytes:
                self.holes.insert(bisect(self.holes, (place,)), (place + nbytes, place + size))
            return place, 0
        if nbytes > self.threshold:
            return None, nbytes
        place = self.end
        if self.holes and self.holes[-1][1] == self.end:
            place = self.holes.pop()[0]
        new = place + nbytes - self.end
        self.end = place + nbytes
        return place, new

    def free(self, place: int | None, nbytes: int) -> None:
        """Free an allocation."""
        if place is None:
            if nbytes <= LAST_THRESHOLD:
                self.threshold = max(self.threshold, nbytes)
            return
        begin, end = place, place + nbytes
        at = bisect(self.holes, (begin,))
        if at < len(self.holes) and self.holes[at][0] == end:
            end = self.holes.pop(at)[1]
        if at and self.holes[at - 1][1] == begin:
            begin = self.holes.pop(at - 1)[0]
            at -= 1
        if end == self.end and end - begin + PAD > 2 * self.threshold:
            self.end = begin
        else:
            self.holes.insert(at, (begin, end))
