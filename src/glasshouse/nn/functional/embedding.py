"""Bags of embeddings: rows of a table, summed, averaged or maximised over each bag."""

import math
from typing import Any

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import check_floating, refuse_sparse
from glasshouse.nn.functional.linear import embedding
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.ops.index import gather, scatter_add
from glasshouse.tensor import Tensor, arange, concat, full, maximum, searchsorted, zeros
from glasshouse.tensor import where as choose

MODES = ("sum", "mean", "max")


def embedding_bag(
    input: ArrayLike,
    weight: Tensor,
    offsets: ArrayLike | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    *,
    _where: str = "embedding_bag",
) -> Any:
    """The sum, mean or maximum of the rows of `weight` that each bag of indices names; 0 for an
    empty bag. Bags are the rows of a matrix, or runs of a vector that begin at `offsets`, whose
    last one is its end if `include_last_offset`. Indices before the first offset are in no bag.
    Indices equal to `padding_idx` are left out. `per_sample_weights` weight the rows of a sum.

    Shapes: input (B, L), or (M,) with offsets (B,) -> (B, D); per_sample_weights as input.
    Raises: OptionError for an unknown mode, weights for another mode than sum, sparse=True;
        ShapeError for other shapes; IndexOutOfRangeError for an index outside the table.
    Source: standard; Joulin et al. 2017, arXiv:1607.01759.
    Example:
        >>> table = [[1.0], [2.0], [4.0]]
        >>> embedding_bag([0, 1, 2], table, [0, 2], mode="sum").tolist()
        [[3.0], [4.0]]
    """
    where = _where
    check_option(where, "mode", mode, MODES)
    refuse_sparse(where, sparse)
    if per_sample_weights is not None and mode != "sum":
        raise OptionError(where, "mode='sum' with weights", repr(mode), "Change mode.")
    if scale_grad_by_freq and mode == "max":
        raise OptionError(where, "mode 'sum' or 'mean' to scale gradients", "'max'", "Change mode.")
    index, bags, count = bags_of(where, input, offsets, include_last_offset)
    rows = embedding(
        index, weight, None, max_norm, norm_type, scale_grad_by_freq, _where=where
    )  # (M, D)
    valid = bags >= 0
    if padding_idx is not None:
        valid = valid & (index != padding_idx % as_value(weight).shape[0])
    dtype, rows = rows.dtype, widen(rows)
    if per_sample_weights is not None:
        rows = rows * reshape(sample_weights(where, per_sample_weights, input), (index.size, 1))
    valid = reshape(valid, (index.size, 1))
    if mode == "max":
        return cast(largest(rows, valid, bags, count), dtype)
    rows = choose(valid, rows, 0)
    places = choose(bags < 0, 0, bags)
    total = scatter_add(zeros((count, rows.shape[1]), dtype=rows.dtype), places, rows, axis=0)
    if mode == "sum":
        return cast(total, dtype)
    sizes = scatter_add(zeros((count, 1), rows.dtype), places, cast(valid, rows.dtype), axis=0)
    return cast(total / choose(sizes == 0, 1, sizes), dtype)


def bags_of(
    where: str, input: ArrayLike, offsets: ArrayLike | None, include_last_offset: bool
) -> tuple[Tensor, Tensor, int]:
    """(indices as a vector, the bag of each or -1, the number of bags)."""
    index = as_value(input, where=where)
    check_integers(where, index, "Convert them with input.long().")
    if index.ndim == 2 and offsets is None:
        count, length = index.shape
        bags = broadcast_to(reshape(arange(count), (count, 1)), index.shape)
        return reshape(index, (index.size,)), reshape(bags, (index.size,)), count
    if index.ndim != 1 or offsets is None:
        got = f"{index.shape} with{'out' if offsets is None else ''} offsets"
        raise ShapeError(where, "an input (B, L), or (M,) with offsets", got, "Give one of both.")
    starts = as_value(offsets, where=where)
    check_integers(where, starts, "Convert them with offsets.long().")
    if starts.ndim != 1 or starts.size <= include_last_offset - 1:
        raise ShapeError(where, "offsets (B,)", starts.shape, "Flatten them.")
    end = starts[-1] if include_last_offset else None
    starts = starts[:-1] if include_last_offset else starts
    place = arange(index.size, dtype=starts.dtype)
    bags = searchsorted(starts, place, side="right") - 1
    if end is not None:
        bags = choose(place < end, bags, -1)
    return index, bags, starts.size


def sample_weights(where: str, weights: Tensor, input: Any) -> Tensor:
    weights, shape = check_floating(where, weights, "per_sample_weights"), as_value(input).shape
    if weights.shape != shape:
        raise ShapeError(where, f"per_sample_weights {shape}", weights.shape, "One each.")
    return weights


def largest(rows: Tensor, valid: Tensor, bags: Tensor, count: int) -> Tensor:
    """The maximum of each bag, by a segmented scan: after step k a row is the maximum of the last
    2^k rows up to it that are of its bag.

    Source: Hillis & Steele 1986, Data parallel algorithms.
    """
    size, features = rows.shape
    if not size:
        return zeros((count, features), dtype=rows.dtype)
    lowest = full((), -math.inf, dtype=rows.dtype)
    best, step = choose(valid, rows, lowest), 1
    while step < size:
        same = reshape(bags[step:] == bags[:-step], (size - step, 1))
        best = concat([best[:step], choose(same, maximum(best[step:], best[:-step]), best[step:])])
        step *= 2
    last = searchsorted(bags, arange(count), side="right") - 1  # of each bag, or one before it
    place = choose(last < 0, 0, last)
    inside = gather(bags, place, axis=0) == arange(count)
    lasts = gather(best, place, axis=0)
    is_empty = ~reshape(inside, (count, 1)) | (lasts == -math.inf)
    return choose(is_empty, 0, lasts)
