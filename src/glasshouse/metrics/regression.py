"""Metrics of predicted numbers: errors, explained variance, correlations."""

import math
from typing import Any

import numpy as np

from glasshouse.metrics.metric import Metric, check_lengths, to_numbers

__all__ = ["ExplainedVariance", "MeanAbsoluteError", "MeanSquaredError", "Pearson", "R2",
           "RootMeanSquaredError", "Spearman"]  # fmt: skip


def pairs(where: str, predicted: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    x = to_numbers(where, "predicted", predicted).astype(np.float64)
    y = to_numbers(where, "targets", targets).astype(np.float64)
    check_lengths(where, predicted=x, targets=y)
    return x.reshape(-1), y.reshape(-1)


class PairMetric(Metric):
    """A metric of predicted numbers and true ones, from their means and spreads. These are merged
    without cancellation.

    Source: Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm", eq. 2.1."""

    gathered: dict[Any, Any] = dict.fromkeys(
        ("count", "absolute", "squared", "mean_x", "mean_y", "xx", "yy", "xy"), 0.0
    )

    def update(self, predicted: Any, targets: Any) -> None:
        """Take in predicted numbers and true ones, of one shape.

        Raises: ShapeError, DTypeError; nothing is changed then.
        """
        x, y = pairs(f"{type(self).__name__}.update", predicted, targets)
        if not x.size:
            return
        dx, dy = x - x.mean(), y - y.mean()
        values = (
            float(x.size),
            np.abs(x - y).sum(),
            ((x - y) ** 2).sum(),
            x.mean(),
            y.mean(),
            (dx * dx).sum(),
            (dy * dy).sum(),
            (dx * dy).sum(),
        )
        self.merge(dict(zip(self.gathered, map(float, values), strict=True)))

    def merge(self, state: dict[Any, Any]) -> None:
        """Take in the `state()` of another such metric, of other data."""
        self.check_state(state)
        total = self.count + state["count"]
        if not state["count"]:
            return
        share, both = state["count"] / total, self.count * state["count"] / total
        dx, dy = state["mean_x"] - self.mean_x, state["mean_y"] - self.mean_y
        self.xx += state["xx"] + dx * dx * both
        self.yy += state["yy"] + dy * dy * both
        self.xy += state["xy"] + dx * dy * both
        self.mean_x += dx * share
        self.mean_y += dy * share
        self.absolute += state["absolute"]
        self.squared += state["squared"]
        self.count = total

    def of(self) -> float:
        """The metric, where there are samples."""
        raise NotImplementedError(f"{type(self).__name__}: expected of; got none.")

    def value(self) -> float:
        """The metric of all samples; nan before the first."""
        return float(self.of()) if self.count else math.nan


def share(top: float, bottom: float) -> float:
    """1 - top / bottom; 1 where both are 0, 0 where only bottom is."""
    if not bottom:
        return 0.0 if top else 1.0
    return 1 - top / bottom


class MeanSquaredError(PairMetric):
    """Σ (x - y)² / n.

    Example:
        >>> error = MeanSquaredError()
        >>> error.update([1.0, 2.0], [1.0, 4.0])
        >>> error.value()
        2.0
    """

    def of(self) -> float:
        return self.squared / self.count


class RootMeanSquaredError(PairMetric):
    """√(Σ (x - y)² / n)."""

    def of(self) -> float:
        return math.sqrt(self.squared / self.count)


class MeanAbsoluteError(PairMetric):
    """Σ |x - y| / n."""

    def of(self) -> float:
        return self.absolute / self.count


class R2(PairMetric):
    """1 - Σ (x - y)² / Σ (y - mean(y))², the coefficient of determination.

    Example:
        >>> score = R2()
        >>> score.update([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
        >>> round(score.value(), 4)
        0.7857
    """

    def of(self) -> float:
        return share(self.squared, self.yy)


class ExplainedVariance(PairMetric):
    """1 - var(y - x) / var(y): as R², but blind to a constant offset."""

    def of(self) -> float:
        return share(max(self.xx + self.yy - 2 * self.xy, 0.0), self.yy)


class Pearson(PairMetric):
    """cov(x, y) / (std(x) std(y)): how well a line fits; nan where either is constant."""

    def of(self) -> float:
        spread = math.sqrt(self.xx) * math.sqrt(self.yy)
        return max(-1.0, min(1.0, self.xy / spread)) if spread else math.nan


class Spearman(Metric):
    """Pearson's correlation of the ranks, equal values having the mean of theirs.

    Source: Spearman 1904.
    Example:
        >>> order = Spearman()
        >>> order.update([1.0, 2.0, 3.0], [1.0, 4.0, 9.0])
        >>> round(order.value(), 6)
        1.0
    """

    predicted: list[Any]
    targets: list[Any]

    gathered: dict[Any, Any] = {"predicted": [], "targets": []}

    def update(self, predicted: Any, targets: Any) -> None:
        """Keep predicted numbers and true ones, of one shape.

        Raises: ShapeError, DTypeError; nothing is changed then.
        """
        x, y = pairs("Spearman.update", predicted, targets)
        self.predicted, self.targets = [*self.predicted, x], [*self.targets, y]

    def value(self) -> float:
        """From -1 to 1; nan before the second sample, and where either is constant."""
        if not self.predicted:
            return math.nan
        of_ranks = Pearson()
        of_ranks.update(*(ranks(np.concatenate(v)) for v in (self.predicted, self.targets)))
        return of_ranks.value()


def ranks(x: np.ndarray) -> np.ndarray:
    """The place of each value in their order, from 1; equal ones have the mean of theirs."""
    _, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]
