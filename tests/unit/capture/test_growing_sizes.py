"""Loops whose tensors grow by one in each step compile a few times, and find what eager finds."""

from types import SimpleNamespace

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import new_sizes, program
from glasshouse.ops.elementwise import erf_by_series, erf_ref

STEPS, MOST = 300, 3


def text_step(lib, weight):
    """The next row of a text, from all rows."""

    def step(text):
        scores = lib.softmax(text @ text.T, -1) @ text
        return lib.concatenate((text, lib.tanh(scores @ weight)[-1:]), 0)

    return step


def cache_step(lib, weight):
    """A row, and rows of before that grow by it."""

    def step(state):
        value, row = state
        value = lib.concatenate((value, row), 0)
        return value, lib.tanh(lib.softmax(row @ value.T, -1) @ value @ weight)

    return step


def list_step(lib, weight):
    """Results that are stacked in each step."""

    def step(result):
        value = lib.stack(result)
        return [*result, lib.tanh(value.mean(0) @ weight + result[-1])]

    return step


KINDS = {
    "text": (text_step, lambda x: x[None]),
    "cache": (cache_step, lambda x: (x[None], x[None] * 2)),
    "list": (list_step, lambda x: [x]),
}


def last_row(state):
    while isinstance(state, (list, tuple)):
        state = state[-1]
    return np.array(state.tolist()).reshape(-1, 4)[-1]


def loop(lib, kind: str, wrap, steps: int = STEPS):
    """The last rows that a loop finds."""
    rng = np.random.default_rng(0)
    weight, first = (lib.asarray(rng.standard_normal(n).astype(np.float32)) for n in ((4, 4), 4))
    make, begin = KINDS[kind]
    step, state, rows = wrap(make(lib, weight)), begin(first), []
    for _ in range(steps):
        state = step(state)
        rows.append(last_row(state))
    return np.stack(rows)


@pytest.fixture
def counted(monkeypatch):
    """The recordings that become Programs, whoever asks for them."""
    results = []
    make = program.make_program
    monkeypatch.setattr(program, "make_program", lambda x: results.append(x) or make(x))
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(program, "large", {})
    gh.reset()
    with gh.backends.use("lazy"), flags.override(compile="auto"):
        yield results


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["plain", "gh.optimize"])
def test_programs_that_grow_compile_a_few_times(kind, mode, counted):
    wrap = gh.optimize if mode == "gh.optimize" else lambda fn: fn
    result = loop(gh, kind, wrap)
    assert len(counted) <= MOST
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(result, loop(torch, kind, lambda fn: fn), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_captures_of_what_grows_are_few(kind, counted):
    before = gh.capture.counters["captures"]
    loop(gh, kind, gh.optimize)
    assert gh.capture.counters["captures"] - before <= MOST


@pytest.mark.slow
def test_a_loop_that_reads_nothing_is_not_compiled_at_once(counted):
    step, text = text_step(gh, gh.ones((4, 4))), gh.ones((1, 4))
    for _ in range(STEPS):
        text = step(text)
    assert text.shape == (STEPS + 1, 4) and np.isfinite(text.numpy()).all()
    assert len(counted) <= 1


def test_a_deep_function_with_much_work_is_compiled_at_once(counted):
    """Such as a language model's prompt: its references take longer than compiling."""
    x = gh.zeros((1000, 300))
    for _ in range(program.HUGE_NODES):
        x = gh.cumulative_sum(x, axis=0)
    assert not x.numpy().any()
    assert len(counted) == 1


def test_sizes_that_come_again_are_compiled(counted):
    fn = gh.optimize(lambda x: gh.softmax(x * 2, -1).sum(0))
    for _ in range(5):
        for n in (3, 4, 5):
            np.testing.assert_allclose(fn(gh.ones((n, 2))).numpy(), n / 2, rtol=1e-6)
    assert len(counted) == 3


def test_always_means_at_once(counted):
    with flags.override(compile="always"):
        fn = gh.optimize(lambda x: gh.softmax(x * 2, -1).sum(0))
        for n in range(3, 9):
            fn(gh.asarray(np.ones((n, 2))))
    assert len(counted) == 6


def training_step():
    """A step of a deep network on n rows: more than 100 calls."""
    layers = [gh.nn.Linear(4, 4) for _ in range(12)]
    model = gh.nn.Sequential(*(x for layer in layers for x in (layer, gh.nn.Tanh())))

    def step(n):
        loss = model(gh.ones((n, 4))).sum()
        loss.backward()
        gh.eval(loss, *(x.grad for x in model.parameters()))

    return step


def test_a_training_step_is_compiled_at_once(counted):
    step = training_step()
    for n in (2, 3, 4):
        step(n)
    assert len(counted) >= 3


def test_training_steps_of_many_sizes_compile_a_few_times(counted):
    step = training_step()
    for n in range(2, 40):
        step(n)
    first = len(counted)
    assert first <= 9  # the first with the model's weights
    for _ in range(3):  # met four times, with the one above
        assert len(counted) == first
        step(39)
    assert len(counted) == first + 1


def test_loops_over_one_size_do_not_wait_for_those_before_them(counted):
    for n in range(2, 10):
        step = training_step()
        first = len(counted)
        for _ in range(3):
            step(n)
        assert len(counted) == first + 2  # with the model's weights, and without


def test_training_steps_with_much_work_do_not_wait(counted, monkeypatch):
    monkeypatch.setattr(program, "COMPILE_S", 1e-4)
    step = training_step()
    for n in range(2, 16):
        step(n)
    assert len(counted) >= 14


def test_ranks_that_train_have_the_same_order_of_collectives_whatever_their_sizes(counted):
    step = training_step()
    for n in range(2, 16):
        step(n)
    entry, nodes = program.ProgramEntry(), counted[-1].nodes
    assert not program.is_due(entry, SimpleNamespace(nodes=nodes))
    collective = SimpleNamespace(origin=nodes[-1].origin, call=SimpleNamespace(is_collective=True))
    assert program.is_due(entry, SimpleNamespace(nodes=[*nodes, collective]))


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_rounds_through_many_sizes_compile_their_square_root(rounds):
    sizes = new_sizes.NewSizes(1)
    with flags.override(compile="auto"):
        compiled = {n for _ in range(rounds) for n in range(300) if sizes.is_due(n)}
    assert len(compiled) == rounds**0.5


def test_the_series_of_erf_is_erf():
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-7, 7, 4001), 10.0 ** rng.uniform(-30, 1, 2000)])
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    series, exact = erf_by_series(x), erf_ref(np.float64(x))
    np.testing.assert_allclose(series, exact, rtol=1e-15, atol=0)
    assert (np.signbit(series) == np.signbit(exact))[:-1].all()
