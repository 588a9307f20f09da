"""Reading ahead with worker threads, in order."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice


def read_ahead(read, indices, workers: int, depth: int):
    """Yield read(index) for each index in order, up to `depth` of them computed ahead by threads.
    An error in a worker is raised here, where its sample would have come, with the worker's
    traceback. When the reader stops early or an error comes, waiting work is dropped and the
    threads end before this returns."""
    if workers == 0:
        yield from map(read, indices)
        return
    indices = iter(indices)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="glasshouse-data")
    try:
        pending = deque(pool.submit(read, index) for index in islice(indices, depth))
        while pending:
            result = pending.popleft().result()
            # One in for one out: never more than `depth` samples wait in memory.
            pending.extend(pool.submit(read, index) for index in islice(indices, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
