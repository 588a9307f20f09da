"""Sequences of several lengths in one tensor: padded to one length, or packed step by step."""

from typing import Any, NamedTuple, Self

import numpy as np

from glasshouse.base.errors import DTypeError, OptionError, ShapeError, type_name
from glasshouse.dispatch.value import Value, as_value, reshape
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor, asarray, concat, full, stack, swapaxes, take
from glasshouse.tensor import where as choose

__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedFields(NamedTuple):
    """The fields of a PackedSequence."""

    data: Value
    batch_sizes: Value
    sorted_indices: Value | None
    unsorted_indices: Value | None


class PackedSequence(PackedFields):
    """Sequences of several lengths, longest first, step by step: the first element of each, then
    the second of each that has one, and so on.

        data[sum(batch_sizes[:t]) + i] = element t of the i-th longest sequence

    `sorted_indices` put the sequences in that order, `unsorted_indices` back.

    Shapes: data (sum of lengths, *), batch_sizes (longest length,), the indices (B,).
    Example:
        >>> packed = pack_sequence([gh.asarray([1, 2, 3]), gh.asarray([4, 5])])
        >>> packed.data.tolist(), packed.batch_sizes.tolist()
        ([1, 4, 2, 5, 3], [2, 2, 1])
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> Self:
        if batch_sizes is None:
            fix = "Make it with pack_padded_sequence."
            raise OptionError("PackedSequence", "batch_sizes", "None", fix)
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = inverse(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """The same sequences with `data.to(…)`; the indices stay integers."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def float(self) -> "PackedSequence":
        """The same sequences in float32."""
        return self.to("float32")

    def double(self) -> "PackedSequence":
        """The same sequences in float64."""
        return self.to("float64")

    def half(self) -> "PackedSequence":
        """The same sequences in float16."""
        return self.to("float16")


def inverse(order: Any) -> Tensor:
    """Where each place of a permutation went."""
    return asarray(np.argsort(np.asarray(order), kind="stable"))


def checked_lengths(where: str, lengths: list[float], most: int, count: int) -> np.ndarray:
    """Lengths of `count` sequences as integers from 1 to `most`."""
    numbers = np.asarray(lengths.numpy() if isinstance(lengths, Value) else lengths)
    if numbers.dtype.kind not in "iu":
        raise DTypeError(where, "lengths that are integers", numbers.dtype, "Convert them.")
    if numbers.shape != (count,):
        raise ShapeError(where, f"{count} lengths, one for each sequence", numbers.shape, "Check.")
    if count == 0 or numbers.min() < 1 or numbers.max() > most:
        fix = "Leave empty sequences out."
        raise OptionError(where, f"lengths from 1 to {most}", numbers.tolist(), fix)
    return numbers.astype(np.int64)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The PackedSequence of padded sequences, without the padding past each length.
    `lengths` are numbers that are known at the call. Unless `enforce_sorted`, the sequences may
    be in any order.

    Shapes: input (T, B, *), or (B, T, *) if batch_first; lengths (B,).
    Raises: OptionError for lengths outside 1 … T, or that rise though enforce_sorted; ShapeError
        unless there is one for each sequence.
    Source: standard.
    Example:
        >>> packed = pack_padded_sequence(gh.asarray([[1, 2], [3, 0]]), [2, 1], batch_first=True)
        >>> packed.data.tolist(), packed.batch_sizes.tolist()
        ([1, 3, 2], [2, 1])
    """
    where = "pack_padded_sequence"
    x = as_value(input, where=where)
    if x.ndim < 2:
        raise ShapeError(where, "an input (T, B, *) or (B, T, *)", x.shape, "Add the axis.")
    steps, count = x.shape[:2][:: -1 if batch_first else 1]
    numbers = checked_lengths(where, lengths, steps, count)
    order = None
    if not enforce_sorted:
        order = np.argsort(-numbers, kind="stable")
        numbers = numbers[order]
    elif (np.diff(numbers) > 0).any():
        fix = "Sort the sequences, or pass enforce_sorted=False."
        raise OptionError(where, "lengths that do not rise", numbers.tolist(), fix)
    sizes = (numbers[None, :] > np.arange(numbers[0])[:, None]).sum(1)  # (T,)
    step, place = step_and_place(sizes)
    if order is not None:
        place = order[place]
    flat = place * steps + step if batch_first else step * count + place
    data = take(reshape(x, (steps * count, *x.shape[2:])), asarray(flat), axis=0)
    return PackedSequence(data, asarray(sizes), None if order is None else asarray(order))


def step_and_place(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step and the sequence of each element of packed data."""
    step = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return step, np.arange(sizes.sum()) - starts[step]


