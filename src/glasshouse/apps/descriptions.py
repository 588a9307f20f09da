"""Debian's descriptions of packages and their translations, as apt-get keeps them in lists."""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from glasshouse.base.errors import BackendError, CheckpointError
from glasshouse.data.formats import read_lines

LISTS = {"Packages": "*_Packages", "Translation-en": "*_Translation-en",
         "Translation-it": "*_Translation-it"}  # fmt: skip
OPTIONS = {
    "Acquire::Languages": "en,it",
    "Acquire::GzipIndexes": "false",
    "Dir::Etc::parts": "/nonexistent",  # settings of the machine that change the two above
}


def lists_from_apt(folder: Path) -> None:
    """Let apt-get fetch the lists of the system's sources, and put them into a folder; those of the
    machine itself stay as they are.

    Raises: BackendError where apt-get is missing or fails, CheckpointError where files cannot be
        written.
    """
    fix = "Put Packages, Translation-en and Translation-it into a folder, and pass --data FOLDER."
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary, "partial").mkdir()
        settings = {**OPTIONS, "Dir::State::lists": temporary}
        words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        try:
            done = subprocess.run(["apt-get", *words, "update"], capture_output=True, text=True)
        except OSError as error:
            raise BackendError("data", "apt-get to update", error, fix) from None
        for name, pattern in LISTS.items():
            paths = sorted(Path(temporary).glob(pattern))
            if done.returncode or not paths:
                lines = done.stderr.strip().splitlines() or [f"no {name}"]
                raise BackendError("data", "apt-get to update", lines[-1], fix)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(b"\n".join(path.read_bytes() for path in paths))
            except OSError as error:
                fix = "Free some space, or pass --to FOLDER."
                raise CheckpointError("data", f"to write {name}", error, fix) from None


def described_packages(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(source package, paragraph, its translation) of Debian's lists Packages, Translation-en and
    Translation-it."""
    sources = {key_of(x): x.get("source", x["package"])[0] for x in stanzas(folder / "Packages")}
    texts = {key_of(x): x["description-en"] for x in stanzas(folder / "Translation-en")}
    for x in stanzas(folder / "Translation-it"):
        both = [paragraphs(lines) for lines in (texts.get(key_of(x), []), x["description-it"])]
        if len(both[0]) == len(both[1]):
            source = sources.get(key_of(x), x["package"][0]).split()[0]
            yield from ((source, *pair) for pair in zip(*both) if "<trans>" not in pair[1])


def key_of(stanza: dict[str, list[str]]) -> tuple[str, str]:
    return stanza["package"][0], stanza.get("description-md5", [""])[0]


def stanzas(path: Path) -> Iterator[dict[str, list[str]]]:
    """The lines of each field, by its name in small letters, of each stanza of a control file."""
    for block in "\n".join(read_lines("train translate", path)).split("\n\n"):
        fields: dict[str, list[str]] = {}
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if line[:1] == " " and fields:
                fields[next(reversed(fields))].append(line.strip())
            elif colon:
                fields[name.lower()] = [value.strip()]
        if "package" in fields:
            yield fields


def paragraphs(lines: Sequence[str]) -> list[str]:
    """The title, and the paragraphs between lines of a dot."""
    parts = "\n".join(lines[1:]).split("\n.\n")
    return [*lines[:1], *(" ".join(part.split()) for part in parts if part)]
