"""Memory that is kept: freed blocks wait for requests that fit, large ones may be split.

Source: the caching allocators of Flashlight (Kahn et al. 2022, arXiv:2201.12465, sec. 5.2.2) and
    PyTorch, whose split limit is one of the parameters here
"""

import math
from bisect import bisect_left, insort
from functools import partial
from typing import Any

from glasshouse.base import OutOfMemoryError
from glasshouse.memory.direct import Mapping, trim_heap
from glasshouse.memory.manager import MemoryManager, register

SPARE = 1.1  # times the peak in use: free memory beyond it is returned
ROUND = 512  # bytes: eight cache lines, so that few sizes differ by less than a block is worth
SEGMENT_BYTES = 1 << 30  # of addresses, which cost nothing until they are first written to


class MemoryBlock:
    """A part of a mapping, with its neighbours there."""

    __slots__ = ("mapping", "address", "nbytes", "free", "before", "after", "pool")

    def __init__(self, mapping: Mapping, address: int, nbytes: int, pool: "FreeBlocks") -> None:
        self.mapping: Mapping = mapping
        self.address: int = address
        self.nbytes: int = nbytes
        self.pool: FreeBlocks = pool
        self.free: bool = False
        self.before: MemoryBlock | None = None
        self.after: MemoryBlock | None = None

    @property
    def is_whole(self) -> bool:
        return self.before is None and self.after is None

    @property
    def is_last(self) -> bool:
        """Whether it is the end of a segment, or whole."""
        return self.after is None and (self.before is None or self.mapping.is_segment)

    @property
    def may_split(self) -> bool:
        return self.mapping.is_segment or self.nbytes <= self.pool.split_limit


class FreeBlocks:
    """Free blocks, by size and then address. Blocks in `ready` ended, and are not joined with their
    neighbours yet: a training step asks for them again."""

    def __init__(self, split_limit: float) -> None:
        self.split_limit = split_limit  # bytes of the largest that may be split
        self.blocks: list[tuple[int, int, Any]] = []
        self.ready: dict[int, list[MemoryBlock]] = {}

    def add(self, block: MemoryBlock) -> None:
        block.free = True
        insort(self.blocks, (block.nbytes, block.address, block))

    def remove(self, block: MemoryBlock) -> None:
        block.free = False
        del self.blocks[bisect_left(self.blocks, (block.nbytes, block.address))]

    def join_ready(self) -> None:
        """Make the blocks that are ready free as all others are."""
        blocks = [block for ready in self.ready.values() for block in ready]
        self.ready.clear()
        for block in blocks:
            self.add_joined(block)

    def add_joined(self, block: MemoryBlock) -> None:
        """Add a block, joined with its neighbours that are free."""
        if block.after is not None and block.after.free:
            self.join(block, block.after)
        if block.before is not None and block.before.free:
            before = block.before
            self.remove(before)
            self.join(before, block)
            block = before
        self.add(block)

    def join(self, block: MemoryBlock, after: MemoryBlock) -> None:
        if after.free:
            self.remove(after)
        block.nbytes += after.nbytes
        block.after = after.after
        if after.after is not None:
            after.after.before = block

    def best(self, nbytes: int) -> MemoryBlock | None:
        at = bisect_left(self.blocks, (nbytes, 0))
        return self.blocks[at][2] if at < len(self.blocks) else None


def mapping_of(size: int, nbytes: int) -> Mapping:
    """A mapping of `size` bytes, or of just `nbytes` where a process may not have so many."""
    try:
        return Mapping(size)
    except (OSError, MemoryError):
        return Mapping(nbytes)


