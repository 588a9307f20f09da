"""Losses with a margin: of scores, of classes, of distances between embeddings."""

from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, broadcast_values, cast, reshape
from glasshouse.dispatch.wide import rounded_once
from glasshouse.nn.checks import REDUCTIONS, check_callable, check_floating
from glasshouse.nn.functional.activation import exact_softplus, logsigmoid
from glasshouse.nn.functional.distance import pairwise_distance
from glasshouse.nn.functional.loss import check_class_weight, operands, pick_classes, reduced
from glasshouse.ops.checks import check_option
from glasshouse.ops.index import gather
from glasshouse.tensor import Tensor, arange, cumulative_sum, minimum, sqrt
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce
from glasshouse.tensor.standard.index import take_along_axis

__all__ = ["contrastive_loss", "cosine_embedding_loss", "hinge_embedding_loss",
           "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss",
           "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss",
           "triplet_margin_with_distance_loss"]  # fmt: skip


def hinge(x: Tensor) -> Tensor:
    """max(0, x), with slope 1 at 0 as PyTorch has it."""
    return choose(x < 0, 0, x)


def floating(where: str, reduction: str, **inputs: Any) -> list[Tensor]:
    """The given values, floating and of shapes that broadcast, as values of one shape."""
    check_option(where, "reduction", reduction, REDUCTIONS)
    return list(broadcast_values(where, *(check_floating(where, x, n) for n, x in inputs.items())))


def signs(where: str, target: Tensor, shape: Any) -> Tensor:
    target = as_value(target, where=where)
    if target.shape != tuple(shape):
        fix = "Give 1 or -1 for each."
        raise ShapeError(where, f"a target of {tuple(shape)}", target.shape, fix)
    return target


@composed
@rounded_once
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """max(0, -y · (x1 - x2) + margin): y = 1 wants x1 above x2, y = -1 below.

    Shapes: three that broadcast -> (), or theirs with reduction "none".
    Raises: OptionError for an unknown reduction.
    Source: standard.
    Example:
        >>> margin_ranking_loss([1.0], [3.0], [1]).item()
        2.0
    """
    where = "margin_ranking_loss"
    x1, x2 = floating(where, reduction, input1=input1, input2=input2)
    difference, target = broadcast_values(where, x1 - x2, as_value(target, where=where))
    return reduced(hinge(margin - target * difference), reduction)


@composed
@rounded_once
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """x where y = 1, max(0, margin - x) where y = -1: x is a distance.

    Shapes: two equal ones -> ().
    Raises: ShapeError for unequal shapes.
    Source: standard.
    """
    x, target = operands("hinge_embedding_loss", input, target, reduction)
    apart = choose(target != 1, hinge(margin - x), 0)
    return reduced(apart + choose(target != -1, x, 0), reduction)


@composed
@rounded_once
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Any:
    """log(1 + exp(-y · x)) with y = 1 or -1, without overflow.

    Shapes: two equal ones -> ().
    Raises: ShapeError for unequal shapes.
    Source: standard.
    """
    x, target = operands("soft_margin_loss", input, target, reduction)
    return reduced(exact_softplus(-target * x), reduction)


@composed
@rounded_once
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Any:
    """-mean over classes of weight · (y log σ(x) + (1 - y) log σ(-x)).

    Shapes: input and target (..., C), weight broadcasting -> (), or (...) with reduction "none".
    Raises: ShapeError for unequal shapes.
    Source: standard.
    """
    where = "multilabel_soft_margin_loss"
    x, target = operands(where, input, target, reduction)
    if not x.ndim:
        raise ShapeError(where, "an input (..., C)", x.shape, "Add an axis.")
    loss = -(target * logsigmoid(x) + (1 - target) * logsigmoid(-x))
    loss = loss if weight is None else loss * as_value(weight, where=where)
    return reduced(reduce.mean(loss, axis=-1), reduction)


