"""Files of text: lines, JSON lines, comma-separated values."""

import csv
import gzip
import json
import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, OptionError, ShapeError
from glasshouse.data.dataset import Dataset
from glasshouse.data.index import check_index, check_indices
from glasshouse.data.stream import IterableDataset
from glasshouse.data.worker import worker_part
from glasshouse.ops.checks import check_type

__all__ = ["ColumnDataset", "JSONLinesDataset", "LineDataset", "LineStream", "read_csv"]

CHUNK = 1 << 24  # bytes of a file that are searched for line ends at once
NEWLINE = 10


class FileMap:
    """A file's bytes, read from disk as they are used; every process maps it for itself."""

    def __init__(self, where: str, path: str | Path) -> None:
        self.path: str = str(path)
        self.mapping: mmap.mmap | bytes | None = None
        if not Path(path).is_file():
            raise CheckpointError(where, "a file", self.path, "Check the path.")

    @property
    def data(self) -> Any:
        """The file's bytes, mapped at first use; slices of it are bytes."""
        if self.mapping is None:
            with open(self.path, "rb") as file:
                empty = Path(self.path).stat().st_size == 0
                self.mapping = (
                    b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                )
        return self.mapping

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "mapping": None}


class LineDataset(Dataset):
    """The lines of a text file without their ends, found once and read when they are asked for.

    Raises: CheckpointError if there is no such file.
    """

    file: FileMap
    encoding: str

    def __init__(self, path: str | Path, encoding: str = "utf-8") -> None:
        self.file, self.encoding = FileMap(type(self).__name__, path), encoding
        data = self.file.data
        ends = [np.zeros(0, np.int64)]
        for start in range(0, len(data), CHUNK):
            part = np.frombuffer(data[start : start + CHUNK], np.uint8)
            ends.append(np.flatnonzero(part == NEWLINE) + start)
        if len(data) and data[-1] != NEWLINE:
            ends.append(np.array([len(data)]))
        self.ends: np.ndarray = np.concatenate(ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        index = check_index(type(self).__name__, index, len(self))
        start = int(self.ends[index - 1]) + 1 if index else 0
        return self.file.data[start : int(self.ends[index])].decode(self.encoding).rstrip("\r")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.file.path!r}, {len(self)} lines)"


class JSONLinesDataset(LineDataset):
    """The values of a file with a JSON value in each line.

    Raises: CheckpointError, for a line that is none, when it is read.
    """

    def __getitem__(self, index: int) -> Any:
        line = super().__getitem__(index)
        try:
            return json.loads(line)
        except ValueError as error:
            number = check_index("JSONLinesDataset", index, len(self)) + 1
            expected = f"JSON in line {number} of {self.file.path}"
            got = f"{line:.40} ({error})"
            fix = "Mend the line, or read with LineDataset."
            raise CheckpointError("JSONLinesDataset", expected, got, fix) from None


class LineStream(IterableDataset):
    """The lines of text files, gzip'ed or not, one file after the other: `paths` is a list, or one.
    Each worker reads its part of the files: every n-th.

    Raises: CheckpointError if there is no such file.
    """

    def __init__(self, paths: Any, encoding: str = "utf-8") -> None:
        paths = [paths] if isinstance(paths, (str, Path)) else paths
        self.paths: list[str] = [str(path) for path in paths]
        self.encoding = encoding
        for path in self.paths:
            if not Path(path).is_file():
                raise CheckpointError("LineStream", "files", path, "Check the path.")

    def __iter__(self) -> Iterator[str]:
        for path in worker_part(self.paths):
            opener = gzip.open if path.endswith(".gz") else open
            with opener(path, "rt", encoding=self.encoding) as file:
                for line in file:
                    yield line.rstrip("\r\n")


class ColumnDataset(Dataset):
    """Dicts with an entry of each column.

    Raises: ShapeError if there is no column, or their lengths differ.
    Example:
        >>> ColumnDataset({"name": ["a", "b"], "age": np.array([3, 4])})[1]["name"]
        'b'
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        fix = "Pass e.g. {'x': x, 'y': y}."
        self.columns: dict[Any, Any] = dict(
            check_type("ColumnDataset", columns, dict, "a dict of columns", fix)
        )
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) != 1:
            raise ShapeError("ColumnDataset", "columns of one length", lengths, "Shorten them.")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = check_index("ColumnDataset", index, len(self))
        return {name: column[index] for name, column in self.columns.items()}

    def read_batch(
        self, indices: np.ndarray, empty: Callable[..., Any] = np.empty
    ) -> dict[str, Any]:
        """The samples at `indices`, stacked."""
        indices = check_indices("ColumnDataset", indices, len(self))
        return {name: take_entries(column, indices, empty) for name, column in self.columns.items()}

    def __repr__(self) -> str:
        return f"ColumnDataset({', '.join(self.columns)}: {len(self)} rows)"


def take_entries(column: Any, indices: np.ndarray, empty: Callable[..., Any]) -> Any:
    """The entries of a column at indices that are in range."""
    if not isinstance(column, np.ndarray):
        return [column[index] for index in indices.tolist()]
    out = empty((len(indices), *column.shape[1:]), column.dtype)
    return np.take(column, indices, axis=0, out=out, mode="clip")


def read_csv(path: str | Path, delimiter: str = ",", header: bool = True) -> ColumnDataset:
    """The rows of a file of comma-separated values: dicts, by the names in its first line (without
    `header`, "0", "1", …). Columns of integers are int64, of numbers float64, others strings.

    Raises: CheckpointError if there is no such file, ShapeError if a row has another length.
    Source: RFC 4180.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise OptionError("read_csv", "a delimiter of one character", repr(delimiter), "E.g. ';'.")
    if not Path(path).is_file():
        raise CheckpointError("read_csv", "a file", str(path), "Check the path.")
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    if not rows:
        raise ShapeError("read_csv", "rows", f"none in {path}", "Check the file.")
    names = rows.pop(0) if header else [str(number) for number in range(len(rows[0]))]
    for number, row in enumerate(rows, 1 + header):
        if len(row) != len(names):
            expected = f"{len(names)} fields in row {number}"
            fix = "Quote fields with delimiters in them."
            raise ShapeError("read_csv", expected, f"{len(row)}: {row!r:.60}", fix)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return ColumnDataset(dict(zip(names, map(convert_column, columns), strict=True)))


def convert_column(texts: tuple[Any, ...]) -> Any:
    """A column as numbers where all are."""
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([kind(text) for text in texts], dtype)
        except (ValueError, OverflowError):
            continue
    return list(texts)
