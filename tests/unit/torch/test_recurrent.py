"""nn.LSTM, nn.GRU and nn.RNN in graphs: outputs, states and gradients are eager's."""

import copy

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from torch._dynamo.callback import callback_handler  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

from glasshouse.torch.aten import recurrent_operators as recurrent  # noqa: E402
from glasshouse.torch.backend import trace_hooks  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402
from glasshouse.torch.patches.dynamo import backend_within, callbacks  # noqa: E402
from glasshouse.torch.patches.names import are_found  # noqa: E402

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning"),
    pytest.mark.filterwarnings("ignore:dropout option adds dropout:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(
        not are_found(callbacks, backend_within), reason="a PyTorch that does not tell the backend"
    ),
]
STEPS, BATCH, SIZE, WIDTH = 6, 3, 4, 5
LAYERS = {
    "LSTM": (nn.LSTM, {}),
    "LSTM batch first": (nn.LSTM, {"batch_first": True, "num_layers": 2}),
    "LSTM both ways": (nn.LSTM, {"bidirectional": True, "num_layers": 2}),
    "LSTM without bias": (nn.LSTM, {"bias": False}),
    "LSTM projected": (nn.LSTM, {"proj_size": 2, "bidirectional": True, "num_layers": 2}),
    "LSTM projected without bias": (nn.LSTM, {"proj_size": 2, "bias": False}),
    "LSTM with all dropped": (nn.LSTM, {"num_layers": 2, "dropout": 1.0}),
    "GRU": (nn.GRU, {}),
    "GRU both ways": (nn.GRU, {"bidirectional": True, "num_layers": 2, "batch_first": True}),
    "GRU without bias": (nn.GRU, {"bias": False}),
    "RNN": (nn.RNN, {}),
    "RNN both ways": (nn.RNN, {"bidirectional": True, "num_layers": 2, "bias": False}),
    "RNN relu": (nn.RNN, {"nonlinearity": "relu"}),
}


def compiled(model, **named):
    """A model compiled by us; a break of its graph is an error unless `fullgraph` is False."""
    return torch.compile(model, backend=glasshouse, **{"fullgraph": True} | named)


def inputs_of(layer, is_given: bool = True) -> list:
    """[x, first states or None], which need gradients."""
    leading = (BATCH, STEPS) if layer.batch_first else (STEPS, BATCH)
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    x = torch.randn(*leading, SIZE, requires_grad=True)
    h = torch.randn(rows, BATCH, layer.proj_size or WIDTH, requires_grad=True)
    c = torch.randn(rows, BATCH, WIDTH, requires_grad=True)
    states = (h, c) if isinstance(layer, nn.LSTM) else h
    return [x, states if is_given else None]


def flat(value) -> list:
    """The tensors of a layer's inputs or results."""
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in flat(part)]
    return [] if value is None else [value]


def results_and_gradients(call, layer, inputs, used=None) -> list:
    """Return the result of a layer, and the gradients of its arguments and parameters by a weighted
    sum of its results, or of those that are `used`."""
    results = flat(call(*inputs))
    weights = [torch.arange(x.numel()).reshape(x.shape).cos() for x in results]
    terms = [(x * w).sum() for x, w in zip(results, weights, strict=True)]
    loss = sum(terms if used is None else [terms[i] for i in used])
    leaves = [*flat(inputs), *layer.parameters()]
    return [*results, *torch.autograd.grad(loss, leaves, allow_unused=True)]


def assert_same(result: list, expected: list) -> None:
    """Values are close, and lie in memory alike."""
    assert len(result) == len(expected)
    for mine, theirs in zip(result, expected, strict=True):
        if theirs is None:
            assert mine is None or not mine.any()
        else:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
            assert mine.stride() == theirs.stride()


@pytest.mark.parametrize("name, is_given", [*((name, True) for name in LAYERS), ("GRU", False)])
def test_a_layer_is_one_graph_whose_results_and_gradients_are_eagers(name, is_given):
    kind, options = LAYERS[name]
    layer = kind(SIZE, WIDTH, **options)
    inputs = inputs_of(layer, is_given)
    mine = results_and_gradients(compiled(layer, options={"strict": True}), layer, inputs)
    assert_same(mine, results_and_gradients(layer, layer, inputs))


# -- other dtypes --------------------------------------------------------------------------------


def under_autocast(layer, *inputs):
    with torch.autocast("cpu", torch.bfloat16):
        return layer(*inputs)


def in_dtype(value, dtype):
    """The tensors of a layer's inputs in another dtype, as leaves."""
    if isinstance(value, (tuple, list)):
        return type(value)(in_dtype(x, dtype) for x in value)
    return None if value is None else value.detach().to(dtype).requires_grad_()


@torch.no_grad()
def errors(result: list, exact: list) -> list[float]:
    """How far values are from the exact ones, by their norms."""
    pairs = [(x, y) for x, y in zip(result, exact, strict=True) if y is not None]
    return [((x.double() - y).norm() / y.norm()).item() for x, y in pairs]


