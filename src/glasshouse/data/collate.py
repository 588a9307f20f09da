"""Joining samples into one batch of tensors."""

import numpy as np

from glasshouse.base import ShapeError, default_of_kind, flatten, unflatten
from glasshouse.dispatch.value import SCALARS, Value
from glasshouse.tensor.creation import asarray

STACKABLE = (*SCALARS, np.ndarray, np.generic, Value)
DEFAULT_DTYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}


def collate(samples: list):
    """One batch with the structure of a sample, its leaves stacked along a new first axis. Tuples,
    named tuples, lists and dicts are kept. Numbers, arrays and tensors become tensors (Python
    numbers in the default dtypes); anything else, e.g. strings, becomes a list.

    Shapes: leaves (*S) -> (samples, *S).
    Raises: ShapeError for none, or unequal structures.
    Example:
        >>> collate([(1.0, "a"), (2.0, "b")])[1]
        ['a', 'b']
    """
    if not samples:
        raise ShapeError("collate", "at least one sample", "none", "Check the batch size.")
    columns, structure = [], None
    for position, sample in enumerate(samples):
        leaves, treedef = flatten(sample)
        structure = structure or treedef
        if treedef != structure:
            raise ShapeError(
                "collate",
                "samples of one structure",
                f"{structure} at 0 and {treedef} at {position}",
                "Return the same nesting for every index.",
            )
        columns.append(leaves)
    return unflatten(structure, [stack_leaves(leaves) for leaves in zip(*columns, strict=True)])


def stack_leaves(leaves: tuple):
    if not all(isinstance(leaf, STACKABLE) for leaf in leaves):
        return list(leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    for position, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                "collate",
                "samples of one shape",
                f"{arrays[0].shape} at 0 and {array.shape} at {position}",
                "Pad or crop them, or pass your own collate.",
            )
    stacked = np.stack(arrays)
    if any(array.dtype.kind in "OUS" for array in arrays):
        return list(leaves)
    dtype = None
    if all(isinstance(leaf, SCALARS) and not isinstance(leaf, np.generic) for leaf in leaves):
        dtype = default_of_kind[DEFAULT_DTYPES[stacked.dtype.kind]]
    return asarray(stacked, dtype=dtype)
