"""Keys and values of texts of unequal lengths: a slot for each text, in buffers of one size."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import CheckpointError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn.checks import check_positive
from glasshouse.ops.index import scatter_set
from glasshouse.tensor import Tensor, arange, asarray, eval, minimum, take, take_along_axis, zeros

__all__ = ["Prefix", "SlotCache", "SlotLayer", "states_at"]


class SlotLayer:
    """The keys and values of a layer. `lengths` says how many positions of each slot are written;
    new ones go after them, in place. Attention reads the first `reach` positions.

    Shapes: keys and values (slots · heads · capacity, D), lengths (slots,).
    """

    def __init__(
        self, slots: int, heads: int, capacity: int, features: int, dtype: DTypeLike | None
    ) -> None:
        self.shape: tuple[int, int, int, int] = (slots, heads, capacity, features)
        self.keys: Any
        self.values: Any
        self.keys, self.values = (zeros((prod(self.shape[:3]), features), dtype) for _ in range(2))
        self.length: Any = zeros((slots,), dtype="int64")
        self.reach = capacity

    @property
    def max_length(self) -> int:
        """How many positions of a slot attention reads."""
        return self.reach

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(keys, values) within `reach`, with the new ones written after each slot's length; tokens
        beyond the capacity are written to the last position.

        Shapes: key and value (slots, heads, L, D) -> (slots, heads, reach, D).
        Raises: ShapeError for other sizes.
        """
        slots, heads, capacity, features = self.shape
        count = key.shape[2] if key.ndim == 4 else 0
        for x in (key, value):
            if x.shape != (slots, heads, count, features):
                expected = f"({slots}, {heads}, L, {features})"
                raise ShapeError("SlotLayer.update", expected, x.shape, "Make other slots.")
        first = reshape(arange(slots * heads) * capacity, (slots, heads, 1))
        at = minimum(positions(self.length, count), capacity - 1)
        total = slots * heads * count
        at = reshape(first + reshape(at, (slots, 1, count)), (total,))
        with no_grad():
            for buffer, x in ((self.keys, key), (self.values, value)):
                rows = reshape(x.detach(), (total, features))
                buffer.copy_(scatter_set(buffer.detach(), at, rows.astype(buffer.dtype), axis=0))
        keys, values = (reshape(x, self.shape) for x in (self.keys, self.values))
        if self.reach < capacity:
            keys, values = keys[:, :, : self.reach], values[:, :, : self.reach]
        return keys, values


def positions(lengths: Tensor, count: int) -> Tensor:
    """The positions of the next `count` tokens of each slot.

    Shapes: lengths (slots,) -> (slots, count).
    """
    return reshape(lengths, (lengths.shape[0], 1)) + arange(count)


