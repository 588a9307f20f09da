"""Formulas of the bytes that a rank sends in an exchange: the predictions of the table.

A byte counts once for each rank that reads it. Each formula takes the bytes of the operand, the
ranks of the group, the own rank, the bytes of an element, and the attrs of the call. A transport
counts the bytes that it moves in `sent_bytes`; a test compares the two."""

from typing import Any

SMALL_BYTES = 2048  # up to here an all_reduce sends its whole operand to all: one meeting, not two


def part(count: int, size: int, rank: int) -> tuple[int, int]:
    """The first element of `count` that the rank adds up for all, and the one after its last.

    Example:
        >>> [part(7, 3, rank) for rank in range(3)]
        [(0, 2), (2, 4), (4, 7)]
    """
    return count * rank // size, count * (rank + 1) // size


def send_parts_and_sum(nbytes: int, size: int, rank: int, itemsize: int, _attrs: Any) -> int:
    """B - P + (n - 1) P, where P is the part that the rank adds up; if small, (n - 1) B"""
    if nbytes <= SMALL_BYTES:
        return (size - 1) * nbytes
    begin, end = part(nbytes // itemsize, size, rank)
    part_bytes = (end - begin) * itemsize
    return nbytes - part_bytes + (size - 1) * part_bytes


def send_to_all(nbytes: int, size: int, *_: Any) -> int:
    """(n - 1) B"""
    return (size - 1) * nbytes


def send_parts(nbytes: int, size: int, *_: Any) -> int:
    """B - B / n"""
    return nbytes - nbytes // size


def send_from_root(nbytes: int, size: int, rank: int, _itemsize: int, attrs: dict[str, Any]) -> int:
    """(n - 1) B on the root, else 0"""
    return (size - 1) * nbytes if rank == attrs.get("root", 0) else 0


def send_once(nbytes: int, *_: Any) -> int:
    """B"""
    return nbytes


def send_along_pairs(
    nbytes: int, _size: int, rank: int, _itemsize: int, attrs: dict[str, Any]
) -> int:
    """B where the rank sends to another one, else 0"""
    return sum(nbytes for begin, to in attrs["pairs"] if begin == rank != to)


def send_nothing(*_: Any) -> int:
    """0"""
    return 0
