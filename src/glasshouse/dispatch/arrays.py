"""Numbers, nested lists and arrays of NumPy as arrays of the dtypes that we have."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, ShapeError, type_name
from glasshouse.base.dtype import DType, from_numpy_dtype

SCALARS = (bool, int, float, complex)
COPIED = (*SCALARS, list, tuple, np.generic)  # of which NumPy makes arrays with new memory
FOREIGN = frozenset(("torch", "jax", "jaxlib", "tensorflow", "tinygrad"))


def leaf_types(x: Any) -> set[type[Any]]:
    """The types of the leaves of a nested list, or of `x` itself."""
    if not isinstance(x, (list, tuple)):
        return {type(x)}
    kinds = set(map(type, x))
    if any(issubclass(kind, (list, tuple)) for kind in kinds):
        return set().union(*map(leaf_types, x))
    return kinds


def reject_foreign(where: str, kinds: Iterable[type[Any]]) -> None:
    for kind in kinds:
        if kind.__module__.partition(".")[0] in FOREIGN:
            expected = "a Glasshouse tensor, NumPy array or number"
            fix = "Convert it with gh.from_dlpack."
            raise DTypeError(where, expected, f"{kind.__module__}.{kind.__name__}", fix)


def is_ragged(x: Any) -> bool:
    """Whether nested lists, perhaps of arrays, differ in length or depth, so that they are none."""
    level = [x]
    while True:
        lengths = {len(part) if has_parts(part) else None for part in level}
        if len(lengths) != 1 or None in lengths:
            return len(lengths) > 1
        level = [part for parts in level for part in parts]


def has_parts(x: Any) -> bool:
    return isinstance(x, (list, tuple)) or getattr(x, "ndim", 0) > 0


def to_array(x: Any, where: str, dtype: DType | None = None) -> np.ndarray:
    """`x` as a NumPy array of a dtype that we have; Python numbers in `dtype`, if they fit. The
    array may be `x` itself, or lie in its memory: `dispatch.value.as_value` copies it."""
    reject_foreign(where, {type(x)})
    python = isinstance(x, (*SCALARS, list, tuple))
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(x, dtype.np if python and dtype is not None else None)
        native = from_numpy_dtype(array.dtype).np
    except (ValueError, TypeError, OverflowError):
        if is_ragged(x):
            expected = "nested lists of equal lengths"
            got = "a ragged list"
            raise ShapeError(where, expected, got, "Pad the rows to one length.") from None
        form = "numbers or a numeric array" if dtype is None else f"numbers that fit {dtype.name}"
        fix = "Convert it to numbers first." if dtype is None else "Choose another dtype."
        raise DTypeError(where, form, f"{type_name(x)} {str(x)[:40]!r}", fix) from None
    if array.dtype.num != native.num or not array.dtype.isnative:  # e.g. big-endian, ulonglong
        array = array.astype(native)
    return array


def on_memory_of(array: np.ndarray, x: Any) -> bool:
    """Whether an array that `to_array` made of `x` lies in the memory of `x`."""
    return array.base is not None or array is x
