"""Sums and maxima over all paths through a lattice of states: one step over time for each loss of
sequences (CTC, ASG, the transducer's), and the way back along the best path.

Everything is in logarithms. A step takes the state before and its own rows, and returns the state
after and the outputs to keep; its computation does not depend on the time."""

from collections.abc import Callable
from typing import Any

from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import broadcast_to, reshape
from glasshouse.ops.elementwise import exp, log
from glasshouse.ops.movement import concatenate, pad, section
from glasshouse.ops.reduce import argmax, max_, sum_
from glasshouse.tensor import Tensor, arange, maximum, take_along_axis, transpose
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce
from glasshouse.transforms import scan

# The logarithm of no probability: finite, for differences, and far below any sum of logarithms.
NEVER = -1e30


def over_time(
    step: Callable[..., Any], state: Tensor, rows: list[Tensor], reverse: bool = False
) -> list[Tensor]:
    """Outputs of `step(state, *rows at a time)`, without the next state, for all times (T, ...)."""

    def at_time(state, row):
        state, *outputs = step(state, *row)
        return state, outputs

    return scan(at_time, state, rows, reverse=reverse)[1]


def ways_to(state: Tensor, weights: Tensor) -> Tensor:
    """The paths that end at each label by a step over k labels, for each k, with their weights.

    Shapes: state (B, L), weights (B, K, L) -> (B, K, L)."""
    b, reach, length = weights.shape
    before = pad(state, widths=((0, 0, 0), (reach - 1, 0, 0)), value=NEVER)
    starts = range(reach - 1, -1, -1)
    ways = [reshape(section(before, 1, i, i + length), (b, 1, length)) for i in starts]
    return concatenate(*ways, axis=1) + weights


@composed
def sum_step(state: Tensor, weights: Tensor) -> Tensor:
    """log Σ exp over all ways to each label: by weights[:, k] from the label k before it.

    Shapes: state (B, L), weights (B, K, L) -> (B, L)."""
    paths = ways_to(state, weights)
    top = max_(paths, axes=(1,)).detach()
    scaled = exp(paths - broadcast_to(reshape(top, (top.shape[0], 1, top.shape[1])), paths.shape))
    return log(sum_(scaled, axes=(1,))) + top


@composed
def best_step(state: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The best of all ways to each label, and the label that it comes from."""
    paths = ways_to(state, weights)
    return max_(paths, axes=(1,)), maximum(arange(state.shape[1]) - argmax(paths, axis=1), 0)


def all_paths(weights: Tensor, state: Tensor) -> Tensor:
    """log Σ of all paths to each label at each time.

    Shapes: weights (T, B, K, L), state (B, L) -> (T, B, L)."""

    def step(state, weights):
        state = sum_step(state, weights)
        return state, state

    return over_time(step, state, [weights])[0]


def at_last(values: Tensor, frames: Tensor) -> Tensor:
    """Values at the last of each row's `frames` (B,). Shapes: (T, B, L) -> (B, L)."""
    t, b, _ = values.shape
    last = reshape(arange(t), (t, 1, 1)) == reshape(frames - 1, (1, b, 1))
    return reduce.sum(choose(last, values, 0), axis=0)


def best_path(step: Any, state: Tensor, rows: list[Tensor], ends: Tensor, frames: Tensor) -> Any:
    """(the best path over labels (T, B) to one of the `ends` (B, L), its score (B,)), where `step`
    gives the best score at each label and the label that it comes from."""

    def with_sources(state, *rows):
        state, source = step(state, *rows)
        return state, state, source

    reached, sources = over_time(with_sources, state, rows)
    final = choose(ends, at_last(reached, frames), NEVER)
    return walked_back(argmax(final, axis=1), sources, frames), reduce.max(final, axis=1)


@composed
def back_step(label: Tensor, source: Tensor, begun: Tensor) -> tuple[Tensor, Tensor]:
    """One step back from labels (B, 1); those whose path has not begun stay where they are."""
    before = choose(begun, take_along_axis(source, label, axis=1), label)
    return before, label


def walked_back(last: Tensor, sources: Tensor, frames: Tensor) -> Tensor:
    """The labels of the best path: `last` (B,) at its last frame, before that those of `sources`
    (T, B, L); after its frames (B,) `last` too. Shapes: -> (T, B)."""
    t, b, _ = sources.shape
    times = reshape(arange(t), (t, 1, 1))
    inside = (times < reshape(frames, (1, b, 1))) & (times > 0)
    (path,) = over_time(back_step, reshape(last, (b, 1)), [sources, inside], reverse=True)
    return reshape(path, (t, b))


def labelled(path: Tensor, score: Tensor, labels: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
    """The labels (B, L) on a path (T, B), -1 after its frames and where there is none."""
    t, b = path.shape
    read = transpose(take_along_axis(labels, transpose(path), axis=1))
    possible = score > NEVER / 2
    inside = (reshape(arange(t), (t, 1)) < frames) & possible
    return choose(inside, read, -1), choose(possible, score, float("-inf"))
