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
            made = program.compiled(record.describe(record.recorder.pending))
            gh.eval(*results)
        scattered = [n for n in made.plan.graph.nodes if n.op == "scatter_add"]
        assert [n.inputs[0].op == "full" for n in scattered] == [alone]
        with gh.backends.use("numpy"):
            expected = gradient(gh.asarray(table), gh.asarray(x), alone)
        for value, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(value.numpy(), reference.numpy(), rtol=1e-5, atol=1e-5)
