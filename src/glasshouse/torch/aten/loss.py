"""Losses and their gradients."""

from typing import Any

import glasshouse as gh
from glasshouse.base import as_dtype
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.value import cast, full
from glasshouse.dispatch.wide import widen as wide
from glasshouse.tensor import Tensor
from glasshouse.torch.aten.index import gather, rows_of
from glasshouse.torch.aten.shape import reshape
from glasshouse.torch.aten.table import DEFAULT, aten

INT64 = as_dtype("int64")
NONE, MEAN, SUM = range(3)  # PyTorch's numbers of reductions


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(
    x: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int
) -> tuple[Tensor, ...]:
    """(-weight[y] · x at the class y, reduced; the sum of these weights). PyTorch's decomposition
    would raise `gather`'s error for a class out of range."""
    axis = 0 if x.ndim < 2 else 1
    is_kept, zero = target != ignore_index, full((), 0, wide(x).dtype)
    classes = gh.where(is_kept, target, full((), 0, target.dtype))
    at = reshape(classes, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    loss = -reshape(wide(gather(x, axis, at)), target.shape)
    weights = cast(is_kept, zero.dtype)
    if weight is not None:
        class_weights = primitives["gather"](wide(weight), rows_of(classes, weight.size), axis=0)
        loss, weights = loss * class_weights, gh.where(is_kept, class_weights, zero)
    loss = gh.where(is_kept, loss, zero)
    if reduction == NONE and axis == 1:
        return cast(loss, x.dtype), full((), 0, x.dtype)
    total = gh.sum(weights)
    if reduction != NONE:
        loss = gh.sum(loss) / total if reduction == MEAN else gh.sum(loss)
    return cast(loss, x.dtype), cast(total, x.dtype)


@aten("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """-weight[y] · g at the class y; 0 elsewhere, and where y is ignored. It selects instead of
    scattering: then the kernel that reads it computes it, without extra memory."""
    axis = 0 if x.ndim < 2 else 1
    classes, along = x.shape[axis], (-1,) + (1,) * (x.ndim - axis - 1)
    rows = (*x.shape[:axis], 1, *x.shape[axis + 1 :])  # one value for each target
    if reduction == MEAN:
        g = g / total_weight
    g = -reshape(g, (1,) * x.ndim if g.size == 1 else rows)
    if weight is not None:
        g = g * reshape(weight, along)
    target = reshape(gh.where(target == ignore_index, full((), -1, INT64), target), rows)
    here = target == reshape(gh.arange(classes, dtype=INT64), along)
    return gh.where(here, g, full((), 0, g.dtype))


@aten("smooth_l1_loss_backward", promotion=DEFAULT)
def smooth_l1_loss_backward(g: Any, x: Any, target: Any, reduction: str, beta: Any) -> Any:
    """The gradient of x. PyTorch's decomposition would have slope 0, the sign of NaN, for NaN."""
    difference = x - target
    slope = gh.where(gh.abs(difference) < beta, difference / beta, gh.sign(difference))
    return g * slope / max(1, x.size) if reduction == MEAN else g * slope
