"""Attention with a score function: against PyTorch's, against other forms of ours, captured."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse.nn.functional import blocks, flex

rng = np.random.default_rng(0)
BIAS = rng.normal(size=(4, 5, 7))
DOCUMENT = np.array([0, 0, 1, 1, 1, 2, 2])


def biased(bias):
    return lambda s, b, h, i, j: s + bias[h, i, j]


def within(document):
    return lambda b, h, i, j: document[i] == document[j]


# name: function of (library, its tensor of an array) -> score_mod
SCORES = {
    "plain": lambda lib, t: None,
    "causal": lambda lib, t: lambda s, b, h, i, j: lib.where(i >= j, s, -float("inf")),
    "bias": lambda lib, t: biased(t(BIAS)),
    "alibi": lambda lib, t: lambda s, b, h, i, j: s + (j - i) * 2.0 ** -(h + 1.0),
    "softcap": lambda lib, t: lambda s, b, h, i, j: 20 * lib.tanh(s / 20),
    "batch": lambda lib, t: lambda s, b, h, i, j: s * (b + 1),
}
MASKS = {
    "none": lambda t: None,
    "causal": lambda t: lambda b, h, i, j: i >= j,
    "window": lambda t: lambda b, h, i, j: (i >= j) & (i - j < 3),
    "documents": lambda t: within(t(DOCUMENT)),
    "heads": lambda t: lambda b, h, i, j: (i >= j) | (h > 1),
}


@pytest.fixture
def theirs(twin):
    import torch.nn.attention.flex_attention as lib

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lib, "_warn_once", lambda *args, **kwargs: None)
        patch.setattr(lib, "_validate_device", lambda *args: None)  # its backward pass
        yield lib


PAIRS = [*((name, "window") for name in SCORES), *(("alibi", name) for name in MASKS)]


@pytest.mark.parametrize(("score", "mask"), PAIRS)
def test_flex_attention_equals_pytorchs(twin, theirs, score, mask):
    torch = twin.torch
    q, k, v = (rng.normal(size=(2, h, n, d)) for h, n, d in ((4, 5, 3), (2, 7, 3), (2, 7, 6)))
    ours = {"score_mod": SCORES[score](gh, gh.asarray), "enable_gqa": True, "return_lse": True}
    other = ours | {"score_mod": SCORES[score](torch, torch.tensor)}
    sizes = (2, 4, 5, 7)
    if mask != "none":
        mine, from_torch = MASKS[mask](gh.asarray), MASKS[mask](torch.tensor)
        ours["block_mask"] = flex.create_block_mask(mine, *sizes, BLOCK_SIZE=2)
        result = theirs.create_block_mask(from_torch, *sizes, device="cpu", BLOCK_SIZE=2)
        other["block_mask"] = result
    twin.function(
        lambda q, k, v: F.flex_attention(q, k, v, **ours),
        lambda q, k, v: theirs.flex_attention(q, k, v, **other),
        q,
        k,
        v,
    )


@pytest.mark.parametrize("mask", list(MASKS)[1:])
@pytest.mark.parametrize("size", [2, 3, (4, 2), 128])
def test_block_masks_equal_pytorchs(twin, theirs, mask, size):
    mine, torch = MASKS[mask](gh.asarray), twin.torch
    ours = F.create_block_mask(mine, None, 4, 5, 7, BLOCK_SIZE=size)
    other = theirs.create_block_mask(
        MASKS[mask](torch.tensor), None, 4, 5, 7, device="cpu", BLOCK_SIZE=size
    )
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
        np.testing.assert_array_equal(getattr(ours, name).numpy(), getattr(other, name).numpy())
    np.testing.assert_array_equal(ours.to_dense().numpy(), other.to_dense().numpy())
    assert ours.shape == tuple(other.shape) and ours.sparsity() == pytest.approx(other.sparsity())


def test_blocks_alone_are_a_mask():
    mask = F.BlockMask.from_kv_blocks([[[1, 2]]], [[[[0, 1], [0, 1]]]], BLOCK_SIZE=2)
    assert mask.shape == (1, 1, 4, 4) and mask.numel() == 16 and mask.sparsity() == 25.0
    q = gh.zeros((1, 1, 4, 1))
    v = gh.asarray([1.0, 1.0, 3.0, 3.0]).reshape(1, 1, 4, 1)
    assert F.flex_attention(q, q, v, block_mask=mask).reshape(-1).tolist() == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("causal", [True, False])
def test_windows(causal):
    i, j = np.ogrid[:5, :5]
    expected = (np.abs(i - j) < 3) & ((i >= j) | (not causal))
    mask = F.create_mask(F.sliding_window(3, causal), None, None, 5, 5)
    np.testing.assert_array_equal(mask[0, 0].numpy(), expected)


def test_masks_are_joined():
    later, near = (lambda b, h, i, j: i > j), (lambda b, h, i, j: i - j < 2)
    i, j = np.ogrid[:4, :4]
    both = F.create_mask(F.and_masks(later, near), None, None, 4, 4)
    one = F.create_mask(F.or_masks(later, near), None, None, 4, 4)
    np.testing.assert_array_equal(both[0, 0].numpy(), (i > j) & (i - j < 2))
    np.testing.assert_array_equal(one[0, 0].numpy(), (i > j) | (i - j < 2))
    assert F.create_mask(F.noop_mask, 1, 1, 2, 2).numpy().all()


def test_second_derivatives_and_per_example_gradients():
    q = gh.asarray(rng.normal(size=(1, 1, 3, 2)))
    mod = SCORES["softcap"](gh, gh.asarray)

    def loss(q):
        return (F.flex_attention(q, q, q, mod) ** 2).sum()

    def dense(q):
        s = 20 * gh.tanh(q @ q.mT / 2**0.5 / 20)
        e = gh.exp(s)
        return ((e / e.sum(-1, keepdims=True) @ q) ** 2).sum()

    flat = q.reshape(-1)
    ours = gh.hessian(lambda x: loss(x.reshape(q.shape)))(flat)
    expected = gh.hessian(lambda x: dense(x.reshape(q.shape)))(flat)
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)
    several = gh.asarray(rng.normal(size=(3, *q.shape)))
    batched = gh.vmap(gh.grad(loss))(several)
    np.testing.assert_allclose(batched[1].numpy(), gh.grad(loss)(several[1]).numpy(), rtol=1e-9)


def test_long_sequences_are_done_in_blocks(monkeypatch):
    q, k, v = (gh.asarray(rng.normal(size=(1, 2, 40, 3))).requires_grad_() for _ in range(3))
    mask = F.create_block_mask(MASKS["window"](None), None, None, 40, 40, BLOCK_SIZE=8)
    mod = SCORES["alibi"](gh, None)

    def run():
        for x in (q, k, v):
            x.grad = None
        out, lse = F.flex_attention(q, k, v, mod, mask, return_lse=True)
        ((out**2).sum() + lse.sum()).backward()
        return [x.numpy().copy() for x in (out, lse, q.grad, k.grad, v.grad)]

    whole = run()
    monkeypatch.setattr(blocks, "WHOLE", 1)
    monkeypatch.setattr(blocks, "BLOCK", 300)
    monkeypatch.setattr(blocks, "FEWEST_ROWS", 4)
    for a, b in zip(run(), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_captured_under_autocast_and_in_float16():
    q = gh.asarray(rng.normal(size=(1, 2, 6, 4)).astype("f4"))
    bias = gh.asarray(BIAS[:2, :5, :5].astype("f4"))
    bias = gh.zeros((2, 6, 6)) + bias.mean()

    def step(q):
        def mod(score, b, h, i, j):
            return score + bias[h, i, j]

        return F.flex_attention(q, q, q, mod)

    expected = step(q).numpy()
    fast = gh.optimize(step)
    for _ in range(3):
        np.testing.assert_allclose(fast(q).numpy(), expected, rtol=1e-5, atol=1e-6)
    with gh.autocast("bfloat16"):
        low = step(q)
    np.testing.assert_allclose(low.numpy().astype("f4"), expected, atol=0.05)
    half = q.to("float16")
    assert F.flex_attention(half, half, half).dtype is gh.float16