def rounded(nbytes: int, classes: int) -> int:
    """The bytes of a block for a request: one of so many sizes in each doubling, if any."""
    step = max(ROUND, (1 << (nbytes - 1).bit_length()) // (2 * classes)) if classes else ROUND
    return -(-nbytes // step) * step


@register
class CachingManager(MemoryManager):
    """Freed blocks are kept for reuse.
    Requests up to `small_bytes` are rounded to one of `classes` sizes in each doubling and cut from
    slabs of `slab_bytes`. Larger ones, where rounding would waste megabytes, are cut from segments
    of SEGMENT_BYTES, so that adjacent freed blocks become one; of a segment, only bytes that were
    ever handed out count. Freed small blocks wait by size for a request that takes all of one;
    for other requests they are joined with their neighbours. A block larger than `split_limit` gets
    its own mapping, is never split, and serves a request only up to `reuse_limit` times smaller
    than itself."""

    name = "caching"

    def __init__(
        self,
        small_bytes: int = 1 << 20,
        slab_bytes: int = 4 << 20,
        split_limit: int = 256 << 20,
        reuse_limit: float = 1.25,
        classes: int = 8,
    ) -> None:
        super().__init__()
        self.small_bytes, self.slab_bytes = small_bytes, slab_bytes
        self.split_limit, self.reuse_limit, self.classes = split_limit, reuse_limit, classes
        self.small, self.large = FreeBlocks(math.inf), FreeBlocks(split_limit)

    def simulate(self) -> "CachingManager":
        options = (self.small_bytes, self.slab_bytes, self.split_limit, self.reuse_limit)
        simulated = type(self)(*options, self.classes)
        simulated.simulated = True
        return simulated

    def take(self, nbytes: int) -> tuple[int, int, MemoryBlock]:
        pool = self.small if nbytes <= self.small_bytes else self.large
        block_bytes = rounded(nbytes, self.classes if pool is self.small else 0)
        if pool is self.small and (ready := pool.ready.get(block_bytes)):
            self.counts.cache_hits += 1
            block = ready.pop()
            return block.address, block_bytes, block
        block = pool.best(block_bytes)
        if block is None and pool is self.small:
            pool.join_ready()
            block = pool.best(block_bytes)
        if block is not None and self.serves(block, block_bytes):
            pool.remove(block)
            self.count_use(block, block_bytes)
        else:
            block = self.new_block(pool, block_bytes)
        if block.nbytes > block_bytes and block.may_split:
            self.split(block, block_bytes)
        return block.address, block.nbytes, block

    def counts_arena(self, nbytes: int) -> bool:
        if self.ended:
            self.catch_up()
        size, counts = rounded(max(1, nbytes), self.classes), self.counts
        with self.lock:
            if self.listeners or not self.small.ready.get(size):
                return False
            counts.allocations += 1
            counts.cache_hits += 1
            if counts.allocated_bytes + size > counts.peak_allocated_bytes:
                counts.peak_allocated_bytes = counts.allocated_bytes + size
        return True

    def count_use(self, block: MemoryBlock, block_bytes: int) -> None:
        """Count the hit of a cached block, or the bytes it takes from a segment's fresh end."""
        mapping = block.mapping
        grown = block.address + block_bytes - mapping.address - mapping.used_bytes
        if grown <= 0:
            self.counts.cache_hits += 1
            self.counts.splits += block.nbytes > block_bytes and block.may_split
            return
        self.trim(grown)
        try:
            self.map(grown, lambda nbytes: None)
        except OutOfMemoryError:
            block.pool.add(block)
            raise
        mapping.used_bytes += grown

    def new_block(self, pool: FreeBlocks, block_bytes: int) -> MemoryBlock:
        """A block that is a whole mapping."""
        if pool is self.small:
            size = mapped_bytes = max(block_bytes, self.slab_bytes)
        else:
            is_cut = block_bytes <= min(self.split_limit, SEGMENT_BYTES)
            size, mapped_bytes = SEGMENT_BYTES if is_cut else block_bytes, block_bytes
            self.trim(block_bytes)
        mapping = self.map(mapped_bytes, partial(mapping_of, size))
        mapping.used_bytes, mapping.is_segment = mapped_bytes, size > mapped_bytes
        if not self.simulated:
            size = mapping.nbytes
        return MemoryBlock(mapping, mapping.address, size, pool)

    def take_for_a_run(self, nbytes: int) -> tuple[int, int, MemoryBlock]:
        """Arenas of different Programs, which run in turn, may lie in the largest one's block: it
        is whole again at the end of the run."""
        block_bytes = -(-nbytes // ROUND) * ROUND
        block = self.large.best(block_bytes)
        if nbytes <= self.small_bytes or block is None or self.serves(block, block_bytes):
            return self.take(nbytes)
        self.large.remove(block)
        self.counts.cache_hits += 1
        return block.address, block_bytes, block

    def serves(self, block: MemoryBlock, block_bytes: int) -> bool:
        return block.may_split or block.nbytes <= self.reuse_limit * block_bytes

    def split(self, block: MemoryBlock, nbytes: int) -> None:
        rest = MemoryBlock(block.mapping, block.address + nbytes, block.nbytes - nbytes, block.pool)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.nbytes = rest, nbytes
        block.pool.add(rest)

    def give_back(self, block: MemoryBlock) -> None:
        if block.pool is self.small:
            self.small.ready.setdefault(block.nbytes, []).append(block)
        else:
            self.large.add_joined(block)

    def trim(self, block_bytes: int) -> None:
        """Before more is mapped, return free mappings and ends of segments, the largest first,
        while there would be a tenth more than was ever in use at once: memory of an earlier phase
        does not stay beside that of this one. Less is kept, since the system clears memory that it
        hands out again. Before a large block, the C library returns its freed memory too."""
        if block_bytes > self.small_bytes and not self.simulated:
            trim_heap()
        counts = self.counts
        most = SPARE * max(counts.peak_allocated_bytes, counts.allocated_bytes + block_bytes)
        last = [block for *_, block in self.large.blocks if block.is_last]
        while last and counts.reserved_bytes + block_bytes > most:
            self.unmap(last.pop())

    def release_cached(self) -> None:
        self.small.join_ready()
        for pool in (self.small, self.large):
            for *_, block in list(pool.blocks):
                if block.is_last:
                    self.unmap(block)

    def unmap(self, block: MemoryBlock) -> None:
        if not block.is_whole:
            self.unmapped(block.mapping.cut(block.address - block.mapping.address))
            return
        block.pool.remove(block)
        block.mapping.close()
        self.unmapped(block.mapping.used_bytes)

    def largest_free(self) -> int:
        self.small.join_ready()
        blocks = [block for pool in (self.small, self.large) for *_, block in pool.blocks]
        ends = [block.mapping.address + block.mapping.used_bytes for block in blocks]
        sizes = (min(x.nbytes, end - x.address) for x, end in zip(blocks, ends, strict=True))
        return max(0, *sizes) if blocks else 0
