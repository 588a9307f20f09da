"""Recurrent layers beside PyTorch's: values, states, gradients, parameters, packed sequences."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import ProgramPlan, rewritten
from glasshouse.compile.programs.code import assemble
from glasshouse.graph import record
from glasshouse.graph.graph import graph_of
from glasshouse.nn.utils import rnn
from glasshouse.targets.cpu.scan import LoopCall

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # PyTorch's

STEPS, BATCH, SIZE, WIDTH = 6, 3, 4, 5
KINDS = {
    "RNN": {},
    "RNN relu": {"nonlinearity": "relu"},
    "LSTM": {},
    "LSTM projected": {"proj_size": 2},
    "GRU": {},
}
OPTIONS = {
    "plain": {},
    "deep": {"num_layers": 3},
    "both ways": {"bidirectional": True, "num_layers": 2},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False, "bidirectional": True},
}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pair(kind: str, dtype="float32", **options):
    """Our layer and PyTorch's, with the same parameters."""
    options = {**KINDS[kind], **options}
    name = kind.split()[0]
    theirs = getattr(torch.nn, name)(SIZE, WIDTH, **options)
    ours = getattr(gh.nn, name)(SIZE, WIDTH, **options)
    ours.load_state_dict({n: gh.tensor(p.detach().numpy()) for n, p in theirs.named_parameters()})
    return ours, theirs


def states_of(layer, single=False, seed=1):
    count = layer.num_layers * (1 + layer.bidirectional)
    lead = (count,) if single else (count, BATCH)
    out = layer.proj_size or WIDTH
    sizes = (out, WIDTH) if layer.mode == "LSTM" else (out,)
    return tuple(drawn(*lead, n, seed=seed + i) for i, n in enumerate(sizes))


def given(states, make):
    results = tuple(map(make, states))
    return results if len(results) > 1 else results[0]


def flat(result):
    output, state = result
    return [output, *(state if isinstance(state, tuple) else (state,))]


def run(layer, x, hx):
    """Results, then gradients of inputs and parameters, of a sum that all results are part of."""
    results = flat(layer(x, hx))
    total = sum((r * r * (i + 1)).sum() for i, r in enumerate(results))
    total.backward()
    leaves = [x, *(hx if isinstance(hx, tuple) else (hx,)), *layer.parameters()]
    return [r.detach().numpy() for r in results] + [p.grad.numpy() for p in leaves]


