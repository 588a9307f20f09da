"""Steps whose model gh.optimize captured, ahead of time and in earnest: forward and backward pass
are Programs of their own."""

import gc

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.nn import functional as F

RNG = np.random.default_rng(0)


def mlp():
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)), (64, 256)


def convolutions():
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)), (
        *(8, 3),
        *(32, 32),
    )


def encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(16 * 64, 10)), (8, 16, 64)


def measured_peaks(model, optimizer, x, y, holds_output: bool, steps: int) -> list[int]:
    """Bytes at the peak of each real step; what is there without it is not counted."""
    manager, peaks, out = gh.memory.current(), [], None
    gc.collect()  # what earlier tests left
    own = {*model.parameters(), *model.buffers()}
    gh.eval(*own)
    large = [p.nbytes for p in own if p.nbytes >= 4096]
    before = manager.stats().allocated_bytes - sum(-(-n // 64) * 64 for n in large)
    for _ in range(steps):
        manager.reset_peak()
        optimizer.zero_grad()
        if holds_output:
            out = model(x)
            loss = F.cross_entropy(out, y)
        else:
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        del loss
        peaks.append(manager.stats().peak_allocated_bytes - before)
    del out
    return peaks


@pytest.mark.slow
@pytest.mark.parametrize("make", [mlp, convolutions, encoder])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("holds_output", [False, True])
def test_peaks_are_those_of_real_steps(make, kind, holds_output):
    with flags.override(compile="always"):
        gh.random.seed(0)
        inner, shape = make()
        model = gh.optimize(inner)
        x = gh.asarray(RNG.standard_normal(shape, dtype=np.float32))
        y = gh.asarray(RNG.integers(0, 10, shape[0]))
        optimizer = getattr(gh.optim, kind)(model.parameters(), lr=1e-3)
        costs = gh.analyze.step(
            model, F.cross_entropy, optimizer, [x, y], steps=4, holds_output=holds_output
        )
        peaks = measured_peaks(model, optimizer, x, y, holds_output, 4)
    assert costs.peaks == peaks
    assert len(costs.runs) > 1 and costs.memory_by_kind.get("activations")
    assert sum(row.nbytes for row in costs.memory) == costs.peaks[-1]


def test_an_analysis_leaves_a_captured_model_as_it_was():
    with flags.override(compile="always"):
        gh.random.seed(0)
        inner, shape = mlp()
        model = gh.optimize(inner)
        x = gh.asarray(RNG.standard_normal(shape, dtype=np.float32))
        expected = inner(x).tolist()
        data = [(shape, "float32"), ((shape[0],), "int64")]
        for _ in range(2):
            gh.analyze.step(model, F.cross_entropy, gh.optim.SGD, data)
            assert model(x).tolist() == expected
