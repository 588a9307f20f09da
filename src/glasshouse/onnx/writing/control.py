"""Loops and branches as ONNX: a step becomes a graph inside a node."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.base.dtype import bool_, int64
from glasshouse.onnx.writing.joint import JointGraph, VaryingNumber, bodies_of
from glasshouse.onnx.writing.table import refused, writes
from glasshouse.onnx.writing.writer import GraphWriter, WrittenNode, WrittenValue
from glasshouse.ops.linearise import ENDLESS

__all__: list[str] = []

RECOGNISERS: list[Callable[..., Any]] = []  # of loops that ONNX says in one node


class InnerGraph:
    """A graph inside a node: names and types of its inputs and outputs, and its writer."""

    def __init__(self, writer: GraphWriter) -> None:
        self.writer = writer
        self.inputs: list[WrittenValue] = []
        self.outputs: list[WrittenValue] = []

    def input(self, stem: str, shape: Any, dtype: Any) -> WrittenValue:
        """A new input."""
        name = self.writer.names.new(stem)
        tail = (2,) if dtype.is_complex else ()
        value = WrittenValue(name, (*shape, *tail), shape, dtype)
        for axis, size in enumerate(shape):
            if isinstance(size, VaryingNumber):
                self.writer.note(size, name, axis)
        self.inputs.append(value)
        return value

    def output(self, x: WrittenValue) -> None:
        """A new output, which has a node of its own."""
        name = self.writer.node("Identity", [self.writer.whole(x)])
        self.outputs.append(WrittenValue(name, (*x.shape, *x.tail), x.shape, x.dtype))


@writes("custom")
def custom(w: GraphWriter, call: Any, *xs: WrittenValue) -> list[WrittenValue]:
    """A body whose derivatives are its own: its calls."""
    graph = JointGraph(bodies_of(call.attrs["body"]))
    return w.write(graph, dict(enumerate(xs)))


@writes("pick")
def pick(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """One of several results."""
    return xs[call.attrs["number"]]


@writes("scan")
def scan(w: GraphWriter, call: Any, *xs: WrittenValue) -> list[WrittenValue]:
    """A loop: Scan over known values, If for one step that may be left out, else Loop."""
    shape, graph = call.attrs["shape"], JointGraph(bodies_of(call.attrs["body"]))
    consts, init, rows = shape.parts(xs)
    for recognise in RECOGNISERS:
        results = recognise(w, call, consts, init, rows)
        if results is not None:
            return results
    if shape.gated and shape.length == 1 and not rows and len(graph.outputs) == shape.carries:
        return branch(w, call, graph, consts, init)
    if shape.gated or not rows:
        return while_loop(w, call, graph, consts, init, rows)
    return plain_scan(w, call, graph, consts, init, rows)


def plain_scan(
    w: GraphWriter, call: Any, graph: JointGraph, consts: Any, init: Any, rows: Any
) -> list[WrittenValue]:
    """Steps over rows, without a condition."""
    inner = InnerGraph(GraphWriter(w.opset, w))
    inputs = dict(enumerate(consts))
    carried = [inner.input("state", x.shape, x.dtype) for x in init]
    steps = [inner.input("row", x.shape[1:], x.dtype) for x in rows]
    inputs.update(enumerate([*carried, *steps], len(consts)))
    results = inner.writer.write(graph, inputs)
    for x in results:
        inner.output(x)
    stacks = len(results) - len(init)
    options: dict[str, Any] = {"num_scan_inputs": len(rows), "body": inner}
    if call.attrs["reverse"]:
        options["scan_input_directions"] = [1] * len(rows)
        if stacks:
            options["scan_output_directions"] = [1] * stacks
    names = w.node("Scan", [w.whole(x) for x in (*init, *rows)], len(results), **options)
    return values_of(w, call, names, len(results))


def values_of(w: GraphWriter, call: Any, names: Any, count: int) -> list[WrittenValue]:
    names = [names] if count == 1 else names
    return [w.value(name, like) for name, like in zip(names, call.results, strict=True)]


def branch(
    w: GraphWriter, call: Any, graph: JointGraph, consts: Any, init: Any
) -> list[WrittenValue]:
    """One step if the gate is open; else all stays."""
    then, other = InnerGraph(GraphWriter(w.opset, w)), InnerGraph(GraphWriter(w.opset, w))
    for x in then.writer.write(graph, dict(enumerate([*consts, *init]))):
        then.output(x)
    for x in init:
        other.output(x)
    options = {"then_branch": then, "else_branch": other}
    names = w.node("If", [w.whole(init[0])], len(init), **options)
    return values_of(w, call, names, len(init))


def while_loop(
    w: GraphWriter, call: Any, graph: JointGraph, consts: Any, init: Any, rows: Any
) -> list[WrittenValue]:
    """Steps while the gate is open, or a number of them."""
    shape, is_back = call.attrs["shape"], call.attrs["reverse"]
    stacks = len(graph.outputs) - len(init)
    if shape.gated and is_back and stacks:
        raise refused("a loop backwards that may end early", "Let it go forwards.")

    inner = InnerGraph(GraphWriter(w.opset, w))
    own = inner.writer
    number = inner.input("step", (), int64)
    gate = inner.input("gate", (), bool_)
    carried = [inner.input("state", x.shape, x.dtype) for x in init]
    at = number.name
    if is_back:
        last = w.node("Sub", [w.number(shape.length), w.constant(np.array(1, np.int64))])
        at = own.node("Sub", [last, at])
    steps = []
    for x in rows:
        name = own.node("Gather", [w.whole(x), at], axis=0)
        tail = (2,) if x.dtype.is_complex else ()
        steps.append(WrittenValue(name, (*x.shape[1:], *tail), x.shape[1:], x.dtype))
    results = own.write(graph, dict(enumerate([*consts, *carried, *steps])))
    inner.output(results[0] if shape.gated else gate)
    for x in results:
        inner.output(x)
    most = "" if shape.length == ENDLESS else w.number(shape.length)
    first = w.whole(init[0]) if shape.gated else ""
    names = w.node("Loop", [most, first, *(w.whole(x) for x in init)], len(results), body=inner)
    names = [names] if len(results) == 1 else list(names)
    for i in range(len(init), len(results)):
        if shape.gated:  # steps that are left out give zeros
            done = w.node("Shape", [names[i]], start=0, end=1)
            rest = w.node("Sub", [w.size(shape.length), done])
            amounts = w.node("Concat", [w.integers(0), rest], axis=0)
            names[i] = w.node("Pad", [names[i], amounts, "", w.integers(0)])
        elif is_back:
            ends = [w.integers(-1), w.integers(-np.iinfo(np.int64).max), w.integers(0)]
            names[i] = w.node("Slice", [names[i], *ends, w.integers(-1)])
    return values_of(w, call, names if len(names) > 1 else names[0], len(names))


def inner_graphs(node: WrittenNode) -> list[InnerGraph]:
    """The graphs inside a node."""
    return [x for x in node.attributes.values() if isinstance(x, InnerGraph)]
