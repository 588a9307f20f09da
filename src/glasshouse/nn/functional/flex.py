"""Attention with a user's score function.

`attend_block` gives result and log-sum-exp of some queries against all keys; where there are many
scores, it is the step of a loop over blocks of heads and queries (`blocks.py`)."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from glasshouse.base import DTypeError, OptionError, ShapeError, bool_, int32, int64
from glasshouse.dispatch.value import ArrayLike, Value, as_value, broadcast_to, cast, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import (
    check_divides,
    check_floating,
    check_positive,
    check_takes,
    int_tuple,
)
from glasshouse.nn.functional.attention import repeat_heads
from glasshouse.nn.functional.blocks import Blocks, blocks_of, by_rows
from glasshouse.ops.checks import check_type
from glasshouse.tensor import (
    Tensor,
    arange,
    argsort,
    exp,
    log,
    matmul,
    matrix_transpose,
    put_along_axis,
    zeros,
)
from glasshouse.tensor import pad as pad_axes
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention",
           "noop_mask", "or_masks", "sliding_window"]  # fmt: skip

DEFAULT_BLOCK = 128  # as in PyTorch


class Positions(NamedTuple):
    """Index tensors that broadcast to (B, H, L, S): batch, head, query and key."""

    batch: Value
    head: Value
    query: Value
    key: Value


def positions_of(batch: int, heads: int, queries: range, keys: int) -> Positions:
    places = (arange(batch), arange(heads), arange(queries.start, queries.stop), arange(keys))
    shapes = ((-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,))
    return Positions(*(p.reshape(shape) for p, shape in zip(places, shapes, strict=True)))


def attend_block(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score_mod: Callable[..., Any] | None,
    allowed: Any,
    at: Positions,
) -> tuple[Tensor, Tensor]:
    """(softmax(score_mod(q kᵀ)) v, log Σ exp of the scores) of a block of scaled queries against
    all keys; 0 and -∞ where no key is allowed.

    Shapes: q (B, H, L, E), k (B, H, S, E), v (B, H, S, D), allowed None or broadcasting to
        (B, H, L, S) -> (B, H, L, D), (B, H, L).
    """
    scores = widen(matmul(q, matrix_transpose(k)))  # (B, H, L, S)
    if score_mod is not None:
        scores = check_result("score_mod", score_mod(scores, *at), scores.shape)
        scores = widen(scores)
    if allowed is not None:
        scores = choose(allowed, scores, -math.inf)
    top = reduce.max(scores, axis=-1, keepdims=True).detach()
    top = choose(top == -math.inf, 0, top)
    e = exp(scores - top)
    total = reduce.sum(e, axis=-1, keepdims=True)
    is_empty = total == 0
    weights = e / choose(is_empty, 1, total)
    lse = choose(is_empty, -math.inf, log(choose(is_empty, 1, total)) + top)
    return matmul(cast(weights, v.dtype), v), reshape(lse, lse.shape[:-1])


def check_result(name: str, result: Tensor, shape: Any) -> Tensor:
    """The `result` of a score or mask function, checked and broadcast to its full `shape`."""
    result = as_value(result, where=name)
    sizes = zip(result.shape[::-1], shape[::-1], strict=False)
    if result.ndim > len(shape) or any(r not in (1, s) for r, s in sizes):
        fix = "Use the index tensors."
        raise ShapeError(name, f"a result that broadcasts to {shape}", result.shape, fix)
    return broadcast_to(result, shape)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: "BlockMask | None" = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
) -> Any:
    """softmax(score_mod(scale · q kᵀ, b, h, i, j)) v, scale = 1 / √E unless given.
    `score_mod(score, batch, head, q_index, kv_index)` is written with array functions: the indices
    are tensors that broadcast with the scores, so `bias[head, q_index, kv_index]` looks up one bias
    each. `block_mask` says which keys a query may attend to. A query that may attend nowhere gives
    0. `enable_gqa` lets groups of query heads share one key and value head. With `return_lse` also
    log Σ exp of the scores.

    Shapes: query (B, H, L, E), key (B, H, S, E), value (B, H, S, D) -> (B, H, L, D), and (B, H, L).
    Raises: ShapeError for sizes that do not fit, or a score of another shape.
    Source: Dong et al. 2024, Flex Attention, arXiv:2412.05496.
    Example:
        >>> q = gh.ones((1, 1, 3, 2))
        >>> def causal(score, b, h, i, j):
        ...     return gh.where(i >= j, score, -gh.inf)
        >>> v = gh.asarray([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1)
        >>> flex_attention(q, q, v, causal).reshape(-1).tolist()
        [1.0, 1.5, 2.0]
    """
    where = "flex_attention"
    q, k, v = checked_operands(where, query, key, value, enable_gqa)
    if score_mod is not None:
        check_takes(where, "score_mod", score_mod, "score", *Positions._fields)
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    if block_mask is not None:
        check_type(where, block_mask, BlockMask, "a BlockMask", "Make it with create_block_mask.")
        block_mask.check_fits(batch, heads, queries, keys)
    q = q * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)

    def block(q, k, v, at: Positions):
        allowed = None if block_mask is None else block_mask.allowed(at)
        return attend_block(q, k, v, score_mod, allowed, at)

    blocks = blocks_of((batch, heads), queries, keys, None)
    if blocks is None:
        out, lse = block(q, k, v, positions_of(batch, heads, range(queries), keys))
    else:
        out, lse = in_blocks(block, blocks, q, k, v)
    return (out, lse) if return_lse else out


def in_blocks(
    block: Callable[..., Any], blocks: Blocks, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    """(results, log-sum-exps) of `block(q, k, v, at)`, done for some heads and queries at a
    time."""
    batch, heads, queries, _ = q.shape
    numbers = reshape(
        arange(batch * heads), (blocks.groups, 1, batch * heads // blocks.groups, 1, 1)
    )
    keys = arange(k.shape[2])

    def of_group(_, q, k, v, numbers):
        def of_rows(carry, start, q):
            rows = reshape(arange(q.shape[-2]), (q.shape[-2], 1)) + start
            at = Positions(numbers // heads, numbers % heads, rows, keys)
            out, lse = block(one_batch(q), one_batch(k), one_batch(v), at)
            return carry, (out[0], reshape(lse, (*lse.shape[1:], 1)))

        return by_rows(of_rows, blocks.rows, (), q)[1]

    out, lse = blocks.each(of_group, *map(blocks.grouped, (q, k, v)), numbers)
    lead = (batch, heads, queries)
    return reshape(out, (*lead, v.shape[-1])), reshape(lse, lead)


def one_batch(x: Tensor) -> Tensor:
    return reshape(x, (1, *x.shape))


def checked_operands(
    where: str, query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> list[Tensor]:
    named_inputs = ((query, "query"), (key, "key"), (value, "value"))
    q, k, v = (check_floating(where, x, name) for x, name in named_inputs)
    fits = all(x.ndim == 4 for x in (q, k, v)) and q.shape[-1] == k.shape[-1]
    fits = fits and k.shape[:3] == v.shape[:3] and k.shape[0] in (1, q.shape[0])
    if fits and enable_gqa:
        check_divides(where, "query heads", q.shape[1], "key heads", k.shape[1])
        k, v = (repeat_heads(x, q.shape[1] // x.shape[1]) for x in (k, v))
    if not fits or k.shape[1] != q.shape[1]:
        expected = "query (B, H, L, E), key (B, H, S, E) and value (B, H, S, D)"
        fix = "Transpose them, or pass enable_gqa=True for fewer key heads."
        raise ShapeError(where, expected, f"{q.shape}, {k.shape} and {v.shape}", fix)
    return [q, k, v]


# -- masks ---------------------------------------------------------------------------------------


def noop_mask(batch: Tensor, head: Tensor, q_index: Tensor, kv_index: Tensor) -> Tensor:
    """True: every query may attend to every key."""
    return q_index >= 0


def and_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function that is True where all of the given ones are.

    Example:
        >>> both = and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j < 2)
        >>> create_mask(both, None, None, 3, 3)[0, 0].tolist()
        [[True, False, False], [True, True, False], [False, True, True]]
    """
    return joined("and_masks", mask_mods, lambda a, b: a & b)


def or_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function that is True where one of the given ones is."""
    return joined("or_masks", mask_mods, lambda a, b: a | b)


def joined(
    where: str, mask_mods: tuple[Callable[..., Any], ...], join: Callable[..., Any]
) -> Callable[..., Any]:
    if not mask_mods:
        raise OptionError(where, "at least one mask function", "none", "Pass some.")
    for mask_mod in mask_mods:
        check_takes(where, "mask_mod", mask_mod, *Positions._fields)

    def mask(batch, head, q_index, kv_index):
        first, *rest = mask_mods
        y = first(batch, head, q_index, kv_index)
        for mask_mod in rest:
            y = join(y, mask_mod(batch, head, q_index, kv_index))
        return y

    return mask


def sliding_window(window: int, causal: bool = True) -> Callable[..., Any]:
    """The mask function of a window: a query attends to the `window` last positions up to its own,
    or, unless `causal`, to those less than `window` away on both sides.

    Raises: OptionError for a window below 1.
    Source: Beltagy, Peters & Cohan 2020, arXiv:2004.05150, sec. 3.1.
    Example:
        >>> create_mask(sliding_window(2), None, None, 3, 3)[0, 0].tolist()
        [[True, False, False], [True, True, False], [False, True, True]]
    """
    check_positive("sliding_window", window=window)

    def mask(batch, head, q_index, kv_index):
        back = q_index - kv_index
        return (back < window) & (back >= 0 if causal else back > -window)

    return mask


def create_mask(
    mod_fn: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: str | None = None,
) -> Tensor:
    """The mask of a function (batch, head, q_index, kv_index) -> bool in full, on the default
    device; None stands for 1.

    Shapes: -> (B, H, Q_LEN, KV_LEN).
    """
    where = "create_mask"
    check_takes(where, "mod_fn", mod_fn, *Positions._fields)
    check_positive(where, B=B or 1, H=H or 1, Q_LEN=Q_LEN, KV_LEN=KV_LEN)
    at = positions_of(B or 1, H or 1, range(Q_LEN), KV_LEN)
    return mask_at(mod_fn, at)


def mask_at(mask_mod: Callable[..., Any], at: Positions) -> Tensor:
    shape = tuple(max(sizes) for sizes in zip(*(padded_shape(p) for p in at), strict=True))
    y = as_value(mask_mod(*at), where="mask_mod")
    if not y.dtype.is_bool:
        raise DTypeError("mask_mod", "booleans", y.dtype.name, "Compare the indices.")
    return check_result("mask_mod", y, shape)


def padded_shape(x: Any) -> tuple[int, ...]:
    return (1,) * (4 - x.ndim) + x.shape


class BlockMask:
    """Which blocks of keys each block of queries attends to. Of the blocks `kv_indices` the mask
    function decides; those of `full_kv_indices` are allowed whole; the others are left out.

    Shapes: kv_num_blocks (B, H, query blocks), kv_indices (B, H, query blocks, key blocks), of
        which the first kv_num_blocks count; the same for the full ones.
    Source: Dong et al. 2024, arXiv:2412.05496, sec. 4.
    """

    def __init__(
        self,
        kv_num_blocks: Any,
        kv_indices: ArrayLike,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: tuple[int, ...] | int = DEFAULT_BLOCK,
        mask_mod: Callable[..., Any] | None = None,
        seq_lengths: tuple[int, ...] | None = None,
    ) -> None:
        where = "BlockMask"
        self.kv_num_blocks: Any = as_value(kv_num_blocks, where=where)
        self.kv_indices: Any = as_value(kv_indices, where=where)
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise OptionError(where, "both or none of the full blocks", "one", "Pass both.")
        if self.kv_indices.ndim != 4 or self.kv_num_blocks.shape != self.kv_indices.shape[:3]:
            expected = "kv_num_blocks (B, H, rows) and kv_indices (B, H, rows, columns)"
            got = f"{self.kv_num_blocks.shape} and {self.kv_indices.shape}"
            raise ShapeError(where, expected, got, "Count the blocks of each row.")
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.BLOCK_SIZE = int_tuple(where, "BLOCK_SIZE", BLOCK_SIZE, 2, 1)
        self.mask_mod: Callable[..., Tensor] | Callable[..., Any] = (
            noop_mask if mask_mod is None else mask_mod
        )
        lengths = (n * s for n, s in zip(self.kv_indices.shape[2:], self.BLOCK_SIZE, strict=True))
        self.seq_lengths: tuple[Any, ...] | tuple[int, ...] = (
            tuple(lengths) if seq_lengths is None else tuple(seq_lengths)
        )

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: ArrayLike,
        kv_indices: ArrayLike,
        full_kv_num_blocks: Any = None,
        full_kv_indices: Any = None,
        BLOCK_SIZE: int = DEFAULT_BLOCK,
        mask_mod: Any = None,
        seq_lengths: Any = None,
    ) -> "BlockMask":
        """The BlockMask of these blocks."""
        full = (full_kv_num_blocks, full_kv_indices)
        return cls(kv_num_blocks, kv_indices, *full, BLOCK_SIZE, mask_mod, seq_lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, L, S)."""
        return (*self.kv_indices.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of elements of the mask in full."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """1 for each block that is not left out, else 0.

        Shapes: -> (B, H, query blocks, key blocks).
        """
        return cast(self.partial_blocks() | self.full_blocks(), int32)

    def partial_blocks(self) -> Tensor:
        return dense_blocks(self.kv_num_blocks, self.kv_indices)

    def full_blocks(self) -> Tensor:
        if self.full_kv_indices is None:
            return zeros(self.kv_indices.shape, dtype=bool_)
        return dense_blocks(as_value(self.full_kv_num_blocks), as_value(self.full_kv_indices))

    def sparsity(self) -> float:
        """The share of the mask, in percent, that lies in blocks which are left out."""
        blocks = reduce.sum(self.to_dense()).item()
        return 100 * (1 - blocks * math.prod(self.BLOCK_SIZE) / self.numel())

    def check_fits(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raises: ShapeError unless the mask is for these sizes."""
        b, h, rows, columns = self.shape
        if b not in (1, batch) or h not in (1, heads) or rows < queries or columns < keys:
            expected = f"a block_mask of (1 or {batch}, 1 or {heads}, {queries}, {keys})"
            fix = "Make it with create_block_mask for these lengths."
            raise ShapeError("flex_attention", expected, self.shape, fix)

    def allowed(self, at: Positions) -> Tensor:
        """Whether each query may attend to each key.

        Shapes: -> broadcasting to (B, H, L, S).
        """
        b, h = (p if n > 1 else p * 0 for p, n in zip(at[:2], self.shape[:2], strict=True))
        q_block, kv_block = (p // s for p, s in zip(at[2:], self.BLOCK_SIZE, strict=True))
        place = (b, h, q_block, kv_block)
        decided = self.partial_blocks()[place] & mask_at(self.mask_mod, at)
        return decided | self.full_blocks()[place]

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE})"


def dense_blocks(counts: Tensor, indices: Tensor) -> Tensor:
    """Booleans for the blocks whose indices count."""
    columns = indices.shape[-1]
    counted = arange(columns) < reshape(counts, (*counts.shape, 1))
    return put_along_axis(zeros(indices.shape, dtype=bool_), cast(indices, int64), counted)


def create_block_mask(
    mask_mod: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: str | None = None,
    BLOCK_SIZE: Any = DEFAULT_BLOCK,
) -> BlockMask:
    """The BlockMask of a function (batch, head, q_index, kv_index) -> bool. B and H are None (or 1)
    where it does not depend on them.

    Raises: DTypeError for a function that does not return booleans.
    Source: Dong et al. 2024, arXiv:2412.05496, sec. 4.
    Example:
        >>> mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 4, 4, BLOCK_SIZE=2)
        >>> mask.to_dense()[0, 0].tolist()
        [[1, 0], [1, 1]]
    """
    where = "create_block_mask"
    rows, columns = int_tuple(where, "BLOCK_SIZE", BLOCK_SIZE, 2, 1)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    b, h = mask.shape[:2]
    extra = (-Q_LEN % rows, -KV_LEN % columns)
    widths = ((0, 0), (0, 0), (0, extra[0]), (0, extra[1]))
    mask = pad_axes(mask, widths, constant_values=False)
    blocks = reshape(mask, (b, h, -(-Q_LEN // rows), rows, -(-KV_LEN // columns), columns))
    counts = reduce.sum(cast(blocks, int32), axis=(3, 5))
    full = counts == rows * columns
    partial = (counts > 0) & ~full
    parts = (*ordered_blocks(partial), *ordered_blocks(full))
    return BlockMask(*parts, (rows, columns), mask_mod, (Q_LEN, KV_LEN))


def ordered_blocks(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(how many, which first) of the blocks of each row that are True."""
    numbers = cast(blocks, int32)
    order = argsort(numbers, axis=-1, descending=True, stable=True)
    return cast(reduce.sum(numbers, axis=-1), int32), cast(order, int32)
