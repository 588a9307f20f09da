"""Losses. `reduction` is "mean", "sum" or "none"; sums are carried in float32 at least."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, broadcast_values, cast, full, reshape
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.nn.checks import REDUCTIONS, check_floating, narrowed
from glasshouse.nn.functional.activation import exact_softplus
from glasshouse.ops.checks import check_like, check_option
from glasshouse.ops.index import gather
from glasshouse.tensor import Tensor, abs, arange, exp, log
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce
from glasshouse.tensor.standard.softmax import shifted

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy",
           "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss"]  # fmt: skip


def reduced(loss: Tensor, reduction: str, dtype: Any = None) -> Tensor:
    """`loss` as it is, or its mean or sum, in `dtype`."""
    if reduction != "none":
        loss = (reduce.mean if reduction == "mean" else reduce.sum)(loss)
    return loss if dtype is None else cast(loss, dtype)


def operands(where: str, input: Tensor, target: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, target = check_floating(where, input), as_value(target, where=where)
    if x.shape != target.shape:
        expected = "input and target of one shape"
        fix = "Reshape or broadcast one of them."
        raise ShapeError(where, expected, f"{x.shape} and {target.shape}", fix)
    return x, target


def refuse_unless(where: str, fits: Tensor, x: Tensor, expected: str, fix: str) -> Tensor:
    """0 in the dtype of x for each element, where all of `fits` are true; else an error: at once
    where contents are known, otherwise when they are computed, as an index out of range."""
    try:
        return gather(full((1,), 0, x.dtype), choose(fits, 0, 1), axis=0)
    except IndexOutOfRangeError:
        got = f"values from {reduce.min(x).item()} to {reduce.max(x).item()}"
        raise OptionError(where, expected, got, fix) from None


def weighted(where: str, loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """weight · loss, of which the mean is that over the weights."""
    if weight is None:
        return reduced(loss, reduction)
    weight = cast(check_weight(where, weight, loss.shape), loss.dtype)
    total = reduced(loss * weight, "sum" if reduction == "mean" else reduction)
    return total / reduce.sum(weight) if reduction == "mean" else total


def check_weight(where: str, weight: Tensor, shape: int | Sequence[int]) -> Tensor:
    return check_like(where, "weight", as_value(weight, where=where), shape)


@composed
@rounded_once
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Any:
    """weight · (x - y)², the squared error; "mean" divides by the sum of the weights.

    Shapes: two equal ones, and weight -> () , or theirs with reduction "none".
    Raises: ShapeError for unequal shapes, OptionError for an unknown reduction.
    Source: standard.
    Example:
        >>> mse_loss([1.0, 2.0], [1.0, 4.0]).item()
        2.0
    """
    x, target = operands("mse_loss", input, target, reduction)
    difference = x - target
    return weighted("mse_loss", difference * difference, weight, reduction)


@composed
@rounded_once
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Any:
    """weight · |x - y|, the absolute error; "mean" divides by the sum of the weights.

    Shapes: two equal ones, and weight -> ().
    Source: standard
    """
    x, target = operands("l1_loss", input, target, reduction)
    return weighted("l1_loss", abs(x - target), weight, reduction)


@composed
@rounded_once
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Any:
    """(x - y)² / (2 beta) where |x - y| < beta, else |x - y| - beta / 2.

    Shapes: two equal ones -> ().
    Raises: OptionError if beta < 0.
    Source: Girshick 2015, arXiv:1504.08083, eq. 3.
    """
    if beta < 0:
        raise OptionError("smooth_l1_loss", "beta of 0 or more", beta, "Change beta.")
    if beta == 0:
        return l1_loss(input, target, reduction)
    x, target = operands("smooth_l1_loss", input, target, reduction)
    return reduced(huber(x - target, beta) / beta, reduction)


@composed
@rounded_once
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Any:
    """(x - y)² / 2 where |x - y| < delta, else delta · (|x - y| - delta / 2); times weight.

    Shapes: two equal ones, and weight -> ().
    Raises: OptionError unless delta > 0.
    Source: Huber 1964.
    """
    if delta <= 0:
        raise OptionError("huber_loss", "delta above 0", delta, "Change delta.")
    x, target = operands("huber_loss", input, target, reduction)
    loss = huber(x - target, delta)
    loss = loss if weight is None else loss * check_weight("huber_loss", weight, loss.shape)
    return reduced(loss, reduction)


def huber(difference: Tensor, delta: float) -> Tensor:
    size = abs(difference)
    near = difference * difference * 0.5
    return choose(size < delta, near, size * delta - 0.5 * delta * delta)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-weight · (y log x + (1 - y) log(1 - x)) of probabilities x; logarithms end at -100.
    Prefer `binary_cross_entropy_with_logits`, which keeps its precision near 0 and 1.

    Shapes: input and target equal, weight broadcasting -> ().
    Raises: OptionError for an input outside 0 to 1; where its contents are not yet known, an
        IndexOutOfRangeError when they are computed.
    Source: standard; PyTorch (limit).
    """
    where = "binary_cross_entropy"
    x, target = operands(where, input, target, reduction)
    fix = "Apply a sigmoid, or use binary_cross_entropy_with_logits."
    zero = refuse_unless(where, (x >= 0) & (x <= 1), x, "probabilities from 0 to 1", fix)
    return entropy_of_two(x, target, zero, weight, reduction)


