"""The world: which rank this process is, its groups, and how it finds the others."""

import atexit
from collections.abc import Iterable

from glasshouse.base.errors import CollectiveError, OptionError, check_known
from glasshouse.base.flags import flags
from glasshouse.distributed.collectives import Collectives
from glasshouse.distributed.shared_files import SharedFiles
from glasshouse.ops.collective import ProcessGroup, process

TIMEOUT_S = 30.0  # a collective that takes longer than this has failed

Transport = type[Collectives]
transports: dict[str, Transport] = {"shared_files": SharedFiles}


def init(
    transport: str = "shared_files",
    *,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ProcessGroup:
    """Join the world that the launcher made, and give its group; once, on every rank.

    `rank`, `size` and the folder `rendezvous` are the launcher's (GH_RANK, GH_WORLD_SIZE,
    GH_RENDEZVOUS) where they are not given.

    Raises: CollectiveError where there is no launcher, or where it was called before
    """
    rank = flags.rank if rank is None else rank
    size = size or flags.world_size
    rendezvous = rendezvous or flags.rendezvous
    if process.transports:
        fix = "Call it once, at the start."
        raise CollectiveError("distributed.init", "a process without a world", process.world, fix)
    check_known("distributed.init", "a transport", transport, transports)
    if not (0 <= rank < size and rendezvous):
        raise CollectiveError(
            "distributed.init",
            "a rank below GH_WORLD_SIZE, and a folder to meet in",
            f"GH_RANK={rank}, GH_WORLD_SIZE={size}, GH_RENDEZVOUS={rendezvous!r}",
            "Start the script by `glasshouse launch -n 2 SCRIPT`.",
        )
    process.rank, process.size = rank, size
    world = process.world
    process.transports[world.ranks] = transports[transport](world, rank, rendezvous, timeout_s)
    atexit.register(shutdown)
    return world


def shutdown() -> None:
    """Leave the world."""
    for transport in process.transports.values():
        transport.close()
    process.__init__()


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
    made = ProcessGroup(numbers, name or "+".join(map(str, numbers)))
    if len(numbers) > 1 and process.rank in numbers and numbers not in process.transports:
        everyone = process.transports[process.world.ranks]
        process.transports[numbers] = everyone.subgroup(made)
    return made
