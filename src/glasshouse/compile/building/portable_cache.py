"""The entries of the cache folder as one file, for another folder.

Names of entries are digests of all that code depends on, so entries of another machine or version
lie there unused. A file is refused whole unless each entry has the digest of its data; libraries in
it run when they are loaded, so it has to come from somebody trusted."""

import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from glasshouse.base.errors import CheckpointError
from glasshouse.compile.building.disk_cache import (
    DATA_SUFFIXES,
    DIGEST_BYTES,
    HEADER,
    LINK,
    CacheEntry,
    digest,
    library_of,
    link_kernel,
    list_entries,
    open_cache,
    work_folder,
    write_entry,
)

NAME = re.compile(r"[\w.-]+")
MOST_ENTRY_BYTES = 1 << 30
WHERE = "cache"


def export_entries(folder: Path, path: Path) -> list[CacheEntry]:
    """Write the entries of a cache folder, and the names of the kernels in its libraries, to a file
    that appears when it is complete; returns the entries. Precompiled headers stay: a compiler
    makes them again in a second.

    Raises: CheckpointError where the file cannot be written
    """
    written = []
    try:
        with work_folder(path.absolute().parent) as work:
            part = work / "entries"
            with tarfile.open(part, "w:gz", compresslevel=6) as archive:
                for entry in list_entries(folder):
                    if entry.path.suffix == HEADER:
                        continue
                    with suppress(FileNotFoundError):  # another process removed it
                        data = entry.path.read_bytes()
                        if is_whole(data):
                            add_file(archive, entry.path.name, data)
                            written.append(entry)
                for link in sorted(folder.glob(f"*{LINK}")):
                    if library := library_of(folder, link.stem):
                        add_file(archive, link.name, library.name.encode())
            part.replace(path)
    except OSError as error:
        raise CheckpointError(WHERE, "a file that can be written", error, "Check it.") from error
    return written


def import_entries(path: Path, folder: Path) -> int:
    """Import the entries of a file into a cache folder; returns their number. All of them are
    checked before the first is written.

    Raises: CheckpointError for another kind of file, or a damaged entry
    """
    try:
        contents = dict(read_members(path))
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        expected = f"{path} to be a file of `glasshouse cache --export`"
        raise CheckpointError(WHERE, expected, error, "Export it again.") from error
    folder = open_cache(folder)
    try:
        for name, data in contents.items():
            if not name.endswith(LINK):
                write_entry(folder / name, data[:-DIGEST_BYTES])
    except OSError as error:
        raise CheckpointError(WHERE, f"room in {folder}", error, "Set GH_CACHE.") from error
    for name, data in contents.items():
        if name.endswith(LINK):
            link_kernel(folder, name.removesuffix(LINK), data.decode())
    return sum(not name.endswith(LINK) for name in contents)


def read_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of the files in an archive.

    Raises: ValueError for one that is no entry, or is damaged
    """
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name, suffix = member.name, Path(member.name).suffix
            is_plain = member.isfile() and NAME.fullmatch(name) and suffix in (*DATA_SUFFIXES, LINK)
            if not is_plain or name.startswith(".") or member.size > MOST_ENTRY_BYTES:
                raise ValueError(f"{name!r} is no entry")
            file = archive.extractfile(member)
            data = b"" if file is None else file.read()
            if suffix == LINK:
                library = data.decode()
                if not NAME.fullmatch(library) or not library.endswith(".so"):
                    raise ValueError(f"{name!r} names no library")
            elif not is_whole(data):
                raise ValueError(f"{name!r} differs from its digest")
            yield name, data


def is_whole(contents: bytes) -> bool:
    """Whether the digest after an entry's data is theirs."""
    return digest(contents[:-DIGEST_BYTES]).encode() == contents[-DIGEST_BYTES:]


def add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
