"""Resizable storages over our memory.

PyTorch's storages over foreign memory (`torch.from_numpy`, DLPack) refuse `resize_` and `out=` of
another size, and no function changes that. We find the two fields that decide it by comparing
storages, and test them before use."""

import ctypes
import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from glasshouse.torch.patches.names import are_found
from glasshouse.torch.patches.tensors import storage_address

STORAGE_BYTES = 80  # of memory that is searched


class StorageParts(NamedTuple):
    """The offsets of a storage's resizable flag (a byte, 1) and of its allocator, in bytes; and the
    address of the processor's allocator. All 0 where they are unknown."""

    resizable: int = 0
    allocator: int = 0
    allocator_of_cpu: int = 0


class Lent(np.ndarray):
    """An array whose end can be watched."""


def lent(size: int) -> np.ndarray:
    """Zeros that nobody else refers to."""
    return np.zeros(size, np.uint8).view(Lent)


def words_at(address: int, nbytes: int) -> list[int]:
    return list((ctypes.c_uint64 * (nbytes // 8)).from_address(address))


def find_contents(storage: torch.UntypedStorage) -> tuple[int, int]:
    """The offsets in a storage of its memory's address and size.

    Raises: ValueError where one of them is not found
    """
    words = words_at(storage_address(storage), STORAGE_BYTES)
    return words.index(storage.data_ptr()) * 8, words.index(storage.nbytes()) * 8


def bytes_of(storage: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(storage_address(storage), STORAGE_BYTES)


SIZES = (3, 64, 5000, 17, 900, 40, 260, 12000, 7, 130, 2000, 33)  # few may agree by chance


def compared(sizes: tuple[int, ...] = SIZES) -> StorageParts | None:
    """The two parts that differ between storages of PyTorch's memory and of NumPy's; None where
    others differ too."""
    if not are_found(storage_address):
        return None
    pairs = [(torch.empty(n, dtype=torch.uint8), torch.from_numpy(lent(n))) for n in sizes]
    columns = ([bytes_of(x.untyped_storage()) for x in column] for column in zip(*pairs))
    torch_bytes, others = columns
    flags = places(torch_bytes, others, 1, b"\1".__eq__)
    allocators = places(torch_bytes, others, 8, any)
    allocators = [at for at in allocators if not set(range(at, at + 8)) & set(flags)]
    if len(flags) != 1 or len(allocators) != 1:
        return None
    value = int.from_bytes(torch_bytes[0][allocators[0] : allocators[0] + 8], sys.byteorder)
    return StorageParts(flags[0], allocators[0], value)


def places(
    torch_bytes: list[bytes], others: list[bytes], size: int, fits: Callable[..., Any]
) -> list[int]:
    """The offsets at which all of PyTorch's own storages have the same `size` bytes, which pass the
    test, and all others have zeros."""
    offsets = []
    for at in range(0, STORAGE_BYTES, size):
        values, zeros = ({x[at : at + size] for x in part} for part in (torch_bytes, others))
        if len(values) == 1 and fits(torch_bytes[0][at : at + size]) and zeros == {bytes(size)}:
            offsets.append(at)
    return offsets


def set_resizable(tensor: torch.Tensor, parts: StorageParts) -> None:
    """Make the storage of a tensor resizable."""
    if parts.allocator_of_cpu:
        begin = storage_address(tensor.untyped_storage())
        ctypes.c_uint8.from_address(begin + parts.resizable).value = 1
        ctypes.c_uint64.from_address(begin + parts.allocator).value = parts.allocator_of_cpu


def are_right(parts: StorageParts) -> bool:
    """Whether these parts make a storage of NumPy's memory resizable: it keeps its contents, and
    releases the old memory."""
    array = lent(8)
    array[:] = range(8)
    gone = weakref.ref(array)
    tensor = torch.from_numpy(array)
    del array
    set_resizable(tensor, parts)
    if not tensor.untyped_storage().resizable():
        return False
    tensor.resize_(4096)
    gc.collect(0)
    return gone() is None and tensor[:8].tolist() == list(range(8))


@functools.cache
def storage_parts() -> StorageParts:
    """The parts in this PyTorch."""
    parts = compared()
    return parts if parts is not None and are_right(parts) else StorageParts()


def make_resizable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with a resizable storage."""
    set_resizable(tensor, storage_parts())
    return tensor
