"""Reproduction scripts: what is in them, that they fail as the compiler did, their size."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checking import X

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import OptionError
from glasshouse.capture.sessions.reproduce import Reproduction, minimise

HERE = Path(__file__).parent


def no_tanh(graph_module, example_inputs):
    """A compiler that fails on one primitive."""
    for node in graph_module.graph.nodes:
        if getattr(node.target, "__name__", "") == "tanh":
            raise NotImplementedError(f"no tanh: {node.name}")
    return graph_module.forward


def wrong_sin(graph_module, example_inputs):
    """A compiler that gives wrong numbers for one operation."""
    nodes = [n for n in graph_module.graph.nodes if getattr(n.target, "__name__", "") == "sin"]
    for node in nodes:
        node.target = gh.cos
    return graph_module.recompile().forward if nodes else graph_module.forward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)
        self.scale = nn.Parameter(X(4))

    def forward(self, x, n=2):
        h = gh.exp(self.a(x) * n)
        h = gh.concat([h, h])[:3] @ gh.ones((8, 8)).astype(gh.float32)
        h = gh.tanh(h)
        with gh.no_grad():
            k = gh.sin(h).sum(axis=0)
        return (self.b(h + k) * self.scale).sum()


def calls_of(path: Path) -> list[str]:
    """The operations of a script's graph."""
    tree = ast.parse(path.read_text())
    model = next(x for x in tree.body if isinstance(x, ast.ClassDef))
    forward = next(x for x in model.body if getattr(x, "name", "") == "forward")
    calls = [x.value for x in forward.body if isinstance(x, ast.Assign)]
    return [ast.unparse(x.func) for x in calls if isinstance(x, ast.Call)]


def run_script(path: Path):
    """A script run on its own."""
    where = os.pathsep.join(map(str, (Path(gh.__file__).parents[1], HERE, HERE.parents[2])))
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_script_of_a_compiler_that_fails_on_one_primitive(tmp_path):
    path = gh.capture.write_reproduction(
        Net(), X(2, 4), compiler=no_tanh, path=tmp_path / "shown" / "small.py"
    )
    assert calls_of(path) == ["F.tanh"]
    assert "1 of its" in path.read_text()
    code, text = run_script(path)
    assert code == 1
    assert text.rstrip().splitlines()[-1].startswith("NotImplementedError: no tanh")


@pytest.mark.slow
def test_script_of_a_compiler_that_gives_wrong_numbers(tmp_path):
    path = gh.capture.write_reproduction(
        Net(), X(2, 4), compiler=wrong_sin, path=tmp_path / "wrong.py"
    )
    assert calls_of(path) == ["gh.sin"]
    assert "wrong numbers" in path.read_text()
    code, text = run_script(path)
    assert code == 1
    assert "AssertionError" in text


@pytest.mark.slow
def test_script_of_a_compiler_that_does_not_fail(tmp_path):
    model = Net()
    path = gh.capture.write_reproduction(model, X(2, 4), compiler="eager", path=tmp_path / "x.py")
    assert "does not fail" in path.read_text()
    assert len(calls_of(path)) > 10
    assert run_script(path) == (0, "")


def test_script_is_written_when_a_compiler_raises(tmp_path):
    fast = gh.optimize(no_tanh)(Net())
    with (
        gh.capture.config.override(repro_dir=str(tmp_path)),
        pytest.warns(UserWarning, match="no tanh"),
    ):
        want = fast(X(2, 4))
        fast(X(3, 4))
    (path,) = tmp_path.iterdir()
    assert calls_of(path) == ["F.tanh"]
    np.testing.assert_allclose(fast(X(2, 4)).numpy(), want.numpy(), rtol=1e-5)