@rounded_once
def multi_margin_loss(
    input: Tensor,
    target: Any,
    p: int = 1,
    margin: Any = 1.0,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """Σ_{j ≠ y} weight[y] · max(0, margin - x[y] + x[j])^p / C of scores x and class indices y.

    Shapes: input (N, C) or (C,), target (N,) or () -> (), or target's with reduction "none".
    Raises: OptionError unless p is 1 or 2; ShapeError, DTypeError for a target that does not fit;
        IndexOutOfRangeError for a class outside [0, C).
    Source: Crammer & Singer 2001, "On the algorithmic implementation of multiclass SVMs".
    """
    where = "multi_margin_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    check_option(where, "p", p, (1, 2))
    x, target = check_floating(where, input), as_value(target, where=where)
    if x.ndim not in (1, 2):
        raise ShapeError(where, "an input (N, C) or (C,)", x.shape, "Reshape it.")
    classes = x.shape[-1]
    weight = check_class_weight(where, weight, classes)
    target_scores, index, _ = pick_classes(where, x, x.ndim - 1, target, None)
    column = (*target.shape, 1)
    short = hinge(margin - reshape(target_scores, column) + x)
    loss = short if p == 1 else short * short
    if weight is not None:
        loss = loss * cast(reshape(gather(weight, index, axis=0), column), x.dtype)
    others = arange(classes) != reshape(index, column)
    return reduced(reduce.sum(choose(others, loss, 0), axis=-1) / classes, reduction)


@rounded_once
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Any:
    """Σ_{y, j} max(0, 1 - x[y] + x[j]) / C over the labels y of a sample and all classes j that
    are none of them. A target lists the labels; -1 ends the list.

    Shapes: input and target (N, C) or (C,) -> (), or (N,) or () with reduction "none".
    Raises: ShapeError, DTypeError for a target that does not fit; IndexOutOfRangeError.
    Source: standard.
    """
    where = "multilabel_margin_loss"
    x, target = operands(where, input, target, reduction)
    if x.ndim not in (1, 2):
        raise ShapeError(where, "an input (N, C) or (C,)", x.shape, "Reshape it.")
    if not target.dtype.is_integer:
        raise DTypeError(where, "integer class indices", target.dtype.name, "Use target.long().")
    classes = x.shape[-1]
    listed = cumulative_sum(cast(target == -1, target.dtype), axis=-1) == 0
    index = choose(listed, choose(target < 0, target - classes, target), 0)
    label_scores = reshape(take_along_axis(x, index, axis=-1), (*x.shape, 1))  # (..., labels, 1)
    listed = reshape(listed, label_scores.shape)
    labels = reduce.any(listed & (reshape(index, label_scores.shape) == arange(classes)), axis=-2)
    rows = (*x.shape[:-1], 1, classes)
    counts = listed & ~reshape(labels, rows)  # (..., labels, C)
    loss = choose(counts, hinge(1 - label_scores + reshape(x, rows)), 0)
    return reduced(reduce.sum(loss, axis=(-2, -1)) / classes, reduction)


@composed
@rounded_once
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """1 - cos where y = 1, max(0, cos - margin) where y = -1.

    Shapes: inputs (N, D), target (N,), or (D,) and () -> (), or target's with reduction "none".
    Raises: ShapeError for shapes that do not fit.
    Source: standard; PyTorch (1e-12 beside the squared norms).
    """
    where = "cosine_embedding_loss"
    x1, x2 = floating(where, reduction, input1=input1, input2=input2)
    if x1.ndim not in (1, 2):
        raise ShapeError(where, "inputs (N, D) or (D,)", x1.shape, "Reshape them.")
    target = signs(where, target, x1.shape[:-1])
    squares = (reduce.sum(x * x, axis=-1) + 1e-12 for x in (x1, x2))
    first, second = squares
    cosine = reduce.sum(x1 * x2, axis=-1) / sqrt(first * second)
    alike = choose(target == 1, 1 - cosine, 0)
    return reduced(alike + choose(target == -1, hinge(cosine - margin), 0), reduction)


@composed
@rounded_once
def contrastive_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """d² / 2 where y = 1, max(0, margin - d)² / 2 where y = -1, d = ‖x1 - x2‖.

    Shapes: inputs (N, D), target (N,), or (D,) and () -> (), or target's with reduction "none".
    Raises: ShapeError for shapes that do not fit, OptionError unless margin > 0.
    Source: Hadsell, Chopra & LeCun 2006, eq. 4.
    Example:
        >>> contrastive_loss([[0.0, 0.0]], [[3.0, 4.0]], [-1], margin=6.0).item()
        0.5
    """
    where = "contrastive_loss"
    check_margin(where, margin)
    x1, x2 = floating(where, reduction, input1=input1, input2=input2)
    if x1.ndim not in (1, 2):
        raise ShapeError(where, "inputs (N, D) or (D,)", x1.shape, "Reshape them.")
    target = signs(where, target, x1.shape[:-1])
    distance = pairwise_distance(x1, x2, 2.0, 0.0)
    short = hinge(margin - distance)
    square = reduce.sum((x1 - x2) * (x1 - x2), axis=-1)
    loss = choose(target == 1, square, 0) + choose(target == -1, short * short, 0)
    return reduced(loss / 2, reduction)


def check_margin(where: str, margin: float) -> None:
    if not margin > 0:
        raise OptionError(where, "margin above 0", repr(margin), "Change margin.")


@composed
@rounded_once
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: int = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d = ‖· - · + eps‖ₚ; with `swap`
    the second distance is the smaller of d(anchor, negative) and d(positive, negative).

    Shapes: three that broadcast to (..., D) -> (), or (...) with reduction "none".
    Raises: OptionError unless margin > 0; ShapeError for unequal numbers of axes.
    Source: Balntas et al. 2016, "Learning shallow convolutional feature descriptors".
    """
    where = "triplet_margin_loss"

    def distance(x, y):
        return pairwise_distance(x, y, p, eps)

    return by_distance(where, (anchor, positive, negative), distance, margin, swap, reduction)


@rounded_once
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[..., Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """`triplet_margin_loss` with a distance of one's own; by default `pairwise_distance`.

    Shapes: three (N, ...) -> (), or the distance's with reduction "none".
    Raises: DTypeError for a distance that is no function, OptionError unless margin > 0.
    Source: PyTorch.
    Example:
        >>> far = lambda x, y: reduce.max(x - y, axis=-1)
        >>> given = [[2.0]], [[1.0]], [[0.0]]
        >>> triplet_margin_with_distance_loss(*given, distance_function=far).item()
        0.0
    """
    where = "triplet_margin_with_distance_loss"
    distance = pairwise_distance if distance_function is None else distance_function
    check_callable(where, "distance_function", distance)
    return by_distance(where, (anchor, positive, negative), distance, margin, swap, reduction)


def by_distance(
    where: str, inputs: tuple[Tensor, ...], distance: Any, margin: float, swap: bool, reduction: str
) -> Tensor:
    check_option(where, "reduction", reduction, REDUCTIONS)
    check_margin(where, margin)
    names = ("anchor", "positive", "negative")
    anchor, positive, negative = (
        check_floating(where, x, name) for x, name in zip(inputs, names, strict=True)
    )
    if not anchor.ndim == positive.ndim == negative.ndim:
        shapes = f"{anchor.shape}, {positive.shape} and {negative.shape}"
        raise ShapeError(where, "inputs of as many axes", shapes, "Reshape them.")
    away = distance(anchor, negative)
    if swap:
        away = minimum(away, distance(positive, negative))
    return reduced(hinge(margin + distance(anchor, positive) - away), reduction)
