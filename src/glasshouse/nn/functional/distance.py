"""Distances between vectors, and between all rows of a matrix."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import adopt, cast
from glasshouse.dispatch.wide import rounded_once
from glasshouse.nn.checks import check_floating
from glasshouse.ops.index import gather
from glasshouse.tensor import Tensor, abs
from glasshouse.tensor import where as choose
from glasshouse.tensor.linalg import vector_norm
from glasshouse.tensor.standard import reduce


def check_order(where: str, p: float | str) -> float:
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise DTypeError(where, "p to be a number", repr(p), "Use e.g. p=2.")
    if not p >= 0:
        raise OptionError(where, "p of 0 or more", repr(p), "Use e.g. p=2.")
    return p


def length(x: Tensor, p: float, keepdims: bool = False) -> Tensor:
    """The p-norm along the last axis; its gradient at 0 is 0, not NaN."""
    if p in (0, 1, 2, math.inf):
        return vector_norm(x, axis=-1, ord=p, keepdims=keepdims)
    size = abs(x)
    zero = size == 0
    total = reduce.sum(choose(zero, 0, choose(zero, 1, size) ** p), axis=-1, keepdims=keepdims)
    nothing = total == 0
    return choose(nothing, 0, choose(nothing, 1, total) ** (1 / p))


@composed
@rounded_once
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float | str = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """‖x1 - x2 + eps‖ₚ along the last axis.

    Shapes: two that broadcast to (..., D) -> (...), or (..., 1) with keepdim.
    Raises: DTypeError for operands that are not floating, OptionError for p below 0.
    Source: standard; PyTorch (eps).
    Example:
        >>> round(pairwise_distance([[0.0, 3.0]], [[4.0, 0.0]]).item(), 4)
        5.0
    """
    where = "pairwise_distance"
    x1, x2 = check_floating(where, x1, "x1"), check_floating(where, x2, "x2")
    return length(x1 - x2 + eps, check_order(where, p), keepdims=keepdim)


@rounded_once
def pdist(input: Tensor, p: float = 2.0) -> Any:
    """‖xᵢ - xⱼ‖ₚ for all pairs of rows i < j, in order of i and then of j.

    Shapes: (N, D) -> (N (N - 1) / 2,).
    Raises: ShapeError for other shapes, OptionError for p below 0.
    Source: PyTorch.
    Example:
        >>> pdist([[0.0], [1.0], [3.0]]).tolist()
        [1.0, 3.0, 2.0]
    """
    x = check_floating("pdist", input)
    check_order("pdist", p)
    if x.ndim != 2:
        raise ShapeError("pdist", "an input (N, D)", x.shape, "Reshape it.")
    first, second = (adopt(i.astype(np.int64)) for i in np.triu_indices(x.shape[0], 1))
    return cast(length(gather(x, first, axis=0) - gather(x, second, axis=0), p), x.dtype)
