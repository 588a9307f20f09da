"""PyTorch's recurrent layers as few operators: one for the loop over the steps of a direction.

PyTorch keeps nn.LSTM, nn.GRU and nn.RNN out of graphs, or decomposes their loops into operators for
each step. Here the product of all inputs with their weights is one operator, the loop is one of
ours, and the gradient of a weight is one product over all steps. Programs compute the entries of
`aten/recurrent.py`; where a graph is left to PyTorch, the operators' bodies run the same entries.

In bfloat16 and float16, products have that dtype; sums, gates and the states between steps are
float32. Gates saved for the backward pass are narrow again."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from glasshouse.torch.aten import recurrent as entries
from glasshouse.torch.aten.own_operators import own_operator
from glasshouse.torch.patches.dynamo import RECURRENT, compiling_recurrent
from glasshouse.torch.patches.fakes import UnsupportedOperator
from glasshouse.torch.patches.modes import innermost_transform, uses_mkldnn
from glasshouse.torch.patches.names import are_found
from glasshouse.torch.patches.operators import DispatchKey, dispatch_cache
from glasshouse.torch.patches.tensors import is_wrapper
from glasshouse.torch.tensors.dtypes import NARROW, widen_tensor

KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
DTYPES = (torch.float32, torch.float64, *NARROW)


def keeping(count: int) -> Callable[..., None]:
    """A function that saves the tensors that a loop's backward pass reads, all but the gates; the
    first `count` results of the loop have gradients."""

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        operands, results = inputs[1:], output if isinstance(output, tuple) else (output,)
        ctx.options = [x for x in operands if isinstance(x, bool)]
        ctx.set_materialize_grads(count == 1)
        ctx.mark_non_differentiable(*results[count:])
        ctx.save_for_backward(*(x for x in operands if not isinstance(x, bool)), *results)

    return keep


def before_steps(outputs: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The state that each step of a loop got from the step before."""
    parts = [outputs[1:], first[None]] if reverse else [first[None], outputs[:-1]]
    return torch.cat(parts)


def over_steps(gradient: Tensor, operand: Tensor) -> Tensor:
    """The gradient of a weight (N, K), from the gradient of its results (T, B, N) and its operand
    (T, B, K): one product over all steps."""
    return gradient.flatten(0, 1).t() @ operand.to(gradient.dtype).flatten(0, 1)


# -- LSTM --------------------------------------------------------------------------------------


def empty_lstm(gates: Any, h: Any, c: Any, weight: Any, projection: Any, reverse: Any) -> Any:
    shape = (gates.shape[0], *c.shape)
    gate_stacks = [gates.new_empty(shape) for _ in range(4)]
    return h.new_empty((shape[0], *h.shape)), c.new_empty(shape), *gate_stacks


def empty_lstm_backward(dh: Any, dc: Any, stacks: Any, c: Any, weight: Any, *rest: Any) -> Any:
    steps, batch, _ = stacks[0].shape
    size, width = weight.shape
    gates, outputs = weight.new_empty((steps, batch, size)), weight.new_empty((steps, batch, width))
    return gates, weight.new_empty((batch, width)), torch.empty_like(c), outputs


lstm_loop = own_operator(
    entries.lstm_loop,
    "(Tensor gates, Tensor h, Tensor c, Tensor weight, Tensor? projection, bool reverse) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    empty_lstm,
)
own_operator(
    entries.lstm_loop_backward,
    "(Tensor? grad_outputs, Tensor? grad_cells, Tensor[] stacks, Tensor c, Tensor weight, "
    "Tensor? projection, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)",
    empty_lstm_backward,
)


def lstm_gradients(ctx: Any, grad_outputs: Any, grad_cells: Any, *_: Any) -> Any:
    """The gradients of an LSTM's loop."""
    h, c, weight, projection, outputs, *stacks = ctx.saved_tensors
    (reverse,) = ctx.options
    grad_gates, grad_h, grad_c, grad_all = torch.ops.glasshouse.lstm_loop_backward(
        grad_outputs, grad_cells, stacks, c, weight, projection, reverse
    )
    grad_weight = over_steps(grad_gates, before_steps(outputs, h, reverse))
    grad_projection = None
    if projection is not None:
        cells, *_, o = stacks
        grad_projection = over_steps(grad_all, widen_tensor(o) * widen_tensor(cells).tanh())
    return grad_gates, grad_h.to(h.dtype), grad_c, grad_weight, grad_projection, None


lstm_loop.register_autograd(lstm_gradients, setup_context=keeping(2))


def input_product(x: Tensor, weight: Tensor, biases: list[Tensor]) -> Tensor:
    """The product of the inputs of all steps with their weight, and the sum of biases."""
    bias = None
    if biases:
        bias = functools.reduce(torch.add, map(widen_tensor, biases)).to(weight.dtype)
    rows = x.to(weight.dtype).flatten(0, 1)
    return functional.linear(rows, weight, bias).unflatten(0, x.shape[:2])


