"""Meeting of ranks before there is a transport: each takes its number in a store, waits for the
others, and compares the settings that must be equal."""

import json
import os
import socket
import sys
import time
from typing import Any

import numpy as np

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.groups.store import Store
from glasshouse.version import __version__


def identity(**more: Any) -> dict[Any, Any]:
    """Return the versions, and `more`, that have to be the same on all ranks."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {"glasshouse": __version__, "Python": python, "numpy": np.__version__, **more}


def check_alike(identities: list[dict[Any, Any]]) -> None:
    """Raises: CollectiveError that names what differs, and on which ranks"""
    for name, expected in identities[0].items():
        values = [each.get(name) for each in identities]
        different = [rank for rank, value in enumerate(values) if value != expected]
        if different:
            raise CollectiveError(
                "distributed.init",
                f"the same {name} on all ranks",
                f"{expected} on rank 0, {values[different[0]]} on rank {different[0]}"
                + (f" (and others: {different[1:]})" if different[1:] else ""),
                "Start all ranks alike, by the same Python.",
            )


def join(store: Store, rank: int, size: int, timeout_s: float, alike: dict[Any, Any]) -> None:
    """Wait until all ranks have come, and compare their settings.

    Raises: CollectiveError where a rank is there twice, does not come, or differs
    """
    entry = {"process": os.getpid(), "host": socket.gethostname(), "alike": alike}
    if not store.set(f"rank {rank}", json.dumps(entry).encode()):
        other = json.loads(store.get(f"rank {rank}", timeout_s) or b"{}")
        if other != entry:
            raise CollectiveError(
                "distributed.init",
                f"one process with rank {rank}",
                f"process {entry['process']} on {entry['host']} beside process {other['process']} "
                f"on {other['host']}",
                "Give each its own GH_RANK, or let `glasshouse launch` do it.",
            )
    end = time.monotonic() + timeout_s
    entries = [store.get(f"rank {i}", max(end - time.monotonic(), 0)) for i in range(size)]
    missing = [i for i, value in enumerate(entries) if value is None]
    if missing:
        expected = f"all {size} ranks within {timeout_s:g} s"
        fix = "See what these ranks print."
        raise CollectiveError("distributed.init", expected, f"no sign of ranks {missing}", fix)
    check_alike([json.loads(value)["alike"] for value in entries if value])
