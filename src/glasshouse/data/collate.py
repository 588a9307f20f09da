"""Joining samples into one batch of tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glasshouse.base import (
    DTypeError,
    ShapeError,
    default_of_kind,
    flatten,
    tree_map,
    type_name,
    unflatten,
)
from glasshouse.dispatch.arrays import SCALARS, to_array
from glasshouse.dispatch.value import Value, adopt, as_value
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.tensor import Tensor

STACKABLE = (*SCALARS, np.ndarray, np.generic, Value)
DEFAULT_DTYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
NOT_NUMERIC = "OUSMm"  # NumPy's kinds: objects, texts, bytes, dates, spans of time


def collate(samples: Sequence[Any]) -> Tensor:
    """One batch with the structure of a sample, its leaves stacked along a new first axis. Tuples,
    named tuples, lists and dicts are kept. Numbers, arrays and tensors become tensors (Python
    numbers in the default dtypes); anything else, e.g. strings, becomes a list.

    Shapes: leaves (*S) -> (samples, *S).
    Raises: ShapeError for none, or unequal structures.
    Example:
        >>> collate([(1.0, "a"), (2.0, "b")])[1]
        ['a', 'b']
    """
    return Collate()(samples)


default_collate = collate  # PyTorch's name


def default_convert(sample: Any) -> Any:
    """The sample with its arrays copied to tensors; other values are kept.

    Shapes: leaves (*S) -> (*S).
    Example:
        >>> default_convert({"x": np.ones(2), "name": "a"})["name"]
        'a'
    """
    return BatchArrays().tensors(sample)


class BatchArrays:
    """The arrays that batches are stacked into. They are ours, so their tensors need no copies."""

    def __init__(self) -> None:
        self.by_id: dict[int, np.ndarray] = {}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array for a batch, its contents not set."""
        array = np.empty(shape, dtype)
        self.by_id[id(array)] = array
        return array

    def tensors(self, tree: Any) -> Any:
        """`tree` with its numeric arrays as tensors: on the memory of those that `empty` made, in
        separate memory for others."""
        return tree_map(self.tensor, tree)

    def tensor(self, leaf: Any) -> Any:
        if not isinstance(leaf, (np.ndarray, np.generic)) or leaf.dtype.kind in NOT_NUMERIC:
            return leaf
        return adopt(to_array(leaf, "collate")) if id(leaf) in self.by_id else as_value(leaf)


def columns_of(samples: Sequence[Any]) -> tuple[list[Any], Any]:
    """(the leaves of all samples, position by position, and the structure of each)."""
    if not isinstance(samples, (list, tuple)):
        fix = "Pass [sample] for one."
        raise DTypeError("collate", "a list of samples", type_name(samples), fix)
    if not samples:
        raise ShapeError("collate", "at least one sample", "none", "Check the batch size.")
    rows, structure = [], None
    for position, sample in enumerate(samples):
        if sample is None and any(other is not None for other in samples):
            fix = "Return the sample from __getitem__."
            raise DTypeError("collate", "samples", f"None at {position}", fix)
        leaves, treedef = flatten(sample)
        structure = structure or treedef
        if treedef != structure:
            expected = "samples of one structure"
            got = f"{structure} at 0 and {treedef} at {position}"
            raise ShapeError("collate", expected, got, "Return the same nesting for every index.")
        rows.append(leaves)
    return list(zip(*rows, strict=True)), structure


def stack_samples(samples: list[Any], empty: Callable[..., Any] = np.empty) -> Any:
    """`collate`'s batch as arrays, which `empty(shape, dtype)` makes."""
    return Collate().stack(samples, empty)


def arrays_of(leaves: tuple[Any, ...]) -> list[np.ndarray] | None:
    """The leaves as arrays, None if one is no number."""
    if not all(isinstance(leaf, STACKABLE) for leaf in leaves):
        return None
    arrays = [np.asarray(leaf) for leaf in leaves]
    if any(array.dtype.kind in NOT_NUMERIC for array in arrays):
        return None
    return arrays


