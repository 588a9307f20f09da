"""Results of a Program's first steps, which read parameters alone: they stay from run to run."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.compile.planning.plan import SMALL_BYTES
from glasshouse.graph.node import Node


class ConstantResults:
    """The arrays that the first steps of a Program fill, such as weights in the layout of a
    convolution. They serve while the steps' inputs are the same payloads, whose contents do not
    change: an update replaces them, and while the run's numbers are the same, which the steps may
    read too. When a payload is freed, the arrays are too.

    specs  of the arrays, as a run allocates outputs
    step   the first step after those that fill the arrays"""

    def __init__(self, specs: list[tuple[Any, ...]], step: int) -> None:
        self.specs, self.step = specs, step
        self.arrays: list[np.ndarray] = []
        self.sources: tuple[weakref.ref[Node], ...] = ()
        self.scalars: list[bytes] = []

    def first_step(self, payloads: Sequence[Node], scalars: list[bytes], manager: Any) -> int:
        """The step with which a run on these payloads and numbers begins; `arrays` are there from
        now on. The contents of inputs that are no payloads are unknown: all steps run."""
        is_filled = self.arrays and payloads and len(self.sources) == len(payloads)
        is_filled = is_filled and self.scalars == scalars
        pairs = zip(self.sources, payloads)
        if is_filled and all(source() is payload for source, payload in pairs):
            return self.step
        self.sources = ()
        if not self.arrays:
            self.arrays = allocate_arrays(self.specs, manager)
        return 0

    def fill(self, payloads: Sequence[Node], scalars: list[bytes]) -> None:
        """Note that the arrays are results of these payloads and numbers."""
        self.scalars = list(scalars)
        self.sources = tuple([weakref.ref(payload, self.free) for payload in payloads])

    def free(self, source: Any = None) -> None:
        """Free the arrays; a run has its own references to them."""
        self.sources, self.arrays = (), []


def allocate_arrays(specs: list[tuple[Any, ...]], manager: Any) -> list[np.ndarray]:
    """An array for each spec; large ones in a manager's memory."""
    large = [spec[3:] for spec in specs if spec[3] >= SMALL_BYTES]
    buffers = iter(manager.alloc_all(large) if large else ())
    return [
        next(buffers).numpy(dtype, shape) if nbytes >= SMALL_BYTES else np.empty(shape, dtype)
        for _, shape, dtype, nbytes, _ in specs
    ]
