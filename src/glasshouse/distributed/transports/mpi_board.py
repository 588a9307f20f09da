"""Messages between ranks over MPI when a call fails, beside those of the collectives.

Nothing is sent while all is well. A rank whose call fails sends all others the reason; ranks that
wait look for it now and then, answer with their own wait, and fail too."""

import time
from typing import Any

import numpy as np

from glasshouse.distributed.transports.agreement import TEXT_BYTES, in_bytes, in_words

ANSWER_S = 1.0  # time in which the others report their waits
PAUSE_S = 1e-3


class MpiBoard:
    """Failures of a world. `comm` is a communicator of all ranks for these messages alone."""

    def __init__(self, MPI: Any, comm: Any) -> None:
        self.MPI = MPI
        self.comm = comm
        self.has_told: bool = False
        self.sent: list[Any] = []  # requests and their buffers
        self.heard: dict[int, str] = {}  # by rank

    def tell(self, text: str) -> None:
        """Send all others the reason of this rank's failure; the first time only."""
        if self.has_told:
            return
        self.has_told, data = True, in_bytes(text)
        others = (rank for rank in range(self.comm.size) if rank != self.comm.rank)
        self.sent = [(self.comm.Isend([data, self.MPI.BYTE], rank), data) for rank in others]

    def listen(self) -> dict[int, str]:
        """Receive the others' messages; return all so far, by rank."""
        status = self.MPI.Status()
        while self.comm.Iprobe(self.MPI.ANY_SOURCE, self.MPI.ANY_TAG, status):
            buffer = np.empty(TEXT_BYTES, np.uint8)
            self.comm.Recv([buffer, self.MPI.BYTE], status.Get_source(), status.Get_tag())
            self.heard[status.Get_source()] = in_words(buffer)
        return self.heard

    def report(self, text: str) -> str:
        """Send the reason of this failure; return the others' reports that come in time."""
        self.tell(text)
        end = time.monotonic() + ANSWER_S
        while len(self.listen()) < self.comm.size - 1 and time.monotonic() < end:
            time.sleep(PAUSE_S)
        reports = [
            f"rank {rank} {self.heard.get(rank, 'waits in nothing that is known')}"
            for rank in range(self.comm.size)
            if rank != self.comm.rank
        ]
        return "; ".join(reports)
