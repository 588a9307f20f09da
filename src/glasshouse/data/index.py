"""Checks of indices, counted from either end."""

import operator
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, type_name


def check_index(where: str, index: Any, length: int) -> int:
    """`index` counted from the front."""
    try:
        position = operator.index(index)
    except TypeError:
        expected = "an integer index"
        fix = "Use span(start, stop) or resample(indices) for several samples."
        raise DTypeError(where, expected, f"{index!r} ({type_name(index)})", fix) from None
    if not -length <= position < length:
        fix = f"The data set has {length} samples."
        raise IndexOutOfRangeError(where, f"an index from {-length} to {length - 1}", position, fix)
    return position + length if position < 0 else position


def check_indices(where: str, indices: np.ndarray, length: int) -> np.ndarray:
    """An array of indices counted from the front."""
    if indices.dtype.kind not in "iu":
        fix = "Let the sampler give integers."
        raise DTypeError(where, "integer indices", f"dtype {indices.dtype}", fix)
    for extreme in (indices.min(initial=0), indices.max(initial=0)):
        if len(indices):
            check_index(where, extreme, length)
    return np.where(indices < 0, indices + length, indices)
