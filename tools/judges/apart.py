"""Work in a process of its own, so that a crash or a hang costs that work alone."""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

processes = multiprocessing.get_context("forkserver")
ENDING_SECONDS = 10  # for what a process does after its work, such as to let go of its locks


def begin_with(*modules: str) -> None:
    """Processes begin as copies of one that has imported these modules; it finds them by the
    environment alone."""
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    processes.set_forkserver_preload(list(modules))


class Ended(str):
    """How a process ended before its work was done."""

    __slots__ = ()


def run_work(work, args, pipe) -> None:
    """Run the work of the process, then say that it is done."""
    work(pipe.send, *args)
    pipe.send(Ended())


def messages(work, args: tuple, seconds: float) -> Iterator:
    """Yield what `work(send, *args)` sends from a process of its own; last an `Ended`, where the
    process ended before its work was done, or sent nothing for so many seconds."""
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=run_work, args=(work, args, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        while True:
            if not ours.poll(seconds):
                yield Ended(f"took longer than {seconds:.0f} s")
                return
            message = ours.recv()
            if message == "" and isinstance(message, Ended):
                process.join(ENDING_SECONDS)
                return
            yield message
    except EOFError:
        process.join()
        yield Ended(f"the process ended with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
