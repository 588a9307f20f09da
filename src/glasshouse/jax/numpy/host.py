"""Functions of jax.numpy that NumPy computes from values: shapes of results depend on contents, or
all arguments are numbers. Inside a transform they are refused, as a look at values is."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.base import flatten, unflatten
from glasshouse.dispatch import adopt
from glasshouse.tensor import Tensor

__all__ = ["argwhere", "bartlett", "blackman", "diag_indices", "extract", "flatnonzero", "hamming",
           "hanning", "histogram_bin_edges", "indices", "intersect1d", "ix_", "kaiser", "lexsort",
           "mask_indices", "nonzero", "packbits", "roots", "setdiff1d", "setxor1d", "tri",
           "tril_indices", "trim_zeros", "triu_indices", "union1d", "unique", "unique_all",
           "unique_counts", "unique_inverse", "unique_values", "unpackbits"]  # fmt: skip

NARROW: dict[str, Any] = {
    "d": np.float32,
    "D": np.complex64,
}  # numbers have no double precision unless asked for


def by_numpy(name: str, kind: Any = None) -> Callable[..., Any]:
    """NumPy's function of this name, on tensors and of tensors."""
    function = getattr(np, name)

    def run(*args: Any, **named: Any) -> Any:
        leaves, treedef = flatten((args, named))
        arrays = [x.numpy() if isinstance(x, Tensor) else x for x in leaves]
        is_double = any(getattr(x, "dtype", None) in (np.float64, np.complex128) for x in arrays)
        placed, options = unflatten(treedef, arrays)
        with np.errstate(all="ignore"):
            results, structure = flatten(function(*placed, **options))
        tensors = []
        for x in map(np.asarray, results):
            x = x if kind is None else x.astype(kind)
            dtype = x.dtype if is_double else NARROW.get(x.dtype.char, x.dtype)
            tensors.append(adopt(np.asarray(x, dtype)))
        return unflatten(structure, tensors)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Return what NumPy's `{name}` gives; contents have to be known."
    return run


argwhere: Callable[..., Any] = by_numpy("argwhere")
bartlett: Callable[..., Any] = by_numpy("bartlett")
blackman: Callable[..., Any] = by_numpy("blackman")
diag_indices: Callable[..., Any] = by_numpy("diag_indices")
extract: Callable[..., Any] = by_numpy("extract")
flatnonzero: Callable[..., Any] = by_numpy("flatnonzero")
hamming: Callable[..., Any] = by_numpy("hamming")
hanning: Callable[..., Any] = by_numpy("hanning")
histogram_bin_edges: Callable[..., Any] = by_numpy("histogram_bin_edges")
indices: Callable[..., Any] = by_numpy("indices")
intersect1d: Callable[..., Any] = by_numpy("intersect1d")
ix_: Callable[..., Any] = by_numpy("ix_")
kaiser: Callable[..., Any] = by_numpy("kaiser")
lexsort: Callable[..., Any] = by_numpy("lexsort")
mask_indices: Callable[..., Any] = by_numpy("mask_indices")
nonzero: Callable[..., Any] = by_numpy("nonzero")
packbits: Callable[..., Any] = by_numpy("packbits")
roots: Callable[..., Any] = by_numpy("roots", complex)
setdiff1d: Callable[..., Any] = by_numpy("setdiff1d")
setxor1d: Callable[..., Any] = by_numpy("setxor1d")
tri: Callable[..., Any] = by_numpy("tri")
tril_indices: Callable[..., Any] = by_numpy("tril_indices")
trim_zeros: Callable[..., Any] = by_numpy("trim_zeros")
triu_indices: Callable[..., Any] = by_numpy("triu_indices")
union1d: Callable[..., Any] = by_numpy("union1d")
unique: Callable[..., Any] = by_numpy("unique")
unique_all: Callable[..., Any] = by_numpy("unique_all")
unique_counts: Callable[..., Any] = by_numpy("unique_counts")
unique_inverse: Callable[..., Any] = by_numpy("unique_inverse")
unique_values: Callable[..., Any] = by_numpy("unique")
unpackbits: Callable[..., Any] = by_numpy("unpackbits")