def stacked_dtype(leaves: tuple[Any, ...], arrays: list[np.ndarray]) -> np.dtype[Any]:
    """The dtype of the batch: the arrays' own, the default one of Python's numbers."""
    first = arrays[0].dtype
    same = all(array.dtype == first for array in arrays)
    dtype = first if same else np.result_type(*arrays)
    if all(isinstance(leaf, SCALARS) and not isinstance(leaf, np.generic) for leaf in leaves):
        return default_of_kind[DEFAULT_DTYPES[dtype.kind]].np
    return dtype


def stack_leaves(leaves: tuple[Any, ...], empty: Callable[..., Any] = np.empty) -> Any:
    arrays = arrays_of(leaves)
    if arrays is None:
        return list(leaves)
    for position, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            got = f"{arrays[0].shape} at 0 and {array.shape} at {position}"
            fix = "Pad or crop them, or use PadCollate or a collate_fn of your own."
            raise ShapeError("collate", "samples of one shape", got, fix)
    out = empty((len(arrays), *arrays[0].shape), stacked_dtype(leaves, arrays))
    return np.stack(arrays, out=out, casting="unsafe")


class Collate:
    """A way of collating: subclasses define `stack_leaves(leaves, empty)`, which joins one leaf of
    all samples into an array that `empty(shape, dtype)` makes: in a worker, one in shared memory.

    Example:
        >>> Collate()([1, 2]).tolist()
        [1, 2]
    """

    def __call__(self, samples: Sequence[Any]) -> Tensor:
        arrays = BatchArrays()
        return arrays.tensors(self.stack(samples, arrays.empty))

    def stack(self, samples: Sequence[Any], empty: Any = np.empty) -> Any:
        """The batch as arrays."""
        columns, structure = columns_of(samples)
        return unflatten(structure, [self.stack_leaves(leaves, empty) for leaves in columns])

    def stack_leaves(self, leaves: tuple[Any, ...], empty: Callable[..., Any]) -> Any:
        """One leaf of all samples, joined."""
        return stack_leaves(leaves, empty)


class PadCollate(Collate):
    """Collates samples whose arrays differ in size. Each leaf is padded at the end, up to the
    batch's largest size along each axis, rounded up to `multiple`. With `lengths`, the batch is
    (padded batch, sizes of the first leaf's first axis).

    Shapes: leaves (n, ...) -> (samples, largest n, ...).
    Raises: OptionError for a side or multiple that there is not, ShapeError for unequal ranks.
    Example:
        >>> PadCollate(lengths=True)([np.ones(1), np.ones(3)])[0].shape
        (2, 3)
    """

    def __init__(
        self, value: str | int = 0, side: str = "right", multiple: int = 1, lengths: bool = False
    ) -> None:
        if isinstance(value, str) or not np.isscalar(value):
            raise DTypeError("PadCollate", "a number to pad with", repr(value), "Pass e.g. 0.")
        self.value = value
        self.side: Any = check_option("PadCollate", "side", side, ("left", "right"))
        self.multiple: int = check_integer("PadCollate", "multiple", multiple, 1)
        self.lengths: bool = bool(lengths)

    def stack(self, samples: Sequence[Any], empty: Callable[..., Any] = np.empty) -> Any:
        batch = super().stack(samples, empty)
        if not self.lengths:
            return batch
        firsts = [flatten(sample)[0][0] for sample in samples]
        sizes = [np.shape(leaf)[0] if np.ndim(leaf) else 1 for leaf in firsts]
        return batch, np.array(sizes, np.int64)

    def stack_leaves(self, leaves: tuple[Any, ...], empty: Callable[..., Any]) -> Any:
        arrays = arrays_of(leaves)
        if arrays is None:
            return list(leaves)
        shapes = [array.shape for array in arrays]
        if len({len(shape) for shape in shapes}) > 1:
            expected = "arrays with one number of axes"
            fix = "Reshape them in the data set."
            raise ShapeError("PadCollate", expected, f"shapes {', '.join(map(str, shapes))}", fix)
        largest = [
            -(-size // self.multiple) * self.multiple for size in map(max, *shapes, shapes[0])
        ]
        out = empty((len(arrays), *largest), stacked_dtype(leaves, arrays))
        out[...] = self.value
        for number, array in enumerate(arrays):
            spans = (self.span(size, room) for size, room in zip(array.shape, largest))
            out[(number, *spans)] = array
        return out

    def span(self, size: int, room: int) -> slice:
        return slice(size) if self.side == "right" else slice(room - size, room)
