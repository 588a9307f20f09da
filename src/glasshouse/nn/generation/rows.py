"""Prompts and stops as lists of tokens."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError, type_name
from glasshouse.tensor import Tensor

FIX = "Pass lists of integers, or (N, L) with an attention_mask."


def checked_rows(
    tokens: Any, attention_mask: Any, vocabulary: int | None
) -> tuple[list[list[int]], bool]:
    """(a list of tokens for each prompt, whether the input is one prompt without a batch axis).

    Raises: DTypeError for prompts that are not integers; OptionError for an empty prompt or a token
        outside the vocabulary; ShapeError for a mask of another shape.
    """
    if isinstance(tokens, Tensor):
        tokens = tokens.numpy()
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, (np.ndarray, Iterable)):
        raise DTypeError("generate", "tokens", type_name(tokens), FIX)
    items = list(tokens)
    is_single = bool(items) and not isinstance(items[0], (np.ndarray, Iterable))
    rows = [as_list(row) for row in ([items] if is_single else items)]
    if attention_mask is not None:
        rows = masked(rows, attention_mask, is_single)
    if not rows or not all(rows):
        fix = "Begin with the token that stands before a text, or leave the prompt out."
        raise OptionError("generate", "prompts of at least one token", "an empty one", fix)
    for row in rows:
        bad = [t for t in row if t < 0 or (vocabulary is not None and t >= vocabulary)]
        if bad:
            upto = "" if vocabulary is None else f" to {vocabulary - 1}"
            fix = "Take the model's own tokenizer."
            raise OptionError("generate", f"tokens from 0{upto}", bad[0], fix)
    return rows, is_single


def as_list(row: Any) -> list[int]:
    if isinstance(row, Tensor):
        row = row.numpy()
    if isinstance(row, Sequence) and len(row) == 0:
        return []
    array = np.asarray(row) if not isinstance(row, (str, bytes)) else np.asarray(None)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DTypeError("generate", "integers", f"{array.dtype} {array.shape}", FIX)
    return [int(token) for token in array]


def masked(rows: list[list[int]], attention_mask: Any, is_single: bool) -> list[list[int]]:
    """The rows without padding."""
    mask = attention_mask.numpy() if isinstance(attention_mask, Tensor) else attention_mask
    mask = np.asarray(mask)
    mask = mask[None] if is_single and mask.ndim == 1 else mask
    if mask.ndim != 2 or [len(row) for row in rows] != [mask.shape[1]] * len(mask):
        raise ShapeError("generate", "a mask like the tokens", mask.shape, FIX)
    return [[t for t, m in zip(row, line, strict=True) if m] for row, line in zip(rows, mask)]


def checked_stops(stop: Any) -> list[list[int]]:
    """The ends of texts, each a list of tokens.

    Raises: DTypeError for stops that are not tokens.
    """
    if stop is None:
        return []
    if isinstance(stop, (int, np.integer)) and not isinstance(stop, bool):
        return [[int(stop)]]
    fix = "Pass a token, several, or lists of them; texts go to a TextStream."
    if isinstance(stop, (str, bytes)) or not isinstance(stop, Iterable):
        raise DTypeError("generate", "stop as tokens", type_name(stop), fix)
    stops = [[x] if isinstance(x, (int, np.integer)) else x for x in stop]
    if any(isinstance(x, (str, bytes)) for x in stops):
        raise DTypeError("generate", "stop as tokens", "a text", fix)
    return [row for row in map(as_list, stops) if row]


def ends_with(tokens: Sequence[int], stops: Sequence[Sequence[int]]) -> bool:
    """Whether tokens end with one of the lists."""
    return any(list(tokens[-len(stop) :]) == list(stop) for stop in stops)


def padded(rows: Sequence[Sequence[int]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens with zeros on the right, how many each row has).

    Shapes: N lists -> (N, size), (N,).
    """
    tokens = np.zeros((len(rows), size), np.int64)
    for line, row in zip(tokens, rows, strict=True):
        line[: len(row)] = row
    return tokens, np.array([len(row) for row in rows], np.int64)
