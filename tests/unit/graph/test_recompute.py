"""Elementwise recomputation: what is dropped, and that values stay."""

import functools
import operator
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.capture.programs.split import split
from glasshouse.compile.programs.binding import SourceKind
from glasshouse.dispatch.bind import state
from glasshouse.graph.graph import graph_of, is_backward, needed_nodes, run, verify
from glasshouse.graph.recompute.recompute import recompute
from glasshouse.graph.recompute.request import (
    ElementwiseWork,
    RecomputeRequest,
    ValueName,
    requesting,
)
from glasshouse.graph.recompute.rerun import is_within, rerun
from glasshouse.graph.recompute.values import names_of
from glasshouse.graph.record import recorder
from glasshouse.graph.simplify import PASSES


class Net(gh.nn.Module):
    """Large activations after products, a norm, dropout."""

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
    result = recorder.take()
    graph = graph_of(result)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    return result, graph, grads


def elementwise(*paths: str) -> RecomputeRequest:
    return RecomputeRequest(elementwise=tuple(map(ElementwiseWork, paths)))


def test_values_are_the_same():
    result, graph, grads = recording()
    thrifty = recompute(graph, elementwise("Sequential"))
    verify(thrifty)
    arrays = [leaf.value for leaf in result.leaves]
    plain, again = (run(g, arrays, result.scalars) for g in (graph, thrifty))
    assert all(np.array_equal(a, b) for a, b in zip(plain, again, strict=True))
    assert len(thrifty.nodes) > len(graph.nodes) and grads


def test_products_are_not_computed_again():
    _, graph, _grads = recording()
    thrifty = recompute(graph, elementwise("Sequential"))
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
    result = recorder.take()
    graph = graph_of(result)
    for _, rewrite in PASSES:
        graph = rewrite(graph)
    thrifty = recompute(graph, elementwise("MultiheadAttention"))
    verify(thrifty)
    again = [n for n in thrifty.nodes if n.origin.phase == "recompute"]
    assert [n.shape for n in again if n.op == "matmul"] == [(2, 2, 96, 96)]
    read = {x.number for n in thrifty.nodes if n.origin.phase == "backward" for x in n.inputs}
    kept = [n for n in thrifty.nodes if n.origin.phase == "forward" and n.number in read]
    large = {n.op for n in kept if n.shape == (2, 2, 96, 96)}
    assert large <= {"full", "expand", "less"} and grads  # the mask of the dropout stays
    arrays = [leaf.value for leaf in result.leaves]
    plain, planned = (run(g, arrays, result.scalars) for g in (graph, thrifty))
    assert all(np.array_equal(a, b) for a, b in zip(plain, planned, strict=True))


def test_other_modules_are_left_alone():
    _, graph, _grads = recording()
    assert (
        recompute(graph, elementwise()) is graph and recompute(graph, elementwise("Other")) is graph
    )
    half = recompute(graph, elementwise("Sequential.0"))
    modules = {n.origin.module for n in half.nodes if n.origin.phase == "recompute"}
    assert modules and all(m.startswith("Sequential.0") for m in modules)


@pytest.mark.slow
@pytest.mark.parametrize("modules", [("Sequential",), ("Sequential.1",)])
def test_training_is_the_same_compiled(modules):
    results = []
    for chosen in (None, elementwise(*modules)):
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
            state.recompute = None
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def computed(graph, result) -> list:
    verify(graph)
    return run(graph, [leaf.value for leaf in result.leaves], result.scalars)


@pytest.mark.parametrize("whole", [("Sequential.0",), ("Sequential.0", "Sequential.1"), ("Other",)])
def test_whole_modules_compute_again_as_checkpoints_do(whole):
    """Each product of theirs once more, and nothing that only their forward pass needs is read."""
    result, graph, grads = recording()
    again = rerun(graph, whole)
    assert all(map(np.array_equal, computed(graph, result), computed(again, result))) and grads
    copies = [n for n in again.nodes if n.origin.phase == "recompute"]
    ours = [w for w in whole if w != "Other"]
    assert {n.origin.module.rpartition(".")[0] for n in copies if n.op == "matmul"} <= set(ours)
    assert all(is_within(n.origin.module, whole) for n in copies) and bool(copies) == bool(ours)
    for home in whole:
        ours = [n for n in again.nodes if is_within(n.origin.module, (home,)) and n.inputs]
        read = [x for n in ours if is_backward(n) for x in n.inputs]
        assert not [x for x in read if x in ours and not is_backward(x)]


