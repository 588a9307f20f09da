"""Losses of regression with a distribution, of imbalanced classes, of regions and of views."""

import math
from typing import Any

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.dispatch.value import full as filled
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.nn.checks import REDUCTIONS, check_floating, narrowed
from glasshouse.nn.functional.activation import log_softmax, sigmoid
from glasshouse.nn.functional.linear import linear, one_hot
from glasshouse.nn.functional.loss import (
    binary_cross_entropy_with_logits,
    check_class_weight,
    class_axis,
    cross_entropy,
    operands,
    pick_classes,
    reduced,
    reduced_by_class,
    refuse_unless,
)
from glasshouse.nn.functional.norm import normalize
from glasshouse.ops.checks import check_like, check_option
from glasshouse.ops.index import gather
from glasshouse.tensor import Tensor, arange, concat, exp, eye, log, moveaxis
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce
from glasshouse.transforms import checkpoint

__all__ = ["dice_loss", "focal_loss", "gaussian_nll_loss", "info_nce_loss", "label_smoothing_loss",
           "linear_cross_entropy", "nt_xent_loss", "poisson_nll_loss",
           "sigmoid_focal_loss"]  # fmt: skip


@rounded_once
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """(log var + (x - y)² / var) / 2 with var at least eps; `full` adds log(2π) / 2. Gradients do
    not see the limit eps.

    Shapes: input and target broadcasting, var as input, or its last axis 1 or left out -> ().
    Raises: ShapeError for another var; OptionError for a negative one.
    Source: Nix & Weigend 1994, "Estimating the mean and variance of the target distribution".
    Example:
        >>> gaussian_nll_loss([1.0, 3.0], [1.0, 1.0], 4.0, reduction="none").tolist()
        [0.6931471824645996, 1.1931471824645996]
    """
    where = "gaussian_nll_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, target = check_floating(where, input), as_value(target, where=where)
    var = filled((), var, x.dtype) if isinstance(var, int | float) else as_value(var, where=where)
    if var.ndim and var.shape == x.shape[:-1] and var.shape != x.shape:
        var = reshape(var, (*var.shape, 1))
    other = [n for m, n in zip(x.shape, var.shape, strict=False) if m != n]
    if var.ndim and (var.ndim != x.ndim or other not in ([], [1])):
        expected = f"var of {x.shape}, or with an axis of size 1, or {x.shape[:-1]}"
        raise ShapeError(where, expected, var.shape, "Reshape var.")
    zero = refuse_unless(where, var >= 0, var, "var of 0 or more", "Use the variance.")
    var = choose(var < eps, eps + (var - var.detach()), var)
    difference = x - target
    loss = (log(var) + difference * difference / var) * 0.5 + zero
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@composed
@rounded_once
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """exp(x) - y x of the logarithm x of a rate, or x - y log(x + eps) of a rate x; `full` adds
    Stirling's y log y - y + log(2π y) / 2 where y > 1.

    Shapes: two equal ones -> ().
    Raises: ShapeError for unequal shapes.
    Source: standard.
    """
    x, target = operands("poisson_nll_loss", input, target, reduction)
    loss = exp(x) - target * x if log_input else x - target * log(x + eps)
    if full:
        many = target > 1
        count = choose(many, target, 1)
        stirling = count * log(count) - count + 0.5 * log(2 * math.pi * count)
        loss = loss + choose(many, stirling, 0)
    return reduced(loss, reduction)


