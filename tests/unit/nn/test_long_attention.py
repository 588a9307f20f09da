"""Attention over long sequences in blocks: the same values, gradients and masks, less memory."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program
from glasshouse.nn import functional as F
from glasshouse.nn.functional import blocks

rng = np.random.default_rng(0)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


Q, K, V = draw(2, 2, 40, 8), draw(2, 2, 30, 8), draw(2, 2, 30, 4)
MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "rows": {"attn_mask": rng.random((40, 30)) < 0.7},
    "keys": {"attn_mask": draw(2, 1, 1, 30)},
}


def run(options):
    q, k, v = (gh.tensor(x, requires_grad=True) for x in (Q, K, V))
    options = {
        name: gh.asarray(x) if isinstance(x, np.ndarray) else x for name, x in options.items()
    }
    y = F.scaled_dot_product_attention(q, k, v, **options)
    (y * y).sum().backward()
    return [y.numpy(), *(x.grad.numpy() for x in (q, k, v))]


@pytest.mark.parametrize("mask", MASKS)
def test_blocks_give_what_the_whole_gives(monkeypatch, mask):
    whole = run(MASKS[mask])
    monkeypatch.setattr(blocks, "WHOLE", 100)
    monkeypatch.setattr(blocks, "BLOCK", 30 * 16)
    monkeypatch.setattr(blocks, "FEWEST_ROWS", 4)
    for ours, theirs in zip(run(MASKS[mask]), whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_scores_never_exist_at_once(monkeypatch):
    monkeypatch.setattr(blocks, "WHOLE", 1000)
    monkeypatch.setattr(blocks, "BLOCK", 1 << 14)
    length = 1024
    with gh.backends.use("lazy") as backend, flags.override(compile="always"):
        backend.evaluate()
        program.programs.clear()
        q, k, v = (gh.tensor(draw(1, length, 8), requires_grad=True) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v).sum().backward()
        backend.evaluate()
        result = max((e.program for e in program.programs.values()), key=lambda p: p.arena_bytes)
    assert result.arena_bytes < length * length * 4 // 2
