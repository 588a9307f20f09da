"""This process among others: its rank, the groups that it is in, and their transports."""

from typing import Any, NamedTuple

from glasshouse.base.errors import CollectiveError


class ProcessGroup(NamedTuple):
    """Ranks that take part in a collective, by their numbers in the world; `name` is for people.
    `label` tells its calls from equal ones that ranks could make for another purpose."""

    ranks: tuple[int, ...]
    name: str = "world"
    label: str = ""

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def rank(self) -> int:
        """The number of this process within the group.

        Raises: CollectiveError if it is not in the group
        """
        if process.rank in self.ranks:
            return self.ranks.index(process.rank)
        expected = f"one of the ranks {list(self.ranks)}"
        fix = "Call a collective on the ranks of its group alone."
        raise CollectiveError(f"group {self.name}", expected, f"rank {process.rank}", fix)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.name}: {', '.join(map(str, self.ranks))})"


class Process:
    """The rank of this process, and the transports of the groups that it is in."""

    def __init__(self) -> None:
        self.rank: int = 0
        self.size: int = 1
        self.met_at_ns = 0  # when all ranks were there, by this process's clock (time.time_ns)
        self.transports: dict[tuple[int, ...], Any] = {}  # by the ranks of a group

    @property
    def world(self) -> ProcessGroup:
        """All ranks."""
        return ProcessGroup(tuple(range(self.size)))

    def transport(self, group: ProcessGroup) -> Any:
        """The transport that moves data among the ranks of a group.

        Raises: CollectiveError if there is none
        """
        transport = self.transports.get(group.ranks)
        if transport is None:
            raise CollectiveError(
                f"group {group.name}",
                f"a group that this process made ({[list(r) for r in self.transports]})",
                f"ranks {list(group.ranks)}",
                "Call gh.distributed.init(), and make groups by gh.distributed.group(ranks) on "
                "every rank.",
            )
        return transport


process: Process = Process()
ALONE = ProcessGroup((0,))
PAIR = ProcessGroup((0, 1))
