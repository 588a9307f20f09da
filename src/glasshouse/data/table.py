"""Tables in memory or on disk as data sets: Apache Arrow, Parquet, Hugging Face's `datasets`."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, DTypeError, optional, type_name
from glasshouse.data.dataset import Dataset
from glasshouse.data.fetch import check_source
from glasshouse.data.index import check_index, check_indices
from glasshouse.data.stream import IterableDataset
from glasshouse.data.text import take_entries
from glasshouse.data.worker import get_worker_info

READERS = {
    ".parquet": ("pyarrow.parquet", "read_table"),
    ".feather": ("pyarrow.feather", "read_table"),
    ".arrow": ("pyarrow.feather", "read_table"),
}


class ArrowDataset(Dataset):
    """The rows of an Arrow table, or of Parquet and Arrow files, as dicts by column. Numbers keep
    their dtype, lists of numbers of one size are arrays; other values are Python objects.

    Raises: BackendError if pyarrow is not installed, CheckpointError if a file is missing or of
        another kind, DTypeError for a source that is neither a table nor a file.
    Source: Apache Arrow, Columnar format.
    """

    def __init__(self, source: Any, columns: Sequence[str] | None = None) -> None:
        names = None if columns is None else list(columns)
        self.table: Any = table_of(source, names)
        if names is not None:
            missing = sorted(set(names) - set(self.table.column_names))
            if missing:
                expected = f"columns of {self.table.column_names}"
                raise CheckpointError("ArrowDataset", expected, missing, "Name others.")
            self.table = self.table.select(names)
        self.columns: dict[Any, Any] = {
            name: column_of(self.table[name]) for name in self.table.column_names
        }

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = check_index("ArrowDataset", index, len(self))
        return {name: entry_of(column, index) for name, column in self.columns.items()}

    def read_batch(
        self, indices: np.ndarray, empty: Callable[..., Any] = np.empty
    ) -> dict[str, Any]:
        """The samples at `indices`, stacked."""
        indices = check_indices("ArrowDataset", indices, len(self))
        return {name: taken_of(column, indices, empty) for name, column in self.columns.items()}

    @property
    def can_read_batches(self) -> bool:
        """Whether all columns are numbers or texts, of which a batch is one array or list."""
        return all(is_plain(column) for column in self.columns.values())

    def __repr__(self) -> str:
        return f"ArrowDataset({len(self)} rows: {', '.join(self.columns)})"


def table_of(source: Any, columns: list[str] | None) -> Any:
    """An Arrow table: the one given, or that of a file or of several, one after the other."""
    arrow = optional("ArrowDataset", "pyarrow for tables", "pyarrow", "tables")
    if isinstance(source, arrow.Table):
        return source
    if isinstance(source, (list, tuple)) and source:
        return arrow.concat_tables([table_of(part, columns) for part in source])
    if not isinstance(source, (str, Path)):
        fix = "Use pyarrow.table(columns)."
        raise DTypeError("ArrowDataset", "a table or a file", type_name(source), fix)
    ending = Path(source).suffix
    if ending not in READERS or not Path(source).is_file():
        expected = f"a file ending in {' or '.join(READERS)}"
        raise CheckpointError("ArrowDataset", expected, str(source), "See its path.")
    module, name = READERS[ending]
    try:
        read = getattr(optional("ArrowDataset", "pyarrow for files", module, "tables"), name)
        return read(str(source), memory_map=True)
    except (OSError, arrow.ArrowInvalid) as error:
        fix = "Write it again."
        raise CheckpointError("ArrowDataset", f"a table in {source}", error, fix) from None


def column_of(column: Any) -> Any:
    """A column as an array of numbers, without a copy where it is one piece; else as it is."""
    arrow = optional("ArrowDataset", "pyarrow for tables", "pyarrow", "tables")
    kind, width = column.type, None
    if arrow.types.is_fixed_size_list(kind):
        kind, width = kind.value_type, kind.list_size
    is_number = any(
        test(kind)
        for test in (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean)
    )
    if not is_number or column.null_count:
        return column
    pieces = [piece.flatten() if width else piece for piece in column.chunks]
    if any(piece.null_count for piece in pieces):
        return column
    arrays = [piece.to_numpy(zero_copy_only=False) for piece in pieces]
    array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.zeros(0)])
    return array.reshape(-1, width) if width else array


def entry_of(column: Any, index: int) -> Any:
    if isinstance(column, np.ndarray):
        return column[index]
    value = column[index].as_py()
    if isinstance(value, list):
        array = np.asarray(value) if all(isinstance(x, (int, float)) for x in value) else None
        return value if array is None else array
    return value


def is_plain(column: Any) -> bool:
    if isinstance(column, np.ndarray):
        return True
    return str(column.type) in ("string", "large_string") and not column.null_count


def taken_of(column: Any, indices: np.ndarray, empty: Callable[..., Any]) -> Any:
    if isinstance(column, np.ndarray):
        return take_entries(column, indices, empty)
    return column.take(indices).to_pylist()


class HuggingFaceDataset(Dataset):
    """The rows of a `datasets.Dataset` as dicts of arrays and texts; a batch is read at once.

    Raises: DTypeError for other objects.
    Source: Hugging Face, datasets.
    """

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "with_format"):
            fix = "Choose its split."
            raise DTypeError("HuggingFaceDataset", "a datasets.Dataset", type_name(dataset), fix)
        self.dataset: Any = check_source("HuggingFaceDataset", dataset).with_format("numpy")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[check_index("HuggingFaceDataset", index, len(self))]

    def __getitems__(self, indices: list[int]) -> list[dict[Any, Any]]:
        """The rows at `indices`."""
        columns = self.dataset[indices]
        return [
            {name: column[row] for name, column in columns.items()} for row in range(len(indices))
        ]

    def __repr__(self) -> str:
        return f"HuggingFaceDataset({len(self)} rows: {', '.join(self.dataset.column_names)})"


class HuggingFaceStream(IterableDataset):
    """The rows of a `datasets.IterableDataset` as dicts of arrays and texts. Each worker reads
    shards of its own; where there are fewer shards than workers, every n-th row.

    Raises: DTypeError for other objects.
    Source: Hugging Face, datasets.
    """

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "with_format") or not hasattr(dataset, "set_epoch"):
            expected = "a datasets.IterableDataset"
            fix = "Use HuggingFaceDataset for one with a length."
            raise DTypeError("HuggingFaceStream", expected, type_name(dataset), fix)
        self.sources: tuple[Any, ...] = (dataset.with_format("numpy"),)

    def read_from(self, start: Any) -> Any:
        (rows,), info = self.sources, get_worker_info()
        if info is None:
            return islice(iter(rows), start, None)
        if rows.num_shards >= info.num_workers:
            return islice(iter(rows.shard(info.num_workers, info.id)), start, None)
        first = info.id + start * info.num_workers
        return islice(iter(rows), first, None, info.num_workers)

    def __repr__(self) -> str:
        return f"HuggingFaceStream({self.sources[0]!r})"
