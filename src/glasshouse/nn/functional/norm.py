"""Normalisations: over a batch, a layer, groups of channels; of vectors to unit length."""

from collections.abc import Sequence
from math import prod
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, ShapeError, check_shape
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import broadcast_values, cast, full, reshape
from glasshouse.dispatch.wide import rounded_once, widen
from glasshouse.nn.checks import check_divides, check_floating, check_ndim, check_positive
from glasshouse.nn.functional.pool import sum_windows
from glasshouse.ops.checks import check_like
from glasshouse.ops.collective import total_of
from glasshouse.ops.movement import concatenate, pad
from glasshouse.tensor import Tensor, abs, finfo, maximum, sqrt
from glasshouse.tensor.standard import reduce

__all__ = ["batch_norm", "cosine_similarity", "cross_map_lrn2d", "group_norm", "instance_norm",
           "layer_norm", "local_response_norm", "normalize", "rms_norm"]  # fmt: skip


def moments(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, x - mean, biased variance) over `axes`, which are kept with size 1."""
    mean = reduce.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return mean, centred, reduce.mean(centred * centred, axis=axes, keepdims=True)


@composed
def by_batch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, where: str
) -> tuple[Tensor, Tensor, Tensor]:
    x = check_channels(where, input, weight=weight, bias=bias)
    if x.size <= x.shape[1]:
        fix = "Use a larger batch, or eval()."
        raise ShapeError(where, "more than 1 value per channel while training", x.shape, fix)
    mean, centred, var = moments(widen(x), (0, *range(2, x.ndim)))
    return apply_scale(x, centred, var, weight, bias, eps), mean, var


@composed
def by_running(
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    where: str,
) -> Tensor:
    x = check_channels(
        where, input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    wide = widen(x)
    centred = wide - along_channels(running_mean, wide)
    return apply_scale(x, centred, along_channels(running_var, wide), weight, bias, eps)


def check_channels(
    where: str, input: Tensor, option: str = "num_features", /, **per_channel: Any
) -> Tensor:
    """The input as a value (N, C, ...), if each of `per_channel` is None or has C elements."""
    x = check_floating(where, input)
    if x.ndim < 2:
        raise ShapeError(where, "an input (N, C, ...)", x.shape, "Add an axis.")
    for name, value in per_channel.items():
        if value is not None:
            check_like(where, name, value, x.shape[1:2], f"Set {option} to the size of axis 1.")
    return x


def apply_scale(
    x: Tensor, centred: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """centred / √(var + eps) · weight + bias, in the dtype of x."""
    scale = 1 / sqrt(var + eps)
    if weight is not None:
        scale = scale * along_channels(weight, centred)
    return cast(affine_channels(centred * scale, None, bias), x.dtype)


def batch_norm(
    input: Any,
    running_mean: Tensor | None,
    running_var: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
    *,
    _where: str = "batch_norm",
) -> Tensor:
    """(x - mean) / √(var + eps) · weight + bias, per channel (axis 1).
    While training, mean and biased variance are those of the batch, and the running ones move
    towards mean and unbiased variance: running ← (1 - momentum) · running + momentum · new.

    Shapes: input (N, C, ...), the others (C,) -> (N, C, ...).
    Raises: ShapeError for one value per channel while training, or parameters of another size;
        OptionError if there are no running statistics to use.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167, alg. 1 and 2.
    """
    if training:
        statistics = {"running_mean": running_mean, "running_var": running_var}
        x = check_channels(_where, input, **statistics)
        y, mean, var = by_batch(x, weight, bias, eps, _where)
        update_running(running_mean, running_var, mean, var, x.size // x.shape[1], momentum)
        return y
    if running_mean is None or running_var is None:
        fix = "Pass them, or training=True."
        raise OptionError(_where, "running_mean and running_var when not training", "None", fix)
    return by_running(input, running_mean, running_var, weight, bias, eps, _where)


def batch_norm_of_ranks(
    x: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Tensor,
    bias: Any,
    momentum: Any,
    eps: Any,
    group: Any,
) -> Any:
    """`batch_norm` in training by the statistics of the batches of all ranks of a group."""
    axes, wide = (0, *range(2, x.ndim)), widen(x)
    rank_count = full((1,), x.size // x.shape[1], wide.dtype)
    total = total_of(concatenate(reduce.sum(wide, axis=axes), rank_count, axis=0), group)
    count = total[-1:]
    mean = total[:-1] / count
    centred = wide - along_channels(mean, wide)
    var = total_of(reduce.sum(centred * centred, axis=axes), group) / count
    unbiased = var * (count / (count - 1))
    update_running(running_mean, running_var, mean, unbiased, None, momentum)
    return apply_scale(x, centred, along_channels(var, wide), weight, bias, eps)


def along_channels(value: Tensor, x: Tensor) -> Tensor:
    """One number per channel, in the dtype of x and shaped to broadcast along its axis 1."""
    return reshape(cast(value, x.dtype), (1, x.shape[1]) + (1,) * (x.ndim - 2))


def update_running(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    var: Tensor,
    count: int | None,
    momentum: Any,
) -> None:
    """Move the running statistics, in place, towards those of a batch of `count` values; without a
    count the variance is unbiased already."""
    with no_grad():
        unbiased = 1 if count is None else count / (count - 1)
        for running, new, times in ((running_mean, mean, 1), (running_var, var, unbiased)):
            if running is not None:
                new = outside(new.detach(), running.mode)
                running.copy_(moved(running, new, times, momentum))


@composed
def moved(running: Tensor, new: Tensor, times: float, momentum: float) -> Tensor:
    new = new if times == 1 else new * times
    new = reshape(cast(new, running.dtype), running.shape)
    return running * (1 - momentum) + new * momentum


def outside(x: Tensor, mode: Any) -> Tensor:
    """The contents of `x`, a value of a gh.grad or jvp that runs, at the level of `mode`."""
    while x.mode is not None and x.mode is not mode:
        x = x.mode.concrete(x)
    return x


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Any = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    _where: str = "instance_norm",
) -> Any:
    """`batch_norm` with a mean and variance for each sample and channel.
    The running statistics move towards the mean over the samples of theirs.

    Shapes: input (N, C, ...), the others (C,) -> (N, C, ...).
    Source: Ulyanov et al. 2016, arXiv:1607.08022.
    """
    x = check_floating(_where, input)
    if not use_input_stats:
        statistics = (running_mean, running_var)
        return batch_norm(x, *statistics, weight, bias, False, momentum, eps, _where=_where)
    if x.ndim < 3 or prod(x.shape[2:]) < 2:
        fix = "Use a larger input."
        raise ShapeError(_where, "more than 1 spatial element in (N, C, ...)", x.shape, fix)
    mean, centred, var = moments(widen(x), tuple(range(2, x.ndim)))
    new = (reduce.mean(mean, axis=0), reduce.mean(var, axis=0))
    update_running(running_mean, running_var, *new, prod(x.shape[2:]), momentum)
    return cast(affine_channels(centred / sqrt(var + eps), weight, bias), x.dtype)


def affine_channels(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x · weight + bias along axis 1; either may be None."""
    x = x if weight is None else x * along_channels(weight, x)
    return x if bias is None else x + along_channels(bias, x)


