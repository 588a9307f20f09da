"""Layouts of PyTorch's tensors in memory: the order of axes, views, and gaps."""

import operator
from typing import Any, NamedTuple

import torch
from torch.fx import Node as FxNode

from glasshouse.torch.patches.operators import UNSAFE_VIEW, OpOverload, schema_of
from glasshouse.torch.patches.tensors import is_zero_tensor

ALIAS, DETACH = torch.ops.aten.alias.default, torch.ops.aten.detach.default


class InputLayout(NamedTuple):
    """The layout of a PyTorch tensor: the order of its axes from the widest stride to the
    narrowest, and its sizes in that order; `dense` says that it fills its memory."""

    order: tuple[int, ...]
    sizes: tuple[int, ...]
    dense: bool


class Meaning(NamedTuple):
    """The meaning of a tensor's memory: its dtype, and whether its elements are the conjugates or
    negatives of the stored numbers."""

    dtype: torch.dtype
    is_conj: bool
    is_neg: bool


def layout_of(tensor: torch.Tensor) -> InputLayout:
    """The layout of a tensor, fake ones included."""
    sizes, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    order = sorted(range(len(sizes)), key=lambda i: (-strides[i], i))
    order = tuple(order) if not tensor.is_contiguous() else tuple(range(len(sizes)))
    expected, dense = 1, True
    for i in reversed(order):
        if sizes[i] != 1:
            dense = dense and strides[i] == expected
            expected *= sizes[i]
    if tensor.numel() == 0:
        order, dense = tuple(range(len(sizes))), True
    if not dense:
        order = tuple(range(len(sizes)))
    return InputLayout(order, tuple(sizes[i] for i in order), dense)


def strides_in(layout: InputLayout, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of the axes of a tensor that lies densely in the order of its layout."""
    strides, step = [0] * len(layout.order), 1
    for i, n in zip(reversed(layout.order), reversed(sizes)):
        strides[i] = step
        step *= max(n, 1)
    return tuple(strides)


def row_major_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense tensor whose axes lie in order."""
    order = tuple(range(len(sizes)))
    return strides_in(InputLayout(order, tuple(sizes), True), tuple(sizes))


def lies_with_gaps(fake: torch.Tensor) -> bool:
    """Whether a result's elements lie apart in memory; a repeated axis has stride 0."""
    if fake.numel() < 2 or layout_of(fake).dense:
        return False
    return not overlap((stride, n) for n, stride in zip(fake.shape, fake.stride()) if stride)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several elements of a tensor may share memory, so that writing one changes others."""
    if tensor.layout is not torch.strided or tensor.numel() < 2 or tensor.is_contiguous():
        return False
    return overlap(zip(tensor.stride(), tensor.shape))


def overlap(axes: Any) -> bool:
    """Whether elements of axes with these (stride, size) may share memory."""
    last = 0  # the place of the last element along the axes so far
    for stride, n in sorted(axis for axis in axes if axis[1] > 1):
        if stride <= last:
            return True
        last += stride * (n - 1)
    return False


def view_source(node: FxNode) -> FxNode | None:
    """The input of the graph that a node is a view of, if it reads the same numbers there."""
    source = base_of(node)
    if source.op != "placeholder" or not isinstance(source.meta.get("val"), torch.Tensor):
        return None
    return source if meaning_of(source.meta["val"]) == meaning_of(node.meta["val"]) else None


def base_of(node: FxNode) -> FxNode:
    """The base of a node through a chain of views."""
    while node.op == "call_function":
        several = node.target is operator.getitem
        if not is_view(node.args[0].target if several else node.target):
            break
        node = node.args[0].args[0] if several else node.args[0]
    return node


def same_tensor(x: torch.fx.Node | None) -> torch.fx.Node:
    """The base of a node through a chain of aliases, of the same shape and strides."""
    while isinstance(x, FxNode) and x.target in (ALIAS, DETACH):
        x = x.args[0]
    return x


def is_view(target: Any) -> bool:
    """Whether an operator returns views of its first operand, by its schema."""
    if not isinstance(target, OpOverload):
        return False
    if target is UNSAFE_VIEW:
        return True
    infos = [result.alias_info for result in schema_of(target).returns]
    return bool(infos) and all(info is not None and not info.is_write for info in infos)


def meaning_of(tensor: torch.Tensor) -> Meaning:
    """The meaning of a tensor's memory."""
    return Meaning(tensor.dtype, tensor.is_conj(), tensor.is_neg())


def turned(tensor: torch.Tensor) -> bool:
    """Whether its elements are conjugated or negated when read, or are zeros without memory."""
    return tensor.is_conj() or tensor.is_neg() or is_zero_tensor(tensor)


def is_stable(x: torch.Tensor) -> bool:
    """Whether a tensor has a version counter, and Programs read its own memory."""
    fits = isinstance(x, torch.Tensor) and not x.is_inference() and not turned(x)
    return fits and layout_of(x).dense


def has_gaps(x: torch.Tensor) -> bool:
    """Whether a Program reads a copy of a tensor: its elements do not fill its memory, or are
    lazily conjugated or negated."""
    return isinstance(x, torch.Tensor) and (not layout_of(x).dense or turned(x))


def lying(tensor: torch.Tensor, layout: Any) -> torch.Tensor:
    """The tensor whose memory a Program reads: its axes in the order of the layout."""
    if turned(tensor):
        tensor = tensor.resolve_conj().resolve_neg().clone()
        return (
            tensor.contiguous() if not layout.dense else tensor.permute(layout.order).contiguous()
        )
    return tensor.permute(layout.order) if layout.dense else tensor.contiguous()
