"""Boxes of tensors: a rank's part of a tensor that ranks share out, as a checkpoint names it, and
how a part is assemble from boxes that were cut in another way."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import CheckpointError
from glasshouse.distributed.groups.placement import Sharding

Slices = tuple[slice, ...]


class Box(NamedTuple):
    """A part of the tensor `key` of a checkpoint: where it begins in the whole, its shape, the
    shape of the whole, and the dtype."""

    key: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    dtype: str

    @property
    def name(self) -> str:
        """Name of the box in a file."""
        return self.key if self.shape == self.whole else f"{self.key}@{list(self.offset)}"

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def boxes_of(key: str, dtype: str, sharding: Sharding) -> list[tuple[Box, Slices]]:
    """The boxes of this rank's part of a tensor, and where each lies in the part."""
    boxes = []
    for local, whole in sharding.pieces():
        offset = tuple(s.start for s in whole)
        shape = tuple(s.stop - s.start for s in whole)
        boxes.append((Box(key, offset, shape, tuple(sharding.shape), dtype), local))
    return boxes


def assemble(
    boxes: list[tuple[Box, Slices]],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    saved: list[Box],
    read: Callable[..., Any],
) -> np.ndarray:
    """Assemble a part of this shape, which consists of `boxes`, from the results of `read(box)` for
    the saved boxes of the same tensor.

    Raises: CheckpointError where these leave something of it out
    """
    out = np.empty(shape, dtype)
    for box, local in boxes:
        covered = 0
        for source in saved:
            low = tuple(map(max, box.offset, source.offset))
            ends = zip(box.offset, box.shape, source.offset, source.shape, strict=True)
            high = tuple(min(a + n, b + m) for a, n, b, m in ends)
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            target, there = within(box.offset, low, high), within(source.offset, low, high)
            out[local + (...,)][target + (...,)] = read(source)[there]
            covered += math.prod(b - a for a, b in zip(low, high, strict=True))
        if covered != box.size:
            expected = f"{box.size} elements of {box.key} from {list(box.offset)} on"
            raise CheckpointError("load_checkpoint", expected, covered, "Load an earlier one.")
    return out


def within(offset: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> Slices:
    """The slices from `low` to `high`, counted from `offset`."""
    return tuple(slice(a - o, b - o) for o, a, b in zip(offset, low, high, strict=True))


def writers_of(boxes_by_rank: list[list[Box]]) -> list[list[Box]]:
    """Boxes that each rank writes, from those that each holds: each box once, by the rank with the
    fewest bytes to write among its holders."""
    holders: dict[Box, list[int]] = {}
    for rank, boxes in enumerate(boxes_by_rank):
        for box in boxes:
            holders.setdefault(box, []).append(rank)
    shares: list[list[Box]] = [[] for _ in boxes_by_rank]
    sizes = [0] * len(boxes_by_rank)
    for box, ranks in sorted(holders.items(), key=lambda item: (-item[0].size, item[0].name)):
        rank = min(ranks, key=lambda rank: (sizes[rank], rank))
        shares[rank].append(box)
        sizes[rank] += box.size
    return shares
