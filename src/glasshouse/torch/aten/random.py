"""Operators that draw random numbers, from keys that follow torch.manual_seed."""

from typing import Any

from glasshouse.base import DType, as_dtype
from glasshouse.dispatch import Value, cast, full, primitives
from glasshouse.tensor import Tensor, random
from glasshouse.torch.aten.create import dtype_of
from glasshouse.torch.aten.draws import generator
from glasshouse.torch.aten.table import aten
from glasshouse.torch.tensors.dtypes import FROM_TORCH

FLOAT32 = as_dtype("float32")


def drawn_below(shape: tuple[int, ...], p: Any) -> Value:
    """True with probability p at each position."""
    return random.uniform(shape, generator=generator()) < p


@aten("native_dropout")
def native_dropout(x: Any, p: Any, train: Any) -> Any:
    """(x with elements dropped and the others scaled up, the mask of the others)."""
    if train is False or p == 0:
        return x, full(x.shape, True, as_dtype("bool"))
    mask = drawn_below(x.shape, 1 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return x * cast(mask, x.dtype) * scale, mask


@aten("bernoulli.p", "bernoulli.default")
def bernoulli(x: Tensor, p: float | None = None, generator: Any = None) -> Any:
    return cast(drawn_below(x.shape, cast(x, FLOAT32) if p is None else p), x.dtype)


@aten("bernoulli.Tensor")
def bernoulli_of(x: Any, p: Any, generator: Any = None) -> Any:
    return cast(drawn_below(x.shape, cast(p, FLOAT32)), x.dtype)


def uniform(shape: tuple[int, ...], dtype: DType) -> Value:
    return random.uniform(tuple(shape), dtype=dtype, generator=generator())


def normal(shape: Any, dtype: Any) -> Value:
    return random.normal(tuple(shape), dtype=dtype, generator=generator())


@aten("rand")
def rand(shape: Any, dtype: Any = None, **_: Any) -> Any:
    return uniform(shape, dtype_of(dtype))


@aten("rand_like")
def rand_like(x: Any, dtype: Any = None, **_: Any) -> Any:
    return uniform(x.shape, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("randn")
def randn(shape: Any, dtype: Any = None, **_: Any) -> Any:
    return normal(shape, dtype_of(dtype))


@aten("randn_like")
def randn_like(x: Any, dtype: Any = None, **_: Any) -> Any:
    return normal(x.shape, FROM_TORCH[dtype] if dtype else x.dtype)


@aten("uniform")
def uniform_between(
    x: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None
) -> Tensor:
    return uniform(x.shape, x.dtype) * (high - low) + low


@aten("normal_functional")
def normal_of(x: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    return normal(x.shape, x.dtype) * std + mean


@aten("randint")
def randint(high: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
    return randint_from(0, high, shape, dtype)


@aten("randint.low")
def randint_from(low: Any, high: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
    result_dtype = dtype_of(dtype, 0)
    whole = random.randint(low, high, tuple(shape), generator=generator())
    return cast(whole, result_dtype)


@aten("randperm")
def randperm(n: Any, dtype: Any = None, **_: Any) -> Any:
    """The positions of n draws in the order of their size."""
    _, order = primitives["sort"](uniform((n,), as_dtype("float64")), axis=0, descending=False)
    return cast(order, dtype_of(dtype, 0))
