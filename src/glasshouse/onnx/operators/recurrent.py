"""Recurrent operators: RNN, GRU and LSTM, a step each, run along time by `gh.scan`."""

from collections.abc import Callable
from typing import Any

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.nn import functional
from glasshouse.onnx.operators.quantised import dequantize, quantize_by_range
from glasshouse.onnx.operators.shapes import reversed_steps
from glasshouse.onnx.table import operator

# activation -> function(x, alpha, beta); the defaults of alpha and beta are in DEFAULTS
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: functional.elu(x, a),
    "hardsigmoid": lambda x, a, b: gh.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: functional.leaky_relu(x, a),
    "relu": lambda x, a, b: gh.relu(x),
    "scaledtanh": lambda x, a, b: a * gh.tanh(b * x),
    "sigmoid": lambda x, a, b: functional.sigmoid(x),
    "softplus": lambda x, a, b: functional.softplus(x),
    "softsign": lambda x, a, b: functional.softsign(x),
    "tanh": lambda x, a, b: gh.tanh(x),
    "thresholdedrelu": lambda x, a, b: gh.where(x > a, x, 0),
}
DEFAULTS = {
    "affine": (1.0, 0.0),
    "elu": (1.0, 0.0),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, 0.0),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, 0.0),
}


class Recurrence:
    """The attributes that all three operators share."""

    def __init__(
        self,
        names: Any,
        alphas: Any,
        betas: Any,
        clip: float | None,
        direction: str,
        usual: tuple[str, ...],
    ) -> None:
        if direction not in ("forward", "reverse", "bidirectional"):
            fix = "Mend the node."
            raise OptionError("onnx", "forward, reverse or bidirectional", direction, fix)
        self.directions = 2 if direction == "bidirectional" else 1
        self.backward: bool = direction == "reverse"
        self.clip = clip
        names = [name.lower() for name in names or usual * self.directions]
        alphas, betas = list(alphas or ()), list(betas or ())
        self.activations: list[Any] = []
        for name in names:
            if name not in ACTIVATIONS:
                raise OptionError("onnx", f"one of {[*ACTIVATIONS]}", name, "Mend the node.")
            a, b = DEFAULTS.get(name, (0.0, 0.0))
            if name in DEFAULTS:
                a = alphas.pop(0) if alphas else a
                b = betas.pop(0) if betas and name in ("hardsigmoid", "affine", "scaledtanh") else b
            self.activations.append((ACTIVATIONS[name], a, b))
        if len(self.activations) != len(usual) * self.directions:
            expected = f"{len(usual) * self.directions} activations"
            raise OptionError("onnx", expected, names, "Mend the node.")
        self.each: int = len(usual)

    def activate(self, direction: int, which: int, x: Any) -> Any:
        function, a, b = self.activations[direction * self.each + which]
        return function(x if self.clip is None else gh.clip(x, -self.clip, self.clip), a, b)


def run(
    recurrence: Recurrence, x: Any, lengths: Any, states: list[Any], make: Any, layout: int
) -> tuple[Any, ...]:
    """Outputs of all steps, and the last states. `make(direction)` returns a function of x for the
    part that does not depend on the state, for all steps at once, and the step.

    Shapes: x (T, B, I), states (D, B, H) each -> (T, D, B, H), (D, B, H) …
    """
    if layout:
        x = gh.swapaxes(x, 0, 1)
        states = [gh.swapaxes(state, 0, 1) for state in states]
    steps = x.shape[0]
    mask = None
    if lengths is not None:
        shape = (steps, x.shape[1], 1)
        mask = gh.broadcast_to(gh.arange(steps).reshape((-1, 1, 1)), shape)
        mask = mask < lengths.astype("int64").reshape((1, -1, 1))
    outputs, ends = [], []
    for d in range(recurrence.directions):
        backward = recurrence.backward or d == 1
        prepare, step = make(d)
        source = turned(x, lengths) if backward else x
        rows = prepare(source)
        last, y = gh.scan(masked(step), [state[d] for state in states], [rows, mask])
        outputs.append(turned(y, lengths) if backward else y)
        ends.append(last)
    y = gh.stack(outputs, axis=1)
    lasts = [gh.stack([end[i] for end in ends], axis=0) for i in range(len(states))]
    if layout:
        y = gh.permute_dims(y, (2, 0, 1, 3))
        lasts = [gh.swapaxes(last, 0, 1) for last in lasts]
    return (y, *lasts)


