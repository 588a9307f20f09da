"""Elementwise recomputation: what is dropped, and that values stay."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.bind import state
from glasshouse.graph.graph import graph_of, run, verify
from glasshouse.graph.recompute import recompute
from glasshouse.graph.record import recorder
from glasshouse.graph.simplify import PASSES


class Net(gh.nn.Module):
    """Large activations behind products, a norm, dropout."""

    def __init__(self):
        super().__init__()
        self.a, self.b = gh.nn.Linear(256, 512), gh.nn.Linear(512, 256)
        self.norm, self.drop = gh.nn.LayerNorm(512), gh.nn.Dropout(0.2)

    def forward(self, x):
        return x + self.b(self.drop(gh.nn.functional.gelu(self.norm(self.a(x)))))


def recording():
    """The recording of a step, and its graph after the other passes."""
    gh.random.seed(0)
    model = gh.nn.Sequential(Net(), Net())
    x = gh.asarray(np.random.default_rng(0).standard_normal((64, 256)).astype("float32"))
    gh.eval(x, *model.parameters())
    gh.nn.functional.mse_loss(model(x), x).backward()
    grads = [p.grad for p in model.parameters()]
    found = recorder.take()
    graph = graph_of(found)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    return found, graph, grads


def test_values_are_the_same():
    found, graph, grads = recording()
    thrifty = recompute(graph, ("Sequential",))
    verify(thrifty)
    arrays = [leaf.value for leaf in found.leaves]
    plain, again = (run(g, arrays, found.scalars) for g in (graph, thrifty))
    assert all(np.array_equal(a, b) for a, b in zip(plain, again, strict=True))
    assert len(thrifty.nodes) > len(graph.nodes) and grads


def test_products_are_not_computed_again():
    _, graph, _grads = recording()
    thrifty = recompute(graph, ("Sequential",))
    count = [sum(n.op == "matmul" for n in g.nodes) for g in (graph, thrifty)]
    assert count[0] == count[1]
    again = [n for n in thrifty.nodes if n.origin.phase == "recompute"]
    assert again and all(n.origin.module.startswith("Sequential") for n in again)


def test_scores_of_attention_are_made_again_and_values_stay():
    gh.random.seed(0)
    layer = gh.nn.MultiheadAttention(64, 2, dropout=0.1, batch_first=True)
    x = gh.asarray(np.random.default_rng(0).standard_normal((2, 96, 64)).astype("float32"))
    gh.eval(x, *layer.parameters())
    gh.mean(layer(x, x, x)[0] ** 2).backward()
    grads = [p.grad for p in layer.parameters()]
    found = recorder.take()
    graph = graph_of(found)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    thrifty = recompute(graph, ("MultiheadAttention",))
    verify(thrifty)
    again = [n for n in thrifty.nodes if n.origin.phase == "recompute"]
    assert [n.shape for n in again if n.op == "matmul"] == [(2, 2, 96, 96)]
    read = {x.number for n in thrifty.nodes if n.origin.phase == "backward" for x in n.inputs}
    kept = [n for n in thrifty.nodes if n.origin.phase == "forward" and n.number in read]
    large = {n.op for n in kept if n.shape == (2, 2, 96, 96)}
    assert large <= {"full", "expand", "less"} and grads  # the mask of the dropout stays
    arrays = [leaf.value for leaf in found.leaves]
    plain, planned = (run(g, arrays, found.scalars) for g in (graph, thrifty))
    assert all(np.array_equal(a, b) for a, b in zip(plain, planned, strict=True))


def test_other_modules_are_left_alone():
    _, graph, _grads = recording()
    assert recompute(graph, ()) is graph and recompute(graph, ("Other",)) is graph
    half = recompute(graph, ("Sequential.0",))
    modules = {n.origin.module for n in half.nodes if n.origin.phase == "recompute"}
    assert modules and all(m.startswith("Sequential.0") for m in modules)


@pytest.mark.parametrize("modules", [("Sequential",), ("Sequential.1",)])
def test_training_is_the_same_compiled(modules):
    results = []
    for chosen in ((), modules):
        gh.random.seed(0)
        model = gh.nn.Sequential(Net(), Net())
        opt = gh.optim.SGD(model.parameters(), lr=0.1)
        x = gh.asarray(np.random.default_rng(0).standard_normal((64, 256)).astype("float32"))
        state.recompute = chosen
        try:
            with flags.override(compile="always"):
                for _ in range(3):
                    opt.zero_grad()
                    loss = gh.nn.functional.mse_loss(model(x), x)
                    loss.backward()
                    opt.step()
                results.append([loss.numpy(), *(p.numpy() for p in model.parameters())])
        finally:
            state.recompute = ()
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