@composed
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    _where: str = "layer_norm",
) -> Tensor:
    """(x - mean(x)) / √(var(x) + eps) · weight + bias over the last axes.

    Shapes: input (..., *normalized_shape), weight and bias normalized_shape -> input's.
    Raises: ShapeError if input does not end so.
    Source: Ba et al. 2016, arXiv:1607.06450, eq. 4.
    """
    x, axes = trailing_axes(_where, input, normalized_shape, weight, bias)
    _, centred, var = moments(widen(x), axes)
    y = centred * (1 / sqrt(var + eps))
    y = y if weight is None else y * cast(weight, y.dtype)
    return cast(y if bias is None else y + cast(bias, y.dtype), x.dtype)


def trailing_axes(
    where: str, input: Tensor, normalized_shape: int | Sequence[int], *parameters: Any
) -> Any:
    x, shape = check_floating(where, input), check_shape(where, normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        fix = "Set normalized_shape to the last axes of the input."
        raise ShapeError(where, f"an input that ends in {shape}", x.shape, fix)
    for value in parameters:
        if value is not None:
            check_like(where, "weight and bias", value, shape)
    return x, tuple(range(-len(shape), 0))


@composed
def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    _where: str = "rms_norm",
) -> Tensor:
    """x / √(mean(x²) + eps) · weight over the last axes; eps is the dtype's unless given.

    Shapes: input (..., *normalized_shape), weight normalized_shape -> input's.
    Raises: ShapeError if input does not end so.
    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """
    x, axes = trailing_axes(_where, input, normalized_shape, weight)
    wide = widen(x)
    eps = finfo(wide.dtype).eps if eps is None else eps
    y = wide * (1 / sqrt(reduce.mean(wide * wide, axis=axes, keepdims=True) + eps))
    return cast(y if weight is None else y * cast(weight, y.dtype), x.dtype)


