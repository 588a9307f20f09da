"""Recurrent layers: RNN, LSTM and GRU over whole sequences, and their cells for single steps."""

import math
from collections.abc import Callable
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import ArrayLike, reshape
from glasshouse.nn import init
from glasshouse.nn.checks import check_floating, check_positive, check_probability, check_same_dtype
from glasshouse.nn.functional.activation import dropout
from glasshouse.nn.functional.linear import linear
from glasshouse.nn.functional.recurrent import GATES, Weights, next_state, recurrent
from glasshouse.nn.layer import with_unusual
from glasshouse.nn.linear import add_parameters
from glasshouse.nn.module import Module
from glasshouse.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor, arange, asarray, concat, stack, swapaxes, zeros

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

HIDDEN = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


class RNNBase(Module):
    """Base of RNN, LSTM and GRU: `num_layers` stacked layers, each a loop over the steps, with
    dropout between them, in one direction or both. Parameters are named and laid out as in PyTorch:
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0, and the same with the suffix
    _reverse; all are initially uniform in ±1/√hidden_size."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_option(name, "mode", mode, tuple(GATES))
        check_positive(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if proj_size and (mode != "LSTM" or not 0 < proj_size < hidden_size):
            expected = "proj_size of an LSTM, from 1 to hidden_size - 1, or 0 for none"
            raise OptionError(name, expected, f"{proj_size!r}", "Change proj_size.")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout: float = check_probability(name, dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        out, gates = self.output_size, GATES[mode] * hidden_size
        for layer in range(num_layers):
            size = input_size if layer == 0 else out * (1 + bidirectional)
            for end in self.ends:
                shapes: list[tuple[int, ...]] = [(gates, size), (gates, out)]
                shapes += [(gates,), (gates,)] if bias else []
                names = [f"{n}_l{layer}{end}" for n in HIDDEN[: len(shapes)]]
                named_shapes = dict(zip(names, shapes, strict=True))
                if proj_size:
                    named_shapes[f"weight_hr_l{layer}{end}"] = (proj_size, hidden_size)
                add_parameters(self, device, dtype, **named_shapes)
        self.reset_parameters()

    @property
    def output_size(self) -> int:
        """The width of the output of one direction."""
        return self.proj_size or self.hidden_size

    @property
    def ends(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters by layer and direction, in PyTorch's order."""
        return [
            [
                getattr(self, f"{n}_l{layer}{end}")
                for n in HIDDEN
                if hasattr(self, f"{n}_l{layer}{end}")
            ]
            for layer in range(self.num_layers)
            for end in self.ends
        ]

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: weights are brought into their products' layout once a loop in any case."""

    def weights_of(self, layer: int, end: str) -> Weights:
        named: dict[str, Any] = {n: getattr(self, f"{n}_l{layer}{end}", None) for n in HIDDEN}
        return Weights(*named.values())

    def forward(self, input: Tensor, hx: ArrayLike | None = None) -> Any:
        """(output, h_n), or (output, (h_n, c_n)) of an LSTM.

        Shapes: input (T, B, I), (B, T, I) if batch_first, (T, I), or a PackedSequence; states
            (layers · directions, B, H) -> output like the input with directions · H features.
        Raises: ShapeError for other shapes, DTypeError for another dtype than the weights'.
        """
        name = type(self).__name__
        if isinstance(input, PackedSequence):
            return self.forward_packed(input, hx)
        x = check_floating(name, input)
        check_same_dtype(name, x, self.weight_ih_l0)
        layout = "(B, T, I)" if self.batch_first else "(T, B, I)"
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            expected = f"an input {layout} or (T, I) with I = {self.input_size}"
            raise ShapeError(name, expected, x.shape, "Reshape it, or change input_size.")
        is_single = x.ndim == 2
        if is_single:
            x = reshape(x, (x.shape[0], 1, self.input_size))
        elif self.batch_first:
            x = swapaxes(x, 0, 1)
        output, state = self.run(x, self.initial_state(x, hx, is_single))
        if is_single:
            return output[:, 0], self.returned(tuple(s[:, 0] for s in state))
        return swapaxes(output, 0, 1) if self.batch_first else output, self.returned(state)

    def forward_packed(self, packed: PackedSequence, hx: Tensor) -> Any:
        padded, lengths = pad_packed_sequence(packed)
        running = reshape(arange(padded.shape[0]), (padded.shape[0], 1)) < asarray(lengths)
        output, state = self.run(padded, self.initial_state(padded, hx, False), running)
        is_sorted = packed.sorted_indices is None
        return pack_padded_sequence(output, lengths, enforce_sorted=is_sorted), self.returned(state)

    def returned(self, state: tuple[Any, ...]) -> Any:
        return state if len(state) > 1 else state[0]

    def initial_state(self, x: Tensor, hx: ArrayLike | None, is_single: bool) -> tuple[Any, ...]:
        """The states of all layers and directions that a call begins with."""
        count, batch = self.num_layers * len(self.ends), x.shape[1]
        sizes = [self.output_size] + [self.hidden_size] * (self.mode == "LSTM")
        if hx is None:
            return tuple(zeros((count, batch, n), dtype=x.dtype) for n in sizes)
        states = hx if isinstance(hx, (tuple, list)) else (hx,)
        shapes = [(count, n) if is_single else (count, batch, n) for n in sizes]
        if [getattr(s, "shape", None) for s in states] != shapes:
            name, got = type(self).__name__, [getattr(s, "shape", s) for s in states]
            expected = f"initial state{'s' * (len(shapes) > 1)} {' and '.join(map(str, shapes))}"
            raise ShapeError(name, expected, f"{got}", "Give (h_0, c_0) to an LSTM, h_0 to others.")
        return tuple(reshape(s, (count, batch, n)) for s, n in zip(states, sizes, strict=True))

    def run(self, x: Tensor, state: tuple[Any, ...], running: Any = None) -> Any:
        """(outputs, last states) over (T, B, I)."""
        last: list[tuple[Any, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = dropout(x, self.dropout, self.training)
            outputs = []
            for end in self.ends:
                begin = tuple(s[len(last)] for s in state)
                weights = self.weights_of(layer, end)
                ended, y = recurrent(self.mode, x, begin, weights, bool(end), running)
                last.append(ended)
                outputs.append(y)
            x = concat(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
        return x, tuple(stack(list(parts)) for parts in zip(*last, strict=True))

    def extra_repr(self) -> str:
        usual: dict[str, Any] = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
        }
        usual |= {"dropout": 0.0, "bidirectional": False}
        return with_unusual(f"{self.input_size}, {self.hidden_size}", vars(self), usual)


class RNN(RNNBase):
    """h' = tanh(W x + b + U h + c) at each step, or with relu, as `nonlinearity` says.

    Shapes: (T, B, input_size), or (B, T, input_size) if batch_first -> (T, B, directions ·
        hidden_size), and the last states (num_layers · directions, B, hidden_size).
    Raises: OptionError for options of no meaning, ShapeError, DTypeError.
    Source: Elman 1990, Finding structure in time.
    Example:
        >>> output, last = RNN(3, 4)(gh.ones((5, 2, 3)))
        >>> output.shape, last.shape
        ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        check_option("RNN", "nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory, with gates i, f, g, o of W x + b + U h + c at each step:
    c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'), projected to proj_size if that is given.

    Shapes: (T, B, input_size), or (B, T, input_size) if batch_first -> (T, B, directions ·
        hidden_size), and the last (h, c), each (num_layers · directions, B, hidden_size).
    Raises: OptionError for options of no meaning, ShapeError, DTypeError.
    Source: Hochreiter & Schmidhuber 1997; Sak et al. 2014, arXiv:1402.1128 (projection).
    Example:
        >>> output, (h, c) = LSTM(3, 4, bidirectional=True)(gh.ones((5, 2, 3)))
        >>> output.shape, h.shape
        ((5, 2, 8), (2, 2, 4))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units, with gates r, z, n of W x + b and U h + c at each step:
    n = tanh(xₙ + σ(r) hₙ), h' = (1 - σ(z)) n + σ(z) h.

    Shapes: (T, B, input_size), or (B, T, input_size) if batch_first -> (T, B, directions ·
        hidden_size), and the last states (num_layers · directions, B, hidden_size).
    Raises: OptionError for options of no meaning, ShapeError, DTypeError.
    Source: Cho et al. 2014, arXiv:1406.1078.
    Example:
        >>> output, last = GRU(3, 4, batch_first=True)(gh.ones((2, 5, 3)))
        >>> output.shape, last.shape
        ((2, 5, 4), (1, 2, 4))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """Base of recurrent cells: weight_ih, weight_hh, bias_ih, bias_hh, as those of a layer."""

    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: Any,
        mode: str,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_positive(name, input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.mode = mode
        gates = GATES[mode] * hidden_size
        shapes: dict[str, Any] = {"weight_ih": (gates, input_size)}
        shapes["weight_hh"] = (gates, hidden_size)
        shapes |= dict.fromkeys(("bias_ih", "bias_hh"), (gates,) if bias else None)
        add_parameters(self, device, dtype, **shapes)
        self.reset_parameters()

    reset_parameters: Callable[..., None] = RNNBase.reset_parameters

    def forward(self, input: Tensor, hx: ArrayLike | None = None) -> Any:
        """The next state, of the state hx, or of zeros."""
        name = type(self).__name__
        x = check_floating(name, input)
        check_same_dtype(name, x, self.weight_ih)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            expected = f"an input (B, {self.input_size}) or ({self.input_size},)"
            raise ShapeError(name, expected, x.shape, "Reshape it, or change input_size.")
        shape = (*x.shape[:-1], self.hidden_size)
        states = hx if isinstance(hx, (tuple, list)) else (hx,)
        if hx is None:
            states = [zeros(shape, dtype=x.dtype) for _ in range(self.states)]
        if [getattr(s, "shape", None) for s in states] != [shape] * self.states:
            got = [getattr(s, "shape", s) for s in states]
            expected = f"{self.states} state{'s' * (self.states > 1)} {shape}"
            raise ShapeError(name, expected, f"{got}", "Give (h, c) to an LSTMCell, h to others.")
        rows = [reshape(s, (1, s.shape[0])) if s.ndim == 1 else s for s in (x, *states)]
        gates = linear(rows[0], self.weight_ih, self.bias_ih)
        weights = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        state = next_state(self.mode, tuple(rows[1:]), gates, weights)
        state = tuple(reshape(s, shape) for s in state)
        return state if self.states > 1 else state[0]

    def extra_repr(self) -> str:
        return with_unusual(f"{self.input_size}, {self.hidden_size}", vars(self), {"bias": True})


class RNNCell(RNNCellBase):
    """One step of an RNN: h' = tanh(W x + b + U h + c), or with relu, as `nonlinearity` says.

    Shapes: (B, input_size), h (B, hidden_size) -> (B, hidden_size).
    Raises: OptionError, ShapeError, DTypeError.
    Source: Elman 1990, Finding structure in time.
    Example:
        >>> RNNCell(3, 4)(gh.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_option("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu"))
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(input_size, hidden_size, bias, mode, device, dtype)
        self.nonlinearity = nonlinearity


class LSTMCell(RNNCellBase):
    """One step of an LSTM.

    Shapes: (B, input_size), (h, c) each (B, hidden_size) -> (h, c).
    Raises: ShapeError, DTypeError.
    Source: Hochreiter & Schmidhuber 1997.
    Example:
        >>> h, c = LSTMCell(3, 4)(gh.ones((2, 3)))
        >>> h.shape, c.shape
        ((2, 4), (2, 4))
    """

    states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, "LSTM", device, dtype)


class GRUCell(RNNCellBase):
    """One step of a GRU.

    Shapes: (B, input_size), h (B, hidden_size) -> (B, hidden_size).
    Raises: ShapeError, DTypeError.
    Source: Cho et al. 2014, arXiv:1406.1078.
    Example:
        >>> GRUCell(3, 4)(gh.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, "GRU", device, dtype)
