"""One trace file from several: of other processes, or of the ranks of a world."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.profile.traces.chrome import read, write


def merge(paths: list[str | Path], path: str | Path) -> Path:
    """Merge trace files of several processes or ranks into one. Clocks of different hosts are
    aligned by the moment at which all ranks of a world had met.

    Raises: OptionError if there is no file, or one that is no trace; OSError.
    """
    files = []
    for p in paths:
        try:
            files.append(read(p))
        except ValueError as error:
            fix = "Name files that a profiler wrote."
            raise OptionError("merge", "trace files", f"{p} ({error})", fix) from error
    if not files or not all("traceEvents" in file for file in files):
        raise OptionError("merge", "one trace file or more", repr(paths), "Name the files.")
    begins = begins_of(files)
    per_file = ("traceEvents", "recording", "traceName")
    head = {name: value for name, value in files[0].items() if name not in per_file}
    head["baseTimeNanoseconds"] = min(begins)
    return write(path, head, map(json.JSONEncoder().encode, merged(files, begins)))


def begins_of(files: list[dict[Any, Any]]) -> list[int]:
    """When each trace began, in ns by the clock of the first."""
    first, begins = files[0], []
    for file in files:
        begin, met = file.get("baseTimeNanoseconds", 0), file.get("metTimeNanoseconds", 0)
        has_other_clock = file.get("host_name") != first.get("host_name")
        if has_other_clock and met and first.get("metTimeNanoseconds"):
            begin -= met - first["metTimeNanoseconds"]
        begins.append(begin)
    return begins


def merged(files: list[dict[Any, Any]], begins: list[int]) -> Iterator[dict[Any, Any]]:
    """Events of all files: times since the first began, with separate processes and arrows."""
    flows, pids = 0, dict[Any, int]()  # processes as numbers, for not all readers know others
    for number, (file, begin) in enumerate(zip(files, begins, strict=True)):
        shift = (begin - min(begins)) / 1000
        highest = flows
        for record in file["traceEvents"]:
            record = {**record, "pid": pids.setdefault((number, record["pid"]), len(pids))}
            if record["ph"] != "M":
                record["ts"] += shift
            if "id" in record:
                record["id"] += flows
                highest = max(highest, record["id"])
            yield record
        flows = highest