def is_computed_by_eager(kind, mode) -> bool:
    """Whether eager has the layer in bfloat16 on this processor."""
    needs = kind is nn.LSTM and mode in ("autocast", torch.bfloat16)
    return not needs or torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.mark.parametrize("mode", ["autocast", torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name, is_given", [*((name, True) for name in LAYERS), ("GRU", False)])
def test_a_layer_in_another_dtype_is_as_exact_as_eagers(name, is_given, mode):
    kind, options = LAYERS[name]
    if not is_computed_by_eager(kind, mode):
        pytest.skip("PyTorch's own layer raises on this processor")
    exact = kind(SIZE, WIDTH, **options).double()
    dtype = torch.float32 if mode == "autocast" else mode
    layer = copy.deepcopy(exact).to(dtype)
    inputs = in_dtype(inputs_of(layer, is_given), dtype)

    def call(*inputs):
        return under_autocast(layer, *inputs) if mode == "autocast" else layer(*inputs)

    mine = results_and_gradients(compiled(call, options={"strict": True}), layer, inputs)
    eager = results_and_gradients(call, layer, inputs)
    want = results_and_gradients(exact, exact, in_dtype(inputs, torch.float64))
    rounding = 1e-14 if dtype is torch.float64 else 0
    assert max(errors(mine, want)) <= 2 * max(errors(eager, want)) + rounding
    for ours, theirs in zip(mine, eager, strict=True):
        if theirs is not None:
            assert ours.dtype == theirs.dtype
            assert ours.stride() == theirs.stride()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LSTM", "LSTM projected", "GRU"])
def test_states_under_autocast_are_of_eagers_dtypes_without_onednn(name):
    kind, options = LAYERS[name]
    layer = kind(SIZE, WIDTH, **options)
    inputs = inputs_of(layer)
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        eager = flat(under_autocast(layer, *inputs))
        mine = flat(under_autocast(compiled(layer), *inputs))
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert [x.dtype for x in mine] == [x.dtype for x in eager]
    for ours, theirs in zip(mine, eager, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=4e-2, atol=4e-2)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (1, 2)])
def test_the_loss_may_come_from_outputs_or_from_last_states(used):
    layer = nn.LSTM(SIZE, WIDTH, num_layers=2)
    inputs = inputs_of(layer)
    mine = results_and_gradients(compiled(layer), layer, inputs, used)
    assert_same(mine, results_and_gradients(layer, layer, inputs, used))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_single_sequence_has_no_batch_axis(kind):
    layer = kind(SIZE, WIDTH)
    x = torch.randn(STEPS, SIZE, requires_grad=True)
    mine = results_and_gradients(compiled(layer), layer, [x])
    assert_same(mine, results_and_gradients(layer, layer, [x]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_calls_without_gradients_are_eagers(kind):
    layer = kind(SIZE, WIDTH, num_layers=2, dropout=0.5).eval()
    call, inputs = compiled(layer), inputs_of(layer)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_same(flat(call(*inputs)), flat(layer(*inputs)))


def test_a_frozen_weight_gets_no_gradient():
    layer = nn.LSTM(SIZE, WIDTH)
    layer.weight_hh_l0.requires_grad_(False)
    x = torch.randn(STEPS, BATCH, SIZE)
    compiled(layer)(x)[0].sum().backward()
    mine = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    assert mine[1] is None
    assert_same(mine, [p.grad for p in layer.parameters()])


@pytest.mark.slow
def test_lengths_may_vary():
    layer = nn.LSTM(SIZE, WIDTH)
    for dynamic in (None, True):
        call = compiled(layer, dynamic=dynamic)
        for steps in (6, 9, 1, 4):
            x = torch.randn(steps, BATCH, SIZE, requires_grad=True)
            mine = results_and_gradients(call, layer, [x])
            assert_same(mine, results_and_gradients(layer, layer, [x]))


@pytest.mark.slow
def test_dropout_between_layers_drops_and_scales():
    layer = nn.LSTM(SIZE, 64, num_layers=2, dropout=0.5)
    with torch.no_grad():
        layer.weight_ih_l1.copy_(torch.eye(256, 64) * 100)  # input gates tell what was dropped
        layer.weight_hh_l1.zero_()
    call, x = compiled(layer), torch.randn(STEPS, BATCH, SIZE)
    first, second = call(x)[0], call(x)[0]
    assert not torch.equal(first, second)
    layer.eval()
    assert torch.equal(call(x)[0], call(x)[0])


def test_training_steps_follow_eager_with_copies_and_loaded_states():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, SIZE)
            self.lstm = nn.LSTM(SIZE, WIDTH, num_layers=2, batch_first=True)
            self.tags = nn.Linear(WIDTH, 3)

        def forward(self, words):
            return self.tags(self.lstm(self.words(words))[0])

    def losses(model, call) -> list:
        optimizer, log = torch.optim.SGD(model.parameters(), lr=0.5), []
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(call(words).flatten(0, 1), tags.flatten())
            loss.backward()
            optimizer.step()
            log.append(loss.item())
        return log

    words, tags = torch.randint(0, 20, (BATCH, STEPS)), torch.randint(0, 3, (BATCH, STEPS))
    mine = Tagger()
    theirs, state = copy.deepcopy(mine), copy.deepcopy(mine.state_dict())
    call = compiled(mine)
    expected = losses(theirs, theirs)
    assert losses(mine, call) == pytest.approx(expected, rel=1e-4)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(state)
    assert losses(mine, call) == pytest.approx(expected, rel=1e-4)


def packed(x):
    return nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 1]))


