"""Operators that reduce axes, or run along one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.onnx.table import integers, namespace, operator, place, places


def largest(x: Any, axes: list[int]) -> Any:
    if x.dtype.is_bool:
        return gh.any(x, axis=tuple(axes), keepdims=True)
    return extreme(gh.amax, x, axes, lowest=True)


def smallest(x: Any, axes: list[int]) -> Any:
    if x.dtype.is_bool:
        return gh.all(x, axis=tuple(axes), keepdims=True)
    return extreme(gh.amin, x, axes, lowest=False)


def extreme(function: Any, x: Any, axes: list[int], lowest: bool) -> Any:
    """The largest or smallest; of nothing, the dtype's lowest or highest value."""
    if all(x.shape[axis] for axis in axes):
        return function(x, axis=tuple(axes), keepdims=True)
    if x.dtype.is_floating:
        value = -math.inf if lowest else math.inf
    else:
        value = np.iinfo(x.dtype.np).min if lowest else np.iinfo(x.dtype.np).max
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return gh.full(shape, value, x.dtype)


def total(x: Any, axes: list[int]) -> Any:
    return namespace(x).sum(x, axis=tuple(axes), keepdims=True, dtype=x.dtype)


def log_sum_exp(x: Any, axes: list[int]) -> Any:
    if not all(x.shape[axis] for axis in axes):
        return gh.log(total(x, axes))
    return gh.logsumexp(x, axis=tuple(axes), keepdims=True)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, axes: total(gh.abs(x), axes),
    "ReduceL2": lambda x, axes: gh.sqrt(total(x * x, axes)),
    "ReduceLogSum": lambda x, axes: gh.log(total(x, axes)),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": largest,
    "ReduceMean": lambda x, axes: gh.mean(x, axis=tuple(axes), keepdims=True),
    "ReduceMin": smallest,
    "ReduceProd": lambda x, axes: namespace(x).prod(
        x, axis=tuple(axes), keepdims=True, dtype=x.dtype
    ),
    "ReduceSum": total,
    "ReduceSumSquare": lambda x, axes: total(x * x, axes),
}


def reduce(function: Any, x: Any, axes: Any, keepdims: int, noop: int) -> Any:
    """A reduction over axes: over all of them where none are named, or over none where `noop`."""
    named = None if axes is None or not len(integers(axes)) else axes
    if named is None and noop:
        return function(x, []) if function is not total else x
    result = places(named, x.ndim)
    reduced = function(x, result)
    return reduced if keepdims else squeezed(reduced, result)


def squeezed(x: Any, axes: list[int]) -> Any:
    return x.reshape(tuple(n for i, n in enumerate(x.shape) if i not in axes))


def declare(name: str, function: Any) -> None:
    plain = name in ("ReduceSum", "ReduceProd")  # of sizes

    @operator(name, plain=plain)
    def by_attribute(x: Any, *, axes: Any = None, keepdims: int = 1) -> Any:
        return reduce(function, x, axes, keepdims, 0)

    @operator(name, since=13 if name == "ReduceSum" else 18, plain=plain, static=(1,))
    def by_input(
        x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        return reduce(function, x, axes, keepdims, noop_with_empty_axes)


for name, function in REDUCTIONS.items():
    declare(name, function)


def declare_position(name: str, function: Any) -> None:
    @operator(name)
    def position(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        axis = place(axis, x.ndim)
        source = gh.flip(x, axis=axis) if select_last_index else x
        result = function(source, axis=axis, keepdims=bool(keepdims))
        return x.shape[axis] - 1 - result if select_last_index else result


declare_position("ArgMax", gh.argmax)
declare_position("ArgMin", gh.argmin)


def declare_running(name: str, function: Any, first: int) -> None:
    @operator(name, static=(1,))
    def running(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        at = place(integers(axis)[0], x.ndim)
        x = gh.flip(x, axis=at) if reverse else x
        result = function(x, axis=at, dtype=x.dtype)
        if exclusive:
            shape = tuple(1 if i == at else n for i, n in enumerate(x.shape))
            rest = result[(slice(None),) * at + (slice(0, -1),)]
            result = gh.concat([gh.full(shape, first, x.dtype), rest], axis=at)
        return gh.flip(result, axis=at) if reverse else result


declare_running("CumSum", gh.cumsum, 0)
declare_running("CumProd", gh.cumprod, 1)


@operator("TopK", static=(1,))
def largest_of_an_axis(x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    values, indices = gh.topk(x, integers(k)[0], axis=axis, largest=bool(largest))
    return values, indices.astype("int64")
