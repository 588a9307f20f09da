"""Status board: memory in which each rank of one machine writes that it lives, and its current
wait. It gives the errors of collectives that cannot end.

A rank writes only when it has waited for a while already, so the board costs nothing while all is
well. The first failure is the world's: all ranks that wait then raise it."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.transports.shared_memory import POLL_S, share

if TYPE_CHECKING:
    from mmap import mmap


ABSENT, HERE, LEFT = range(3)
HEAD_BYTES = 64  # the first number is 1 + the rank that reported a failure
MOST_RANKS = 64  # of ranks in a knot
LOOKS = 3
RECORD = np.dtype(
    [
        ("process", np.int64),
        ("born", np.int64),
        ("state", np.int64),
        ("answer", np.int64),  # the answer to a question to all ranks, plus 1
        ("waits", "S1024"),
        ("wait", np.int64),  # number of its main thread's current wait
        ("awaits", np.uint64),  # the ranks it waits for, as bits; 0 where that thread may continue
        ("looks", np.int64),  # how often it has seen them missing
        ("reason", "S1024"),  # why it left
        ("failure", "S4096"),
    ]
)


def is_same(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    """Whether the same ranks wait in the same calls for the same ranks."""
    return before.keys() == now.keys() and all(before[r][:2] == now[r][:2] for r in now)


def is_tied(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    """Whether a knot is unchanged, and each of its ranks has looked again since."""
    return is_same(before, now) and all(now[r][2] >= before[r][2] + LOOKS for r in now)


def process_state(process: int) -> tuple[str, int]:
    """State of a process, a letter as in `ps`, and its start; "" where there is none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[19])


