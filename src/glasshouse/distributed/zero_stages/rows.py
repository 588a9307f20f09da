"""Tensors cut into rows: several at a time gathered, or summed and cut, by one collective.

Where ranks do not divide the rows, the last ranks have fewer, and send zeros for the others."""

import math
from typing import Any

from glasshouse.distributed.groups.placement import Shard, own_part, padded
from glasshouse.ops import collective
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, concat, reshape

ROWS = Shard(0)


def can_cut(shape: tuple[int, ...], count: int) -> bool:
    """Whether a tensor has a row for each rank; others stay whole."""
    return bool(shape) and shape[0] >= count


def block_of(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Shape that each rank sends of a tensor of this shape."""
    return (ROWS.width(shape[0], count), *shape[1:])


def gathered(parts: list[Tensor], shapes: list[Any], group: ProcessGroup) -> Tensor:
    """All ranks' rows of these tensors, a row of the result for each rank.

    Shapes: (rows of this rank, ...) each -> (ranks, the sum of the blocks' sizes)
    """
    blocks = [block_of(shape, group.size) for shape in shapes]
    flat = [reshape(padded(x, 0, b[0]), (1, math.prod(b))) for x, b in zip(parts, blocks)]
    flat = flat[0] if len(flat) == 1 else concat(flat, axis=1)
    return collective.all_gather(flat, group=group, axis=0, replicated=False)


def wholes_of(flat: Tensor, shapes: list[Any]) -> list[Tensor]:
    """Tensors of these shapes from the result of `gathered`."""
    count, at, out = flat.shape[0], 0, []
    for shape in shapes:
        block = block_of(shape, count)
        size = math.prod(block)
        part = flat if size == flat.shape[1] else flat[:, at : at + size]
        rows = reshape(part, (count * block[0], *block[1:]))
        out.append(rows if rows.shape[0] == shape[0] else rows[: shape[0]])
        at += size
    return out


def flat_of(wholes: list[Tensor], count: int) -> Tensor:
    """Flatten whole tensors into a row for each of so many ranks; `wholes_of` reverses it."""
    blocks = [block_of(x.shape, count) for x in wholes]
    flat = [
        reshape(padded(x, 0, b[0] * count), (count, math.prod(b)))
        for x, b in zip(wholes, blocks, strict=True)
    ]
    return flat[0] if len(flat) == 1 else concat(flat, axis=1)


def mean_rows(
    flat: Tensor, shapes: list[Any], group: ProcessGroup, beside: ProcessGroup, sent_as: Any = None
) -> list[Tensor]:
    """This rank's rows of the means of tensors of these shapes, which `flat_of` joined, over the
    ranks of `group`, which share them out, and those `beside`, which have the same rows."""
    dtype = flat.dtype
    flat = flat if sent_as is None else flat.to(dtype=sent_as)
    total = collective.reduce_scatter(flat, group=group, axis=0)
    if beside.size > 1:
        total = collective.all_reduce(total, group=beside, reduce="sum", replicated=True)
    total = total.to(dtype=dtype) * (1 / (group.size * beside.size))
    out, at = [], 0
    for shape in shapes:
        block = block_of(shape, group.size)
        size = math.prod(block)
        part = reshape(total[:, at : at + size], block)
        first = group.rank * block[0]
        rows = max(0, min(block[0], shape[0] - first))
        out.append(part if rows == block[0] else part[:rows])
        at += size
    return out


def own_rows(x: Tensor, group: ProcessGroup) -> Tensor:
    """This rank's rows of an x that all ranks hold alike."""
    return own_part(x, ROWS, group)
