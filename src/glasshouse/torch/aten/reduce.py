"""Reductions, scans, sorting, and softmax."""

from collections.abc import Callable
from typing import Any

import torch

import glasshouse as gh
from glasshouse.base import DType, as_dtype
from glasshouse.dispatch import Value, cast, full, primitives
from glasshouse.dispatch.wide import widen as wide
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.shape import axis_of, reshape
from glasshouse.torch.aten.table import aten
from glasshouse.torch.tensors.dtypes import FROM_TORCH

FLOAT32, INT64 = as_dtype("float32"), as_dtype("int64")


def axes_of(axes: Any, ndim: int) -> tuple[int, ...] | None:
    """Axes counted from the front; None for all."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return None
    axes = (axes,) if isinstance(axes, int) else axes
    return tuple(axis_of(axis, ndim) for axis in axes)


def reduced(
    function: Callable[..., Any], x: Value, axes: Any, keepdim: bool, **options: Any
) -> Value:
    """A reduction over PyTorch's axes; a scalar counts as having one axis."""
    if x.ndim == 0:
        return function(reshape(x, (1,)), axis=0, **options)
    return function(x, axis=axes_of(axes, x.ndim), keepdims=keepdim, **options)


def summed_dtype(x: Value, dtype: Any) -> DType:
    """The dtype of a sum: `dtype` if set, int64 for whole numbers, else that of x."""
    if dtype is not None:
        return FROM_TORCH[dtype]
    return INT64 if x.dtype.is_integer or x.dtype.is_bool else x.dtype


