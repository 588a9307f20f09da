"""Functions run on several ranks of this machine, each in a process of its own."""

import multiprocessing
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.membership import init, shutdown

SHARED = "/dev/shm"  # where files are memory


def spawn(fn: Callable, size: int, *args, transport: str = "shared_files", timeout_s=30.0) -> list:
    """What `fn(*args)` returns on each of `size` ranks.

    Raises: CollectiveError with the traceback of the first rank that failed
    """
    context = multiprocessing.get_context("spawn")
    folder = tempfile.mkdtemp(prefix="glasshouse-", dir=SHARED if Path(SHARED).is_dir() else None)
    results = context.SimpleQueue()
    shared = {"size": size, "rendezvous": folder, "timeout_s": timeout_s}
    workers = [
        context.Process(target=run_rank, args=(fn, args, results, transport, {**shared, "rank": i}))
        for i in range(size)
    ]
    try:
        for worker in workers:
            worker.start()
        gathered = dict([results.get() for _ in workers][:size])
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        shutil.rmtree(folder, ignore_errors=True)
    for rank in range(size):
        ok, value = gathered[rank]
        if not ok:
            raise CollectiveError(f"rank {rank}", "a result", value, "Mend it.")
    return [gathered[rank][1] for rank in range(size)]


def run_rank(fn, args, results, transport: str, place: dict) -> None:
    """Join the world at this place, and tell what the function gives."""
    try:
        init(transport, **place)
        answer = True, fn(*args)
    except BaseException:
        answer = False, traceback.format_exc()
    results.put((place["rank"], answer))
    shutdown()
