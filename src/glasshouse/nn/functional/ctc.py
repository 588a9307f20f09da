"""Connectionist temporal classification: the likelihood of labels without an alignment."""

from typing import Any

import numpy as np

from glasshouse.autograd import Function, is_grad_enabled
from glasshouse.base import DTypeError, IndexOutOfRangeError, OptionError, ShapeError, int64
from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import (
    ArrayLike,
    Value,
    adopt,
    as_value,
    broadcast_to,
    cast,
    full,
    reshape,
)
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import REDUCTIONS, check_floating
from glasshouse.nn.functional.lattice import NEVER, all_paths, best_path, best_step, labelled
from glasshouse.nn.functional.loss import reduced
from glasshouse.ops.checks import check_option
from glasshouse.ops.elementwise import exp, maximum
from glasshouse.ops.index import gather, scatter_add
from glasshouse.ops.movement import concatenate, flip, pad
from glasshouse.tensor import Tensor, arange, zeros
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log Σ Π_t p[t, path_t] over all paths of input_length frames that read as the target once
    repeats are merged and blanks left out; infinite, with gradient 0, if there is no such path.
    "mean" divides each loss by its target's length before the mean over the batch. Elements past
    the lengths are not read. The gradient is computed with the loss, by one recursion over time for
    both directions.

    Shapes: log_probs (T, N, C) or (T, C) of log-probabilities, targets (N, S) or (S,) of labels, or
        those of all sequences one after another (their lengths are read then), lengths (N,) or ()
        of integers -> (), or (N,) or () with reduction "none".
    Raises: ShapeError for shapes or lengths that do not fit; DTypeError unless labels and lengths
        are integers; IndexOutOfRangeError for a label outside [0, C).
    Source: Graves et al. 2006, "Connectionist temporal classification", sec. 4.
    Example:
        >>> lp = gh.log(full((2, 1, 2), 0.5, as_value(1.0).dtype))
        >>> round(ctc_loss(lp, [[1]], [2], [1]).item(), 4)  # -log(3 paths of 1/4)
        0.2877
    """
    check_option("ctc_loss", "reduction", reduction, REDUCTIONS)
    operands = (log_probs, targets, input_lengths, target_lengths)
    x, labels, frames, sizes = with_blanks("ctc_loss", *operands, blank)
    loss = Alignment.apply(widen(x), labels, frames, sizes, blank)
    loss = reduced_by_size(loss, sizes, zero_infinity, reduction, x.dtype)
    return reshape(loss, ()) if as_value(log_probs).ndim == 2 else loss


@composed
def reduced_by_size(
    loss: Tensor, sizes: Tensor, zero_infinity: bool, reduction: str, dtype: DTypeLike
) -> Tensor:
    """The losses (N,) by their targets' sizes where their mean is taken, reduced."""
    if zero_infinity:
        loss = choose(loss == float("inf"), 0, loss)
    if reduction == "mean":
        loss = loss / cast(maximum(sizes, full(sizes.shape, 1, sizes.dtype)), loss.dtype)
    return reduced(loss, reduction, dtype)


def ctc_align(
    log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0
) -> Any:
    """(the most likely path that reads as the target, one label for each frame and -1 after the
    last; the logarithm of its probability, -inf where there is none).

    Shapes: as `ctc_loss` -> (T, N) or (T,), and (N,) or ().
    Raises: as `ctc_loss`.
    Source: Graves et al. 2006, sec. 4; Viterbi 1967.
    Example:
        >>> lp = gh.log(as_value([[[0.3, 0.7]], [[0.6, 0.4]], [[0.2, 0.8]]]))
        >>> path, score = ctc_align(lp, [[1, 1]], [3], [2])
        >>> path.tolist(), round(gh.exp(score).item(), 3)
        ([[1], [0], [1]], 0.336)
    """
    operands = (log_probs, targets, input_lengths, target_lengths)
    x, labels, frames, sizes = with_blanks("ctc_align", *operands, blank)
    emitted = emissions("ctc_align", widen(x), labels)
    t, n, length = emitted.shape
    starts, ends = ends_of(sizes, length)
    begin = full((n, 1), 0, frames.dtype)
    weights, state = lattice(emitted, labels, starts, begin, reshape(arange(t), (t, 1, 1)), blank)
    path, score = best_path(best_step, state, [weights], ends, frames)
    path, score = labelled(path, score, labels, frames)
    return unbatched(log_probs, path, cast(score, x.dtype))


