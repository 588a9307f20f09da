"""Main module of a rank of `glasshouse launch`, run as `python -m` with this module's name and
`LAUNCHER [-m] TARGET ARGS…`. It runs the script, or the module, as Python would, and sends the
launcher the traceback of an error that nobody catches, so that it is printed once."""

import faulthandler
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from glasshouse.base.errors import CollectiveError
from glasshouse.base.flags import flags, mpi_place
from glasshouse.distributed.groups.store import open_store

OURS = (__file__, runpy.__file__, "<frozen runpy>")  # frames that a traceback begins with


def main(launcher: str, *command: str) -> None:
    if flags.rank < 0:  # MPI started it, and would mix what the ranks print
        rank, _ = mpi_place() or (0, 1)
        print_into(Path(flags.rendezvous), rank)
    else:
        rank = flags.rank
        if os.getppid() != int(launcher):  # it died before this process was known
            sys.exit(1)
    faulthandler.enable()
    sys.excepthook = lambda *error: report(rank, *error)
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        runpy.run_path(command[0], run_name="__main__")


def print_into(folder: Path, rank: int) -> None:
    """Print into the pipes that the launcher has made for this rank."""
    for number, name in ((1, "out"), (2, "err")):
        descriptor = os.open(folder / f"{name}-{rank}", os.O_WRONLY)
        os.dup2(descriptor, number)
        os.close(descriptor)


def report(rank: int, kind: Any, error: BaseException, trace: Any) -> None:
    """Report an error to the launcher. A rank that was interrupted has nothing to report."""
    while trace is not None and trace.tb_frame.f_code.co_filename in OURS:
        trace = trace.tb_next
    if issubclass(kind, KeyboardInterrupt):
        return
    text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
    fields = {
        "summary": f"{kind.__name__}: {error}",
        "traceback": text,
        "consequence": isinstance(error, CollectiveError),
    }
    if not open_store(flags.rendezvous).set(f"failure of rank {rank}", json.dumps(fields).encode()):
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
