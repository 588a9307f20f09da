"""Memory that several processes of one machine map; it ends with the last of them.

The first rank creates it without a name, and writes its address into a file in the folder where
ranks meet. The file is removed as soon as all have opened it."""

import mmap
import os
import time
from pathlib import Path

from glasshouse.base.errors import CollectiveError

POLL_S = 0.001


def share(
    folder: str, name: str, nbytes: int, rank: int, ranks: tuple[int, ...], timeout_s: float
) -> mmap.mmap:
    """Zeros that the `ranks` of a group, by their numbers in the world, share; `rank` is this
    process's number within the group.

    Raises: CollectiveError where some do not come within the limit
    """
    whole, end = nbytes + mmap.PAGESIZE, time.monotonic() + timeout_s
    path = Path(folder, name)
    if rank:
        memory = open_memory(path, whole, end)
    else:
        memory, descriptor = create(path, whole)
    if memory is None:
        raise absent(name, [ranks[0]], timeout_s)
    memory[nbytes + rank] = 1
    if rank:
        return memory
    while missing := [r for i, r in enumerate(ranks) if not memory[nbytes + i]]:
        if time.monotonic() > end:
            break
        time.sleep(POLL_S)
    path.unlink(missing_ok=True)
    path.with_suffix(".memory").unlink(missing_ok=True)
    os.close(descriptor)
    if missing:
        raise absent(name, missing, timeout_s)
    return memory


def absent(name: str, missing: list[int], timeout_s: float) -> CollectiveError:
    shown = ", ".join(map(str, missing))
    expected = f"all ranks within {timeout_s:g} s"
    fix = f"See what rank {missing[0]} prints; raise timeout_s if it starts slowly."
    return CollectiveError(f"distributed {name}", expected, f"no sign of rank {shown}", fix)


def create(path: Path, nbytes: int) -> tuple[mmap.mmap, int]:
    """New memory and its descriptor; the file at `path` says how to open it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("glasshouse")
        address = f"/proc/{os.getpid()}/fd/{descriptor}"
    else:
        address = str(path.with_suffix(".memory"))
        descriptor = os.open(address, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(descriptor, nbytes)
    draft = path.with_suffix(".draft")
    draft.write_text(address)
    draft.rename(path)
    return mmap.mmap(descriptor, nbytes), descriptor


def open_memory(path: Path, nbytes: int, end: float) -> mmap.mmap | None:
    """Open the memory that the file at `path` names, once it does; None if it is too late."""
    while time.monotonic() < end:
        try:
            descriptor = os.open(path.read_text(), os.O_RDWR)
        except (FileNotFoundError, ProcessLookupError):  # not yet, or left by a rank that died
            time.sleep(POLL_S)
            continue
        try:
            if os.fstat(descriptor).st_size == nbytes:
                return mmap.mmap(descriptor, nbytes)
        finally:
            os.close(descriptor)
    return None
