"""The numbers of a graph's symbolic sizes when it is lowered for its inputs."""

from typing import Any

import torch

from glasshouse.torch.patches.tensors import negative_view
from glasshouse.torch.tensors.layout import Meaning, meaning_of


def meta_tensor(sizes: Any, strides: Any, offset: int, meaning: Meaning) -> torch.Tensor:
    """A tensor without storage, of these sizes, strides and offset, whose memory means this."""
    extent = 1 + offset + sum(max(n - 1, 0) * s for n, s in zip(sizes, strides))
    whole = torch.empty(extent, dtype=meaning.dtype, device="meta")
    tensor = whole.as_strided(sizes, strides, offset)
    tensor = tensor.conj() if meaning.is_conj else tensor
    return negative_view(tensor) if meaning.is_neg else tensor


class SizeValues:
    """The values of the symbols in a graph's sizes, learnt from the inputs it is lowered for."""

    def __init__(self) -> None:
        self.numbers: dict[Any, Any] = {}  # sympy's symbol -> number

    def take_input(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        """Learn the values of the symbols in an input's sizes and strides."""
        self.take_sizes(fake, value)
        if isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
            for symbolic, number in zip(fake.stride(), value.stride()):
                self.take_size(symbolic, number)

    def take_sizes(self, fake: Any, value: Any) -> None:
        """Learn the values of the symbols in an input's sizes alone: it may lie otherwise."""
        if isinstance(fake, torch.SymInt):
            self.take_size(fake, value)
        elif isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
            for symbolic, number in zip(fake.shape, value.shape):
                self.take_size(symbolic, number)

    def take_size(self, symbolic: int, number: int) -> None:
        if isinstance(symbolic, torch.SymInt) and symbolic.node.expr.is_Symbol:
            self.numbers[symbolic.node.expr] = int(number)

    def number(self, size: Any) -> int:
        """The value of a size.

        Raises: NotImplementedError for one that depends on contents
        """
        if not isinstance(size, torch.SymInt):
            return int(size)
        value = size.node.expr.subs(self.numbers)
        if value.free_symbols:
            raise NotImplementedError(f"a size {size.node.expr}, which depends on contents")
        return int(value)

    def concrete(self, fake: torch.Tensor) -> torch.Tensor:
        """A fake tensor with numbers as sizes, strides and offset; anything else as it is."""
        if not isinstance(fake, torch.Tensor):
            return fake
        numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
        if all(isinstance(n, int) for n in numbers):
            return fake
        sizes, strides = ([self.number(n) for n in v] for v in (fake.shape, fake.stride()))
        return meta_tensor(sizes, strides, self.number(fake.storage_offset()), meaning_of(fake))
