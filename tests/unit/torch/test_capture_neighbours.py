"""Neighbours of our capture in PyTorch: torch.compile, transforms, subclasses."""

import contextlib
import re
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import same_outcome  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import glasshouse as gh  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(3, 4)
W = torch.linspace(1, 2, 16).reshape(4, 4)


class Cube(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Cube.calls += 1
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 + 1


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        return super().__torch_function__(fn, types, args, kwargs or {})


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        result = fn(*args, **(kwargs or {}))
        return result * 2 if fn is torch.sin else result


def custom_function(x, w):
    return Cube.apply(x * 2) @ w


def transform_grad(x, w):
    return torch.func.grad(lambda z: (z @ w).sin().sum())(x) + 1


def transform_vmap(x, w):
    return torch.func.vmap(lambda row: row @ w)(x) * 2


def transform_jacobian(x, w):
    return torch.func.jacrev(lambda z: z**2)(x[0]) + w


def transform_call(x, w):
    layer = {"weight": w, "bias": x[0]}
    return torch.func.functional_call(LINEAR, layer, (x,))


LINEAR = nn.Linear(4, 4)


def checkpointed(x, w):
    return checkpoint(lambda z: (z @ w).relu(), x, use_reentrant=False) * 2


def subclass(x, w):
    return (x.as_subclass(Loud) @ w).as_subclass(torch.Tensor) + 1


def under_mode(x, w):
    with Doubling():
        return torch.sin(x) @ w


def forward_mode(x, w):
    return torch.func.jvp(lambda z: z @ w, (x,), (torch.ones_like(x),))


def sparse(x, w):
    return torch.sparse.mm(x.to_sparse(), w)


def complex_numbers(x, w):
    z = torch.complex(x, x + 1)
    return z.conj().real, torch.view_as_real(z * 2), z.abs() @ w


def compiled_inside(x, w):
    return COMPILED(x, w) + 1


COMPILED = torch.compile(lambda x, w: (x @ w).relu(), backend="eager")

NEIGHBOURS = [custom_function, transform_grad, transform_vmap, transform_jacobian, transform_call,
              checkpointed, subclass, under_mode, forward_mode, sparse, complex_numbers,
              compiled_inside]  # fmt: skip


@pytest.mark.parametrize("fn", NEIGHBOURS, ids=lambda fn: fn.__name__)
def test_captured_or_left_to_python(fn):
    same_outcome(fn, *[(X + i, W) for i in range(4)])


BACKWARD = [custom_function, transform_grad, checkpointed, subclass, compiled_inside]


@pytest.mark.parametrize("fn", BACKWARD, ids=lambda fn: fn.__name__)
def test_differentiated(fn):
    calls = [tuple(t.clone().requires_grad_() for t in (X + i, W)) for i in range(4)]
    same_outcome(fn, *calls, backward=True)


def test_python_of_a_custom_function_runs_in_each_call():
    captured = gh.optimize("eager")(custom_function)
    before = Cube.calls
    for _ in range(5):
        captured(X, W)
    assert Cube.calls - before == 5


def test_a_subclass_given_as_an_argument():
    calls = [(X.as_subclass(Loud), W)] * 3
    captured = gh.optimize("eager")(lambda x, w: x @ w + 1)
    for args in calls:
        assert type(captured(*args)) is Loud
    assert type(captured(X, W)) is torch.Tensor


def test_nothing_is_captured_under_a_mode():
    captured = gh.optimize("eager")(lambda x: torch.sin(x) + 1)
    plain = captured(X)
    captured(X)
    with Doubling():
        torch.testing.assert_close(captured(X), torch.sin(X) + 1)
    torch.testing.assert_close(captured(X), plain)


def test_inside_a_transform():
    captured = gh.optimize("eager")(lambda x: (x**3).sum())
    for _ in range(3):
        torch.testing.assert_close(torch.func.grad(captured)(X), 3 * X**2)
        torch.testing.assert_close(captured(X), (X**3).sum())


@pytest.mark.parametrize("ours_first", [True, False])
def test_beside_torch_compile(ours_first):
    def function(x, w):
        y = x @ w
        if y.sum() > 1e9:
            return y
        return F.gelu(y) * 2

    def theirs(x, w):
        y = x @ w
        if y.sum() > 1e9:
            return y
        return F.relu(y) * 3

    pair = [gh.optimize("eager")(function), torch.compile(theirs, backend="eager")]
    wanted = [function, theirs]
    order = (0, 1) if ours_first else (1, 0)
    for _ in range(3):
        for i in order:
            torch.testing.assert_close(pair[i](X, W), wanted[i](X, W))
    assert pair[0].hits == 2


@pytest.mark.parametrize("ours_outside", [True, False])
def test_torch_compile_inside_and_outside(ours_outside):
    inner_plain = lambda x: x.sin() * 2  # noqa: E731
    if ours_outside:
        inner = torch.compile(inner_plain, backend="eager")
        outer = gh.optimize("eager")(lambda x: inner(x + 1) - 1)
    else:
        inner = gh.optimize("eager")(inner_plain)
        outer = torch.compile(lambda x: inner(x + 1) - 1, backend="eager")
    for i in range(3):
        torch.testing.assert_close(outer(X + i), inner_plain(X + i + 1) - 1)


def test_a_module_that_was_compiled():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module.compile(backend="eager")
    captured = gh.optimize("eager")(lambda m, x: m(x) + 1)
    for _ in range(3):
        torch.testing.assert_close(captured(module, X), module(X) + 1)


def test_compilers_made_for_torch_compile():
    log = []

    def compiler(gm, example_inputs):
        log.append((type(gm).__mro__, [n.op for n in gm.graph.nodes], len(example_inputs)))
        return gm.forward

    captured = gh.optimize(compiler)(lambda x, w: (x @ w).relu())
    for _ in range(3):
        torch.testing.assert_close(captured(X, W), (X @ W).relu())
    ((kinds, ops, count),) = log
    assert torch.fx.GraphModule in kinds and count == 2
    assert sorted(ops) == ["call_function", "call_method", "output", "placeholder", "placeholder"]


def test_a_compiler_that_says_so_gets_our_graph():
    from glasshouse.ir.graph_module import GraphModule

    log = []

    def compiler(graph_module: GraphModule, example_inputs):
        log.append(graph_module)
        return graph_module.forward

    captured = gh.optimize(compiler)(lambda x, w: x @ w)
    torch.testing.assert_close(captured(X, W), X @ W)
    assert isinstance(log[0], GraphModule)


def test_a_compiler_that_raises_falls_back_with_one_warning():
    def compiler(gm, example_inputs):
        raise RuntimeError("no")

    captured = gh.optimize(compiler)(lambda x, w: x @ w)
    with pytest.warns(UserWarning, match="no"):
        captured(X, W)
    torch.testing.assert_close(captured(X, W), X @ W)


@pytest.mark.parametrize("name", ["aot_eager", "program"])
def test_inputs_that_share_memory_only_later(name):
    def function(a, b):
        a.add_(1)
        return a * b

    captured = gh.optimize(name)(function)
    for make in (lambda: (X.clone(), X.clone()), lambda: (X.clone(), X.clone())):
        torch.testing.assert_close(captured(*make()), function(*make()))
    x, y = X.clone(), X.clone()
    torch.testing.assert_close(captured(x, x), function(y, y))
    whole, other = torch.ones(6, 4), torch.ones(6, 4)
    got, want = captured(whole[:3], whole[1:4]), function(other[:3], other[1:4])
    torch.testing.assert_close(got, want)


def test_hooks_of_tensors_and_gradients_run():
    log = []

    def function(x, w):
        y = x @ w
        y.register_hook(lambda g: log.append(tuple(g.shape)))
        return y.sum()

    captured = gh.optimize("eager")(function)
    for _ in range(3):
        x = X.clone().requires_grad_()
        captured(x, W).backward()
        torch.testing.assert_close(x.grad, torch.ones(3, 4) @ W.T)
    assert log == [(3, 4)] * 3


def test_explain_and_counts():
    def function(x, w):
        y = x @ w
        print(end="")
        return y + 1

    text = str(gh.explain(function, X, W))
    assert "call of print" in text
    with pytest.raises(gh.CaptureError, match="print"):
        gh.optimize("eager", nopython=True)(function)(X, W)


def test_disable_run_and_skip():
    captured = gh.optimize("eager")(lambda x: x + 1)
    with gh.disable():
        captured(X)
    assert not captured.capture.entries
    with gh.run():
        captured(X)
    assert not captured.capture.entries
    captured(X)
    assert captured.capture.entries


# -- who else watches ------------------------------------------------------------------------------


class Coverage:
    """A stand-in for a debugger or a coverage tool: it is told of each line."""

    def __init__(self):
        self.lines = set()

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename == __file__:
            self.lines.add((frame.f_code.co_name, event))
        return self

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self)

    def __exit__(self, *error):
        sys.settrace(self.before)


