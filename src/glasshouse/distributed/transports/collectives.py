"""Interface of a transport: collectives on arrays, for one group of ranks.

A transport defines the abstract methods; all else follows from the table of exchanges
(`ops/exchange.py`), whose names are methods: `all_reduce(source, out, reduce="sum")`. Arrays lie
row by row in the memory of the process. Every rank of the group makes the same calls in the same
order, and a call returns when its result is there. `start` makes a call without waiting: calls of a
group are done one after another, by a thread, in the order in which they were started. A collective
that is called directly waits until those that were started before it are done."""

import abc
import functools
import queue
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.errors import check_known, user_line
from glasshouse.ops.collective_requests import CollectiveRequest, current, requesting
from glasshouse.ops.exchange import EXCHANGES, Exchange
from glasshouse.ops.process import ProcessGroup

if TYPE_CHECKING:
    from threading import Event, Thread


NOTHING = np.empty(0, np.uint8)  # data of a barrier


class UnderWay(threading.local):
    """The user's line that started a thread's call; "" for the thread's own calls."""

    place = ""


under_way: UnderWay = UnderWay()


def place_of_call() -> str:
    """The user's line of the call that this thread makes, after " at "; "" where it is unknown."""
    line = under_way.place or user_line()
    return f" at {line}" if line else ""


class Request:
    """A collective under way. `wait()` returns when it is done, or raises its error; after that
    `begin_ns` and `end_ns` bound the work on it."""

    place: str
    request: CollectiveRequest | None
    begin_ns: int = 0
    end_ns: int = 0

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.done: Event = threading.Event()
        self.error: Any = None
        self.place, self.request = user_line(), current.request

    def run(self) -> None:
        under_way.place, self.begin_ns = self.place, perf_counter_ns()
        try:
            with requesting(self.request):
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

    def __init__(self, name: str) -> None:
        self.waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        options: dict[str, Any] = {"args": (self.waiting,), "name": name, "daemon": True}
        self.thread: Thread = threading.Thread(target=run_in_order, **options)
        self.thread.start()

    def put(self, request: Request) -> None:
        """Queue a request after those before."""
        self.waiting.put(request)

    def end(self) -> None:
        """End the thread after the queued requests."""
        self.waiting.put(None)


def run_in_order(waiting: queue.SimpleQueue[Any]) -> None:
    """Run a channel's requests in its thread, one after another, until there is None."""
    while (request := waiting.get()) is not None:
        request.run()
        del request


