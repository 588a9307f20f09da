"""Interface of a transport: collectives on arrays, for one group of ranks.

A transport defines the abstract methods; all else follows. Arrays lie row by row in the memory of
the process. Every rank of the group makes the same calls in the same order, and a call returns when
its result is there. `start` makes a call without waiting: calls of a group are done one after
another, by a thread, in the order in which they were started. A collective that is called directly
waits until those that were started before it are done."""

import abc
import functools
import queue
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, user_line
from glasshouse.ops.asked import asking, current
from glasshouse.ops.collective import ProcessGroup

REDUCE: dict[str, Callable] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}
NARROW = ("float16", "bfloat16")
NOTHING = np.empty(0, np.uint8)  # data of a barrier


def reduced(parts: np.ndarray, reduce: str) -> np.ndarray:
    """Reduce the ranks' parts in the order of ranks; 16-bit sums in float32, rounded once."""
    narrow = reduce in ("sum", "mean") and parts.dtype.name in NARROW
    wide = parts.astype(np.float32) if narrow else parts
    with np.errstate(all="ignore"):  # infinities and NaN pass as they are
        total = np.array(functools.reduce(REDUCE[reduce], wide))
        if reduce == "mean":
            divide(total, len(parts))
        return total.astype(parts.dtype)


def divide(total: np.ndarray, count: int) -> None:
    """Divide in place; complex numbers part by part."""
    x = total.view(total.real.dtype)
    np.divide(x, x.dtype.type(count), out=x)


class UnderWay(threading.local):
    """The user's line that started a thread's call; "" for the thread's own calls."""

    place = ""


under_way = UnderWay()


def place_of_call() -> str:
    """The user's line of the call that this thread makes, after " at "; "" where it is unknown."""
    line = under_way.place or user_line()
    return f" at {line}" if line else ""


class Request:
    """A collective under way. `wait()` returns when it is done, or raises its error; after that
    `begin_ns` and `end_ns` bound the work on it."""

    begin_ns = end_ns = 0

    def __init__(self, call: Callable[[], None]):
        self.call, self.done, self.error = call, threading.Event(), None
        self.place, self.asked = user_line(), current.asked

    def run(self) -> None:
        under_way.place, self.begin_ns = self.place, perf_counter_ns()
        try:
            with asking(self.asked):
                self.call()
        except BaseException as error:  # raised in wait()
            self.error = error
        under_way.place = ""
        self.end_ns = perf_counter_ns()
        del self.call  # and with it the arrays, whose memory others may need
        self.done.set()

    def is_done(self) -> bool:
        return self.done.is_set()

    def wait(self) -> None:
        """Wait until it is done. The call's own time limit ends a hang."""
        self.done.wait()
        if self.error is not None:
            raise self.error


class Channel:
    """Calls that are done one after another, by a thread of this name."""

    def __init__(self, name: str):
        self.waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        options = {"args": (self.waiting,), "name": name, "daemon": True}
        self.thread = threading.Thread(target=run_in_order, **options)
        self.thread.start()

    def put(self, request: Request) -> None:
        """Queue a request after those before."""
        self.waiting.put(request)

    def end(self) -> None:
        """End the thread after the queued requests."""
        self.waiting.put(None)


def run_in_order(waiting: queue.SimpleQueue) -> None:
    """Run a channel's requests in its thread, one after another, until there is None."""
    while (request := waiting.get()) is not None:
        request.run()
        del request


def after_started(method: Callable) -> Callable:
    """Wrap a collective to wait first for those that were started before it."""

    @functools.wraps(method)
    def call(self, *args, **named):
        last = self.last
        worker = None if self.channel is None else self.channel.thread
        if last is not None and threading.current_thread() is not worker:
            last.done.wait()
        return method(self, *args, **named)

    return call


STARTED = (
    "all_reduce",
    "all_reduce_many",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send",
    "receive",
    "barrier",
)
ORDERED = {*STARTED} - {"send", "receive"}  # these two find each other by ranks and tag