def torch_profiler():
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])


def layered(x, w):
    y = (x @ w).relu()
    if y.sum() > 1e9:
        return y
    return y * 2


WATCHERS = {"coverage": Coverage, "torch.profiler": torch_profiler, "gh.profile": gh.profile,
            "gh.FlopCounter": gh.FlopCounter}  # fmt: skip


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", WATCHERS)
def test_beside_those_who_watch(name, first):
    captured, want = gh.optimize("eager")(layered), layered(X, W)
    for round_ in range(4):
        watched = (round_ % 2 == 0) is first
        with WATCHERS[name]() if watched else contextlib.nullcontext():
            for _ in range(3):
                torch.testing.assert_close(captured(X, W), want)
    assert captured.capture.entries and captured.hits >= 4


@pytest.mark.parametrize("ours_outside", [True, False])
def test_profilers_within_one_another(ours_outside):
    captured, want = gh.optimize("eager")(layered), layered(X, W)
    captured(X, W)
    ours, theirs = gh.profile(), torch_profiler()
    with ours if ours_outside else theirs:
        with theirs if ours_outside else ours:
            got = captured(X, W)
        torch.testing.assert_close(captured(X, W), want)
    torch.testing.assert_close(got, want)
    assert any("mm" in event.key for event in theirs.key_averages())
    assert re.search(r"[1-9]\d* events", str(ours))
    torch.testing.assert_close(captured(X, W), want)


