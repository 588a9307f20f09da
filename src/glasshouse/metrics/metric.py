"""The base of all metrics, the checks of their arguments; running means, variances, counts."""

import math
import numbers
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, ShapeError, type_name
from glasshouse.dispatch.value import Value


class Metric:
    """A number gathered over many updates: `update(…)`, `value()`, `reset()`. Subclasses list the
    attributes that hold it, with their starting values, in `gathered`: numbers, arrays, or lists of
    arrays. They make up the state, and the state of two parts of the data is their sum."""

    gathered: dict[Any, Any] = {}

    if TYPE_CHECKING:  # states of subclasses are attributes

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all updates."""
        vars(self).update({name: copy(value) for name, value in self.gathered.items()})

    def update(self, *args: Any) -> None:
        """Take in new observations."""
        raise NotImplementedError(f"{type(self).__name__}: expected update; got none.")

    def value(self) -> Any:
        """The metric of all updates since the last reset; nan before the first."""
        raise NotImplementedError(f"{type(self).__name__}: expected value; got none.")

    def state(self) -> dict[Any, Any]:
        """State gathered so far: numbers, arrays and lists of arrays, to be merged elsewhere."""
        return {name: copy(getattr(self, name)) for name in self.gathered}

    def merge(self, state: dict[Any, Any]) -> None:
        """Take in the `state()` of another such metric, of other data: numbers and arrays are
        added, lists joined. The value is then that of both data, in whatever order.

        Raises: CheckpointError if it is not the state of such a metric; nothing is changed then.
        """
        self.check_state(state)
        vars(self).update({name: getattr(self, name) + value for name, value in state.items()})

    def synced(self, all_gather: Callable[..., Any]) -> "Metric":
        """A metric of the data of all processes, which call this together; this one stays as it is.
        `all_gather(state)` returns the states of all, as `gh.distributed.all_gather_object` does.

        Raises: CheckpointError if one is not the state of such a metric.
        Example:
            >>> Count().synced(lambda state: [state, {"total": 3}]).value()
            3
        """
        first, *others = all_gather(self.state())
        total = copy(self)
        total.load_state_dict(first)
        for state in others:
            total.merge(state)
        return total

    def check_state(self, state: Any) -> None:
        fits = isinstance(state, dict) and set(state) == set(self.gathered)
        if not (fits and all(is_like(self.gathered[k], v) for k, v in state.items())):
            expected = f"numbers for {sorted(self.gathered)}"
            fix = "Pass the state of such a metric."
            raise CheckpointError(type(self).__name__, expected, repr(state), fix)

    def state_dict(self) -> dict[Any, Any]:
        """State gathered so far, as plain numbers and lists."""
        return {name: plain(value) for name, value in self.state().items()}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Continue from `state`.

        Raises: CheckpointError if it is not the state of such a metric; nothing is changed then.
        """
        if isinstance(state, dict):
            state = {name: undo_plain(self.gathered.get(name), v) for name, v in state.items()}
        self.check_state(state)
        vars(self).update(state)

    def __repr__(self) -> str:
        value = self.value()
        shown = f"{value:.6g}" if isinstance(value, (int, float)) else value
        return f"{type(self).__name__}({shown})"


def is_like(start: Any, value: Any) -> bool:
    """Whether `value` may stand where `start` stood at first."""
    if isinstance(start, np.ndarray):
        return isinstance(value, np.ndarray) and value.shape == start.shape
    if isinstance(start, list):
        return isinstance(value, list)
    return isinstance(value, numbers.Real)


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def undo_plain(start: Any, value: Any) -> Any:
    """Undo `plain`: arrays of the kinds and dtypes that `start` has."""
    if not isinstance(value, list):
        return value
    if isinstance(start, np.ndarray):
        return np.asarray(value, start.dtype)
    return [np.asarray(part) for part in value]


def to_numbers(where: str, name: str, x: Any) -> np.ndarray:
    try:
        array = x.detach().numpy() if isinstance(x, Value) else np.asarray(x)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind in "OUSMmc":
        got = f"{type_name(x)} {str(x)[:40]!r}" if array.dtype.kind in "OUS" else str(array.dtype)
        raise DTypeError(where, f"{name} to be real numbers", got, "Convert it.")
    return array


def check_lengths(where: str, **arrays: np.ndarray) -> None:
    """The arrays have one shape."""
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        names, got = " and ".join(shapes), " and ".join(map(str, shapes.values()))
        raise ShapeError(where, f"{names} of one shape", got, "Pass one for each sample.")


def to_labels(where: str, name: str, x: Any) -> np.ndarray:
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

    gathered: dict[Any, Any] = {"weight": 0.0, "mean": 0.0, "squares": 0.0}

    def update(self, value: Any, weight: Any = 1.0) -> None:
        """Observe `value`: a number, or every element of an array.
        `weight` is one number for all (e.g. the batch size of a mean loss), or one per element.

        Raises: OptionError for negative or infinite weights, ShapeError if their shape differs,
            DTypeError if either is not numeric; nothing is changed then.
        """
        x = to_numbers("Average.update", "value", value).astype(np.float64)
        w = to_numbers("Average.update", "weight", weight).astype(np.float64)
        if w.ndim and w.shape != x.shape:
            expected = f"one weight, or one per value of shape {x.shape}"
            fix = "Pass a number or an equal shape."
            raise ShapeError("Average.update", expected, f"weights of shape {w.shape}", fix)
        if not (np.isfinite(w) & (w >= 0)).all():
            raise OptionError("Average.update", "finite weights >= 0", repr(weight), "Check it.")
        added = float(np.broadcast_to(w, x.shape).sum())
        if added:
            with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is an honest NaN here
                mean = float((w * x).sum()) / added
                squares = float((w * (x - mean) ** 2).sum())
            self.merge({"weight": added, "mean": mean, "squares": squares})

    def merge(self, state: dict[Any, Any]) -> None:
        """Take in a group of values: their weight, mean, and sum of w (x - mean)^2."""
        self.check_state(state)
        weight, mean, squares = (state[name] for name in self.gathered)
        if not weight:
            return
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

    gathered: dict[Any, Any] = {"total": 0}

    def update(self, amount: Any = 1) -> None:
        """Add a number, or the sum of an array."""
        self.total += to_numbers("Count.update", "amount", amount).sum().item()

    def value(self) -> float:
        """The total."""
        return self.total
