"""Memory straight from the system: every buffer is a mapping of its own."""

import ctypes
import mmap

from glasshouse.memory.manager import MemoryManager, register

HUGE = 2 << 20  # bytes of a huge page: one page fault instead of 512
# Private, since shared memory (what Python takes by default) gets no huge pages from Linux as it is
# set up: measured, touching 134 MB takes 85 ms in shared and 7 ms in private memory. And a forked
# process must not write into its parent's tensors.
PRIVATE = {}
if hasattr(mmap, "MAP_ANONYMOUS"):
    PRIVATE["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Mapping:
    """Anonymous memory; large ones begin at a huge page and ask for such pages."""

    __slots__ = ("map", "address", "nbytes")

    def __init__(self, nbytes: int):
        extra = HUGE if nbytes >= HUGE else 0
        self.map = mmap.mmap(-1, nbytes + extra, **PRIVATE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = -(-start // HUGE) * HUGE if extra else start
        self.nbytes = nbytes
        if extra and hasattr(mmap, "MADV_HUGEPAGE"):
            self.map.madvise(mmap.MADV_HUGEPAGE)

    def close(self) -> None:
        """Return the memory to the system."""
        self.map.close()


@register
class DirectManager(MemoryManager):
    """A mapping for each buffer, unmapped when the buffer is freed."""

    name = "direct"

    def take(self, nbytes):
        mapping = self.map(-(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE, Mapping)
        return mapping.address, mapping.nbytes, mapping

    def give_back(self, block) -> None:
        block.close()
        self.unmapped(block.nbytes)
