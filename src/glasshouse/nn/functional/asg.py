"""The auto segmentation criterion: frames scored by labels and by transitions, without a blank."""

from typing import Any

from glasshouse.base import ShapeError, bool_
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, cast, full, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import REDUCTIONS, check_floating
from glasshouse.nn.functional.ctc import emissions, lengths, sequences, unbatched
from glasshouse.nn.functional.lattice import (
    NEVER,
    all_paths,
    at_last,
    best_path,
    best_step,
    labelled,
    over_time,
)
from glasshouse.nn.functional.loss import reduced
from glasshouse.ops.checks import check_like, check_option
from glasshouse.ops.index import gather
from glasshouse.ops.movement import concatenate, pad
from glasshouse.tensor import Tensor, arange, argmax, broadcast_to, maximum
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


def steps_between(state: Tensor, transitions: Tensor, later: Tensor) -> Tensor:
    """The paths to each label over each label before: state (B, C), transitions (C, C) from and
    to, which count after the first frame -> (B, C, C)."""
    return reshape(state, (*state.shape, 1)) + choose(later, transitions, 0)


@composed
def sum_over_labels(state: Tensor, scores: Tensor, later: Tensor, transitions: Tensor) -> Tensor:
    """log Σ exp of all ways to each label with its score (B, C)."""
    return reduce.logsumexp(steps_between(state, transitions, later), axis=1) + scores


@composed
def best_over_labels(state: Tensor, scores: Tensor, later: Tensor, transitions: Tensor) -> Any:
    """The score of the best way to each label, and the label before."""
    paths = steps_between(state, transitions, later)
    return reduce.max(paths, axis=1) + scores, argmax(paths, axis=1)


