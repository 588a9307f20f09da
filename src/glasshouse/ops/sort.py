"""Sorting primitives: values in order, with the positions they came from. NaN is the largest."""

import math
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, ShapeError, Spec, check_axis, float32, int64
from glasshouse.dispatch.primitive import Arr, card, refusal, sample
from glasshouse.ops.checks import check_ordered
from glasshouse.ops.index import gather_along, scatter_along


def infer_sort(x: Spec, *, axis: int, descending: bool) -> tuple[Spec, Spec]:
    check_ordered("sort", x, "Sort gh.abs.")
    check_axis("sort", axis, x.ndim)
    return x, Spec(x.shape, int64)


def order_of(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The stable permutation that sorts x, in which NaN is the largest. From the largest on it is
    that of x from its end, read from its end: so equal elements keep their order."""
    key = x.astype(float32.np) if x.dtype.kind == "V" else x  # bfloat16, which NumPy cannot sort
    if descending:
        return x.shape[axis] - 1 - np.flip(order_of(np.flip(key, axis), axis, False), axis)
    return np.argsort(key, axis=axis, kind="stable")


def comparisons(size: int, length: int) -> int:
    return size * math.ceil(math.log2(max(length, 2)))


def distinct(rng: "np.random.Generator", shape: Any) -> Any:
    return rng.permutation(math.prod(shape)).reshape(shape) * 0.5 - 2


@card(
    "sort",
    infer=infer_sort,
    vjp=(lambda g, y, _x, *, axis, **_: scatter_along(g[0], y[1], axis, _x.shape[axis]),),
    jvp=(lambda t, y, x, *, axis, **_: (gather_along(t, y[1], axis), None),),
    batch=lambda batched, x, *, axis, descending: sort(x, axis=axis + 1, descending=descending),
    flops=lambda x, *, axis, **_: comparisons(x.size, x.shape[axis]),
    samples=[
        sample(Arr((4,), make=distinct), axis=0, descending=False),
        sample(Arr((3, 2, 2), make=distinct), axis=0, descending=True),
        sample(Arr((2, 5), make=distinct), axis=1, descending=True),
        sample((2, 0), axis=1, descending=False),
    ],
    error_samples=[
        refusal(ShapeError, "axis", (3,), axis=1, descending=False),
        refusal(DTypeError, "an order", (3,), on="complex64", axis=0, descending=True),
    ],
    dtypes="ordered",
    num_outputs=2,
)
def sort(x: np.ndarray, *, axis: int, descending: bool) -> tuple[np.ndarray, ...]:
    """(x sorted along `axis`, the positions its elements came from): smallest first, or largest
    first if `descending`. Equal elements keep their order; NaN is the largest.

    Why: a sorting network of minimum and maximum takes log2(n)² passes and loses the positions."""
    order = order_of(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


def infer_top_k(x: Spec, *, k: int) -> tuple[Spec, Spec]:
    check_ordered("top_k", x, "Sort gh.abs.")
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        expected = "k from 0 to the length of the last axis"
        raise ShapeError("top_k", expected, f"k={k} for shape {x.shape}", "Choose a smaller k.")
    shape = (*x.shape[:-1], k)
    return Spec(shape, x.dtype), Spec(shape, int64)


@card(
    "sort",
    infer=infer_top_k,
    vjp=(lambda g, y, _x, **_: scatter_along(g[0], y[1], _x.ndim - 1, _x.shape[-1]),),
    jvp=(lambda t, y, x, **_: (gather_along(t, y[1], x.ndim - 1), None),),
    batch=lambda batched, x, *, k: top_k(x, k=k),
    flops=lambda x, *, k: comparisons(x.size, k),
    samples=[
        sample(Arr((5,), make=distinct), k=2),
        sample(Arr((2, 3), make=distinct), k=3),
        sample(Arr((2, 3), make=distinct), k=1),
        sample((2, 3), k=0),
    ],
    error_samples=[
        refusal(ShapeError, "k=4", (3,), k=4),
        refusal(ShapeError, "k=1", (), k=1),
        refusal(DTypeError, "order", (3,), on="complex64", k=1),
    ],
    dtypes="ordered",
    num_outputs=2,
)
def top_k(x: np.ndarray, *, k: int) -> tuple[np.ndarray, ...]:
    """(the k largest elements along the last axis, largest first; their positions). Of equal
    elements the first come first; NaN is the largest.

    Why: a full sort costs log2(n) passes where a selection costs one."""
    order = order_of(x, -1, descending=True)[..., :k]
    return np.take_along_axis(x, order, -1), order
