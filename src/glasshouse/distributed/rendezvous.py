"""How ranks find each other before there is a transport: a small store of keys and values.

A value is written once and never changed, so a store needs no locks. `join` is what every rank does
with it first: it takes its number, waits for the others, and compares what must be equal."""

import abc
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np

from glasshouse.base.errors import CollectiveError
from glasshouse.version import __version__

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5e-3, 50e-3  # between looks into a folder


class Store(abc.ABC):
    """Keys with values of bytes, which the ranks of a world share."""

    @abc.abstractmethod
    def set(self, key: str, value: bytes) -> bool:
        """Give a key its value; False where it has one already, which stays."""

    @abc.abstractmethod
    def get(self, key: str, timeout_s: float) -> bytes | None:
        """The value of a key as soon as it has one; None where it has none in time."""


class FolderStore(Store):
    """A file for each key, in a folder that all ranks see."""

    def __init__(self, folder: str):
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        return self.folder / ("key-" + quote(key, safe=""))

    def set(self, key, value):
        descriptor, whole = tempfile.mkstemp(dir=self.folder, prefix="writing-")
        with open(descriptor, "wb") as file:
            file.write(value)
        try:
            os.link(whole, self.path(key))  # appears with all that is in it, and only once
        except FileExistsError:
            return False
        finally:
            os.unlink(whole)
        return True

    def get(self, key, timeout_s):
        end, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
        while True:
            try:
                return self.path(key).read_bytes()
            except FileNotFoundError:
                left = end - time.monotonic()
                if left <= 0:
                    return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE_S)


def open_store(place: str) -> Store:
    """The store at this place, which is a folder."""
    return FolderStore(place)


def identity(**more) -> dict:
    """What has to be the same on all ranks."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {"glasshouse": __version__, "Python": python, "numpy": np.__version__, **more}


def check_alike(identities: list[dict]) -> None:
    """Raises: CollectiveError that names what differs, and on which ranks"""
    for name, wanted in identities[0].items():
        values = [each.get(name) for each in identities]
        different = [rank for rank, value in enumerate(values) if value != wanted]
        if different:
            raise CollectiveError(
                "distributed.init",
                f"the same {name} on all ranks",
                f"{wanted} on rank 0, {values[different[0]]} on rank {different[0]}"
                + (f" (and others: {different[1:]})" if different[1:] else ""),
                "Start all ranks alike, by the same Python.",
            )


def join(store: Store, rank: int, size: int, timeout_s: float, alike: dict) -> None:
    """Return when all ranks have come, and are alike.

    Raises: CollectiveError where a rank is there twice, does not come, or differs
    """
    own = {"process": os.getpid(), "host": socket.gethostname(), "alike": alike}
    if not store.set(f"rank {rank}", json.dumps(own).encode()):
        other = json.loads(store.get(f"rank {rank}", timeout_s) or b"{}")
        if other != own:
            raise CollectiveError(
                "distributed.init",
                f"one process with rank {rank}",
                f"process {own['process']} on {own['host']} beside process {other['process']} "
                f"on {other['host']}",
                "Give each its own GH_RANK, or let `glasshouse launch` do it.",
            )
    end = time.monotonic() + timeout_s
    told = [store.get(f"rank {i}", max(end - time.monotonic(), 0)) for i in range(size)]
    missing = [i for i, value in enumerate(told) if value is None]
    if missing:
        raise CollectiveError(
            "distributed.init",
            f"all {size} ranks within {timeout_s:g} s",
            f"no sign of ranks {missing}",
            "See what these ranks print.",
        )
    check_alike([json.loads(value)["alike"] for value in told if value])
