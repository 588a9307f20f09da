"""Files of well-known data sets: IDX (MNIST and its like) and CIFAR's binary form."""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.data.dataset import TensorDataset
from glasshouse.ops.checks import check_option

# The third byte of an IDX file; numbers are stored with the largest byte first.
IDX_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
CIFAR_SIDE = 32
GZIP = b"\x1f\x8b"  # the first bytes of a packed file
CIFAR_FILES = {
    (10, "train"): [f"data_batch_{number}.bin" for number in range(1, 6)],
    (10, "test"): ["test_batch.bin"],
    (100, "train"): ["train.bin"],
    (100, "test"): ["test.bin"],
}


def read_bytes(where: str, path: str | Path) -> bytes:
    """A file's contents, unpacked if they are gzip's.

    Raises: CheckpointError if there is no such file, or it is damaged.
    """
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        fix = "Check the path, or fetch the file again."
        raise CheckpointError(where, f"a readable file {path}", error, fix) from None


def read_lines(where: str, path: str | Path) -> list[str]:
    """The lines of a text, unpacked if it is gzip's.

    Raises: CheckpointError as read_bytes, or if it is not UTF-8, or ends in .gz and is not packed.
    """
    fix = "Convert it, or fetch it again."
    lines = read_bytes(where, path)
    if Path(path).suffix == ".gz":
        with open(path, "rb") as file:
            if file.read(len(GZIP)) != GZIP:
                raise CheckpointError(where, f"{path} to be a text in gzip's form", "none", fix)
    try:
        return lines.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(where, f"{path} to be a text", error, fix) from None


def read_idx(path: str | Path) -> np.ndarray:
    """The array in an IDX file, gzip'ed or not.

    Dtypes: uint8, int8, int16, int32, float32, float64.
    Raises: CheckpointError for another kind of file, or one whose size is not that of its header.
    Source: LeCun, Cortes & Burges, The MNIST database, "File formats".
    """
    data = read_bytes("read_idx", path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_DTYPES:
        fix = "Is it another format?"
        raise CheckpointError("read_idx", "an IDX file", f"{path} with {data[:4]!r}", fix)
    dtype, ndim = np.dtype(IDX_DTYPES[data[2]]), data[3]
    start = 4 + 4 * ndim
    shape = tuple(np.frombuffer(data[4:start], ">u4").tolist())
    expected = start + math.prod(shape) * dtype.itemsize
    if len(shape) != ndim or len(data) != expected:
        fix = "Fetch the file again."
        raise CheckpointError("read_idx", f"{expected} bytes for shape {shape}", len(data), fix)
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def write_idx(path: str | Path, array: Any) -> None:
    """Write an array as an IDX file.

    Dtypes: as read_idx.
    Raises: OptionError for other dtypes, or more than 255 axes.
    """
    array = np.asarray(array)
    codes = {np.dtype(text).newbyteorder("="): code for code, text in IDX_DTYPES.items()}
    if array.dtype not in codes:
        fix = "Convert it first."
        raise OptionError("write_idx", f"one of {[str(x) for x in codes]}", str(array.dtype), fix)
    code = codes[array.dtype]
    head = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    Path(path).write_bytes(head + array.astype(IDX_DTYPES[code]).tobytes())


def mnist(folder: str | Path, split: str = "train") -> TensorDataset:
    """(image, label) samples of MNIST's, Fashion-MNIST's or KMNIST's four files in `folder`.

    Shapes: images (28, 28), labels ().
    Dtypes: uint8.
    Raises: CheckpointError if a file is missing or damaged, OptionError for an unknown split.
    Source: LeCun et al. 1998, Gradient-based learning applied to document recognition.
    """
    check_option("mnist", "split", split, ("train", "test"))
    stem = "train" if split == "train" else "t10k"
    kinds = ("images-idx3", "labels-idx1")
    paths = [existing(folder, f"{stem}-{kind}-ubyte") for kind in kinds]
    images, labels = map(read_idx, paths)
    if len(images) != len(labels):
        got = f"{len(images)} images and {len(labels)} labels in {paths[1]}"
        raise CheckpointError("mnist", "a label for each image", got, "Fetch both files again.")
    check_classes("mnist", paths[1], labels, 10)
    return TensorDataset(images, labels)


def check_classes(where: str, path: str | Path, labels: np.ndarray, classes: int) -> None:
    """Each label of a file is below `classes`."""
    outside = np.flatnonzero(labels >= classes)
    if outside.size:
        got = f"{labels[outside[0]]} at sample {outside[0]} of {path}"
        raise CheckpointError(where, f"labels below {classes}", got, "Fetch the file again.")


def existing(folder: str | Path, name: str) -> Path:
    """The file of this name, or packed by gzip."""
    path = Path(folder) / name
    return path if path.exists() else path.with_name(name + ".gz")


def cifar(folder: str | Path, split: str = "train", classes: int = 10) -> TensorDataset:
    """(image, label) samples of CIFAR-10's or CIFAR-100's binary files in `folder`.

    Shapes: images (3, 32, 32), labels ().
    Dtypes: uint8 and int64.
    Raises: CheckpointError if a file is missing or damaged, OptionError for an unknown split.
    Source: Krizhevsky 2009, Learning multiple layers of features from tiny images.
    """
    check_option("cifar", "split", split, ("train", "test"))
    check_option("cifar", "classes", classes, (10, 100))
    paths = [Path(folder) / name for name in CIFAR_FILES[classes, split]]
    return TensorDataset(*read_cifar(paths, classes))


def read_cifar(paths: Any, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """(images, labels) of binary files: a row is the label (of CIFAR-100 the coarse one before the
    fine one) and 3 x 32 x 32 pixels.

    Shapes: images (n, 3, 32, 32), labels (n,).
    Dtypes: uint8 and int64.
    Raises: CheckpointError if a file does not consist of such rows, or a label is no class.
    Source: Krizhevsky 2009.
    """
    labels = 1 if classes == 10 else 2
    row = labels + 3 * CIFAR_SIDE**2
    parts = []
    for path in paths:
        data = read_bytes("read_cifar", path)
        if not data or len(data) % row:
            expected = f"rows of {row} bytes"
            fix = "Use the binary version, and classes=100 for CIFAR-100."
            raise CheckpointError("read_cifar", expected, f"{len(data)} bytes in {path}", fix)
        parts.append(np.frombuffer(data, np.uint8).reshape(-1, row))
        check_classes("read_cifar", path, parts[-1][:, labels - 1], classes)
    rows = np.concatenate(parts)
    images = rows[:, labels:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)
    return np.ascontiguousarray(images), rows[:, labels - 1].astype(np.int64)
