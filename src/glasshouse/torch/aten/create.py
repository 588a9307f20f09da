"""Operators that make tensors from numbers."""

from collections.abc import Sequence
from typing import Any

import torch

import glasshouse as gh
from glasshouse.base import DType, as_dtype
from glasshouse.dispatch.value import cast, full
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.table import aten
from glasshouse.torch.tensors.dtypes import FROM_TORCH


def dtype_of(dtype: torch.dtype | None, *numbers: Any) -> DType:
    """Our dtype for PyTorch's `dtype`; for None, PyTorch's default for these numbers."""
    if dtype is not None:
        return FROM_TORCH[dtype]
    if any(isinstance(n, complex) for n in numbers):
        return as_dtype("complex64")
    if any(isinstance(n, float) for n in numbers) or not numbers:
        return FROM_TORCH[torch.get_default_dtype()]
    return as_dtype("bool" if all(isinstance(n, bool) for n in numbers) else "int64")


def filled(shape: Sequence[int], value: int, dtype: DType) -> Tensor:
    if dtype.is_bool:
        value = bool(value)
    elif dtype.is_integer:
        value = int(value)
    return full(tuple(shape), value, dtype)


@aten("full")
def full_(shape: Any, value: Any, dtype: Any = None, **_: Any) -> Any:
    return filled(shape, value, dtype_of(dtype, value))


@aten("zeros", "empty.memory_format", "empty_strided", "empty_permuted")
def zeros(
    shape: list[int], _strides: Any = None, dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    """Zeros, for `empty` too: a value has to be the same each time it is computed."""
    return filled(shape, 0, dtype_of(dtype))


@aten("ones")
def ones(shape: list[int], dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return filled(shape, 1, dtype_of(dtype))


@aten("scalar_tensor")
def scalar_tensor(value: Any, dtype: Any = None, **_: Any) -> Any:
    return filled((), value, dtype_of(dtype))


@aten("full_like")
def full_like(x: Tensor, value: int, dtype: Any = None, **_: Any) -> Tensor:
    return filled(x.shape, value, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("zeros_like", "empty_like")
def zeros_like(x: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    return full_like(x, 0, dtype)


@aten("ones_like")
def ones_like(x: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    return full_like(x, 1, dtype)


@aten("new_zeros", "new_empty", "new_empty_strided")
def new_zeros(
    x: Tensor, shape: list[int], _strides: Any = None, dtype: Any = None, **_: Any
) -> Tensor:
    return filled(shape, 0, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("new_ones")
def new_ones(x: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
    return filled(shape, 1, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("new_full")
def new_full(x: Any, shape: Any, value: Any, dtype: Any = None, **_: Any) -> Any:
    return filled(shape, value, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("fill.Scalar")
def fill(x: Any, value: Any) -> Any:
    return filled(x.shape, value, x.dtype)


@aten("fill.Tensor")
def fill_with(x: Any, value: Any) -> Any:
    return gh.broadcast_to(cast(value, x.dtype), x.shape)


@aten("arange.default")
def arange(end: Any, **options: Any) -> Any:
    return arange_from(0, end, **options)


@aten("arange.start", "arange.start_step")
def arange_from(start: Any, end: Any, step: int = 1, dtype: Any = None, **_: Any) -> Any:
    result_dtype = dtype_of(dtype, start, end, step)
    if result_dtype.is_integer or not any(isinstance(n, float) for n in (start, end, step)):
        return cast(arange_of_integers(start, end, step, dtype), result_dtype)
    return gh.arange(start, end, step, dtype=result_dtype)


def arange_of_integers(start: Any, end: Any, step: Any, dtype: Any) -> Any:
    """A range whose start and step are truncated to integers. The length is PyTorch's: up to 2.13
    int64 takes it from the truncated numbers, since 2.14 from the call's numbers."""
    length = torch.arange(start, end, step, dtype=dtype, device="meta").shape[0]
    start, step = int(start), int(step)
    if step == 0:
        return full((length,), start, as_dtype("int64"))
    return gh.arange(start, start + length * step, step, dtype=as_dtype("int64"))


@aten("eye")
def eye(n: Any, dtype: Any = None, **_: Any) -> Any:
    return gh.eye(n, dtype=dtype_of(dtype))


@aten("eye.m")
def eye_of(n: Any, m: Any, dtype: Any = None, **_: Any) -> Any:
    return gh.eye(n, m, dtype=dtype_of(dtype))


@aten("linspace")
def linspace(start: Any, end: Any, steps: Any, dtype: Any = None, **_: Any) -> Any:
    result_dtype = dtype_of(dtype)
    if result_dtype.is_integer:
        raise NotImplementedError  # PyTorch rounds each element differently
    return gh.linspace(start, end, steps, dtype=result_dtype)
