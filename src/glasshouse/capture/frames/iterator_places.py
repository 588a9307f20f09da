"""Python's own iterators, advanced past some of their items."""

import sys
from collections.abc import Iterator
from typing import Any


def reversed_at(values: list[Any], index: int) -> Any:
    """A reversed iterator over a list whose next item is the one at an index."""
    iterator = reversed(values)
    iterator.__setstate__(index if index < len(values) else -1)  # it has ended if there is no item
    return iterator


def choices_from(number: int, fn: Any, *args: Any) -> Any:
    """fn(*args), advanced past `number` of its items."""
    it = fn(*args)
    for _ in range(number):
        next(it, None)
    return it


def iterator_of(values: Any, index: int, size: int) -> Any:
    """An iterator over a dict or set, advanced past `index` of its `size` elements."""
    if len(values) != size:
        return changed_size(values)
    it = iter(values)
    for _ in range(min(index, size)):
        next(it)
    if index > size:  # it has ended, and stays so
        next(it, None)
    return it


def changed_size(values: Any) -> Iterator[Any]:
    """An iterator over something that grew or shrank: it raises."""
    kind = "Set" if isinstance(values, set) else "dictionary"
    raise RuntimeError(f"{kind} changed size during iteration")
    yield


def length_of(values: Any) -> int:
    """len(values); for a range that is too long for len, a number not below any index."""
    try:
        return len(values)
    except OverflowError:
        return sys.maxsize


def iterator_at(values: Any, index: int) -> Any:
    """An iterator over `values`, advanced past `index` of them; past all, it has ended."""
    it, size = iter(values), length_of(values)
    it.__setstate__(min(index, size))
    if index > size:
        next(it, None)
    return it