def after_started(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a collective to wait first for those that were started before it."""

    @functools.wraps(method)
    def call(self, *args, **named):
        last = self.last
        worker = None if self.channel is None else self.channel.thread
        if last is not None and threading.current_thread() is not worker:
            last.done.wait()
        return method(self, *args, **named)

    return call


METHODS = {way.name: way for way in EXCHANGES.values() if way.method == way.name}
STARTED = (*METHODS, "all_reduce_many")
ORDERED = {name for name in STARTED if name not in METHODS or METHODS[name].is_ordered}


def method_of(way: Exchange) -> Callable[..., Any]:
    """Build the method of an exchange, as `all_reduce(source, out, reduce="sum")`."""
    count = len(way.arrays)

    @after_started
    def call(self, *args, **named):
        arrays, options = args[:count], (*args[count:], *named.values())
        if len(arrays) < count or len(options) > bool(way.option) or named.keys() - {way.option}:
            raise TypeError(f"{way.signature} got {len(args)} arguments and {[*named]}")
        source, out = (arrays[0], arrays[-1]) if arrays else (NOTHING, NOTHING)
        self.exchange(way, source, out, options[0] if options else way.default)

    call.__name__, call.__doc__ = way.name, way.doc
    return call


class Collectives(abc.ABC):
    """The collectives of one group; `rank` is this process's number within it. It sends the bytes
    that the table says of the transport that it `counts_as`."""

    group: ProcessGroup
    rank: int
    size: int
    all_gather: Callable[..., None]  # these are of the table of exchanges
    all_reduce: Callable[..., None]
    barrier: Callable[..., None]
    broadcast: Callable[..., None]

    counts_as = "local"

    needs_one_machine = True  # and a folder that all ranks share

    def __init__(self, group: ProcessGroup, rank: int) -> None:
        self.group, self.rank, self.size = group, rank, group.size
        self.sent_bytes = 0  # counted as they are moved; the table predicts them
        self.channel: Channel | None = None  # requests that were started
        self.last: Request | None = None  # of the collectives that were started

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name in ORDERED & cls.__dict__.keys():
            setattr(cls, name, after_started(cls.__dict__[name]))

    @abc.abstractmethod
    def exchange(self, way: Exchange, source: np.ndarray, out: np.ndarray, option: Any) -> None:
        """Make an exchange of the table, for the method of its name. Where the transport has no
        algorithm for it but for `all_gather`, `exchange_all` makes it."""

    def exchange_all(self, way: Exchange, source: np.ndarray, out: np.ndarray, option: Any) -> None:
        """Make an exchange the clear way: gather all ranks' data, and take its meaning."""
        parts = np.empty((self.size, *source.shape), source.dtype)
        request = CollectiveRequest(way.name, source.dtype.name, source.shape, way.words(option))
        with requesting(current.request or request):
            self.all_gather(source, parts)
        assert way.meaning is not None  # messages alone have none
        out[...] = way.meaning(parts, self.rank, option)

    @abc.abstractmethod
    def send(self, source: np.ndarray, to: int, tag: int = 0) -> None:
        """Give `source` to the rank `to`, which receives with the same tag."""

    @abc.abstractmethod
    def receive(self, out: np.ndarray, source: int, tag: int = 0) -> None:
        """`out` becomes the array that the rank `source` sends with this tag."""

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

    def send_receive(
        self, source: Any, to: int | None, out: Any, origin: int | None, tag: int = 0
    ) -> None:
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

    def start(self, name: str, *args: Any, **named: Any) -> Request:
        """Start the collective of this name; `wait()` of the result returns when it is done.

        Raises: OptionError for a name that is none
        """
        check_known("start", "the name of a collective", name, STARTED)
        method = getattr(self, name)
        if self.channel is None:
            self.channel = Channel(self.group.name)
        request = Request(lambda: method(*args, **named))
        if name in ORDERED:
            self.last = request
        self.channel.put(request)
        return request


for name, way in METHODS.items():
    if way.is_ordered:
        setattr(Collectives, name, method_of(way))


class WrappedCollectives(Collectives):
    """Another transport's collectives. A subclass changes some of them: `init(wrap=Subclass)` puts
    it around the transport of the world, and of each group made from it."""

    inner: Collectives
    counts_as: str

    def __init__(self, inner: Collectives) -> None:
        self.inner, self.counts_as = inner, inner.counts_as
        super().__init__(inner.group, inner.rank)

    @property
    def sent_bytes(self) -> Any:
        return self.inner.sent_bytes

    @sent_bytes.setter
    def sent_bytes(self, count: int) -> None:
        self.inner.sent_bytes = count

    def exchange(self, way: Any, source: Any, out: Any, option: Any) -> None:
        arrays = (source, out)[: len(way.arrays)]
        getattr(self.inner, way.name)(*arrays, *((option,) if way.option else ()))

    def send(self, source: Any, to: Any, tag: int = 0) -> None:
        self.inner.send(source, to, tag)

    def receive(self, out: Any, source: Any, tag: int = 0) -> None:
        self.inner.receive(out, source, tag)

    def send_receive(self, source: Any, to: Any, out: Any, origin: Any, tag: int = 0) -> None:
        self.inner.send_receive(source, to, out, origin, tag)

    def subgroup(self, group: Any) -> Any:
        return type(self)(self.inner.subgroup(group))

    def close(self) -> None:
        super().close()
        self.inner.close()
