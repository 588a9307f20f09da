"""Views of captured Programs: FLOPs, profiles, explanations."""

import copy

import numpy as np
import pytest
from checking import X

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.nn import functional as F


def Y(n, seed=1):
    """Labels."""
    return gh.asarray(np.random.default_rng(seed).integers(0, 3, n).astype("int64"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


def conv():
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


class Broken(Net):
    def forward(self, x):
        y = self.body(x)
        gh.graph_break()
        return self.head(y)


def forward(model, opt, x, y):
    return model(x)


def step(model, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss


def forward_backward(model, opt, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


FACTS = {
    "total": lambda fc: fc.total(),
    "executed": lambda fc: fc.total("all", "executed"),
    "phases": lambda fc: fc.by_phase(),
    "modules": lambda fc: fc.by_module(),
    "operators": lambda fc: fc.by_operator(),
}


def setup(make):
    model = make()
    return model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9), X(8, 4), Y(8)


@pytest.mark.sample(35)
@pytest.mark.parametrize("fact", ["total", "phases", "modules", "operators", "executed"])
@pytest.mark.parametrize("make", [Net, conv])
@pytest.mark.parametrize("fn", [forward, step, forward_backward], ids=lambda f: f.__name__)
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_flops(fn, make, compiler, fact):
    plain = setup(make)
    captured = copy.deepcopy(plain)
    fast = gh.optimize(compiler)(fn)
    for _ in range(4):
        with gh.FlopCounter(plain[0]) as wanted:
            fn(*plain)
        with gh.FlopCounter(captured[0]) as got:
            fast(*captured)
        assert FACTS[fact](got) == FACTS[fact](wanted)
    assert wanted.total() > 0


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_flops_with_the_backward_outside(compiler):
    plain = setup(Net)
    model = copy.deepcopy(plain[0])
    fast = gh.optimize(compiler)(model)
    for _ in range(4):
        with gh.FlopCounter() as wanted:
            F.cross_entropy(plain[0](plain[2]), plain[3]).backward()
        with gh.FlopCounter() as got:
            F.cross_entropy(fast(plain[2]), plain[3]).backward()
        assert got.by_phase() == wanted.by_phase()
        assert got.total() == wanted.total()


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_flops_with_breaks(compiler):
    plain = setup(Broken)
    captured = copy.deepcopy(plain)
    fast = gh.optimize(compiler)(step)
    for _ in range(4):
        with gh.FlopCounter() as wanted:
            step(*plain)
        with gh.FlopCounter() as got:
            fast(*captured)
        assert got.total() == wanted.total()


def test_op_callback_is_told_at_capture_as_in_python():
    plain = setup(Net)
    captured = copy.deepcopy(plain)
    fast = gh.optimize("eager")(forward)
    for _ in range(3):
        log = []
        for call, args in ((forward, plain), (fast, captured)):
            names = []
            handle = gh.add_op_callback(lambda *a, names=names: names.append(str(a[0])))
            call(*args)
            handle.remove()
            log.append(names)
        assert len(log[0]) == len(log[1]) > 0


@pytest.mark.parametrize("fn", [forward, step], ids=lambda f: f.__name__)
def test_profile_records_programs(fn):
    args = setup(Net)
    fast = gh.optimize("program")(fn)
    for _ in range(3):
        fast(*args)
    with gh.profile() as prof:
        for _ in range(2):
            fast(*args)
    text = str(prof.modules())
    assert "Linear" in text or "head" in text
    averages = prof.key_averages()
    assert len(str(averages.table())) > 0
    assert "kernel" in str(averages.table())


def test_profile_names_modules_of_captured_programs():
    args = setup(Net)
    fast = gh.optimize("program")(step)
    for _ in range(3):
        fast(*args)
    with gh.profile() as prof:
        fast(*args)
    text = str(prof.modules())
    assert "head" in text
    assert "body" in text


def test_profile_while_capturing():
    args = setup(Net)
    fast = gh.optimize("program")(step)
    with gh.profile(record_shapes=True, profile_memory=True) as prof:
        for _ in range(3):
            fast(*args)
    assert str(prof.key_averages().table())


def test_profiler_trace_is_written(tmp_path):
    args = setup(Net)
    fast = gh.optimize("program")(step)
    fast(*args), fast(*args)
    with gh.profile() as prof:
        fast(*args)
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    assert path.stat().st_size > 1000


def test_record_function_inside():
    def fn(x):
        with gh.record_function("my part"):
            y = gh.sin(x)
        return y * 2

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        np.testing.assert_allclose(fast(X(3)).numpy(), fn(X(3)).numpy(), rtol=1e-5)
    with gh.profile() as prof:
        fast(X(3))
    assert "my part" in str(prof.key_averages().table()) or "my part" in str(prof.key_averages())


def test_explain_shows_what_to_do():
    def fn(x):
        y = gh.sin(x)
        n = y.sum().item()
        print("n")
        return y * n

    explanation = gh.explain(fn, X(3))
    text = str(explanation)
    first = fn.__code__.co_firstlineno
    assert f"test_behaviour_seen.py:{first + 2}" in text
    for word in ("captured", "operations", "guards", "capture", "compile", "ends with", "breaks"):
        assert word in text
    lines = text.splitlines()
    assert lines[0].startswith(fn.__qualname__)
    assert any("item" in line for line in lines)
    assert any("x.spec == float32[3]" in guard for guard in explanation.guards)


def test_explain_shows_recompiles():
    def fn(parts):
        return [scaled(p, k) for p, k in parts]

    def scaled(x, k):
        gh.graph_break()
        return x * len(k)

    explanation = gh.explain(fn, [(X(3), "a"), (X(3), "bb")])
    assert str(explanation)
    np.testing.assert_allclose(explanation.result[1].numpy(), X(3).numpy() * 2, rtol=1e-6)


def test_graph_nodes_know_lines_and_specs():
    explanation = gh.explain(lambda x: gh.sin(x) * 2, X(3))
    (graph,) = explanation.graphs
    calls = [n for n in graph.graph.nodes if n.op == "call_function"]
    line = f"test_behaviour_seen.py:{test_graph_nodes_know_lines_and_specs.__code__.co_firstlineno}"
    for node in calls:
        path, _, number = node.meta["line"].rpartition(":")
        assert path.endswith("test_behaviour_seen.py")
        assert int(number) - int(line.rpartition(":")[2]) == 1
        assert node.meta["spec"] == gh.sin(X(3)).spec


@pytest.mark.parametrize("flag", ["captures", "graphs", "operations"])
def test_counters_of_a_step(flag):
    args = setup(Net)
    fast = gh.optimize("eager")(step)
    for _ in range(3):
        fast(*args)
    warm = gh.capture.counters[flag]
    for _ in range(5):
        fast(*args)
    assert gh.capture.counters[flag] == warm > 0
