"""Random orders and per-sample generators that depend on a seed, and reading ahead in order.

Orders and generators rest on the raw bits of a counter-based generator, whose stream is fixed by
its definition, so an order stays the same between machines and library versions."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np


def random_order(count: int, *path: int) -> np.ndarray:
    """A uniformly random permutation of 0 … count-1, determined by the integers in `path`: they are
    sorted by one 64-bit random number each; ties have a chance of count^2 / 2^65.

    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox).
    """
    return np.argsort(bit_source(path).random_raw(count), kind="stable")


def sample_generator(*path: int) -> "np.random.Generator":
    """A NumPy generator determined by the integers in `path`, e.g. (seed, epoch, index)."""
    return np.random.Generator(bit_source(path))


def bit_source(path: tuple[int, ...]) -> "np.random.Philox":
    """The counter-based generator of a path; two words a number keep different paths apart."""
    words = [word for value in path for word in (value & 0xFFFFFFFF, value >> 32)]
    return np.random.Philox(np.random.SeedSequence([len(path), *words]))


def read_ahead(read: Callable[..., Any], indices: Any, workers: int, depth: int) -> Iterator[Any]:
    """Yield read(index) for each index in order, up to `depth` of them computed ahead by threads.
    A worker's error is raised where its sample would have come; threads end before this returns."""
    if workers == 0:
        for index in indices:  # not map: StopIteration of a data set would end it in silence
            yield read(index)
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
