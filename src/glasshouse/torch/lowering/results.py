"""Kinds and layouts of a graph's results: values, inputs, or views of one of these."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx import Node as FxNode

from glasshouse.compile.programs.binding import ResultKind
from glasshouse.dispatch.value import Value
from glasshouse.graph import record
from glasshouse.ops.movement import permute
from glasshouse.torch.tensors.dtypes import TO_TORCH
from glasshouse.torch.tensors.layout import (
    InputLayout,
    base_of,
    layout_of,
    lies_with_gaps,
    meaning_of,
    row_major_strides,
    same_tensor,
    strides_in,
    view_source,
)
from glasshouse.torch.tensors.sizes import SizeValues

# Module variables, since a lookup in an Enum is slower, and a call needs one for each result.
VALUE, FREE, SPREAD, PART, AGAIN, INPUT, _, VIEW, EMPTY, CONSTANT = ResultKind


class Output(NamedTuple):
    """A result: its kind, and in `what` the number of an output of the recording, of an earlier
    result or of an input, or a constant. A view begins `offset` elements after its base."""

    kind: ResultKind
    what: Any
    layout: Any = None  # an InputLayout where the kind has one
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype | None = None

    @property
    def memory(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of the tensor that the Program writes."""
        if self.kind.is_whole:
            return self.sizes, self.strides
        sizes = self.sizes if self.kind is SPREAD else self.layout.sizes
        return sizes, row_major_strides(sizes)

    def as_in(self, program: Any) -> "Output":
        """The result with the strides that a Program chose, where they are free."""
        if self.kind is not FREE:
            return self
        _, shape, strides = program.outputs[self.what]
        return self._replace(sizes=shape, strides=strides)

    def owner(self, number: int) -> tuple[Any, ...]:
        """The key of the memory that result `number` owns. Results of one output with equal keys
        share memory: parts of one value, and free results."""
        if not self.kind.is_shared:
            return None, number
        return self.kind, self.what if self.kind is PART else None

    def handed_on(
        self, args: list[torch.Tensor], results: list[Any], view: Callable[..., Any]
    ) -> torch.Tensor | None:
        """A result that the Program does not compute: from the arguments, or earlier results."""
        kind = self.kind
        if kind is AGAIN:
            return results[self.what]
        if kind is CONSTANT:
            return self.what
        if kind is INPUT:
            return args[self.what]
        if kind is EMPTY:
            return torch.empty(self.sizes, dtype=self.dtype)
        return view(args[self.what], self.sizes, self.strides, self.offset)

    def reads_input(self) -> bool:
        """Whether it is an argument, or a view of one."""
        return self.kind in (INPUT, VIEW)


