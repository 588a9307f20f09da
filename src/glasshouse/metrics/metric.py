"""The base of all metrics, and the checks of what they are given."""

import numbers

import numpy as np

from glasshouse.base.errors import CheckpointError, DTypeError, type_name
from glasshouse.dispatch.value import Value


class Metric:
    """A number gathered over many updates: `update(…)`, `value()`, `reset()`.
    Subclasses list the attributes that hold what was gathered, with their starting values, in
    `gathered`; these make up the state."""

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
        Raises: CheckpointError if it is not the state of such a metric; nothing is changed then."""
        fits = isinstance(state, dict) and set(state) == set(self.gathered)
        if not (fits and all(isinstance(v, numbers.Real | None) for v in state.values())):
            raise CheckpointError(type(self).__name__, f"numbers for {sorted(self.gathered)}",
                                  repr(state), "Pass what state_dict() returned.")  # fmt: skip
        vars(self).update(state)

    def __repr__(self):
        value = self.value()
        shown = f"{value:.6g}" if isinstance(value, (int, float)) else value
        return f"{type(self).__name__}({shown})"


def to_numbers(where: str, name: str, x) -> np.ndarray:
    """A number, array, list or tensor as a real NumPy array."""
    try:
        array = x.detach().numpy() if isinstance(x, Value) else np.asarray(x)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind in "OUSMmc":
        got = f"{type_name(x)} {str(x)[:40]!r}" if array.dtype.kind in "OUS" else str(array.dtype)
        raise DTypeError(where, f"{name} to be real numbers", got, "Convert it.")
    return array


def to_labels(where: str, name: str, x) -> np.ndarray:
    """Class numbers as an integer NumPy array. Raises: DTypeError if they are not integers."""
    array = to_numbers(where, name, x)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise DTypeError(where, f"{name} to be integer class numbers", array.dtype, "Cast it.")
    return array.astype(np.int64)
