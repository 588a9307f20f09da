"""Multi-head attention as a function of its parameters."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, reshape
from glasshouse.nn.checks import check_divides, check_floating
from glasshouse.nn.functional.activation import dropout
from glasshouse.nn.functional.attention import attend, attention_weights, causal_mask
from glasshouse.nn.functional.linear import linear
from glasshouse.ops.movement import pad, permute
from glasshouse.tensor import Tensor, concat, zeros
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


def projected(
    where: str, operands: Any, packed: Any, separate: Any, bias: Tensor | None, heads: int
) -> list[Tensor]:
    """(N, heads, length, D) of query, key and value, each (N, length, features), by one matrix for
    all three or by separate ones."""
    query, key, value = operands
    if packed is not None and query is key and key is value:
        return split_heads(where, query, packed, bias, 3, heads)
    size = separate[0].shape[0] if packed is None else packed.shape[0] // 3
    parts = [slice(i * size, (i + 1) * size) for i in range(3)]
    biases = [None if bias is None else bias[part] for part in parts]
    weights = separate if packed is None else [packed[part] for part in parts]
    if packed is not None and key is value:
        rest = None if bias is None else bias[size:]
        queries = split_heads(where, query, weights[0], biases[0], 1, heads)
        return [*queries, *split_heads(where, key, packed[size:], rest, 2, heads)]
    inputs = zip((query, key, value), weights, biases, strict=True)
    return [split_heads(where, x, w, b, 1, heads)[0] for x, w, b in inputs]


def split_heads(
    where: str, x: Tensor, weight: Any, bias: Tensor | None, count: int, heads: int
) -> list[Tensor]:
    """x projected by `count` stacked matrices, each result as (N, heads, length, D)."""
    y = linear(x, weight, bias, _where=where)
    y = reshape(y, (*x.shape[:2], count, heads, y.shape[-1] // (count * heads)))
    y = permute(y, axes=(2, 0, 3, 1, 4))
    return [y[i] for i in range(count)]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    _where: str = "multi_head_attention_forward",
) -> tuple[Tensor | None, ...]:
    """(result, weights) of attention with several heads; see `nn.MultiheadAttention`.
    The projections are one matrix, in_proj_weight, or three if `use_separate_proj_weight`.
    `static_k` and `static_v` take the place of projected keys and values. `is_causal` without a
    mask makes one.

    Shapes: query (L, N, E), key (S, N, kdim), value (S, N, vdim), or without N; static_k and
        static_v (N · heads, S, E // heads) -> (L, N, E), and (N, L, S), or (N, heads, L, S) if not
        averaged, or None if not needed.
    Raises: ShapeError for sizes that do not fit; OptionError unless num_heads divides E.
    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.2.2.
    """
    where, size = _where, embed_dim_to_check
    check_divides(where, "embed_dim", size, "num_heads", num_heads)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else ()
    packed = None if separate else in_proj_weight
    widths = projected_widths(where, size, separate or (packed,))
    single, operands = batch_first_operands(where, (query, key, value), widths, False)
    y, weights = attend_in_heads(
        where,
        operands,
        (packed, separate, in_proj_bias, num_heads),
        masks=(attn_mask, key_padding_mask, is_causal),
        extra=(bias_k, bias_v, add_zero_attn),
        static=(static_k, static_v),
        rate=dropout_p if training else 0.0,
        need_weights=need_weights,
    )
    y = linear(y, out_proj_weight, out_proj_bias, _where=where)
    return finished(y, weights, single, False, average_attn_weights)


def projected_widths(where: str, size: int, weights: Any) -> tuple[int, ...]:
    """The features of query, key and value that these projections take: one for all, or three."""
    if any(w is None for w in weights):
        expected = "three weights" if len(weights) > 1 else "in_proj_weight"
        raise OptionError(where, expected, "None", "Pass them, or change use_separate_proj_weight.")
    return (size, *(w.shape[1] for w in weights[1:])) if len(weights) > 1 else (size,) * 3


def attend_in_heads(
    where: str,
    operands: Any,
    projections: tuple[Any, ...],
    *,
    masks: Any,
    extra: Any,
    static: Any = (None, None),
    rate: float,
    need_weights: bool,
) -> tuple[Tensor | None, ...]:
    """(the heads' results side by side, the weights or None), before the last projection.

    Shapes: operands (N, length, features) -> (N, L, E), (N, heads, L, S).
    """
    q, k, v = projected(where, operands, *projections)
    pairs = zip((k, v), static, strict=True)
    k, v = (x if heads is None else static_heads(where, heads, q) for x, heads in pairs)
    attn_mask, key_padding_mask, is_causal = masks
    if is_causal and attn_mask is None:
        attn_mask = ~causal_mask(q.shape[2], k.shape[2])
    mask = merged_masks(where, attn_mask, key_padding_mask, q, k)
    k, v, mask = extended_keys(k, v, mask, extra[:2], extra[2])
    weights = dropout(attention_weights(where, q, k, mask), rate) if need_weights else None
    y = attend(where, q, k, v, mask, dropout_p=rate) if weights is None else weights @ v
    y = permute(y, axes=(0, 2, 1, 3))  # (N, L, heads, D)
    return reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3])), weights


def finished(
    y: Tensor, weights: Tensor | None, single: bool, batch_first: bool, average: bool
) -> Any:
    """Result and weights in the layout of the caller."""
    if single:
        y = reshape(y, y.shape[1:])
    elif not batch_first:
        y = permute(y, axes=(1, 0, 2))
    if weights is None:
        return y, None
    weights = reduce.mean(weights, axis=1) if average else weights
    return y, reshape(weights, weights.shape[1:]) if single else weights


def batch_first_operands(
    where: str, inputs: tuple[Tensor, ...], widths: tuple[int, ...], batch_first: bool
) -> tuple[bool, list[Tensor]]:
    """(whether there is no batch axis, query, key, value as (N, length, features))."""
    tensors = {id(x): check_floating(where, x) for x in inputs}
    ndim = tensors[id(inputs[0])].ndim
    for x, name, width in zip(inputs, ("query", "key", "value"), widths, strict=True):
        x = tensors[id(x)]
        if ndim not in (2, 3) or x.ndim != ndim or x.shape[-1] != width:
            expected = f"{name} of {width} features and query, key and value of 2 or 3 axes each"
            fix = "Change the input, or kdim and vdim."
            raise ShapeError(where, expected, f"{name} {x.shape}", fix)
    for key, x in tensors.items():
        if ndim == 2:
            tensors[key] = reshape(x, (1, *x.shape))
        elif not batch_first:
            tensors[key] = permute(x, axes=(1, 0, 2))
    q, k, v = operands = [tensors[id(x)] for x in inputs]
    if k.shape[:2] != v.shape[:2] or q.shape[0] != k.shape[0]:
        got = f"(N, length) {q.shape[:2]}, {k.shape[:2]} and {v.shape[:2]}"
        fix = f"Check batch_first={batch_first}."
        raise ShapeError(where, "key and value of one length and one batch size", got, fix)
    return ndim == 2, operands


def static_heads(where: str, static: Tensor, q: Tensor) -> Tensor:
    """Keys or values that are given as projected, as (N, heads, S, D)."""
    x = as_value(static, where=where)
    n, heads, _, size = q.shape
    if x.ndim != 3 or x.shape[0] != n * heads or x.shape[2] != size:
        fix = "Split the heads."
        raise ShapeError(where, f"static keys and values ({n * heads}, S, {size})", x.shape, fix)
    return reshape(x, (n, heads, *x.shape[1:]))


def merged_masks(
    where: str,
    attn_mask: ArrayLike | None,
    key_padding_mask: np.ndarray | None,
    q: Tensor,
    k: Tensor,
) -> Any:
    """Both masks as one that broadcasts to (N, heads, L, S): boolean, True where attention may go,
    or added to the scores; None without masks."""
    n, heads, length, size = *q.shape[:3], k.shape[2]
    masks = []
    if attn_mask is not None:
        full = (length, size)
        shapes = {full: (1, 1, *full), (n * heads, *full): (n, heads, *full)}
        masks.append(checked_mask(where, "attn_mask", attn_mask, shapes))
    if key_padding_mask is not None:
        shapes = {(n, size): (n, 1, 1, size)} | ({(size,): (1, 1, 1, size)} if n == 1 else {})
        masks.append(checked_mask(where, "key_padding_mask", key_padding_mask, shapes))
    if not masks:
        return None
    if all(m.dtype.is_bool for m in masks):
        return ~(masks[0] | masks[-1])
    zero = zeros((), dtype=q.dtype)
    added = [choose(m, -math.inf, zero) if m.dtype.is_bool else m for m in masks]
    return cast(added[0] if len(added) == 1 else added[0] + added[1], q.dtype)


def checked_mask(where: str, name: str, mask: ArrayLike, shapes: dict[Any, Any]) -> Tensor:
    mask = as_value(mask, where=where)
    if mask.shape not in shapes:
        fix = "Check batch_first, heads and lengths."
        raise ShapeError(where, f"{name} of {' or '.join(map(str, shapes))}", mask.shape, fix)
    if not (mask.dtype.is_bool or mask.dtype.is_floating):
        fix = "Compare it, e.g. mask != 0."
        raise DTypeError(where, f"a boolean or floating {name}", mask.dtype.name, fix)
    return reshape(mask, shapes[mask.shape])


def extended_keys(k: Tensor, v: Tensor, mask: Any, biases: Any, add_zero: bool) -> Any:
    """Keys, values and mask with the bias and the zero that every query may attend to."""
    extra = (biases[0] is not None) + add_zero
    if not extra:
        return k, v, mask
    n, heads, _, size = k.shape
    if biases[0] is not None:
        rows = (reshape(b, (1, heads, 1, size)) for b in biases)
        rows = (broadcast_to(row, (n, heads, 1, size)) for row in rows)
        k, v = (concat([x, row], axis=2) for x, row in zip((k, v), rows, strict=True))
    if add_zero:
        widths = ((0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 0))
        k, v = (pad(x, widths=widths, value=0.0) for x in (k, v))
    if mask is not None:
        value = True if mask.dtype.is_bool else 0.0
        mask = pad(mask, widths=((0, 0, 0),) * 3 + ((0, extra, 0),), value=value)
    return k, v, mask
