"""The one rule of 16-bit floats: sums, counts and computations of several steps run in float32,
and are rounded once at the end. Other dtypes are computed in their own."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.base.dtype import DType, accumulation_dtype, by_numpy, float32, promote
from glasshouse.dispatch.value import V, Value, as_value, cast


def widen(x: V) -> V:
    """`x` in the dtype in which sums over it are carried: 16-bit floats become float32."""
    return cast(x, accumulation_dtype(x.dtype))


def rounded_once(function: Callable[..., Any]) -> Any:
    """The same function, computed on widened operands where their common dtype is a 16-bit float;
    results in float32 are rounded to that. Operands are its arguments, by place or by name."""

    @functools.wraps(function)
    def call(*args, **named):
        dtype = narrow_dtype(*args, *named.values())
        if dtype is None:
            return function(*args, **named)
        named = {name: widened_operand(x) for name, x in named.items()}
        return narrowed_result(function(*map(widened_operand, args), **named), dtype)

    return call


def narrow_dtype(*operands: Any) -> DType | None:
    """The common dtype of floating operands, if it has 16 bits."""
    common = None
    for x in operands:
        dtype = dtype_of(x)
        if dtype is not None and dtype.is_inexact:
            common = dtype if common is None else promote(common, dtype)
    return common if common is not None and common.itemsize == 2 else None


def dtype_of(x: Any) -> DType | None:
    if isinstance(x, Value):
        return x.spec.dtype
    return by_numpy.get(x.dtype) if isinstance(x, np.ndarray) else None


def widened_operand(x: Any) -> Any:
    dtype = dtype_of(x)
    narrow = dtype is not None and dtype.is_floating and dtype.itemsize == 2
    return widen(as_value(x)) if narrow else x


def narrowed_result(y: Any, dtype: DType) -> Any:
    """A result, or a tuple or list of them, with `dtype` in place of float32."""
    if isinstance(y, Value):
        return cast(y, dtype) if y.spec.dtype is float32 else y
    if isinstance(y, tuple):
        parts = (narrowed_result(part, dtype) for part in y)
        return type(y)(*parts) if hasattr(y, "_fields") else tuple(parts)
    return [narrowed_result(part, dtype) for part in y] if isinstance(y, list) else y