def test_a_failing_guard_is_told_and_captured_again():
    captured = gh.optimize("eager")(lambda x: x * 2)
    inputs = [X, X.double(), X.t(), X[:2], X.clone().requires_grad_(), X.to("meta")]
    for x in (*inputs, *inputs):
        got = captured(x)
        want = x * 2
        assert (got.shape, got.dtype, got.stride(), got.device, got.requires_grad) == (
            want.shape, want.dtype, want.stride(), want.device, want.requires_grad
        )  # fmt: skip
    assert len(captured.capture.entries) == captured.hits == len(inputs)
    assert len(captured.capture.recompiles) >= 4


def test_export_gives_one_graph():
    graph, _ = gh.export(lambda x, w: (x @ w).relu() + 1, X, W)
    torch.testing.assert_close(graph(X, W), (X @ W).relu() + 1)
    torch.testing.assert_close(graph(X * 2, W), (X * 2 @ W).relu() + 1)


def test_modules_are_made_inside_behind_torch_compile():
    torch.compile(nn.Linear(4, 4), backend="eager")(X)  # TorchDynamo has Module.__init__ tell it

    @gh.optimize("eager", nopython=True)
    def loss(x):
        return nn.MSELoss()(x, x + 1)

    assert loss(X) == loss(X) == 1
