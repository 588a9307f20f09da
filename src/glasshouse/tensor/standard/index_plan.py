"""Reads an indexing key for a shape, by NumPy's rules.

A key is read once into an `IndexPlan`: the part that slices alone do (`starts`, `stops`, `steps`,
`flips` per axis), and the index arrays."""

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.base import DTypeError, IndexOutOfRangeError, Shape, int64, type_name
from glasshouse.dispatch import Value, as_value, cast
from glasshouse.dispatch import value as values
from glasshouse.ops import index as cards

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


@dataclass
class IndexPlan:
    """An indexing key resolved for one shape: bounds for every axis, index arrays for some."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    flips: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)  # axes indexed by one integer
    shape: list[int] = field(default_factory=list)  # of the basic part, with new axes
    arrays: dict[int, Any] = field(default_factory=dict)  # axis of `shape` → indices
    origins: dict[int, int] = field(default_factory=dict)  # axis of `shape` → axis of the source
    adjacent: bool = True

    def cover(self, start: int, stop: int, step: int) -> int:
        """Add an axis with these bounds; the number of elements it keeps."""
        if step < 0:
            count = max(0, -(-(start - stop) // -step))
            self.flips.append(len(self.starts))
            first = start + (count - 1) * step if count else 0
            start, stop, step = first, first + (count - 1) * -step + 1 if count else 0, -step
        stop = max(start, stop)
        self.starts.append(start)
        self.stops.append(stop)
        self.steps.append(step)
        return -(-(stop - start) // step)


def expand_key(key: Any, ndim: int) -> list[Any]:
    """The key with an entry for every axis: slices after `...`, indices in place of masks."""
    items: list[Any] = []
    for item in key if isinstance(key, tuple) else (key,):
        if isinstance(item, (list, tuple, range)):
            item = listed(item)
        if isinstance(item, (bool, np.bool_)) or is_mask(item):
            items.extend(mask_indices(item))
        else:
            items.append(item)
    added = (type(None), type(Ellipsis), LoneMask)  # items that take no axis of the value
    count = sum(not isinstance(item, added) for item in items)
    rests = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(rests) > 1:
        fix = "Write the other axes as ':'."
        raise IndexOutOfRangeError("index", "at most one '...'", len(rests), fix)
    if count > ndim:
        fix = "Remove some, or add axes with None."
        raise IndexOutOfRangeError("index", f"at most {ndim} indices, one per axis", count, fix)
    place = rests[0] + 1 if rests else len(items)
    items[place:place] = [slice(None)] * (ndim - count)
    return items


class MaskPart(NamedTuple):
    """One axis of a boolean mask: the positions of its true elements, and the size it must have."""

    indices: Any
    size: int


class LoneMask(NamedTuple):
    """A 0-d mask: it adds an axis, and keeps its one element or not."""

    indices: Any


def listed(item: Any) -> Any:
    if not len(item):
        return np.zeros(0, np.int64)
    if any(isinstance(i, Value) for i in item):
        return as_value(list(item), where="index")
    return values.to_array(item, "index")


def is_mask(item: Any) -> bool:
    return isinstance(item, (np.ndarray, Value)) and item.dtype == "bool"


def mask_indices(mask: "Tensor") -> list[Any]:
    """The index arrays that a boolean mask stands for; a lone bool adds an axis of size 0 or 1."""
    mask = np.asarray(mask.numpy() if isinstance(mask, Value) else mask)
    if mask.ndim == 0:
        return [LoneMask(np.zeros(int(mask), np.int64))]
    return [MaskPart(i, size) for i, size in zip(np.nonzero(mask), mask.shape, strict=True)]


def plan_key(key: Any, shape: Shape) -> IndexPlan:
    plan = IndexPlan()
    places: list[int] = []
    for item in expand_key(key, len(shape)):
        if item is None:
            plan.shape.append(1)
        elif item is Ellipsis:
            places.append(-1)  # index arrays on its two sides are apart, even if it holds no axis
        elif isinstance(item, LoneMask):
            plan.arrays[len(plan.shape)] = item.indices
            places.append(len(plan.shape))
            plan.shape.append(1)
        else:
            axis = len(plan.starts)
            plan_axis(plan, item, axis, shape[axis], places)
    finish_integers(plan, places)
    return plan


def plan_axis(plan: IndexPlan, item: Any, axis: int, size: int, places: list[int]) -> None:
    if isinstance(item, slice):
        try:
            plan.shape.append(plan.cover(*item.indices(size)))
        except TypeError:
            fix = "Use integer bounds."
            raise DTypeError("index", "integers or None in a slice", item, fix) from None
        return
    number = as_integer(item)
    if number is not None:
        if not -size <= number < size:
            expected = f"an index from {-size} to {size - 1} for axis {axis} of size {size}"
            fix = "Check the index against the shape."
            raise IndexOutOfRangeError("index", expected, number, fix)
        number += size if number < 0 else 0
        plan.cover(number, number + 1, 1)
        plan.dropped.append(len(plan.shape))
        plan.shape.append(1)
        places.append(len(plan.shape) - 1)
        return
    plan.cover(0, size, 1)
    plan.arrays[len(plan.shape)] = index_array(item, axis, size)
    plan.origins[len(plan.shape)] = axis
    places.append(len(plan.shape))
    plan.shape.append(size)


def as_integer(item: Any) -> int | None:
    """`item` as an int if it is one, else None; a 0-d tensor is an index array, and not read."""
    if isinstance(item, Value):
        return None
    try:
        return operator.index(item)
    except TypeError:
        return None


def index_array(item: Any, axis: int, size: int) -> Any:
    if isinstance(item, MaskPart):
        if item.size not in (size, 0):  # an empty mask chooses nothing of an axis of any size
            expected = f"a mask of size {size} on axis {axis}"
            fix = "A mask has the shape of the axes it indexes."
            raise IndexOutOfRangeError("index", expected, item.size, fix)
        return item.indices
    if not isinstance(item, (np.ndarray, Value)):
        expected = "integers, slices, None, '...' or arrays"
        fix = "Convert it to an integer."
        raise DTypeError("index", expected, f"{type_name(item)} {item!r}", fix)
    kind = item.dtype.kind
    if kind not in ("i", "u", "int", "uint"):
        name = getattr(item.dtype, "name", item.dtype)
        raise DTypeError("index", "integers or booleans", name, "Cast them.")
    if isinstance(item, Value):
        return cast(item, int64)
    return cards.checked("index", item, size, axis)


def finish_integers(plan: IndexPlan, places: list[int]) -> None:
    """Beside index arrays, single integers are index arrays too, as in NumPy."""
    if not plan.arrays:
        return
    for axis in plan.dropped:
        plan.arrays[axis] = np.zeros((), np.int64)
    plan.dropped = []
    indexed = [place for place in places if place >= 0]
    first, last = places.index(indexed[0]), len(places) - places[::-1].index(indexed[-1])
    plan.adjacent = places[first:last] == list(range(indexed[0], indexed[0] + len(indexed)))
