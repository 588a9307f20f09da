"""Loops of recurrent layers: the operators of `torch/aten/recurrent_operators.py`.

The cells are those of our own layers. Backward passes are written by hand: a vjp of `scan` would
read states and gates that are wide between steps, where these read narrow ones that were saved."""

from typing import Any

import glasshouse as gh
from glasshouse.dispatch.value import cast
from glasshouse.dispatch.wide import widen
from glasshouse.nn.functional.activation import relu as rectified
from glasshouse.nn.functional.recurrent import gru_cell, lstm_cell
from glasshouse.ops.contract import matmul
from glasshouse.tensor import matrix_transpose, tanh
from glasshouse.torch.aten.table import aten
from glasshouse.transforms.scan import scan


def product(x: Any, weight: Any) -> Any:
    """x weight, multiplied in the weight's dtype, then widened for elementwise operations."""
    return widen(matmul(cast(x, weight.dtype), weight))


def before_steps(outputs: Any, first: Any, reverse: bool) -> Any:
    """The state that each step of a loop got from the step before."""
    first = gh.expand_dims(first, 0)
    return gh.concat([outputs[1:], first] if reverse else [first, outputs[:-1]], axis=0)


@aten("glasshouse.lstm_loop")
def lstm_loop(gates: Any, h: Any, c: Any, weight: Any, projection: Any, reverse: Any) -> Any:
    """The stacks of outputs h, perhaps projected, of cells c, and of the gates i, f, g, o of an
    LSTM.

    Shapes: gates (T, B, 4 H), h (B, P), c (B, H), weight (4 H, P), projection (P, H).
    Dtypes: outputs are of h's, cells of c's, the stacks of gates and products of the gates'.
    """

    def step(state, inputs):
        h, wide = state
        gates_now = widen(inputs) + product(h, matrix_transpose(weight))
        output, wide, cell_gates = lstm_cell(gates_now, wide)
        if projection is not None:
            output = product(output, matrix_transpose(projection))
        h = cast(output, h.dtype)
        return (h, wide), (h, cast(wide, c.dtype), *(cast(x, gates.dtype) for x in cell_gates))

    return list(scan(step, (h, widen(c)), gates, reverse=reverse)[1])


@aten("glasshouse.lstm_loop_backward")
def lstm_loop_backward(
    grad_outputs: Any,
    grad_cells: Any,
    stacks: Any,
    c: Any,
    weight: Any,
    projection: Any,
    reverse: Any,
) -> Any:
    """The gradients of an LSTM's gates, of its first h and c, and of the outputs of all steps, each
    with the terms of later steps. `stacks` are those of c, i, f, g, o.

    Dtypes: the gradient of c has c's dtype, all others have the weight's.
    """
    steps, batch, _ = stacks[0].shape
    before = before_steps(stacks[0], c, reverse)
    wide = widen(c).dtype
    zeros = gh.zeros((batch, weight.shape[1]), wide), gh.zeros(c.shape, wide)
    from_later = {name: x for name, x in (("h", grad_outputs), ("c", grad_cells)) if x is not None}

    def step(state, inputs):
        dh, dc = state
        from_loss, *others = inputs
        before, c, i, f, g, o = (widen(x) for x in others)
        dh = dh + widen(from_loss["h"]) if "h" in from_loss else dh
        dc = dc + widen(from_loss["c"]) if "c" in from_loss else dc
        d_out = dh if projection is None else product(dh, projection)
        t = tanh(c)
        dc = dc + d_out * o * (1 - t * t)
        gates = gh.concat(
            [
                dc * g * i * (1 - i),
                dc * before * f * (1 - f),
                dc * i * (1 - g * g),
                d_out * t * o * (1 - o),
            ],
            axis=-1,
        )
        gates = cast(gates, weight.dtype)
        return (product(gates, weight), dc * f), (gates, cast(dh, weight.dtype))

    inputs = (from_later, before, *stacks)
    (grad_h, grad_c), (grad_gates, grad_all) = scan(step, zeros, inputs, reverse=not reverse)
    return [grad_gates, cast(grad_h, weight.dtype), cast(grad_c, c.dtype), grad_all]


@aten("glasshouse.gru_loop")
def gru_loop(gates: Any, h: Any, weight: Any, bias: Any, reverse: Any) -> Any:
    """The stacks of outputs h of a GRU, of its gates r, z, n, and of hₙ, the state's term in n.

    Shapes: gates (T, B, 3 H), h (B, H), weight (3 H, H), bias (3 H,).
    Dtypes: outputs are of h's, all others of the gates'.
    """

    def step(wide, inputs):
        of_state = matmul(cast(wide, weight.dtype), matrix_transpose(weight))
        of_state = widen(of_state if bias is None else of_state + bias)
        wide, cell_values = gru_cell(widen(inputs), of_state, wide)
        return wide, (cast(wide, h.dtype), *(cast(x, gates.dtype) for x in cell_values))

    return list(scan(step, widen(h), gates, reverse=reverse)[1])


@aten("glasshouse.gru_loop_backward")
def gru_loop_backward(
    grad_outputs: Any, outputs: Any, stacks: Any, h: Any, weight: Any, reverse: Any
) -> Any:
    """The gradients of the inputs' and of the state's terms in a GRU's gates, and of its first h.
    `stacks` are those of r, z, n and hₙ."""

    def step(dh, inputs):
        from_output, before, r, z, n, state_n = (widen(x) for x in inputs)
        dh = dh + from_output
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * state_n * r * (1 - r), dh * (before - n) * z * (1 - z)
        of_state = cast(gh.concat([dr, dz, dn * r], axis=-1), weight.dtype)
        of_input = cast(gh.concat([dr, dz, dn], axis=-1), weight.dtype)
        return dh * z + product(of_state, weight), (of_input, of_state)

    inputs = (grad_outputs, before_steps(outputs, h, reverse), *stacks)
    zeros = gh.zeros(h.shape, widen(h).dtype)
    grad_h, stacked = scan(step, zeros, inputs, reverse=not reverse)
    return [*stacked, cast(grad_h, h.dtype)]


@aten("glasshouse.rnn_loop")
def rnn_loop(gates: Any, h: Any, weight: Any, relu: Any, reverse: Any) -> Any:
    """The stack of outputs h' = activation(x + W h) of a plain recurrent layer, of tanh or relu.

    Shapes: gates (T, B, H), h (B, H), weight (H, H).
    """

    def step(h, inputs):
        h = widen(inputs) + product(h, matrix_transpose(weight))
        h = cast(rectified(h) if relu else tanh(h), gates.dtype)
        return h, h

    return scan(step, h, gates, reverse=reverse)[1]


@aten("glasshouse.rnn_loop_backward")
def rnn_loop_backward(grad_outputs: Any, outputs: Any, weight: Any, relu: Any, reverse: Any) -> Any:
    """The gradients of a plain layer's gates and of its first h."""

    def step(dh, inputs):
        from_output, y = (widen(x) for x in inputs)
        dh = dh + from_output
        gates = gh.where(y <= 0, 0, dh) if relu else dh * (1 - y * y)
        return product(gates, weight), cast(gates, outputs.dtype)

    zeros = gh.zeros(outputs.shape[1:], widen(outputs).dtype)
    grad_h, grad_gates = scan(step, zeros, (grad_outputs, outputs), reverse=not reverse)
    return [grad_gates, cast(grad_h, outputs.dtype)]
