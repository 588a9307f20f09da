"""Writing a graph of ONNX: nodes, constants, sizes that are computed, values.

A value may stand for a larger one: `dims` are the sizes of its tensor in the file, `shape` those
that it has after broadcasting, which most operators do by themselves. Complex numbers have a last
axis of 2 in the file, which `shape` does not have."""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from glasshouse.onnx.dtypes import CODES
from glasshouse.onnx.writing.joint import JointCall, JointGraph, JointValue, Size, VaryingNumber
from glasshouse.onnx.writing.table import WRITERS, refused

CODE_OF = {name: code for code, name in CODES.items()}


class WrittenValue:
    """A value of the graph: the `name` of its tensor, whose sizes are `dims`; `source` is the call
    that made it, if its result is no more than that."""

    __slots__ = ("name", "dims", "shape", "dtype", "source", "operands", "whole")

    def __init__(self, name: str, dims: Any, shape: Any, dtype: Any) -> None:
        self.name: str = name
        self.dims: tuple[Any, ...] = tuple(dims)
        self.shape: tuple[Any, ...] = tuple(shape)
        self.dtype: Any = dtype
        self.source: JointCall | None = None
        self.operands: list[WrittenValue] = []
        self.whole: WrittenValue | None = None  # with all of its sizes

    @property
    def tail(self) -> tuple[int, ...]:
        """The axis of complex parts."""
        return (2,) if self.dtype.is_complex else ()

    @property
    def is_whole(self) -> bool:
        return self.dims == (*self.shape, *self.tail)

    @property
    def is_single(self) -> bool:
        """Whether it has the same number everywhere."""
        return all(size == 1 for size in self.dims[: len(self.dims) - len(self.tail)])


class WrittenNode(NamedTuple):
    """A node, before it becomes protobuf."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class Names:
    """Names that no two tensors of a file share."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.counts: dict[str, int] = {}

    def new(self, stem: str) -> str:
        """A name that begins with a stem."""
        name = stem
        while name in self.taken:
            count = self.counts[stem] = self.counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name


class GraphWriter:
    """A graph that is being written; one inside a loop has an `outer` one."""

    def __init__(self, opset: int, outer: "GraphWriter | None" = None) -> None:
        self.opset = opset
        self.outer = outer
        self.names: Names = outer.names if outer else Names()
        self.nodes: list[WrittenNode] = []
        self.constants: dict[str, np.ndarray] = {}  # by name
        self.by_content: dict[Any, str] = {}  # constants
        self.sizes: dict[VaryingNumber, tuple[str, int]] = {}  # a tensor and an axis that has it
        self.size_names: dict[VaryingNumber, str] = {}
        self.order: list[VaryingNumber] = []  # of sizes that tensors have
        self.shapes: dict[Any, str] = {}

    # -- nodes and constants ---------------------------------------------------------------------

    def node(self, op: str, inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """The name, or names, of the result of a new node."""
        names = tuple(self.names.new(op.lower()) for _ in range(outputs))
        self.nodes.append(WrittenNode(op, tuple(inputs), names, attributes))
        return names[0] if outputs == 1 else names

    @property
    def root(self) -> "GraphWriter":
        """The writer of the whole file."""
        return self if self.outer is None else self.outer.root

    def array_of(self, name: str) -> np.ndarray | None:
        """The contents of a tensor that the file has as a constant."""
        return self.root.constants.get(name)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant."""
        array = np.asarray(value, None if dtype is None else dtype)
        root = self.root
        key = array.dtype.name, array.shape, array.tobytes()
        if key not in root.by_content:
            root.by_content[key] = root.enter("constant", array)
        return root.by_content[key]

    def enter(self, name: str, array: np.ndarray) -> str:
        """A constant with a name of its own."""
        name = self.names.new(name)
        self.constants[name] = array
        return name

    def integers(self, *values: int) -> str:
        """A constant of sizes, axes or places."""
        return self.constant(np.array(values, np.int64))

    # -- values ----------------------------------------------------------------------------------

    def value(self, name: str, like: JointValue, dims: Any = None) -> WrittenValue:
        """The value of a tensor that was written, which is all of `like` unless it has `dims`."""
        tail = (2,) if like.dtype.is_complex else ()
        own = (*like.shape, *tail) if dims is None else dims
        for axis, size in enumerate(own):
            if isinstance(size, VaryingNumber):
                self.note(size, name, axis)
        return WrittenValue(name, own, like.shape, like.dtype)

    def note(self, size: VaryingNumber, name: str, axis: int) -> None:
        """Remember that a tensor has a size."""
        if self.place_of(size) is None:
            self.sizes[size] = name, axis
            self.order.append(size)

    def place_of(self, size: VaryingNumber) -> tuple[str, int] | None:
        writer: GraphWriter | None = self
        while writer is not None:
            if size in writer.sizes:
                return writer.sizes[size]
            writer = writer.outer
        return None

    def whole(self, x: WrittenValue) -> str:
        """The name of a tensor with all of a value's sizes."""
        if x.is_whole:
            return x.name
        if x.whole is None:
            shape = self.shape((*x.shape, *x.tail))
            name = self.node("Expand", [x.name, shape])
            x.whole = WrittenValue(name, (*x.shape, *x.tail), x.shape, x.dtype)
        return x.whole.name

    def cast(self, name: str, dtype: Any) -> str:
        """A tensor in another dtype, by its name."""
        return self.node("Cast", [name], to=CODE_OF[getattr(dtype, "name", dtype)])

    # -- sizes -----------------------------------------------------------------------------------

    def size(self, size: Size) -> str:
        """The name of a tensor (1,) with a size."""
        if not isinstance(size, VaryingNumber):
            return self.integers(size)
        writer: GraphWriter | None = self
        while writer is not None:
            if size in writer.size_names:
                return writer.size_names[size]
            writer = writer.outer
        name = self.size_names[size] = self.computed_size(size)
        return name

    def computed_size(self, size: VaryingNumber) -> str:
        place = self.place_of(size)
        if place is not None:
            name, axis = place
            return self.node("Shape", [name], start=axis, end=axis + 1)
        others = self.known_sizes()
        for other in others:
            steps = affine(size.values, other.values)
            if steps is not None:
                return self.scaled_size(self.size(other), *steps)
        for i, a in enumerate(others):
            for b in others[i:]:
                for op, values in combined(a.values, b.values):
                    steps = affine(size.values, values)
                    if steps is not None:
                        both = self.node(op, [self.size(a), self.size(b)])
                        return self.scaled_size(both, *steps)
        got = f"one that is {', '.join(map(str, size.values))} where they are " + "; ".join(
            ", ".join(map(str, x.values)) for x in others[:3]
        )
        fix = "Leave an axis out of dynamic_axes, or compute this size from shapes alone."
        raise refused(
            f"a size that follows from the varying sizes by no rule that is known, {got}", fix
        )

    def known_sizes(self) -> list[VaryingNumber]:
        outer = self.outer.known_sizes() if self.outer else []
        return [*outer, *self.order]

    def scaled_size(self, name: str, times: int, divisor: int, more: int, later: int) -> str:
        """(times · size + more) // divisor + later."""
        if times != 1:
            name = self.node("Mul", [name, self.integers(times)])
        if more:
            name = self.node("Add", [name, self.integers(more)])
        if divisor != 1:
            name = self.node("Div", [name, self.integers(divisor)])
        return self.node("Add", [name, self.integers(later)]) if later else name

    def shape(self, sizes: Any) -> str:
        """The name of a tensor with these sizes."""
        sizes = tuple(sizes)
        if not any(isinstance(size, VaryingNumber) for size in sizes):
            return self.constant(np.array(sizes, np.int64))
        if sizes not in self.shapes:
            parts = [self.size(size) for size in sizes]
            self.shapes[sizes] = parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)
        return self.shapes[sizes]

    def number(self, x: Size) -> str:
        """The name of a tensor () with a size."""
        if not isinstance(x, VaryingNumber):
            return self.constant(np.array(x, np.int64))
        return self.node("Squeeze", [self.size(x), self.integers(0)])

    # -- graphs ----------------------------------------------------------------------------------

    def write(self, graph: JointGraph, inputs: dict[int, WrittenValue]) -> list[WrittenValue]:
        """Write the calls of a graph; the values of its outputs."""
        values: dict[int, list[WrittenValue]] = {}

        def value_of(x: JointValue) -> WrittenValue:
            return inputs[x.number] if x.call is None else values[id(x.call)][x.number]

        for call in graph.calls:
            operands = [value_of(x) for x in call.operands]
            function = WRITERS.get(call.name)
            if function is None:
                raise refused(call.name, "Leave this operation out of what is exported.")
            results = function(self, call, *operands)
            values[id(call)] = results if isinstance(results, list) else [results]
            for x in values[id(call)]:
                if x.source is None and x not in operands:
                    x.source, x.operands = call, operands
        return [value_of(x) for x in graph.outputs]


