"""The fast transport of one machine: ranks pass arrays through memory that all have mapped.

native/collectives.c moves and adds up the data, and waits; native/started.c runs calls in their
order, of which several may be under way. They return here when a wait gets long, and this module
handles signals, limits, dead ranks and ranks that call something else. Sums add the ranks in their
order, float16 and bfloat16 in float32 and rounded once, so all ranks get the same bits, from run to
run too."""

import ctypes
import functools
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from glasshouse.base.dtype import DTypeLike, all_dtypes, by_numpy
from glasshouse.base.errors import (
    CollectiveError,
    DTypeError,
    OptionError,
    ShapeError,
    check_known,
)
from glasshouse.base.processes import count_cores
from glasshouse.compile.building import toolchain
from glasshouse.distributed.transports.board import Board, is_same, is_tied
from glasshouse.distributed.transports.collectives import Collectives, place_of_call
from glasshouse.distributed.transports.native_calls import (
    DIFFERENT,
    DONE,
    DTYPES,
    FAILED,
    IN_C,
    KIND,
    KINDS,
    UNDER_WAY,
    CallInC,
    CollectiveCall,
    GroupState,
    Header,
    StartedCall,
    library,
)
from glasshouse.distributed.transports.shared_files import SharedFiles
from glasshouse.distributed.transports.shared_memory import share
from glasshouse.ops.collective_bytes import SMALL_BYTES
from glasshouse.ops.collective_card import packed
from glasshouse.ops.collective_requests import CollectiveRequest, current, digest_of
from glasshouse.ops.exchange import REDUCTIONS
from glasshouse.ops.process import ProcessGroup

if TYPE_CHECKING:
    from ctypes import CDLL
    from mmap import mmap


SPINS = 4000  # about 40 µs: the cost of a wait on the cores; less where ranks share one
SPINS_CROWDED = 20
AGREE_S = 1.0  # time in which ranks that called different things report their calls
KNOT_S = 1.0  # time that ranks wait for each other before an error
JOIN_S = toolchain.TIMEOUT_S  # within which all have compiled


def join(group: ProcessGroup, rank: int, folder: str, timeout_s: float = 30.0) -> Collectives:
    """The collectives of a world on this machine. Where a rank has no compiler, all take the clear
    transport, and one rank warns."""
    board = Board(folder, rank, group.size, timeout_s)
    error = None
    try:
        library()
    except toolchain.CompileError as failed:
        error = failed
    answers = board.ask(error is None, JOIN_S)
    if all(answers):
        return Local(group, rank, folder, board)
    if error is not None and rank == answers.index(False):
        slow = "glasshouse: ranks pass arrays through shared_files, slower"
        warnings.warn(f"{slow}: {error}. {error.fix}", stacklevel=3)
    board.leave()
    return SharedFiles(group, rank, folder, timeout_s)


