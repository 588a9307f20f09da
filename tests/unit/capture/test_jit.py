"""gh.jit: one Program for each kind of arguments, and what it leaves to `optimize`."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.capture import jit as jit_module
from glasshouse.compile.planning.plan import rewritten
from glasshouse.compile.programs.program import compiled_graph
from glasshouse.compile.programs.run_memory import OWN_ARENA_BYTES
from glasshouse.graph.graph import graph_of_body


def loss(w, x):
    def step(h, row):
        h = gh.tanh(h @ w + row)
        return h, h

    h, _ = gh.scan(step, gh.zeros(3), x)
    return gh.cond(h.sum() > 0, lambda: (h * h).sum(), lambda: -h.sum())


W, X = gh.random.normal((3, 3)), gh.random.normal((5, 3))


def test_a_step_with_gradients_is_one_program():
    step = gh.jit(gh.value_and_grad(loss))
    for _ in range(3):
        value, slope = step(W, X)
        expected, expected_slope = gh.value_and_grad(loss)(W, X)
        np.testing.assert_allclose(value.numpy(), expected.numpy(), rtol=1e-5)
        np.testing.assert_allclose(slope.numpy(), expected_slope.numpy(), rtol=1e-4, atol=1e-6)
    (result,) = step.programs.values()
    assert not step.reason and not result.program.hosts


def test_the_function_is_called_once_for_each_kind_of_arguments():
    calls = []

    @gh.jit
    def fn(tree, scale=1.0):
        calls.append(scale)
        return {"y": tree["x"] * scale, "same": None, "name": "a"}

    for size in (2, 2, 3):
        assert fn({"x": gh.ones(size)})["y"].tolist() == [1.0] * size
    assert fn({"x": gh.ones(2)}, scale=3)["y"].tolist() == [3.0, 3.0]
    assert fn({"x": np.ones(2, np.float32)})["name"] == "a"
    assert calls == [1.0, 1.0, 3]


def test_static_arguments_are_part_of_the_program():
    @gh.jit(static_argnums=1, static_argnames="how")
    def power(x, n, how="up"):
        for _ in range(n):
            x = x * x if how == "up" else -x
        return x

    pow2 = gh.jit(lambda x, n: x**n, static_argnums=(1,))
    assert power(gh.tensor(2.0), 2).item() == 16.0
    assert power(gh.tensor(2.0), n=1).item() == 4.0
    assert power(gh.tensor(2.0), 3, how="down").item() == -2.0
    assert pow2(gh.tensor(3.0), 2).item() == 9.0


def test_closed_over_tensors_are_read_in_each_call():
    scale = gh.tensor(2.0)
    fn = gh.jit(lambda x: x * scale)
    assert fn(gh.tensor(3.0)).item() == 6.0
    scale += 1
    assert fn(gh.tensor(3.0)).item() == 9.0


def test_functions_that_trace_cannot_say_are_captured():
    total = gh.zeros(())

    @gh.jit
    def adding(x):
        total.copy_(total + x)
        return total * 1

    assert [adding(gh.tensor(1.0)).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert adding.reason

    clipped = gh.jit(lambda x: x if x > 0 else -x)
    assert [clipped(gh.tensor(v)).item() for v in (1.0, -2.0, 3.0)] == [1.0, 2.0, 3.0]

    w = gh.tensor(2.0, requires_grad=True)
    gh.jit(lambda x: w * x)(gh.tensor(3.0)).backward()
    assert w.grad.item() == 3.0


def test_draws_are_those_of_plain_python():
    def draw(x):
        return x + gh.random.normal((2,))

    gh.random.seed(0)
    expected = [draw(gh.zeros(2)).tolist() for _ in range(3)]
    gh.random.seed(0)
    captured = gh.jit(draw)
    results = [captured(gh.zeros(2)).tolist() for _ in range(3)]
    np.testing.assert_allclose(results, expected, rtol=1e-5)


def test_inside_a_transform_it_runs_as_it_is():
    square = gh.jit(lambda x: x * x)
    assert gh.grad(square)(gh.tensor(3.0)).item() == 6.0
    assert gh.vmap(square)(gh.tensor([1.0, 2.0])).tolist() == [1.0, 4.0]
    assert gh.jit(gh.vmap(gh.grad(square)))(gh.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_an_index_out_of_range_is_named():
    fn = gh.jit(lambda x, i: gh.take(x, i, axis=0))
    assert fn(gh.tensor([1.0, 2.0]), gh.tensor([1])).tolist() == [2.0]
    with pytest.raises(gh.IndexOutOfRangeError, match="7"):
        fn(gh.tensor([1.0, 2.0]), gh.tensor([7])).tolist()


def test_errors_are_those_of_the_function():
    with pytest.raises(gh.ShapeError, match="matmul"):
        gh.jit(lambda x: x @ gh.zeros(4))(gh.zeros(3))
    with pytest.raises(gh.OptionError, match="a function"):
        gh.jit(3)


def test_many_numbers_end_in_capture(monkeypatch):
    monkeypatch.setattr(jit_module, "MOST_PROGRAMS", 3)
    fn = gh.jit(lambda x, n: x + n)
    assert [fn(gh.tensor(1.0), n).item() for n in range(6)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert "kinds" in fn.reason


def test_make_graph_shows_the_primitives():
    graph = gh.make_graph(lambda x: gh.while_loop(lambda c: c < 1, lambda c: c + x, x))
    assert "scan" in str(graph(gh.tensor(0.5)))
    assert "tanh" in str(gh.make_graph(gh.grad(gh.tanh))(gh.tensor(0.5)))


def test_the_memory_that_stays_with_a_program_counts(monkeypatch):
    monkeypatch.setattr(jit_module, "SMALL", 1 << 22)
    fn = gh.jit(lambda x: gh.softmax(x @ x, -1).sum(0) @ x)
    fn(gh.ones((160, 160)))
    (result,) = fn.programs.values()
    program, body = result.program, result.function.body
    assert OWN_ARENA_BYTES < program.arena_bytes <= jit_module.SMALL
    assert program.memory.own.nbytes == program.memory.nbytes == program.arena_bytes
    other = compiled_graph(rewritten(graph_of_body(body, body.outputs)))
    assert program.nbytes == other.nbytes + program.arena_bytes
