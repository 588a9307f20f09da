"""Launchers on several machines, a node each, that start one world and end together."""

import contextlib
import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.groups.store import TCP, TCPStore, serve
from glasshouse.distributed.launching.failure import RankFailure

ASK_S = 1.0  # between looks whether another node has failed
LEAVING_S = 10.0  # time for which the first node serves the store to others that have not ended


@dataclass(frozen=True)
class NodePlace:
    """This machine among `count`; the first serves the store at `master`, "host:port"."""

    count: int = 1
    number: int = 0
    master: str = ""


class NodeLink(ExitStack):
    """Context in which a launcher reports its failure to the others, and learns of theirs."""

    node: NodePlace
    place: str
    asked_at: float

    def __init__(self, node: NodePlace, folder: str) -> None:
        super().__init__()
        self.node, self.place, self.asked_at = node, TCP + node.master, 0.0
        self.store: TCPStore = TCPStore(self.place)
        if node.number == 0:
            parts = urlsplit(self.place)
            self.enter_context(serve(str(parts.hostname), parts.port or 0))
            self.store.set("folder", folder.encode())
        self.callback(self.leave)

    def tell(self, failure: RankFailure) -> None:
        fields = {**asdict(failure), "error": None}
        self.quietly(lambda: self.store.set("failure", json.dumps(fields).encode()))

    def hear(self) -> RankFailure | None:
        """Return the first failure on any node; looks for it now and then."""
        if time.monotonic() < self.asked_at + ASK_S:
            return None
        self.asked_at = time.monotonic()
        text = self.quietly(lambda: self.store.get("failure", 0))
        return RankFailure(**json.loads(text)) if text else None

    def quietly(self, call: Any) -> Any:
        """Return a call's result; None where the first node has left already."""
        with contextlib.suppress(CollectiveError):
            return call()
        return None

    def leave(self) -> None:
        """Leave; the first node waits for the others, which may still need the store."""
        self.quietly(lambda: self.store.set(f"end of node {self.node.number}", b""))
        if self.node.number == 0:
            end = time.monotonic() + LEAVING_S
            for number in range(self.node.count):
                remaining_s = max(end - time.monotonic(), 0)
                self.quietly(lambda n=number, s=remaining_s: self.store.get(f"end of node {n}", s))