def lstm_direction(x: Tensor, state: list[Tensor], weights: list[Tensor], reverse: bool) -> Any:
    """(outputs, [last h, last c]) of one direction of an LSTM."""
    w_input, w_state, *others = weights
    biases, projection = others[: len(others) // 2 * 2], others[len(others) // 2 * 2 :]
    gates = input_product(x, w_input, biases)
    outputs, cells, *_ = torch.ops.glasshouse.lstm_loop(
        gates, *state, w_state, projection[0] if projection else None, reverse
    )
    last = 0 if reverse else -1
    return outputs, [outputs[last], cells[last]]


# -- GRU ---------------------------------------------------------------------------------------


def empty_gru(gates: Any, h: Any, *rest: Any) -> Any:
    shape = (gates.shape[0], *h.shape)
    return h.new_empty(shape), *(gates.new_empty(shape) for _ in range(4))


def empty_gru_backward(dh: Any, outputs: Any, stacks: Any, h: Any, weight: Any, *_: Any) -> Any:
    sizes = (*outputs.shape[:2], weight.shape[0])
    return weight.new_empty(sizes), weight.new_empty(sizes), h.new_empty(h.shape)


gru_loop = own_operator(
    entries.gru_loop,
    "(Tensor gates, Tensor h, Tensor weight, Tensor? bias, bool reverse) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    empty_gru,
)
own_operator(
    entries.gru_loop_backward,
    "(Tensor grad_outputs, Tensor outputs, Tensor[] stacks, Tensor h, Tensor weight, "
    "bool reverse) -> (Tensor, Tensor, Tensor)",
    empty_gru_backward,
)


def gru_gradients(ctx: Any, grad_outputs: Any, *_: Any) -> Any:
    """The gradients of a GRU's loop."""
    h, weight, bias, outputs, *stacks = ctx.saved_tensors
    (reverse,) = ctx.options
    grad_gates, of_state, grad_h = torch.ops.glasshouse.gru_loop_backward(
        grad_outputs, outputs, stacks, h, weight, reverse
    )
    grad_weight = over_steps(of_state, before_steps(outputs, h, reverse))
    grad_bias = None if bias is None else of_state.sum((0, 1))
    return grad_gates, grad_h, grad_weight, grad_bias, None


gru_loop.register_autograd(gru_gradients, setup_context=keeping(1))


def gru_direction(x: Tensor, state: list[Tensor], weights: list[Tensor], reverse: bool) -> Any:
    """(outputs, [last h]) of one direction of a GRU."""
    w_input, w_state, *biases = weights
    gates = input_product(x, w_input, biases[:1])
    state_bias = biases[1].to(w_state.dtype) if biases else None
    outputs, *_ = torch.ops.glasshouse.gru_loop(gates, *state, w_state, state_bias, reverse)
    return outputs, [outputs[0 if reverse else -1]]


# -- plain layers ------------------------------------------------------------------------------


rnn_loop = own_operator(
    entries.rnn_loop,
    "(Tensor gates, Tensor h, Tensor weight, bool relu, bool reverse) -> Tensor",
    lambda gates, *_: gates.new_empty(gates.shape),
)
own_operator(
    entries.rnn_loop_backward,
    "(Tensor grad_outputs, Tensor outputs, Tensor weight, bool relu, bool reverse) -> "
    "(Tensor, Tensor)",
    lambda _, outputs, *__: (
        outputs.new_empty(outputs.shape),
        outputs.new_empty(outputs.shape[1:]),
    ),
)


def rnn_gradients(ctx: Any, grad_outputs: Any) -> Any:
    """The gradients of a plain layer's loop."""
    h, weight, outputs = ctx.saved_tensors
    relu, reverse = ctx.options
    grad_gates, grad_h = torch.ops.glasshouse.rnn_loop_backward(
        grad_outputs, outputs, weight, relu, reverse
    )
    grad_weight = over_steps(grad_gates, before_steps(outputs, h, reverse))
    return grad_gates, grad_h, grad_weight, None, None


rnn_loop.register_autograd(rnn_gradients, setup_context=keeping(1))


def rnn_direction(relu: bool) -> Callable[..., Any]:
    """A function that runs one direction of a plain layer."""

    def run(x: Tensor, state: list[Tensor], weights: list[Tensor], reverse: bool):
        w_input, w_state, *biases = weights
        gates = input_product(x, w_input, biases)
        outputs = torch.ops.glasshouse.rnn_loop(gates, *state, w_state, relu, reverse)
        return outputs, [outputs[0 if reverse else -1]]

    return run


# -- layers ------------------------------------------------------------------------------------


def run_layers(
    direction: Callable[..., Any], x: Tensor, states: Any, params: Any, *options: Any
) -> list[Tensor]:
    """[outputs, last states …] of all layers, as PyTorch's operators of recurrent layers have it.

    Shapes: x (T, B, I), or (B, T, I) if batch_first; states (layers · directions, B, …).
    """
    _, layers, dropout, train, bidirectional, batch_first = options
    directions = 2 if bidirectional else 1
    count = len(params) // (layers * directions)
    x, lasts = x.transpose(0, 1) if batch_first else x, []
    for layer in range(layers):
        outputs = []
        for turn in range(directions):
            at = layer * directions + turn
            weights = params[at * count : (at + 1) * count]
            output, last = direction(x, [state[at] for state in states], weights, turn == 1)
            outputs.append(output)
            lasts.append(last)
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        if train and layer < layers - 1:
            x = torch.dropout(x, dropout, train)
    x = x.transpose(0, 1) if batch_first else x
    return [x, *(torch.stack(parts) for parts in zip(*lasts, strict=True))]


def autocast_dtype() -> torch.dtype | None:
    """The dtype that autocast computes in on the processor, if it is on."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def dtype_of_products(dtypes: set[torch.dtype], autocast: torch.dtype | None) -> torch.dtype | None:
    """The dtype of products in recurrent layers, by the operands' dtypes and that of autocast; None
    where layers are left to eager: under autocast to float16, and where dtypes differ."""
    if autocast is not None:
        is_taken = autocast == torch.bfloat16 and dtypes <= {torch.float32, torch.bfloat16}
        return autocast if is_taken else None
    (dtype, *others) = dtypes
    return dtype if dtype in DTYPES and not others else None


def is_taken(tensors: list[Tensor]) -> bool:
    """Whether recurrent layers with these operands are computed here, regardless of dtypes."""
    is_plain = not any(is_wrapper(x) or x.numel() == 0 for x in tensors)
    is_transformed = innermost_transform() is not None
    return is_plain and not is_transformed and all(x.device.type == "cpu" for x in tensors)


def first_states(operator: Any, states: Any, dtype: torch.dtype) -> list[Tensor]:
    """First states in the dtypes of eager's outputs and last states. For an LSTM of oneDNN they
    have the dtype of products. A GRU, and the cells of another LSTM, keep their own dtype."""
    if operator is torch.ops.aten.gru.input:
        return list(states)
    if operator is not torch.ops.aten.lstm.input:
        return [states[0].to(dtype)]
    h, c = states
    is_projected = h.shape[-1] != c.shape[-1]
    if not is_projected and uses_mkldnn():
        return [h.to(dtype), c.to(dtype)]
    return [h.to(dtype if is_projected else c.dtype), c]


KERNELS: dict[Any, Any] = {
    torch.ops.aten.lstm.input: lstm_direction,
    torch.ops.aten.gru.input: gru_direction,
    torch.ops.aten.rnn_tanh.input: rnn_direction(relu=False),
    torch.ops.aten.rnn_relu.input: rnn_direction(relu=True),
}
PACKED = [  # of PackedSequence, which eager computes
    torch.ops.aten.lstm.data,
    torch.ops.aten.gru.data,
    torch.ops.aten.rnn_tanh.data,
    torch.ops.aten.rnn_relu.data,
]


def in_place_of(operator: Any) -> Callable[..., Any]:
    """A replacement of a recurrent layer's operator while a graph is traced for our backend.

    It raises: UnsupportedOperator where it is left to eager, which breaks the graph there
    """
    direction = KERNELS.get(operator)

    def compute(x, states, params, *options):
        states = states if isinstance(states, (tuple, list)) else (states,)
        operands = [x, *states, *params]
        dtype = dtype_of_products({o.dtype for o in operands}, autocast_dtype())
        if direction is None or dtype is None or not is_taken(operands):
            raise UnsupportedOperator(operator)
        states = first_states(operator, states, dtype)
        matrices = [p.to(dtype) if p.ndim == 2 else p for p in params]
        return tuple(run_layers(direction, x, states, matrices, *options))

    return compute


@contextlib.contextmanager
def recurrent_layers_captured() -> Iterator[None]:
    """Inside, TorchDynamo captures recurrent layers, whose operators are those of this file."""
    # The user wants decomposed loops, or this context is active already.
    if are_found(RECURRENT) and RECURRENT.value:
        yield
        return
    before = {op: dict(op.py_kernels) for op in (*KERNELS, *PACKED)}
    try:
        for operator in before:
            for key in KEYS:
                operator.py_kernels[key] = in_place_of(operator)
            dispatch_cache(operator).clear()
        with compiling_recurrent():
            yield
    finally:
        for operator, kernels in before.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            dispatch_cache(operator).clear()
