"""Samples of any shapes in one file that is mapped, not read; and arrays of .npy files so.

The file: eight bytes of magic, the place of the description (int64), the samples' arrays at places
that 64 divides, an index, and the description as JSON. A row of the index is an array: its dtype's
number, place, size in bytes, number of axes, and up to eight sizes of axes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base import CheckpointError, DTypeError, ShapeError, type_name
from glasshouse.data.dataset import Dataset, TensorDataset
from glasshouse.data.index import check_index
from glasshouse.data.text import FileMap
from glasshouse.dispatch.value import SCALARS, Value

MAGIC = b"GHBLOB1\n"
ALIGNMENT = 64
MOST_AXES = 8
ROW = 4 + MOST_AXES
TEXT, BYTES = "text", "bytes"


class BlobDataset(Dataset):
    """The samples that `write_blob` wrote. Arrays are read-only views of the file: only the parts
    in use are read, and processes share them.

    Raises: CheckpointError for any other file.
    """

    structure: Any
    dtypes: Any
    count: Any
    leaves: Any

    def __init__(self, path: str | Path) -> None:
        self.file: FileMap = FileMap("BlobDataset", path)
        data = self.file.data
        try:
            place = int.from_bytes(data[8:16], "little", signed=True)
            if data[:8] != MAGIC or place < 16:
                raise ValueError("no blob")
            description = json.loads(data[place:])
            self.structure, self.dtypes = description["structure"], description["dtypes"]
            self.count, self.leaves = description["samples"], description["leaves"]
            self.place: Any = description["index"]
        except (ValueError, KeyError) as error:
            raise CheckpointError(
                "BlobDataset", "a file of write_blob", f"{path} ({error})", "Write it again."
            ) from None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        index = check_index("BlobDataset", index, self.count)
        row = ROW * 8 * self.leaves
        rows = np.frombuffer(self.file.data, np.int64, row // 8, self.place + index * row)
        leaves = iter([self.leaf(entry) for entry in rows.reshape(-1, ROW).tolist()])
        return rebuilt(self.structure, leaves)

    def leaf(self, entry: list[int]) -> Any:
        code, place, nbytes, ndim = entry[:4]
        kind = self.dtypes[code]
        if kind in (TEXT, BYTES):
            data = bytes(self.file.data[place : place + nbytes])
            return data.decode() if kind == TEXT else data
        dtype = np.dtype(kind)
        array = np.frombuffer(self.file.data, dtype, nbytes // dtype.itemsize, place)
        return array.reshape(entry[4 : 4 + ndim]) if ndim else array[0]

    def __repr__(self) -> str:
        return f"BlobDataset({self.file.path!r}, {self.count} samples)"


def structure_of(sample: Any) -> Any:
    """A sample's nesting as JSON: a list is a tuple, a dict a dict, null an array."""
    if isinstance(sample, dict):
        return {name: structure_of(x) for name, x in sample.items()}
    if isinstance(sample, (tuple, list)):
        return [structure_of(x) for x in sample]
    return None


def leaves_of(structure: Any, sample: Any) -> Iterator[Any]:
    """The leaves of a sample, in the order of a structure."""
    if isinstance(structure, dict):
        for name, part in structure.items():
            yield from leaves_of(part, sample[name])
    elif isinstance(structure, list):
        for part, x in zip(structure, sample, strict=True):
            yield from leaves_of(part, x)
    else:
        yield sample


def rebuilt(structure: Any, leaves: Any) -> Any:
    if isinstance(structure, dict):
        return {name: rebuilt(part, leaves) for name, part in structure.items()}
    if isinstance(structure, list):
        return tuple(rebuilt(part, leaves) for part in structure)
    return next(leaves)


def write_blob(path: str | Path, samples: Sequence[Any]) -> None:
    """Write samples (arrays, numbers, texts and bytes, nested in tuples and dicts) into one file.

    Raises: ShapeError if two samples are nested differently, DTypeError for other leaves; then no
        file is written.
    """
    samples = iter(check_samples(samples))
    partial = Path(f"{path}.part")
    if not partial.parent.is_dir():
        raise CheckpointError("write_blob", "a folder", str(partial.parent), "Make it first.")
    try:
        with open(partial, "wb") as file:
            write_samples(file, samples)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_samples(samples: Any) -> Any:
    if not hasattr(samples, "__iter__"):
        fix = "Pass a list of them, or a data set."
        raise DTypeError("write_blob", "samples to iterate over", type_name(samples), fix)
    return samples


def write_samples(file: Any, samples: Iterable[Any]) -> None:
    rows: list[list[int]] = []
    dtypes: list[str] = []
    structure = None
    count = -1
    file.write(MAGIC + bytes(8))
    for count, sample in enumerate(samples):
        nesting = structure_of(sample)
        structure = nesting if count == 0 else structure
        if nesting != structure:
            expected = f"samples nested like {json.dumps(structure)}"
            fix = "Nest all alike."
            raise ShapeError("write_blob", expected, f"{json.dumps(nesting)} at {count}", fix)
        rows += [write_leaf(file, leaf, dtypes) for leaf in leaves_of(structure, sample)]
    align(file)
    index = file.tell()
    file.write(np.array(rows, np.int64).tobytes())
    place = file.tell()
    description = {
        "structure": structure,
        "dtypes": dtypes,
        "samples": count + 1,
        "leaves": len(rows) // max(count + 1, 1),
        "index": index,
    }
    file.write(json.dumps(description).encode())
    file.seek(8)
    file.write(place.to_bytes(8, "little", signed=True))


def align(file: Any) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))


def write_leaf(file: Any, leaf: Any, dtypes: list[str]) -> list[int]:
    """Write an array, and return its row of the index."""
    if isinstance(leaf, (str, bytes)):
        kind = TEXT if isinstance(leaf, str) else BYTES
        data, shape = leaf.encode() if isinstance(leaf, str) else leaf, ()
    elif isinstance(leaf, (*SCALARS, np.ndarray, np.generic, Value)):
        array = np.asarray(leaf)
        if array.dtype.kind not in "biufc" or array.ndim > MOST_AXES:
            expected = f"numbers with at most {MOST_AXES} axes"
            fix = "Convert or reshape them."
            raise DTypeError("write_blob", expected, f"{array.dtype} {array.shape}", fix)
        kind, data, shape = array.dtype.str, array.tobytes(), array.shape
    else:
        fix = "Encode it to bytes."
        raise DTypeError("write_blob", "arrays, numbers, texts or bytes", type_name(leaf), fix)
    if kind not in dtypes:
        dtypes.append(kind)
    align(file)
    place = file.tell()
    file.write(data)
    sizes = [*shape, *[0] * (MOST_AXES - len(shape))]
    return [dtypes.index(kind), place, len(data), len(shape), *sizes]


def memory_mapped(*paths: Any) -> TensorDataset:
    """Samples along the first axis of arrays in .npy files, which are mapped and not read.

    Raises: CheckpointError if a file is missing or not .npy's, ShapeError if first axes differ.
    """
    arrays = []
    for path in paths:
        try:
            arrays.append(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError) as error:
            fix = "Write it with numpy.save."
            raise CheckpointError("memory_mapped", f"a .npy file {path}", error, fix) from None
    return TensorDataset(*arrays)