class SlotCache:
    """Keys and values of texts in slots, a `SlotLayer` for each layer of a model. A slot's text
    begins at position 0 and has the length in `lengths`, which the caller raises after each call.
    Padding on the right is written too; later tokens overwrite it. Tokens beyond the capacity are
    written to the last position, so a text has at most `capacity - 1` tokens. Attention reads all
    positions, or the first ones, as set by `set_reach`. `memory` is the encoder's output in an
    encoder-decoder.

    Shapes: for each layer keys and values (slots, heads, capacity, D); lengths (slots,).
    Example:
        >>> cache = SlotCache(1, 2, 3, 8, 4)
        >>> keys, values = cache[0].update(gh.ones((2, 3, 5, 4)), gh.ones((2, 3, 5, 4)))
        >>> cache.set_lengths([5, 2])
        >>> cache.positions(1).tolist(), cache.visible(1).shape
        ([[5], [2]], (2, 1, 1, 8))
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        heads: int,
        capacity: int,
        features: int,
        dtype: DTypeLike | None = None,
    ) -> None:
        sizes = {"layers": layers, "slots": slots, "heads": heads}
        check_positive("SlotCache", **sizes, capacity=capacity, features=features)
        self.layers: list[SlotLayer]
        self.layers = [SlotLayer(slots, heads, capacity, features, dtype) for _ in range(layers)]
        self.slots = slots
        self.capacity = capacity
        self.memory: Any = None
        self.memory_mask: Any = None

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: int) -> SlotLayer:
        return self.layers[layer]

    @property
    def lengths(self) -> Tensor:
        """How many positions of each slot are written."""
        return self.layers[0].length

    def set_lengths(self, lengths: Any) -> None:
        """Say how many positions of each slot are written, from now on."""
        tensor = asarray(np.array(lengths, np.int64))
        for layer in self.layers:
            layer.length = tensor

    @property
    def reach(self) -> int:
        """How many positions attention reads."""
        return self.layers[0].reach

    def set_reach(self, count: int | None = None) -> None:
        """Let attention read so many first positions, from now on; all if None."""
        reach = self.capacity if count is None else min(count, self.capacity)
        for layer in self.layers:
            layer.reach = reach

    def positions(self, count: int) -> Tensor:
        """The positions of the next `count` tokens of each slot.

        Shapes: -> (slots, count).
        """
        return positions(self.lengths, count)

    def visible(self, count: int, window: int | None = None) -> Tensor:
        """A mask for attention: where the next `count` tokens may attend, to themselves and to
        those before them, within the last `window`.

        Shapes: -> (slots, 1, count, reach).
        """
        at, key = reshape(self.positions(count), (self.slots, 1, count, 1)), arange(self.reach)
        return key <= at if window is None else (key <= at) & (key > at - window)

    def buffers(self) -> list[tuple[SlotLayer, str]]:
        """The layers with the names of their buffers."""
        return [(layer, name) for layer in self.layers for name in ("keys", "values")]

    def reorder(self, rows: Sequence[int]) -> None:
        """Give slot i the text of slot `rows[i]`."""
        index = asarray(np.array(rows, np.int64))
        with no_grad():
            for layer, name in self.buffers():
                buffer = getattr(layer, name)
                x = take(reshape(buffer, (self.slots, buffer.size // self.slots)), index, axis=0)
                setattr(layer, name, reshape(x, buffer.shape))

    def read(self, slot: int, length: int, tokens: Sequence[int] = ()) -> "Prefix":
        """The first positions of a slot, to be written to others."""
        shape = self.layers[0].shape
        parts = [reshape(getattr(*x), shape)[slot, :, :length] for x in self.buffers()]
        eval(*parts)  # pending reads would keep the buffers from being written in place
        return Prefix(tokens, parts)

    def write(self, slot: int, prefix: "Prefix", length: int | None = None) -> None:
        """Write a prefix, or its first positions, to a slot.

        Raises: ShapeError where it is of other sizes.
        """
        shape = self.layers[0].shape
        length = len(prefix) if length is None else length
        sizes = [(x.shape[0], x.shape[2]) for x in prefix.parts]
        if sizes != [(shape[1], shape[3])] * (2 * len(self)) or length > self.capacity:
            expected = f"{2 * len(self)} tensors ({shape[1]}, L, {shape[3]}), L <= {self.capacity}"
            got = f"{len(sizes)} tensors, {sizes[:1]}"
            raise ShapeError("SlotCache.write", expected, got, "Take a prefix of the same model.")
        with no_grad():
            for (layer, name), x in zip(self.buffers(), prefix.parts, strict=True):
                buffer = reshape(getattr(layer, name), shape)
                buffer[slot, :, :length] = x[:, :length]
                setattr(layer, name, reshape(buffer, (prod(shape[:3]), shape[3])))


class Prefix:
    """The keys and values of a text's first tokens, which texts with the same beginning share.
    `state_dict` is for `gh.save`; `from_state` takes it back.

    Shapes: for each layer keys and values (heads, L, D).
    """

    def __init__(self, tokens: Sequence[int], parts: Sequence[Tensor]) -> None:
        self.tokens: list[int] = [int(token) for token in tokens]
        self.parts: list[Tensor] = list(parts)

    def __len__(self) -> int:
        return self.parts[0].shape[1]

    def shared(self, tokens: Sequence[int]) -> int:
        """How many first tokens of a text are this prefix's, but for the text's last one."""
        pairs = zip(self.tokens, list(tokens)[:-1], strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b),
                    min(len(self.tokens), max(len(tokens) - 1, 0)))  # fmt: skip

    def state_dict(self) -> dict[str, Tensor]:
        """Tokens and tensors by name."""
        parts = {f"parts.{i}": x for i, x in enumerate(self.parts)}
        return {"tokens": asarray(np.array(self.tokens, np.int64)), **parts}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Prefix":
        """The prefix of a `state_dict`.

        Raises: CheckpointError where parts are missing.
        """
        names = [f"parts.{i}" for i in range(len(state) - 1)]
        if "tokens" not in state or not names or not set(names) <= set(state):
            got = ", ".join(sorted(state)[:5]) or "nothing"
            fix = "Pass what Prefix.state_dict gave."
            raise CheckpointError("Prefix.from_state", "tokens and parts.0, …", got, fix)
        tokens = [int(x) for x in np.asarray(state["tokens"])]
        return cls(tokens, [as_value(state[name]) for name in names])


def states_at(x: Tensor, at: Tensor) -> Tensor:
    """The rows of states at these places.

    Shapes: x (N, L, E), at (N, M) -> (N, M, E).
    Example:
        >>> states_at(gh.asarray([[[1.0], [2.0]]]), gh.asarray([[1]])).tolist()
        [[[2.0]]]
    """
    if x.shape[1] == at.shape[1] == 1:
        return x
    index = reshape(at, (*at.shape, 1)).expand((*at.shape, x.shape[2]))
    return take_along_axis(x, index, axis=1)
