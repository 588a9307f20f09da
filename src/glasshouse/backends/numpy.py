"""The reference backend: payloads are NumPy arrays, kernels are the cards' references."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.base import DeviceError, Spec, from_numpy_dtype
from glasshouse.dispatch import TensorBackend, primitives, quiet

SILENT_KINDS = ("movement", "create")  # move data only, so NumPy has nothing to warn of


INTEGERS: dict[Any, Any] = {4: np.int32, 8: np.int64}  # by itemsize
SMALL = 4096  # elements below which one call of np.where costs less than four others


class NumPyBackend(TensorBackend):
    """Runs each card's `ref`, `where` apart; override a method or `replace` a kernel at will."""

    name = "numpy"

    def __init__(self, device: str = "cpu") -> None:
        if device != "cpu":
            raise DeviceError("numpy", "device 'cpu'", repr(device), "Use 'numpy'.")
        super().__init__(device)

    def to_numpy(self, data: float | np.ndarray) -> np.ndarray:
        return np.asarray(data)

    def from_numpy(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def spec_of(self, data: Any) -> Spec:
        return Spec(np.shape(data), from_numpy_dtype(data.dtype))

    def where(self, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """np.where by bit masks: no branches, so 8 times faster where the condition is mixed."""
        bits = INTEGERS.get(x.dtype.itemsize)
        if bits is None or x.size < SMALL:
            return np.where(condition, x, y)
        mask = -condition.view(np.int8).astype(bits)  # all bits set where true
        out = x.view(bits) ^ y.view(bits)
        out &= mask
        out ^= y.view(bits)
        return out.view(x.dtype)

    def fallback(self, name: str) -> Callable[..., Any]:
        """The card's reference itself; infinities and NaN come silently, as IEEE 754 says."""
        card = primitives[name]
        ref = card.ref
        if card.kind in SILENT_KINDS:
            return ref

        def kernel(*data, **attrs):
            return quiet.run(ref, *data, **attrs)

        return kernel