def pad_packed_sequence(
    sequence: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: Any = None,
) -> Any:
    """(padded sequences in their first order, their lengths) of a PackedSequence.

    Shapes: -> (T, B, *), or (B, T, *) if batch_first, T being `total_length` or the longest length;
        (B,).
    Raises: OptionError for a total_length below the longest length.
    Source: standard.
    Example:
        >>> packed = pack_sequence([gh.asarray([1, 2]), gh.asarray([3])])
        >>> padded, lengths = pad_packed_sequence(packed, batch_first=True)
        >>> padded.tolist(), lengths.tolist()
        ([[1, 2], [3, 0]], [2, 1])
    """
    where = "pad_packed_sequence"
    if not isinstance(sequence, PackedSequence):
        got = type_name(sequence)
        raise DTypeError(where, "a PackedSequence", got, "Make it with pack_padded_sequence.")
    data, sizes = sequence.data, np.asarray(sequence.batch_sizes.numpy())
    lengths = (sizes[None, :] > np.arange(sizes[0])[:, None]).sum(1)  # (B,)
    longest = len(sizes)
    steps = longest if total_length is None else total_length
    if steps < longest:
        fix = "Enlarge it, or leave it out."
        raise OptionError(where, f"total_length of at least {longest}", total_length, fix)
    if sequence.unsorted_indices is not None:
        back = np.asarray(sequence.unsorted_indices.numpy())
    else:
        back = np.arange(sizes[0])
    starts = np.cumsum(sizes) - sizes
    at = np.zeros((steps, len(back)), np.int64)
    at[:longest] = starts[:, None] + back  # (T, B)
    lengths = lengths[back]
    inside = np.arange(steps)[:, None] < lengths
    at = np.where(inside, at, 0)
    if batch_first:
        at, inside = at.T, inside.T
    rows = take(data, asarray(np.ascontiguousarray(at).reshape(-1)), axis=0)
    rows = reshape(rows, (*at.shape, *data.shape[1:]))
    inside = reshape(asarray(np.ascontiguousarray(inside)), (*at.shape, *(1,) * (data.ndim - 1)))
    return choose(inside, rows, full((), padding_value, dtype=data.dtype)), asarray(lengths)


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences stacked after they were padded to the longest length.

    Shapes: each (L_i, *) -> (T, B, *), or (B, T, *) if batch_first.
    Raises: OptionError for no sequence; ShapeError for other axes after the first.
    Source: standard.
    Example:
        >>> pad_sequence([gh.asarray([1, 2]), gh.asarray([3])], batch_first=True).tolist()
        [[1, 2], [3, 0]]
    """
    where = "pad_sequence"
    check_option(where, "padding_side", padding_side, ("left", "right"))
    xs = checked_sequences(where, sequences)
    longest = max(x.shape[0] for x in xs)
    rows = []
    for x in xs:
        filler = full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype)
        rows.append(concat([x, filler] if padding_side == "right" else [filler, x], axis=0))
    return stack(rows, axis=0 if batch_first else 1)


def checked_sequences(where: str, sequences: list[Tensor]) -> list[Tensor]:
    if isinstance(sequences, Value) and sequences.ndim == 0:
        raise ShapeError(where, "sequences", "a 0-d tensor", "Pass a list of tensors.")
    xs = [as_value(x, where=where) for x in sequences]
    if not xs:
        raise OptionError(where, "at least one sequence", "none", "Pass a list of tensors.")
    for x in xs:
        if x.ndim == 0 or x.shape[1:] != xs[0].shape[1:]:
            fix = "Reshape them."
            raise ShapeError(where, f"sequences of shape (L, *{xs[0].shape[1:]})", x.shape, fix)
    return xs


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor, each cut to its length.

    Shapes: (T, B, *), or (B, T, *) if batch_first, and lengths (B,) -> B times (L_i, *).
    Raises: OptionError for lengths outside 1 … T.
    Source: standard.
    Example:
        >>> [x.tolist() for x in unpad_sequence(gh.asarray([[1, 3], [2, 0]]), [2, 1])]
        [[1, 2], [3]]
    """
    where = "unpad_sequence"
    x = as_value(padded_sequences, where=where)
    if x.ndim < 2:
        raise ShapeError(where, "padded sequences (T, B, *)", x.shape, "Add the axis.")
    x = x if batch_first else swapaxes(x, 0, 1)
    numbers = checked_lengths(where, lengths, x.shape[1], x.shape[0])
    return [x[i, :length] for i, length in enumerate(numbers.tolist())]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """The PackedSequence of a list of sequences; see `pack_padded_sequence`.

    Shapes: each (L_i, *).
    Raises: OptionError for lengths that rise though enforce_sorted; ShapeError for other axes
        after the first.
    Source: standard.
    """
    xs = checked_sequences("pack_sequence", sequences)
    lengths = [x.shape[0] for x in xs]
    return pack_padded_sequence(pad_sequence(xs), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: Any) -> list[Tensor]:
    """The sequences of a PackedSequence, in their first order.

    Shapes: -> B times (L_i, *).
    Source: standard.
    Example:
        >>> packed = pack_sequence([gh.asarray([1, 2]), gh.asarray([3])])
        >>> [x.tolist() for x in unpack_sequence(packed)]
        [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
