"""Memory that processes share: blocks without a name, and batches laid out in them.

A block has no name in the file system: it goes with the last process that holds it, however that
process ends. A worker writes a batch's arrays into one, the reader makes arrays on the same memory,
and the block is written again when nobody refers to these any more."""

import mmap
import os
import pickle
import tempfile
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import flatten, unflatten
from glasshouse.base.tree import TreeDef
from glasshouse.dispatch.arrays import to_array
from glasshouse.dispatch.value import Value, adopt

ALIGNMENT = 64  # bytes of a cache line
LEAST_BYTES = 1 << 16
SPARE = 1.25  # batches of other sizes follow: a block that grows gets a quarter more


class Block:
    """Shared memory that can grow; every process that holds it maps it for itself."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd: int = anonymous_file() if fd is None else fd
        self.nbytes: int = 0
        self.mapping: mmap.mmap | bytes = b""

    def reserve(self, nbytes: int) -> None:
        """Make it `nbytes` long at least. Memory is taken here, so that a lack of it is an error
        here and not a signal when it is written."""
        if nbytes > self.nbytes:
            nbytes = max(LEAST_BYTES, int(nbytes * SPARE))
            nbytes += -nbytes % mmap.PAGESIZE
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, 0, nbytes)
            else:
                os.ftruncate(self.fd, nbytes)
            self.follow(nbytes)

    def follow(self, nbytes: int) -> None:
        """Map the memory again if it has grown to `nbytes`, here or in another process."""
        if nbytes > self.nbytes:
            self.mapping = mmap.mmap(self.fd, nbytes)
            self.nbytes = nbytes

    def lease(self) -> np.ndarray:
        """A new array of all bytes: arrays made on it keep it alive, and it the memory."""
        return np.frombuffer(self.mapping, np.uint8)

    def close(self) -> None:
        """Forget the memory; arrays on it stay valid."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.mapping = -1, b""

    def __reduce__(self) -> Any:
        return block_of, (DupFd(self.fd),)


def anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("glasshouse-data", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def block_of(handle: Any) -> Block:
    """A block in a process that was started afresh."""
    return Block(handle.detach())


class ArrayPlace(NamedTuple):
    """Where an array of a batch lies in its block."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    is_tensor: bool


class Pickled(NamedTuple):
    """A leaf that is no array: it travels as it is."""

    value: Any


class BlockWriter:
    """Writes a batch into a block. `empty` allocates arrays there, so that samples stacked into
    them need no copy."""

    def __init__(self) -> None:
        self.block: Block
        self.used_bytes: int = 0
        self.offsets: dict[int, tuple[np.ndarray, int]] = {}
        self.last: tuple[Any, bytes] = (None, b"")

    def begin(self, block: Block) -> None:
        """Start writing `block` from its beginning."""
        block.reserve(1)  # there is memory for an empty array too
        self.block, self.used_bytes = block, 0
        self.offsets.clear()

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """An array in the block, its contents not set."""
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        array = self.room(nbytes).view(dtype).reshape(shape)
        self.offsets[id(array)] = array, self.used_bytes - nbytes
        return array

    def room(self, nbytes: int) -> np.ndarray:
        start = self.used_bytes + -self.used_bytes % ALIGNMENT
        self.used_bytes = start + nbytes
        self.block.reserve(self.used_bytes)
        return self.block.lease()[start : self.used_bytes]

    def write(self, batch: Any, as_tensors: bool, state: Any = None) -> tuple[int, int]:
        """(offset, size) of the batch's description, after its arrays."""
        leaves, treedef = flatten(batch)
        places = [self.place(leaf, as_tensors) for leaf in leaves]
        plain = state is None and all(isinstance(place, ArrayPlace) for place in places)
        key = (treedef, places) if plain else None
        if key is None or key != self.last[0]:
            self.last = key, pickle.dumps((treedef, places, state), protocol=5)
        return self.write_bytes(self.last[1])

    def write_bytes(self, data: bytes) -> tuple[int, int]:
        self.room(len(data))[:] = np.frombuffer(data, np.uint8)
        return self.used_bytes - len(data), len(data)

    def place(self, leaf: Any, as_tensors: bool) -> Any:
        is_tensor = isinstance(leaf, Value)
        if is_tensor:
            leaf = leaf.numpy()
        if not isinstance(leaf, np.ndarray) or leaf.dtype.hasobject:
            return Pickled(leaf)
        if id(leaf) not in self.offsets:
            copy = self.empty(leaf.shape, leaf.dtype)
            copy[...] = leaf
            leaf = copy
        offset = self.offsets[id(leaf)][1]
        return ArrayPlace(
            leaf.dtype, leaf.shape, offset, is_tensor or (as_tensors and is_numeric(leaf))
        )


def is_numeric(array: np.ndarray) -> bool:
    return array.dtype.kind not in "OUSMm"


class BlockReader:
    """Reads the batches that a `BlockWriter` wrote."""

    def __init__(self) -> None:
        self.last: tuple[bytes, Any] = (b"", None)

    def read(self, lease: np.ndarray, offset: int, size: int, copy: bool) -> tuple[Any, None]:
        """(batch, state): arrays on the lease's memory, or copies."""
        treedef, places, state = self.description(lease[offset : offset + size].tobytes())
        leaves = [
            place.value if isinstance(place, Pickled) else array_at(lease, place, copy)
            for place in places
        ]
        return unflatten(treedef, leaves), state

    def description(self, data: bytes) -> tuple[TreeDef, list[ArrayPlace | Pickled], None]:
        if data != self.last[0]:
            self.last = data, pickle.loads(data)
        treedef, places, state = self.last[1]
        if not all(isinstance(place, ArrayPlace) for place in places):
            self.last = b"", None  # pickled leaves belong to one batch
        return treedef, places, state


def array_at(lease: np.ndarray, place: ArrayPlace, copy: bool) -> Any:
    nbytes = int(np.prod(place.shape, dtype=np.int64)) * place.dtype.itemsize
    array = lease[place.offset : place.offset + nbytes].view(place.dtype).reshape(place.shape)
    array = array.copy() if copy else array
    return adopt(to_array(array, "DataLoader")) if place.is_tensor else array
