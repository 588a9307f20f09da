"""The world: this process's rank, its groups, and the way to the other ranks."""

import atexit
import sys
from collections.abc import Callable, Iterable
from time import time_ns

from glasshouse.base.errors import CollectiveError, OptionError, check_known
from glasshouse.base.flags import flags, mpi_place
from glasshouse.dispatch import backend as backends
from glasshouse.distributed.groups.objects import gathered_objects
from glasshouse.distributed.groups.rendezvous import check_alike, identity, join
from glasshouse.distributed.groups.store import Store, open_store
from glasshouse.distributed.transports import local
from glasshouse.distributed.transports.collectives import Collectives
from glasshouse.distributed.transports.mpi import Mpi
from glasshouse.distributed.transports.shared_files import SharedFiles
from glasshouse.ops.process import Process, ProcessGroup, process

__all__ = ["group", "init", "is_initialized", "rank", "register_transport", "shutdown", "size",
           "world"]  # fmt: skip

transports: dict[str, Callable[..., Collectives]] = {
    "local": local.join,
    "mpi": Mpi,
    "shared_files": SharedFiles,
}
DEFAULT = "local"  # among processes that the launcher started


def register_transport(name: str, make: Callable[..., Collectives]) -> None:
    """Have `init(name)` use `make(group, rank, folder, timeout_s)`, such as a subclass of
    `Collectives`."""
    transports[name] = make


def place_of(
    transport: str | None, rank: int | None, size: int | None, rendezvous: str | None
) -> tuple[str, int, int, str]:
    """Transport, rank, size and rendezvous: from the arguments, the launcher's flags, or MPI.

    Raises: CollectiveError where none of them says so
    """
    mpi = mpi_place()
    transport = transport or flags.transport
    rank = flags.rank if rank is None else rank
    size = flags.world_size if size is None else size
    rendezvous = flags.rendezvous if rendezvous is None else rendezvous
    if rank < 0 and mpi is not None:
        rank, size = mpi
        transport = transport or "mpi"
    transport = check_known("distributed.init", "a transport", transport or DEFAULT, transports)
    if not 0 <= rank < size or not (rendezvous or transport == "mpi"):
        raise CollectiveError(
            "distributed.init",
            "a rank below GH_WORLD_SIZE, and a place to meet",
            f"GH_RANK={rank}, GH_WORLD_SIZE={size}, GH_RENDEZVOUS={rendezvous!r}, "
            f"{'nothing' if mpi is None else f'rank {mpi[0]} of {mpi[1]}'} from MPI",
            "Start the script by `glasshouse launch -n 2 SCRIPT`, or by `mpiexec -n 2 python "
            "SCRIPT` for the transport mpi.",
        )
    return transport, rank, size, rendezvous


def folder_for(transport: str, store: Store, timeout_s: float) -> str:
    """The folder that ranks of one machine share, where the transport needs one.

    Raises: CollectiveError where they are on several machines
    """
    if not getattr(transports[transport], "needs_one_machine", True):
        return ""
    folder = store.find_folder(timeout_s)
    if not folder:
        fix = "Over several machines use mpi: mpiexec -hosts A,B -n 8 python SCRIPT."
        expected = f"all ranks on one machine for the transport {transport}"
        raise CollectiveError("distributed.init", expected, "a rank on another one", fix)
    return folder


def init(
    transport: str | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | None = None,
    timeout_s: float | None = None,
    wrap: Callable[[Collectives], Collectives] | None = None,
) -> ProcessGroup:
    """Join the world that the launcher made, and return its group; once, on every rank.

    All that is not given is the launcher's: `glasshouse launch` says it in GH_RANK, GH_WORLD_SIZE,
    GH_RENDEZVOUS and GH_TRANSPORT; under `mpiexec` the transport is mpi. A collective that takes
    longer than `timeout_s` (GH_TIMEOUT_S) has failed. `wrap` puts a user's class around the
    transport (`WrappedCollectives`).

    Raises: CollectiveError where there is no launcher, a rank does not come, or they differ;
        OptionError for another transport
    """
    if process.transports:
        fix = "Call it once, at the start."
        raise CollectiveError("distributed.init", "a process without a world", process.world, fix)
    transport, rank, size, rendezvous = place_of(transport, rank, size, rendezvous)
    timeout_s = flags.timeout_s if timeout_s is None else timeout_s
    our_identity = identity(transport=transport, **{"number of ranks": size})
    folder = ""
    if rendezvous:
        store = open_store(rendezvous)
        join(store, rank, size, timeout_s, our_identity)
        folder = folder_for(transport, store, timeout_s)
    process.rank, process.size = rank, size
    world = process.world
    try:
        collectives = transports[transport](world, rank, folder, timeout_s)
        if not rendezvous:
            check_alike(gathered_objects(collectives, our_identity))
        process.transports[world.ranks] = collectives if wrap is None else wrap(collectives)
        collectives.barrier()
        process.met_at_ns = time_ns()
    except BaseException:
        Process.__init__(process)
        raise
    atexit.register(shutdown)
    atexit.register(finish)  # before that
    return world


def finish() -> None:
    """Compute all recorded calls, because other ranks may wait for their collectives; not after an
    error that ends the program."""
    if process.transports and not hasattr(sys, "last_value"):
        backends.current().evaluate()


def shutdown() -> None:
    """Leave the world."""
    for transport in process.transports.values():
        transport.close()
    Process.__init__(process)


def is_initialized() -> bool:
    """Whether this process is part of a world."""
    return bool(process.transports)


def world() -> ProcessGroup:
    """All ranks; a group of one before `init`."""
    return process.world


def rank() -> int:
    """The number of this process in the world; 0 before `init`."""
    return process.rank


def size() -> int:
    """How many ranks there are; 1 before `init`."""
    return process.size


def group(ranks: Iterable[int], name: str = "") -> ProcessGroup:
    """The group of these ranks of the world, in this order. Every rank of the world calls it, those
    outside of the group too.

    Raises: OptionError for ranks that are none, or not each once
    """
    numbers = tuple(ranks)
    if not numbers or len({*numbers}) != len(numbers) or not {*numbers} <= {*range(process.size)}:
        expected = f"ranks from 0 to {process.size - 1}, each once"
        raise OptionError("distributed.group", expected, list(numbers), "Name others.")
    new_group = ProcessGroup(numbers, name or "+".join(map(str, numbers)))
    if len(numbers) > 1 and process.rank in numbers and numbers not in process.transports:
        everyone = process.transports[process.world.ranks]
        process.transports[numbers] = everyone.subgroup(new_group)
    return new_group
