"""Failures of ranks, and the first cause among several of them."""

import pickle
import signal
from dataclasses import dataclass

from glasshouse.base.errors import CollectiveError
from glasshouse.data.worker import described_error

GRACE_S = 0.3  # time in which others that fail at the same time may report why


@dataclass
class RankFailure:
    """Failure of a rank, as far as it is known: the error itself where it can be sent."""

    rank: int
    summary: str  # "ValueError: …", or how the process ended
    traceback: str = ""
    error: BaseException | None = None
    consequence: bool = False  # of another rank's failure
    fix: str = "See its traceback."


def failure_by_error(rank: int, error: BaseException, pickled: bytes | None = None) -> RankFailure:
    """Failure of a rank on which an error was raised, in a form for other processes."""
    error_bytes, summary, text, _ = pickle.loads(pickled or described_error(error))
    sent = None if error_bytes is None else pickle.loads(error_bytes)
    return RankFailure(rank, summary, text, sent, isinstance(error, CollectiveError))


def failure_by_end(rank: int, code: int | None) -> RankFailure:
    """Failure of a rank whose process ended with this code without a report."""
    if code is not None and code < 0:
        fix = "Somebody killed it, or it ran out of memory."
        return RankFailure(rank, f"its end by {signal.Signals(-code).name}", fix=fix)
    ended = f"its end with exit code {code}" if code else "its end before it gave a result"
    return RankFailure(rank, ended, fix="See what it printed.")


def first_cause(failures: list[RankFailure]) -> RankFailure:
    """Find the failure that explains the others; they are in the order in which they came."""
    return min(failures, key=lambda failure: failure.consequence)