@rounded_once
def label_smoothing_loss(
    input: Tensor,
    target: Tensor,
    smoothing: float = 0.1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """-(1 - ε) x[y] - ε mean(x) of log-probabilities x and class indices y; ignored ones give 0.
    For logits, `cross_entropy` takes `label_smoothing`.

    Shapes: input (N, C, ...) or (C,), target (N, ...) or () -> (), or target's.
    Raises: OptionError for smoothing outside [0, 1]; IndexOutOfRangeError for a wrong class.
    Source: Szegedy et al. 2015, arXiv:1512.00567, sec. 7.
    """
    where = "label_smoothing_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, target = check_floating(where, input), as_value(target, where=where)
    if not 0 <= smoothing <= 1:
        raise OptionError(where, "smoothing in [0, 1]", smoothing, "Change it.")
    axis = class_axis(where, x)
    picked, index, counts = pick_classes(where, x, axis, target, ignore_index)
    loss = -(1 - smoothing) * picked - smoothing * reduce.mean(x, axis=axis)
    return reduced_by_class(loss, index, counts, None, reduction)


@composed
@rounded_once
def sigmoid_focal_loss(
    input: Tensor, target: Tensor, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean"
) -> Any:
    """-αₜ (1 - pₜ)^γ log pₜ, where pₜ = σ(x) for y = 1 and 1 - σ(x) for y = 0, αₜ likewise of
    alpha; a negative alpha leaves αₜ out.

    Shapes: input (logits) and target (0 to 1) equal -> ().
    Raises: ShapeError for unequal shapes, OptionError for gamma below 0 or alpha above 1.
    Source: Lin et al. 2017, arXiv:1708.02002, eq. 5.
    """
    where = "sigmoid_focal_loss"
    x, target = operands(where, input, target, reduction)
    check_focus(where, gamma)
    if not alpha <= 1:
        raise OptionError(where, "alpha of at most 1", repr(alpha), "Change alpha.")
    p = sigmoid(x)
    missed = p + target - 2 * p * target  # 1 - pₜ
    loss = binary_cross_entropy_with_logits(x, target, reduction="none") * power(missed, gamma)
    if alpha >= 0:
        loss = loss * (alpha * target + (1 - alpha) * (1 - target))
    return reduced(loss, reduction)


def focal_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    gamma: float = 2.0,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """-weight[y] (1 - p[y])^γ log p[y] with p = softmax(x) of logits x and class indices y;
    ignored ones give 0, and "mean" divides by the weights of those that count.

    Shapes: input (N, C, ...) or (C,), target (N, ...) or () -> (), or target's.
    Raises: OptionError for gamma below 0; IndexOutOfRangeError for a wrong class.
    Source: Lin et al. 2017, arXiv:1708.02002, eq. 5.
    Example:
        >>> logits = as_value([[0.0, 0.0]])
        >>> round(focal_loss(logits, as_value([1])).item(), 4)  # log(2) / 4
        0.1733
    """
    where = "focal_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, target = check_floating(where, input), as_value(target, where=where)
    check_focus(where, gamma)
    axis = class_axis(where, x)
    weight = check_class_weight(where, weight, x.shape[axis])
    scores = log_softmax(widen(x), dim=axis)
    picked, index, counts = pick_classes(where, scores, axis, target, ignore_index)
    loss = -picked * power(1 - exp(picked), gamma)
    return narrowed(reduced_by_class(loss, index, counts, weight, reduction), x)


def check_focus(where: str, gamma: float) -> None:
    if not gamma >= 0:
        raise OptionError(where, "gamma of 0 or more", repr(gamma), "Change gamma.")


def power(x: Tensor, gamma: float) -> Tensor:
    """x^gamma of x ≥ 0; below gamma = 1 the slope at 0 is 0, not infinite."""
    if gamma == 2:
        return x * x
    if gamma >= 1:
        return x**gamma
    zero = x <= 0
    return choose(zero, 0 if gamma else 1, choose(zero, 1, x) ** gamma)


def dice_loss(input: Tensor, target: Tensor, smooth: float = 1.0, reduction: str = "mean") -> Any:
    """1 - (2 Σ p y + smooth) / (Σ p + Σ y + smooth) for each sample and class, sums over positions.

    Shapes: input (probabilities) (N, C, *S), target the same, or (N, *S) of classes -> (), or
        (N, C) with reduction "none".
    Raises: ShapeError for other shapes, OptionError for smooth below 0.
    Source: Milletari et al. 2016, arXiv:1606.04797, sec. 3.
    Example:
        >>> round(dice_loss([[[1.0, 0.0]]], [[[1.0, 1.0]]], smooth=0.0).item(), 4)
        0.3333
    """
    where = "dice_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, target = check_floating(where, input), as_value(target, where=where)
    if not smooth >= 0:
        raise OptionError(where, "smooth of 0 or more", repr(smooth), "Change smooth.")
    if x.ndim < 2:
        raise ShapeError(where, "an input (N, C, ...)", x.shape, "Add an axis.")
    if target.dtype.is_integer and target.shape == (x.shape[0], *x.shape[2:]):
        target = moveaxis(one_hot(target, x.shape[1]), -1, 1)
    if target.shape != x.shape:
        expected = f"a target of {x.shape}, or of classes {(x.shape[0], *x.shape[2:])}"
        raise ShapeError(where, expected, target.shape, "Reshape the target.")
    wide, target = widen(x), cast(target, widen(x).dtype)
    over = tuple(range(2, x.ndim))
    both, either = (reduce.sum(v, axis=over) if over else v for v in (wide * target, wide + target))
    loss = 1 - (2 * both + smooth) / (either + smooth)
    return narrowed(reduced(loss, reduction), x)


def info_nce_loss(
    query: Tensor,
    positive: Tensor,
    negatives: Any = None,
    temperature: float = 0.1,
    reduction: str = "mean",
) -> Any:
    """-log(exp(s(q, p) / τ) / Σ_k exp(s(q, k) / τ)), s the cosine similarity: k runs over the
    positives of all queries, or over a query's own positive and the `negatives`.

    Shapes: query and positive (N, D), negatives (M, D) or None -> (), or (N,) with "none".
    Raises: ShapeError for other shapes, OptionError unless temperature > 0.
    Source: van den Oord et al. 2018, arXiv:1807.03748, eq. 4.
    Example:
        >>> same = eye(2)
        >>> round(info_nce_loss(same, same, temperature=1.0).item(), 4)  # log(1 + 1/e)
        0.3133
    """
    where = "info_nce_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    q, p = views(where, temperature, query=query, positive=positive)
    if negatives is None:
        scores = q @ p.mT
        positives = arange(q.shape[0])
    else:
        (k,) = views(where, temperature, negatives=negatives)
        if k.shape[1] != q.shape[1]:
            expected = f"negatives (M, {q.shape[1]})"
            raise ShapeError(where, expected, k.shape, "Use one encoder.")
        scores = concat([reduce.sum(q * p, axis=1, keepdims=True), q @ k.mT], axis=1)
        positives = filled((q.shape[0],), 0, arange(1).dtype)
    return cross_entropy(scores / temperature, positives, reduction=reduction)


def nt_xent_loss(
    view1: Tensor, view2: Tensor, temperature: float = 0.5, reduction: str = "mean"
) -> Any:
    """The loss of SimCLR: among the 2N embeddings of N pairs, each is to find its partner by
    cosine similarity / τ; itself does not count.

    Shapes: two (N, D) -> (), or (2N,) with reduction "none".
    Raises: ShapeError for other shapes, OptionError unless temperature > 0.
    Source: Chen et al. 2020, arXiv:2002.05709, eq. 1.
    """
    where = "nt_xent_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    z = concat(views(where, temperature, view1=view1, view2=view2))
    count = z.shape[0]
    itself = eye(count, dtype="bool")
    scores = choose(itself, float("-inf"), z @ z.mT / temperature)
    partner = (arange(count) + count // 2) % count
    return cross_entropy(scores, partner, reduction=reduction)


def views(where: str, temperature: float, **named: Any) -> list[Tensor]:
    """Embeddings (N, D) of equal shapes, at length 1."""
    if not temperature > 0:
        raise OptionError(where, "temperature above 0", repr(temperature), "Use e.g. 0.1.")
    values = [check_floating(where, x, name) for name, x in named.items()]
    shapes = [x.shape for x in values]
    if any(len(shape) != 2 or shape != shapes[0] for shape in shapes):
        got = " and ".join(map(str, shapes))
        raise ShapeError(where, f"{' and '.join(named)} (N, D)", got, "Reshape them.")
    return [normalize(x) for x in values]


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: Any = "mean",
    ignore_index: Any = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of the logits x Wᵀ + b. With `options` (`nn.LinearCrossEntropyOptions`) the
    rows are taken in chunks, whose logits are computed again for the gradient, so that only one
    chunk's lie in memory.

    Shapes: input (N, F) or (F,), linear_weight (C, *D, F), linear_bias (C, *D), target (N, *D) of
        classes or (N, C, *D) of probabilities -> (), or (N, *D) with reduction "none".
    Raises: ShapeError for shapes that do not fit, OptionError for ignore_index with probabilities.
    Source: PyTorch.
    """
    where = "linear_cross_entropy"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, w = check_floating(where, input), check_floating(where, linear_weight, "linear_weight")
    target = as_value(target, where=where)
    outputs = w.shape[:-1]
    check_linear(where, x, w, linear_bias)
    probabilities = target.shape == (*x.shape[:-1], *outputs) and target.dtype.is_floating
    if probabilities and ignore_index is not None:
        got = f"ignore_index={ignore_index}"
        raise OptionError(where, "no ignore_index with probabilities", got, "Leave it out.")
    chosen = {
        "weight": weight,
        "ignore_index": -100 if ignore_index is None else ignore_index,
        "label_smoothing": label_smoothing,
    }
    w = reshape(w, (math.prod(outputs), w.shape[-1]))
    bias = None if linear_bias is None else reshape(as_value(linear_bias), (math.prod(outputs),))

    def losses(rows, w, bias, labels, reduction):
        logits = reshape(linear(rows, w, bias), (*rows.shape[:-1], *outputs))
        return cross_entropy(logits, labels, reduction=reduction, **chosen)

    size = None if options is None or x.ndim == 1 else options.rows(*x.shape, outputs[0])
    if size is None or size >= x.shape[0]:
        return losses(x, w, bias, target, reduction)
    each = "none" if reduction == "none" else "sum"
    parts = [
        checkpoint(losses)(x[i : i + size], w, bias, target[i : i + size], each)
        for i in range(0, x.shape[0], size)
    ]
    if reduction == "none":
        return concat(parts)
    total = sum(parts[1:], parts[0])
    if reduction == "sum":
        return total
    return total / mean_divisor(target, probabilities, outputs[0], chosen, total.dtype)


def check_linear(where: str, x: Tensor, w: Tensor, bias: Tensor | None) -> None:
    if x.ndim not in (1, 2) or w.ndim < 2 or x.shape[-1] != w.shape[-1]:
        got = f"{x.shape} and {w.shape}"
        raise ShapeError(where, "input (N, F), linear_weight (C, ..., F)", got, "Reshape them.")
    if x.ndim == 1 and w.ndim > 2:
        expected = f"an input (N, {x.shape[0]}) for linear_weight {w.shape}"
        raise ShapeError(where, expected, x.shape, "Add an axis.")
    if bias is not None:
        check_like(where, "linear_bias", as_value(bias, where=where), w.shape[:-1])


def mean_divisor(
    target: Tensor, probabilities: bool, classes: int, chosen: dict[Any, Any], dtype: Any
) -> Any:
    """The divisor of a cross-entropy's mean: rows, or the weights of targets not ignored."""
    if probabilities:
        return target.size // classes
    counts = target != chosen["ignore_index"]
    share = cast(counts, dtype)
    if chosen["weight"] is not None:
        weight = check_class_weight("linear_cross_entropy", chosen["weight"], classes)
        share = share * cast(gather(weight, choose(counts, target, 0), axis=0), dtype)
    return reduce.sum(share)