def turned(x: Any, lengths: Any) -> Any:
    return gh.flip(x, axis=0) if lengths is None else reversed_steps(x, lengths, 1, 0)


def masked(step: Any) -> Any:
    """A step that leaves a sequence as it is after its end, and gives 0 there."""

    def function(states: Any, row: Any) -> Any:
        x, mask = row
        new = step(x, *states)
        if mask is None:
            return new, new[0]
        kept = [gh.where(mask, a, b) for a, b in zip(new, states)]
        return kept, gh.where(mask, new[0], gh.zeros_like(new[0]))

    return function


def zeros_for(x: Any, weight: Any, hidden: int, layout: int) -> Any:
    batch, directions = x.shape[0 if layout else 1], weight.shape[0]
    shape = (batch, directions, hidden) if layout else (directions, batch, hidden)
    return gh.zeros(shape, dtype=x.dtype)


def halves(bias: Any, d: int, gates: int, hidden: int) -> tuple[Any, Any]:
    """A direction's biases of the input and of the state."""
    if bias is None:
        return 0.0, 0.0
    return bias[d, : gates * hidden], bias[d, gates * hidden :]


@operator("RNN")
def rnn(
    x: Any,
    weight: Any,
    recurrent: Any,
    bias: Any = None,
    lengths: Any = None,
    first: Any = None,
    *,
    hidden_size: int | None = None,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
) -> Any:
    hidden = recurrent.shape[-1]
    r = Recurrence(activations, activation_alpha, activation_beta, clip, direction, ("Tanh",))
    first = zeros_for(x, weight, hidden, layout) if first is None else first

    def make(d: int) -> Any:
        below, beside = halves(bias, d, 1, hidden)

        def step(row: Any, state: Any) -> Any:
            return [r.activate(d, 0, row + state @ recurrent[d].mT)]

        return lambda source: source @ weight[d].mT + below + beside, step

    return run(r, x, lengths, [first], make, layout)


