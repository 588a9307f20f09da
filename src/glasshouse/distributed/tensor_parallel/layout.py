"""Layouts of the inputs and outputs of layers that ranks share out."""

from typing import NamedTuple

from glasshouse.base.errors import OptionError
from glasshouse.distributed.groups.placement import Placement, Replicate, Shard
from glasshouse.ops import collective
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor


class Layout(NamedTuple):
    """Ranks of a layer, and the placements of its input and output."""

    group: ProcessGroup
    input: Placement
    output: Placement


def counted(axis: int, x: Tensor) -> int:
    return axis + x.ndim if axis < 0 else axis


def whole_input(x: Tensor, layout: Layout) -> Tensor:
    """The whole input, for ranks that use it in different ways."""
    if isinstance(layout.input, Shard):
        axis = counted(layout.input.axis, x)
        return collective.all_gather(x, group=layout.group, axis=axis, replicated=False)
    return collective.copy_to_ranks(x, group=layout.group)


def reduced_output(y: Tensor, layout: Layout) -> Tensor:
    """Add up the ranks' summands to the result, in the placement of the output."""
    if isinstance(layout.output, Shard):
        axis = counted(layout.output.axis, y)
        return collective.reduce_scatter(y, group=layout.group, axis=axis)
    return collective.all_reduce(y, group=layout.group, reduce="sum", replicated=True)


def own_part_of(x: Tensor, axis: int, group: ProcessGroup) -> Tensor:
    """This rank's part of an x that all hold alike."""
    return collective.shard(x, group=group, axis=counted(axis, x), index=group.rank)


def join_parts(x: Tensor, axis: int, group: ProcessGroup) -> Tensor:
    """All ranks' parts, on each of them alike."""
    return collective.all_gather(x, group=group, axis=counted(axis, x), replicated=True)


def check_layout(where: str, placement: Placement) -> Placement:
    if not isinstance(placement, Shard | Replicate):
        raise OptionError(where, "Shard(axis) or Replicate()", repr(placement), "Name one.")
    return placement
