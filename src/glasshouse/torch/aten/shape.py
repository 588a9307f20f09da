"""Shared helpers of operator families: shapes with an open size, axes, and numbers by dtype."""

from math import prod
from typing import Any

from glasshouse.dispatch import Value
from glasshouse.dispatch import value as values


def axis_of(axis: int, ndim: int) -> int:
    """The axis counted from the front; scalars have one."""
    return axis % max(ndim, 1)


def resolve_shape(shape: Any, size: int) -> tuple[int, ...]:
    """A shape with its -1 resolved."""
    shape = tuple(shape)
    if -1 not in shape:
        return shape
    rest = prod(n for n in shape if n != -1)
    return tuple(size // rest if n == -1 else n for n in shape)


def reshape(x: Value, shape: Any) -> Value:
    """x in another shape, one size of which may be -1."""
    return values.reshape(x, resolve_shape(shape, x.size))


def typed(value: Any, dtype: Any) -> Any:
    """A number as the Python type of a dtype."""
    if dtype.is_bool or dtype.is_integer:
        return bool(value) if dtype.is_bool else int(value)
    return float(value) if dtype.is_floating else complex(value)


def spread(option: Any, count: int) -> tuple[int, ...]:
    """An option for each axis; a single one counts for all."""
    option = tuple(option)
    return option * count if len(option) == 1 else option
