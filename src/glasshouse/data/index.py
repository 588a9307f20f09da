"""Checks of indices, counted from either end."""

import operator

import numpy as np

from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, type_name


def check_index(where: str, index, length: int) -> int:
    """`index` counted from the front."""
    try:
        position = operator.index(index)
    except TypeError:
        raise DTypeError(
            where,
            "an integer index",
            f"{index!r} ({type_name(index)})",
            "Use span(start, stop) or resample(indices) for several samples.",
        ) from None
    if not -length <= position < length:
        raise IndexOutOfRangeError(
            where,
            f"an index from {-length} to {length - 1}",
            position,
            f"The data set has {length} samples.",
        )
    return position + length if position < 0 else position


def check_indices(where: str, indices, length: int) -> np.ndarray:
    """An array of indices counted from the front."""
    if indices.dtype.kind not in "iu":
        raise DTypeError(
            where, "integer indices", f"dtype {indices.dtype}", "Let the sampler give integers."
        )
    for extreme in (indices.min(initial=0), indices.max(initial=0)):
        if len(indices):
            check_index(where, extreme, length)
    return np.where(indices < 0, indices + length, indices)