LEFT = {
    "a packed sequence": lambda layer, x: layer(packed(x))[0].data,
    "autocast of float64": lambda layer, x: under_autocast(layer.double(), x.double())[0],
    "no sequences": lambda layer, x: layer(x[:, :0])[0],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_eager_is_eagers(name, kind):
    layer = kind(SIZE, WIDTH)
    x = torch.randn(STEPS, BATCH, SIZE, requires_grad=True)

    def call(x):
        return LEFT[name](layer, x * 2) + 1

    mine = results_and_gradients(compiled(call, fullgraph=False), layer, [x])
    assert_same(mine, results_and_gradients(call, layer, [x]))
    assert counters["graph_break"]


def test_other_backends_leave_recurrent_layers_to_eager_as_before():
    layer, x = nn.LSTM(SIZE, WIDTH), torch.randn(STEPS, BATCH, SIZE)
    plain = dict(torch.ops.aten.lstm.input.py_kernels)
    compiled(layer)(x)
    assert torch.ops.aten.lstm.input.py_kernels == plain
    assert not torch._dynamo.config.allow_rnn
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    torch.compile(layer, backend=counter)(x)
    targets = {node.target for module in counter.graphs for node in module.graph.nodes}
    assert torch.lstm not in targets


@pytest.mark.slow
def test_layers_are_captured_behind_a_reset():
    layer, x = nn.LSTM(SIZE, WIDTH), torch.randn(STEPS, BATCH, SIZE)
    for _ in range(3):
        torch._dynamo.reset()
        assert_same(flat(compiled(layer)(x)), flat(layer(x)))
    count = callback_handler.start_callbacks.count(trace_hooks.trace_starts)
    assert count == callback_handler.end_callbacks.count(trace_hooks.trace_ends) == 1


def test_loops_that_the_user_has_taken_apart_are():
    layer, x = nn.GRU(SIZE, WIDTH), torch.randn(2, BATCH, SIZE)
    with torch._dynamo.config.patch(allow_rnn=True):
        call = compiled(layer)
        assert_same(flat(call(x)), flat(layer(x)))


def test_a_second_derivative_is_refused_as_in_any_compiled_graph():
    layer = nn.LSTM(SIZE, WIDTH)
    x = torch.randn(STEPS, BATCH, SIZE, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(layer)(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward|does not require grad"):
        gradient.sum().backward()


# -- the operators as PyTorch computes them ------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_the_operators_own_bodies_are_eagers(name):
    kind, options = LAYERS[name]
    layer = kind(SIZE, WIDTH, **options)
    x, states = inputs_of(layer)
    operator = getattr(torch.ops.aten, layer.mode.lower()).input
    direction = recurrent.KERNELS[operator]

    def call(x, states):
        inputs = states if isinstance(states, tuple) else (states,)
        numbers = (layer.bias, layer.num_layers, layer.dropout, layer.training)
        numbers += (layer.bidirectional, layer.batch_first)
        return recurrent.run_layers(direction, x, inputs, layer._flat_weights, *numbers)

    mine = results_and_gradients(call, layer, [x, states])
    assert_same(mine, results_and_gradients(layer, layer, [x, states]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_bodies_in_narrow_dtypes_are_those_of_programs(kind):
    layer = kind(SIZE, WIDTH).bfloat16()
    inputs = in_dtype(inputs_of(layer), torch.bfloat16)
    with recurrent.recurrent_layers_captured():
        bodies = torch.compile(layer, backend="aot_eager", fullgraph=True)
        mine = results_and_gradients(bodies, layer, inputs)
    programs = results_and_gradients(compiled(layer), layer, inputs)
    for ours, theirs in zip(mine, programs, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=4e-2, atol=4e-2)


def test_operators_say_of_tensors_without_contents_what_they_give():
    layer = nn.LSTM(SIZE, WIDTH, proj_size=2)
    gates, h, c = (
        torch.randn(STEPS, BATCH, 4 * WIDTH),
        torch.randn(BATCH, 2),
        torch.randn(BATCH, WIDTH),
    )
    inputs = gates, h, c, layer.weight_hh_l0.detach(), layer.weight_hr_l0.detach()
    for reverse in (False, True):
        torch.library.opcheck(recurrent.lstm_loop, (*inputs, reverse))
