"""How many bytes a rank sends in a collective, by transport: what the cards predict.

A byte counts once for each rank that reads it. With n ranks and an operand of B bytes on each:

| collective     | local                                  | shared_files     |
| all_reduce     | B - P + (n - 1) P; if small, (n - 1) B | (n - 1) B        |
| all_gather     | (n - 1) B                              | (n - 1) B        |
| reduce_scatter | B - B / n                              | (n - 1) B        |
| all_to_all     | B - B / n                              | (n - 1) B        |
| broadcast      | (n - 1) B on the root, else 0          | the same         |
| send           | B                                      | B                |
| receive, barrier | 0                                    | 0                |

P is the part of the result that the rank itself adds up, see `part`; an all_reduce is small up to
SMALL_BYTES. A transport counts what it moves in `sent_bytes`; a test compares that with this."""

from collections.abc import Callable

from glasshouse.base import check_known

SMALL_BYTES = 2048  # up to here an all_reduce sends its whole operand to all: one meeting, not two


def part(count: int, size: int, rank: int) -> tuple[int, int]:
    """The first element of `count` that the rank adds up for all, and the one after its last.

    Example:
        >>> [part(7, 3, rank) for rank in range(3)]
        [(0, 2), (2, 4), (4, 7)]
    """
    return count * rank // size, count * (rank + 1) // size


def of_all_reduce(nbytes: int, size: int, rank: int, root: int, itemsize: int) -> int:
    if nbytes <= SMALL_BYTES:
        return (size - 1) * nbytes
    begin, end = part(nbytes // itemsize, size, rank)
    part_bytes = (end - begin) * itemsize
    return nbytes - part_bytes + (size - 1) * part_bytes


def to_all(nbytes: int, size: int, *_) -> int:
    return (size - 1) * nbytes


def parts_of_others(nbytes: int, size: int, *_) -> int:
    return nbytes - nbytes // size


def of_broadcast(nbytes: int, size: int, rank: int, root: int, itemsize: int) -> int:
    return (size - 1) * nbytes if rank == root else 0


def once(nbytes: int, *_) -> int:
    return nbytes


def none(*_) -> int:
    return 0


SENT: dict[str, dict[str, Callable[..., int]]] = {
    "local": {
        "all_reduce": of_all_reduce,
        "all_gather": to_all,
        "reduce_scatter": parts_of_others,
        "all_to_all": parts_of_others,
        "broadcast": of_broadcast,
        "send": once,
        "receive": none,
        "barrier": none,
    },
}
SENT["shared_files"] = SENT["local"] | {
    "all_reduce": to_all,
    "reduce_scatter": to_all,
    "all_to_all": to_all,
}
SENT["mpi"] = SENT["local"]  # the bytes to send; MPI chooses its own ways


def sent_bytes(
    collective: str,
    nbytes: int,
    size: int,
    rank: int = 0,
    *,
    root: int = 0,
    itemsize: int = 1,
    transport: str = "local",
) -> int:
    """The bytes that this rank of a group of `size` sends, by the table above. `nbytes` are those
    of its operand, `itemsize` those of an element.

    Raises: OptionError for an unknown transport or collective

    Example:
        >>> sent_bytes("all_reduce", 4000, 2, itemsize=4), sent_bytes("all_gather", 4000, 4)
        (4000, 12000)
    """
    formulas = SENT[check_known("sent_bytes", "a transport", transport, SENT)]
    check_known("sent_bytes", "a collective", collective, formulas)
    return formulas[collective](nbytes, size, rank, root, itemsize) if size > 1 else 0