@pytest.mark.parametrize(("kind", "option"), [*itertools.product(KINDS, OPTIONS)])
def test_layers_are_pytorchs(kind, option):
    ours, theirs = pair(kind, **OPTIONS[option])
    lead = (BATCH, STEPS) if ours.batch_first else (STEPS, BATCH)
    x, states = drawn(*lead, SIZE), states_of(theirs)
    mine = run(ours, gh.tensor(x, requires_grad=True), given(states, tracked))
    reference = run(
        theirs,
        torch.tensor(x, requires_grad=True),
        given(states, lambda s: torch.tensor(s, requires_grad=True)),
    )
    for a, b in zip(mine, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def tracked(array):
    return gh.tensor(array, requires_grad=True)


@pytest.mark.parametrize("kind", KINDS)
def test_loops_are_compiled(kind):
    ours, theirs = pair(kind, bidirectional=True)
    x = drawn(STEPS, BATCH, SIZE)
    with flags.override(compile="always", strict=True), gh.backends.use("lazy"):
        mine = [r.numpy() for r in flat(ours(gh.tensor(x)))]
    for a, b in zip(mine, flat(theirs(torch.tensor(x))), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_sequence_has_no_axis_for_batches(kind):
    ours, theirs = pair(kind, num_layers=2)
    x, states = drawn(STEPS, SIZE), states_of(theirs, single=True)
    mine = flat(ours(gh.tensor(x), given(states, gh.tensor)))
    for a, b in zip(mine, flat(theirs(torch.tensor(x), given(states, torch.tensor))), strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(6, 4, 1), (2, 6, 5)])
def test_packed_sequences(kind, lengths):
    ours, theirs = pair(kind, num_layers=2, bidirectional=True)
    x, states = drawn(STEPS, BATCH, SIZE), states_of(theirs)
    is_sorted = list(lengths) == sorted(lengths, reverse=True)
    mine = rnn.pack_padded_sequence(gh.tensor(x), lengths, enforce_sorted=is_sorted)
    theirs_packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), enforce_sorted=is_sorted
    )
    output, state = ours(mine, given(states, gh.tensor))
    expected, last = theirs(theirs_packed, given(states, torch.tensor))
    pairs = [(output.data, expected.data), (output.batch_sizes, expected.batch_sizes)]
    pairs += zip(flat((output.data, state))[1:], flat((expected.data, last))[1:], strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


CELLS = {"RNNCell": {}, "RNNCell relu": {"nonlinearity": "relu"}, "LSTMCell": {}, "GRUCell": {}}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(BATCH,), ()])
def test_cells_are_pytorchs(kind, bias, lead):
    name = kind.split()[0]
    theirs = getattr(torch.nn, name)(SIZE, WIDTH, bias=bias, **CELLS[kind])
    ours = getattr(gh.nn, name)(SIZE, WIDTH, bias=bias, **CELLS[kind])
    ours.load_state_dict({n: gh.tensor(p.detach().numpy()) for n, p in theirs.named_parameters()})
    x, states = drawn(*lead, SIZE), [drawn(*lead, WIDTH, seed=i + 1) for i in range(ours.states)]
    for hx in (None, states):
        mine = ours(gh.tensor(x), None if hx is None else given(hx, gh.tensor))
        expected = theirs(torch.tensor(x), None if hx is None else given(hx, torch.tensor))
        mine, expected = ((r if isinstance(r, tuple) else (r,)) for r in (mine, expected))
        for a, b in zip(mine, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_parameters_have_pytorchs_names_and_order():
    ours, theirs = pair("LSTM projected", num_layers=2, bidirectional=True)
    names = [(n, tuple(p.shape)) for n, p in theirs.named_parameters()]
    assert [(n, tuple(p.shape)) for n, p in ours.named_parameters()] == names
    assert [len(w) for w in ours.all_weights] == [len(w) for w in theirs.all_weights]
    assert repr(ours) == repr(theirs)


def test_dropout_lies_between_layers():
    layer = gh.nn.GRU(SIZE, WIDTH, num_layers=2, dropout=0.5)
    x = gh.tensor(drawn(STEPS, BATCH, SIZE))
    assert (layer(x)[0].numpy() != layer(x)[0].numpy()).any()
    layer.eval()
    assert (layer(x)[0].numpy() == layer(x)[0].numpy()).all()


def test_what_is_recorded_does_not_grow_with_the_length():
    layer, recorded = gh.nn.LSTM(SIZE, WIDTH), []
    for steps in (3, 2000):
        recorder = gh.backends.current().recorder
        gh.backends.current().evaluate()
        held = layer(gh.zeros((steps, 1, SIZE)))
        recorded.append(len(recorder.pending))
        gh.eval(held[0])
    assert recorded[0] == recorded[1] > 0


def parts_of(code) -> list[tuple[str, int]]:
    """Each step of a Program and of the loops in it: its kind, and how many lines of C it has."""
    parts = []
    for step in code.steps:
        lines = getattr(step.what, "text", "").count("\n")
        parts.append((type(step.what).__name__, lines))
        if isinstance(step.what, LoopCall):
            parts += parts_of(step.what.code)
    return parts


def test_what_is_compiled_does_not_grow_with_the_length():
    layer, compiled = gh.nn.LSTM(SIZE, WIDTH, num_layers=2), []
    gh.eval(*layer.parameters())
    for steps in (500, 2000):
        (layer(gh.zeros((steps, BATCH, SIZE)))[0] ** 2).sum().backward()
        waiting = record.recorder.pending
        plan = ProgramPlan(rewritten(graph_of(record.describe(waiting))))
        compiled.append(parts_of(assemble(plan)))
        record.recorder.forget()
        layer.zero_grad()
    assert compiled[0] == compiled[1]
    assert "LoopCall" in dict(compiled[0])


def test_vmap_autocast_and_capture():
    layer = gh.nn.LSTM(SIZE, WIDTH)
    x = gh.tensor(drawn(2, STEPS, BATCH, SIZE))
    expected = gh.stack([layer(x[0])[0], layer(x[1])[0]]).numpy()
    many = gh.vmap(lambda x: layer(x)[0])(x)
    np.testing.assert_allclose(many.numpy(), expected, rtol=1e-5, atol=1e-6)
    captured = gh.optimize(lambda x: layer(x)[0])(x[0])
    np.testing.assert_allclose(captured.numpy(), expected[0], rtol=1e-5, atol=1e-6)
    with gh.autocast("bfloat16"):
        lower = layer(x[0])[0]
    np.testing.assert_allclose(lower.float().numpy(), expected[0], atol=0.05)


X = gh.zeros((STEPS, BATCH, SIZE))
BAD = {
    "another width": (lambda: gh.nn.LSTM(SIZE + 1, WIDTH)(X), gh.ShapeError, "I = 5"),
    "four axes": (lambda: gh.nn.GRU(SIZE, WIDTH)(X[None]), gh.ShapeError, "(T, B, I)"),
    "another dtype": (lambda: gh.nn.RNN(SIZE, WIDTH)(X.double()), gh.DTypeError, "float32"),
    "integers": (lambda: gh.nn.RNN(SIZE, WIDTH)(X.int()), gh.DTypeError, "floating"),
    "one state of two": (
        lambda: gh.nn.LSTM(SIZE, WIDTH)(X, gh.zeros((1, BATCH, WIDTH))),
        gh.ShapeError,
        "h_0, c_0",
    ),
    "a state of another batch": (
        lambda: gh.nn.GRU(SIZE, WIDTH)(X, gh.zeros((1, BATCH + 1, WIDTH))),
        gh.ShapeError,
        "(1, 3, 5)",
    ),
    "a projection of a GRU": (
        lambda: gh.nn.GRU(SIZE, WIDTH, proj_size=2),
        gh.OptionError,
        "proj_size of an LSTM",
    ),
    "too wide a projection": (
        lambda: gh.nn.LSTM(SIZE, WIDTH, proj_size=WIDTH),
        gh.OptionError,
        "hidden_size - 1",
    ),
    "another nonlinearity": (
        lambda: gh.nn.RNN(SIZE, WIDTH, nonlinearity="gelu"),
        gh.OptionError,
        "nonlinearity",
    ),
    "no layers": (lambda: gh.nn.LSTM(SIZE, WIDTH, num_layers=0), gh.OptionError, "num_layers"),
    "dropout of 2": (lambda: gh.nn.LSTM(SIZE, WIDTH, dropout=2), gh.OptionError, "probability"),
    "a cell's state": (
        lambda: gh.nn.LSTMCell(SIZE, WIDTH)(X[0], X[0]),
        gh.ShapeError,
        "2 states",
    ),
    "a cell's input": (lambda: gh.nn.GRUCell(SIZE, WIDTH)(X), gh.ShapeError, "(B, 4)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_say_what_came_and_the_fix(name):
    call, error, text = BAD[name]
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
