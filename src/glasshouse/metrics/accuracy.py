"""Accuracy of class predictions."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import IndexOutOfRangeError, ShapeError
from glasshouse.metrics.metric import Metric, to_labels, to_numbers
from glasshouse.ops.checks import check_integer


class TopK(Metric):
    """The share of samples whose true class is among the `k` highest scores.
    Of equal scores the lower class number comes first; a NaN score counts as the lowest, and a true
    class that scores NaN is a miss.

    Raises: OptionError if k is no integer of 1 or more.
    Example:
        >>> top2 = TopK(2)
        >>> top2.update([[0.1, 0.7, 0.2], [0.1, 0.7, 0.2]], [2, 0])
        >>> top2.value()
        0.5
    """

    gathered: dict[Any, Any] = {"correct": 0, "total": 0}

    def __init__(self, k: int = 5, ignore_index: int | None = None) -> None:
        super().__init__()
        self.k: int = check_integer("TopK", "k", k, 1)
        self.ignore_index = ignore_index

    def update(self, scores: Any, targets: Any) -> None:
        """Compare `scores` (logits or probabilities) with the true classes but `ignore_index`.

        Shapes: scores (N, C, *S), targets (N, *S).
        Dtypes: scores real, targets integer.
        Raises: ShapeError if the shapes do not fit or C < k, IndexOutOfRangeError for a class
            outside [0, C), DTypeError for other types; nothing is changed then.
        """
        where = f"{type(self).__name__}.update"
        targets = to_labels(where, "targets", targets)
        scores = to_numbers(where, "scores", scores)
        if scores.ndim < 2 or scores.shape[:1] + scores.shape[2:] != targets.shape:
            expected = "scores (N, C, *S) and targets (N, *S)"
            fix = "Give one score per class, classes on axis 1."
            raise ShapeError(where, expected, f"{scores.shape} and {targets.shape}", fix)
        scores = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1])  # (M, C)
        counts, num_classes = targets.reshape(-1) != self.ignore_index, scores.shape[1]
        scores, targets = scores[counts], targets.reshape(-1)[counts]
        if self.k > num_classes:
            raise ShapeError(where, f"k = {self.k} classes", num_classes, "Lower k.")
        outside = targets[(targets < 0) | (targets >= num_classes)]
        if outside.size:
            expected = f"classes from 0 to {num_classes - 1}"
            fix = "Set ignore_index for labels that mean no class."
            raise IndexOutOfRangeError(where, expected, outside[0], fix)
        self.correct += int((rank_of(scores, targets) < self.k).sum())
        self.total += len(targets)

    def value(self) -> float:
        """The share of hits, from 0 to 1; nan before the first update."""
        return self.correct / self.total if self.total else math.nan


def rank_of(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """How many classes come before the true one: higher scores, and equal ones of lower number."""
    scores = scores.astype(np.float64)
    target_scores = scores[np.arange(len(targets)), targets][:, None]  # (M, 1)
    earlier = np.arange(scores.shape[1]) < targets[:, None]
    rank = ((scores > target_scores) | ((scores == target_scores) & earlier)).sum(axis=1)
    return np.where(np.isnan(target_scores[:, 0]), scores.shape[1], rank)


class Accuracy(TopK):
    """The share of samples whose highest score is the true class.

    Example:
        >>> accuracy = Accuracy()
        >>> accuracy.update([[2.0, 1.0], [0.0, 3.0]], [0, 0])
        >>> accuracy
        Accuracy(0.5)
    """

    def __init__(self, ignore_index: int | None = None) -> None:
        super().__init__(1, ignore_index)

    def update(self, scores: Any, targets: Any) -> None:
        """Compare scores (N, C, *S), or predicted classes (N, *S), with the true classes (N, *S).

        Shapes: scores (N, C, *S) or (N, *S), targets (N, *S).
        Dtypes: scores real; predicted classes and targets integer.
        Raises: as TopK.update.
        """
        where = "Accuracy.update"
        targets = to_labels(where, "targets", targets)
        scores = to_numbers(where, "scores", scores)
        if scores.shape != targets.shape:
            super().update(scores, targets)
            return
        counts = targets != self.ignore_index
        hits = to_labels(where, "predicted classes", scores) == targets
        self.correct += int((hits & counts).sum())
        self.total += int(np.sum(counts))
