"""A world without other processes, in which programs are planned as one rank of many runs them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from glasshouse.base.errors import CollectiveError, OptionError, check_known
from glasshouse.distributed.transports.collectives import Collectives
from glasshouse.ops.exchange import TRANSPORTS
from glasshouse.ops.process import Process, ProcessGroup, process


class Simulated(Collectives):
    """Collectives without any other rank."""

    send: Callable[..., None]
    receive: Callable[..., None]

    def __init__(self, group: ProcessGroup, rank: int, counts_as: str) -> None:
        super().__init__(group, rank)
        self.counts_as = counts_as

    def refuse(self, *args: Any, **named: Any) -> Any:
        """Raises: CollectiveError"""
        expected = "a program that is planned alone"
        got = "a collective to run in a simulated world"
        fix = "Make tensors inside gh.meta(), or call gh.analyze.step."
        raise CollectiveError(f"group {self.group.name}", expected, got, fix)

    exchange = send = receive = refuse

    def start(self, name: Any, *args: Any, **named: Any) -> Any:
        return self.refuse()

    def barrier(self) -> None:
        pass

    def subgroup(self, group: Any) -> "Simulated":
        return Simulated(group, group.rank, self.counts_as)


@contextmanager
def simulated(size: int, rank: int = 0, transport: str = "local") -> Iterator[ProcessGroup]:
    """Context: a world of `size` ranks in which this process is `rank` and the others do not exist.

    Inside, `gh.meta()` and `gh.analyze.step` plan as on that rank: with the same peak of memory,
    and the same bytes sent, as `transport` counts them.

    Raises: OptionError for a rank out of range; CollectiveError within another world
    Example:
        >>> import glasshouse as gh
        >>> with gh.distributed.simulated(4, rank=3), gh.meta(), gh.FlopCounter() as counter:
        ...     y = gh.distributed.all_gather(gh.ones((8, 25)))
        ...     counter.sent_bytes()
        {('all_gather', 'world'): 2400}
    """
    check_known("distributed.simulated", "a transport", transport, TRANSPORTS)
    if not 0 <= rank < size:
        expected = f"a rank from 0 to {size - 1}"
        raise OptionError("distributed.simulated", expected, rank, "Name another one.")
    if process.transports:
        fix = "Leave the other world first."
        raise CollectiveError("distributed.simulated", "no world yet", process.world, fix)
    process.rank, process.size = rank, size
    world = process.world
    process.transports[world.ranks] = Simulated(world, rank, transport)
    try:
        yield world
    finally:
        Process.__init__(process)
