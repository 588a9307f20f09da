"""Placements: how the ranks along an axis of a mesh share out a tensor."""

import itertools
from typing import Any, NamedTuple

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.distributed.groups.mesh import DeviceMesh
from glasshouse.ops import collective
from glasshouse.ops.movement import pad, section
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, asarray, concat, reshape

__all__ = ["Partial", "Replicate", "Shard", "Sharding", "gather", "place", "sharding_of"]


class Shard(NamedTuple):
    """Each rank has its own part along `axis`. With `parts`, the axis consists of so many equal
    stretches, each of which is cut: the packed weights of queries, keys and values are 3."""

    axis: int
    parts: int = 1

    def width(self, length: int, count: int) -> int:
        """Width of a rank's part of each stretch of such an axis; the last ranks have less."""
        return -(-length // self.parts // count)


class Replicate(NamedTuple):
    """Each rank has the whole."""


class Partial(NamedTuple):
    """Each rank has a summand."""

    reduce: str = "sum"


Placement = Shard | Replicate | Partial


class Piece(NamedTuple):
    """A box of the local part, and the same box in the whole."""

    local: tuple[slice, ...]
    whole: tuple[slice, ...]


class Sharding(NamedTuple):
    """Placement of a tensor on ranks: `shape` is the shape of the whole, `placements` are by axis
    of the mesh. If several of them cut, the first cuts the whole, the next the result of the first;
    axes of the mesh that are not named replicate it."""

    shape: tuple[int, ...]
    placements: dict[str, Placement]
    mesh: DeviceMesh | None = None

    @property
    def is_whole(self) -> bool:
        """Whether this rank has all of it."""
        return not self.cuts()

    def cuts(self) -> list[tuple[str, Shard]]:
        return [(name, p) for name, p in self.placements.items() if isinstance(p, Shard)]

    @property
    def groups(self) -> list[ProcessGroup]:
        """The groups whose ranks have different parts."""
        return [self.mesh.group(name) for name, _ in self.cuts()] if self.mesh else []

    def spans(self, rank: int | None = None) -> list[list[tuple[int, int]]]:
        """For each axis, the stretches of the whole that a rank (this one unless given) has."""
        spans = [[(0, length)] for length in self.shape]
        if self.mesh is None:
            return spans
        for name, cut in self.cuts():
            at, count = self.mesh.coordinates(rank)[name], self.mesh.size(name)
            spans[cut.axis] = own_spans(spans[cut.axis], cut, at, count)
        return spans

    def local_shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Shape of a rank's part."""
        return tuple(sum(end - begin for begin, end in axis) for axis in self.spans(rank))

    def pieces(self, rank: int | None = None) -> list[Piece]:
        """Places of a rank's part in the whole, box by box."""
        by_axis = [list(zip(local_spans(s), s, strict=True)) for s in self.spans(rank)]
        return [
            Piece(tuple(slice(*a) for a, _ in boxes), tuple(slice(*b) for _, b in boxes))
            for boxes in itertools.product(*by_axis)
        ]

    def with_cut(self, mesh: DeviceMesh, axis: str, placement: Placement) -> "Sharding":
        """The same with one more cut."""
        return Sharding(self.shape, {**self.placements, axis: placement}, mesh)


def own_spans(spans: Any, cut: Shard, at: int, count: int) -> list[tuple[int, int]]:
    """Spans of an axis, which consists of `spans`, that the rank number `at` of `count` gets."""
    length = sum(end - begin for begin, end in spans)
    width, stretch = cut.width(length, count), length // cut.parts
    out = []
    for part in range(cut.parts):
        low, high = (part * stretch + min(k * width, stretch) for k in (at, at + 1))
        for (first, last), (begin, _) in zip(local_spans(spans), spans, strict=True):
            low_here, high_here = max(low, first), min(high, last)
            if low_here < high_here:
                out.append((begin + low_here - first, begin + high_here - first))
    return out or [(0, 0)]


def local_spans(spans: Any) -> list[tuple[int, int]]:
    """Places of stretches after they are joined."""
    ends = [0, *itertools.accumulate(end - begin for begin, end in spans)]
    return list(itertools.pairwise(ends))


def sharding_of(tensor: Tensor) -> Sharding:
    """Sharding of a tensor; one that nobody placed is whole on each rank."""
    return tensor.sharding or Sharding(tuple(tensor.shape), {})


def check_cut(where: str, shape: Any, mesh: DeviceMesh, axis: str, cut: Shard) -> Shard:
    """The cut with its axis counted from the front.

    Raises: ShapeError where the ranks do not divide the axis
    """
    count, ndim = mesh.size(axis), len(shape)
    at = cut.axis + ndim if cut.axis < 0 else cut.axis
    if not 0 <= at < ndim or shape[at] % (cut.parts * count) or not shape[at]:
        raise ShapeError(
            where,
            f"an axis {cut.axis} that the {count} ranks along {axis!r} divide"
            + (f", in each of {cut.parts} parts" if cut.parts > 1 else ""),
            f"shape {tuple(shape)}",
            "Pad the axis, take another one, or replicate it.",
        )
    return Shard(at, cut.parts)


def own_part(x: Tensor, cut: Shard, group: ProcessGroup) -> Tensor:
    """Cut this rank's part from an x that all ranks of the group hold alike. Rows that ranks do not
    divide leave the last ranks fewer."""
    length = x.shape[cut.axis]
    if length % (group.size * cut.parts) == 0 and cut.parts == 1 and length:
        return collective.shard(x, group=group, axis=cut.axis, index=group.rank)
    spans = own_spans([(0, length)], cut, group.rank, group.size)
    parts = [section(x, cut.axis, *span) for span in spans]
    return parts[0] if len(parts) == 1 else concat(parts, axis=cut.axis)


def joined(x: Tensor, cut: Shard, length: int, group: ProcessGroup) -> Tensor:
    """Join parts, whose axis has `length` in all, into the whole on each rank of the group."""
    width, axis = cut.width(length, group.size), cut.axis
    x = padded(x, axis, width * cut.parts)
    if cut.parts > 1:
        x = reshape(x, (*x.shape[:axis], cut.parts, width, *x.shape[axis + 1 :]))
        axis += 1
    x = collective.all_gather(x, group=group, axis=axis, replicated=True)
    if cut.parts > 1:
        x = reshape(x, (*x.shape[: axis - 1], length, *x.shape[axis + 1 :]))
    return section(x, cut.axis, 0, length) if x.shape[cut.axis] > length else x


def padded(x: Tensor, axis: int, length: int) -> Tensor:
    missing = length - x.shape[axis]
    if not missing:
        return x
    widths = tuple((0, missing if i == axis else 0, 0) for i in range(x.ndim))
    return pad(x, widths=widths, value=0.0)


def place(x: Any, mesh: DeviceMesh, placements: dict[str, Placement]) -> Tensor:
    """Return this rank's part of an x that all ranks hold alike; `placements` are by mesh axis.

    Raises: ShapeError where the ranks do not divide an axis, OptionError for Partial, which a whole
        tensor is not
    Example:
        >>> x = place(gh.ones((4, 2)), gh.distributed.mesh({"data": 1}), {"data": Shard(0)})
        >>> x.shape, x.sharding.shape
        ((4, 2), (4, 2))
    """
    x = asarray(x)
    sharding = Sharding(tuple(x.shape), {}, mesh)
    for axis, placement in placements.items():
        mesh.check_axis(axis)
        if isinstance(placement, Partial):
            fix = "Place it as Shard(axis) or Replicate()."
            raise OptionError("place", "parts or wholes of x", placement, fix)
        if isinstance(placement, Shard):
            placement = check_cut("place", x.shape, mesh, axis, placement)
            x = own_part(x, placement, mesh.group(axis))
        sharding = sharding.with_cut(mesh, axis, placement)
    placed = x.detach() if x.tape_entry is None else x
    placed.sharding = sharding
    return placed


def gather(x: Tensor, sharding: Sharding | None = None) -> Tensor:
    """Gather the whole tensor, on every rank alike, from parts that its ranks hold as `sharding`
    (by default its own) says; on all of those ranks."""
    sharding = sharding or sharding_of(x)
    if sharding.mesh is None:
        return x
    lengths = []
    spans = [[(0, length)] for length in sharding.shape]
    for name, cut in sharding.cuts():
        lengths.append(sum(end - begin for begin, end in spans[cut.axis]))
        at = sharding.mesh.coordinates()[name]
        spans[cut.axis] = own_spans(spans[cut.axis], cut, at, sharding.mesh.size(name))
    for (name, cut), length in zip(reversed(sharding.cuts()), reversed(lengths), strict=True):
        x = joined(x, cut, length, sharding.mesh.group(name))
    for name, placement in sharding.placements.items():
        if isinstance(placement, Partial):
            group = sharding.mesh.group(name)
            x = collective.all_reduce(x, group=group, reduce=placement.reduce, replicated=True)
    return x
