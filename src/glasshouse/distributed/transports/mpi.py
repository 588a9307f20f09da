"""Collectives over MPI, through mpi4py.

Each is one of MPI's calls that do not block, tested until it is done or the time limit has passed.
MPI would read and write beyond arrays if ranks made different calls: so all first gather the
digest of each rank's call (a message begins with it), and nothing else moves if one differs. MPI
does not support bfloat16, and its maximum loses NaN: such reductions exchange parts, reduce them
here in rank order (16-bit sums in float32, rounded once), and gather the results, which moves as
few bytes. Calls that are started without waiting run in the ordered thread where MPI allows calls
from several threads, and at once where it does not."""

import atexit
import faulthandler
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CollectiveError, optional
from glasshouse.distributed.transports.agreement import (
    TEXT_BYTES,
    bytes_of,
    call_text,
    call_words,
    disagreement,
    in_bytes,
    in_words,
)
from glasshouse.distributed.transports.collectives import (
    Collectives,
    Request,
    place_of_call,
)
from glasshouse.distributed.transports.mpi_board import MpiBoard
from glasshouse.ops.collective_requests import current, digest_of
from glasshouse.ops.exchange import NARROW, divide, reduced, sent_bytes
from glasshouse.ops.process import ProcessGroup, process

SPIN_S = 1e-3  # time of tests without a pause,
SPIN_S_PER_BYTE = 4e-9  # longer for more bytes: MPI moves them only while it is called
PAUSE_S = 50e-6  # between tests after that
LOOK_S = 0.05  # between looks at failures elsewhere
HEAD_BYTES = 8 + TEXT_BYTES  # sent before a message: its digest, and its text
PASSED_ON_S = 0.5  # time for mpiexec to pass on a rank's output
SEGMENTS = ("mpich_shm_", "sm_segment.")  # names of MPICH's and Open MPI's files in memory