@operator("GRU")
def gru(
    x: Any,
    weight: Any,
    recurrent: Any,
    bias: Any = None,
    lengths: Any = None,
    first: Any = None,
    *,
    hidden_size: int | None = None,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    n = recurrent.shape[-1]
    usual = ("Sigmoid", "Tanh")
    r = Recurrence(activations, activation_alpha, activation_beta, clip, direction, usual)
    first = zeros_for(x, weight, n, layout) if first is None else first

    def make(d: int) -> Any:
        below, beside = halves(bias, d, 3, n)
        matrix = recurrent[d]
        last = 0.0 if bias is None else beside[2 * n :]

        def step(row: Any, state: Any) -> Any:
            gates = row[:, : 2 * n] + state @ matrix[: 2 * n].mT
            gates = gates if bias is None else gates + beside[: 2 * n]
            update, reset = (r.activate(d, 0, gates[:, i * n : (i + 1) * n]) for i in range(2))
            if linear_before_reset:
                inner = reset * (state @ matrix[2 * n :].mT + last)
            else:
                inner = (reset * state) @ matrix[2 * n :].mT + last
            new = r.activate(d, 1, row[:, 2 * n :] + inner)
            return [(1 - update) * new + update * state]

        return lambda source: source @ weight[d].mT + below, step

    return run(r, x, lengths, [first], make, layout)


@operator("LSTM")
def lstm(
    x: Any,
    weight: Any,
    recurrent: Any,
    bias: Any = None,
    lengths: Any = None,
    first: Any = None,
    first_cell: Any = None,
    peepholes: Any = None,
    *,
    hidden_size: int | None = None,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
    input_forget: int = 0,
) -> Any:
    usual = ("Sigmoid", "Tanh", "Tanh")
    r = Recurrence(activations, activation_alpha, activation_beta, clip, direction, usual)
    step = LongShortStep(r, weight, recurrent, bias, peepholes, bool(input_forget))
    states = [
        zeros_for(x, weight, step.size, layout) if state is None else state
        for state in (first, first_cell)
    ]
    return run(r, x, lengths, states, step.make, layout)


class LongShortStep:
    """The step of an LSTM; `narrow` is applied to the operands of its products."""

    def __init__(
        self,
        recurrence: Recurrence,
        weight: Any,
        recurrent: Any,
        bias: Any,
        peepholes: Any,
        input_forget: bool,
    ) -> None:
        self.recurrence = recurrence
        self.weight = weight
        self.recurrent = recurrent
        self.bias = bias
        self.peepholes = peepholes
        self.input_forget = input_forget
        self.size: Any = recurrent.shape[-1]
        self.narrow: Callable[[Any], Any] = lambda x: x

    def make(self, d: int) -> tuple[Any, Any]:
        below, beside = halves(self.bias, d, 4, self.size)

        def prepare(source: Any) -> Any:
            return self.narrow(source) @ self.weight[d].mT + below + beside

        return prepare, lambda row, state, cell: self.step(d, row, state, cell)

    def step(self, d: int, row: Any, state: Any, cell: Any) -> Any:
        r, n = self.recurrence, self.size
        gates = row + self.narrow(state) @ self.recurrent[d].mT
        i, o, f, c = (gates[:, k * n : (k + 1) * n] for k in range(4))
        looks = None
        if self.peepholes is not None:  # of input, output and forget gate
            looks = [self.peepholes[d, k * n : (k + 1) * n] for k in range(3)]
            i, f = i + looks[0] * cell, f + looks[2] * cell
        entry = r.activate(d, 0, i)
        keep = 1 - entry if self.input_forget else r.activate(d, 0, f)
        cell = keep * cell + entry * r.activate(d, 1, c)
        o = o if looks is None else o + looks[1] * cell
        return [r.activate(d, 0, o) * r.activate(d, 2, cell), cell]


def in_eight_bits(x: Any) -> Any:
    """x as 8 bits hold it, from its smallest to its largest value."""
    return dequantize(*quantize_by_range(x))


def dequantized(weight: Any, scale: Any, zero: Any) -> Any:
    """A matrix (D, I, O) in 8 bits, with a scale for each direction or column -> (D, O, I)"""
    scale, zero = (v.reshape((v.shape[0], 1, -1)) if v.ndim else v for v in (scale, zero))
    return ((weight.astype("float32") - zero.astype("float32")) * scale).mT


@operator("DynamicQuantizeLSTM", domain="com.microsoft")
def quantized_lstm(
    x: Any,
    weight: Any,
    recurrent: Any,
    bias: Any,
    lengths: Any,
    first: Any,
    first_cell: Any,
    peepholes: Any,
    weight_scale: Any,
    weight_zero: Any,
    recurrent_scale: Any,
    recurrent_zero: Any,
    *,
    hidden_size: int | None = None,
    activations: Any = None,
    direction: str = "forward",
    input_forget: int = 0,
) -> Any:
    r = Recurrence(activations, None, None, None, direction, ("Sigmoid", "Tanh", "Tanh"))
    weight = dequantized(weight, weight_scale, weight_zero)
    recurrent = dequantized(recurrent, recurrent_scale, recurrent_zero)
    step = LongShortStep(r, weight, recurrent, bias, peepholes, bool(input_forget))
    step.narrow = in_eight_bits
    states = [
        zeros_for(x, weight, step.size, 0) if state is None else state
        for state in (first, first_cell)
    ]
    return run(r, x, lengths, states, step.make, 0)
