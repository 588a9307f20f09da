"""Attention in blocks of heads and queries, so that the data of one step stays in caches.

Work with a score for each pair of a query and a key runs block by block, as steps of a loop:
some heads at a time, and if a head has many scores, some of its queries at a time.

Source: Rabe & Staats 2021, arXiv:2112.05682; Dao et al. 2022, arXiv:2205.14135."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

from glasshouse.base import int64
from glasshouse.dispatch.value import Value, broadcast_to, reshape
from glasshouse.tensor import Tensor, arange, concat, permute_dims
from glasshouse.transforms.scan import scan

WHOLE = 1 << 20  # scores up to which all is done at once: 4 MiB of float32
BLOCK = 1 << 17  # scores of a block, about: with all results of them they fit a core's cache
FEWEST_ROWS = 32  # of a block


looped: partial[Any] = partial(scan, recompute=True)  # a backward pass computes each block again


class Blocks(NamedTuple):
    """How the work is cut: into `groups` of heads, and of each so many `rows` of queries at a time.
    Queries, keys and values are seen as (groups, heads, L, E); `mask` (heads or 1, L or 1, S) has
    an axis for the groups in front if it is not the same for all."""

    groups: int
    rows: int
    mask: Value | None
    is_mask_grouped: bool

    def grouped(self, x: Tensor) -> Tensor:
        """(..., L, E) -> (groups, heads, L, E)."""
        heads = x.size // (self.groups * x.shape[-2] * x.shape[-1])
        return reshape(x, (self.groups, heads, *x.shape[-2:]))

    def each(self, fn: Callable[..., Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        """The results of `fn(mask, *inputs)` for each group; inputs have groups along axis 0."""
        if self.groups == 1:
            mask = self.mask[0] if self.mask is not None and self.is_mask_grouped else self.mask
            return tuple(reshape(x, (1, *x.shape)) for x in fn(mask, *(x[0] for x in inputs)))
        if self.mask is not None and self.is_mask_grouped:
            return looped(lambda state, xs: (state, fn(*xs)), (), (self.mask, *inputs))[1]
        return looped(lambda state, xs: (state, fn(self.mask, *xs)), (), inputs)[1]


def blocks_of(lead: tuple[int, ...], queries: int, keys: int, mask: Tensor | None) -> Blocks | None:
    """The blocks of attention with these leading axes; None where there are few scores."""
    heads = prod(lead)
    if heads * queries * keys <= WHOLE:
        return None
    if mask is not None and mask.ndim > 2 and prod(mask.shape[:-2]) > 1:
        if mask.shape[-2] > 1:
            return blocks_by_batch(lead, queries, keys, mask)
        mask = broadcast_to(mask, (*lead, 1, mask.shape[-1]))
    most = max(1, BLOCK // (queries * keys))
    group = next(n for n in range(min(most, heads), 0, -1) if heads % n == 0)
    rows, groups = rows_of(group, queries, keys), heads // group
    if mask is None:
        return Blocks(groups, rows, None, False)
    ends = (1, 1, *mask.shape)[-2:]
    if mask.size == prod(ends):
        return Blocks(groups, rows, reshape(mask, (1, *ends)), False)
    return Blocks(groups, rows, reshape(mask, (groups, group, *ends)), True)


def blocks_by_batch(lead: Any, queries: int, keys: int, mask: Tensor) -> Blocks:
    """Those of examples, one after the other, where the heads of one share its mask or each has
    its own mask, with a row for every query."""
    *outer, heads = lead
    batch, rows, mask_shape = prod(outer), rows_of(heads, queries, keys), mask.shape[-3:]
    if prod(mask.shape[:-3]) == 1:
        return Blocks(batch, rows, reshape(mask, mask_shape), False)
    mask = broadcast_to(mask, (*outer, *mask_shape))
    return Blocks(batch, rows, reshape(mask, (batch, *mask_shape)), True)


def rows_of(heads: int, queries: int, keys: int) -> int:
    """The rows of a block: as even as can be."""
    most = max(FEWEST_ROWS, BLOCK // (heads * keys))
    return queries // -(-queries // most)


def by_rows(fn: Callable[..., Any], rows: int, carry: tuple[Any, ...], *inputs: Tensor) -> Any:
    """(carry, results) of `fn(carry, start, *inputs)` over blocks of rows, which lie along axis -2
    of the inputs and of the results; `carry` goes through all of them."""
    total = inputs[0].shape[-2]
    count = total // rows
    if count == 1:
        return fn(carry, arange(1, dtype=int64)[0], *inputs)
    starts = arange(count, dtype=int64) * rows
    cut = tuple(cut_rows(x, rows, count) for x in inputs)
    carry, results = looped(lambda state, xs: fn(state, *xs), carry, (starts, *cut))
    results = tuple(map(joined_rows, results))
    if count * rows < total:
        begin = arange(1, dtype=int64)[0] + count * rows
        carry, rest = fn(carry, begin, *(x[..., count * rows :, :] for x in inputs))
        results = tuple(concat([a, b], axis=-2) for a, b in zip(results, rest, strict=True))
    return carry, results


def rows_of_mask(mask: Tensor | None, q: Tensor) -> tuple[Any, ...]:
    """A mask that has a row for each query."""
    return () if mask is None or mask.shape[-2] != q.shape[-2] else (mask,)


def cut_rows(x: Tensor, rows: int, count: int) -> Tensor:
    """(..., L, E) -> (count, ..., rows, E)."""
    *lead, _, width = x.shape
    n = len(lead)
    x = reshape(x[..., : count * rows, :], (*lead, count, rows, width))
    return permute_dims(x, (n, *range(n), n + 1, n + 2))


def joined_rows(x: Tensor) -> Tensor:
    """(count, ..., rows, E) -> (..., count · rows, E)."""
    count, *lead, rows, width = x.shape
    n = len(lead)
    x = permute_dims(x, (*range(1, n + 1), 0, n + 1, n + 2))
    return reshape(x, (*lead, count * rows, width))