@composed
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    _where: str = "group_norm",
) -> Any:
    """(x - mean) / √(var + eps) · weight + bias, with statistics by sample and group of channels.

    Shapes: input (N, C, ...), weight and bias (C,) -> (N, C, ...).
    Raises: OptionError unless num_groups divides C.
    Source: Wu & He 2018, arXiv:1803.08494, eq. 7.
    """
    x = check_channels(_where, input, "num_channels", weight=weight, bias=bias)
    check_divides(_where, "channels", x.shape[1], "num_groups", num_groups)
    rows = (x.shape[0], num_groups, x.size // max(x.shape[0] * num_groups, 1))
    _, centred, var = moments(reshape(widen(x), rows), (2,))
    y = reshape(centred * (1 / sqrt(var + eps)), x.shape)
    return cast(affine_channels(y, weight, bias), x.dtype)


@composed
@rounded_once
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(‖x‖ₚ, eps) along dim.

    Shapes: any -> the same.
    Source: standard.
    Example:
        >>> normalize([[3.0, 4.0]])
        Tensor([[0.6, 0.8]], dtype=float32)
    """
    x = check_floating("normalize", input)
    return x / norm(x, p, dim, eps)


def norm(x: Tensor, p: float, axis: int | Sequence[int], eps: float) -> Tensor:
    """max(‖x‖ₚ, eps) along `axis`, which is kept; its gradient is 0, not NaN, at x = 0."""
    if p == float("inf"):
        return maximum(reduce.max(abs(x), axis=axis, keepdims=True), eps)
    if p == 2:
        return sqrt(maximum(reduce.sum(x * x, axis=axis, keepdims=True), eps * eps))
    if p == 1:
        return maximum(reduce.sum(abs(x), axis=axis, keepdims=True), eps)
    return maximum(reduce.sum(abs(x) ** p, axis=axis, keepdims=True), eps**p) ** (1 / p)


@composed
@rounded_once
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x₁ · x₂ / (max(‖x₁‖, eps) · max(‖x₂‖, eps)) along dim, which is dropped.

    Shapes: two that broadcast -> theirs without dim.
    Source: standard.
    """
    named_inputs = (("x1", x1), ("x2", x2))
    x1, x2 = (check_floating("cosine_similarity", x, name) for name, x in named_inputs)
    if x1.shape != x2.shape:  # dim is an axis of what they broadcast to
        x1, x2 = broadcast_values("cosine_similarity", x1, x2)
    return reduce.sum((x1 / norm(x1, 2, dim, eps)) * (x2 / norm(x2, 2, dim, eps)), axis=dim)


@composed
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """x / (k + alpha · m)^beta, m the mean of x² over `size` neighbouring channels, zeros outside.

    Shapes: (N, C, ...) -> the same.
    Raises: OptionError for a size below 1; ShapeError for fewer than three axes.
    Source: Krizhevsky et al. 2012, sec. 3.3; the mean in place of the sum as in PyTorch.
    """
    return by_neighbours(
        "local_response_norm", input, (size // 2, (size - 1) // 2), size, alpha, beta, k
    )


@composed
def cross_map_lrn2d(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1
) -> Any:
    """`local_response_norm` over as many channels on both sides, ⌊(size - 1) / 2⌋ of them.
    PyTorch's sums never lose their first channel again; these do.

    Shapes: (N, C, H, W) -> the same.
    Raises: OptionError for a size below 1; ShapeError for another number of axes.
    Source: Krizhevsky et al. 2012, sec. 3.3.
    """
    x = check_floating("cross_map_lrn2d", input)
    check_ndim("cross_map_lrn2d", x, (4,), "(N, C, H, W)")
    side = (size - 1) // 2
    return by_neighbours("cross_map_lrn2d", x, (side, side), size, alpha, beta, k)


def by_neighbours(
    where: str,
    input: Any,
    sides: tuple[int, ...],
    size: int,
    alpha: float,
    beta: float,
    k: float,
) -> Tensor:
    """x / (k + alpha / size · Σ x²)^beta, summed over the channels from one side to the other."""
    x = check_floating(where, input)
    check_positive(where, size=size)
    if x.ndim < 3:
        raise ShapeError(where, "an input (N, C, ...) of 3 axes or more", x.shape, "Add an axis.")
    wide = widen(x)
    widths = ((0, 0, 0), (*sides, 0)) + ((0, 0, 0),) * (x.ndim - 2)
    squares = pad(wide * wide, widths=widths, value=0.0)
    total = sum_windows(squares, 1, sum(sides) + 1, 1)
    return cast(wide / (total * (alpha / size) + k) ** beta, x.dtype)
