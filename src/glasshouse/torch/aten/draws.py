"""Random keys of traced programs: words of PyTorch's generator, drawn at each call."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from glasshouse.base import Spec, as_dtype
from glasshouse.dispatch.value import Value
from glasshouse.tensor.random import Generator

KEY = Spec((4,), as_dtype("uint32"))


class KeyInputs(Generator):
    """A generator whose keys are inputs of the traced program."""

    def __init__(self, make_input: Any) -> None:
        super().__init__(0)
        self.make_input = make_input
        self.keys: list[Any] = []

    def key(self) -> Any:
        """A new input for one draw."""
        key = self.make_input(KEY)
        self.keys.append(key)
        return key


class OneKey(Generator):
    """A generator that gives one key once."""

    def __init__(self, key: Value) -> None:
        super().__init__(0)
        self.keys: list[Value] = [key]

    def key(self) -> Any:
        """The only key.

        Raises: LookupError for a second draw
        """
        if not self.keys:
            raise LookupError("an operator that draws more than once, to be computed again")
        return self.keys.pop()


class Tracing:
    """The generator of the running trace."""

    generator: Any = None


def generator() -> KeyInputs:
    """The generator that a traced draw takes its key from."""
    assert Tracing.generator is not None, "an operator that draws, outside of a trace"
    return Tracing.generator


@contextmanager
def keys_from(generator: Generator) -> Iterator[None]:
    """Inside, draws take their keys from this generator."""
    before, Tracing.generator = Tracing.generator, generator
    try:
        yield
    finally:
        Tracing.generator = before


def draw_keys(count: int) -> list[np.ndarray]:
    """The keys of one run: words that PyTorch's generator gives, with the number of the draw."""
    if not count:
        return []
    seed = int(torch.empty((), dtype=torch.int64).random_())
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    return [np.array([low, high, draw, 0], np.uint32) for draw in range(count)]
