"""Connectionist temporal classification: the likelihood of labels without an alignment."""

import numpy as np

from glasshouse.autograd import Function, is_grad_enabled
from glasshouse.base import DTypeError, IndexOutOfRangeError, OptionError, ShapeError, int64
from glasshouse.dispatch.value import Value, as_value, broadcast_to, cast, full, reshape
from glasshouse.nn.checks import REDUCTIONS, check_floating, widened
from glasshouse.nn.functional.loss import reduced
from glasshouse.ops.checks import check_option
from glasshouse.ops.elementwise import exp, log, maximum
from glasshouse.ops.index import gather, scatter_add
from glasshouse.ops.movement import concatenate, flip, pad, slice_
from glasshouse.ops.reduce import max_, sum_
from glasshouse.tensor import arange, reduce, zeros
from glasshouse.tensor import where as choose

# The logarithm of no probability: finite, for differences, and far below any sum of logarithms.
NEVER = -1e30


def ctc_loss(
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    blank=0,
    reduction="mean",
    zero_infinity=False,
):
    """-log Σ Π_t p[t, path_t] over all paths of input_length frames that read as the target once
    repeats are merged and blanks left out; infinite, with gradient 0, where there is no such path.
    "mean" divides each loss by its target's length before the mean over the batch. What lies behind
    the lengths is not read. The gradient comes with the loss, from one recursion over time for both
    directions.

    Shapes: log_probs (T, N, C) or (T, C) of log-probabilities, targets (N, S) or (S,) of labels,
        lengths (N,) or () of integers -> (), or (N,) or () with reduction "none".
    Raises: ShapeError for shapes or lengths that do not fit; DTypeError unless labels and lengths
        are integers; IndexOutOfRangeError for a label outside [0, C).
    Source: Graves et al. 2006, "Connectionist temporal classification", sec. 4.
    Example:
        >>> lp = log(full((2, 1, 2), 0.5, as_value(1.0).dtype))
        >>> round(ctc_loss(lp, [[1]], [2], [1]).item(), 4)  # -log(3 paths of 1/4)
        0.2877
    """
    lengths = (input_lengths, target_lengths)
    x, y, frames, sizes = checked(log_probs, targets, *lengths, blank, reduction)
    single = x.ndim == 2
    if single:
        x, y = reshape(x, (x.shape[0], 1, x.shape[1])), reshape(y, (1, *y.shape))
    batch = (x.shape[1],)
    frames, sizes = reshape(frames, batch), reshape(sizes, batch)
    if not y.shape[1]:
        y = full((*batch, 1), blank, y.dtype)
    y = choose(arange(y.shape[1]) < reshape(sizes, (*batch, 1)), y, blank)
    labels = pad(y, widths=((0, 0, 0), (1, 1, 1)), value=blank)  # blanks around and between
    loss = Alignment.apply(widened(x), labels, frames, sizes, blank)
    if zero_infinity:
        loss = choose(loss == float("inf"), 0, loss)
    if reduction == "mean":
        loss = loss / cast(maximum(sizes, full(batch, 1, sizes.dtype)), loss.dtype)
    loss = reduced(loss, reduction, x.dtype)
    return reshape(loss, ()) if single else loss


def checked(log_probs, targets, input_lengths, target_lengths, blank, reduction) -> list[Value]:
    where = "ctc_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, y = check_floating(where, log_probs, "log_probs"), as_value(targets, where=where)
    if x.ndim not in (2, 3) or y.ndim != x.ndim - 1 or y.shape[:-1] != x.shape[1:-1] or not x.size:
        raise ShapeError(
            where,
            "log_probs (T, N, C) and targets (N, S), or both without N",
            f"{x.shape} and {y.shape}",
            "Pad the targets to one length; give one frame or more.",
        )
    if not 0 <= blank < x.shape[-1]:
        raise OptionError(where, f"blank from 0 to {x.shape[-1] - 1}", blank, "Name a class.")
    integers = {"targets": y}
    given = (
        ("input_lengths", input_lengths, x.shape[0]),
        ("target_lengths", target_lengths, y.shape[-1]),
    )
    for name, lengths, most in given:
        counts = [] if isinstance(lengths, Value) else np.asarray(lengths).reshape(-1).tolist()
        integers[name] = lengths = as_value(lengths, where=where)
        fits = lengths.shape in (x.shape[1:-1], x.shape[1:-1] or (1,))
        if not fits or any(not 0 <= n <= most for n in counts):
            raise ShapeError(
                where,
                f"{name} of {x.shape[1:-1]} numbers from 0 to {most}",
                counts or lengths.shape,
                "Pass the length of each sequence.",
            )
    for name, value in integers.items():
        if not value.dtype.is_integer and value.size:
            raise DTypeError(where, f"integer {name}", value.dtype.name, "Convert with .long().")
    return [x, *(cast(value, int64) for value in integers.values())]