class Local(Collectives):
    """Collectives of one group, over its own memory and the world's status board."""

    def __init__(self, group: ProcessGroup, rank: int, folder: str, board: Board) -> None:
        self.state: GroupState = GroupState()
        super().__init__(group, rank)
        self.folder = folder
        self.board = board
        self.library: CDLL = library()
        self.timeout_s: float = board.timeout_s
        nbytes = self.library.gh_group_bytes(self.size)
        name = f"group-{'-'.join(map(str, group.ranks))}"
        self.memory: mmap = share(folder, name, nbytes, rank, group.ranks, self.timeout_s)
        crowded = self.size > count_cores()
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        spins = SPINS_CROWDED if crowded else SPINS
        failed = board.failed.ctypes.data
        GroupState.__init__(self.state, address, failed, rank, self.size, spins, SMALL_BYTES)
        self.place: int = ctypes.addressof(self.state)
        self.queue: Any = self.library.gh_queue(self.place)
        # The calls of Programs, by address.
        self.started: WeakValueDictionary[int, CallInC] = WeakValueDictionary()
        self.direct: StartedCall = StartedCall(queue=self.queue)
        self.calling: threading.Lock = threading.Lock()
        self.sending: list[threading.Lock] = [threading.Lock() for _ in range(self.size)]
        self.receiving: list[threading.Lock] = [threading.Lock() for _ in range(self.size)]
        board.transports.append(self)
        self.early: dict[
            tuple[int, int], list[Any]
        ] = {}  # (header, array) of messages, by rank and tag

    @property
    def sent_bytes(self) -> int:
        return self.state.sent_bytes

    @sent_bytes.setter
    def sent_bytes(self, count: int) -> None:
        self.state.sent_bytes = count

    # -- calls in C ------------------------------------------------------------------------------

    may_work_in_c = True  # False: Programs call the methods below, the clear way

    def works_in_c(self) -> Any:
        """Whether calls run in C: no method is replaced, and no started call comes first."""
        is_ours = all(
            getattr(getattr(self, n), "__func__", None) is getattr(Local, n)
            for n in ("exchange", *IN_C)
        )
        return is_ours and self.may_work_in_c and (self.last is None or self.last.is_done())

    def call_in_c(self, call: Any, asked: CollectiveRequest) -> "CallInC | None":
        """Return a call of a card, along its first axis, which a Program makes each time it runs,
        for the user's call `asked`; None for one that the methods make."""
        return CallInC(self, call, asked) if call.name in IN_C else None

    # -- collectives -----------------------------------------------------------------------------

    def run(self, kind: str, source: np.ndarray, out: np.ndarray, argument: int = 0) -> None:
        """Run a call to its end."""
        dtype, item_bytes = known_dtype(kind, source)
        if not out.flags.c_contiguous:
            packed_out = packed(out)
            self.run(kind, packed_out if source is out else source, packed_out, argument)
            out[...] = packed_out
            return
        if not isinstance(source, np.ndarray) or not source.flags.c_contiguous:
            source = packed(source)
        asked = current.request
        digest = digest_of(kind, source.dtype, source.shape, argument, asked)
        with self.calling:
            place, numbers = ctypes.byref(self.direct), (KIND[kind], dtype, argument, source.size)
            code = self.library.gh_call(place, *numbers, digest, item_bytes, id(source), id(out))
            if code != DONE:
                cause = asked or source.shape
                self.finish(self.direct, lambda: self.text_of(self.direct.header, cause))

    def exchange(self, way: Any, source: Any, out: Any, option: Any) -> None:
        if way.option == "reduce":
            check_known(way.name, "a reduction", option, REDUCTIONS)
        if way.option == "root" and not 0 <= option < self.size:
            fix = "Give the number of a rank within the group."
            raise OptionError(way.name, f"a root from 0 to {self.size - 1}", option, fix)
        if not way.is_native:
            self.exchange_all(way, source, out, option)
            return
        if way.cut:
            part = source.shape[1:] if way.join else out.shape
            check_shapes(way.name, source, (self.size, *part), source.dtype)
        if source is not out:
            part = source.shape[1:] if way.cut else source.shape
            shape = (self.size, *part) if way.join else part
            check_shapes(way.name, out, shape, source.dtype)
        self.run(way.name, source, out, way.number(option))

    # -- messages --------------------------------------------------------------------------------

    def message(self, array: np.ndarray, peer: int, tag: int) -> CollectiveCall:
        call, (dtype, item_bytes) = CollectiveCall(), known_dtype("send", array)
        if not 0 <= peer < self.size or peer == self.rank:
            fix = "Give the number of another rank within the group."
            raise OptionError("send", f"another rank below {self.size}", peer, fix)
        digest = digest_of("send", array.dtype, array.shape, tag, current.request)
        about = dtype, tag, array.size, digest, item_bytes, id(array), peer
        self.library.gh_message(ctypes.byref(call), *about)
        return call

    def send(self, source: Any, to: Any, tag: int = 0) -> None:
        source = packed(source)
        call = self.message(source, to, tag)
        go_on = functools.partial(self.library.gh_send, self.place, ctypes.byref(call))
        with self.sending[to]:
            self.complete(go_on(), go_on, call, lambda: self.text_of(call.header, source.shape))

    def receive(self, out: Any, source: Any, tag: int = 0) -> None:
        if not out.flags.c_contiguous:
            packed_out = np.empty_like(out, order="C")
            self.receive(packed_out, source, tag)
            out[...] = packed_out
            return
        call, header = self.message(out, source, tag), Header()
        go_on = functools.partial(self.receive_some, call, header, out)
        text = self.text_of(call.header, out.shape).replace("send", "receive")
        self.complete(go_on(), go_on, call, lambda: f"{text} from rank {self.group.ranks[source]}")

    def receive_some(self, call: CollectiveCall, header: Header, out: np.ndarray) -> int:
        """Continue with a message. A message of another tag that comes before it is set aside."""
        with self.receiving[call.peer]:
            key = call.peer, call.header.argument
            while True:
                places = ctypes.byref(call), ctypes.byref(header)
                if call.step == 0 and self.early.get(key):
                    early_header, array = self.early[key].pop(0)
                    if bytes(early_header) != bytes(call.header):
                        raise self.unlike(early_header, call, out)
                    out[...] = array.reshape(out.shape)
                    return DONE
                code = self.library.gh_receive(self.place, *places)
                if code != DIFFERENT:
                    return code
                if header.argument == call.header.argument:
                    raise self.unlike(header, call, out)
                self.put_by(header, call.peer)

    def put_by(self, header: Header, peer: int) -> None:
        array = np.empty(header.count, all_dtypes[header.dtype].np)
        call, arrived = self.message(array, peer, header.argument), Header()
        call.header = header
        places = ctypes.byref(call), ctypes.byref(arrived)
        go_on = functools.partial(self.library.gh_receive, self.place, *places)
        self.complete(go_on(), go_on, call, lambda: self.text_of(call.header, array.shape))
        self.early.setdefault((peer, header.argument), []).append((call.header, array))

    # -- waits that get long ---------------------------------------------------------------------

    def text_of(self, header: Header, cause: CollectiveRequest | tuple[Any, ...]) -> str:
        """Name a call for errors, with the user's line: by the user's call, or the shape."""
        text = str(header)
        if isinstance(cause, tuple) and not isinstance(cause, CollectiveRequest):
            text = text.replace(f"{header.count} elements", f"shape {cause}")
        elif cause.name == KINDS[header.kind]:
            text = f"{cause}{header.place}"
        else:
            text = f"{cause}, by {text}"
        return f"{text} of group {self.group.name}{place_of_call()}"

    def finish(self, target: StartedCall, text: Callable[..., Any]) -> None:
        """Continue with the calls under way, to the end of `target`. Others may come before it.

        Raises: CollectiveError where that does not come
        """
        try:
            while not target.is_done:
                first = self.started.get(self.library.gh_first(self.queue))
                call, label = (target, text) if first is None else (first.started, first.text)
                go_on = functools.partial(self.library.gh_wait, ctypes.byref(call))
                self.complete(UNDER_WAY, go_on, call.call, label)
        except BaseException:
            self.library.gh_forget(self.queue)
            raise

    def complete(
        self, code: int, go_on: Callable[[], int], call: CollectiveCall, text: Callable[..., Any]
    ) -> None:
        """Continue with a call to its end.

        Raises: CollectiveError where that does not come
        """
        if code == DONE:
            return
        where = text()
        try:
            with self.board.waits_in(where):
                self.wait(code, go_on, call, where)
            self.board.goes_on()
        except CollectiveError:
            raise
        except BaseException as error:  # by Ctrl-C: half a call cannot be continued
            what = f"rank {self.board.rank} was interrupted in {where}"
            fix = f"See what rank {self.board.rank} prints."
            expected = "all ranks to end what they call"
            got = f"{what} by {type(error).__name__}"
            self.board.fail(CollectiveError(where, expected, got, fix))
            raise

    def wait(self, code: int, go_on: Callable[[], int], call: CollectiveCall, where: str) -> None:
        since, last, knot = time.monotonic(), None, dict[Any, Any]()
        while code == UNDER_WAY:
            lagging, now = self.lagging(call), (call.step, call.at, self.state.phase)
            if now != last:
                since, last, knot = time.monotonic(), now, {}
            ends = [end for end in map(self.board.end_of, lagging) if end]
            waited_s = time.monotonic() - since
            code = go_on()
            if code == UNDER_WAY and (ends or waited_s > self.timeout_s):
                raise self.lost(where, lagging, ends)
            if code == UNDER_WAY and self.is_alone():
                self.board.blocks(lagging)
                now_tied = self.board.knot()
                if now_tied and waited_s > KNOT_S and is_tied(knot, now_tied):
                    raise self.knotted(where)
                knot = knot if is_same(knot, now_tied) else now_tied
        if code == DIFFERENT:
            raise self.disagreement(where)
        if code == FAILED:
            raise self.board.failure()

    def is_alone(self) -> bool:
        """Whether no other thread of this process can continue with a collective."""
        started = self.board.started = [r for r in self.board.started if not r.is_done()]
        others = (x for x in self.board.transports if x is not self)
        is_main = threading.current_thread() is threading.main_thread()
        return is_main and not started and not any(x.library.gh_first(x.queue) for x in others)

    def start(self, name: Any, *args: Any, **named: Any) -> Any:
        request = super().start(name, *args, **named)
        self.board.started = [*(r for r in self.board.started if not r.is_done()), request]
        return request

    def knotted(self, where: str) -> CollectiveError:
        """The error of ranks that wait for each other in different calls."""
        expected = "calls that all ranks make in one order, by the same groups"
        got = f"ranks that wait for each other: {self.board.report()}"
        fix = "Let all ranks make the same calls in the same order."
        return self.board.fail(CollectiveError(where, expected, got, fix))

    def look(self) -> tuple[np.ndarray, list[Header]]:
        missing, headers = np.zeros(self.size, np.int64), (Header * self.size)()
        self.library.gh_look(self.place, missing.ctypes.data, ctypes.byref(headers))
        return missing, list(headers)

    def lagging(self, call: CollectiveCall) -> list[int]:
        """Ranks that a call waits for, by their numbers in the world."""
        if KINDS[call.header.kind] == "send":
            return [self.group.ranks[call.peer]]
        return [self.group.ranks[i] for i in np.flatnonzero(self.look()[0])]

    def lost(self, where: str, lagging: list[int], ends: list[str]) -> CollectiveError:
        """Error of a call in which some ranks do not take part."""
        names = ", ".join(f"rank {rank}" for rank in lagging)
        got = ", ".join(ends) or f"{names} not there"
        expected = f"all ranks to take part within {self.timeout_s:g} s"
        last = dict(zip(self.group.ranks, self.look()[1], strict=True))
        details = [self.board.report()]
        details += [
            f"rank {rank} last called {last[rank]}" for rank in lagging if last[rank].number
        ]
        fix = f"See what {names} did, and printed."
        return self.board.fail(
            CollectiveError(where, expected, f"{got} ({'; '.join(details)})", fix)
        )

    def disagreement(self, where: str) -> CollectiveError:
        """Error of ranks that call different things, as soon as all of them have reported."""
        end = time.monotonic() + AGREE_S
        while time.monotonic() < end and not self.board.failed[0]:
            if all(map(self.board.wait_of, self.group.ranks)):
                break
            time.sleep(1e-3)
        shown = []
        for rank, header in zip(self.group.ranks, self.look()[1], strict=True):
            shown.append(f"rank {rank} {self.board.wait_of(rank) or header}")
        expected = f"the same call on all ranks of group {self.group.name}"
        fix = "Let all ranks make the same calls in the same order."
        return self.board.fail(CollectiveError(where, expected, ", ".join(shown), fix))

    def unlike(self, header: Header, call: CollectiveCall, out: np.ndarray) -> CollectiveError:
        """Error of a message that differs from the expected one."""
        here, peer = self.group.ranks[self.rank], self.group.ranks[call.peer]
        alike = all(getattr(header, n) == getattr(call.header, n) for n in ("dtype", "count"))
        what = f"{header}, of another shape," if alike else f"{header}"
        return self.board.fail(
            CollectiveError(
                self.text_of(call.header, out.shape).replace("send", "receive"),
                f"such a message from rank {peer}, as rank {here} receives",
                f"{what} of rank {peer}",
                "Send and receive arrays of the same dtype and shape.",
            )
        )

    # -- groups ----------------------------------------------------------------------------------

    def subgroup(self, group: Any) -> Any:
        return Local(group, group.rank, self.folder, self.board)

    def close(self) -> None:
        super().close()
        if self in self.board.transports:
            self.board.transports.remove(self)
        self.library.gh_end(self.queue)
        if self.group.ranks == tuple(range(self.board.size)):
            self.board.leave()


def known_dtype(where: str, array: np.ndarray) -> tuple[int, int]:
    """The number and the itemsize of an array's dtype.

    Raises: DTypeError for one that tensors do not have
    """
    kind = DTYPES.get(array.dtype)
    if kind is None:
        names = ", ".join(dtype.name for dtype in by_numpy.values())
        raise DTypeError(where, f"one of the dtypes {names}", array.dtype, "Cast it.")
    return kind


def check_shapes(where: str, array: np.ndarray, shape: tuple[Any, ...], dtype: DTypeLike) -> None:
    if array.shape != shape or array.dtype != dtype:
        got = f"{array.dtype} {array.shape}"
        raise ShapeError(where, f"an array of {dtype} {shape}", got, "Give one.")