class Collectives(abc.ABC):
    """The collectives of one group; `rank` is this process's number within it. It sends the bytes
    that ops/collective_bytes.py says of the transport that it `counts_as`."""

    counts_as = "local"

    needs_one_machine = True  # and a folder that all ranks share

    def __init__(self, group: ProcessGroup, rank: int):
        self.group, self.rank, self.size = group, rank, group.size
        self.sent_bytes = 0  # counted as they are moved; ops/collective_bytes.py predicts them
        self.channel: Channel | None = None  # requests that were started
        self.last: Request | None = None  # of the collectives that were started

    def __init_subclass__(cls, **named):
        super().__init_subclass__(**named)
        for name in ORDERED & cls.__dict__.keys():
            setattr(cls, name, after_started(cls.__dict__[name]))

    @abc.abstractmethod
    def all_reduce(self, source: np.ndarray, out: np.ndarray, reduce: str = "sum") -> None:
        """`out` becomes the sum (or "mean", "max", "min") of all ranks' `source`; they may be the
        same."""

    @abc.abstractmethod
    def all_gather(self, source: np.ndarray, out: np.ndarray) -> None:
        """`out[i]` becomes the `source` of rank i."""

    @abc.abstractmethod
    def reduce_scatter(self, source: np.ndarray, out: np.ndarray, reduce: str = "sum") -> None:
        """`out` becomes the sum of all ranks' `source[rank]`."""

    @abc.abstractmethod
    def all_to_all(self, source: np.ndarray, out: np.ndarray) -> None:
        """`out[i]` becomes the `source[rank]` of rank i."""

    @abc.abstractmethod
    def broadcast(self, buffer: np.ndarray, root: int = 0) -> None:
        """`buffer` becomes the buffer of the rank `root`."""

    @abc.abstractmethod
    def send(self, source: np.ndarray, to: int, tag: int = 0) -> None:
        """Give `source` to the rank `to`, which receives with the same tag."""

    @abc.abstractmethod
    def receive(self, out: np.ndarray, source: int, tag: int = 0) -> None:
        """`out` becomes the array that the rank `source` sends with this tag."""

    @abc.abstractmethod
    def barrier(self) -> None:
        """Return when all ranks are here."""

    @abc.abstractmethod
    def subgroup(self, group: ProcessGroup) -> "Collectives":
        """The collectives of a group of some of these ranks; all of those call it."""

    def works_in_c(self) -> bool:
        """Whether Programs may make its calls in C now, by `call_in_c`; else by its methods."""
        return False

    def close(self) -> None:
        """Free the memory of the transport."""
        if self.channel is not None:
            self.channel.end()
            self.channel.thread.join()
            self.channel = None

    def send_receive(self, source, to: int | None, out, origin: int | None, tag: int = 0) -> None:
        """Send to one rank and receive from another at a time; None: no such rank."""
        if to is None and origin is None:
            return
        if to == self.rank:
            out[...] = source
            return
        request = self.start("send", source, to, tag) if to is not None else None
        if origin is not None:
            self.receive(out, origin, tag)
        if request is not None:
            request.wait()

    # -- many, and without waiting ---------------------------------------------------------------

    def all_reduce_many(self, arrays: list[np.ndarray], reduce: str = "sum") -> None:
        """All-reduce arrays in place, those of a dtype as one."""
        by_dtype: dict[Any, list[np.ndarray]] = {}
        for array in arrays:
            by_dtype.setdefault(array.dtype, []).append(array)
        for same in by_dtype.values():
            joined = np.concatenate([array.reshape(-1) for array in same])
            self.all_reduce(joined, joined, reduce)
            at = 0
            for array in same:
                array[...] = joined[at : at + array.size].reshape(array.shape)
                at += array.size

    def start(self, name: str, *args, **named) -> Request:
        """Start the collective of this name; `wait()` of the result returns when it is done.

        Raises: OptionError for a name that is none
        """
        if name not in STARTED:
            fix = f"Choose one of: {', '.join(STARTED)}."
            raise OptionError("start", "the name of a collective", repr(name), fix)
        method = getattr(self, name)
        if self.channel is None:
            self.channel = Channel(self.group.name)
        request = Request(lambda: method(*args, **named))
        if name in ORDERED:
            self.last = request
        self.channel.put(request)
        return request


def passed_on(method: Callable) -> Callable:
    """Build a method of a wrapped transport, which calls this one of the transport in it."""

    @functools.wraps(method)
    def call(self, *args, **named):
        return getattr(self.inner, method.__name__)(*args, **named)

    call.__isabstractmethod__ = False
    return call


class WrappedCollectives(Collectives):
    """Another transport's collectives. A subclass changes some of them: `init(wrap=Subclass)` puts
    it around the transport of the world, and of each group made from it."""

    def __init__(self, inner: Collectives):
        self.inner, self.counts_as = inner, inner.counts_as
        super().__init__(inner.group, inner.rank)

    @property
    def sent_bytes(self):
        return self.inner.sent_bytes

    @sent_bytes.setter
    def sent_bytes(self, count):
        self.inner.sent_bytes = count

    all_reduce = passed_on(Collectives.all_reduce)
    all_gather = passed_on(Collectives.all_gather)
    reduce_scatter = passed_on(Collectives.reduce_scatter)
    all_to_all = passed_on(Collectives.all_to_all)
    broadcast = passed_on(Collectives.broadcast)
    send = passed_on(Collectives.send)
    receive = passed_on(Collectives.receive)
    send_receive = passed_on(Collectives.send_receive)
    barrier = passed_on(Collectives.barrier)

    def subgroup(self, group):
        return type(self)(self.inner.subgroup(group))

    def close(self):
        super().close()
        self.inner.close()
