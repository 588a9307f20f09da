"""Elapsed time and rates."""

import math
import time
from collections.abc import Callable
from typing import Any, Self

from glasshouse.base.errors import OptionError
from glasshouse.metrics.metric import Metric, to_numbers


class Timer(Metric):
    """Seconds spent between `start` and `stop`, summed; also a context manager.

    Units: seconds.
    Example:
        >>> timer = Timer()
        >>> with timer:
        ...     total = sum(range(10))
        >>> timer.value() > 0
        True
    """

    elapsed_s: float

    gathered: dict[Any, Any] = {"elapsed_s": 0.0}

    def __init__(self, clock: Callable[..., Any] = time.perf_counter) -> None:
        self.clock = clock
        super().__init__()

    def reset(self) -> None:
        """Stop, and forget the time so far."""
        super().reset()
        self.started_s: Any = None

    def start(self) -> Self:
        """Run on; nothing happens if it runs already."""
        if self.started_s is None:
            self.started_s = self.clock()
        return self

    def stop(self) -> None:
        """Pause; nothing happens if it is paused already."""
        self.elapsed_s, self.started_s = self.seconds(), None

    def seconds(self) -> float:
        """Seconds so far, also while running."""
        return self.elapsed_s + (0.0 if self.started_s is None else self.clock() - self.started_s)

    def update(self, seconds: Any) -> None:
        """Add time measured elsewhere.

        Raises: OptionError if it is negative or not finite, DTypeError if it is no number.
        """
        added = float(to_numbers("Timer.update", "seconds", seconds).sum())
        if not (math.isfinite(added) and added >= 0):
            raise OptionError("Timer.update", "finite seconds >= 0", repr(seconds), "Check it.")
        self.elapsed_s += added

    def value(self) -> float:
        """Seconds so far."""
        return self.seconds()

    def state(self) -> dict[Any, Any]:
        """The seconds so far, and the other gathered values."""
        return {**super().state(), "elapsed_s": self.seconds()}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        super().load_state_dict(state)
        self.started_s = None

    __enter__ = start

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class Throughput(Timer):
    """Items per second: the sum of the updates over the time since it was made or reset.
    `stop` and `start` leave out time, e.g. an evaluation's.

    Units: items per second.
    Example:
        >>> images = Throughput()
        >>> images.update(64)
        >>> images.value() > 0
        True
    """

    gathered: dict[Any, Any] = {"elapsed_s": 0.0, "total": 0}

    def reset(self) -> None:
        """Forget items and time, and start at once."""
        super().reset()
        self.start()

    def update(self, items: Any = 1) -> None:
        """Count a number of items, or the sum of an array."""
        self.total += to_numbers("Throughput.update", "items", items).sum().item()

    def merge(self, state: dict[Any, Any]) -> None:
        """Take in the items of a process that ran at the same time: the longer time counts."""
        elapsed_s = self.seconds()
        super().merge(state)
        running = self.started_s is not None
        self.elapsed_s: float = max(elapsed_s, state["elapsed_s"])
        self.started_s: Any = self.clock() if running else None

    def value(self) -> float:
        """Items per second; nan before any time has passed."""
        seconds = self.seconds()
        return self.total / seconds if seconds else math.nan
