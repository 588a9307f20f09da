"""Operands of products and convolutions as they have to lie in memory."""

from math import prod

from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.steps.view import View, same_strides, strides_of
from glasshouse.graph.graph import Node


def channels_last(ndim: int) -> tuple[int, ...]:
    """The order of axes of (N, C, *S) in memory with C innermost."""
    return (0, *range(2, ndim), 1)


def channels_last_view(lowering: Lowering, node: Node) -> View:
    """The view of (N, C, *S) data in channels-last layout, copied first where it lies otherwise."""
    view = lowering.operand_view(node)
    order = channels_last(len(view.shape))
    if not same_strides(view, strides_of(view.shape, order)):
        lowering.materialise(node, order=order)
        view = lowering.operand_view(node)
    return view


def matrix_strides(view: View) -> tuple[int, ...] | None:
    """The strides of a stack of matrices if oneDNN takes them: one of the last axes is packed."""
    rows, columns = view.shape[-2:]
    over, along = view.strides[-2:]
    if columns == 1:
        along = 1 if rows == 1 or over >= 1 else 0
    if rows == 1:
        over = columns if along == 1 else 1
    plain = along == 1 and over >= columns
    flipped = over == 1 and along >= rows
    if not (plain or flipped) or any(s < 0 for s in view.strides):
        return None
    return (*view.strides[:-2], over, along)


def repeated_axes(view: View) -> list[bool]:
    """Which axes show the same elements again and again."""
    return [s == 0 and n > 1 for s, n in zip(view.strides, view.shape, strict=True)]


def stacked(view: View, strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides) of a stack of matrices, with repeated axes as axes of size 1; those have a
    stride past all the rest, for oneDNN has no fast way where one is 0. It depends on nothing but
    the other axes: oneDNN's cache takes primitives for equal that differ in such strides alone,
    though it chose another implementation for each, and runs the one without the other's scratch
    memory."""
    repeated = repeated_axes(view)
    shape = tuple(1 if r else n for r, n in zip(repeated, view.shape, strict=True))
    past_all = max(prod(shape), 0, *(n * s for n, s in zip(shape, strides, strict=True) if n > 1))
    leading = (past_all if n == 1 else s for n, s in zip(shape[:-2], strides, strict=False))
    return shape, (*leading, *strides[-2:])
