"""A folder and processes that end with the process that made them, however that ends.

This file is also the guarding program: it reads numbers of processes from its input, with "-"
before one that has ended. When the input ends it kills the remaining ones, with all that they
started, and removes the folder. Its input also ends when its parent is killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

SHARED = "/dev/shm"  # where files are memory


class ProcessGuard:
    """Context with a new `folder`; the folder and the added processes end with it."""

    def __enter__(self) -> Self:
        shared = SHARED if Path(SHARED).is_dir() else None
        self.folder: str = tempfile.mkdtemp(prefix="glasshouse-", dir=shared)
        self.process: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C does not reach it
        )
        return self

    def tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the guard was killed
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def add(self, pid: int | None) -> None:
        """Add a process that ends with the guard, together with its session."""
        self.tell(str(pid))

    def forget(self, pid: int) -> None:
        """Forget a process that has ended, and kill those that it left."""
        kill(pid)
        self.tell(f"-{pid}")

    def __exit__(self, *exc_info: object) -> None:
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to the session of a process, or to it alone while it has no session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def main(folder: str) -> None:
    alive = set()
    for line in sys.stdin:
        number = int(line)
        alive.add(number)
        if number < 0:
            alive -= {number, -number}
    for pid in alive:
        kill(pid)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