class Board:
    """Status of a world's ranks in shared memory; all make it, in the folder where they meet.

    Raises: CollectiveError for ranks that do not come
    """

    def __init__(self, folder: str, rank: int, size: int, timeout_s: float = 30.0) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = timeout_s
        self.waiting: dict[int, str] = {}  # by thread
        self.started: list[Any] = []  # requests that may be under way
        self.transports: list[Any] = []  # that this process has
        self.owner: int = os.getpid()
        everyone = tuple(range(size))
        nbytes = HEAD_BYTES + size * RECORD.itemsize
        self.memory: mmap = share(folder, "board", nbytes, rank, everyone, timeout_s)
        self.failed: np.ndarray = np.frombuffer(self.memory, np.int32, 1)
        self.records: np.ndarray = np.frombuffer(self.memory, RECORD, size, HEAD_BYTES)
        self.record: Any = self.records[rank]
        self.record["process"], self.record["born"] = self.owner, process_state(self.owner)[1]
        self.record["state"] = HERE
        self.wait_for("state", range(size), timeout_s)
        # Processes of other namespaces cannot be seen: then only the limit tells that one died.
        self.is_seen: list[bool] = [self.lives(r) for r in everyone]

    def wait_for(self, field: str, ranks: Iterable[int], timeout_s: float) -> None:
        end, ranks = time.monotonic() + timeout_s, list(ranks)
        while missing := [r for r in ranks if not self.records[r][field]]:
            gone = [r for r in missing if self.end_of(r)]
            if gone or time.monotonic() > end:
                expected = f"all {self.size} ranks within {timeout_s:g} s"
                got = self.end_of(gone[0]) if gone else f"no sign of rank {missing[0]}"
                fix = f"See what rank {(gone or missing)[0]} prints."
                raise CollectiveError("distributed.init", expected, got, fix)
            time.sleep(POLL_S)

    def ask(self, answer: bool, timeout_s: float) -> list[bool]:
        """Answers of all ranks to a question, which is asked once."""
        self.record["answer"] = 1 + answer
        self.wait_for("answer", range(self.size), timeout_s)
        return [bool(record["answer"] - 1) for record in self.records]

    # -- who lives -------------------------------------------------------------------------------

    def lives(self, rank: int) -> bool:
        """Whether a rank's process exists, and is no zombie."""
        record = self.records[rank]
        state, born = process_state(int(record["process"]))
        return state not in ("", "Z", "X") and born == record["born"]

    def end_of(self, rank: int) -> str:
        """End of a rank in words, "" where it lives."""
        record = self.records[rank]
        if record["state"] == LEFT:
            reason = record["reason"].decode(errors="ignore")
            return f"rank {rank} has left" + (f" with {reason}" if reason else "")
        is_seen = record["state"] == HERE and getattr(self, "is_seen", [True] * self.size)[rank]
        if is_seen and not self.lives(rank):
            if record["state"] == LEFT:  # in the meantime
                return self.end_of(rank)
            return f"rank {rank} (process {record['process']}) was killed"
        return ""

    def leave(self, reason: str = "") -> None:
        """Mark that this rank takes part no longer."""
        if os.getpid() == self.owner and self.record["state"] == HERE:
            error = sys.exc_info()[1] or getattr(sys, "last_value", None)
            summary = f"{type(error).__name__}: {error}" if error is not None else ""
            self.record["reason"] = (reason or summary).encode()[: RECORD["reason"].itemsize]
            self.record["state"] = LEFT

    # -- waits of ranks --------------------------------------------------------------------------

    @contextlib.contextmanager
    def waits_in(self, text: str) -> Iterator[None]:
        """Inside, this rank is marked as waiting; after a failure it stays so, for the others."""
        thread = threading.get_ident()
        self.waiting[thread] = text
        self.tell()
        yield
        self.waiting.pop(thread, None)
        self.tell()

    def tell(self) -> None:
        text = "; and ".join(self.waiting.values())
        self.record["waits"] = text.encode()[: RECORD["waits"].itemsize]

    def wait_of(self, rank: int) -> str:
        return self.records[rank]["waits"].decode(errors="ignore")

    def says(self, rank: int) -> str:
        """State of a rank in words, as far as it is known."""
        end = self.end_of(rank)
        if end:
            return end
        waits, record = self.wait_of(rank), self.records[rank]
        if waits:
            return f"rank {rank} waits in {waits}"
        stopped = process_state(int(record["process"]))[0] in ("T", "t")
        name = f"rank {rank} (process {record['process']})"
        return f"{name} is stopped" if stopped else f"{name} runs, and waits in nothing"

    def report(self) -> str:
        """State of each rank in words."""
        return "; ".join(self.says(rank) for rank in range(self.size))

    # -- ranks that wait for each other ------------------------------------------------------------

    def blocks(self, lagging: Iterable[int]) -> None:
        """Mark that this rank's only thread has looked, and still waits for these ranks."""
        if not self.record["awaits"]:
            self.record["wait"] += 1
        self.record["awaits"] = sum(1 << rank for rank in lagging if rank < MOST_RANKS)
        self.record["looks"] += 1

    def goes_on(self) -> None:
        self.record["awaits"] = 0

    def knot(self) -> dict[int, tuple[int, int, int]]:
        """The ranks that this one waits for, those that they wait for, and so on: (wait, for whom,
        looks) of each. Empty where one of them waits for none."""
        waits, new = {}, [self.rank]
        while new:
            rank = new.pop()
            record = self.records[rank]
            wait, mask, looks = (int(record[name]) for name in ("wait", "awaits", "looks"))
            if not mask:
                return {}
            waits[rank] = wait, mask, looks
            new += [r for r in range(self.size) if mask >> r & 1 and r not in waits]
        return waits

    # -- the world's failure ---------------------------------------------------------------------

    def fail(self, error: CollectiveError) -> CollectiveError:
        """Return the failure of the world: this error, or the one before it."""
        if not self.failed[0]:
            self.record["failure"] = str(error).encode()[: RECORD["failure"].itemsize]
            self.failed[0] = 1 + self.rank
        return self.failure()

    def failure(self) -> CollectiveError:
        text = self.records[self.failed[0] - 1]["failure"]
        return CollectiveError(text.decode(errors="ignore"))
