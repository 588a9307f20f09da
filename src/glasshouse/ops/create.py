"""Primitives that make values from static attrs alone (random bits are in ops/random.py)."""

from typing import Any

import numpy as np

from glasshouse.base import DType, DTypeError, ShapeError, bool_, float32, from_numpy_dtype, int64
from glasshouse.base.shape import Spec, check_shape
from glasshouse.dispatch.primitive import card, refusal, sample


def no_batch(name: str) -> Any:
    """The batching rule of a primitive without operands, which nothing batched ever reaches."""

    def batch(batched, **attrs):
        raise AssertionError(f"{name}: has no operands, so none can be batched")

    return batch


def infer_constant(*, value: np.ndarray) -> Spec:
    if not isinstance(value, np.ndarray):
        raise DTypeError("constant", "a NumPy array", type(value).__name__, "Make one.")
    return Spec(value.shape, from_numpy_dtype(value.dtype))


@card(
    "create",
    infer=infer_constant,
    batch=no_batch("constant"),
    flops=lambda **_: 0,
    samples=[sample(value=np.arange(6.0).reshape(2, 3)), sample(value=np.array(1))],
    error_samples=[refusal(DTypeError, "NumPy array", value=[1, 2])],
)
def constant(*, value: np.ndarray) -> np.ndarray:
    """The array `value`.

    Why: data from outside enters through it."""
    return value


@card(
    "create",
    infer=lambda *, shape, value, dtype: Spec(check_shape("full", shape), dtype),
    batch=no_batch("full"),
    flops=lambda **_: 0,
    samples=[
        sample(shape=(2, 3), value=1.5, dtype=float32),
        sample(shape=(), value=True, dtype=bool_),
        sample(shape=(0, 2), value=7, dtype=int64),
    ],
    error_samples=[refusal(ShapeError, "0 or more", shape=(-1,), value=0, dtype=float32)],
)
def full(*, shape: tuple[int, ...], value: float, dtype: DType) -> np.ndarray:
    """A value of `shape` with the Python scalar `value` everywhere.

    Why: a scalar known in advance, which compilers fold; a constant is data.

    One element that stands at every position: all strides are 0."""
    cell = np.asarray(value).astype(dtype.np)
    return np.ndarray(shape, dtype.np, cell, strides=(0,) * len(shape))


def infer_iota(*, size: Any, dtype: DType) -> Spec:
    if dtype.is_bool:
        raise DTypeError("iota", "a numeric dtype", "bool", "Compare integers instead.")
    return Spec(check_shape("iota", (size,)), dtype)


@card(
    "create",
    infer=infer_iota,
    batch=no_batch("iota"),
    flops=lambda **_: 0,
    samples=[
        sample(size=5, dtype=int64),
        sample(size=0, dtype=float32),
        sample(size=3, dtype=float32),
    ],
    error_samples=[
        refusal(ShapeError, "0 or more", size=-1, dtype=int64),
        refusal(DTypeError, "numeric dtype", size=2, dtype=bool_),
    ],
)
def iota(*, size: Any, dtype: DType) -> np.ndarray:
    """The integers 0, 1, … size - 1 along one axis.

    Why: positions are not computable from constants of unknown size."""
    return np.arange(size).astype(dtype.np)
