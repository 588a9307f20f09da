"""The dtype and device that arguments of methods `to` name."""

from typing import Any

from glasshouse.base.dtype import DTypeLike, as_dtype, by_name
from glasshouse.dispatch import Value


def named_targets(targets: Any, dtype: DTypeLike | None, device: str | None) -> tuple[Any, ...]:
    """The (dtype, device) that the arguments of a method `to` name; None for what none does."""
    for target in targets:
        if isinstance(target, bool):  # PyTorch's non_blocking and copy, by place
            continue
        if isinstance(target, Value):
            dtype, device = target.dtype, target.device
        elif isinstance(target, str) and target not in by_name:
            device = target
        else:
            dtype = target
    return None if dtype is None else as_dtype(dtype), device
