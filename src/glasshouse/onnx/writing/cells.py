"""Recurrent layers as ONNX's LSTM, GRU and RNN, which run three times as fast as a loop of nodes.

A loop is one of a recurrent layer if its body is the one that the layer's own step gives for values
of these sizes: equal bodies are one object."""

import functools
from typing import Any, NamedTuple

import numpy as np

from glasshouse.autograd.tape import no_grad
from glasshouse.base import Spec
from glasshouse.base.dtype import float32
from glasshouse.nn.functional.recurrent import GATES, Weights, recurrent
from glasshouse.onnx.writing import wholes
from glasshouse.onnx.writing.control import RECOGNISERS
from glasshouse.onnx.writing.joint import bodies_of
from glasshouse.onnx.writing.tracing import Watch
from glasshouse.onnx.writing.writer import GraphWriter, WrittenValue
from glasshouse.ops.body import Body, traced

__all__: list[str] = []

STEPS = 3  # of the loop that is compared
OPERATORS = {"LSTM": "LSTM", "GRU": "GRU", "RNN_TANH": "RNN", "RNN_RELU": "RNN"}
# ONNX's order of gates, as places in ours: i, o, f, c of i, f, g, o; z, r, h of r, z, n.
ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}


class Cell(NamedTuple):
    """A step of a recurrent layer: its kind, and the places of its weight and bias in the loop's
    constants (-1: no bias)."""

    mode: str
    weight: int
    bias: int


@functools.lru_cache(256)
def reference(mode: str, batch: int, size: int, has_bias: bool) -> tuple[Body, Cell]:
    """The body of a layer's loop, and its cell."""
    width = GATES[mode] * size
    shapes = [(STEPS, batch, 1), (width, 1), (width, size)]
    shapes += [(width,)] * has_bias + [(batch, size)] * (2 if mode == "LSTM" else 1)

    def layer(x: Any, of_input: Any, of_state: Any, *rest: Any) -> Any:
        weights = Weights(of_input, of_state, None, rest[0] if has_bias else None)
        return recurrent(mode, x, tuple(rest[has_bias:]), weights, False)

    specs = [Spec(shape, float32) for shape in shapes]
    with no_grad(), Watch(), wholes.recognised():
        tracer, inputs, _ = traced(layer, specs, hoists=False, writes_scalars=True)
    loop = next(x for x in tracer.calls if x.call.name == "scan")
    consts = loop.operands[: loop.call.attrs["shape"].consts]
    weight = consts.index(inputs[2].payload)
    bias = next((i for i in range(len(consts)) if i != weight), -1)
    return loop.call.attrs["body"], Cell(mode, weight, bias)


def cell_of(body: Body, shape: Any) -> Cell | None:
    """The cell of a loop's body."""
    consts, carried, rows = shape.parts(body.inputs)
    is_plain = all(x.dtype is float32 for x in body.inputs) and len(rows) == 1
    if not is_plain or len(consts) not in (1, 2) or len(carried) not in (1, 2):
        return None
    if any(x.ndim != 2 for x in (*carried, *rows)):
        return None
    batch, size = carried[0].shape
    modes = ("LSTM",) if len(carried) == 2 else ("GRU", "RNN_TANH", "RNN_RELU")
    for mode in modes:
        if rows[0].shape == (batch, GATES[mode] * size):
            own, cell = reference(mode, batch, size, len(consts) == 2)
            if own is body:
                return cell
    return None


def product_of(gates: WrittenValue) -> list[WrittenValue] | None:
    """(x, weight, bias) of gates that are a product of rows x (T, B, I) and a weight."""
    if gates.source is None or gates.source.name != "reshape":
        return None
    (product,) = gates.operands
    if product.source is None or product.source.name != "linear()":
        return None
    rows, *weights = product.operands
    if rows.source is None or rows.source.name != "reshape" or len(rows.operands[0].shape) != 3:
        return None
    return [rows.operands[0], *weights]


def recurrent_layer(
    w: GraphWriter, call: Any, consts: Any, init: Any, rows: Any
) -> list[WrittenValue] | None:
    """The results of a recurrent layer's loop; None for another loop."""
    shape = call.attrs["shape"]
    if shape.gated or len(call.results) != len(init) + 1:
        return None
    cells = {cell_of(body, shape) for body in bodies_of(call.attrs["body"])}
    cell = cells.pop()
    product = None if cell is None or cells else product_of(rows[0])
    if cell is None or product is None or (len(product) == 3) != (cell.bias >= 0):
        return None
    x, of_input, *bias = product
    size = init[0].shape[1]
    order = np.concatenate([np.arange(size) + i * size for i in ORDERS[cell.mode]])
    places, first = w.constant(order), w.integers(0)

    def by_gates(name: str) -> str:
        return w.node("Gather", [name, places], axis=0)

    sides = [by_gates(w.whole(y)) for y in (of_input, consts[cell.weight])]
    names = [w.whole(x), *(w.node("Unsqueeze", [name, first]) for name in sides), ""]
    if bias:
        flat = [w.whole(bias[0]), w.node("Reshape", [w.whole(consts[cell.bias]), w.integers(-1)])]
        both = w.node("Concat", [by_gates(name) for name in flat], axis=0)
        names[3] = w.node("Unsqueeze", [both, first])
    names += ["", *(w.node("Unsqueeze", [w.whole(y), first]) for y in init)]
    options: dict[str, Any] = {"hidden_size": size}
    options["direction"] = "reverse" if call.attrs["reverse"] else "forward"
    if cell.mode == "GRU":
        options["linear_before_reset"] = 1
    if cell.mode == "RNN_RELU":
        options["activations"] = ["Relu"]
    every, *last = w.node(OPERATORS[cell.mode], names, 1 + len(init), **options)
    ends = [w.node("Squeeze", [name, first]) for name in last]
    ends.append(w.node("Squeeze", [every, w.integers(1)]))
    return [w.value(name, like) for name, like in zip(ends, call.results, strict=True)]


RECOGNISERS.append(recurrent_layer)
