"""Tensors of a file as arrays, checked before anything is made of them."""

from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError
from glasshouse.onnx.dtypes import CODES, dtype_of

EXTERNAL = 1  # TensorProto.EXTERNAL
MOST_SPARSE = 1 << 28  # elements of a sparse tensor that is written out
AGAIN = "Get the file again."


def array_of(onnx: ModuleType, tensor: Any, folder: Path | None) -> np.ndarray:
    """The array of a TensorProto; external data are mapped from a file inside `folder`.

    Raises: CheckpointError, by the tensor's name, for sizes that are not those of its data, a type
        that is not known, and a place outside of the folder or beyond the end of a file
    """
    name = tensor.name or "without a name"
    sizes = tuple(tensor.dims)
    if any(n < 0 for n in sizes):
        raise CheckpointError("onnx", f"sizes of 0 or more of tensor {name!r}", sizes, AGAIN)
    if tensor.data_location == EXTERNAL:
        return external(tensor, name, sizes, folder)
    if tensor.data_type in CODES and tensor.raw_data:
        expected = prod(sizes) * np_dtype(tensor.data_type).itemsize
        if expected != len(tensor.raw_data):
            what = f"{expected} bytes for tensor {name!r} of sizes {sizes}"
            raise CheckpointError("onnx", what, len(tensor.raw_data), AGAIN)
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise CheckpointError("onnx", f"tensor {name!r} to be readable", got, AGAIN) from error


def np_dtype(code: int) -> np.dtype[Any]:
    return np.dtype(dtype_of(code).np)


def external(tensor: Any, name: str, sizes: tuple[int, ...], folder: Path | None) -> np.ndarray:
    """The array of a tensor whose data lie in a file beside the network's."""
    named = {entry.key: entry.value for entry in tensor.external_data}
    what = f"tensor {name!r}"
    if folder is None:
        raise CheckpointError("onnx", f"data of {what} in the file", "elsewhere", "Pass a path.")
    path = (folder / named.get("location", "")).resolve()
    if not path.is_relative_to(folder.resolve()):
        got, fix = repr(named.get("location")), "Put the data beside the file."
        raise CheckpointError("onnx", f"data of {what} inside the file's folder", got, fix)
    if not path.is_file():
        got, fix = repr(named.get("location")), "Put the data beside the file."
        raise CheckpointError("onnx", f"a file with the data of {what}", got, fix)
    if tensor.data_type not in CODES:
        got = f"code {tensor.data_type}"
        raise CheckpointError("onnx", f"a type of {what} that is known", got, AGAIN)
    dtype = np_dtype(tensor.data_type)
    try:
        start = int(named.get("offset", 0))
        nbytes = int(named.get("length", prod(sizes) * dtype.itemsize))
    except ValueError as error:
        raise CheckpointError("onnx", f"whole numbers as places of {what}", error, AGAIN) from error
    if nbytes != prod(sizes) * dtype.itemsize:
        raise CheckpointError("onnx", f"{nbytes} bytes for {what}", f"sizes {sizes}", AGAIN)
    if start < 0 or start + nbytes > path.stat().st_size:
        got = f"bytes {start} to {start + nbytes} of {path.stat().st_size}"
        raise CheckpointError("onnx", f"data of {what} inside {path.name}", got, AGAIN)
    if not nbytes:
        return np.zeros(sizes, dtype)
    return np.array(np.memmap(path, dtype, "r", start, sizes))


def dense(onnx: ModuleType, sparse: Any, folder: Path | None) -> np.ndarray:
    """A sparse tensor, written out.

    Raises: CheckpointError for sizes that are absurd, and places outside of them
    """
    sizes = tuple(sparse.dims)
    if any(n < 0 for n in sizes) or prod(sizes) > MOST_SPARSE:
        what = f"at most {MOST_SPARSE} elements of a sparse tensor"
        raise CheckpointError("onnx", what, f"sizes {sizes}", AGAIN)
    values = array_of(onnx, sparse.values, folder)
    places = array_of(onnx, sparse.indices, folder)
    whole = np.zeros(sizes, values.dtype)
    try:
        if places.ndim == 1:
            whole.reshape(-1)[places] = values
        else:
            whole[tuple(places.T)] = values
    except (IndexError, ValueError) as error:
        raise CheckpointError("onnx", "places inside a sparse tensor", error, AGAIN) from error
    return whole
