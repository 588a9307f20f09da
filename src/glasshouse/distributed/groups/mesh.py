"""A mesh of ranks: the world as a grid whose axes have names, with a group along each of them."""

import math
from functools import cached_property

import numpy as np

from glasshouse.base.errors import OptionError, suggest
from glasshouse.distributed.groups import membership
from glasshouse.ops.checks import check_type
from glasshouse.ops.process import ProcessGroup, process


class DeviceMesh:
    """All ranks of the world in a grid, the last axis the fastest. `mesh["data"]` is the group of
    the ranks that differ from this one along that axis alone.

    Raises: OptionError for axes that are no positive numbers, or whose product is not the number of
        ranks
    """

    def __init__(self, axes: dict[str, int]) -> None:
        check_type("mesh", axes, dict, "a dict of axes", 'Write e.g. {"data": 2, "tensor": 2}.')
        count = math.prod(axes.values()) if axes else 0
        if any(not isinstance(n, int) or n < 1 for n in axes.values()) or count != process.size:
            expected = f"axes whose product is the number of ranks, {process.size}"
            raise OptionError("mesh", expected, axes, f"Start {count} ranks, or change an axis.")
        self.axes: dict[str, int] = dict(axes)
        self.groups: dict[tuple[str, ...], ProcessGroup] = {}
        for name in axes:
            self.group(name)

    @cached_property
    def ranks(self) -> np.ndarray:
        """The ranks, in the shape of the mesh."""
        return np.arange(math.prod(self.axes.values())).reshape(tuple(self.axes.values()))

    def coordinates(self, rank: int | None = None) -> dict[str, int]:
        """Coordinates of a rank of the world (this one unless given) along each axis."""
        place = np.unravel_index(process.rank if rank is None else rank, self.ranks.shape)
        return dict(zip(self.axes, map(int, place), strict=True))

    def size(self, *axes: str) -> int:
        """How many ranks there are along these axes together."""
        return math.prod(self.axes[self.check_axis(axis)] for axis in axes)

    def group(self, *axes: str) -> ProcessGroup:
        """The ranks that differ from this one along these axes alone, in the order of the mesh. All
        ranks of the world ask for the same groups in the same order.

        Raises: OptionError for a name that is none
        """
        names = tuple(axis for axis in self.axes if axis in {*map(self.check_axis, axes)})
        if names not in self.groups:
            places = list(self.axes)
            along = [places.index(name) for name in names]
            rows = np.moveaxis(self.ranks, along, range(-len(along), 0))
            for row in rows.reshape(-1, self.size(*names)):
                row_group = membership.group(map(int, row), "+".join(names))
                if process.rank in row_group.ranks:
                    self.groups[names] = row_group
        return self.groups[names]

    __getitem__ = group

    def check_axis(self, axis: str) -> str:
        if axis not in self.axes:
            raise OptionError("mesh", "an axis", repr(axis), suggest(axis, self.axes))
        return axis

    def __repr__(self) -> str:
        return f"DeviceMesh({', '.join(f'{name}={n}' for name, n in self.axes.items())})"


def mesh(axes: dict[str, int]) -> DeviceMesh:
    """The world as a grid with these axes, e.g. {"data": 2, "tensor": 2}; on every rank alike.

    Raises: as DeviceMesh
    Example:
        >>> mesh({"data": 1})["data"].size
        1
    """
    return DeviceMesh(axes)
