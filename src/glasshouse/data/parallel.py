"""Batches that worker processes read, in the order of one process."""

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from glasshouse.data.pool import WorkerPool


def read_ordered(
    pool: WorkerPool, plan: Any, start: int, timeout_s: float | None, in_order: bool
) -> Any:
    """Yield the batches of `plan`, the first of which is the epoch's batch `start`; without
    `in_order`, as they come."""
    tasks = enumerate(plan, start)
    order: deque[int] = deque()

    def top_up() -> None:
        for position, indices in islice(tasks, pool.room - len(order)):
            pool.submit(position, position, indices)
            order.append(position)

    top_up()
    while order:
        if in_order:
            reply = pool.wait_for(order.popleft(), timeout_s)
        else:
            reply = pool.wait_for_any(timeout_s)
            order.remove(reply.task)
        batch, _ = pool.batch_of(reply)
        top_up()
        yield batch


def read_in_turn(
    pool: WorkerPool, size: Any, counts: list[int], turn: int, timeout_s: float | None
) -> Iterator[tuple[int, Any, None]]:
    """Yield (worker, batch, state): a batch from each worker in turn, from worker `turn` on, until
    all have ended. `counts` counts the batches that each has given already."""
    numbers = count()
    turns = deque([*range(turn, pool.count), *range(turn)])
    positions = [count(start) for start in counts]
    queues: dict[int, deque[int]] = {worker: deque() for worker in turns}

    def ask(worker: int) -> None:
        task = next(numbers)
        pool.submit(task, next(positions[worker]), size, worker)
        queues[worker].append(task)

    for worker in list(turns) * (pool.room // pool.count):
        ask(worker)
    while turns:
        worker = turns[0]
        reply = pool.wait_for(queues[worker].popleft(), timeout_s)
        if reply.place is None and reply.error is None:
            turns.popleft()
            continue
        turns.rotate(-1)
        batch, state = pool.batch_of(reply)
        ask(worker)
        yield worker, batch, state


def starts_of(counts: list[int], states: list[Any], batch_size: int) -> list[tuple[int, Any]]:
    """Where each worker's data set continues: after so many samples, or from its own state."""
    return [(batches * batch_size, state) for batches, state in zip(counts, states, strict=True)]
