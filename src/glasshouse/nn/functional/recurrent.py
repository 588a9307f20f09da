"""One step of recurrent layers, and one direction of a layer as a loop over steps.

A loop is one call of `scan`: it runs without Python between its steps, and its code does not grow
with their number. The product of all inputs with their weights does not depend on the state: it is
computed for all steps at once before the loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

from glasshouse.dispatch.value import Value, cast, reshape
from glasshouse.nn.functional.activation import relu, sigmoid
from glasshouse.nn.functional.linear import linear
from glasshouse.tensor import Tensor, matmul, matrix_transpose, tanh
from glasshouse.tensor import where as choose
from glasshouse.transforms.scan import scan


class Weights(NamedTuple):
    """Of one direction of a layer: those of inputs and of states (gates · H, I) and (gates · H, H),
    their biases, and the projection (P, H) of an LSTM's output."""

    input: Value
    state: Value
    input_bias: Value | None = None
    state_bias: Value | None = None
    projection: Value | None = None


def from_state(h: Tensor, weights: Weights) -> Tensor:
    product = matmul(h, matrix_transpose(weights.state))
    return product if weights.state_bias is None else product + weights.state_bias


def split(gates: Tensor, count: int) -> list[Tensor]:
    size = gates.shape[-1] // count
    return [gates[..., i * size : (i + 1) * size] for i in range(count)]


def elman_step(activation: Callable[..., Any]) -> Any:
    """The step of a plain recurrent layer with this activation."""

    def step(state: tuple[Any, ...], gates: Tensor, weights: Weights) -> tuple[Any, ...]:
        """h' = activation(W x + b + U h + c), with `gates` = W x + b."""
        return (activation(gates + from_state(state[0], weights)),)

    return step


def lstm_cell(gates: Any, c: Any) -> tuple[Any, ...]:
    """(h', c', its gates i, f, g, o) of an LSTM whose gates, before their functions, are in this
    order: c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c')."""
    i, f, g, o = split(gates, 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    return o * tanh(c), c, (i, f, g, o)


def gru_cell(of_input: Tensor, of_state: Tensor, h: Tensor) -> tuple[Any, ...]:
    """(h', its intermediate values r, z, n, hₙ) of a GRU, whose gates r, z, n are in this order in
    the parts from input and state: n = tanh(xₙ + σ(r) hₙ), h' = (1 - σ(z)) n + σ(z) h."""
    r, z, n = split(of_input, 3)
    own_r, own_z, own_n = split(of_state, 3)
    r, z = sigmoid(r + own_r), sigmoid(z + own_z)
    n = tanh(n + r * own_n)
    return n + z * (h - n), (r, z, n, own_n)


def lstm_step(state: tuple[Any, ...], gates: Tensor, weights: Weights) -> tuple[Any, ...]:
    """The next (h, c) of an LSTM, h perhaps projected.

    Source: Hochreiter & Schmidhuber 1997; Sak et al. 2014, arXiv:1402.1128 (projection).
    """
    h, c = state
    h, c, _ = lstm_cell(gates + from_state(h, weights), c)
    if weights.projection is not None:
        h = matmul(h, matrix_transpose(weights.projection))
    return h, c


def gru_step(state: tuple[Any, ...], gates: Tensor, weights: Weights) -> tuple[Any, ...]:
    """The next (h,) of a GRU.

    Source: Cho et al. 2014, arXiv:1406.1078.
    """
    (h,) = state
    return gru_cell(gates, from_state(h, weights), h)[:1]


STEPS: dict[str, Any] = {
    "RNN_TANH": elman_step(tanh),
    "RNN_RELU": elman_step(relu),
    "LSTM": lstm_step,
    "GRU": gru_step,
}
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


def next_state(
    mode: str, state: tuple[Any, ...], gates: Tensor, weights: Weights
) -> tuple[Any, ...]:
    """The state after one step, in the dtype of the one before."""
    new = STEPS[mode](state, gates, weights)
    return tuple(cast(x, old.dtype) for x, old in zip(new, state, strict=True))


def recurrent(
    mode: str,
    x: Tensor,
    state: tuple[Any, ...],
    weights: Weights,
    reverse: bool,
    running: Any = None,
) -> tuple[tuple[Tensor, ...], Tensor]:
    """(last state, outputs of all steps) of one direction of a layer. `running` says of each step
    which sequences still run: where one does not, its state stays and its output is 0.

    Shapes: x (T, B, I), state (B, H) each, running (T, B) -> the same, (T, B, H).
    """
    steps, batch, size = x.shape
    gates = linear(reshape(x, (steps * batch, size)), weights.input, weights.input_bias)
    gates = reshape(gates, (steps, batch, gates.shape[-1]))

    def step(state, parts):
        new = next_state(mode, state, parts[0], weights)
        if running is None:
            return new, new[0]
        runs = reshape(parts[1], (batch, 1))
        states = tuple(choose(runs, x, old) for x, old in zip(new, state, strict=True))
        return states, choose(runs, new[0], 0)

    return scan(step, state, (gates,) if running is None else (gates, running), reverse=reverse)
