"""Parts of a data set."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.data.dataset import ResampleDataset
from glasshouse.data.fetch import check_source
from glasshouse.data.order import random_order
from glasshouse.ops.checks import check_integer, check_range, check_several, check_type
from glasshouse.tensor.random import Generator


class Subset(ResampleDataset):
    """The samples of `dataset` at `indices`, by PyTorch's name.

    Example:
        >>> list(Subset("abc", [2, 0]))
        ['c', 'a']
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        super().__init__(dataset, indices)
        self.dataset = dataset


def random_split(
    dataset: Any, lengths: Any, generator: Generator | None = None, *, seed: int = 0
) -> list[Subset]:
    """A list of `Subset`s of these lengths, or fractions, that do not overlap, drawn at random.

    Raises: OptionError unless lengths sum to the data set's, or fractions to 1.
    Source: PyTorch.
    Example:
        >>> [len(part) for part in random_split("abcdefg", [0.5, 0.5])]
        [4, 3]
    """
    check_source("random_split", dataset)
    lengths = check_several("random_split", lengths, "a list of lengths", "Pass e.g. [0.9, 0.1].")
    for length in lengths:
        check_range("random_split", "each length", length, 0, math.inf)
    parts = split_lengths(len(dataset), lengths)
    if generator is None:
        path = (check_integer("random_split", "seed", seed),)
    else:
        fix = "Pass a gh.random.Generator, or a seed."
        check_type("random_split", generator, Generator, "a generator", fix)
        path = tuple(generator.key().numpy().tolist())
    order = random_order(len(dataset), *path)
    ends = np.cumsum([0, *parts])
    return [
        Subset(dataset, order[start:end]) for start, end in zip(ends[:-1], ends[1:], strict=True)
    ]


def split_lengths(total: int, lengths: list[float]) -> list[int]:
    """The parts' lengths: `lengths` themselves, or of fractions that sum to 1, rounded down, with
    the rest given out one by one from the first.

    Source: PyTorch.
    """
    where = "random_split"
    if lengths and math.isclose(sum(lengths), 1) and not all(x in (0, 1) for x in lengths):
        parts = [math.floor(total * fraction) for fraction in lengths]
        for turn in range(total - sum(parts)):
            parts[turn % len(parts)] += 1
        return parts
    parts = [int(length) for length in lengths]
    if parts != lengths or sum(parts) != total:
        expected = f"lengths that sum to {total}, or fractions that sum to 1"
        fix = "The data set has to be split whole."
        raise OptionError(where, expected, f"{lengths}, which sum to {sum(lengths)}", fix)
    return parts
