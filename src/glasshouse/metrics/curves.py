"""Metrics of scores at all thresholds: areas under curves, and how far confidence is right."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.metrics.metric import Metric, check_lengths, to_labels, to_numbers
from glasshouse.ops.checks import check_integer, check_option


class ScoreCurve(Metric):
    """Scores and labels of all samples, for metrics of their order. Scores (N,) are of class 1, and
    labels 0 or 1; scores (N, C) compare each class with the others, and `average` is "macro",
    "weighted" (by how many samples a class has) or None."""

    gathered: dict[Any, Any] = {"scores": [], "labels": []}

    def __init__(self, average: str | None = "macro") -> None:
        name = type(self).__name__
        self.average: Any = check_option(name, "average", average, ("macro", "weighted", None))
        super().__init__()

    def update(self, scores: Any, labels: Any) -> None:
        """Keep scores and true labels: classes (N,), or 0 and 1 for each class (N, C).

        Shapes: scores (N,) or (N, C), labels (N,) or (N, C).
        Raises: ShapeError, DTypeError; IndexOutOfRangeError for a class outside [0, C), OptionError
            for scores that are not finite; nothing is changed then.
        """
        where = f"{type(self).__name__}.update"
        scores = to_numbers(where, "scores", scores).astype(np.float64)
        labels = to_labels(where, "labels", labels)
        if not np.isfinite(scores).all():
            raise OptionError(where, "finite scores", "inf or nan", "Check the model.")
        classes = scores.shape[1] if scores.ndim == 2 else 2
        if labels.shape == scores.shape[:1] and scores.ndim == 2:
            check_range(where, labels, classes)
            labels = (labels[:, None] == np.arange(classes)).astype(np.int64)
        if scores.ndim not in (1, 2) or (
            self.scores and self.scores[0].shape[1:] != scores.shape[1:]
        ):
            raise ShapeError(where, "scores (N,) or (N, C)", scores.shape, "Reshape them.")
        check_lengths(where, scores=scores, labels=labels)
        check_range(where, labels, 2)
        self.scores: list[Any] = [*self.scores, scores]
        self.labels: list[Any] = [*self.labels, labels]

    def area(self, scores: np.ndarray, labels: np.ndarray) -> float:
        """The metric of one class: scores and labels (N,)."""
        raise NotImplementedError(f"{type(self).__name__}: expected area; got none.")

    def value(self) -> Any:
        """The area; nan where a class has no samples, or all of them."""
        if not self.scores:
            return math.nan
        scores, labels = np.concatenate(self.scores), np.concatenate(self.labels)
        if scores.ndim == 1:
            return self.area(scores, labels)
        each = np.array([self.area(s, y) for s, y in zip(scores.T, labels.T, strict=True)])
        if self.average is None:
            return each
        weights = labels.sum(axis=0) if self.average == "weighted" else np.ones(len(each))
        return float((each * weights).sum() / weights.sum()) if weights.sum() else math.nan


def check_range(where: str, labels: np.ndarray, classes: int) -> None:
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        expected = f"labels from 0 to {classes - 1}"
        raise IndexOutOfRangeError(where, expected, outside[0], "Change the labels.")


def thresholds(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(true, false) samples at or above each distinct score, from the highest on."""
    order = np.argsort(-scores, kind="stable")
    scores, labels = scores[order], labels[order]
    ends = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)
    last = ends[: len(scores)]  # of equal scores
    true = np.cumsum(labels)[last]
    return true, last + 1 - true


class ROCAUC(ScoreCurve):
    """The area under the curve of hits against false alarms: how likely a true sample scores above
    a false one, ties counting half.

    Source: Hanley & McNeil 1982.
    Example:
        >>> auc = ROCAUC()
        >>> auc.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> auc.value()
        0.75
    """

    def area(self, scores: np.ndarray, labels: np.ndarray) -> float:
        true, false = thresholds(scores, labels)
        if not len(true) or not true[-1] or not false[-1]:
            return math.nan
        hits, alarms = np.append(0, true / true[-1]), np.append(0, false / false[-1])
        return float(((hits[1:] + hits[:-1]) * np.diff(alarms)).sum() / 2)


class AveragePrecision(ScoreCurve):
    """Σ (recallₙ - recallₙ₋₁) · precisionₙ over falling thresholds, without interpolation.

    Source: standard; scikit-learn.
    Example:
        >>> precision = AveragePrecision()
        >>> precision.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> round(precision.value(), 4)
        0.8333
    """

    def area(self, scores: np.ndarray, labels: np.ndarray) -> float:
        true, false = thresholds(scores, labels)
        if not len(true) or not true[-1]:
            return math.nan
        recall = np.append(0, true / true[-1])
        return float((np.diff(recall) * true / (true + false)).sum())


class CalibrationError(Metric):
    """How far confidence is from accuracy: over bins of confidence, the mean of |accuracy -
    confidence| by samples ("l1"), the root of the mean square ("l2"), or the largest ("max").

    Source: Naeini et al. 2015, "Obtaining well calibrated probabilities using Bayesian binning".
    Example:
        >>> error = CalibrationError(bins=10)
        >>> error.update([[0.1, 0.9], [0.2, 0.8]], [1, 0])
        >>> round(error.value(), 4)  # |1 - 0.9| and |0 - 0.8|, halves
        0.45
    """

    def __init__(self, bins: int = 15, norm: str = "l1") -> None:
        self.bins: int = check_integer("CalibrationError", "bins", bins, 1)
        self.norm: Any = check_option("CalibrationError", "norm", norm, ("l1", "l2", "max"))
        zeros = np.zeros(bins)
        self.gathered: dict[Any, Any] = {"count": zeros, "confidence": zeros, "right": zeros}
        super().__init__()

    def update(self, probabilities: Any, targets: Any) -> None:
        """Take in probabilities (N, C), or (N,) of class 1, and the true classes (N,).

        Raises: ShapeError, DTypeError; OptionError for probabilities outside [0, 1];
            IndexOutOfRangeError for a class out of range.
        """
        where = "CalibrationError.update"
        p = to_numbers(where, "probabilities", probabilities).astype(np.float64)
        targets = to_labels(where, "targets", targets)
        if p.ndim == 1:
            p = np.stack([1 - p, p], axis=1)
        if p.ndim != 2 or p.shape[:1] != targets.shape:
            got = f"{p.shape} and {targets.shape}"
            raise ShapeError(where, "probabilities (N, C) and targets (N,)", got, "Reshape.")
        if not ((p >= 0) & (p <= 1)).all():
            raise OptionError(where, "probabilities from 0 to 1", "others", "Apply a softmax.")
        check_range(where, targets, p.shape[1])
        best = p.max(axis=1)
        at = np.clip(np.ceil(best * self.bins).astype(int) - 1, 0, self.bins - 1)  # (low, high]
        rows = {"count": np.ones(len(best)), "confidence": best, "right": p.argmax(1) == targets}
        for name, weights in rows.items():
            added = np.bincount(at, weights=weights, minlength=self.bins)
            setattr(self, name, getattr(self, name) + added)

    def value(self) -> float:
        """The error, from 0 to 1; nan before the first update."""
        if not self.count.sum():
            return math.nan
        share = self.count / self.count.sum()
        gap = np.abs(self.right - self.confidence) / np.maximum(self.count, 1)
        if self.norm == "max":
            return float(gap.max())
        return float((share * gap).sum() if self.norm == "l1" else (share * gap**2).sum() ** 0.5)
