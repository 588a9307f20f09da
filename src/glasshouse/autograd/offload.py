"""Offloading: values saved for the backward pass wait in the host's memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from glasshouse.autograd.tape import saved_tensors_hooks
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import box


class Parked:
    """A saved value: on its device until `move`, then in the host's memory."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor: Any = tensor

    def move(self, host: Any) -> None:
        """Put the value into memory of the host; the device's is free when nobody else has it."""
        tensor = self.tensor
        array = np.array(
            tensor.backend.to_numpy(tensor.payload)
        )  # a copy: some backends share their memory
        self.tensor = box(host.from_numpy(array), tensor.spec, host)


@contextmanager
def saved_on_host(host: str = "numpy", smallest_bytes: int = 1 << 16) -> Iterator[None]:
    """Context: values that the tape saves inside move to the backend `host` at the end, and come
    back when the backward pass reads them. Parameters and values below `smallest_bytes` stay where
    they are. A recording backend computes the saved values at the end.

    Source: Pudipeddi et al. 2020, arXiv:2002.05645
    Example:
        >>> import glasshouse as gh
        >>> x = gh.ones((256, 256)).requires_grad_()
        >>> with saved_on_host():
        ...     y = gh.tanh(x * 2)
        >>> y.sum().backward()
        >>> x.grad.shape
        (256, 256)
    """
    parked_by_id: dict[int, Parked] = {}  # each value once, which lives as long as it is here

    def pack(tensor):
        return parked_by_id.get(id(tensor.payload)) or parked_by_id.setdefault(
            id(tensor.payload), Parked(tensor)
        )

    with saved_tensors_hooks(pack, lambda parked: parked.tensor):
        yield
    for parked in parked_by_id.values():
        if parked.tensor.spec.nbytes >= smallest_bytes:
            parked.move(backends.load(host))
