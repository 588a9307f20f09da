"""Collectives as ranks call them, and the parts on which all ranks of a group must agree.

A transport sees arrays that its caller has split, packed and joined. The caller therefore notes the
request itself, axes included, by `requesting`, for the transport's calls inside that context.
Transports compare requests: `digest_of` is the number that ranks exchange."""

import threading
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple

import numpy as np


class CollectiveRequest(NamedTuple):
    """A call of a collective: its name, the dtype and shape of the operand, and the options of
    the call in words: "sum", "root 1", "axis 1"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    options: str = ""

    def __str__(self) -> str:
        how = f", {self.options}" if self.options else ""
        return f"{self.name}({self.dtype}, shape {self.shape}{how})"


class Current(threading.local):
    """This thread's request to a transport; None where it calls the transport itself."""

    request: CollectiveRequest | None = None


current: Current = Current()


class requesting:
    """Context: calls of transports inside are for this request."""

    before: CollectiveRequest | None

    def __init__(self, request: CollectiveRequest | None) -> None:
        self.request = request

    def __enter__(self) -> None:
        self.before, current.request = current.request, self.request

    def __exit__(self, *exc_info: object) -> None:
        current.request = self.before


@lru_cache(1 << 12)
def digest_of(
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    option: int | None,
    request: CollectiveRequest | None,
) -> int:
    """A number, of 63 bits, that is the same on all ranks for the same call of a transport's
    method, and hardly for another. The request has the shape where it is known: a
    Program and a card's reference give transports other shapes of as many elements."""
    parts = (name, dtype.name, prod(shape), option, request or shape)
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1
