"""Operators that draw random numbers; a node's `seed` is left to `gh.random.seed`."""

from typing import Any

import glasshouse as gh
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.table import operator


def like(x: Any, dtype: int | None) -> Any:
    return x.dtype if dtype is None else dtype_of(dtype)


@operator("RandomNormal")
def normal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0
) -> Any:
    return (gh.random.normal(tuple(shape)) * scale + mean).astype(dtype_of(dtype))


@operator("RandomNormalLike")
def normal_like(
    x: Any, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0
) -> Any:
    return (gh.random.normal(x.shape) * scale + mean).astype(like(x, dtype))


@operator("RandomUniform")
def uniform(
    *, shape: Any, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float = 0.0
) -> Any:
    return (gh.random.uniform(tuple(shape)) * (high - low) + low).astype(dtype_of(dtype))


@operator("RandomUniformLike")
def uniform_like(
    x: Any, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float = 0.0
) -> Any:
    return (gh.random.uniform(x.shape) * (high - low) + low).astype(like(x, dtype))


@operator("Bernoulli")
def bernoulli(x: Any, *, dtype: int | None = None, seed: float = 0.0) -> Any:
    return (gh.random.uniform(x.shape, dtype="float32") < x).astype(like(x, dtype))


@operator("Multinomial")
def multinomial(x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float = 0.0) -> Any:
    draws = gh.multinomial(gh.softmax(x, axis=-1), sample_size, replacement=True)
    return draws.astype(dtype_of(dtype))
