"""Records of memory use: a log in a file, and a picture of it."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, check_known, optional
from glasshouse.memory.manager import MemoryEvent, Tag, current

FIELDS = (*MemoryEvent._fields[:6], *Tag._fields, "manager")
COLOURS = 8  # groups that the eye can distinguish in a picture; the rest is drawn as one


def row_of(event: MemoryEvent) -> dict[Any, Any]:
    return dict(zip(FIELDS, (*event[:6], *event.tag, event.manager), strict=True))


@contextmanager
def log(path: str | Path) -> Iterator[Any]:
    """Inside, write each event of the current manager to `path`: JSON lines, or CSV by suffix.

    Raises: OptionError for another suffix than .jsonl, .json, .csv.
    """
    path = Path(path)
    if path.suffix not in (".jsonl", ".json", ".csv"):
        raise OptionError("log", "a path ending in .jsonl or .csv", repr(path.name), "Rename it.")
    manager = current()
    with path.open("w", newline="") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            subscription = manager.subscribe(lambda event: writer.writerow(row_of(event)))
        else:
            subscription = manager.subscribe(lambda e: print(json.dumps(row_of(e)), file=file))
        try:
            yield path
        finally:
            manager.catch_up()
            with manager.telling:  # another thread may be about to write
                subscription.remove()


def read_log(path: str | Path) -> list[MemoryEvent]:
    """The events of a file that `log` wrote."""
    path = Path(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file)) if path.suffix == ".csv" else map(json.loads, file)
        return [event_of(row) for row in rows]


def event_of(row: dict[Any, Any]) -> MemoryEvent:
    numbers = {name: int(row[name]) for name in FIELDS[1:6]}
    tag = Tag(*(row[name] for name in Tag._fields))
    return MemoryEvent(kind=row["kind"], tag=tag, manager=row["manager"], **numbers)


def live_by(events: list[MemoryEvent], by: str) -> dict[str, np.ndarray]:
    """Bytes in use after each event, by a part of the tags; "other" has the rest of the allocated
    bytes: small groups, rounding, and memory from before the first event."""
    groups: dict[str, np.ndarray] = {}
    live: dict[int, tuple[str, int]] = {}
    for i, event in enumerate(events):
        if event.kind == "alloc":
            name, change = getattr(event.tag, by) or f"no {by}", event.nbytes
            live[event.address] = name, -change
        elif event.kind == "free" and event.address in live:
            name, change = live.pop(event.address)
        else:
            continue
        groups.setdefault(name, np.zeros(len(events)))[i] = change
    groups = {name: np.cumsum(changes) for name, changes in groups.items()}
    largest = sorted(groups, key=lambda name: -groups[name].max())[:COLOURS]
    rest = np.array([event.allocated_bytes for event in events], float)
    bytes_of = {name: groups[name] for name in largest}
    return bytes_of | {"other": rest - sum(bytes_of.values())}


def plot(events: Any, path: str | Path, by: str = "phase") -> Path:
    """Save a picture of reserved and allocated bytes over time, coloured by a part of the tags:
    "phase", "module" or "primitive"; `events` may be a log's path.

    Raises: OptionError for another `by`, BackendError without matplotlib.
    """
    check_known("plot", "a part of the tags for by", by, Tag._fields)
    library = optional("plot", "matplotlib to be installed", "matplotlib.figure", "plot")
    events = read_log(events) if isinstance(events, (str, Path)) else list(events)
    times = [(event.time_ns - events[0].time_ns) / 1e6 for event in events]
    figure = library.Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    layers = {name: values / 2**20 for name, values in live_by(events, by).items()}
    axes.stackplot(times, list(layers.values()), labels=list(layers), step="post", alpha=0.7)
    reserved = [event.reserved_bytes / 2**20 for event in events]
    axes.step(times, reserved, where="post", color="black", linewidth=0.8, label="reserved")
    axes.set_xlabel("ms")
    axes.set_ylabel("MiB")
    axes.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=120)
    return Path(path)
