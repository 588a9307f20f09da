"""Updates of weights, and simple operators of ai.onnx.ml."""

from collections.abc import Callable
from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.onnx.table import operator

TRAINING = "ai.onnx.preview.training"
ML = "ai.onnx.ml"


def in_groups(count: int, parts: Any, update: Callable[..., Any]) -> tuple[Any, ...]:
    """Results of an update of each tensor, the new tensors first, then each kind of state.
    `parts` are the tensors, then their gradients, then each kind of state."""
    each = len(parts) // count
    results = [update(*parts[i::each]) for i in range(each)]
    return tuple(value for kind in zip(*results) for value in kind)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Any,
    step: Any,
    *parts: Any,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    rate = rate / (1 + step.astype("float32") * decay_factor)

    def update(x: Any, gradient: Any, squares: Any) -> Any:
        gradient = gradient + norm_coefficient * x
        squares = squares + gradient * gradient
        return x - rate * gradient / (gh.sqrt(squares) + epsilon), squares

    return in_groups(3, parts, update)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Any,
    step: Any,
    *parts: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    t = step.astype("float32")
    corrected = rate * gh.sqrt(1 - beta**t) / (1 - alpha**t)
    rate = gh.where(step > 0, corrected, rate)

    def update(x: Any, gradient: Any, mean: Any, squares: Any) -> Any:
        gradient = gradient + norm_coefficient * x
        mean = alpha * mean + (1 - alpha) * gradient
        squares = beta * squares + (1 - beta) * gradient * gradient
        new = x - rate * mean / (gh.sqrt(squares) + epsilon)
        return (1 - norm_coefficient_post) * new, mean, squares

    return in_groups(4, parts, update)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Any,
    step: Any,
    *parts: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    share = gh.where(step > 0, beta, 1.0)

    def update(x: Any, gradient: Any, velocity: Any) -> Any:
        gradient = gradient + norm_coefficient * x
        velocity = alpha * velocity + share * gradient
        change = gradient + alpha * velocity if mode == "nesterov" else velocity
        return x - rate * change, velocity

    return in_groups(3, parts, update)


@operator("ArrayFeatureExtractor", domain=ML)
def features(x: Any, indices: Any) -> Any:
    chosen = gh.take(x, indices.reshape((-1,)), axis=-1)
    return chosen.reshape((1, -1)) if x.ndim == 1 else chosen


@operator("Binarizer", domain=ML)
def binarize(x: Any, *, threshold: float = 0.0) -> Any:
    return (x > threshold).astype(x.dtype)


@operator("TfIdfVectorizer", static=(0,))
def counts_of_ngrams(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Any,
    ngram_indexes: Any,
    pool_int64s: Any,
    weights: Any = None,
) -> Any:
    """How often each sequence of numbers of a pool stands in a row, perhaps with gaps."""
    grams: dict[tuple[int, ...], int] = {}
    ends = [*ngram_counts, len(pool_int64s)]
    number = 0
    for n, (start, end) in enumerate(zip(ends, ends[1:]), 1):
        for i in range(start, end, n):
            if min_gram_length <= n <= max_gram_length:
                grams[tuple(pool_int64s[i : i + n])] = number
            number += 1
    rows = np.atleast_2d(x).tolist()
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for row, counted in zip(rows, counts):
        for gram, number in grams.items():
            skips = range(1, max_skip_count + 2) if len(gram) > 1 else range(1, 2)
            for skip in skips:
                last = len(row) - (len(gram) - 1) * skip
                result = sum(tuple(row[i::skip][: len(gram)]) == gram for i in range(last))
                counted[ngram_indexes[number]] += result
    scale = np.ones(counts.shape[1], np.float32)
    if weights is not None:
        scale[list(ngram_indexes)] = weights
    if mode == "IDF":
        counts = (counts > 0).astype(np.float32)
    counts = counts if mode == "TF" else counts * scale
    return counts.reshape(-1) if x.ndim == 1 else counts
