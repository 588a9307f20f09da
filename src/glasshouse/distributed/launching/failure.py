"""How a rank failed, and which of several failures was the cause."""

import pickle
import signal
from dataclasses import dataclass

from glasshouse.base.errors import CollectiveError
from glasshouse.data.worker import described_error

GRACE_S = 0.3  # how long others that fail at the same time may tell why


@dataclass
class RankFailure:
    """Failure of a rank, as far as it is known: the error itself where it can be sent."""

    rank: int
    summary: str  # "ValueError: …", or how the process ended
    traceback: str = ""
    error: BaseException | None = None
    consequence: bool = False  # of what another rank did or did not do
    fix: str = "See its traceback."


def failure_by_error(rank: int, error: BaseException, pickled: bytes | None = None) -> RankFailure:
    """Of a rank on which an error was raised, as it can be sent to another process."""
    error_bytes, summary, text, _ = pickle.loads(pickled or described_error(error))
    sent = None if error_bytes is None else pickle.loads(error_bytes)
    return RankFailure(rank, summary, text, sent, isinstance(error, CollectiveError))


def failure_by_end(rank: int, code: int | None) -> RankFailure:
    """Of a rank whose process ended with this code, and told nothing."""
    if code is not None and code < 0:
        fix = "Somebody killed it, or it ran out of memory."
        return RankFailure(rank, f"its end by {signal.Signals(-code).name}", fix=fix)
    ended = f"its end with exit code {code}" if code else "its end before it gave a result"
    return RankFailure(rank, ended, fix="See what it printed.")


def first_cause(failures: list[RankFailure]) -> RankFailure:
    """Of failures in the order in which they came, that which explains the others."""
    return min(failures, key=lambda failure: failure.consequence)
