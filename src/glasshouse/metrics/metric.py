"""The base of all metrics, the checks of what they are given; running means, variances, counts."""

import math
import numbers

import numpy as np

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, ShapeError, type_name
from glasshouse.dispatch.value import Value


class Metric:
    """A number gathered over many updates: `update(…)`, `value()`, `reset()`. Subclasses list the
    attributes that hold it, with their starting values, in `gathered`: they make up the state."""

    gathered: dict = {}

    def __init__(self):
        self.reset()

    def reset(self) -> None:
        """Forget all updates."""
        vars(self).update(self.gathered)

    def update(self, *args) -> None:
        """Take in new observations."""
        raise NotImplementedError(f"{type(self).__name__}: expected update; got none.")

    def value(self):
        """The metric of all updates since the last reset; nan before the first."""
        raise NotImplementedError(f"{type(self).__name__}: expected value; got none.")

    def state_dict(self) -> dict:
        """What was gathered so far, as plain numbers."""
        return {name: getattr(self, name) for name in self.gathered}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state`.

        Raises: CheckpointError if it is not the state of such a metric; nothing is changed then.
        """
        fits = isinstance(state, dict) and set(state) == set(self.gathered)
        if not (fits and all(isinstance(v, numbers.Real | None) for v in state.values())):
            raise CheckpointError(
                type(self).__name__,
                f"numbers for {sorted(self.gathered)}",
                repr(state),
                "Pass what state_dict() returned.",
            )
        vars(self).update(state)

    def __repr__(self):
        value = self.value()
        shown = f"{value:.6g}" if isinstance(value, (int, float)) else value
        return f"{type(self).__name__}({shown})"


def to_numbers(where: str, name: str, x) -> np.ndarray:
    try:
        array = x.detach().numpy() if isinstance(x, Value) else np.asarray(x)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind in "OUSMmc":
        got = f"{type_name(x)} {str(x)[:40]!r}" if array.dtype.kind in "OUS" else str(array.dtype)
        raise DTypeError(where, f"{name} to be real numbers", got, "Convert it.")
    return array


def to_labels(where: str, name: str, x) -> np.ndarray:
    array = to_numbers(where, name, x)
    if array.size and array.dtype.kind not in "iub":
        raise DTypeError(where, f"{name} to be integer class numbers", array.dtype, "Cast it.")
    return array.astype(np.int64)


class Average(Metric):
    """The weighted mean of all observed values, and their variance.

        mean = sum w x / sum w
        variance = sum w (x - mean)^2 / sum w

    Updated without keeping the values and without cancellation. NaN values give NaN.

    Source: Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm", eq. 2.1.
    Example:
        >>> loss = Average()
        >>> loss.update(1.0, weight=3)
        >>> loss.update(5.0)
        >>> loss.value(), loss.variance()
        (2.0, 3.0)
    """

    gathered = {"weight": 0.0, "mean": 0.0, "squares": 0.0}

    def update(self, value, weight=1.0) -> None:
        """Observe `value`: a number, or every element of an array.
        `weight` is one number for all (e.g. the batch size of a mean loss), or one per element.

        Raises: OptionError for negative or infinite weights, ShapeError if their shape differs,
            DTypeError if either is not numeric; nothing is changed then.
        """
        x = to_numbers("Average.update", "value", value).astype(np.float64)
        w = to_numbers("Average.update", "weight", weight).astype(np.float64)
        if w.ndim and w.shape != x.shape:
            raise ShapeError(
                "Average.update",
                f"one weight, or one per value of shape {x.shape}",
                f"weights of shape {w.shape}",
                "Pass a number or an equal shape.",
            )
        if not (np.isfinite(w) & (w >= 0)).all():
            raise OptionError("Average.update", "finite weights >= 0", repr(weight), "Check it.")
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
    """The sum of all updates, e.g. of samples or tokens."""

    gathered = {"total": 0}

    def update(self, amount=1) -> None:
        """Add a number, or the sum of an array."""
        self.total += to_numbers("Count.update", "amount", amount).sum().item()

    def value(self):
        """The total."""
        return self.total
