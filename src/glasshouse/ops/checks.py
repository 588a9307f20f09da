"""Checks that many functions share, each naming its caller (`where`) in its error."""

import math
import numbers
import operator
from pathlib import Path
from typing import Any

from glasshouse.base import Spec
from glasshouse.base.errors import (
    DTypeError,
    OptionError,
    ShapeError,
    is_one_of,
    suggest,
    type_name,
)
from glasshouse.dispatch import Value


def check_option(where: str, name: str, value: Any, options: Any) -> Any:
    """`value`; raises OptionError, suggesting the nearest option, unless it is one of `options`."""
    if not is_one_of(value, options):
        listed = " or ".join(map(repr, options))
        raise OptionError(where, f"{name} {listed}", repr(value), suggest(value, options))
    return value


def check_integer(where: str, name: str, value: Any, least: int = 0) -> int:
    """`value` as a Python integer; raises OptionError unless it is one, of at least `least`."""
    number = operator.index(value) if hasattr(value, "__index__") else least - 1
    if isinstance(value, bool) or number < least:
        fix = f"Pass e.g. {max(least, 1)}."
        raise OptionError(where, f"{name} to be an integer >= {least}", repr(value), fix)
    return number


def check_range(where: str, name: str, value: Any, low: float, high: float) -> float:
    """`value` as a Python float; raises OptionError unless it is a number from `low` to `high`."""
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    if not low <= number <= high:
        raise OptionError(where, f"{name} as a number in [{low}, {high}]", repr(value), "Check it.")
    return number


def check_several(where: str, x: Any, expected: str, fix: str) -> list[Any]:
    """The entries of `x` as a list; raises DTypeError if it cannot be iterated over."""
    if not hasattr(x, "__iter__") or isinstance(x, type):
        raise DTypeError(where, expected, type_name(x), fix)
    return list(x)


def check_path(where: str, path: Any) -> Path:
    """`path` as a Path; raises DTypeError unless it is one, or a string."""
    try:
        return Path(path)
    except TypeError:
        got = f"{path!r:.40} ({type_name(path)})"
        raise DTypeError(where, "a path", got, "Pass a string or a Path.") from None


def check_type(where: str, x: Any, kinds: type[Any], expected: str, fix: str) -> Any:
    if not isinstance(x, kinds):
        raise DTypeError(where, expected, type_name(x), fix)
    return x


def check_integers(where: str, x: Spec | Value, fix: str = "Cast them to int64.") -> Any:
    if not x.dtype.is_integer:
        raise DTypeError(where, "integer indices", f"{x.dtype.name} {x.shape}", fix)
    return x


def check_ordered(where: str, x: Spec, fix: str) -> None:
    if x.dtype.is_complex:
        raise DTypeError(where, "an order", x.dtype.name, fix)


def check_like(where: str, name: str, x: Value, shape: Any, fix: str = "Reshape it.") -> Any:
    if x.shape != tuple(shape):
        raise ShapeError(where, f"{name} of {tuple(shape)}", x.shape, fix)
    return x


def check_matrices(where: str, x: Value) -> Any:
    if x.ndim < 2:
        raise ShapeError(where, "matrices (two axes or more)", f"shape {x.shape}", "Reshape it.")
    return x
