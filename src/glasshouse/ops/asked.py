"""Collectives as ranks call them, and the parts on which all ranks of a group must agree.

A transport sees arrays that were cut, packed and joined for it. So who calls it says what was asked
for, axes and all, and transports compare that: `asking` notes it for the calls that a thread makes
within, and `digest_of` is the number that ranks exchange."""

import threading
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple

import numpy as np


class Asked(NamedTuple):
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

    asked: Asked | None = None


current: Current = Current()


class asking:
    """Context: calls of transports inside are for this request."""

    before: Asked | None

    def __init__(self, request: Asked | None) -> None:
        self.asked = request

    def __enter__(self) -> None:
        self.before, current.asked = current.asked, self.asked

    def __exit__(self, *exc_info: object) -> None:
        current.asked = self.before


@lru_cache(1 << 12)
def digest_of(
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    option: int | None,
    request: Asked | None,
) -> int:
    """A number, of 63 bits, that is the same on all ranks for the same call of a transport's
    method, and hardly for another. The request has the shape where it is known: a
    Program and a card's reference give transports other shapes of as many elements."""
    parts = (name, dtype.name, prod(shape), option, request or shape)
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1
