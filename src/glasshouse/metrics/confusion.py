"""Metrics of classes from the counts of true and predicted ones."""

import math
import numbers
from typing import Any

import numpy as np

from glasshouse.base.errors import IndexOutOfRangeError, ShapeError
from glasshouse.metrics.metric import Metric, to_labels, to_numbers
from glasshouse.ops.checks import check_integer, check_option, check_type

AVERAGES = ("micro", "macro", "weighted", None)


class ConfusionMatrix(Metric):
    """How many samples of each true class (rows) were predicted as each class (columns).
    `normalize` divides by "true" (rows add up to 1), "pred" (columns), or "all".

    Raises: OptionError for num_classes below 1 or another `normalize`.
    Example:
        >>> matrix = ConfusionMatrix(2)
        >>> matrix.update([0, 1, 1], [0, 0, 1])
        >>> matrix.value().tolist()
        [[1, 1], [0, 1]]
    """

    def __init__(
        self,
        num_classes: int | None = None,
        ignore_index: int | None = None,
        normalize: str | None = None,
    ) -> None:
        name = type(self).__name__
        self.num_classes: int = check_integer(name, "num_classes", num_classes, 1)
        self.ignore_index = ignore_index
        self.normalize: Any = check_option(
            name, "normalize", normalize, ("true", "pred", "all", None)
        )
        self.gathered: dict[Any, Any] = {"matrix": np.zeros((num_classes, num_classes), np.int64)}
        super().__init__()

    def update(self, predicted: Any, targets: Any) -> None:
        """Count predicted classes (N, *S), or the best of scores (N, C, *S), against true classes.

        Shapes: predicted (N, *S) or (N, C, *S), targets (N, *S).
        Dtypes: classes integer, scores real.
        Raises: ShapeError, DTypeError, IndexOutOfRangeError for a class outside [0, num_classes);
            nothing is changed then.
        """
        where = f"{type(self).__name__}.update"
        targets = to_labels(where, "targets", targets)
        predicted = to_numbers(where, "predicted", predicted)
        if predicted.shape != targets.shape:
            scores_shape = (*targets.shape[:1], self.num_classes, *targets.shape[1:])
            if predicted.shape != scores_shape:
                expected = f"classes {targets.shape} or scores {scores_shape}"
                fix = "Give one prediction for each target."
                raise ShapeError(where, expected, predicted.shape, fix)
            predicted = predicted.argmax(axis=1)
        predicted = to_labels(where, "predicted", predicted)
        counts = targets != self.ignore_index
        pairs = np.stack([targets[counts], predicted[counts]]).reshape(2, -1)
        outside = pairs[(pairs < 0) | (pairs >= self.num_classes)]
        if outside.size:
            expected = f"classes from 0 to {self.num_classes - 1}"
            fix = "Set ignore_index for labels that mean no class."
            raise IndexOutOfRangeError(where, expected, outside[0], fix)
        size = self.num_classes * self.num_classes
        flat = np.bincount(pairs[0] * self.num_classes + pairs[1], minlength=size)
        self.matrix: np.ndarray = self.matrix + flat.reshape(self.matrix.shape)

    def value(self) -> np.ndarray:
        """The matrix: integers, or shares if normalized (0 where there is nothing)."""
        if self.normalize is None:
            return self.matrix.copy()
        axis = {"true": 1, "pred": 0, "all": None}[self.normalize]
        return ratio(self.matrix, self.matrix.sum(axis=axis, keepdims=True), 0.0)

    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By class: (rightly predicted, predicted, true)."""
        return np.diag(self.matrix), self.matrix.sum(axis=0), self.matrix.sum(axis=1)


def ratio(top: int | np.ndarray, bottom: int | np.ndarray, empty: float) -> np.ndarray:
    """top / bottom, and `empty` where bottom is 0."""
    top, bottom = np.broadcast_arrays(np.asarray(top, float), np.asarray(bottom, float))
    return np.where(bottom == 0, empty, top / np.where(bottom == 0, 1, bottom))


class ClassAverage(ConfusionMatrix):
    """A metric of each class, averaged: "micro" over all samples, "macro" over classes, "weighted"
    by how many samples a class has; None gives one value for each class. `zero_division` stands
    where a class has nothing to divide by."""

    def __init__(
        self,
        num_classes: int | None = None,
        average: str | None = "macro",
        ignore_index: int | None = None,
        zero_division: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index)
        self.average: Any = check_option(type(self).__name__, "average", average, AVERAGES)
        name = type(self).__name__
        fix = "Pass 0, 1 or nan."
        check_type(name, zero_division, numbers.Real, "a number as zero_division", fix)
        self.zero_division: float = float(zero_division)

    def of(self, right: Any, predicted: Any, true: Any) -> tuple[Any, Any]:
        """(numerator, denominator) of the metric."""
        raise NotImplementedError(f"{type(self).__name__}: expected of; got none.")

    def value(self) -> Any:
        """The average, or an array of one value for each class; nan before the first update."""
        parts = self.counts()
        if not parts[2].sum():
            return math.nan if self.average else np.full(self.num_classes, math.nan)
        if self.average == "micro":
            return float(ratio(*self.of(*(part.sum() for part in parts)), self.zero_division))
        each = ratio(*self.of(*parts), self.zero_division)
        if self.average is None:
            return each
        present = parts[1] + parts[2] > 0
        weights = parts[2] if self.average == "weighted" else present
        return float(np.average(each, weights=weights))


class Precision(ClassAverage):
    """right / predicted, by class; classes that neither occur nor are predicted do not count.

    Example:
        >>> precision = Precision(2, average=None)
        >>> precision.update([0, 1, 1], [0, 0, 1])
        >>> precision.value().tolist()
        [1.0, 0.5]
    """

    def of(self, right: Any, predicted: int | np.ndarray, true: int | np.ndarray) -> Any:
        return right, predicted


class Recall(ClassAverage):
    """right / true, by class; classes that neither occur nor are predicted do not count.

    Example:
        >>> recall = Recall(2, average=None)
        >>> recall.update([0, 1, 1], [0, 0, 1])
        >>> recall.value().tolist()
        [0.5, 1.0]
    """

    def of(self, right: Any, predicted: int | np.ndarray, true: int | np.ndarray) -> Any:
        return right, true


class F1(ClassAverage):
    """2 right / (predicted + true), the harmonic mean of precision and recall.

    Source: van Rijsbergen 1979, "Information Retrieval".
    Example:
        >>> f1 = F1(2)
        >>> f1.update([0, 1, 1], [0, 0, 1])
        >>> round(f1.value(), 4)
        0.6667
    """

    def of(self, right: Any, predicted: int | np.ndarray, true: int | np.ndarray) -> Any:
        return 2 * right, predicted + true


class IoU(ClassAverage):
    """right / (predicted + true - right): the intersection over the union of each class's pixels.

    Source: Jaccard 1901.
    Example:
        >>> overlap = IoU(2)
        >>> overlap.update([[0, 1], [1, 1]], [[0, 1], [0, 1]])
        >>> round(overlap.value(), 4)  # (1/2 + 2/3) / 2
        0.5833
    """

    def of(self, right: Any, predicted: int | np.ndarray, true: int | np.ndarray) -> Any:
        return right, predicted + true - right
