"""Loops whose steps cores share out: the same results as on one thread, and as step by step."""

import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.planning.plan import ProgramPlan, rewritten
from glasshouse.compile.programs.code import assemble
from glasshouse.compile.steps.emitted import StaleCode
from glasshouse.graph import record
from glasshouse.graph.graph import graph_of
from glasshouse.targets.cpu.scan import LoopCall, lanes_of

THREADS, LENGTH, ROWS, WIDTH = 2, 6, 128, 40


@pytest.fixture(autouse=True)
def compiled():
    with flags.override(compile="always"):
        yield


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weighted(w, x):
    """Products with a matrix that is brought into another layout before the loop."""
    p = gh.nn.functional.softmax(x @ w, dim=-1)
    return p @ w.T, p.sum(axis=0)


def with_a_loop(w, x):
    """A step that has a loop of its own, which carries a sum."""
    total, parts = gh.scan(lambda s, row: (s + gh.exp(-row), row * s), x[0] * 0, x)
    return total @ w, parts


STEPS = {"weighted": weighted, "with a loop": with_a_loop}


def looped(name, w, xs):
    return gh.scan(lambda carry, x: (carry, STEPS[name](w, x)), (), xs)[1]


def unrolled(name, w, xs):
    """The slow clear twin."""
    steps = [STEPS[name](w, xs[t]) for t in range(len(xs))]
    return [gh.stack(list(ys)) for ys in zip(*steps, strict=True)]


def gradients(run, name, w, xs):
    w, xs = (gh.tensor(a, requires_grad=True) for a in (w, xs))
    sum((y * y).sum() for y in run(name, w, xs)).backward()
    return w.grad.numpy(), xs.grad.numpy()


def loop_of(name, w, xs) -> LoopCall:
    """The call of the loop, as it is compiled for the threads that there are now."""
    results = looped(name, gh.tensor(w), gh.tensor(xs))
    waiting = record.recorder.pending
    code = assemble(ProgramPlan(rewritten(graph_of(record.describe(waiting)))))
    record.recorder.forget()
    del results
    return next(step.what for step in code.steps if isinstance(step.what, LoopCall))


@pytest.mark.parametrize("name", STEPS)
def test_results_are_those_of_a_loop(name):
    w, xs = drawn(WIDTH, WIDTH), drawn(LENGTH, ROWS, WIDTH, seed=1)
    with toolchain.threads_used(THREADS):
        assert loop_of(name, w, xs).layout.lanes == THREADS
        results = [y.numpy() for y in looped(name, gh.tensor(w), gh.tensor(xs))]
    with gh.backends.use("numpy"):
        expected = [y.numpy() for y in unrolled(name, gh.tensor(w), gh.tensor(xs))]
    for y, twin in zip(results, expected, strict=True):
        np.testing.assert_allclose(y, twin, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_those_of_a_loop(name):
    w, xs = drawn(WIDTH, WIDTH), drawn(LENGTH, ROWS, WIDTH, seed=2)
    with toolchain.threads_used(THREADS):
        results = gradients(looped, name, w, xs)
    with gh.backends.use("numpy"):
        expected = gradients(unrolled, name, w, xs)
    for grad, twin in zip(results, expected, strict=True):
        scale = np.abs(twin).max()
        np.testing.assert_allclose(grad / scale, twin / scale, atol=2e-5)


def test_lanes_have_memory_of_their_own():
    w, xs = drawn(WIDTH, WIDTH), drawn(LENGTH, ROWS, WIDTH, seed=3)
    with toolchain.threads_used(1):
        alone = loop_of("weighted", w, xs).layout
    with toolchain.threads_used(THREADS):
        shared = loop_of("weighted", w, xs).layout
    assert (alone.lanes, shared.lanes) == (1, THREADS)
    assert shared.lane_bytes > 0


def test_stored_code_is_for_as_many_lanes():
    w, xs = drawn(WIDTH, WIDTH), drawn(LENGTH, ROWS, WIDTH, seed=4)
    with toolchain.threads_used(THREADS):
        stored = pickle.dumps(loop_of("weighted", w, xs))
        pickle.loads(stored).load()
    with toolchain.threads_used(1), pytest.raises(StaleCode, match="2 lanes"):
        pickle.loads(stored).load()


def test_what_is_carried_keeps_steps_in_turn():
    xs = drawn(LENGTH, 200, 200)
    with toolchain.threads_used(THREADS):
        total, _ = gh.scan(lambda s, x: (s + x, x @ s), gh.zeros((200, 200)), gh.tensor(xs))
        waiting = record.recorder.pending
        code = assemble(ProgramPlan(rewritten(graph_of(record.describe(waiting)))))
        (loop,) = [step.what for step in code.steps if isinstance(step.what, LoopCall)]
    assert loop.layout.lanes == 1
    np.testing.assert_allclose(total.numpy(), xs.sum(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length, lanes", [(1, 1), (2, 2), (3, 1), (6, 2), (7, 2), (100, 2)])
def test_cores_share_steps_where_few_would_wait(length, lanes):
    with toolchain.threads_used(THREADS):
        assert lanes_of(length) == lanes
