"""Operators that make tensors from numbers."""

import torch

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.dispatch.value import cast, full
from glasshouse.torch.aten.table import aten
from glasshouse.torch.tensors.dtypes import FROM_TORCH


def dtype_of(dtype, *numbers):
    """Our dtype for PyTorch's `dtype`; for None, PyTorch's default for these numbers."""
    if dtype is not None:
        return FROM_TORCH[dtype]
    if any(isinstance(n, complex) for n in numbers):
        return as_dtype("complex64")
    if any(isinstance(n, float) for n in numbers) or not numbers:
        return FROM_TORCH[torch.get_default_dtype()]
    return as_dtype("bool" if all(isinstance(n, bool) for n in numbers) else "int64")


def filled(shape, value, dtype):
    if dtype.is_bool:
        value = bool(value)
    elif dtype.is_integer:
        value = int(value)
    return full(tuple(shape), value, dtype)


@aten("full")
def full_(shape, value, dtype=None, **_):
    return filled(shape, value, dtype_of(dtype, value))


@aten("zeros", "empty.memory_format", "empty_strided", "empty_permuted")
def zeros(shape, _strides=None, dtype=None, **_):
    """Zeros, for `empty` too: a value has to be the same each time it is computed."""
    return filled(shape, 0, dtype_of(dtype))


@aten("ones")
def ones(shape, dtype=None, **_):
    return filled(shape, 1, dtype_of(dtype))


@aten("scalar_tensor")
def scalar_tensor(value, dtype=None, **_):
    return filled((), value, dtype_of(dtype))


@aten("full_like")
def full_like(x, value, dtype=None, **_):
    return filled(x.shape, value, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("zeros_like", "empty_like")
def zeros_like(x, dtype=None, **_):
    return full_like(x, 0, dtype)


@aten("ones_like")
def ones_like(x, dtype=None, **_):
    return full_like(x, 1, dtype)


@aten("new_zeros", "new_empty", "new_empty_strided")
def new_zeros(x, shape, _strides=None, dtype=None, **_):
    return filled(shape, 0, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("new_ones")
def new_ones(x, shape, dtype=None, **_):
    return filled(shape, 1, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("new_full")
def new_full(x, shape, value, dtype=None, **_):
    return filled(shape, value, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("fill.Scalar")
def fill(x, value):
    return filled(x.shape, value, x.dtype)


@aten("fill.Tensor")
def fill_with(x, value):
    return gh.broadcast_to(cast(value, x.dtype), x.shape)


@aten("arange.default")
def arange(end, **options):
    return arange_from(0, end, **options)


@aten("arange.start", "arange.start_step")
def arange_from(start, end, step=1, dtype=None, **_):
    result_dtype = dtype_of(dtype, start, end, step)
    if result_dtype.is_integer or not any(isinstance(n, float) for n in (start, end, step)):
        return cast(arange_of_integers(start, end, step, dtype), result_dtype)
    return gh.arange(start, end, step, dtype=result_dtype)


def arange_of_integers(start, end, step, dtype):
    """A range whose start and step are truncated to integers. The length is PyTorch's: up to 2.13
    int64 takes it from the truncated numbers, since 2.14 from the call's numbers."""
    length = torch.arange(start, end, step, dtype=dtype, device="meta").shape[0]
    start, step = int(start), int(step)
    if step == 0:
        return full((length,), start, as_dtype("int64"))
    return gh.arange(start, start + length * step, step, dtype=as_dtype("int64"))


@aten("eye")
def eye(n, dtype=None, **_):
    return gh.eye(n, dtype=dtype_of(dtype))


@aten("eye.m")
def eye_of(n, m, dtype=None, **_):
    return gh.eye(n, m, dtype=dtype_of(dtype))


@aten("linspace")
def linspace(start, end, steps, dtype=None, **_):
    result_dtype = dtype_of(dtype)
    if result_dtype.is_integer:
        raise NotImplementedError  # PyTorch rounds each element differently
    return gh.linspace(start, end, steps, dtype=result_dtype)
