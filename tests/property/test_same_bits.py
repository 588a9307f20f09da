"""A value has the same bits whatever is computed with it: alone, inside a kernel, or made again."""

import contextlib

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import plan
from glasshouse.analyze.planner.blocks import AppliedBlocks, RematBlock, candidates_of
from glasshouse.base.flags import flags
from glasshouse.bench.cases import CASES
from glasshouse.nn import functional as F

UNARY = ("exp", "tanh", "sin", "erf", "log1p", "sqrt", "floor")
WIDTHS = (1, 2, 3, 7, 16, 31, 50, 197, 4097, 9001)  # of rows: even, uneven, and longer than a chunk


def steps_of(rng, x, count: int):
    """Values that are made of each other at random, by sums of rows and columns among others."""
    results = [x]
    for _ in range(count):
        a, b = (results[i] for i in rng.integers(0, len(results), 2))
        kind = rng.integers(0, 6)
        if kind == 0:
            new = a * b + x
        elif kind == 1:
            new = a - (a * b).mean(-1, keepdims=True)
        elif kind == 2:
            new = a + (a * x).sum(0, keepdims=True) * 0.01
        elif kind == 3:
            new = F.softmax(a, -1) * b
        elif kind == 4:
            new = a / (1 + b * b) - a * 0.3
        else:
            new = getattr(gh, UNARY[rng.integers(0, len(UNARY))])(gh.clip(a, 0.0, 4.0))
        results.append(new)
    return results[1:]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_whatever_else_a_program_computes(seed):
    """The last of some values by itself, and with all that it is made of as results too."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 40)), WIDTHS[seed % len(WIDTHS)])
    dtype = ("float32", "float32", "bfloat16", "float64", "float32", "float16")[seed % 6]
    data = rng.standard_normal(shape)
    results = []
    with gh.backends.use("lazy"), flags.override(compile="always"):
        for count in (1, 3, 8):
            result = steps_of(np.random.default_rng(seed), gh.asarray(data).astype(dtype), 8)
            del result[:-count]
            gh.eval(*result)
            results.append(result[-1].numpy().astype("float64"))
    assert np.isfinite(results[0]).all()
    for other in results[1:]:
        assert np.array_equal(results[0], other)


# As many batches that activations, and not what oneDNN works on (with AMX), make the peak.
BATCHES = {"resnet50": 1, "vit_b_16": 16, "bert": 64}


class Step:
    """One training step of a small model of the benchmark, and all that it changes."""

    def __init__(self, name: str, dtype: str):
        gh.random.seed(0)
        self.lower = "bfloat16" if dtype == "bfloat16" else None
        options, arrays = CASES[name].sizes(True)
        self.model = CASES[name].make(**options)
        self.loss_of = CASES[name].loss
        self.data = [gh.asarray(np.concatenate([x] * BATCHES[name])) for x in arrays]
        self.opt = gh.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def plan(self, budget, solver: str):
        args = self.model, self.loss_of, self.opt, self.data, budget
        return plan(*args, solver=solver, autocast=self.lower)

    def run(self) -> list:
        gh.random.seed(7)
        with gh.autocast(self.lower) if self.lower else contextlib.nullcontext():
            loss = self.loss_of(self.model(self.data[0]), self.data[1])
        loss.backward()
        grads = [p.grad for p in self.model.parameters()]
        self.opt.step()
        state = (loss, *grads, *self.model.parameters(), *self.model.buffers())
        return [x.numpy() for x in state]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", BATCHES)
def test_whatever_is_computed_again(name, dtype):
    with gh.backends.use("lazy"), flags.override(compile="always"):
        plain = Step(name, dtype).run()
        for means in ("whole", "elementwise"):
            step = Step(name, dtype)
            blocks = [RematBlock(path, means) for path in candidates_of(step.model)]
            applied = AppliedBlocks(step.model, blocks)
            assert blocks and all(map(np.array_equal, plain, step.run()))
            applied.undo()
        for solver in ("chain", "min-cut"):
            step = Step(name, dtype)
            choice = step.plan(0.97, solver)
            with choice:
                assert choice.blocks and all(map(np.array_equal, plain, step.run()))