def frames_of(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """(the state (N, C) before the first frame, rows of scores and of whether one was before)."""
    t, n, classes = x.shape
    first = choose(arange(classes) == 0, full((), 0, x.dtype), NEVER)
    return broadcast_to(first, (n, classes)), [x, arange(t) > 0]


def with_transitions(where: str, x: Tensor, transitions: Any) -> tuple[Tensor, Tensor]:
    """(the scores, the transitions (C, C)) in one dtype, float32 at least."""
    x, classes = widen(x), x.shape[-1]
    transitions = check_floating(where, transitions, "transitions")
    check_like(where, "transitions", transitions, (classes, classes), "Give one for each pair.")
    return x, cast(transitions, x.dtype)


def asg_loss(
    input: Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    transitions: Any,
    reduction: str = "mean",
) -> Any:
    """log Σ over all label sequences of exp(score) - log Σ over those that read as the target once
    repeats are merged. A sequence's score is Σ_t x[t, l_t] + transitions[l_{t-1}, l_t]. Infinite
    where no sequence reads as the target. A target has no label twice in a row.
    "mean" divides each loss by its target's length before the mean over the batch.

    Shapes: input (T, N, C) or (T, C), targets (N, S), (S,) or joined, lengths (N,) or (),
        transitions (C, C) from and to -> (), or (N,) or () with reduction "none".
    Raises: ShapeError for shapes or lengths that do not fit; DTypeError unless labels and lengths
        are integers; IndexOutOfRangeError for a label outside [0, C).
    Source: Collobert et al. 2016, arXiv:1609.03193, sec. 2.3.
    Example:
        >>> x = as_value([[[0.0, 0.0]], [[0.0, 0.0]]])
        >>> flat = full((2, 2), 0, x.dtype)
        >>> round(asg_loss(x, [[0, 1]], [2], [2], flat, "sum").item(), 4)  # log(4)
        1.3863
    """
    where = "asg_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    operands = (input, targets, input_lengths, target_lengths)
    x, y, frames, sizes = sequences(where, *operands, "input")
    wide, transitions = with_transitions(where, x, transitions)
    loss = all_sequences(wide, frames, transitions)
    if y.shape[1]:
        weights, state, ends = alignments(where, wide, y, sizes, transitions)
        last = choose(ends, at_last(all_paths(weights, state), frames), NEVER)
        total = reduce.logsumexp(last, axis=1)
        loss = choose(total > NEVER / 2, loss - total, float("inf"))
    else:
        loss = full(loss.shape, float("inf"), loss.dtype)
    if reduction == "mean":
        loss = loss / cast(maximum(sizes, 1), loss.dtype)
    loss = reduced(loss, reduction, x.dtype)
    return reshape(loss, ()) if as_value(input).ndim == 2 else loss


def all_sequences(x: Tensor, frames: Tensor, transitions: Tensor) -> Tensor:
    """log Σ of exp(score) over all label sequences: (T, N, C) -> (N,)."""

    def step(state, *rows):
        state = sum_over_labels(state, *rows, transitions)
        return state, state

    state, rows = frames_of(x)
    (reached,) = over_time(step, state, rows)
    return reduce.logsumexp(at_last(reached, frames), axis=1)


def alignments(where: str, x: Tensor, y: Tensor, sizes: Tensor, transitions: Tensor) -> Any:
    """(weights (T, N, 2, S) of staying at each label of the targets and of coming to it, the state
    (N, S) before the first frame, where paths end)."""
    t, n, classes = x.shape
    length = y.shape[1]
    at = arange(length)
    y = choose(at < reshape(sizes, (n, 1)), y, 0)
    emitted = emissions(where, x, y)  # (T, N, S)
    before = pad(y[:, :-1], widths=((0, 0, 0), (1, 0, 0)), value=0)
    flat = reshape(transitions, (classes * classes,))
    stay, come = (gather(flat, p * classes + y, axis=0) for p in (y, before))  # (N, S)
    later = reshape(arange(t), (t, 1, 1)) > 0
    stay = emitted + choose(later, stay, 0)
    come = choose(later & (at > 0), emitted + come, NEVER)
    weights = concatenate(*(reshape(w, (t, n, 1, length)) for w in (stay, come)), axis=2)
    state = broadcast_to(choose(at == 0, full((), 0, x.dtype), NEVER), (n, length))
    return weights, state, at == reshape(sizes - 1, (n, 1))


def asg_align(
    input: Tensor, targets: Any, input_lengths: Any, target_lengths: Any, transitions: Any
) -> Any:
    """(the label sequence of the highest score that reads as the target, -1 after the last frame;
    its score, -inf where there is none): forced alignment.

    Shapes: as `asg_loss` -> (T, N) or (T,), and (N,) or ().
    Raises: as `asg_loss`; ShapeError for a target without labels.
    Source: Viterbi 1967.
    Example:
        >>> x = as_value([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
        >>> path, score = asg_align(x, [0, 1], 3, 2, full((2, 2), 0, x.dtype))
        >>> path.tolist(), score.item()
        ([0, 0, 1], 6.0)
    """
    where = "asg_align"
    operands = (input, targets, input_lengths, target_lengths)
    x, y, frames, sizes = sequences(where, *operands, "input")
    if not y.shape[1]:
        raise ShapeError(where, "targets of a label or more", y.shape, "Leave out empty ones.")
    wide, transitions = with_transitions(where, x, transitions)
    weights, state, ends = alignments(where, wide, y, sizes, transitions)
    path, score = best_path(best_step, state, [weights], ends, frames)
    path, score = labelled(path, score, y, frames)
    return unbatched(input, path, cast(score, x.dtype))


def asg_path(input: Tensor, input_lengths: Any, transitions: Any) -> Any:
    """(the label sequence of the highest score, -1 after the last frame; its score).

    Shapes: input (T, N, C) or (T, C), lengths (N,) or (), transitions (C, C) from and to -> (T, N)
        or (T,), and (N,) or ().
    Raises: ShapeError for shapes or lengths that do not fit.
    Source: Viterbi 1967.
    Example:
        >>> x = as_value([[2.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
        >>> stay = as_value([[0.0, -5.0], [-5.0, 0.0]])
        >>> asg_path(x, 3, stay)[0].tolist()
        [0, 0, 0]
    """
    where = "asg_path"
    x = check_floating(where, input)
    if x.ndim not in (2, 3) or not x.size:
        raise ShapeError(where, "an input (T, N, C) or (T, C)", x.shape, "Give a frame or more.")
    frames = lengths(where, "input_lengths", input_lengths, x.shape[1:-1], x.shape[0])
    x = x if x.ndim == 3 else reshape(x, (x.shape[0], 1, x.shape[1]))
    wide, transitions = with_transitions(where, x, transitions)
    n, classes = x.shape[1:]

    def step(state, *rows):
        return best_over_labels(state, *rows, transitions)

    state, rows = frames_of(wide)
    path, score = best_path(step, state, rows, full((n, classes), True, bool_), frames)
    labels = broadcast_to(arange(classes), (n, classes))
    path, score = labelled(path, score, labels, frames)
    return unbatched(input, path, cast(score, x.dtype))
