"""Users' arrays that tensors share, and checks that they stay unchanged.

A tensor shares the memory of an array where the user asks for it (`gh.from_numpy`, `copy=False`).
A call that reads it later than it was made would see values written in between; under GH_VERIFY
this is an error that names the call."""

import weakref
import zlib
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import SharedMemoryError, user_line
from glasshouse.base.flags import flags


class SharedArray(NamedTuple):
    """A user's array, the function and line that shared it, and its checksum at that time."""

    array: np.ndarray
    where: str
    line: str
    checksum: int | None  # None: nobody looks


def checksum(array: np.ndarray) -> int:
    """A checksum of the array: other contents hardly ever have the same."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class SharedArrays:
    """Users' arrays, by the payloads that share their memory, while these live."""

    def __init__(self) -> None:
        self.by_payload: dict[int, SharedArray] = {}

    def add(self, payload: Any, array: np.ndarray, where: str) -> None:
        """Note that a payload, which is not the array itself, shares its memory."""
        looks = flags.verify
        entry = SharedArray(
            array, where, user_line() if looks else "", checksum(array) if looks else None
        )
        key = id(payload)
        self.by_payload[key] = entry
        weakref.finalize(payload, self.by_payload.pop, key, None).atexit = False

    def has(self, payload: Any) -> bool:
        """Whether a payload shares the memory of a user's array."""
        return id(payload) in self.by_payload

    def check(self, call: str, payloads: Any) -> None:
        """Look whether the arrays that a call reads are as they were when they were shared.

        Raises: SharedMemoryError
        """
        for payload in payloads:
            entry = self.by_payload.get(id(payload))
            if entry is None or entry.checksum in (None, checksum(entry.array)):
                continue
            expected = f"the array that {entry.where} shared at {entry.line} to be left unchanged"
            fix = "Write to it after gh.eval and share it again, or let gh.asarray copy it."
            raise SharedMemoryError(call, expected, "other contents", fix)


shared_arrays: SharedArrays = SharedArrays()
