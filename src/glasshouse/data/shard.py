"""Samples in tar files, WebDataset's format: members of one key, one after the other, are one.

train/000017.jpg
train/000017.cls
"""

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, type_name
from glasshouse.data.image import open_image
from glasshouse.data.order import random_order
from glasshouse.data.stream import IterableDataset, MapStream
from glasshouse.data.worker import worker_part
from glasshouse.ops.checks import check_integer, check_several, check_type

KEY = "__key__"
IMAGES = ("jpg", "jpeg", "png", "webp", "ppm")
BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")


class TarShards(IterableDataset):
    """Dicts of the bytes of each sample's members by their endings, and the key under "__key__".
    `paths` is a list, a glob pattern, or a name with {0000..0031} in it. With `shuffle` the shards
    come in an order of (seed, epoch); each worker reads its part of them, every n-th.

    Raises: OptionError if there is no such shard, CheckpointError, when it is read, for one that is
        damaged.
    Source: Aizman, Maltby & Breuel 2019, High performance I/O for large scale deep learning,
        arXiv:2001.01858.
    """

    def __init__(self, paths: Any, shuffle: bool = False, seed: int = 0) -> None:
        self.paths: list[str] = expand_paths(paths)
        missing = [path for path in self.paths if not Path(path).is_file()]
        if missing or not self.paths:
            fix = "Check the pattern."
            raise OptionError("TarShards", "shards", f"none at {(missing or [paths])[0]}", fix)
        self.shuffled: bool = bool(shuffle)
        self.seed: int = check_integer("TarShards", "seed", seed)
        self.epoch: int = 0

    def decode(self) -> MapStream:
        """Samples with their members decoded by ending; see `decode_sample`."""
        return self.map(decode_sample)

    def read_from(self, start: int) -> Iterator[dict[str, Any]]:
        paths = self.paths
        if self.shuffled:
            paths = [paths[i] for i in random_order(len(paths), self.seed, self.epoch)]
        for path in worker_part(paths):
            try:
                with tarfile.open(path) as shard:
                    for members in group_members(shard):
                        if start:
                            start -= 1
                        else:
                            yield sample_of(shard, members)
            except (tarfile.TarError, EOFError) as error:
                fix = "Fetch it again."
                raise CheckpointError("TarShards", f"a tar file {path}", error, fix) from None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = check_integer("set_epoch", "epoch", epoch, 0)

    def __repr__(self) -> str:
        return f"TarShards({len(self.paths)} shards, shuffle={self.shuffled}, seed={self.seed})"


def expand_paths(paths: Any) -> list[str]:
    """Every path that a pattern, or a list of these, stands for."""
    if not isinstance(paths, (str, Path)):
        fix = "Pass e.g. 'train-{0000..0031}.tar'."
        paths = check_several("TarShards", paths, "paths of shards", fix)
        return [path for pattern in paths for path in expand_paths(pattern)]
    text = str(paths)
    braces = BRACES.search(text)
    if braces:
        first, last = braces.groups()
        numbers = (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
        head, tail = text[: braces.start()], text[braces.end() :]
        return [path for number in numbers for path in expand_paths(head + number + tail)]
    if not any(sign in text for sign in "*?["):
        return [text]
    anchor = Path(text).anchor
    return sorted(map(str, Path(anchor or ".").glob(text[len(anchor) :])))


def key_of(name: str) -> tuple[str, str]:
    """(key, ending): the name up to the first dot after its folders, and the rest in lower case."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return folder + slash + stem, ending.lower()


def group_members(shard: Any) -> Iterator[list[Any]]:
    """Yield the members of each sample."""
    key, members = None, list[Any]()
    for member in shard:
        if not member.isfile():
            continue
        new_key = key_of(member.name)[0]
        if members and new_key != key:
            yield members
            members = []
        key = new_key
        members.append(member)
    if members:
        yield members


def sample_of(shard: Any, members: list[Any]) -> dict[Any, Any]:
    sample = {KEY: key_of(members[0].name)[0]}
    for member in members:
        sample[key_of(member.name)[1]] = shard.extractfile(member).read()
    return sample


def decode_sample(sample: Mapping[str, Any]) -> dict[Any, Any]:
    """A sample with its members decoded by the last part of their endings: images (jpg, png, …),
    txt, json, npy, numbers (cls, index); others stay bytes.

    Example:
        >>> decode_sample({"cls": b"7", "txt": b"seven", "raw": b"7"})
        {'cls': 7, 'txt': 'seven', 'raw': b'7'}
    """
    check_type("decode_sample", sample, dict, "a dict of members", "Pass a sample of TarShards.")
    return {name: decode_member(sample, name, data) for name, data in sample.items()}


def decode_member(sample: Mapping[str, Any], name: str, data: Any) -> Any:
    reader = READERS.get(name.rpartition(".")[2])
    if name == KEY or reader is None:
        return data
    try:
        return reader(data)
    except (ValueError, EOFError) as error:
        expected = f"{name!r} of sample {sample.get(KEY, '')!r} to be what its ending says"
        fix = "Mend the shard, or read the bytes yourself."
        raise CheckpointError("decode_sample", expected, f"{data!r:.40} ({error})", fix) from None


def read_npy(data: bytes) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)


READERS: dict[Any, Any] = {
    **dict.fromkeys(IMAGES, open_image),
    "npy": read_npy,
    "txt": bytes.decode,
    "json": json.loads,
    "cls": int,
    "index": int,
}


def write_shards(
    samples: Any, folder: str | Path, per_shard: int = 1000, prefix: str = "shard"
) -> list[str]:
    """Write samples, dicts by ending, as tar files folder/prefix-000000.tar …, and return their
    paths. Bytes are written as they are; numbers and texts as text, arrays as npy, images, lists
    and dicts as their ending says. A sample without "__key__" gets its number.

    Raises: OptionError if per_shard is below 1, DTypeError for values without such a form.
    """
    check_integer("write_shards", "per_shard", per_shard, 1)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[str] = []
    numbered = enumerate(samples)
    for first in numbered:
        path = folder / f"{prefix}-{len(paths):06d}.tar"
        write_shard(path, chain([first], islice(numbered, per_shard - 1)))
        paths.append(str(path))
    return paths


def write_shard(path: Path, numbered: Iterable[Any]) -> None:
    """Write (number, sample) pairs; only a whole shard has its name."""
    partial = path.with_suffix(".part")
    try:
        with tarfile.open(partial, "w") as shard:
            for number, sample in numbered:
                fix = "Name each member by its ending, e.g. {'jpg': …, 'cls': 3}."
                check_type("write_shards", sample, dict, "samples that are dicts", fix)
                key = sample.get(KEY, f"{number:09d}")
                for name, value in sample.items():
                    if name != KEY:
                        add_member(shard, f"{key}.{name}", encode_member(name, value))
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def add_member(shard: Any, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    shard.addfile(member, io.BytesIO(data))


def encode_member(name: str, value: Any) -> bytes:
    kind = name.rpartition(".")[2]
    file = io.BytesIO()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if kind == "npy":
        np.save(file, np.asarray(value), allow_pickle=False)
    elif kind in IMAGES and hasattr(value, "save"):
        value.save(file, {"jpg": "JPEG"}.get(kind, kind.upper()))
    elif kind == "json":
        file.write(json.dumps(value).encode())
    elif isinstance(value, (str, int, np.integer)):
        file.write(str(value).encode())
    else:
        expected = f"bytes, or what can be written as .{kind}"
        fix = "Use the ending npy, json or jpg, or encode it to bytes."
        raise DTypeError("write_shards", expected, type_name(value), fix)
    return file.getvalue()