def test_named_values_are_made_of_what_is_kept():
    result, graph, grads = recording()
    names = {name: n for n, name in names_of(needed_nodes(graph)).items()}
    first = ValueName("Sequential.0.a", "matmul", 0)
    assert first in names and len(names) == len(set(names.values()))
    with requesting(RecomputeRequest(remade=(first,))):
        thrifty = recompute(graph)
    assert all(map(np.array_equal, computed(graph, result), computed(thrifty, result))) and grads
    count = [sum(n.op == "matmul" for n in g.nodes) for g in (graph, thrifty)]
    assert count[1] == count[0] + 1
    behind = ValueName("Sequential.0", "add", 0)
    with requesting(RecomputeRequest(remade=(behind,), kept=(first,))):
        kept = recompute(graph)
    assert all(map(np.array_equal, computed(graph, result), computed(kept, result)))


@pytest.mark.parametrize("count", [1, 5, 9])
def test_halves_compute_what_the_whole_did(count):
    """The second one from inputs and from what the first one gives."""
    result, graph, grads = recording()
    arrays = [leaf.value for leaf in result.leaves]
    whole = computed(graph, result)
    assert 0 < count < len(whole) and grads
    first, second = split(graph, count)
    verify(first.graph), verify(second.graph)
    assert {source.kind for source in first.sources} == {SourceKind.INPUT}
    saved_values = run(
        first.graph, [arrays[source.what] for source in first.sources], result.scalars
    )
    values = {SourceKind.INPUT: arrays, SourceKind.OUTPUT: saved_values}
    taken = [values[source.kind][source.what] for source in second.sources]
    rest = run(second.graph, taken, result.scalars)
    assert all(map(np.array_equal, whole, [*saved_values[:count], *rest]))
    ops = [n for half in (first, second) for n in half.graph.nodes if n.op in ("matmul", "sum")]
    assert len(ops) == sum(n.op in ("matmul", "sum") for n in needed_nodes(graph))


@pytest.mark.slow
def test_long_chains_are_made_again():
    """Of more values than Python may call itself."""
    x = gh.asarray(np.linspace(0.1, 1, 1 << 15, dtype="float32")).requires_grad_()
    gh.eval(x)
    y = x
    for _ in range(1500):
        y = gh.sin(y)
    y.sum().backward()
    result = recorder.take()
    graph = graph_of(result)
    names = [n for n in names_of(needed_nodes(graph)).values() if n.primitive == "sin"]
    with requesting(RecomputeRequest(remade=tuple(names[1:]))):
        thrifty = recompute(graph)
    assert len(thrifty.nodes) >= len(graph.nodes) + 1400 and x.grad is not None
    assert all(map(np.array_equal, computed(graph, result), computed(thrifty, result)))


def test_requests_are_values():
    """Equal, hashed, pickled and printed by what they ask for: they are part of a Program's key."""
    value = ValueName("Model.0", "mul", 1)
    parts = {
        "modules": ("Model.1",),
        "elementwise": (ElementwiseWork("Model", 40), ElementwiseWork("")),
        "remade": (value,),
        "kept": (value._replace(number=0),),
    }
    whole = RecomputeRequest(**parts)
    same = pickle.loads(pickle.dumps(whole))
    assert same == whole and hash(same) == hash(whole) and repr(same) == repr(whole)
    assert {whole: 1}[same] == 1 and eval(repr(whole)) == whole
    assert bool(whole) and not RecomputeRequest()
    singles = [RecomputeRequest(**{name: part}) for name, part in parts.items()]
    assert len({RecomputeRequest(), whole, *singles}) == 6 and all(singles)
    assert functools.reduce(operator.or_, singles) == whole
    assert str(whole) == (
        "compute again: all of Model.1, elementwise work and convolutions up to 40 FLOPs a byte of "
        "Model, elementwise work of the whole graph, the value Model.0:mul#1, "
        "with Model.0:mul#0 kept"
    )


def test_a_thread_asks_for_nothing_unless_it_is_told_to():
    first, second = RecomputeRequest(("a",)), RecomputeRequest(("b",))
    assert state.recompute is None
    with requesting(RecomputeRequest()):
        assert state.recompute is None
    with requesting(first), requesting(second):
        assert state.recompute == RecomputeRequest(("a", "b"))
    assert state.recompute is None