def unbatched(original: Any, path: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """The path (T, N) and score (N,) without N, where `original` has none."""
    if as_value(original).ndim == 2:
        return reshape(path, path.shape[:1]), reshape(score, ())
    return path, score


def with_blanks(
    where: str,
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int,
) -> tuple[Tensor, ...]:
    """(x (T, N, C), labels (N, 2S + 1) with blanks around and between, lengths (N,) of both)."""
    operands = (log_probs, targets, input_lengths, target_lengths)
    x, y, frames, sizes = sequences(where, *operands, "log_probs")
    if not 0 <= blank < x.shape[-1]:
        raise OptionError(where, f"blank from 0 to {x.shape[-1] - 1}", blank, "Name a class.")
    if not y.shape[1]:
        y = full((x.shape[1], 1), blank, y.dtype)
    return x, between_blanks(y, sizes, blank), frames, sizes


@composed
def between_blanks(y: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """Targets (N, S) of these sizes as labels (N, 2S + 1)."""
    y = choose(arange(y.shape[1]) < reshape(sizes, (y.shape[0], 1)), y, blank)
    return pad(y, widths=((0, 0, 0), (1, 1, 1)), value=blank)


def sequences(
    where: str,
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    name: str,
) -> Any:
    """(x (T, N, C), targets (N, S), lengths (N,) of both): batched, padded and checked."""
    x, y = check_floating(where, log_probs, name), as_value(targets, where=where)
    fits = x.ndim in (2, 3) and y.ndim in (1, x.ndim - 1) and x.size
    if not fits or (y.ndim == 2 and y.shape[0] != x.shape[1]):
        expected = f"{name} (T, N, C) and targets (N, S) or joined, or (T, C) and (S,)"
        fix = "Pad the targets to one length; give one frame or more."
        raise ShapeError(where, expected, f"{x.shape} and {y.shape}", fix)
    frames = lengths(where, "input_lengths", input_lengths, x.shape[1:-1], x.shape[0])
    most = y.shape[-1]
    sizes = lengths(where, "target_lengths", target_lengths, x.shape[1:-1], most)
    if not y.dtype.is_integer and y.size:
        raise DTypeError(where, "integer targets", y.dtype.name, "Convert with .long().")
    y = cast(y, int64)
    if x.ndim == 2:
        return reshape(x, (x.shape[0], 1, x.shape[1])), reshape(y, (1, most)), frames, sizes
    return x, split_targets(where, y, sizes) if y.ndim == 1 else y, frames, sizes


def lengths(where: str, name: str, numbers: ArrayLike, batch: tuple[int, ...], most: int) -> Tensor:
    """The lengths (N,) as int64; numbers that are given as such have to fit."""
    counts = [] if isinstance(numbers, Value) else np.asarray(numbers).reshape(-1).tolist()
    value = as_value(numbers, where=where)
    if value.shape not in (batch, batch or (1,)) or any(not 0 <= n <= most for n in counts):
        expected = f"{name} of {batch} numbers from 0 to {most}"
        fix = "Pass the length of each sequence."
        raise ShapeError(where, expected, counts or value.shape, fix)
    if not value.dtype.is_integer:
        raise DTypeError(where, f"integer {name}", value.dtype.name, "Convert with .long().")
    return reshape(cast(value, int64), batch or (1,))


def split_targets(where: str, joined: Tensor, sizes: Tensor) -> Tensor:
    """Targets (N, S) from concatenated targets; reads their lengths."""
    counts = sizes.detach().numpy()
    if counts.sum() != joined.size:
        expected = f"as many joined targets as the lengths say, {counts.sum()}"
        raise ShapeError(where, expected, joined.shape, "Pass the length of each sequence.")
    starts = np.cumsum(counts) - counts
    places = starts[:, None] + np.arange(max(counts.max(initial=0), 0))
    if not joined.size:
        return reshape(joined, (len(counts), 0))
    return gather(joined, adopt(np.minimum(places, joined.size - 1)), axis=0)


class Alignment(Function):
    """-log p(target) of each sequence; forward also computes the values that backward needs."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, blank: Any
    ) -> Tensor:
        needs_grad, emitted = ctx.needs_input_grad[0], emissions("ctc_loss", x, labels)
        loss, *share = align(emitted, labels, frames, sizes, blank, needs_grad)
        if needs_grad:
            ctx.blank = blank
            ctx.save_for_backward(x, labels, frames, sizes, *share)
        return loss

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, labels, frames, sizes, share = ctx.saved_tensors
        if is_grad_enabled():  # for gradients of gradients the shares are a function of x
            emitted = emissions("ctc_loss", x, labels)
            _, share = align(emitted, labels, frames, sizes, ctx.blank, True)
        t, n, c = x.shape
        updates = share * reshape(-g, (1, n, 1))
        grad = scatter_add(zeros((t, n * c), dtype=x.dtype), places(labels, c), updates, axis=1)
        return reshape(grad, x.shape), None, None, None, None


@composed
def places(labels: Tensor, classes: int) -> Tensor:
    """Where the labels (N, L) stand in rows of N · classes; out of range for labels that are."""
    n = labels.shape[0]
    at = labels + reshape(arange(n) * classes, (n, 1))
    return choose((labels < 0) | (labels >= classes), n * classes, at)


@composed
def align(
    emitted: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, blank: int, both: bool
) -> tuple[Tensor, ...]:
    """-log p(target) (N,), and if `both` the probability (T, N, L) that the path is at a label at a
    time, given that it reads as the target; of the log-probabilities (T, N, L) of the labels."""
    t, n, _ = emitted.shape
    starts, ends = ends_of(sizes, labels.shape[1])
    times = reshape(arange(t), (t, 1, 1))
    frames = reshape(frames, (1, n, 1))
    begin = full((n, 1), 0, frames.dtype)
    rows = emitted
    if both:  # the recursion from the end is that from the start of the mirrored problem
        rows = concatenate(emitted, flip(emitted, axes=(0, 2)), axis=1)
        labels = concatenate(labels, flip(labels, axes=(1,)), axis=0)
        starts = concatenate(starts, flip(ends, axes=(1,)), axis=0)
        begin = concatenate(begin, t - reshape(frames, (n, 1)), axis=0)
    reached = follow(rows, labels, starts, begin, times, blank)
    ahead = reached[:, :n]
    last = (times == frames - 1) & ends
    total = reduce.logsumexp(choose(last, ahead, NEVER), axis=(0, 2), keepdims=True)  # (1, N, 1)
    possible = total > NEVER / 2
    loss = choose(possible, -total, float("inf"))
    loss = reshape(choose((frames == 0) & reshape(sizes == 0, (1, n, 1)), 0, loss), (n,))
    if not both:
        return (loss,)
    back = flip(reached[:, n:], axes=(0, 2))
    return loss, exp(choose((times < frames) & possible, ahead + back - emitted - total, NEVER))


def emissions(where: str, x: Tensor, labels: Tensor) -> Tensor:
    """The log-probabilities (T, N, L) of the labels (N, L); -inf would give NaN."""
    t, n, c = x.shape
    try:
        emitted = gather(reshape(x, (t, n * c)), places(labels, c), axis=1)
    except IndexOutOfRangeError:
        got = f"labels from {reduce.min(labels).item()} to {reduce.max(labels).item()}"
        fix = "Change the targets."
        raise IndexOutOfRangeError(where, f"labels from 0 to {c - 1}", got, fix) from None
    return maximum(emitted, full(emitted.shape, NEVER, x.dtype))


def ends_of(sizes: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Where paths begin and where they end (N, L): on a blank or a label."""
    from_end = reshape(sizes * 2, (sizes.size, 1)) - arange(length)  # 1 at the last label
    ends = (from_end == 0) | (from_end == 1)
    return broadcast_to(arange(length) < 2, ends.shape), ends


def follow(
    emitted: Tensor, labels: Tensor, starts: Any, begin: Tensor, times: Tensor, blank: int
) -> Tensor:
    """log of the probability of all ways to be at label l at time t, that label included.

    Shapes: emitted (T, B, L), labels and starts (B, L), begin (B, 1), times (T, 1, 1) -> (T, B, L).
    """
    weights, state = lattice(emitted, labels, starts, begin, times, blank)
    return all_paths(weights, state)


def lattice(
    emitted: Any, labels: Tensor, starts: Any, begin: Tensor, times: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """(the weights (T, B, 3, L) of the steps to each label, the state (B, L) before the first). A
    row waits at its first labels until its time to begin; then each step stays, advances by one
    label, or jumps over a blank between two labels that differ."""
    t, b, length = emitted.shape
    at = arange(length)
    apart = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    jumps = pad(apart, widths=((0, 0, 0), (2, 0, 0)), value=False)
    begun = times > begin  # (T, B, 1)
    ways = (
        choose(times >= begin, emitted, 0),
        choose(begun & (at > 0), emitted, NEVER),
        choose(begun & jumps, emitted, NEVER),
    )
    weights = concatenate(*[reshape(w, (t, b, 1, length)) for w in ways], axis=2)
    return weights, choose(starts, full((), 0, emitted.dtype), NEVER)
