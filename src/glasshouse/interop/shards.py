"""State that is too large to be read or written at once: safetensors files that are mapped into
memory, and states in several files with an index, as Hugging Face's hub has them."""

import json
import math
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, DTypeError, suggest, type_name
from glasshouse.base.units import parse_bytes
from glasshouse.dispatch.value import Value, adopt
from glasshouse.interop.safetensors import (
    CODES,
    WIDE_COMPLEX,
    damaged,
    save_safetensors,
    unknown_dtype,
    write_whole,
)
from glasshouse.ops.checks import check_path

INDEX = "model.safetensors.index.json"
LENGTH_BYTES = 8  # of the number before the header that says how long it is


class MappedTensors:
    """One safetensors file in memory as it lies on the disk; nothing is read before it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.memory: mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise CheckpointError(
                "load", f"a readable file at {path}", error, "Check it."
            ) from error
        size = int.from_bytes(self.memory[:LENGTH_BYTES], "little")
        self.start: int = LENGTH_BYTES + size
        try:
            header = json.loads(self.memory[LENGTH_BYTES : self.start])
            self.metadata: dict[str, str] = header.pop("__metadata__", {})
            self.wide: set[Any] = set(json.loads(self.metadata.get(WIDE_COMPLEX, "[]")))
            self.places: dict[Any, tuple[np.dtype[Any], tuple[int, ...], int]] = {
                name: self.place(name, entry) for name, entry in header.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(path, error) from error

    def place(self, name: str, entry: dict[Any, Any]) -> tuple[np.dtype[Any], tuple[int, ...], int]:
        """(dtype, shape, where it begins) of one tensor, which must lie within the file."""
        if entry["dtype"] not in CODES:
            raise unknown_dtype(self.path, name, entry["dtype"])
        dtype, shape = np.dtype(CODES[entry["dtype"]]), tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        is_whole = all(type(n) is int and n >= 0 for n in (begin, end, *shape))
        is_whole = is_whole and begin <= end <= len(self.memory) - self.start
        if name in self.wide and (dtype != np.float64 or shape[-1:] != (2,)):
            raise damaged(self.path, f"{name!r} of {dtype} {shape}, which is no complex number")
        if not is_whole or end - begin != math.prod(shape) * dtype.itemsize:
            raise damaged(self.path, f"{end - begin} bytes at {begin} for {name!r} of {shape}")
        return dtype, shape, self.start + begin

    def read(self, name: str) -> np.ndarray:
        """The array of that name, which lies in the file's memory."""
        dtype, shape, begin = self.places[name]
        array = np.ndarray(shape, dtype, self.memory, begin)
        return array.view(np.complex128)[..., 0] if name in self.wide else array


class TensorFiles(Mapping[Any, Any]):
    """The tensors of safetensors files, by name: the result of `open_safetensors`. A tensor is made
    on access, and its values are read from the disk when they are used."""

    def __init__(self, paths: dict[str, Path]) -> None:
        self.paths = paths
        self.files: dict[Path, MappedTensors] = {}

    def file(self, path: Path) -> MappedTensors:
        """The file, mapped at the first use."""
        if path not in self.files:
            self.files[path] = MappedTensors(path)
        return self.files[path]

    def __getitem__(self, name: str) -> Any:
        if name not in self.paths:
            raise KeyError(f"{name!r}. {suggest(name, self.paths)}")
        file = self.file(self.paths[name])
        if name not in file.places:
            raise damaged(file.path, f"no tensor {name!r}, which the index places there")
        return adopt(file.read(name))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"TensorFiles({len(self.paths)} tensors in {len(set(self.paths.values()))} files)"


def open_safetensors(path: Any) -> TensorFiles:
    """The tensors of a safetensors file, of an index file (model.safetensors.index.json), or of a
    folder with one of them, as a mapping by name. Files are mapped into memory: a tensor that is
    never used is never read, and `model.load_state_dict(open_safetensors(path))` holds no second
    copy. Checksums are not looked at; `load_safetensors` does that. The files must not be written
    to while a tensor of them is in use.

    Raises: CheckpointError for a missing or damaged file or index, or an unknown dtype.
    Source: https://github.com/huggingface/safetensors, "Format".
    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> save_shards(folder, {"a": gh.ones(3), "b": gh.zeros(4)}, shard_bytes=16)
        ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
        >>> open_safetensors(folder)["a"].tolist()
        [1.0, 1.0, 1.0]
    """
    path = check_path("open_safetensors", path)
    if path.is_dir():
        index = path / INDEX
        path = index if index.exists() else path / "model.safetensors"
    if path.suffix == ".json":
        return TensorFiles(places_of(path))
    file = MappedTensors(path)
    files = TensorFiles(dict.fromkeys(file.places, path))
    files.files[path] = file
    return files


def places_of(index: Path) -> dict[str, Path]:
    """The file of each tensor, as an index says."""
    try:
        names = json.loads(index.read_text())["weight_map"]
        places = {name: index.parent / file for name, file in names.items()}
    except OSError as error:
        raise CheckpointError("load", "a readable index", error, "Check the path.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = f"{index} to have a weight_map from tensors to files"
        fix = "Load the file that it belongs to."
        raise CheckpointError("load", expected, repr(error), fix) from error
    outside = [name for name, file in names.items() if Path(file).name != file]
    if outside:
        fix = "Do not trust the index."
        raise CheckpointError("load", "files beside the index", names[outside[0]], fix)
    return places


def save_shards(
    folder: str | Path, tensors: Mapping[Any, Any], shard_bytes: str = "5GB"
) -> list[str]:
    """Write named tensors to `folder`, in files of at most `shard_bytes` with an index, as Hugging
    Face's libraries read them; return the files' names. Tensors that fit into one file go to
    model.safetensors, without an index. The index is written last, so that a kill leaves no index
    of missing files. A tensor that is larger than a file gets its own.

    Dtypes: all; complex128 is stored as pairs of float64.
    Raises: OptionError for an invalid size, DTypeError for an object that is not a dict of tensors,
        CheckpointError if a file cannot be written.
    Source: Hugging Face's huggingface_hub, "Serialization": names and the form of the index.
    Example:
        >>> import tempfile
        >>> save_shards(tempfile.mkdtemp(), {"a": gh.ones(3)})
        ['model.safetensors']
    """
    most_bytes = int(parse_bytes("save_shards", shard_bytes))
    if not isinstance(tensors, Mapping):
        fix = "Pass model.state_dict()."
        raise DTypeError("save_shards", "a dict from names to tensors", type_name(tensors), fix)
    folder = check_path("save_shards", folder)
    shards = in_shards(tensors, most_bytes)
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    if len(shards) == 1:
        names = ["model.safetensors"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    for name, shard in zip(names, shards, strict=True):
        save_safetensors(folder / name, {key: tensors[key] for key in shard}, {"format": "pt"})
    if len(shards) > 1:
        places = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        total = sum(sum(shard.values()) for shard in shards)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_whole(folder / INDEX, json.dumps(index, indent=2).encode())
    return names


def in_shards(tensors: Mapping[Any, Any], most_bytes: int) -> list[dict[str, int]]:
    """Names with their bytes, in their order, cut where a file would become too large."""
    shards: list[dict[str, int]] = [{}]
    for name in tensors:
        x = tensors[name]
        nbytes = x.spec.nbytes if isinstance(x, Value) else np.asarray(x).nbytes
        if shards[-1] and sum(shards[-1].values()) + nbytes > most_bytes:
            shards.append({})
        shards[-1][name] = nbytes
    return shards
