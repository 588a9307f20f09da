"""What happened to memory: a log in a file, and a picture of it."""

import csv
import json
from contextlib import contextmanager
from pathlib import Path

from glasshouse.base.errors import BackendError, OptionError
from glasshouse.memory.manager import Event, Tag, current

FIELDS = (*Event._fields[:6], *Tag._fields, "manager")


def row_of(event: Event) -> dict:
    """An event as a flat record."""
    return dict(zip(FIELDS, (*event[:6], *event.tag, event.manager), strict=True))


@contextmanager
def log(path):
    """Inside, write each event of the current manager to `path`: JSON lines, or CSV by suffix.

    Raises:  OptionError for another suffix than .jsonl, .json, .csv
    """
    path = Path(path)
    if path.suffix not in (".jsonl", ".json", ".csv"):
        raise OptionError(
            f"log: expected a path that ends in .jsonl or .csv; got {path.name!r}. Rename it."
        )
    with path.open("w", newline="") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            subscription = current().subscribe(lambda event: writer.writerow(row_of(event)))
        else:
            subscription = current().subscribe(
                lambda event: file.write(json.dumps(row_of(event)) + "\n") and None
            )
        try:
            yield path
        finally:
            subscription.remove()


def read_log(path) -> list[Event]:
    """The events of a file that `log` wrote."""
    path = Path(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file)) if path.suffix == ".csv" else map(json.loads, file)
        return [event_of(row) for row in rows]


def event_of(row: dict) -> Event:
    """The event that `row_of` wrote."""
    numbers = {name: int(row[name]) for name in FIELDS[1:6]}
    tag = Tag(*(row[name] for name in Tag._fields))
    return Event(kind=row["kind"], tag=tag, manager=row["manager"], **numbers)


def plot(events, path) -> Path:
    """Save a picture of allocated and reserved bytes over time; `events` may be a log's path.

    Raises:  BackendError without matplotlib
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendError(
            f"plot: expected matplotlib to be installed; got {error}. "
            "Install it: pip install 'glasshouse[plot]'."
        ) from error
    events = read_log(events) if isinstance(events, (str, Path)) else list(events)
    start = events[0].time_ns if events else 0
    times = [(event.time_ns - start) / 1e6 for event in events]
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, values in (
        ("reserved", [event.reserved_bytes / 2**20 for event in events]),
        ("allocated", [event.allocated_bytes / 2**20 for event in events]),
    ):
        axes.fill_between(times, values, step="post", alpha=0.35, label=name)
        axes.step(times, values, where="post", linewidth=0.8)
    axes.set_xlabel("ms")
    axes.set_ylabel("MiB")
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=120)
    return Path(path)
