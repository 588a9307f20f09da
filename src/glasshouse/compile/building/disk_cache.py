"""The folder of compiled code: its entries, its limit of bytes, and the leftovers of crashes.

An entry is one file: its data (a shared library, a Program's code, a precompiled header, or the
compiler's answers about itself), then the digest of the data. A rename puts it in place, so two
processes that write the same entry at once do not mix. Its modification time is that of its last
use. A link names the library that holds a kernel. New files are made in a work folder, which its
process locks. The system releases the lock however the process ends, so the next process knows
which folders to remove."""

import atexit
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from glasshouse.base.flags import flags, user_cache_folder

HEADER, ANSWER = ".gch", ".answer"
DATA_SUFFIXES = (".so", ".code", HEADER, ANSWER)
LINK = ".kernel"
DIGEST_BYTES = 64  # of a digest in hexadecimal digits
WORK = "work-"  # how the names of work folders begin …
TEMPORARY = "glasshouse-compiled-"  # … and those of temporary folders in place of the cache
LOCK_S = 60  # a folder this young may belong to a process that is about to lock it
PRUNE_PARTS = 50  # of the limit: bytes that a process writes before it prunes again
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class CacheEntry:
    """File of one entry, its bytes, and its last use (seconds since 1970)."""

    path: Path
    nbytes: int
    used_s: float


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cache_folder() -> Path:
    """Folder of compiled code: GH_CACHE, or glasshouse in the user's cache folder."""
    return Path(flags.cache) if flags.cache else user_cache_folder() / "glasshouse"


