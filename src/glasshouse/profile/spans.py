"""Spans of time: how much they cover, and clocks that stand still outside them."""

from typing import Any, NamedTuple

import numpy as np


class Spans(NamedTuple):
    """Begins and ends, ns. `clock` needs them in order and without overlaps."""

    begins: np.ndarray
    ends: np.ndarray

    @property
    def total_ns(self) -> int:
        """The sum of their lengths."""
        return int((self.ends - self.begins).sum())

    def find(self, times: np.ndarray) -> np.ndarray:
        """The place of the span in which each time lies, or -1."""
        at = np.searchsorted(self.begins, times, "right") - 1
        if not len(self.begins):
            return at
        return np.where(times < self.ends[np.maximum(at, 0)], at, -1)

    def contain(self, times: np.ndarray) -> np.ndarray:
        """Whether each time lies in a span."""
        return self.find(times) >= 0

    def clock(self, times: np.ndarray) -> np.ndarray:
        """The times on a clock that begins as the first span does and stands still between them."""
        at = np.searchsorted(self.begins, times, "right") - 1
        before = np.cumsum(self.ends - self.begins) - (self.ends - self.begins)
        span = np.maximum(at, 0)
        inside = np.clip(times - self.begins[span], 0, self.ends[span] - self.begins[span])
        return self.begins[0] + before[span] + inside

    def without(self, first: int, last: int) -> "Spans":
        """The gaps between the spans, from `first` to `last`."""
        begins = np.concatenate(([first], self.ends))
        ends = np.concatenate((self.begins, [last]))
        is_some = ends > begins
        return Spans(begins[is_some], ends[is_some])

    def covered_by(self, others: list[Any]) -> int:
        """How much of these spans lies in any of the others."""
        return int(covered(others, self.begins, self.ends).sum())


def union(spans: list[Any]) -> Spans:
    """The union of several (begins, ends), in order and without overlaps."""
    begins, ends = (np.concatenate(times) for times in zip(*spans, strict=True))
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    is_apart = np.ones(len(begins), bool)
    is_apart[1:] = begins[1:] > ends[:-1]
    is_last = np.append(is_apart[1:], True)[: len(ends)]
    return Spans(begins[is_apart], ends[is_last])


def covered(spans: list[Any], first: Any, last: Any) -> Any:
    """How much of the time from `first` to `last` lies in any of the spans."""
    whole = union(spans)
    if not len(whole.begins):
        return 0 * (last - first)
    return whole.clock(last) - whole.clock(first)


class NestedTimes(NamedTuple):
    """Times of a thread's spans on another clock: begins and ends, the span around each (or -1),
    and the own time of each, outside of the spans in it."""

    begins: np.ndarray
    ends: np.ndarray
    around: np.ndarray
    own_ns: np.ndarray


def nested_within(
    spans: Spans, begin: np.ndarray, end: np.ndarray, thread: np.ndarray
) -> NestedTimes:
    """Clip times, which nest in each thread, to the spans. Of equal ones the first is around the
    others."""
    begins, ends = spans.clock(begin), spans.clock(end)
    is_some = np.flatnonzero(ends > begins)  # the others would lie around each other
    nearest = nearest_around(begins[is_some], ends[is_some], thread[is_some])
    around, inner = np.full(len(begins), -1, np.int64), np.zeros(len(begins), np.int64)
    around[is_some] = np.where(nearest >= 0, is_some[nearest], -1)
    is_inside = around >= 0
    np.add.at(inner, around[is_inside], (ends - begins)[is_inside])
    return NestedTimes(begins, ends, around, ends - begins - inner)


def nearest_around(begin: np.ndarray, end: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """The place of the shortest span of the same thread that each one lies in, or -1; of equal ones
    the first is around the others. Spans of one thread nest.

    In each round all spans step back at once, over all spans that the one there has passed, so the
    number of rounds grows with the logarithm of the number of spans side by side."""
    order = np.lexsort((-end, begin, thread))
    forever = np.iinfo(np.int64).max
    # Place 0 stands for no span; it never ends. The spans follow in order.
    ends = np.append(forever, np.asarray(end, np.int64)[order])
    threads = np.append(-1, np.asarray(thread, np.int64)[order])
    around = np.append(0, np.arange(len(order)))
    around[np.flatnonzero(threads[1:] != threads[:-1]) + 1] = 0
    searching = np.arange(1, len(ends))
    while len(searching):
        searching = searching[ends[around[searching]] < ends[searching]]
        around[searching] = around[around[searching]]
    places = np.append(-1, order)
    nearest = np.full(len(order), -1, np.int64)
    nearest[order] = places[around[1:]]
    return nearest
