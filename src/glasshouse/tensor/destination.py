"""The dtype and device that arguments of methods `to` name, and the value of `Tensor(…)`."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from glasshouse.base import OptionError, check_shape
from glasshouse.base.dtype import DTypeLike, as_dtype, by_name, float32
from glasshouse.dispatch import Value, as_value, cast, full


def named_targets(
    targets: Iterable[Any], dtype: DTypeLike | None, device: str | None
) -> tuple[Any, ...]:
    """The (dtype, device) named by the arguments of a method `to`; None for an unnamed one."""
    for target in targets:
        if isinstance(target, bool):  # PyTorch's non_blocking and copy, by place
            continue
        if isinstance(target, Value):
            dtype, device = target.dtype, getattr(target, "device", device)
        elif isinstance(target, str) and target not in by_name:
            device = target
        else:
            dtype = target
    return None if dtype is None else as_dtype(dtype), device


def value_of(data: tuple[Any, ...], dtype: DTypeLike | None) -> Any:
    """The value of `Tensor(…)`: with a dtype the data in that; else, as in PyTorch, numbers of
    float32, or zeros of several sizes. A tensor is as it is."""
    if len(data) > 1 and not isinstance(data[1], int):
        data, dtype = data[:1], data[1]
    if len(data) != 1:
        return full(check_shape("Tensor", data or (0,)), 0, float32)
    value = as_value(data[0], None if dtype is None else as_dtype(dtype), "Tensor")
    if dtype is not None or value is data[0] or value.dtype.is_complex:
        return value
    if not value.ndim and not isinstance(data[0], np.ndarray):
        fix = "Write gh.tensor(x) for a number, gh.empty(n) for a size."
        raise OptionError("Tensor", "lists of numbers, or several sizes", repr(data[0]), fix)
    return cast(value, float32)
