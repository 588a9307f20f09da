"""Rules of rewriting on graphs that are as deep as loops make them."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program
from glasshouse.graph import record

STEPS = {
    "terms": lambda y: y + 0.5,
    "factors": lambda y: y * 1.001,
    "signs": lambda y: -y,
    "all": lambda y: (-y * 1.001 + 1) / 2,
}


@pytest.mark.parametrize("name", STEPS)
def test_the_sum_of_a_long_chain_is_compiled(name):
    def chain():
        y = gh.tensor(np.arange(12, dtype=np.float32).reshape(3, 4)) / 12
        for _ in range(600):
            y = STEPS[name](y)
        return [y.sum().numpy(), y.sum(axis=0).numpy()]

    with flags.override(compile="always"), gh.backends.use("lazy"):
        compiled = chain()
    with gh.backends.use("numpy"):
        expected = chain()
    for value, reference in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4)


def test_what_is_scattered_into_zeros_and_added_is_scattered_into_the_other():
    """The gradient of a table that is looked up and multiplied with; if read alone, it stays."""
    rng = np.random.default_rng(0)
    table, x = (rng.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
    places = np.array([0, 2, 2, 5])

    def gradient(w, x, alone: bool):
        looked_up = gh.grad(lambda w: (w[gh.asarray(places)] ** 2).sum())(w)
        return (looked_up + x @ (x.T @ w), *([looked_up] if alone else []))

    for alone in (False, True):
        with flags.override(compile="always"), gh.backends.use("lazy"), program.plans_kept():
            results = gradient(gh.asarray(table), gh.asarray(x), alone)
            kernel_program = program.compiled(record.describe(record.recorder.pending))
            gh.eval(*results)
        scattered = [n for n in kernel_program.plan.graph.nodes if n.op == "scatter_add"]
        assert [n.inputs[0].op == "full" for n in scattered] == [alone]
        with gh.backends.use("numpy"):
            expected = gradient(gh.asarray(table), gh.asarray(x), alone)
        for value, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(value.numpy(), reference.numpy(), rtol=1e-5, atol=1e-5)


def linear_step(dtype=gh.float32):
    layer = gh.nn.Linear(8, 4).to(dtype)
    layer(gh.ones((3, 8), dtype=dtype)).float().sum().backward()
    return [layer.weight.grad.T, layer.bias.grad]


def network_step(layer, *shape):
    loss = layer(gh.random.normal(shape))
    loss = (loss[0] if isinstance(loss, tuple) else loss).square().mean()
    loss.backward()
    return [p.grad * 2 for p in layer.parameters()]


def moved_products():
    x, y = gh.random.normal((2, 4, 4)), gh.random.normal((2, 4, 4))
    moved = [
        (x @ y).mT, (x + y).mT, (x @ y)[..., ::2], (x @ y).reshape(4, 8), (x @ y).sum(1).reshape(8),
        gh.flip(x @ y, axis=1), gh.concat([x @ y, x + y]).mT, gh.tile((x @ y)[:1], (3, 1, 1)),
        (x @ y).astype(gh.float64).mT, gh.pad(x @ y, ((0, 0), (1, 1), (0, 0))).mT,
    ]  # fmt: skip
    return [part for whole in moved for part in (whole * 2, whole.sum(0))]


GRAPHS = {
    "linear": linear_step,
    "half linear": lambda: linear_step(gh.bfloat16),
    "convolution": lambda: network_step(gh.nn.Conv2d(2, 4, 3), 2, 2, 8, 8),
    "attention": lambda: network_step(gh.nn.TransformerEncoderLayer(8, 2, 16), 3, 2, 8),
    "recurrence": lambda: network_step(gh.nn.GRU(4, 4), 3, 2, 4),
    "moved products": moved_products,
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", GRAPHS)
def test_calls_that_compute_are_not_shown_as_calls_that_move(name):
    """Each node of a rewritten graph that computes has the place of a call that computes."""
    with flags.override(compile="always"), gh.backends.use("lazy"), program.plans_kept():
        results = GRAPHS[name]()
        recording = record.describe(record.recorder.pending)
        nodes = program.compiled(recording).plan.graph.nodes
        gh.eval(*results)
    computing = [n for n in nodes if is_computing(n) and n.origin.place >= 0]
    assert computing
    for node in computing:
        recorded = recording.nodes[node.origin.place]
        assert is_computing(recorded), f"{node.op} is shown as {recorded.op}"


def is_computing(node) -> bool:
    primitive = gh.primitives.get(node.op)
    return primitive is not None and primitive.kind not in ("create", "movement")