@functools.cache
def open_cache(folder: Path) -> Path:
    """Open the folder, created if needed and private to the user; else a temporary one, warned. One
    of the system's that may only be read, as in an image, is opened too."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
            raise OSError("others may write to it")
        if not os.access(folder, os.W_OK):
            return folder
        with tempfile.TemporaryFile(dir=folder):
            pass
        remove_stale(folder, WORK)
        return folder
    except OSError as error:
        if error.errno in FULL:
            warn_full(folder)
        else:
            warnings.warn(
                f"glasshouse: the cache {folder} is not usable ({error}); compiled code is kept "
                "for this process only. Set GH_CACHE to a folder of your own.",
                stacklevel=2,
            )
        return temporary_folder()


@functools.cache
def warn_full(folder: Path) -> None:
    """Warn, once for each folder, that its disk is full."""
    warnings.warn(
        f"glasshouse: no space is left on the disk of the cache {folder}; compiled code is "
        f"kept for this process only. {full_fix()}",
        stacklevel=3,
    )


def full_fix() -> str:
    return (
        "Free space (`glasshouse cache --clear` empties the cache), or set GH_CACHE to a folder on "
        "another disk."
    )


# -- folders that a process works in -----------------------------------------------------------


class FolderLock:
    """Lock of a process on its own folder, for as long as it works there."""

    def __init__(self, folder: Path) -> None:
        self.descriptor: int = os.open(folder, os.O_RDONLY)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        os.close(self.descriptor)


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """A locked folder inside `parent`, removed at the end.

    Raises: OSError
    """
    folder = Path(tempfile.mkdtemp(prefix=WORK, dir=parent))
    try:
        lock = FolderLock(folder)
        try:
            yield folder
        finally:
            lock.release()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_parent() -> Path:
    return Path(tempfile.gettempdir())


@functools.cache
def temporary_folder() -> Path:
    """A temporary folder in place of the cache, removed when the process ends.

    Raises: OSError
    """
    parent = temporary_parent()
    remove_stale(parent, TEMPORARY)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
    FolderLock(folder)
    owner = os.getpid()

    def remove():
        if os.getpid() == owner:  # not a fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def remove_stale(parent: Path, prefix: str) -> None:
    """Remove the folders of processes that were killed."""
    with suppress(OSError), os.scandir(parent) as folder_entries:
        for entry in folder_entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                remove_if_stale(Path(entry.path))


def remove_if_stale(folder: Path) -> None:
    with suppress(OSError):
        status = folder.stat()
        if status.st_uid != os.getuid() or time.time() - status.st_mtime < LOCK_S:
            return
        FolderLock(folder).release()  # fails where its process still works in it
        shutil.rmtree(folder, ignore_errors=True)


# -- entries -----------------------------------------------------------------------------------


def read_entry(path: Path) -> bytes | None:
    """Read the data of an entry if the digest after them is theirs; it counts as used now."""
    try:
        contents = path.read_bytes()
    except OSError:
        return None
    data = contents[:-DIGEST_BYTES]
    if digest(data).encode() != contents[-DIGEST_BYTES:]:
        return None
    with suppress(OSError):  # a folder that may only be read
        os.utime(path)
    return data


def write_entry(path: Path, data: bytes) -> None:
    """Store data as an entry.

    Raises: OSError
    """
    with work_folder(path.parent) as folder:
        finished = folder / path.name
        finished.write_bytes(data)
        place_entry(finished, path)


def place_entry(finished: Path, path: Path) -> None:
    """Move a finished file to its place, with its digest after its data.

    Raises: OSError
    """
    mark = digest(finished.read_bytes()).encode()
    with finished.open("ab") as file:  # which the loader of a shared library leaves unread
        file.write(mark)
    nbytes = finished.stat().st_size
    os.replace(finished, path)
    Written.count(path.parent, nbytes)


def link_kernel(folder: Path, name: str, library: str) -> None:
    """Record that the kernel of this name lies in a library of the folder. A folder without links
    costs only the time of compiling again."""
    link = folder / f"{name}{LINK}"
    with suppress(OSError):
        link.unlink(missing_ok=True)
        link.symlink_to(library)


def library_of(folder: Path, name: str) -> Path | None:
    """The library that holds a kernel."""
    try:
        return folder / os.readlink(folder / f"{name}{LINK}")
    except OSError:
        return None


class Written:
    """Bytes that this process wrote since it last pruned. They start at a random number up to the
    limit for pruning: so many short processes prune as often as one that writes as much, and few of
    them wait for a look through a large folder."""

    nbytes: float | None = None

    @classmethod
    def count(cls, folder: Path, nbytes: int) -> None:
        """Prune the folder now and then, so that it stays within GH_CACHE_BYTES."""
        if not flags.cache_bytes:
            return
        most = flags.cache_bytes / PRUNE_PARTS
        if cls.nbytes is None:
            cls.nbytes = most * int.from_bytes(os.urandom(4)) / 2**32
        cls.nbytes += nbytes
        if cls.nbytes > most:
            cls.nbytes = 0
            prune_entries(folder, flags.cache_bytes)


def list_entries(folder: Path) -> list[CacheEntry]:
    """The entries of the folder, that used longest ago first."""
    entries = []
    with suppress(OSError), os.scandir(folder) as files:
        for file in files:
            path = Path(file.path)
            if path.suffix in DATA_SUFFIXES:
                with suppress(OSError):  # another process removed it
                    status = file.stat()
                    entries.append(CacheEntry(path, status.st_size, status.st_mtime))
    return sorted(entries, key=lambda entry: (entry.used_s, entry.path.name))


def prune_entries(folder: Path, most_bytes: int) -> list[CacheEntry]:
    """Remove the entries that were used longest ago until at most `most_bytes` are left; returns
    the removed entries. Running Programs are safe: a library in memory does not need its file."""
    entries = list_entries(folder)
    total = sum(entry.nbytes for entry in entries)
    removed = []
    for entry in entries:
        if total <= most_bytes:
            break
        with suppress(OSError):
            entry.path.unlink(missing_ok=True)
            removed.append(entry)
            total -= entry.nbytes
    if removed:
        remove_dead_links(folder)
    return removed


def clear_entries(folder: Path) -> list[CacheEntry]:
    """Remove all that this package wrote to the folder, except the work of other processes; returns
    the removed entries."""
    removed = prune_entries(folder, -1)
    remove_dead_links(folder)
    remove_stale(folder, WORK)
    return removed


def remove_dead_links(folder: Path) -> None:
    for link in folder.glob(f"*{LINK}"):
        if not link.exists():
            link.unlink(missing_ok=True)