def test_script_is_written_when_the_error_is_raised(tmp_path):
    @gh.optimize(no_tanh)
    def fn(x):
        gh.graph_break()
        return gh.tanh(x + 1)

    with (
        gh.capture.config.override(repro_dir=str(tmp_path), raise_compiler_errors=True),
        pytest.raises(NotImplementedError),
    ):
        fn(X(3))
    (path,) = tmp_path.iterdir()
    assert calls_of(path) == ["F.tanh"]


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="no tanh"):
        gh.optimize(no_tanh)(Net())(X(2, 4))
    assert not list(tmp_path.iterdir())


def test_writing_leaves_the_library_as_it_was(tmp_path):
    one = Reproduction(
        *graph_of(lambda x: gh.tanh(nn.functional.dropout(x, 0.5)), X(3)), no_tanh, "f"
    )
    gh.random.seed(7)
    state, counted = gh.random.default_generator().state(), dict(gh.capture.counters)
    with gh.no_grad():
        assert one.outcome(one.calls) == "NotImplementedError"
        assert not gh.is_grad_enabled()
    assert dict(gh.capture.counters) == counted
    assert gh.random.default_generator().state() == state


def graph_of(fn, *args):
    """(graph module, inputs) of a function."""
    results = []

    def keep(graph_module, example_inputs):
        results.append((graph_module, list(example_inputs)))
        return graph_module.forward

    gh.optimize(keep)(fn)(*args)
    return results[0]


@pytest.mark.slow
def test_inputs_are_like_those_that_were_given(tmp_path):
    def fn(x, i, mask, w):
        return gh.where(mask, gh.take(x, i, axis=0) * w, 0.0)

    args = X(9, 2), gh.asarray([3, 8]), gh.asarray([True]), X(2).requires_grad_()
    path = gh.capture.write_reproduction(fn, *args, compiler="eager", path=tmp_path / "x.py")
    text = path.read_text()
    assert 'sample(rng, (2,), "int64", 3, 8)' in text
    assert 'sample(rng, (2,), "float32").requires_grad_()' in text
    assert run_script(path) == (0, "")


def test_unknown_compiler(tmp_path):
    with pytest.raises(OptionError, match="compiler"):
        gh.capture.write_reproduction(Net(), X(2, 4), compiler="no such", path=tmp_path / "x.py")


def test_function_without_a_graph(tmp_path):
    with pytest.raises(gh.CaptureError, match="write_reproduction"):
        gh.capture.write_reproduction(lambda x: x, X(2), path=tmp_path / "x.py")


@pytest.mark.parametrize("wanted", [{3}, {0, 99}, {10, 11, 12}, {5, 50, 95}])
def test_minimise_finds_what_is_needed(wanted):
    tried = []

    def fails(items):
        tried.append(items)
        return wanted <= set(items)

    assert set(minimise(list(range(100)), fails)) == wanted
    assert len(tried) < 200


@pytest.mark.slow
def test_local_compiler_comes_with_its_source(tmp_path):
    def local(graph_module, example_inputs):
        raise RuntimeError("never")

    path = gh.capture.write_reproduction(Net(), X(2, 4), compiler=local, path=tmp_path / "x.py")
    assert len(calls_of(path)) == 1
    code, text = run_script(path)
    assert code == 1
    assert "RuntimeError: never" in text


@pytest.mark.slow
def test_script_of_a_training_step(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    opt = gh.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    x, y, path = X(5, 4), gh.asarray([0, 1, 2, 0, 1]), tmp_path / "step.py"
    gh.capture.write_reproduction(step, x, y, compiler=no_backward, path=path)
    layer, *rest = calls_of(path)
    assert layer.startswith("self.model")
    assert rest == ["F.cross_entropy", "cross_entropy.backward"]
    code, text = run_script(path)
    assert code == 1
    assert "RuntimeError: no backward" in text
    gh.capture.write_reproduction(step, x, y, path=path)
    assert "does not fail" in path.read_text()
    assert run_script(path) == (0, "")


def no_backward(graph_module, example_inputs):
    if graph_module.graph.find("call_method", "backward"):
        raise RuntimeError("no backward")
    return graph_module.forward
