"""The clear transport: ranks of one machine that pass arrays through a file in shared memory.

Each rank has a slot. All collectives repeat one step, `pass_on`: each rank writes a piece into its
slot, all wait for each other, each reads the pieces that it needs, all wait again. Before any of it
they `agree` on the call. The fast transports are compared with this one."""

import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.transports.agreement import (
    TEXT_BYTES,
    bytes_of,
    call_text,
    disagreement,
    in_bytes,
)
from glasshouse.distributed.transports.collectives import Collectives
from glasshouse.ops.collective_requests import CollectiveRequest, current, digest_of, requesting
from glasshouse.ops.process import ProcessGroup

SLOT_BYTES = 1 << 20
POLL_S = 20e-6


class SharedFiles(Collectives):
    """Collectives over one file: a counter for each rank, two digests of calls, which are used in
    turn, and then a slot for each."""

    counts_as = "shared_files"

    def __init__(
        self, group: ProcessGroup, rank: int, folder: str, timeout_s: float = 30.0
    ) -> None:
        super().__init__(group, rank)
        self.folder = folder
        self.timeout_s = timeout_s
        self.phase: int = 0
        name = "-".join(map(str, group.ranks))
        path = Path(folder, f"group-{name}")
        head = -(-3 * 8 * group.size // mmap.PAGESIZE) * mmap.PAGESIZE
        size = head + group.size * SLOT_BYTES
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, size)
        self.memory: mmap.mmap = mmap.mmap(descriptor, size)
        os.close(descriptor)
        self.counters: np.ndarray = np.frombuffer(self.memory, np.int64, group.size)
        digests = np.frombuffer(self.memory, np.int64, 2 * group.size, offset=8 * group.size)
        self.digests: np.ndarray = digests.reshape(2, group.size)
        self.calls: int = 0
        self.slots: np.ndarray = np.frombuffer(self.memory, np.uint8, offset=head)
        self.slots = self.slots.reshape(group.size, SLOT_BYTES)
        self.boxes: dict[tuple[int, int], Collectives] = {}

    def meet(self) -> None:
        """Wait until all ranks have come as far."""
        self.phase += 1
        self.counters[self.rank] = self.phase
        end = time.monotonic() + self.timeout_s
        while (late := np.flatnonzero(self.counters < self.phase)).size:
            if time.monotonic() > end:
                expected = f"all {self.size} ranks within {self.timeout_s:g} s"
                got = f"no sign of ranks {[self.group.ranks[i] for i in late]}"
                fix = "See what these ranks print."
                raise CollectiveError(f"group {self.group.name}", expected, got, fix)
            time.sleep(POLL_S)

    def agree(self, name: str, array: np.ndarray, option: Any = None) -> None:
        """Meet, and compare the calls of all ranks.

        Raises: CollectiveError on all ranks where it is not the same call
        """
        digests = self.digests[self.calls % 2]
        digests[self.rank] = digest_of(name, array.dtype, array.shape, option, current.request)
        self.calls += 1
        self.meet()
        if (digests != digests[0]).any():
            text = call_text(name, array, option, self.group)
            data, texts = in_bytes(text), np.empty((self.size, TEXT_BYTES), np.uint8)
            self.pass_on(data, texts)
            raise disagreement(text, self.group, texts)

    def pass_on(self, source: np.ndarray, out: np.ndarray, tells: bool = True) -> None:
        """`out[i]` becomes the `source` of rank i; undefined for a rank that does not send."""
        for begin in range(0, max(source.size, 1), SLOT_BYTES):
            piece = source[begin : begin + SLOT_BYTES]
            if tells:
                self.slots[self.rank, : piece.size] = piece
                self.sent_bytes += piece.size * (self.size - 1)
            self.meet()
            out[:, begin : begin + SLOT_BYTES] = self.slots[:, : piece.size]
            self.meet()

    def of_all(self, source: np.ndarray, tells: bool = True) -> np.ndarray:
        """Gather the array of each rank that tells it, a row for each."""
        parts = np.empty((self.size, *source.shape), source.dtype)
        self.pass_on(bytes_of(source).copy(), bytes_of(parts).reshape(self.size, -1), tells)
        return parts

    def exchange(self, way: Any, source: Any, out: Any, option: Any) -> None:
        self.agree(way.name, source, option)
        if way.arrays:
            tells = way.option != "root" or self.rank == option
            out[...] = way.meaning(self.of_all(source, tells), self.rank, option)

    def pair(self, a: int, b: int) -> "Collectives":
        """Collectives of two ranks, in which the first sends to the second."""
        if (a, b) not in self.boxes:
            ranks = tuple(self.group.ranks[i] for i in (a, b))
            folder = Path(self.folder, "-".join(map(str, (*self.group.ranks, "from", *ranks))))
            folder.mkdir(exist_ok=True)
            pair = ProcessGroup(ranks, "pair")
            number = 0 if self.rank == a else 1
            self.boxes[a, b] = SharedFiles(pair, number, str(folder), self.timeout_s)
        return self.boxes[a, b]

    def send(self, source: Any, to: Any, tag: int = 0) -> None:
        pair = self.pair(self.rank, to)
        before = pair.sent_bytes
        with requesting(current.request or message_of(source)):
            pair.broadcast(np.array(source), 0)
        self.sent_bytes += pair.sent_bytes - before

    def receive(self, out: Any, source: Any, tag: int = 0) -> None:
        with requesting(current.request or message_of(out)):
            self.pair(source, self.rank).broadcast(out, 0)

    def subgroup(self, group: Any) -> Any:
        return SharedFiles(group, group.rank, self.folder, self.timeout_s)


def message_of(array: np.ndarray) -> CollectiveRequest:
    return CollectiveRequest("message", array.dtype.name, array.shape)