@composed
@rounded_once
def entropy_of_two(
    x: Tensor, target: Tensor, zero: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    loss = zero - (target * bounded_log(x) + (1 - target) * bounded_log(1 - x))
    return reduced(loss if weight is None else loss * weight, reduction)


def bounded_log(x: Tensor) -> Tensor:
    """log(x), and from the smallest normal number down -100 + 10¹² x: the limits of value and slope
    that PyTorch sets. The logarithm itself never sees a 0."""
    low = x < float(np.finfo(widen(x).dtype.np).tiny)
    return choose(low, cast(widen(x) * 1e12, x.dtype) - 100, log(choose(low, 1, x)))


@composed
@rounded_once
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    """-weight · (pos_weight · y log σ(x) + (1 - y) log(1 - σ(x))) of logits x, without overflow.
    Computed as (1 - y) x + (1 + (pos_weight - 1) y) · softplus(-x).

    Shapes: input and target equal, weight and pos_weight broadcasting to them -> ().
    Source: standard.
    """
    where = "binary_cross_entropy_with_logits"
    x, target = operands(where, input, target, reduction)
    loss = exact_softplus(-x)
    if pos_weight is not None:
        loss = loss * (1 + (as_value(pos_weight, where=where) - 1) * target)
    loss = x - x * target + loss
    return reduced(loss if weight is None else loss * weight, reduction)


@composed
@rounded_once
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Any:
    """target · (log target - x) of log-probabilities x; 0 where target is 0.
    `log_target` says that target holds logarithms too. "batchmean" divides the sum by the size of
    the first axis, which is the divergence's definition; "mean" divides by all elements.

    Shapes: two that broadcast -> ().
    Source: Kullback & Leibler 1951.
    """
    check_option("kl_div", "reduction", reduction, (*REDUCTIONS, "batchmean"))
    x, target = broadcast_values("kl_div", check_floating("kl_div", input), as_value(target))
    if log_target:
        loss = exp(target) * (target - x)
    else:
        counted = target != 0
        loss = choose(counted, target * log(choose(counted, target, 1)), 0) - target * x
    if reduction == "batchmean":
        return reduce.sum(loss) / (x.shape[0] if x.ndim else 1)
    return reduced(loss, reduction)


def class_axis(where: str, x: Tensor) -> int:
    """The axis of the classes: 1, or 0 for an input without batch axis."""
    if x.ndim == 0:
        raise ShapeError(where, "an input (C,) or (N, C, ...)", "()", "Add an axis.")
    return 1 if x.ndim > 1 else 0


def check_class_weight(where: str, weight: Tensor | None, classes: int) -> Any:
    if weight is None:
        return None
    weight = as_value(weight, where=where)
    return check_like(where, f"a weight for each of {classes} classes", weight, (classes,))


def pick_classes(where: str, x: Tensor, axis: int, target: Tensor, ignore_index: int | None) -> Any:
    """(x at the target class, the classes with ignored ones as 0, where they count). A negative one
    that is not ignored is moved out of range: an error then, without a value read before."""
    classes = x.shape[axis]
    expected = (*x.shape[:axis], *x.shape[axis + 1 :])
    if not target.dtype.is_integer:
        got = f"{target.dtype.name} {target.shape}"
        fix = "Convert the target with target.long()."
        raise DTypeError(where, f"integer class indices {expected}", got, fix)
    if target.shape != expected:
        fix = "Give one class index for each prediction."
        raise ShapeError(where, f"a target of {expected} for input {x.shape}", target.shape, fix)
    counts = target != ignore_index
    index = choose(counts, choose(target < 0, target - classes, target), 0)
    table = arange(classes)
    try:
        index = gather(table, index, axis=0)  # itself, or an error
    except IndexOutOfRangeError:
        raise outside_of_classes(where, target, classes, ignore_index) from None
    # A selection instead of a gather: its gradient is one too, and needs no extra memory.
    index_at = reshape(index, (*expected[:axis], 1, *expected[axis:]))
    here = index_at == reshape(table, (classes,) + (1,) * (x.ndim - axis - 1))
    return reduce.sum(choose(here, x, 0), axis=axis), index, counts


def outside_of_classes(
    where: str, target: Any, classes: int, ignore_index: int | None
) -> IndexOutOfRangeError:
    """The error of a target that names no class."""
    expected = f"class indices from 0 to {classes - 1}, or ignore_index {ignore_index}"
    got = f"indices from {reduce.min(target).item()} to {reduce.max(target).item()}"
    return IndexOutOfRangeError(where, expected, got, "Change the target or the number of classes.")


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-weight[y] · x[y] of log-probabilities x and class indices y; ignored ones give 0.
    "mean" divides by the sum of the weights of the classes that count.

    Shapes: input (N, C, ...) or (C,), target (N, ...) or () -> (), or target's.
    Raises: IndexOutOfRangeError for a class outside [0, C) that is not ignore_index.
    Source: standard.
    """
    check_option("nll_loss", "reduction", reduction, REDUCTIONS)
    x, target = check_floating("nll_loss", input), as_value(target, where="nll_loss")
    axis = class_axis("nll_loss", x)
    weight = check_class_weight("nll_loss", weight, x.shape[axis])
    picked, index, counts = pick_classes("nll_loss", x, axis, target, ignore_index)
    return cast(reduced_by_class(-widen(picked), index, counts, weight, reduction), x.dtype)


def reduced_by_class(
    loss: Tensor, index: Any, counts: Any, weight: Tensor | None, reduction: str
) -> Any:
    """The loss of each target, weighted by its class, with ignored ones left out."""
    share = cast(counts, loss.dtype)
    if weight is not None:
        share = share * cast(gather(weight, index, axis=0), loss.dtype)
    loss = choose(counts, loss, 0) if weight is None else choose(counts, loss * share, 0)
    return reduce.sum(loss) / reduce.sum(share) if reduction == "mean" else reduced(loss, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    ignore_index: Any = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """-Σ_c weight[c] · p[c] · log softmax(x)[c], p the target distribution.
    The target is a class index (p is 1 there; `ignore_index` gives 0) or p itself. Smoothing by ε
    uses (1 - ε) p + ε / C. "mean" divides by the weights of the classes that count, and for a
    distribution by the number of targets. With z = x - max(x) this is log(Σ exp(z)) · Σ w p
    - Σ w p z, so that no log-probabilities are stored.

    Shapes: input (N, C, ...) or (C,); target (N, ...) or () of indices, or input's -> ().
    Raises: ShapeError, DTypeError for a target that fits neither; IndexOutOfRangeError for a class
        outside [0, C) that is not ignore_index; OptionError for smoothing outside [0, 1].
    Source: Szegedy et al. 2015, arXiv:1512.00567, sec. 7 (smoothing).
    Example:
        >>> round(cross_entropy([[0.0, 0.0]], as_value([1])).item(), 4)
        0.6931
    """
    where = "cross_entropy"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, target = check_floating(where, input), as_value(target, where=where)
    if not 0 <= label_smoothing <= 1:
        raise OptionError(where, "label_smoothing in [0, 1]", label_smoothing, "Change it.")
    axis = class_axis(where, x)
    weight = check_class_weight(where, weight, x.shape[axis])
    z = shifted(widen(x), axis)
    lse = log(reduce.sum(exp(z), axis=axis))
    if target.shape == x.shape and target.dtype.is_floating:
        loss = soft_cross_entropy(z, lse, axis, target, weight, label_smoothing)
        count = max(lse.size, 1)
        loss = reduce.sum(loss) / count if reduction == "mean" else reduced(loss, reduction)
        return narrowed(loss, x)
    picked, index, counts = pick_classes(where, z, axis, target, ignore_index)
    loss = reduced_by_class(lse - picked, index, counts, weight, reduction)
    if label_smoothing:
        smooth = smoothing_loss(z, lse, axis, index, counts, weight, reduction)
        loss = loss * (1 - label_smoothing) + smooth * (label_smoothing / x.shape[axis])
    return narrowed(loss, x)


def along(weight: Tensor, axis: int, like: Tensor) -> Tensor:
    return reshape(cast(weight, like.dtype), (weight.size,) + (1,) * (like.ndim - axis - 1))


def soft_cross_entropy(
    z: Tensor, lse: Tensor, axis: int, target: Tensor, weight: Tensor | None, label_smoothing: float
) -> Tensor:
    """lse · Σ w p - Σ w p z of a target distribution p."""
    p = cast(target, z.dtype)
    if label_smoothing:
        p = p * (1 - label_smoothing) + label_smoothing / z.shape[axis]
    if weight is not None:
        p = p * along(weight, axis, z)
    return lse * reduce.sum(p, axis=axis) - reduce.sum(p * z, axis=axis)


def smoothing_loss(
    z: Any, lse: Any, axis: int, index: Any, counts: Any, weight: Tensor, reduction: str
) -> Tensor:
    """-Σ_c w[c] · log softmax(x)[c], reduced as `reduced_by_class` reduces."""
    if weight is None:
        total = lse * z.shape[axis] - reduce.sum(z, axis=axis)
        return reduced_by_class(total, index, counts, None, reduction)
    weighted = reduce.sum(z * along(weight, axis, z), axis=axis)
    total = choose(counts, lse * cast(reduce.sum(weight), z.dtype) - weighted, 0)
    if reduction == "mean":
        share = choose(counts, cast(gather(weight, index, axis=0), z.dtype), 0)
        return reduce.sum(total) / reduce.sum(share)
    return reduced(total, reduction)
