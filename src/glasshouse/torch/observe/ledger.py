"""A ledger of the storages that PyTorch's operators allocate and free in a step.

Each storage is one `Allocation`, with the operator that made it and its module. The ledger tracks
the peak as it grows. A second pass through its events finds the storages alive at the peak."""

from collections import Counter
from typing import Any

import torch

from glasshouse.dispatch import Watcher, state
from glasshouse.memory import Tag
from glasshouse.torch.patches.tensors import storage_address
from glasshouse.torch.tensors.system_heap import SystemHeap


class Allocation:
    """One storage: its bytes, its creator, its owner, and the pass in which it was freed.

    It lies at `place` of the heap, or is mapped on its own (None). The system makes pages for
    `new_bytes` of it when they are first written."""

    __slots__ = ("nbytes", "tag", "kind", "module", "name", "freed", "new_bytes", "place")

    nbytes: int
    tag: Tag
    module: str

    def __init__(self, nbytes: int, tag: Tag) -> None:
        self.nbytes, self.tag, self.module = nbytes, tag, tag.module
        # of KINDS, where an owner is known
        self.kind: str = ""
        self.name: str = tag.primitive
        self.freed: str = ""  # "" while it lives
        self.new_bytes: int = 0
        self.place: Any = None

    @property
    def is_torchs(self) -> bool:
        """Whether an operator of PyTorch's made it; a Program's memory is a manager's."""
        return "::" in self.tag.primitive

    def kind_at_peak(self) -> str:
        """The kind of memory that it is: its owner's, else by the passes between which it lives."""
        if self.kind:
            return self.kind
        phase = self.tag.phase
        if phase in ("forward", "recompute") and self.freed != phase:
            return "activations"
        return "temporaries"


class Ledger(Watcher):
    """A watcher of storages that records their allocations and frees in order."""

    now: int
    peak: int
    peak_place: int

    wants_begin: bool = False
    wants_allocations: bool = True

    def __init__(self) -> None:
        self.live: dict[int, Allocation] = {}  # by address
        self.heap: SystemHeap = SystemHeap()
        self.now = self.peak = self.peak_place = 0
        self.began: tuple[Allocation, ...] = ()
        self.events: list[tuple[Allocation, int]] = []  # bytes that came, or went

    def library_memory(
        self, kind: str, address: int, nbytes: int, tag: Tag, spec: str = ""
    ) -> None:
        """A storage was made ("alloc"), was first seen ("existed"), or is no more ("free")."""
        if kind == "free":
            allocation = self.live.pop(address)
            allocation.freed = state.phase
            self.add(allocation, -nbytes)
            if allocation.is_torchs:
                self.heap.free(allocation.place, nbytes)
            return
        allocation = self.live[address] = Allocation(nbytes, tag)
        if allocation.is_torchs:
            allocation.place, allocation.new_bytes = self.heap.allocate(nbytes)
        self.add(allocation, nbytes)
        if self.now > self.peak:
            self.peak, self.peak_place = self.now, len(self.events)

    def add(self, allocation: Allocation, nbytes: int) -> None:
        self.now += nbytes
        self.events.append((allocation, nbytes))

    def new_bytes(self) -> Counter[Tag]:
        """Bytes of new pages from the system in this step, by the tag that allocates them."""
        sums: Counter[Tag] = Counter()
        for allocation, nbytes in self.events:
            if nbytes > 0 and allocation.new_bytes:
                sums[allocation.tag] += allocation.new_bytes
        return sums

    def begin_step(self) -> None:
        """Begin another step, with new events and a new peak."""
        self.began = tuple(self.live.values())
        self.events.clear()
        self.peak, self.peak_place = self.now, 0

    def name(self, tensor: torch.Tensor, kind: str, module: str, name: str) -> None:
        """Set the owner of a tensor's storage."""
        allocation = self.live.get(storage_address(tensor.untyped_storage()))
        if allocation is not None and allocation.kind in ("", "other results"):
            allocation.kind, allocation.module, allocation.name = kind, module, name

    def alive_at_peak(self) -> list[Allocation]:
        """The storages that live at the peak."""
        return self.alive_after(self.peak_place)

    def alive_after(self, place: int) -> list[Allocation]:
        """The storages that live after so many events of the step."""
        alive = dict.fromkeys(self.began)
        for allocation, nbytes in self.events[:place]:
            if nbytes >= 0:
                alive[allocation] = None
            else:
                del alive[allocation]
        return list(alive)
