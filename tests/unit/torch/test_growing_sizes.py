"""PyTorch programs whose tensors grow by one in each step."""

import numpy as np
import pytest
import torch

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.torch.backend import runtime

STEPS, MOST = 300, 3


def step(text, weight):
    scores = torch.softmax(text @ text.T, -1) @ text
    return torch.cat((text, torch.tanh(scores @ weight)[-1:]))


def loop(step):
    text, weight = torch.arange(4.0)[None] / 4, torch.randn(4, 4, generator=seeded())
    for _ in range(STEPS):
        text = step(text, weight)
    return text


def seeded():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def variants(monkeypatch):
    """The keys of sizes that are compiled."""
    results = []
    compile_variant = runtime.TorchGraphProgram.compile_variant

    def noted(self, args):
        results.append(runtime.key_of(args))
        return compile_variant(self, args)

    monkeypatch.setattr(runtime.TorchGraphProgram, "compile_variant", noted)
    with flags.override(compile="auto"):
        yield results


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True])
def test_torch_compile_makes_a_few_programs(dynamic, variants):
    result = loop(torch.compile(step, backend="glasshouse", dynamic=dynamic))
    assert 1 <= len(variants) <= MOST
    torch.testing.assert_close(result, loop(step), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_optimize_makes_a_few_programs(variants):
    before = gh.capture.counters["captures"]
    result = loop(gh.optimize(step))
    assert len(variants) <= MOST
    assert gh.capture.counters["captures"] - before <= MOST
    torch.testing.assert_close(result, loop(step), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_optimize_captures_few_lengths_of_a_list(variants):
    def mean(rows):
        return torch.tanh(torch.stack(rows).mean(0))

    before, run, rows = gh.capture.counters["captures"], gh.optimize(mean), [torch.ones(3)]
    for _ in range(STEPS):
        rows.append(run(rows))
        torch.testing.assert_close(rows[-1], mean(rows[:-1]))
    assert gh.capture.counters["captures"] - before <= MOST


@pytest.mark.slow
def test_gradients_are_eagers_for_every_size(variants):
    """Also where the forward pass ran as a Program and the backward pass does not yet, since the
    forward pass alone met its sizes before: what was saved lies as the Program chose."""

    def loss(x, weight):
        y = torch.relu(torch.nn.functional.conv2d(x, weight, padding=1))
        return torch.nn.functional.max_pool2d(y, 2).flatten(1).softmax(1).square().sum()

    compiled = torch.compile(loss, backend="glasshouse", dynamic=True)
    weight = torch.randn(8, 3, 3, 3, generator=seeded()).requires_grad_()
    for n in (2, 3, 4, 5, 6):
        x = torch.randn(n, 3, 8, 8, generator=seeded()).requires_grad_()
        for _ in range(5 if n > 4 else 1):
            value = compiled(x, weight)
        result = torch.autograd.grad(value, (x, weight))
        expected = torch.autograd.grad(loss(x, weight), (x, weight))
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"strict": True}, {"dtype": "bfloat16"}])
def test_options_that_only_programs_fulfil_compile_each_size(options, variants):
    compiled = torch.compile(step, backend="glasshouse", dynamic=True, options=options)
    for n in (2, 3, 4, 5):
        result = compiled(torch.ones(n, 4), torch.ones(4, 4))
        np.testing.assert_allclose(result, step(torch.ones(n, 4), torch.ones(4, 4)), rtol=1e-2)
    assert len(variants) == 4