class Alignment(Function):
    """-log p(target) of each sequence; what backward needs is computed beside it."""

    @staticmethod
    def forward(ctx, x, labels, frames, sizes, blank):
        wanted = ctx.needs_input_grad[0]
        loss, share = align(x, labels, frames, sizes, blank, wanted)
        if wanted:
            ctx.blank = blank
            ctx.save_for_backward(x, labels, frames, sizes, share)
        return loss

    @staticmethod
    def backward(ctx, g):
        x, labels, frames, sizes, share = ctx.saved_tensors
        if is_grad_enabled():  # for gradients of gradients the shares are a function of x
            _, share = align(x, labels, frames, sizes, ctx.blank, True)
        t, n, c = x.shape
        updates = share * reshape(-g, (1, n, 1))
        grad = scatter_add(zeros((t, n * c), dtype=x.dtype), places(labels, c), updates, axis=1)
        return reshape(grad, x.shape), None, None, None, None


def places(labels: Value, classes: int) -> Value:
    """Where the labels (N, L) stand in rows of N · classes; out of range for labels that are."""
    n = labels.shape[0]
    at = labels + reshape(arange(n) * classes, (n, 1))
    return choose((labels < 0) | (labels >= classes), n * classes, at)


def align(x, labels, frames, sizes, blank, both: bool):
    """(-log p(target) (N,), and if `both` the probability (T, N, L) that the path is at a label at
    a time, given that it reads as the target)."""
    t, n, c = x.shape
    length = labels.shape[1]
    try:
        emitted = gather(reshape(x, (t, n * c)), places(labels, c), axis=1)  # (T, N, L)
    except IndexOutOfRangeError:
        raise IndexOutOfRangeError(
            "ctc_loss",
            f"labels from 0 to {c - 1}",
            f"labels from {reduce.min(labels).item()} to {reduce.max(labels).item()}",
            "Change the targets.",
        ) from None
    emitted = maximum(emitted, full(emitted.shape, NEVER, x.dtype))  # -inf would give NaN
    at = arange(length)
    behind = reshape(sizes * 2, (n, 1)) - at  # 0 at the last blank, 1 at the last label
    ends = (behind == 0) | (behind == 1)  # (N, L)
    starts = broadcast_to(at < 2, ends.shape)
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
        return loss, None
    back = flip(reached[:, n:], axes=(0, 2))
    return loss, exp(choose((times < frames) & possible, ahead + back - emitted - total, NEVER))


def follow(emitted, labels, starts, begin, times, blank) -> Value:
    """log of the probability of all ways to be at label l at time t, that label included. A row
    waits at its first labels until its time to begin; then each step stays, goes on by one label,
    or jumps over a blank between two labels that differ. Eleven primitives a step.

    Shapes: emitted (T, B, L), labels and starts (B, L), begin (B, 1), times (T, 1, 1) -> (T, B, L).
    """
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
    back = reshape(arange(3), (3, 1))
    source = choose(at > back, at - back, 0)  # (3, L)
    state = choose(reshape(starts, (1, b, length)), full((), 0, emitted.dtype), NEVER)
    reached = []
    for i in range(t):
        step = slice_(weights, starts=(i, 0, 0, 0), stops=(i + 1, b, 3, length), steps=(1,) * 4)
        paths = gather(state, source, axis=2) + step  # (1, B, 3, L)
        top = max_(paths, axes=(2,)).detach()
        scaled = exp(paths - broadcast_to(reshape(top, (1, b, 1, length)), paths.shape))
        state = log(sum_(scaled, axes=(2,))) + top
        reached.append(state)
    return concatenate(*reached, axis=0)
