"""Exchanges: the ways in which ranks of a group pass data to each other, each declared once.

A collective's card declares its exchange with itself (`collective.py`); messages and the barrier,
which have no card, stand here. Transports, Programs, estimates, the counter, errors and the docs
read `EXCHANGES`: a transport that has no algorithm for one gathers all ranks' data and takes the
`meaning`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse.base import check_known
from glasshouse.ops.collective_bytes import send_nothing, send_once
from glasshouse.ops.collective_requests import CollectiveRequest

REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}
REDUCTIONS = tuple(REDUCE)
NARROW = ("float16", "bfloat16")


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


@dataclass(frozen=True, eq=False)
class Exchange:
    """All that is known about one exchange, beside its card.

    doc         the arrays of the transports' method, in words
    sent        the bytes that a rank sends, by a formula of `collective_bytes.py`
    name        of the method, and of the card where there is one
    sent_clear  the same over shared_files, where all is told to all
    meaning     (the sources of all ranks, the own rank, the option) -> the own `out`
    option      the argument of the method that is no array, and its `default`
    arrays      the method's arrays: one that is read and written, or `source` and `out`
    cut, join   attrs of the card: the axis along which operands are cut, and that along which
                results are joined; `source`, or `out`, then has a part of each rank
    may_replace   in a Program the result may take the place of the operand
    may_start     it can be begun, and waited for later
    is_ordered    its calls of a group are done in one order; messages find each other by tags
    is_native     native/collectives.c has an algorithm for it"""

    doc: str
    sent: Callable[..., int]
    name: str = ""
    sent_clear: Callable[..., int] | None = None
    meaning: Callable[..., Any] | None = None
    option: str | None = None
    default: Any = None
    arrays: tuple[str, ...] = ("source", "out")
    cut: str | None = None
    join: str | None = None
    may_replace: bool = False
    may_start: bool = True
    is_ordered: bool = True
    is_native: bool = True

    @property
    def axes(self) -> tuple[str, ...]:
        """The attrs that are axes."""
        return tuple(dict.fromkeys(name for name in (self.cut, self.join) if name))

    @property
    def signature(self) -> str:
        """The transports' method as it is called: "broadcast(buffer, root=0)"."""
        option = () if self.option is None else (f"{self.option}={self.default!r}",)
        return f"{self.name}({', '.join((*self.arrays, *option))})"

    @property
    def method(self) -> str:
        """The name of the transports' method that a call of the card makes."""
        return self.name

    def arguments(
        self, attrs: dict[Any, Any], source: np.ndarray, out: np.ndarray
    ) -> tuple[Any, ...]:
        """Arguments of the method for a call of the card; `out` becomes the result."""
        option = (attrs[self.option],) if self.option in attrs else ()
        if len(self.arrays) == 1:
            out[...] = source
            return out, *option
        return source, out, *option

    def call_bytes(self, attrs: dict[Any, Any], transport: str, *call: Any) -> int:
        """The bytes that a rank sends for a call (nbytes, size, rank, itemsize)."""
        clear = self.sent_clear if transport == "shared_files" else None
        return (clear or self.sent)(*call, attrs)

    def number(self, option: Any) -> int:
        """The option as C has it."""
        return REDUCTIONS.index(option) if self.option == "reduce" else option or 0

    def words(self, option: Any) -> str:
        """The option in words: "sum", "root 1"."""
        if self.option is None or option is None:
            return ""
        return option if self.option == "reduce" else f"{self.option} {option}"

    def request(self, dtype: Any, shape: Any, attrs: dict[Any, Any]) -> CollectiveRequest:
        """The request that a call of the card makes, with the attrs that ranks compare."""
        words = [self.words(attrs.get(self.option or ""))]
        words += [f"{axis} {attrs[axis]}" for axis in self.axes if attrs[axis]]
        words += [attrs["group"].label]
        return CollectiveRequest(
            self.name, dtype.name, tuple(shape), ", ".join(filter(None, words))
        )


EXCHANGES: dict[str, Exchange] = {}
TRANSPORTS = ("local", "shared_files", "mpi")  # mpi counts the bytes to send, as local does


def declare(exchange: Exchange) -> Exchange:
    """Enter an exchange into the table."""
    EXCHANGES[exchange.name] = exchange
    return exchange


declare(
    Exchange(
        "`source` goes to the rank `to`, which receives with the same tag.",
        name="send",
        sent=send_once,
        option="tag",
        default=0,
        arrays=("source", "to"),
        is_ordered=False,
    )
)
declare(
    Exchange(
        "`out` becomes the array that the rank `source` sends with this tag.",
        name="receive",
        sent=send_nothing,
        option="tag",
        default=0,
        arrays=("out", "source"),
        is_ordered=False,
        is_native=False,
    )
)
declare(
    Exchange(
        "Returns when all ranks are here.",
        name="barrier",
        sent=send_nothing,
        meaning=lambda _parts, _rank, _option: 0,
        arrays=(),
    )
)


def sent_bytes(
    collective: str,
    nbytes: int,
    size: int,
    rank: int = 0,
    *,
    itemsize: int = 1,
    transport: str = "local",
    **attrs: Any,
) -> int:
    """The bytes that this rank of a group of `size` sends, by the formulas of the table. `nbytes`
    are those of its operand, `itemsize` those of an element; `attrs` the call's, as `root=1`.

    Raises: OptionError for an unknown transport or collective

    Example:
        >>> sent_bytes("all_reduce", 4000, 2, itemsize=4), sent_bytes("all_gather", 4000, 4)
        (4000, 12000)
    """
    check_known("sent_bytes", "a transport", transport, TRANSPORTS)
    exchange = EXCHANGES[check_known("sent_bytes", "a collective", collective, EXCHANGES)]
    return exchange.call_bytes(attrs, transport, nbytes, size, rank, itemsize) if size > 1 else 0
