"""Times of PyTorch's data loaders in this process: of reading a batch and of collating it. Worker
processes report nothing."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from glasshouse.dispatch.watch import COLLATING, READING, tell
from glasshouse.torch.patches.autograd import IterableFetcher, MapFetcher
from glasshouse.torch.patches.names import Slot, without_missing


def teller(fetch: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement of a loader's `fetch` that reports the times of reading and collating."""

    def told_fetch(fetcher, indices):
        collate = fetcher.collate_fn

        def told_collate(samples):
            begin_ns = perf_counter_ns()
            batch = collate(samples)
            tell("region", COLLATING, begin_ns)
            return batch

        begin_ns, fetcher.collate_fn = perf_counter_ns(), told_collate
        try:
            return fetch(fetcher, indices)
        finally:
            fetcher.collate_fn = collate
            tell("region", READING, begin_ns)

    return told_fetch


# (place, replacement), as in passes.py.
REPLACED = [
    (Slot(fetcher, "fetch", fetcher.fetch), teller(fetcher.fetch))
    for fetcher in without_missing((MapFetcher, IterableFetcher))
]
