"""Order of axes in memory for a value that steps write part by part: one in which the movement that
reads it needs no copy, if there is one."""

from math import prod
from typing import Any

from glasshouse.compile.steps import view as views
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.graph.graph import Node


def order_for_chain(whole: View, chain: list[Node]) -> tuple[int, ...] | None:
    """Order for a chain of reshapes and permutes that begins with a view of a whole buffer; None
    where the buffer's own order works, or no order does."""
    order = order_of_chain(whole.shape, chain)
    turned = whole._replace(strides=strides_of(whole.shape, order))
    return order if not can_follow(whole, chain) and can_follow(turned, chain) else None


def can_follow(view: View | None, chain: list[Node]) -> bool:
    """Whether movements of a view, one after the other, need no copy."""
    for node in chain:
        if view is not None and node.op == "permute":
            view = views.permuted(view, node.attrs["axes"])
        elif view is not None:
            view = views.reshaped(view, node.shape)
    return view is not None


def order_of_chain(shape: tuple[int, ...], chain: list[Node]) -> tuple[int, ...]:
    """Order of the axes of a shape in memory after the chain, as far as it only permutes axes and
    merges neighbours."""
    groups = [((axis,), size) for axis, size in enumerate(shape)]
    for node in chain:
        if node.op == "permute":
            groups = [groups[axis] for axis in node.attrs["axes"]]
            continue
        merged = neighbours_merged(groups, node.shape)
        if merged is None:
            break
        groups = merged
    return tuple(axis for axes, _ in groups for axis in axes)


def neighbours_merged(groups: Any, shape: Any) -> Any:
    """Groups (axes, size) of the sizes of a shape; None where a size splits a group."""
    remaining, merged = list(groups), []
    for size in shape:
        axes: tuple[int, ...] = ()
        reached = 1
        while reached < size:
            more, n = remaining.pop(0)
            axes, reached = axes + more, reached * n
        if reached != size:
            return None
        merged.append((axes, size))
    rest = tuple(axis for axes, _ in remaining for axis in axes)  # of size 1
    if prod(size for _, size in remaining) != 1:
        return None
    return [*merged, (rest, 1)] if rest else merged