@aten("sum.dim_IntList")
def sum_(x: Tensor, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    target = summed_dtype(x, dtype)
    return cast(reduced(gh.sum, wide(cast(x, target)), axes, keepdim), target)


@aten("mean.dim")
def mean(x: Tensor, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    target = FROM_TORCH[dtype] if dtype else x.dtype
    return cast(reduced(gh.mean, wide(cast(x, target)), axes, keepdim), target)


@aten("prod.dim_int")
def prod(x: Any, axis: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    target = summed_dtype(x, dtype)
    return cast(reduced(gh.prod, wide(cast(x, target)), axis, keepdim), target)


aten("sum.default")(lambda x, dtype=None: sum_(x, dtype=dtype))
aten("mean.default")(lambda x, dtype=None: mean(x, dtype=dtype))
aten("prod.default")(lambda x, dtype=None: prod(x, None, dtype=dtype))


@aten("var.correction", "var.dim")
def var(
    x: Any, axes: Any = None, correction: Any = None, keepdim: bool = False, unbiased: Any = None
) -> Any:
    if isinstance(correction, bool):
        correction = int(correction)
    correction = 1 if correction is None else correction
    return cast(reduced(gh.var, wide(x), axes, keepdim, correction=correction), x.dtype)


@aten("std.correction")
def std(x: Any, axes: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    return cast(gh.sqrt(wide(var(wide(x), axes, correction, keepdim))), x.dtype)


@aten("var_mean.correction")
def var_mean(x: Any, axes: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    return var(x, axes, correction, keepdim), mean(x, axes, keepdim)


def not_bool(x: Value) -> Value:
    """x; booleans are left to PyTorch, which raises its error."""
    if x.dtype.is_bool:
        raise NotImplementedError
    return x


def positioned(function: Callable[..., Any], x: Value, axis: int, keepdim: bool) -> Value:
    if x.ndim == 0:
        return full((), 0, INT64)
    if axis is None:
        place = function(reshape(x, (x.size,)), axis=0)
        return reshape(place, (1,) * x.ndim) if keepdim else place
    return function(x, axis=axis % x.ndim, keepdims=keepdim)


def extremes(name: str, function: Callable[..., Any], place: Callable[..., Any]) -> None:
    """Enter the operators of largest or smallest elements, and of their places."""

    @aten(f"a{name}")
    def extreme(x, axes=(), keepdim=False):
        return reduced(function, x, axes, keepdim)

    @aten(f"{name}.dim")
    def along_an_axis(x, axis, keepdim=False):
        return extreme(x, axis, keepdim), positioned(place, x, axis, keepdim)

    @aten(f"arg{name}")
    def place_of(x, axis=None, keepdim=False):
        return positioned(place, not_bool(x), axis, keepdim)

    aten(f"{name}.default")(lambda x: extreme(x, None))


extremes("max", gh.max, gh.argmax)
extremes("min", gh.min, gh.argmin)


def truth(function: Callable[..., Any], *names: str) -> None:
    """Enter operators that reduce truths; those of bytes are bytes."""

    @aten(*names)
    def entry(x, axes=None, keepdim=False):
        truths = reduced(function, x, axes, keepdim)
        return cast(truths, x.dtype) if x.dtype.name == "uint8" else truths


truth(gh.any, "any.default", "any.dim", "any.dims")
truth(gh.all, "all.default", "all.dim", "all.dims", "_is_all_true.default")


@aten("linalg_vector_norm")
def vector_norm(
    x: Any, ord: int = 2, axes: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    target = FROM_TORCH[dtype] if dtype else x.dtype
    size = gh.abs(wide(cast(x, target)))
    if ord == 2:
        norm = gh.sqrt(reduced(gh.sum, size * size, axes, keepdim))
    elif ord == 1:
        norm = reduced(gh.sum, size, axes, keepdim)
    elif ord == 0:
        norm = reduced(gh.sum, cast(size != 0, size.dtype), axes, keepdim)
    elif ord in (float("inf"), float("-inf")):
        norm = reduced(gh.max if ord > 0 else gh.min, size, axes, keepdim)
    else:
        norm = reduced(gh.sum, size**ord, axes, keepdim) ** (1 / ord)
    return cast(norm, target)


def running(name: str, function: Callable[..., Any]) -> None:
    """Enter a running sum or product."""

    @aten(name)
    def entry(x, axis, dtype=None):
        target = summed_dtype(x, dtype)
        if x.ndim == 0:
            return cast(x, target)
        return cast(function(wide(cast(x, target)), axis=axis % x.ndim), target)


running("cumsum", gh.cumulative_sum)
running("cumprod", gh.cumulative_prod)


@aten("sort", "sort.stable")
def sort(x: Any, *args: Any, stable: Any = None, dim: Any = -1, descending: Any = False) -> Any:
    """The arguments are (dim, descending), or only named ones."""
    dim, descending = (*args, *(dim, descending)[len(args) :])
    if x.ndim == 0:
        return x, full((), 0, INT64)
    return sorted_along(x, dim % x.ndim, descending)


def sorted_along(x: Value, axis: int, descending: bool, count: int | None = None) -> Any:
    """(x sorted along an axis, places), the first `count` of them: NaN is the largest, equal
    elements keep their order."""
    stop = x.shape[axis] if count is None else count
    pair = primitives["sort"](x, axis=axis, descending=descending)
    return tuple(y[along(axis, 0, stop)] for y in pair)


def along(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    """An index of the elements between two places along an axis."""
    return (*[slice(None)] * axis, slice(start, stop))


@aten("topk")
def topk(x: Any, k: Any, axis: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.ndim == 0:
        return x, full((), 0, INT64)
    return sorted_along(x, axis % x.ndim, largest, k)


# -- softmax ----------------------------------------------------------------------------------


def shifted(x: Value, axis: int) -> Value:
    """x minus its largest element along an axis, so that exp stays finite."""
    return x - (gh.max(x, axis=axis, keepdims=True) if x.ndim else x)


def total(x: Value, axis: int) -> Value:
    """Sums along an axis; a scalar is its own sum."""
    return gh.sum(x, axis=axis, keepdims=True) if x.ndim else x


@aten("_softmax")
def softmax(x: Tensor, axis: int, half_to_float: bool) -> Tensor:
    if x.size == 0:
        return full(x.shape, 1, x.dtype)
    e = gh.exp(shifted(wide(x), axis))
    y = e / total(e, axis)
    return y if half_to_float else cast(y, x.dtype)


@aten("_safe_softmax")
def safe_softmax(x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Softmax with zeros for rows of only -inf."""
    x = cast(x, FROM_TORCH[dtype]) if dtype else x
    lost = gh.all(x == float("-inf"), axis=axis, keepdims=True)
    return gh.where(lost, full((), 0, x.dtype), softmax(x, axis, False))


@aten("_log_softmax")
def log_softmax(x: Tensor, axis: int, half_to_float: bool) -> Tensor:
    if x.size == 0:
        return full(x.shape, 0, x.dtype)
    moved = shifted(wide(x), axis)
    y = moved - gh.log(total(gh.exp(moved), axis))
    return y if half_to_float else cast(y, x.dtype)


@aten("_softmax_backward_data")
def softmax_backward(g: Tensor, y: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
    gy = wide(g) * wide(y)
    return cast(gy - wide(y) * total(gy, axis), FROM_TORCH[dtype])


@aten("_log_softmax_backward_data")
def log_softmax_backward(g: Tensor, y: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
    g = wide(g)
    return cast(g - gh.exp(wide(y)) * total(g, axis), FROM_TORCH[dtype])