def combined(a: tuple[int, ...], b: tuple[int, ...]) -> Any:
    """Ways to make a size of two, with the results."""
    yield "Mul", tuple(x * y for x, y in zip(a, b))
    yield "Add", tuple(x + y for x, y in zip(a, b))
    yield "Sub", tuple(x - y for x, y in zip(a, b))
    yield "Sub", tuple(y - x for x, y in zip(a, b))
    yield "Max", tuple(map(max, a, b))
    yield "Min", tuple(map(min, a, b))


STRIDES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 80, 128, 160, 256, 320, 512)


def affine(to: tuple[Any, ...], of: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """(times, divisor, more, later) with to = (times · of + more) // divisor + later; None if
    there are none."""
    if any(not isinstance(x, int) for x in to):
        return None
    pairs = sorted(set(zip(of, to)))
    if len({x for x, _ in pairs}) < 2 or len({x for x, _ in pairs}) != len(pairs):
        return None
    (x0, y0), (x1, y1) = pairs[0], pairs[-1]
    if (y1 - y0) % (x1 - x0) == 0:
        times = (y1 - y0) // (x1 - x0)
        more = y0 - times * x0
        if all(times * x + more == y for x, y in pairs):
            return times, 1, more, 0
    for divisor in STRIDES:
        for more in range(divisor):
            later = y0 - (x0 + more) // divisor
            if all((x + more) // divisor + later == y for x, y in pairs):
                return 1, divisor, more, later
    return None


def elements(sizes: Any) -> Size:
    """The product of sizes."""
    varying = [x.values for x in sizes if isinstance(x, VaryingNumber)]
    fixed = prod(x for x in sizes if not isinstance(x, VaryingNumber))
    if not varying:
        return fixed
    return VaryingNumber([fixed * prod(column) for column in zip(*varying)])


def has_zero(sizes: Any) -> bool:
    return any(size == 0 for size in sizes)


def broadcast(*shapes: Any) -> tuple[Size, ...]:
    """The sizes of a result of operands with these sizes."""
    ndim = max(map(len, shapes), default=0)
    result: list[Size] = [1] * ndim
    for shape in shapes:
        for i, size in enumerate(shape, ndim - len(shape)):
            if size != 1:
                result[i] = size
    return tuple(result)
