"""Tensors in safetensors files: written whole or not at all, checked when read."""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from glasshouse.base import CheckpointError, DTypeError, from_numpy_dtype, type_name
from glasshouse.dispatch.value import Value, adopt
from glasshouse.ops.checks import check_path

# Source: safetensors format description, "dtype"; complex128 has no code there, see to_storable
CODES = {"BOOL": np.bool_, "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
         "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "F16": np.float16,
         "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64,
         "C64": np.complex64}  # fmt: skip
CHECKSUM, WIDE_COMPLEX = "glasshouse.sha256", "glasshouse.complex128"


def save_safetensors(
    path: str | Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write named tensors or arrays to `path`.
    The file appears under its name when it is complete: a reader sees the old file or the new one,
    also if this process is killed. `metadata` are strings kept in the file's header.

    Dtypes: all; complex128 is stored as pairs of float64.
    Raises: DTypeError for names or metadata that are no strings, or values that are no tensors;
        CheckpointError if the file cannot be written.
    Source: https://github.com/huggingface/safetensors, "Format".
    """
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        others = " with other keys" if isinstance(tensors, dict) else ""
        expected = "a dict from names to tensors"
        fix = "Pass model.state_dict()."
        raise DTypeError("save_safetensors", expected, type_name(tensors) + others, fix)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for item in metadata.items() for text in item
    ):
        raise DTypeError("save_safetensors", "metadata of strings", repr(metadata), "Use JSON.")
    write_whole(check_path("save_safetensors", path), serialize(tensors, dict(metadata)))


def serialize(tensors: dict[Any, Any], metadata: dict[str, str]) -> bytes:
    import safetensors.numpy

    arrays = {name: to_array(name, x) for name, x in tensors.items()}
    wide = [name for name, array in arrays.items() if array.dtype == np.complex128]
    stored = {name: to_storable(array) for name, array in arrays.items()}
    if wide:
        metadata = {**metadata, WIDE_COMPLEX: json.dumps(wide)}
    metadata = {**metadata, CHECKSUM: checksum(stored, metadata)}
    return safetensors.numpy.save(stored, metadata)


def to_array(name: str, x: Any) -> np.ndarray:
    if not isinstance(x, (Value, np.ndarray, np.generic)):
        expected = "tensors or arrays"
        fix = "Convert it with gh.asarray."
        raise DTypeError("save_safetensors", expected, f"{type_name(x)} for {name!r}", fix)
    array = x.detach().numpy() if isinstance(x, Value) else np.asarray(x)
    return array.astype(from_numpy_dtype(array.dtype).np, copy=False)


def to_storable(array: np.ndarray) -> np.ndarray:
    """The array in row-major order; complex128 as float64 with a last axis of 2."""
    array = np.asarray(array, order="C")
    return array[..., None].view(np.float64) if array.dtype == np.complex128 else array


def checksum(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` in one step, after it has reached the disk."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        remove_leftovers(path)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        fix = "Check the folder and the space in it."
        raise CheckpointError("save", f"to write {path}", error, fix) from error


def remove_leftovers(path: Path) -> None:
    """Delete temporary files for `path` whose process was killed while writing."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        pid = leftover.name.split(".")[-3]
        if pid.isdecimal() and not is_running(int(pid)):
            leftover.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_safetensors(path: int | Path) -> dict[Any, Any]:
    """The tensors of a safetensors file, by name.

    Raises: CheckpointError if missing or damaged.
    """
    arrays, _ = read_safetensors(path)
    return {name: adopt(array) for name, array in arrays.items()}


def read_safetensors(
    path: Any, needs_checksum: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays by name, metadata) of a safetensors file, named or open.
    They are checked against the file's checksum; files of other programs may have none."""
    import safetensors

    try:
        is_open = hasattr(path, "read")
        data = path.read() if is_open else check_path("load", path).read_bytes()
    except OSError as error:
        raise CheckpointError("load", "a readable file", error, "Check the path.") from error
    try:
        entries = dict(safetensors.deserialize(data))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (safetensors.SafetensorError, ValueError) as error:
        raise damaged(path, error) from error
    stored = {name: from_entry(path, name, entries[name]) for name in sorted(entries)}
    metadata = dict(header.get("__metadata__", {}))
    expected = metadata.pop(CHECKSUM, None)
    if (needs_checksum or expected is not None) and checksum(stored, metadata) != expected:
        differ = "contents that differ from their checksum"
        raise damaged(path, "no checksum" if expected is None else differ)
    try:
        for name in json.loads(metadata.pop(WIDE_COMPLEX, "[]")):
            stored[name] = stored[name].view(np.complex128)[..., 0]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise damaged(path, error) from error
    return stored, metadata


def from_entry(path: Any, name: str, entry: dict[Any, Any]) -> np.ndarray:
    if entry["dtype"] not in CODES:
        raise unknown_dtype(path, name, entry["dtype"])
    return np.frombuffer(entry["data"], dtype=CODES[entry["dtype"]]).reshape(entry["shape"])


def unknown_dtype(path: str | Path, name: str, code: str) -> CheckpointError:
    expected = f"dtypes {', '.join(CODES)} in {path}"
    return CheckpointError("load", expected, f"{code} for {name!r}", "Convert the file.")


def damaged(path: Any, fault: Any) -> CheckpointError:
    fix = "Load an earlier checkpoint."
    return CheckpointError("load", f"{path} to be a whole safetensors file", fault, fix)
