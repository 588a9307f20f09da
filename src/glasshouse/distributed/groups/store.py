"""A small store of keys and values, which ranks share before there is a transport.

A value is written once and never changed. On one machine the store is a folder; over many the first
launcher serves it over TCP."""

import abc
import contextlib
import json
import os
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from glasshouse.base.errors import CollectiveError

if TYPE_CHECKING:
    from threading import Condition


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5e-3, 50e-3  # between looks into a folder
TCP = "tcp://"
CONNECT_S = 30.0  # how long the launcher that serves may come later
MORE_S = 5.0  # extra time for the server's answer, beside the wait itself


class Store(abc.ABC):
    """Keys with values of bytes, which the ranks of a world share."""

    @abc.abstractmethod
    def set(self, key: str, value: bytes) -> bool:
        """Give a key its value; False where it has one already, which stays."""

    @abc.abstractmethod
    def get(self, key: str, timeout_s: float) -> bytes | None:
        """The value of a key as soon as it has one; None where it has none in time."""

    @abc.abstractmethod
    def find_folder(self, timeout_s: float) -> str:
        """A folder for files that the ranks of one machine share; "" where there is none."""


class FolderStore(Store):
    """A file for each key, in a folder that all ranks see."""

    def __init__(self, folder: str) -> None:
        self.folder: Path = Path(folder)

    def path(self, key: str) -> Path:
        return self.folder / ("key-" + quote(key, safe=""))

    def set(self, key: str, value: bytes) -> bool:
        descriptor, whole = tempfile.mkstemp(dir=self.folder, prefix="writing-")
        with open(descriptor, "wb") as file:
            file.write(value)
        try:
            os.link(whole, self.path(key))  # appears with all of its contents, and only once
        except FileExistsError:
            return False
        finally:
            os.unlink(whole)
        return True

    def get(self, key: Any, timeout_s: float) -> Any:
        end, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
        while True:
            try:
                return self.path(key).read_bytes()
            except FileNotFoundError:
                remaining_s = end - time.monotonic()
                if remaining_s <= 0:
                    return None
            time.sleep(min(pause, remaining_s))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def find_folder(self, timeout_s: float) -> str:
        return str(self.folder)


class TCPStore(Store):
    """A store that the launcher at "tcp://host:port" serves; each request is a connection, and a
    line of JSON in each direction."""

    place: str

    def __init__(self, place: str) -> None:
        self.place, parts = place, urlsplit(place)
        self.address: tuple[str | None, int | None] = (parts.hostname, parts.port)
        self.patience_s: float = CONNECT_S

    def set(self, key: str, value: bytes) -> bool:
        return self.ask(key=key, value=value.decode("latin-1"))

    def get(self, key: Any, timeout_s: float) -> Any:
        value = self.ask(key=key, timeout_s=timeout_s)
        return None if value is None else value.encode("latin-1")

    def find_folder(self, timeout_s: Any) -> str:
        folder = self.get("folder", timeout_s) or b""
        return folder.decode() if Path(folder.decode()).is_dir() else ""

    def ask(self, **request: Any) -> Any:
        try:
            with self.connect() as connection:
                self.patience_s = 0.0  # it is there
                connection.settimeout(request.get("timeout_s", 0) + MORE_S)
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile() as answer:
                    return json.loads(answer.readline())
        except (OSError, ValueError) as error:
            fix = "Start the launcher with --node-rank 0 there, and see that this host reaches it."
            where = "distributed.init"
            raise CollectiveError(where, f"a store at {self.place}", error, fix) from error

    def connect(self) -> socket.socket:
        end = time.monotonic() + self.patience_s
        while True:
            try:
                return socket.create_connection(self.address, CONNECT_S)
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
            time.sleep(LONGEST_PAUSE_S)


class StoreRequest(socketserver.StreamRequestHandler):
    """One request of a TCPStore."""

    server: Any

    def handle(self) -> None:
        answer = self.server.answer(**json.loads(self.rfile.readline()))
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class StoreServer(socketserver.ThreadingTCPServer):
    """Key-value server of the first node's launcher."""

    allow_reuse_address = daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int]) -> None:
        self.values: dict[str, str] = {}
        self.changed: Condition = threading.Condition()
        super().__init__(address, StoreRequest)

    def answer(self, key: str, value: str | None = None, timeout_s: float = 0.0) -> Any:
        """Set a value, and return whether it is new; or return the key's value, if it comes in
        time."""
        with self.changed:
            if value is None:
                self.changed.wait_for(lambda: key in self.values, timeout_s)
                return self.values.get(key)
            is_new = key not in self.values
            self.values.setdefault(key, value)
            self.changed.notify_all()
            return is_new


@contextlib.contextmanager
def serve(host: str, port: int) -> Iterator[StoreServer]:
    """Context in which a thread serves a store at this address."""
    with StoreServer((host, port)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(LONGEST_PAUSE_S,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def open_store(place: str) -> Store:
    """The store at this place: "tcp://host:port", or a folder."""
    return TCPStore(place) if place.startswith(TCP) else FolderStore(place)
