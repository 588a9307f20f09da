"""The transducer's loss (RNN-T): the likelihood of labels emitted between steps over time."""

from typing import Any

from glasshouse.base import DTypeError, OptionError, ShapeError, int64
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, broadcast_to, cast, full, reshape
from glasshouse.dispatch.wide import widen
from glasshouse.nn.checks import REDUCTIONS, check_floating
from glasshouse.nn.functional.ctc import lengths
from glasshouse.nn.functional.lattice import NEVER, over_time
from glasshouse.nn.functional.loss import pick_classes, reduced
from glasshouse.ops.checks import check_option
from glasshouse.ops.movement import concatenate, pad
from glasshouse.tensor import Tensor, arange, exp, log, maximum, permute_dims
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


def rnnt_loss(
    logits: Any,
    targets: Any,
    logit_lengths: Any,
    target_lengths: Any,
    blank: int = -1,
    reduction: str = "mean",
    fused_log_softmax: bool = True,
) -> Any:
    """-log Σ over all ways to emit the target: from a place (t, u) of the lattice either the label
    u + 1, or a blank and on to the next frame; the last frame ends with a blank. Without
    `fused_log_softmax` the logits are log-probabilities already. "mean" is over the batch.
    Elements past the lengths are not read.

    Shapes: logits (N, T, U + 1, C), targets (N, U), lengths (N,) -> (), or (N,) with "none".
    Raises: ShapeError for shapes or lengths that do not fit; DTypeError unless labels and lengths
        are integers; IndexOutOfRangeError for a label outside [0, C).
    Source: Graves 2012, arXiv:1211.3711, eq. 16 to 18.
    Example:
        >>> logits = full((1, 2, 2, 2), 0.0, as_value(1.0).dtype)
        >>> round(rnnt_loss(logits, [[0]], [2], [1]).item(), 4)  # -log(2 ways of 1/8)
        1.3863
    """
    where = "rnnt_loss"
    check_option(where, "reduction", reduction, REDUCTIONS)
    x, y = check_floating(where, logits, "logits"), as_value(targets, where=where)
    if x.ndim != 4 or not x.size or y.shape != (x.shape[0], x.shape[2] - 1):
        expected = "logits (N, T, U + 1, C) and targets (N, U)"
        fix = "Score every frame with every number of labels."
        raise ShapeError(where, expected, f"{x.shape} and {y.shape}", fix)
    n, t, places, classes = x.shape
    if not -classes <= blank < classes:
        raise OptionError(where, f"blank from 0 to {classes - 1}", blank, "Name a class.")
    if not y.dtype.is_integer and y.size:
        raise DTypeError(where, "integer targets", y.dtype.name, "Convert with .long().")
    frames = lengths(where, "logit_lengths", logit_lengths, (n,), t)
    sizes = lengths(where, "target_lengths", target_lengths, (n,), places - 1)
    silent, spoken = steps(where, widen(x), cast(y, int64), sizes, blank, fused_log_softmax)
    reached = diagonals(silent, spoken)  # (T + U, N, U + 1)
    at = arange(reached.shape[0])
    diagonal = reshape(at, (at.size, 1, 1)) == reshape(frames + sizes - 1, (n, 1))
    last = diagonal & (arange(places) == reshape(sizes, (n, 1)))
    return reduced(-reduce.sum(choose(last, reached + silent, 0), axis=(0, 2)), reduction, x.dtype)


def steps(where: str, x: Tensor, y: Tensor, sizes: Tensor, blank: int, fused: bool) -> Any:
    """The log-probabilities of a blank and of the next label at each place, by diagonals."""
    n, t, places, classes = x.shape
    inside = arange(places - 1) < reshape(sizes, (n, 1))
    y = pad(choose(inside, y, 0), widths=((0, 0, 0), (0, 1, 0)), value=0)
    y = broadcast_to(reshape(y, (n, 1, places)), (n, t, places))
    spoken, _, _ = pick_classes(where, x, 3, y, None)
    silent = x[:, :, :, blank]
    if fused:
        total = reduce.logsumexp(x, axis=3)
        spoken, silent = spoken - total, silent - total
    return by_diagonal(silent), by_diagonal(spoken)


def by_diagonal(x: Tensor) -> Tensor:
    """x (N, T, V) with t + v in front: (T + V - 1, N, V), NEVER where there is no such t."""
    n, t, v = x.shape
    rows = pad(permute_dims(x, (0, 2, 1)), widths=((0, 0, 0), (0, 0, 0), (0, v, 0)), value=NEVER)
    rows = reshape(rows, (n, v * (t + v)))[:, : v * (t + v - 1)]  # each row one further on
    return permute_dims(reshape(rows, (n, v, t + v - 1)), (2, 0, 1))


def diagonals(silent: Tensor, spoken: Tensor) -> Tensor:
    """log Σ of all ways to each place, diagonal by diagonal. Shapes: two (D, N, V) -> (D, N, V)."""
    count, n, places = silent.shape
    first = choose(arange(places) == 0, full((), 0, silent.dtype), NEVER)
    first = broadcast_to(first, (n, places))

    def step(state, silent, spoken):
        state = diagonal_step(state, silent, spoken)
        return state, state

    start = reshape(first, (1, n, places))
    if count == 1:
        return start
    (later,) = over_time(step, first, [silent[:-1], spoken[:-1]])
    return concatenate(start, later, axis=0)


@composed
def diagonal_step(state: Tensor, silent: Tensor, spoken: Tensor) -> Tensor:
    """One diagonal on: a blank advances by a frame, a label by a place; all (N, V)."""
    moved = pad((state + spoken)[:, :-1], widths=((0, 0, 0), (1, 0, 0)), value=NEVER)
    return log_add(state + silent, moved)


def log_add(x: Tensor, y: Tensor) -> Tensor:
    top = maximum(x, y).detach()
    return log(exp(x - top) + exp(y - top)) + top
