"""Output of ranks, printed line by line with the rank before it."""

import os
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 16


class RankOutput:
    """One stream of a rank: its lines go to `screen` and into the file `log`, where there are
    any."""

    log: Any

    def __init__(self, file: Any, prefix: str, screen: Any, log: Path | None) -> None:
        self.file = file
        self.prefix = prefix
        self.screen = screen
        self.rest: bytes = b""
        self.log = None if log is None else open(log, "ab", 0)  # noqa: SIM115  closed in finish
        os.set_blocking(file.fileno(), False)

    def read(self) -> int | None:
        """Pass on output: the number of bytes, 0 at the end, None where there are none yet."""
        try:
            data = os.read(self.file.fileno(), READ_BYTES)
        except BlockingIOError:
            return None
        if self.log is not None:
            self.log.write(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.show(lines)
        return len(data)

    def show(self, lines: list[bytes]) -> None:
        """Show the last state of a line that was written over and over, as progress is."""
        if self.screen is None or not lines:
            return
        for line in lines:
            text = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
            self.screen.write(f"{self.prefix}{text}\n")
        self.screen.flush()

    def finish(self) -> None:
        """Pass on the rest of the output of a process that has ended."""
        while self.read():
            pass
        if self.rest:
            self.show([self.rest])
        self.file.close()
        if self.log is not None:
            self.log.close()
