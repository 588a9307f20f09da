"""Functions on several ranks of this machine, each in a separate process."""

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from glasshouse.base.errors import CollectiveError, OptionError, check_least
from glasshouse.base.processes import threads_of_ranks, variables
from glasshouse.distributed.groups.membership import finish, init, shutdown
from glasshouse.distributed.launching.failure import (
    GRACE_S,
    RankFailure,
    failure_by_end,
    failure_by_error,
    first_cause,
)
from glasshouse.distributed.launching.guard import ProcessGuard

LEAVING_S = 10.0  # time that a process may take to end after its result


def spawn(
    fn: Callable[..., Any],
    size: int,
    *args: Any,
    transport: str | None = None,
    timeout_s: Any = None,
) -> list[Any]:
    """Return the results of `fn(*args)` on `size` ranks, new processes of this machine. The
    function, its arguments and results are pickled. In a script, call it under `if __name__ ==
    "__main__":`, for each rank imports the script.

    Raises: CollectiveError if a rank fails or dies, from the error of the first one; then the
        others are ended. OptionError for objects that cannot be pickled.
    """
    check_least("spawn", "size", size, 1, "Give the number of ranks.")
    task = pickled_task(fn, args)
    context = multiprocessing.get_context("spawn")
    with ProcessGuard() as guard:
        place = {"size": size, "rendezvous": guard.folder, "timeout_s": timeout_s}
        receivers, workers = [], []
        with variables(threads_of_ranks(size)):
            for rank in range(size):
                receiver, sender = context.Pipe(duplex=False)
                rank_args = (task, sender, transport, {**place, "rank": rank})
                worker = context.Process(target=run_rank, args=rank_args, name=f"rank {rank}")
                worker.start()
                sender.close()
                guard.add(worker.pid)
                receivers.append(receiver)
                workers.append(worker)
        leaving_s = 0.0
        try:
            results, failures = gather_answers(workers, receivers)
            leaving_s = 0.0 if failures else LEAVING_S
        finally:
            end_workers(workers, guard, leaving_s)
    if failures:
        raise error_of(first_cause(failures), fn, size)
    return [results[rank] for rank in range(size)]


def pickled_task(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((fn, args))
    except Exception as error:
        fix = "Define the function at the top of a module, and pass what it needs as arguments."
        expected = "a function and arguments that can be pickled"
        raise OptionError("spawn", expected, error, fix) from error


def gather_answers(
    workers: list[Any], receivers: list[Connection]
) -> tuple[dict[Any, Any], list[RankFailure]]:
    """Gather results by rank, and failures in the order in which they come. After the first failure
    the others have a moment to report theirs."""
    results, failures, end = {}, [], None
    missing = set(range(len(workers)))
    while missing:
        remaining_s = None if end is None else end - time.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            break
        watched: dict[Any, int] = {receivers[rank]: rank for rank in missing}
        watched |= {workers[rank].sentinel: rank for rank in missing}
        for rank in {watched[ready] for ready in wait(list(watched), remaining_s)}:
            missing.discard(rank)
            answer = answer_of(rank, workers[rank], receivers[rank])
            if isinstance(answer, RankFailure):
                failures.append(answer)
                end = end or time.monotonic() + GRACE_S
            else:
                results[rank] = answer[0]
    return results, failures


def answer_of(rank: int, worker: Any, receiver: Connection) -> tuple[Any, ...] | RankFailure:
    """Return a rank's answer, or how it ended without one. Others may hold its end of the pipe."""
    try:
        if receiver.poll():
            return pickle.loads(receiver.recv_bytes())
    except (EOFError, OSError):  # it died before or during its report
        pass
    worker.join(LEAVING_S)
    return failure_by_end(rank, worker.exitcode)


def end_workers(workers: list[Any], guard: ProcessGuard, within_s: float) -> None:
    """Let processes end by themselves for so long; then kill them."""
    end = time.monotonic() + within_s
    for worker in workers:
        worker.join(max(end - time.monotonic(), 0))
        guard.forget(worker.pid)
    for worker in workers:
        worker.join()


def error_of(failure: RankFailure, fn: Callable[..., Any], size: int) -> CollectiveError:
    name = getattr(fn, "__qualname__", repr(fn))
    where, expected = f"rank {failure.rank} of {size}", f"a result of {name}"
    error = CollectiveError(where, expected, failure.summary, failure.fix)
    error.__cause__ = failure.error
    if failure.traceback:
        (failure.error or error).add_note(f"\nOn rank {failure.rank}:\n{failure.traceback}")
    return error


def run_rank(task: bytes, sender: Connection, transport: str | None, place: dict[Any, Any]) -> None:
    """Run a rank: join the world at this place, and send the function's result."""
    os.setsid()  # Ctrl-C is its parent's
    rank = place["rank"]
    try:
        init(transport, **place)
        fn, args = loaded_task(rank, task)
        answer = pickled_result(rank, fn(*args))
        finish()
    except BaseException as error:
        tell_and_leave(sender, pickle.dumps(failure_by_error(rank, error)))
    else:
        tell_and_leave(sender, answer)


def tell_and_leave(sender: Connection, answer: bytes) -> None:
    """Send the answer and leave; while an error is handled, the other ranks learn of it."""
    sender.send_bytes(answer)
    sender.close()
    shutdown()


def loaded_task(rank: int, task: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    try:
        return pickle.loads(task)
    except Exception as error:
        fix = "Define it at the top of a file, not in an interactive session."
        expected = "a function and arguments that a new process can import"
        raise OptionError(f"rank {rank}", expected, error, fix) from error


def pickled_result(rank: int, result: Callable[..., Any]) -> bytes:
    try:
        return pickle.dumps((result,))
    except Exception as error:
        fix = "Return numbers, arrays or tensors."
        expected = "a result that can be pickled"
        raise OptionError(f"rank {rank}", expected, f"{type(result)} ({error})", fix) from error
