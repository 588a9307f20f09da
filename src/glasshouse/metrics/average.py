"""Running means, variances and counts."""

import math

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.metrics.metric import Metric, to_numbers


class Average(Metric):
    """The weighted mean of all observed values, and their variance.
    mean = sum w x / sum w,   variance = sum w (x - mean)^2 / sum w
    Updated without keeping the values and without cancellation. NaN values give NaN.
    Source: Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm", eq. 2.1.
    Example: >>> loss = Average()
             >>> loss.update(1.0, weight=3)
             >>> loss.update(5.0)
             >>> loss.value(), loss.variance()
             (2.0, 3.0)"""

    gathered = {"weight": 0.0, "mean": 0.0, "squares": 0.0}

    def update(self, value, weight=1.0) -> None:
        """Observe `value`: a number, or every element of an array.
        `weight` is one number for all (e.g. the batch size of a mean loss), or one per element.
        Raises: OptionError for negative or infinite weights, ShapeError if their shape differs,
        DTypeError if either is not numeric; nothing is changed then."""
        x = to_numbers("Average.update", "value", value).astype(np.float64)
        w = to_numbers("Average.update", "weight", weight).astype(np.float64)
        if w.ndim and w.shape != x.shape:
            raise ShapeError("Average.update", f"one weight, or one per value of shape {x.shape}",
                f"weights of shape {w.shape}", "Pass a number or an equal shape.")  # fmt: skip
        if not (np.isfinite(w) & (w >= 0)).all():
            raise OptionError("Average.update", "finite weights >= 0", repr(weight),
                              "Check the weight.")  # fmt: skip
        added = float(np.broadcast_to(w, x.shape).sum())
        if added:
            with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is an honest NaN here
                mean = float((w * x).sum()) / added
                squares = float((w * (x - mean) ** 2).sum())
            self.merge(added, mean, squares)

    def merge(self, weight: float, mean: float, squares: float) -> None:
        """Take in a group of values: total weight, mean, sum of w (x - mean)^2."""
        total = self.weight + weight
        delta = mean - self.mean
        self.squares += squares + delta * delta * self.weight * weight / total
        self.mean += delta * weight / total
        self.weight = total

    def value(self) -> float:
        """The weighted mean; nan before the first update."""
        return self.mean if self.weight else math.nan

    def variance(self) -> float:
        """The weighted population variance; nan before the first update."""
        return self.squares / self.weight if self.weight else math.nan

    def std(self) -> float:
        """The square root of the variance."""
        return math.sqrt(self.variance())


class Count(Metric):
    """The sum of all updates, e.g. of samples or tokens seen."""

    gathered = {"total": 0}

    def update(self, amount=1) -> None:
        """Add a number, or the sum of an array."""
        self.total += to_numbers("Count.update", "amount", amount).sum().item()

    def value(self):
        """The total."""
        return self.total