class Mpi(Collectives):
    """Collectives over a communicator; without one, over the world of `mpiexec`."""

    digest: np.ndarray
    digests: np.ndarray

    needs_one_machine = False

    def __init__(
        self,
        group: ProcessGroup,
        rank: int,
        _folder: str = "",
        timeout_s: Any = 30.0,
        *,
        within: Any = None,
        board: MpiBoard | None = None,
    ) -> None:
        super().__init__(group, rank)
        self.timeout_s = timeout_s
        self.lost: list[Any] = []
        self.board = board
        self.digest, self.digests = np.empty(1, np.int64), np.empty(self.size, np.int64)
        self.MPI = begin_mpi(timeout_s)
        self.threads: Any = self.MPI.Query_thread() == self.MPI.THREAD_MULTIPLE
        self.comm: Any = self.MPI.COMM_WORLD if within is None else within
        if (self.comm.rank, self.comm.size) != (rank, self.size):
            expected = f"rank {rank} of {self.size} in MPI"
            got = f"rank {self.comm.rank} of {self.comm.size}"
            fix = "Start by `mpiexec -n 4 python SCRIPT` or `glasshouse launch --transport mpi`."
            raise CollectiveError("distributed.init", expected, got, fix)
        if within is None:
            self.meet_each(range(self.size))
            self.board = MpiBoard(self.MPI, self.comm.Dup())
            unlink_shared_memory()
            end_all_by_error(self.MPI)
            atexit.register(self.leave)

    # -- one call of MPI -------------------------------------------------------------------------

    def finish(self, name: str, *requests: Any, nbytes: int = 0, buffers: Any = ()) -> None:
        """Return when MPI's requests are done.

        Raises: CollectiveError after the time limit, and where MPI refuses
        """
        begin = time.monotonic()
        pause_after = begin + SPIN_S + SPIN_S_PER_BYTE * nbytes
        look_at = begin + LOOK_S
        try:
            while not all(request.Test() for request in requests):
                now = time.monotonic()
                if now > begin + self.timeout_s:
                    raise self.late(name, requests, buffers)
                if now > look_at and self.board is not None:
                    if self.board.listen():
                        raise self.late(name, requests, buffers)
                    look_at = now + LOOK_S
                if now > pause_after:
                    time.sleep(PAUSE_S)
                else:
                    os.sched_yield()
        except self.MPI.Exception as error:
            fix = "See that all ranks make the same calls with the same shapes and dtypes."
            where, got = f"{name} on rank {process.rank}", f"one of {nbytes} bytes here: {error}"
            raise CollectiveError(where, "equal calls on all ranks", got, fix) from error

    def late(self, name: str, requests: Any, buffers: Any) -> CollectiveError:
        """Error of a call that takes too long, or in which another rank has failed. MPI may still
        write into its buffers."""
        self.lost.append((requests, buffers))
        where = f"{name} on rank {process.rank}{place_of_call()}"
        got = f"a call of group {self.group.name} that is not done"
        if self.board is not None:
            suffix = f": {current.request}" if current.request else ""
            report = self.board.report(f"waits in {where} of group {self.group.name}{suffix}")
            got = f"{got} ({report})"
        return CollectiveError(
            where,
            f"all ranks of {self.group} within {self.timeout_s:g} s",
            got,
            "See where the other ranks are; GH_TIMEOUT_S sets the limit.",
        )

    def agree(self, name: str, array: np.ndarray, option: Any = None) -> None:
        """Compare the digests of all ranks' calls.

        Raises: CollectiveError on all ranks where it is not the same call
        """
        digest, digests = self.digest, self.digests
        digest[0] = digest_of(name, array.dtype, array.shape, option, current.request)
        self.finish(name, self.comm.Iallgather(digest, digests), buffers=(digest, digests))
        if (digests != digest[0]).any():
            text = call_text(name, array, option, self.group)
            texts = np.empty((self.size, TEXT_BYTES), np.uint8)
            self.move(name, self.comm.Iallgather, in_bytes(text), texts)
            error = disagreement(text, self.group, texts)
            self.tell_others(f"has failed: {error}")
            raise error

    def tell_others(self, text: str) -> None:
        """Tell the ranks outside of the group, which may wait for one that has failed."""
        if self.board is not None and self.size < self.board.comm.size:
            self.board.tell(text)

    def move(self, name: str, call: Any, source: np.ndarray, out: np.ndarray) -> None:
        """Run a collective that moves bytes as they are."""
        source_bytes, out_bytes = bytes_of(source), bytes_of(out)
        if source is out or np.may_share_memory(source_bytes, out_bytes):
            source_bytes = source_bytes.copy()
        buffers = [source_bytes, self.MPI.BYTE], [out_bytes, self.MPI.BYTE]
        self.finish(name, call(*buffers), nbytes=out_bytes.nbytes, buffers=buffers)

    def count(self, name: str, nbytes: int, **about: Any) -> None:
        self.sent_bytes += sent_bytes(name, nbytes, self.size, self.rank, **about)

    # -- the collectives -------------------------------------------------------------------------

    def exchange(self, way: Any, source: Any, out: Any, option: Any) -> None:
        self.agree(way.name, source, option)
        about = {} if way.option is None else {way.option: option}
        self.count(way.name, source.nbytes, itemsize=source.itemsize, **about)
        algorithm = ALGORITHMS.get(way.name)
        if algorithm is not None:
            algorithm(self, way.name, source, out, option)
        elif way.arrays:  # all ranks have agreed, which is what a barrier does
            parts = np.empty((self.size, *source.shape), source.dtype)
            self.move(way.name, self.comm.Iallgather, source, parts)
            out[...] = way.meaning(parts, self.rank, option)

    def gather(self, name: str, source: Any, out: Any, _option: Any) -> None:
        self.move(name, self.comm.Iallgather, source, out)

    def exchange_parts(self, name: str, source: Any, out: Any, _option: Any) -> None:
        self.move(name, self.comm.Ialltoall, source, out)

    def reduce(self, name: str, source: Any, out: Any, reduce: str) -> None:
        if in_parts(source.dtype, reduce):
            self.reduce_in_parts(name, source, out, reduce)
            return
        source, out = numbers(source), numbers(out)
        operand = self.MPI.IN_PLACE if np.may_share_memory(source, out) else source
        request = self.comm.Iallreduce(operand, out, self.operation(reduce))
        self.finish(name, request, nbytes=2 * out.nbytes, buffers=(source, out))
        if reduce == "mean":
            divide(out, self.size)

    def reduce_parts(self, name: str, source: Any, out: Any, reduce: str) -> None:
        if in_parts(source.dtype, reduce):
            parts = np.empty_like(source)
            self.move(name, self.comm.Ialltoall, source, parts)
            out[...] = reduced(parts, reduce)
            return
        source, out = numbers(source), numbers(out)
        source = source.copy() if np.may_share_memory(source, out) else source
        request = self.comm.Ireduce_scatter_block(source, out, self.operation(reduce))
        self.finish(name, request, nbytes=source.nbytes, buffers=(source, out))
        if reduce == "mean":
            divide(out, self.size)

    def reduce_in_parts(self, name: str, source: Any, out: Any, reduce: str) -> None:
        """Reduce in parts: each rank reduces a part of the elements, and sends it to all."""
        share = -(-source.size // self.size)
        padded = np.zeros((self.size, share), source.dtype)
        padded.reshape(-1)[: source.size] = source.reshape(-1)
        parts, whole = np.empty_like(padded), np.empty_like(padded)
        self.move(name, self.comm.Ialltoall, padded, parts)
        self.move(name, self.comm.Iallgather, reduced(parts, reduce), whole)
        out[...] = whole.reshape(-1)[: source.size].reshape(source.shape)

    def pass_from_root(self, name: str, buffer: Any, _out: Any, root: int) -> None:
        data = bytes_of(buffer)
        request = self.comm.Ibcast([data, self.MPI.BYTE], root)
        self.finish(name, request, nbytes=data.nbytes, buffers=(data,))

    # -- from rank to rank -----------------------------------------------------------------------

    def sending(self, source: Any, to: int, tag: int) -> list[tuple[Any, ...]]:
        """Requests with their buffers: for a message's digest and text, and for its data."""
        self.count("send", source.nbytes)
        about = np.empty(HEAD_BYTES, np.uint8)
        about[:8].view(np.int64)[0] = message_digest(source, tag)
        about[8:] = in_bytes(call_words("send", source, tag, self.group))
        parts = about, bytes_of(source)
        return [(self.comm.Isend([part, self.MPI.BYTE], to, tag), part) for part in parts]

    def expect(self, out: Any, source: int, tag: int) -> None:
        """Wait for the digest and text in front of a message.

        Raises: CollectiveError where it is not the one to be received
        """
        about = np.empty(HEAD_BYTES, np.uint8)
        request = self.comm.Irecv([about, self.MPI.BYTE], source, tag)
        self.finish("receive", request, buffers=(about,))
        if about[:8].view(np.int64)[0] != message_digest(out, tag):
            here, peer = self.group.ranks[self.rank], self.group.ranks[source]
            where = call_text("send", out, tag, self.group).replace("send", "receive")
            expected = f"such a message from rank {peer}, as rank {here} receives"
            fix = "Send and receive arrays of the same dtype and shape."
            got = f"{in_words(about[8:])} of rank {peer}"
            self.lost.append((request, about))
            error = CollectiveError(where, expected, got, fix)
            if self.board is not None:
                self.board.tell(f"has failed: {error}")
            raise error

    def send(self, source: Any, to: Any, tag: int = 0) -> None:
        requests, parts = zip(*self.sending(source, to, tag), strict=True)
        self.finish("send", *requests, nbytes=source.nbytes, buffers=parts)

    def receive(self, out: Any, source: Any, tag: int = 0) -> None:
        self.expect(out, source, tag)
        heard = bytes_of(out)
        request = self.comm.Irecv([heard, self.MPI.BYTE], source, tag)
        self.finish("receive", request, nbytes=heard.nbytes, buffers=(heard,))

    def send_receive(self, source: Any, to: Any, out: Any, origin: Any, tag: int = 0) -> None:
        if to == self.rank:
            out[...] = source
            return
        sent = self.sending(source, to, tag) if to is not None else []
        requests, buffers = [x for x, _ in sent], [x for _, x in sent]
        heard = bytes_of(out)
        if origin is not None:
            try:
                self.expect(out, origin, tag)
            except CollectiveError:
                self.lost.append((requests, buffers))
                raise
            requests.append(self.comm.Irecv([heard, self.MPI.BYTE], origin, tag))
            buffers.append(heard)
        self.finish("send_receive", *requests, nbytes=heard.nbytes, buffers=buffers)

    # -- groups, threads, the end ----------------------------------------------------------------

    def operation(self, reduce: str) -> Any:
        sums = {"sum": self.MPI.SUM, "mean": self.MPI.SUM}
        return (sums | {"max": self.MPI.MAX, "min": self.MPI.MIN})[reduce]

    def start(self, name: Any, *args: Any, **named: Any) -> Any:
        if self.threads:
            return super().start(name, *args, **named)
        method = getattr(self, name)
        request = Request(lambda: method(*args, **named))
        request.run()
        return request

    def subgroup(self, group: Any) -> Any:
        """Make a communicator; MPI sets no time limit on that, so all ranks meet before."""
        places = [self.group.ranks.index(rank) for rank in group.ranks]
        self.meet_each(places)
        comm = self.comm.Create_group(self.comm.Get_group().Incl(places))
        return Mpi(group, group.rank, "", self.timeout_s, within=comm, board=self.board)

    def meet_each(self, ranks: Any) -> None:
        """Exchange a message with each of these ranks."""
        requests, nothing = [], np.empty(0, np.uint8)
        for peer in ranks:
            if peer != self.rank:
                requests.append(self.comm.Irecv(nothing, peer))
                requests.append(self.comm.Isend(nothing, peer))
        self.finish("group", *requests, buffers=(nothing,))

    def leave(self) -> None:
        """Leave at the end of the process: MPI ends when all ranks are here, or all are ended."""
        try:
            if not self.lost:
                self.barrier()
        except CollectiveError as error:
            print(error, file=sys.stderr, flush=True)
        if self.lost:
            abort(self.MPI)


ALGORITHMS: dict[str, Any] = {
    "all_gather": Mpi.gather,
    "all_to_all": Mpi.exchange_parts,
    "all_reduce": Mpi.reduce,
    "reduce_scatter": Mpi.reduce_parts,
    "broadcast": Mpi.pass_from_root,
}


def begin_mpi(timeout_s: float) -> Any:
    """Import mpi4py. MPI begins when it is imported, and waits for all ranks without a time limit:
    after ours Python prints where it hangs, and ends."""
    if "mpi4py.MPI" in sys.modules:
        return sys.modules["mpi4py.MPI"]
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    try:
        return optional("distributed.init", "mpi4py", "mpi4py.MPI", "mpi")
    finally:
        faulthandler.cancel_dump_traceback_later()


def unlink_shared_memory() -> None:
    """Unlink the files in shared memory that MPI has opened on all ranks: they would stay where a
    rank is killed."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for name in {line.split()[-1] for line in lines if "/dev/shm/" in line}:
        if Path(name).name.startswith(SEGMENTS):
            Path(name).unlink(missing_ok=True)


def abort(MPI: Any) -> None:
    """End all ranks. This one's output is passed on before: mpiexec drops the rest."""
    sys.stderr.flush()
    time.sleep(PASSED_ON_S)
    MPI.COMM_WORLD.Abort(1)


def end_all_by_error(MPI: Any) -> None:
    """Have an error that nobody catches end all ranks: MPI would wait for them."""
    show = sys.excepthook

    def show_and_end(kind, error, trace):
        show(kind, error, trace)
        sys.stdout.flush()
        abort(MPI)

    sys.excepthook = show_and_end


def message_digest(array: np.ndarray, tag: int) -> int:
    return digest_of("send", array.dtype, array.shape, tag, current.request)


def numbers(array: np.ndarray) -> np.ndarray:
    """Flatten an array for MPI's arithmetic, with truth values as bytes."""
    flat = array.reshape(-1)
    return flat.view(np.uint8) if flat.dtype == bool else flat


def in_parts(dtype: np.dtype[Any], reduce: str) -> bool:
    """Whether MPI lacks the reduction, or computes it otherwise than the card."""
    return dtype.name in NARROW or (reduce in ("max", "min") and dtype.kind == "f")
