"""Table of the cost of each node of a traced model, and its rows."""

import html
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from glasshouse.base import check_known
from glasshouse.profile.counter import Sums
from glasshouse.profile.text import si_text, table

UNITS = (("Gb", 1 << 30), ("Mb", 1 << 20), ("Kb", 1 << 10))  # bytes, as ColossalAI writes them


@dataclass
class NodeCost:
    """One node. Sizes in bytes, times in ns without fusion.

    accumulate    bytes saved for backward after this node, in all
    incremental   bytes that this node adds to them
    output, temp  its new results: those that are saved, and those that are not
    param         parameters that it reads
    backward      gradients that its backward makes for its operands"""

    name: str
    op: str
    target: str
    module: str
    line: str
    shape: str
    accumulate: int = 0
    incremental: int = 0
    output: int = 0
    temp: int = 0
    param: int = 0
    backward: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0
    forward_ns: float = 0.0
    backward_ns: float = 0.0


NUMBERS = tuple(f.name for f in fields(NodeCost)[6:])


class CostTable:
    """The rows of `symbolic_profile`, in the order of the graph; prints as a table. `unknown` names
    the nodes without known FLOPs, time and gradients."""

    def __init__(self, rows: list[NodeCost], convention: str, unknown: list[str]) -> None:
        self.rows = rows
        self.convention = convention
        self.unknown = unknown

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int | str) -> NodeCost:
        if isinstance(key, int):
            return self.rows[key]
        named = {row.name: row for row in self.rows}
        return named[check_known("symbolic_profile", "the name of a node", key, named)]

    def total(self, column: str) -> float:
        """The sum of a column; of `accumulate`, its last value."""
        check_known("total", "a column", column, NUMBERS)
        if column == "accumulate":
            return self.rows[-1].accumulate if self.rows else 0
        return sum(getattr(row, column) for row in self.rows)

    def sorted(self, column: str) -> "CostTable":
        """The rows with the largest in a column first."""
        self.total(column)
        rows = sorted(self.rows, key=lambda row: -getattr(row, column))
        return CostTable(rows, self.convention, self.unknown)

    def table(self, row_limit: int | None = None) -> str:
        """The rows and their totals as text."""
        size: Callable[..., Any] = colossal_size if self.convention == "colossal" else size_of
        count: Callable[..., Any] = colossal_count if self.convention == "colossal" else si_text
        shown = [(name, count if "flops" in name else size) for name in NUMBERS[:8]]
        lines = [
            [row.name, row.op, row.shape, *(show(getattr(row, c)) for c, show in shown)]
            for row in self.rows[:row_limit]
        ]
        lines.append(["total", "", "", *(show(self.total(c)) for c, show in shown)])
        heads = ["node", "op", "shape", *(c.replace("_", " ") for c, _ in shown)]
        note = f"not counted: {', '.join(self.unknown)}\n" if self.unknown else ""
        return table(heads, lines, left=3, limit=44) + "\n" + note

    def modules(self, depth: int = 2) -> str:
        """The sums by module as text."""
        sums, columns = Sums(), ("incremental", "temp", "param", "forward_flops", "backward_flops")
        for row in self.rows:
            path = ".".join(row.module.split(".")[:depth])
            sums.add(path or "(none)", *(getattr(row, c) for c in columns))
        lines = [[path, *map(size_of, n[:3]), *map(si_text, n[3:])] for path, n in sums.items()]
        return table(["module", *(c.replace("_", " ") for c in columns)], lines) + "\n"

    def __str__(self) -> str:
        return self.table()

    def to_dicts(self) -> list[dict[Any, Any]]:
        """A dict for each row."""
        return [dict(vars(row)) for row in self.rows]

    def to_json(self) -> str:
        return json.dumps(self.to_dicts())

    def to_pandas(self) -> Any:
        """A pandas DataFrame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_html(self) -> str:
        """A table for a web page."""
        head = "".join(f"<th>{f.name}</th>" for f in fields(NodeCost))
        cells = ([f"<td>{html.escape(str(v))}</td>" for v in vars(row).values()] for row in self)
        body = "".join(f"<tr>{''.join(texts)}</tr>" for texts in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def size_of(nbytes: float) -> str:
    return si_text(nbytes, "B")


def colossal_size(nbytes: float) -> str:
    for unit, size in UNITS:
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{int(nbytes)} b"


def colossal_count(flops: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops > size:
            return f"{flops / size:.2f} {unit}FLOPs"
    return f"{int(flops)} FLOPs"