class GraphResults:
    """The results of a lowered graph. The first `visible` are for the user, and have eager's
    layout."""

    def __init__(
        self, values: dict[Any, Any], input_number: dict[Any, Any], sizes: SizeValues, visible: int
    ) -> None:
        self.values = values
        self.input_number = input_number
        self.sizes = sizes
        self.visible = visible
        self.wholes: dict[FxNode, Value] = {}  # the bases of parts

    def outputs(self, results: list[Any]) -> list[Output]:
        """The Output of each result."""
        nodes = {x for x in results[: self.visible] if self.is_computed(x)}
        shared = Counter(base_of(x) for x in nodes)
        first: dict[FxNode, int] = {}  # of the user's results that are values of their own
        outputs: list[Output] = []
        for number, x in enumerate(results):
            visible, same = number < self.visible, same_tensor(x)
            if not visible and same in first:
                outputs.append(Output(AGAIN, first[same]))
                continue
            several = visible and self.is_computed(x) and shared[base_of(x)] > 1
            part = self.part(x) if several else None
            outputs.append(part or self.output(x, visible))
            if visible and outputs[-1].kind is VALUE:
                first.setdefault(same, number)
        return outputs

    def forget(self) -> None:
        """Drop the values."""
        self.values.clear()
        self.wholes.clear()

    def is_computed(self, x: torch.fx.Node) -> bool:
        """Whether a result is a value that is not an input's."""
        if not isinstance(x, FxNode) or not isinstance(self.values[x], Value):
            return False
        return x.op == "call_function" and base_of(x).op == "call_function"

    def part(self, x: FxNode) -> Output | None:
        """A result as a view of a value that others are views of too; None where the memory has
        gaps, or is read in another way."""
        base = base_of(x)
        whole, fake = (self.sizes.concrete(node.meta.get("val")) for node in (base, x))
        value = self.values[base]
        if not isinstance(whole, torch.Tensor) or not isinstance(value, Value) or not value.size:
            return None
        layout = layout_of(whole)
        if not layout.dense or meaning_of(whole) != meaning_of(fake):
            return None
        offset = fake.storage_offset() - whole.storage_offset()
        if base not in self.wholes:
            self.wholes[base] = in_memory(value, layout)
        sizes, strides = tuple(fake.shape), tuple(fake.stride())
        return Output(PART, self.wholes[base], layout, sizes, strides, offset, fake.dtype)

    def output(self, x: Any, visible: bool) -> Output:
        """The Output of one result."""
        if not isinstance(x, FxNode):
            return Output(CONSTANT, x)
        value = self.values[x]
        if not isinstance(value, Value):
            return Output(CONSTANT, value)
        if x in self.input_number:
            return Output(INPUT, self.input_number[x])
        source: Any = view_source(x)
        fake = self.sizes.concrete(x.meta.get("val"))
        if not isinstance(fake, torch.Tensor):
            return free_output(value, TO_TORCH[value.dtype])
        sizes, strides = tuple(fake.shape), tuple(fake.stride())
        if source in self.input_number:
            begin = self.sizes.concrete(source.meta["val"]).storage_offset()
            number, offset = self.input_number[source], fake.storage_offset() - begin
            return Output(VIEW, number, None, sizes, strides, offset)
        if value.size == 0:
            return Output(EMPTY, None, None, sizes, (), 0, fake.dtype)
        if not visible and self.visible:
            return free_output(value, fake.dtype)
        if visible and lies_with_gaps(fake):
            layout = layout_of(fake)
            return Output(SPREAD, in_memory(value, layout), layout, sizes, strides, 0, fake.dtype)
        return dense_output(value, layout_of(fake), fake.dtype)


def free_outputs(outputs: list[Output]) -> frozenset[int]:
    """The numbers of a recording's outputs whose axes may lie in any order: no result fixes it."""
    free = {out.what for out in outputs if out.kind is FREE}
    return frozenset(free - {out.what for out in outputs if out.kind.is_fixed})


def dense_output(value: Value, layout: InputLayout, dtype: torch.dtype) -> Output:
    """A value as a result that fills its memory, its axes in the order of a layout."""
    value = in_memory(value, layout)
    strides = strides_in(layout, value.shape)
    sizes = tuple(value.shape[layout.order.index(i)] for i in range(value.ndim))
    return Output(VALUE, value, layout, sizes, strides, 0, dtype)


def free_output(value: Value, dtype: torch.dtype) -> Output:
    """A value as a result whose axes lie in the order in which the Program has them."""
    layout = InputLayout(tuple(range(value.ndim)), value.shape, True)
    value = in_memory(value, layout)
    return Output(FREE, value, layout, value.shape, row_major_strides(value.shape), 0, dtype)


def in_memory(value: Value, layout: InputLayout) -> Value:
    """A value with its axes in the order of a layout, as a node that is computed."""
    if layout.order != tuple(range(value.ndim)):
        value = permute(value, axes=layout.order)
    return value if value.payload.value is None else copied(value)


def copied(value: Value) -> Value:
    """The value as a node that is computed."""
    card = record.primitives["reshape"]
    return card(card(value, shape=(1, value.size)), shape=value.shape)
