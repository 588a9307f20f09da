"""Memory over time: what the manager held, for whom, and what was alive at the peak."""

from typing import NamedTuple

import numpy as np

from glasshouse.memory import Tag
from glasshouse.profile.counter import Sums
from glasshouse.profile.record import MEMORY_KINDS
from glasshouse.profile.text import milliseconds, percent, scaled, table
from glasshouse.profile.trace import Trace

ALLOC, FREE = MEMORY_KINDS.index("alloc"), MEMORY_KINDS.index("free")


class Alive(NamedTuple):
    """Memory in use at a time, of one owner."""

    tag: Tag
    nbytes: int
    count: int


class MemoryTimeline:
    """`time_ns` since the profile began, with the bytes then allocated and reserved.
    `alive` are the owners at the peak, the largest first; what was there before is among them."""

    def __init__(self, trace: Trace):
        rows = trace.memory
        self.time_ns = np.concatenate(([0], rows["time"] - trace.begin_ns))
        first = trace.before_bytes
        self.allocated = np.concatenate(([first[0]], rows["allocated"]))
        self.reserved = np.concatenate(([first[1]], rows["reserved"]))
        at = int(self.allocated.argmax())
        self.peak_bytes, self.peak_ns = int(self.allocated[at]), int(self.time_ns[at])
        self.alive = alive_after(trace, at)

    def table(self, row_limit: int = 20) -> str:
        lines = [
            [str(a.tag), scaled(a.nbytes, "B"), percent(a.nbytes, self.peak_bytes), f"{a.count:,}"]
            for a in self.alive[:row_limit]
        ]
        rest = self.peak_bytes - sum(a.nbytes for a in self.alive)
        lines.append(["rounding", scaled(rest, "B"), percent(rest, self.peak_bytes), ""])
        return (
            f"peak {self.peak_bytes:,} bytes at {milliseconds(self.peak_ns)}\n"
            + table(["alive at the peak", "bytes", "%", "blocks"], lines)
            + "\n"
        )

    def __repr__(self):
        return self.table()


def alive_after(trace: Trace, count: int) -> list[Alive]:
    held = {address: (nbytes, tag) for address, (nbytes, tag) in trace.live.items()}
    for row in trace.memory[:count]:
        if row["kind"] == ALLOC:
            held[int(row["address"])] = int(row["nbytes"]), trace.tags[row["tag"]]
        elif row["kind"] == FREE:
            held.pop(int(row["address"]), None)
    sums = Sums()
    for nbytes, tag in held.values():
        sums.add(tag, nbytes, 1)
    alive = [Alive(tag, nbytes, blocks) for tag, (nbytes, blocks) in sums.items()]
    return sorted(alive, key=lambda a: -a.nbytes)
